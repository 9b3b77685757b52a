"""The order of `roost status`: names with their numbers as numbers, slot2 before slot10."""

from __future__ import annotations

import re
import struct
from collections.abc import Sequence
from itertools import repeat
from typing import Any, Final, cast

from shared.classad import UNDEFINED, ClassAd, evaluate, unparse
from shared.classad.column_page import Sheet
from shared.classad.expr import AttrRef, Expr
from shared.classad.references import decided_by

_DIGITS: Final = re.compile("[0-9]+")
_PART: Final = re.compile(rb"[0-9]+|[^0-9]")


def ordered(ads: Sequence[ClassAd], keys: Sequence[Expr] = ()) -> list[int]:
    """Which ad comes first, second, ... by the values of expressions; by Machine and Name without any. What is equal
    stays as it came."""
    sorting = _sorting(ads, keys)
    return sorted(range(len(ads)), key=sorting.__getitem__)  # by number, as ads can not be compared


def _sorting(ads: Sequence[ClassAd], keys: Sequence[Expr]) -> Sequence[Any]:
    """What stands in that order, for each ad."""
    if keys:
        columns = [_texts(ads, one) for one in keys]
        texts = ["\n".join(row) for row in zip(*columns, repeat(""), strict=False)]
    elif isinstance(ads, Sheet) and (named := _named(ads)) is not None:
        ranks = _ranks(*named)
        if ranks is not None:
            return ranks
        texts = [f"{machine}\n{name}\n" for machine, name in zip(*named, strict=True)]
    else:
        texts = [f"{_attribute(ad, 'machine')}\n{_attribute(ad, 'name')}\n" for ad in ads]
    if not all(map(str.isascii, texts)):
        return [_bytewise(text) for text in texts]
    return [natural(text) for text in texts] if keys else _by_name(texts)


def _texts(ads: Sequence[ClassAd], key: Expr) -> list[str]:
    """The value of an expression in each ad."""
    names = decided_by(key) if isinstance(ads, Sheet) else None
    if names is None or not isinstance(ads, Sheet):
        return [_shown(evaluate(key, ad)) for ad in ads]
    if isinstance(key, AttrRef):
        cells = ads.cells(key.key)
        if set(map(type, cells)) <= {str}:
            return cast("list[str]", cells)
    alike, few = ads.alike(sorted(names)), ads.narrowed(names)
    shown = {place: _shown(evaluate(key, few[place])) for place in dict.fromkeys(alike)}
    return [shown[place] for place in alike]


def _named(ads: Sheet) -> tuple[list[str], list[str]] | None:
    """Machine and Name of each; None where not all are strings."""
    machines, names = ads.cells("machine"), ads.cells("name")
    if set(map(type, machines)) | set(map(type, names)) != {str}:
        return None
    return cast("list[str]", machines), cast("list[str]", names)


def _ranks(machines: Sequence[str], names: Sequence[str]) -> list[int] | None:
    """Where each stands, as far as machines and slots of the same name stand together, for names that are slot@machine;
    None where others are there. A few thousand names are compared in place of all."""
    slots = []
    machine, end = "", "@"
    for host, name in zip(machines, names, strict=True):
        if host != machine:
            machine, end = host, f"@{host}"
        if not name.endswith(end):
            return None
        slots.append(name[: len(name) - len(end)])
    hosts, kinds = set(machines), set(slots)
    # What is no ordinary character may stand before the line break between both names, or the @.
    if not all(text.isascii() and text.isprintable() and "@" not in text for text in (*hosts, *kinds)):
        return None
    host_ranks = {host: rank for rank, host in enumerate(sorted(hosts, key=natural))}
    kind_ranks = {kind: rank for rank, kind in enumerate(sorted(kinds, key=lambda kind: natural(f"{kind}@")))}
    size = len(kinds)
    return [host_ranks[host] * size + kind_ranks[kind] for host, kind in zip(machines, slots, strict=True)]


def natural(text: str) -> str:
    """A key by which texts (ASCII) sort as HTCondor sorts them: a longer number is a larger one, and one that begins
    with zeros comes before those that do not."""
    return _DIGITS.sub(_number, text)


def _number(found: re.Match[str]) -> str:
    digits = found[0]
    if digits[0] != "0" or len(digits) == 1:
        return f"9{chr(0x100 + min(len(digits), 0xC000))}{digits}"
    return f"0{chr(0xD000 - _zeros(digits))}{digits}"


def _zeros(digits: str) -> int:
    """How many zeros a number begins with, its last digit apart."""
    return min(len(digits) - len(digits.lstrip("0")), len(digits) - 1, 0xC000)


def _bytewise(text: str) -> list[tuple[int, int, bytes]]:
    """The same key for any text: bytes beyond ASCII come before all others."""
    key = []
    for part in _PART.findall(text.encode("utf-8", "surrogateescape")):
        if not part.isdigit():
            key.append((part[0] - 0x100 if part[0] > 0x7F else part[0], 0, b""))
        elif part[:1] != b"0" or len(part) == 1:
            key.append((0x39, len(part), part))
        else:
            key.append((0x30, -_zeros(part.decode()), part))
    return key


def _by_name(texts: Sequence[str]) -> list[str]:
    """Keys of lines Machine, slot@Machine: machines come again and again."""
    known: dict[str, str] = {}
    keys = []
    for text in texts:
        machine, _, name = text.partition("\n")
        slot, at, host = name.partition("@")
        if not at:
            keys.append(natural(text))
            continue
        parts = []
        for part in (machine, slot, host):
            key = known.get(part)
            if key is None:
                key = known[part] = natural(part)
            parts.append(key)
        keys.append(f"{parts[0]}\n{parts[1]}@{parts[2]}")
    return keys


def _attribute(ad: ClassAd, key: str) -> str:
    entry = ad.table().get(key)
    if entry is not None and type(entry[1]) is str:
        return entry[1]
    return _shown(ad.eval(key))


def _shown(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, float):
        # Its bits as an integer sort as the number does, where it is positive.
        return str(struct.unpack("<q", struct.pack("<d", value))[0])
    if isinstance(value, bool | int):
        return str(int(value))
    return "undefined" if value is UNDEFINED else unparse(value)
