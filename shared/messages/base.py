"""What every message on the bus has in common, and the registry of message types.

A message is a frozen pydantic model with a `type` (dotted, unique) and a `version`. On the wire it travels in
an envelope, packed with msgpack. Readers ignore fields they do not know; a type or version nobody knows is
dead-lettered, never guessed."""

from __future__ import annotations

import hashlib
import os
import time
from dataclasses import dataclass, field
from functools import cache
from types import NoneType
from typing import Any, ClassVar, TypeVar

import msgpack
from pydantic import BaseModel, ConfigDict, GetCoreSchemaHandler, ValidationError
from pydantic_core import CoreSchema

from shared.compression import compress, decompress, plain_size
from shared.errors import PermanentError
from shared.messages.wire import (
    MOST_BYTES,
    MOST_ENTRIES,
    MOST_LARGE_BYTES,
    MOST_LARGE_ENTRIES,
    MOST_LARGE_VALUES,
    MOST_VALUES,
    UNCOUNTED,
    claimed,
    packed_body,
    read,
    said_before_body,
    too_large,
)

ENVELOPE_VERSION = 1
#: Messages of kinds that are `compressed` and longer than this (bytes) travel compressed (shared.compression).
COMPRESS_ABOVE = 4096


M = TypeVar("M", bound="type[Message]")


class BadMessage(PermanentError):
    """Bytes that are no message of ours: the reason names the field and the mend."""


def _fail_fast(schema: Any) -> None:
    """Of all lists and maps in it."""
    if isinstance(schema, list | tuple):
        for one in schema:
            _fail_fast(one)
    elif isinstance(schema, dict):
        if schema.get("type") in ("list", "dict", "tuple"):
            schema["fail_fast"] = True
        for key, one in schema.items():
            if key not in ("metadata", "serialization"):
                _fail_fast(one)


class Part(BaseModel):
    """What a message is made of. The first mistake in a list or map is told, and no other one: 100,000 of them would
    hold a loop for 400 ms."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    @classmethod
    def __get_pydantic_core_schema__(cls, source: type[BaseModel], handler: GetCoreSchemaHandler) -> CoreSchema:
        schema = handler(source)
        _fail_fast(schema)
        return schema


class Message(Part):
    """One kind of message. Subclasses set `type`, and `version` when a change is more than an added field."""

    type: ClassVar[str] = ""
    version: ClassVar[int] = 1
    #: True where a loss would cost something: persistent and confirmed. False where the next message repairs
    #: it.
    durable: ClassVar[bool] = False
    #: True for transient messages that wait, in their order, while their sender has no connection: facts.
    kept: ClassVar[bool] = False
    #: True where a message may hold many ads, which say much the same: large ones travel compressed.
    compressed: ClassVar[bool] = False
    #: What it may hold. Who has more to say says it in parts.
    most_bytes: ClassVar[int] = MOST_BYTES
    most_entries: ClassVar[int] = MOST_ENTRIES
    most_values: ClassVar[int] = MOST_VALUES


class Large(Message):
    """One that holds ads, or lists of what is in a whole pool."""

    most_bytes: ClassVar[int] = MOST_LARGE_BYTES
    most_entries: ClassVar[int] = MOST_LARGE_ENTRIES
    most_values: ClassVar[int] = MOST_LARGE_VALUES


_REGISTRY: dict[tuple[str, int], type[Message]] = {}
#: Of messages by type, the most that any version may have: values, and bytes.
_MOST_OF: dict[str, int] = {}
_MOST_BYTES_OF: dict[str, int] = {}


def message(cls: M) -> M:
    """Class decorator: enter a message type into the catalogue."""
    key = (cls.type, cls.version)
    if not cls.type or key in _REGISTRY:
        raise TypeError(f"{cls.__name__}: type {cls.type!r} version {cls.version} is empty or taken")
    _REGISTRY[key] = cls
    _MOST_OF[cls.type] = max(cls.most_values, _MOST_OF.get(cls.type, 0))
    _MOST_BYTES_OF[cls.type] = max(cls.most_bytes, _MOST_BYTES_OF.get(cls.type, 0))
    return cls


def catalogue() -> dict[tuple[str, int], type[Message]]:
    """All known message types by (type, version)."""
    return dict(_REGISTRY)


@cache
def known_types() -> list[str]:
    """What this release knows, as "type/version", sorted."""
    return sorted(f"{kind}/{version}" for kind, version in _REGISTRY)


@cache
def protocol() -> str:
    """A digest of all messages with their fields: daemons with the same one speak alike. Of those with another one it
    only says that: fields are added, and old and new ones understand each other (shared.messages.compatibility)."""
    said = ";".join(
        f"{kind}/{version}:" + ",".join(f"{name}{'!' * one.is_required()}" for name, one in cls.model_fields.items())
        for (kind, version), cls in sorted(_REGISTRY.items())
    )
    return hashlib.sha256(said.encode()).hexdigest()[:12]


def new_id() -> str:
    """A time-ordered unique id (uuid version 7, as 32 hex digits)."""
    millis = time.time_ns() // 1_000_000
    tail = int.from_bytes(os.urandom(10), "big")
    value = (millis << 80) | (0x7 << 76) | ((tail >> 68 & 0xFFF) << 64) | (0b10 << 62) | (tail & (1 << 62) - 1)
    return f"{value:032x}"


@dataclass(frozen=True, slots=True)
class Person:
    """Whom a gateway asks for. level: what their token, or another login, opens."""

    user: str  # name@domain
    level: str  # READ, WRITE or ADMINISTRATOR
    scopes: tuple[str, ...] = ()  # patterns of the gateway's operations; none: all that the level opens


@dataclass(frozen=True, slots=True)
class Head:
    """What a large message says before its body."""

    type: str
    sender: str

    @classmethod
    def of(cls, data: bytes) -> Head | None:
        """None: it is not large. Raises BadMessage for one that does not say in its beginning what it is, and one of
        more bytes than its kind may have, as it will be once it is no longer compressed."""
        try:
            size = plain_size(data)
            if size <= UNCOUNTED:
                return None
            said = said_before_body(data)
        except ValueError as error:
            raise BadMessage(f"not a msgpack envelope: {error}") from error
        kind, sender = said.get("type"), said.get("sender")
        if not isinstance(kind, str) or not isinstance(sender, str):
            raise BadMessage(
                f"a message of {size} bytes that does not say its type and sender before its body: want both first"
            )
        if (most := _MOST_BYTES_OF.get(kind, 0)) == 0:
            raise BadMessage(f"unknown message type {kind[:80]!r}")
        if size > most:
            raise BadMessage(too_large(kind, size, most))
        return cls(kind, sender)


@dataclass(frozen=True, slots=True)
class Envelope:
    """A message with its bearings: who sent it, when, and in which epoch of the active negotiator.

    statement: what a gateway says of a person, signed (shared.bus.statements). person: who that is, once believed.
    content: the body as it came, of a message with a statement: that is what was signed. size: bytes of a message that
    came, unpacked."""

    body: Message
    sender: str = ""
    id: str = field(default_factory=new_id)
    ts: float = 0.0  # seconds since 1970, the sender's clock
    epoch: int | None = None
    trace: str | None = None  # W3C traceparent
    statement: dict[str, Any] | None = None
    person: Person | None = None
    content: bytes | memoryview = b""
    size: int = field(default=0, compare=False)

    def pack(self, packed_body: bytes | None = None) -> bytes:
        """packed_body: what `pack_body` gives, where that is known already."""
        packed = self.pack_plain(packed_body)
        return compress(packed) if self.travels_compressed(packed) else packed

    def travels_compressed(self, packed: bytes) -> bool:
        """Whether the message, packed, is to be compressed; one of more than it may have is not sent."""
        return self.body.compressed and COMPRESS_ABOVE < len(packed) <= self.body.most_bytes

    def pack_plain(self, packed_body: bytes | None = None) -> bytes:
        """As `pack`, but never compressed."""
        body = self.body
        head = {
            "v": ENVELOPE_VERSION,
            "type": body.type,
            "tv": body.version,
            "id": self.id,
            "ts": self.ts,
            "sender": self.sender,
            "epoch": self.epoch,
            "trace": self.trace,
        }
        if self.statement is not None:
            head["statement"] = self.statement
        packed: bytes
        if packed_body is None:
            packed = msgpack.packb({**head, "body": body.model_dump()})
        else:
            packer = msgpack.Packer(autoreset=False)
            packer.pack_map_header(len(head) + 1)
            for key, value in head.items():
                packer.pack(key)
                packer.pack(value)
            packer.pack("body")
            packed = packer.bytes() + packed_body
        return packed

    @classmethod
    def unpack(cls, data: bytes) -> Envelope:
        """Raises BadMessage for anything that is not a message of a known type and version."""
        try:
            plain = decompress(data)
            raw = _read(plain)
        except Exception as error:
            raise BadMessage(f"not a msgpack envelope: {error}") from error
        if not isinstance(raw, dict) or raw.get("v") != ENVELOPE_VERSION:
            version = raw.get("v") if isinstance(raw, dict) else None
            raise BadMessage(f"envelope version {version!r:.40}: this daemon reads version {ENVELOPE_VERSION}")
        name, version = raw.get("type"), raw.get("tv")
        if not isinstance(name, str) or not isinstance(version, int):
            raise BadMessage(f"message type {name!r:.80} version {version!r:.40}: want a text and a whole number")
        kind = _REGISTRY.get((name, version))
        if kind is None:
            raise BadMessage(f"unknown message type {name[:80]!r} version {version}")
        for key, types in _BEARINGS.items():
            if key in raw and not isinstance(raw[key], types):
                raise BadMessage(f"{name}: envelope field {key!r} is {raw[key]!r:.40}")
        if "id" not in raw:
            raise BadMessage(f"{name}: the envelope lacks an id")
        if isinstance(body := raw.get("body"), dict):
            for key, value in body.items():
                if isinstance(value, list | dict) and len(value) > kind.most_entries:
                    many = f"{len(value)} entries; at most {kind.most_entries} are taken: send it in parts"
                    raise BadMessage(f"{name}: {key!s:.80} has {many}")
        try:
            return cls(
                # Strict: "1" is no number. As a text it could be one of more than 64 bits, which no journal takes.
                body=kind.model_validate(raw.get("body"), strict=True),
                content=packed_body(plain) if raw.get("statement") is not None else b"",
                size=len(plain),
                **{key: raw[key] for key in _BEARINGS if key in raw},
            )
        except ValidationError as error:
            raise BadMessage(f"{name}: {describe(error)}") from error


def pack_body(body: Message) -> bytes:
    """A body alone, as it is in an envelope."""
    packed: bytes = msgpack.packb(body.model_dump())
    return packed


def _read(data: bytes) -> Any:
    """What msgpack bytes say. Raises ValueError for more bytes or values than a message of the type that they claim may
    have, and msgpack's own errors."""
    if len(data) <= UNCOUNTED:
        return msgpack.unpackb(data, strict_map_key=False)
    kind = claimed(data)
    if len(data) > (most := _MOST_BYTES_OF.get(kind, MOST_BYTES)):
        raise ValueError(too_large(kind, len(data), most))
    return read(data, _MOST_OF.get(kind, MOST_VALUES))


#: What an envelope says besides its body, and the types each may have.
_BEARINGS: dict[str, tuple[type, ...]] = {
    "id": (str,),
    "sender": (str,),
    "ts": (float, int),
    "epoch": (int, NoneType),
    "trace": (str, NoneType),
    "statement": (dict, NoneType),
}


def describe(error: Exception) -> str:
    """One line that names the field and what is wrong with it."""
    if isinstance(error, ValidationError):
        problems: list[dict[str, Any]] = [dict(e) for e in error.errors(include_url=False, include_input=False)]
        return "; ".join(f"{'.'.join(map(str, p['loc']))}: {p['msg']}" for p in problems[:5])
    return f"{type(error).__name__}: {error}"


@message
class Ack(Message):
    """The plain 'done' answer to a request."""

    type: ClassVar[str] = "ack"


@message
class Failure(Message):
    """A request that was refused or failed; carried back to the caller, who sees `RemoteFailure`."""

    type: ClassVar[str] = "failure"

    code: str  # machine-readable, e.g. "bad-request", "not-found", "denied", "stale-epoch", "internal"
    reason: str  # for people: names the place and the mend
    retryable: bool = False


@message
class CallTaken(Message):
    """Said to who asked, ahead of the answer, of a call that takes long: its sender is working on it. Only callers that
    asked to be told get it; one that waits no longer says so (CallEnded)."""

    type: ClassVar[str] = "call.taken"


@message
class CallEnded(Message):
    """Its sender waits no longer for the answer to a call of its own, to the daemon that said it had taken it."""

    type: ClassVar[str] = "call.ended"

    call: str  # the id of the request
