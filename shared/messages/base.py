"""What every message on the bus has in common, and the registry of message types.

A message is a frozen pydantic model with a `type` (dotted, unique) and a `version`. On the wire it travels in
an envelope, packed with msgpack. Readers ignore fields they do not know; a type or version nobody knows is
dead-lettered, never guessed."""

from __future__ import annotations

import hashlib
import os
import sys
import time
from dataclasses import dataclass, field
from functools import cache
from types import NoneType
from typing import Any, ClassVar, TypeVar

import msgpack
from pydantic import BaseModel, ConfigDict, ValidationError

from shared.compression import LARGEST, beginning, compress, decompress
from shared.errors import PermanentError

ENVELOPE_VERSION = 1
#: Bytes of an envelope in which its body begins, but for odd ones.
_HEAD_BYTES = 4096
#: Messages of kinds that are `compressed` and longer than this (bytes) travel compressed (shared.compression).
COMPRESS_ABOVE = 4096


#: Entries of one list or map of a message, and values of a whole one, all lists and maps together, where a map counts
#: as A_MAP more: a model is made of most. More would hold the loop of whoever reads them: these take 10 to 45 ms.
MOST_ENTRIES = 100_000
MOST_VALUES = 200_000
A_MAP = 16
#: Of answers that tell much, by daemons whose questions have limits of their own.
MOST_OF_ANSWERS = 2_000_000
#: Messages of so many bytes have no more values than may be.
UNCOUNTED = 1 << 16


M = TypeVar("M", bound="type[Message]")


class BadMessage(PermanentError):
    """Bytes that are no message of ours: the reason names the field and the mend."""


class Message(BaseModel):
    """One kind of message. Subclasses set `type`, and `version` when a change is more than an added field."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    type: ClassVar[str] = ""
    version: ClassVar[int] = 1
    #: True where a loss would cost something: persistent and confirmed. False where the next message repairs
    #: it.
    durable: ClassVar[bool] = False
    #: True for transient messages that wait, in their order, while their sender has no connection: facts.
    kept: ClassVar[bool] = False
    #: True where a message may hold many ads, which say much the same: large ones travel compressed.
    compressed: ClassVar[bool] = False
    #: Entries that a list or map of it may have, where they are fewer or more than usual; and values of the whole.
    most_entries: ClassVar[int] = MOST_ENTRIES
    most_values: ClassVar[int] = MOST_VALUES
    #: Bytes that it may have, unpacked. RabbitMQ 4 refuses more by default; who has more to say says it in parts.
    most_bytes: ClassVar[int] = LARGEST


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
        if body.compressed and COMPRESS_ABOVE < len(packed) <= LARGEST:
            return compress(packed)
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
                content=_packed_body(plain) if raw.get("statement") is not None else b"",
                size=len(plain),
                **{key: raw[key] for key in _BEARINGS if key in raw},
            )
        except ValidationError as error:
            raise BadMessage(f"{name}: {describe(error)}") from error


def _packed_body(plain: bytes) -> memoryview:
    """The body in an envelope that could be read, where it stands at the end, as `pack` puts it; else nothing."""
    try:
        begins = _body_begins(plain[:_HEAD_BYTES])
    except msgpack.OutOfData:  # a long name, many scopes
        begins = _body_begins(plain)
    return memoryview(plain)[begins:]


def _body_begins(plain: bytes) -> int:
    """Where the value of an envelope's last entry begins, if that is the body, else past the end. Raises OutOfData
    where these are too few bytes to tell."""
    unpacker = msgpack.Unpacker(read_size=_HEAD_BYTES, max_buffer_size=0)
    unpacker.feed(plain)
    for _ in range(unpacker.read_map_header() - 1):
        unpacker.skip()
        unpacker.skip()
    if unpacker.unpack() != "body":
        return sys.maxsize
    begins: int = unpacker.tell()
    return begins


def pack_body(body: Message) -> bytes:
    """A body alone, as it is in an envelope."""
    packed: bytes = msgpack.packb(body.model_dump())
    return packed


def _read(data: bytes) -> Any:
    """What msgpack bytes say. Raises ValueError for more bytes or values than a message of that type may have, where
    possible before there is an object for each, and msgpack's own errors."""
    if len(data) <= UNCOUNTED:
        return msgpack.unpackb(data, strict_map_key=False)
    kind = _claimed(data)
    if len(data) > (most_bytes := _MOST_BYTES_OF.get(kind, LARGEST)):
        raise ValueError(f"{kind} of {len(data)} bytes; at most {most_bytes} are taken: send it in parts")
    most = left = _MOST_OF.get(kind, MOST_VALUES)

    def take(found: Any, weight: int = 0) -> Any:
        nonlocal left
        left -= len(found) + weight
        if left < 0:
            raise ValueError(f"it has more than the {most} values that are taken: send it in parts")
        return found

    return msgpack.unpackb(
        data,
        strict_map_key=False,
        list_hook=take,
        object_hook=lambda found: take(found, A_MAP),
        max_array_len=most,
        max_map_len=most,
    )


def type_of(data: bytes) -> str:
    """The type a message claims to have, empty where that can not be read: for those who look at dead
    letters."""
    try:
        return _claimed(beginning(data, _HEAD_BYTES))[:80]
    except Exception:  # noqa: BLE001  compression has errors of its own
        return ""


def _claimed(data: bytes) -> str:
    """The type that msgpack bytes claim, if they do so in the beginning, as all that is packed here; else empty."""
    unpacker = msgpack.Unpacker(strict_map_key=False)
    unpacker.feed(data[:_HEAD_BYTES])
    try:
        for _ in range(unpacker.read_map_header()):
            key = unpacker.unpack()
            if key == "type":
                name = unpacker.unpack()
                return name if isinstance(name, str) else ""
            unpacker.skip()
    except Exception:  # noqa: BLE001  msgpack raises many unrelated types on garbage
        return ""
    return ""


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
