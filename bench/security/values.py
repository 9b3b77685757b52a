"""Hostile values: numbers, texts, bytes, ads and messages of every type, and values of a JSON schema; all by dice."""

from __future__ import annotations

import random
import types
import typing
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgpack
from pydantic import BaseModel

from tests.integration.test_hostile import INTEGERS, NAMES, REALS, TEXTS, VALUES
from tests.security.hostile import CORPUS, LONGEST, generated

Dice = random.Random

_LARGE: Final = (1_000, 3_000, 30_000)


def _filled(value: bytes, count: int) -> bytes:
    """An ad with one attribute, a list."""
    return b"\x81\xa1a\xdd" + count.to_bytes(4, "big") + value * count


#: Packed ads that cost their reader as much as so many bytes can.
DEAR_ADS: Final[tuple[bytes, ...]] = (
    _filled(b"\x80", 1_900_000),
    _filled(b"\xc0", 1_900_000),
    bytes(msgpack.packb({f"{number:x}": None for number in range(250_000)})),
    bytes(msgpack.packb({f"{number:x}": msgpack.ExtType(1, b"a") for number in range(8_900)})),
    bytes(msgpack.packb({"a": {f"{number:x}": {} for number in range(9_000)}})),
    bytes(msgpack.packb({"x": "\u00af" * 900_000, "y": b"\xaf" * 150_000})),
    bytes(msgpack.packb({"x": b"\xaf" * 2_000_000})),
)


def integer(dice: Dice) -> int:
    return dice.choice(INTEGERS) if dice.random() < 0.7 else dice.randrange(-3, 100)


def real(dice: Dice) -> float:
    return dice.choice(REALS) if dice.random() < 0.7 else dice.uniform(0, 10)


def some_text(dice: Dice) -> str:
    kind = dice.random()
    if kind < 0.7:
        return dice.choice(TEXTS)
    if kind < 0.95:
        return "".join(
            chr(dice.choice((dice.randrange(32, 127), dice.randrange(0x20), dice.randrange(0xD000)))) for _ in range(8)
        )
    return dice.choice(("x", "(", "[", "%", "\0", "é", "a,", "$(A)")) * dice.choice(_LARGE)


def expression(dice: Dice) -> str:
    """One that somebody thought of, or one made up."""
    if dice.random() < 0.01:
        return str(dice.choice(list(CORPUS.values())))
    found = "x" * (LONGEST + 1)
    while len(found) > LONGEST:
        found = generated(dice, dice.randrange(1, 5))  # type: ignore[no-untyped-call]
    return altered_text(dice, found) if dice.random() < 0.2 else found


def altered_text(dice: Dice, found: str) -> str:
    """With some characters taken away, put in, or doubled."""
    for _ in range(dice.randrange(1, 6)):
        at = dice.randrange(len(found) + 1)
        more = dice.choice(
            ("", "(", ")", '"', "\\", "\n", "\0", "$(", "@", ";", "{", "]", "=", "é", found[at : at + 20])
        )
        found = found[:at] + more + found[at + dice.randrange(3) :]
    return found


def altered(dice: Dice, data: bytes) -> bytes:
    """With some bytes changed, or cut."""
    found = bytearray(data)
    for _ in range(dice.randrange(1, 8)):
        if not found:
            break
        at = dice.randrange(len(found))
        kind = dice.random()
        if kind < 0.6:
            found[at] = dice.randrange(256)
        elif kind < 0.8:
            del found[at : at + dice.randrange(1, 20)]
        elif kind < 0.95:
            found[at:at] = dice.randbytes(dice.randrange(1, 9))
        else:
            del found[at:]
    return bytes(found)


def deep(dice: Dice) -> bytes:
    """Nested msgpack."""
    depth = dice.choice((100, 600, 2_000, 50_000))
    return dice.choice((b"\x91", b"\x81\xa1a", b"\x81\xa4body")) * depth + b"\xc0"


def packed_ad(dice: Dice) -> bytes:
    """As tests.integration.test_hostile.packed_ads."""
    kind = dice.random()
    if kind < 0.05:
        return dice.randbytes(dice.randrange(40))
    if kind < 0.1:
        return bytes(msgpack.packb({"Name": msgpack.ExtType(dice.randrange(6), dice.choice((b"((((", b"\xff", b"")))}))
    if kind < 0.12:
        return deep(dice)
    ad: dict[str, Any] = {"Cmd": "/bin/true", "Iwd": "/tmp", "ShouldTransferFiles": "NO", "Name": "slot1@ep"}
    if dice.random() < 0.5:
        ad |= {"RequestCpus": 1, "RequestMemory": 16}
    for _ in range(dice.randrange(7)):
        value: Any = dice.choice(VALUES)
        if dice.random() < 0.2:
            value = msgpack.ExtType(1, expression(dice).encode(errors="replace"))
        elif isinstance(value, str) and value.startswith("="):
            value = msgpack.ExtType(1, value[1:].encode())
        ad[dice.choice(NAMES)] = value
    packed = bytes(msgpack.packb(ad, unicode_errors="surrogateescape"))
    return altered(dice, packed) if dice.random() < 0.3 else packed


_PLAIN: Final[Mapping[Any, Callable[[Dice], Any]]] = {
    int: integer,
    float: real,
    str: some_text,
    bytes: packed_ad,
    bool: lambda dice: dice.random() < 0.5,
    type(None): lambda dice: None,
    Any: lambda dice: dice.choice((integer, real, some_text, lambda _: None, lambda _: [1, "a", None]))(dice),
}


def of(annotation: Any, dice: Dice) -> Any:
    """A value of the type of a message's field."""
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Annotated:
        return of(arguments[0], dice)
    if origin is typing.Literal:
        return dice.choice(arguments)
    if origin in (typing.Union, types.UnionType):
        return of(dice.choice(arguments), dice)
    if origin is list:
        return [of(arguments[0], dice) for _ in range(dice.randrange(4))]
    if origin is dict:
        return {of(arguments[0], dice): of(arguments[1], dice) for _ in range(dice.randrange(4))}
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return fields_of(annotation, dice)
    return _PLAIN[annotation](dice)


def fields_of(kind: type[BaseModel], dice: Dice) -> dict[str, Any]:
    """All fields of a message, as it is packed; bounds are mostly not kept, which receivers have to see."""
    return {name: of(field.annotation, dice) for name, field in kind.model_fields.items()}


def of_schema(schema: Mapping[str, Any], named: Mapping[str, Any], dice: Dice, depth: int = 0) -> Any:
    """A value that a JSON schema allows, or (one in ten) does not. named: the schemas of components."""
    if dice.random() < 0.1 or depth > 6:
        return _PLAIN[Any](dice)
    if reference := schema.get("$ref"):
        return of_schema(named[reference.rpartition("/")[2]], named, dice, depth + 1)
    for several in ("anyOf", "oneOf", "allOf"):
        if several in schema:
            return of_schema(dice.choice(schema[several]), named, dice, depth + 1)
    if "enum" in schema:
        return dice.choice(schema["enum"])
    kind = schema.get("type")
    if kind == "object":
        found = {
            name: of_schema(one, named, dice, depth + 1)
            for name, one in schema.get("properties", {}).items()
            if name in schema.get("required", ()) or dice.random() < 0.6
        }
        if isinstance(more := schema.get("additionalProperties"), dict):
            found |= {some_text(dice): of_schema(more, named, dice, depth + 1) for _ in range(dice.randrange(3))}
        return found
    if kind == "array":
        return [of_schema(schema.get("items", {}), named, dice, depth + 1) for _ in range(dice.randrange(4))]
    if kind == "integer":
        return dice.choice([schema.get("minimum", 0), schema.get("maximum", 2**31), integer(dice)])
    if kind == "number":
        return real(dice)
    if kind == "boolean":
        return dice.random() < 0.5
    if schema.get("maxLength") == 100_000:  # as constraints have it
        return expression(dice)
    return some_text(dice)
