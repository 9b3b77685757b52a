"""What a gateway says of a person, signed: who asks for something, and with which rights.

A gateway has checked a person's token; those who act on that know the gateway by its key. A statement stands in the
envelope of one message, and holds for that one: it is bound to the message's id, type and body, to the inbox it was
sent to, to its sender, and ends after a minute. Keys are Ed25519 (`cryptography`); a gateway keeps the private half,
everybody else has the public ones of all gateways they believe: several while a key is changed for another.

The body is signed by its SHA-256, as it travels: the largest have 16 MiB."""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import msgpack
import structlog
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from shared.bus.seen import Seen
from shared.files import replace_on_disk
from shared.messages.base import Envelope, Person

#: The knobs that name the private key of a gateway, and the public keys of those that are believed.
GATEWAY_KEY: Final = "ROOST_GATEWAY_KEY"
GATEWAY_KEYS: Final = "ROOST_GATEWAY_KEYS"
#: What is to be done about it, wherever keys lack.
_MEND: Final = f"set {GATEWAY_KEY} at the gateway and {GATEWAY_KEYS} at every daemon (`roost gateway-key` tells how)"
#: What a gateway without a key is told.
UNSIGNED: Final = f"this gateway has no key, so no daemon obeys whom it speaks for: {_MEND}"
#: A statement is believed for so long, in seconds, and so much longer and earlier where clocks differ.
LIFE_S: Final = 60.0
SKEW_S: Final = 15.0
#: Seconds between looks at the files of keys.
LOOK_S: Final = 2.0
#: Longer bodies, in bytes, are digested in a thread: shorter ones take less than the way there and back.
LONG_BYTES: Final = 256 * 1024
#: What a signed text begins with, so that it is nothing else.
_DOMAIN: Final = b"roost statement 1\0"


class NotBelieved(Exception):
    """A statement that is not to be believed, with the reason."""


class Replayed(NotBelieved):
    """The message came before. Whoever sent it first has, or will have, the answer to it."""


@dataclass(frozen=True, slots=True)
class Signer:
    """The private key of a gateway."""

    key: Ed25519PrivateKey

    @classmethod
    def new(cls) -> Signer:
        return cls(Ed25519PrivateKey.generate())

    @property
    def public(self) -> Ed25519PublicKey:
        return self.key.public_key()

    @property
    def public_pem(self) -> bytes:
        return self.public.public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)

    @property
    def private_pem(self) -> bytes:
        form = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        return self.key.private_bytes(*form)

    def sign(self, envelope: Envelope, digest: bytes, inbox: str, person: Person, now: float) -> dict[str, Any]:
        """The statement about a person for one message to one inbox. digest: of its body as msgpack has it
        (`digest_of`); now: seconds since 1970."""
        until = round((now + LIFE_S) * 1000)
        signed = _text(envelope, digest, inbox, person, until)
        return {
            "key": key_id(self.public),
            "user": person.user,
            "level": person.level,
            "scopes": list(person.scopes),
            "until_ms": until,
            "signature": self.key.sign(signed),
        }


async def digest_of(packed_body: bytes | memoryview) -> bytes:
    """SHA-256 of a body. Long ones are digested in a thread: 16 MiB take 10 ms and more."""
    if len(packed_body) > LONG_BYTES:
        return await asyncio.to_thread(_sha256, packed_body)
    return _sha256(packed_body)


def _sha256(data: bytes | memoryview) -> bytes:
    return hashlib.sha256(data).digest()


def _text(envelope: Envelope, digest: bytes, inbox: str, person: Person, until: int) -> bytes:
    body = envelope.body
    said = [
        *(envelope.id, body.type, body.version, envelope.sender, inbox),
        digest,
        *(person.user, person.level, list(person.scopes), until),
    ]
    packed: bytes = msgpack.packb(said)
    return _DOMAIN + packed


def public_texts(path: Path) -> list[str]:
    """The public keys in a file of PEM, or in a directory of such files, each as PEM. Raises OSError, ValueError."""
    keys = (key for file in sorted(key_files(path)) for key in read_public(file.read_bytes()))
    form = serialization.PublicFormat.SubjectPublicKeyInfo
    return [key.public_bytes(serialization.Encoding.PEM, form).decode() for key in keys]


def key_files(path: Path) -> list[Path]:
    """What keys are read from: a file, or those of a directory. Raises OSError."""
    if not path.is_dir():
        return [path]
    return [file for file in path.iterdir() if file.suffix in (".pub", ".pem")]


def key_id(key: Ed25519PublicKey) -> str:
    """What a key is found by: 16 hex digits of its SHA-256."""
    return hashlib.sha256(key.public_bytes_raw()).hexdigest()[:16]


def read_public(text: bytes) -> Iterator[Ed25519PublicKey]:
    """The public keys in a file of PEM. Raises ValueError."""
    end = b"-----END PUBLIC KEY-----"
    for part in text.split(end)[:-1]:
        try:
            key = serialization.load_pem_public_key(part.strip() + b"\n" + end + b"\n")
        except UnsupportedAlgorithm as error:
            raise ValueError(str(error)) from error
        if not isinstance(key, Ed25519PublicKey):
            raise ValueError("a key of a gateway is Ed25519")
        yield key


def signer_of(path: Path) -> Signer:
    """The key in a file; made, with its public half beside it (`.pub`), where there is none. Blocks. Raises OSError,
    and ValueError for a file that holds no such key."""
    return make_key_pair(path, public_file(path))


def public_file(path: Path) -> Path:
    """Where the public half of the key in a file lies, unless somebody put it elsewhere."""
    return path.with_name(path.name + ".pub")


def make_key_pair(private: Path, public: Path) -> Signer:
    """A gateway's key in two files: the private half, for the gateway alone (mode 0600), and the public one, for
    whoever shall believe it (0644). Keeps a private key that is there, and makes the public half again where that is
    missing. Blocks. Raises OSError, and ValueError for a file that holds no such key."""
    try:
        signer = _read_private(private)
    except FileNotFoundError:
        signer = Signer.new()
        replace_on_disk(private, signer.private_pem)
        _publish(public, signer)
        return signer
    if not public.exists():
        _publish(public, signer)
    return signer


def _publish(path: Path, signer: Signer) -> None:
    replace_on_disk(path, signer.public_pem)
    path.chmod(0o644)  # whatever the umask: others shall read it


def _read_private(path: Path) -> Signer:
    text = path.read_bytes()
    try:
        key = serialization.load_pem_private_key(text, None)
    except (TypeError, UnsupportedAlgorithm) as error:
        raise ValueError(f"{path}: {error}") from error
    except ValueError as error:
        raise ValueError(f"{path}: it holds no private key as PEM ({error})") from error
    if not isinstance(key, Ed25519PrivateKey):
        raise ValueError(f"{path}: a key of a gateway is Ed25519")
    return Signer(key)


class Keys:
    """Public keys of gateways that are believed. given: these; path: those of a file, or of the files `*.pub` and
    `*.pem` in a directory, as it is at the moment."""

    def __init__(
        self,
        path: Path | None = None,
        given: tuple[Ed25519PublicKey, ...] = (),
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._path = path
        self._given = {key_id(key): key for key in given}
        self._read: Mapping[str, Ed25519PublicKey] = {}
        self._monotonic = monotonic
        self._looked = float("-inf")
        self._state: object = None

    def find(self, name: str) -> Ed25519PublicKey | None:
        """A key by its id."""
        self._look()
        return self._given.get(name) or self._read.get(name)

    def why_none(self) -> str:
        """Why a key is not among them, and what to do; a sentence for people."""
        return self.why_empty() or f"its key is none of those in {GATEWAY_KEYS} ({self._path or 'in memory'})"

    def why_empty(self) -> str:
        """Why there are no keys at all, and what to do; a sentence for people. Empty: there are."""
        self._look()
        if self._given or self._read:
            return ""
        place = f"there is none in {self._path}" if self._path is not None else f"{GATEWAY_KEYS} is not set"
        return f"this daemon knows no gateway's key, and obeys no gateway that speaks for a person: {place}; {_MEND}"

    def _look(self) -> None:
        if self._path is None or self._monotonic() < self._looked + LOOK_S:
            return
        self._looked = self._monotonic()
        try:
            files = sorted(key_files(self._path))
            state = [(file, status.st_mtime_ns, status.st_size) for file in files for status in (file.stat(),)]
            if state == self._state:
                return
            found: dict[str, Ed25519PublicKey] = {}
            for file in files:
                try:
                    found.update((key_id(key), key) for key in read_public(file.read_bytes()))
                except ValueError as error:
                    _LOG.warning("gateway_key_unusable", file=str(file), reason=str(error))
            self._read, self._state = found, state
        except OSError as error:
            # What cannot be read believes nobody: a key may have been taken away.
            if self._state != str(error):
                _LOG.warning("gateway_keys_unreadable", path=str(self._path), reason=str(error))
            self._read, self._state = {}, str(error)


_LOG: Final = structlog.stdlib.get_logger("statements")


@dataclass(slots=True)
class Believer:
    """Checks statements for one daemon. seen: remembers the messages it believed until their statements end."""

    keys: Keys
    now: Callable[[], float]
    seen: Seen = field(default_factory=Seen)

    def believe(self, envelope: Envelope, inbox: str, digest: bytes, *, again: bool) -> Person:
        """Whom a message is from. digest: of its content. again: the broker delivers it a second time. Raises
        NotBelieved."""
        said = envelope.statement
        if said is None:
            raise NotBelieved(f"it is for a person, and the gateway has no key to say for whom: {_MEND}")
        try:
            person = Person(str(said["user"]), str(said["level"]), tuple(map(str, said["scopes"])))
            name, until, signature = said["key"], said["until_ms"], said["signature"]
        except (KeyError, TypeError) as error:
            raise NotBelieved(f"its statement lacks {error}") from error
        if not isinstance(name, str) or not isinstance(until, int) or not isinstance(signature, bytes):
            raise NotBelieved("its statement is none of ours")
        key = self.keys.find(name)
        if key is None:
            raise NotBelieved(self.keys.why_none())
        try:
            key.verify(signature, _text(envelope, digest, inbox, person, until))
        except (InvalidSignature, ValueError, TypeError, OverflowError) as error:
            raise NotBelieved("its statement was signed for another message, or by somebody else") from error
        now = self.now()
        if now * 1000 > until + SKEW_S * 1000:
            raise NotBelieved(f"its statement is over since {now - until / 1000:.0f} s: ask again; or clocks differ")
        if until > (now + LIFE_S + SKEW_S) * 1000:
            raise NotBelieved(f"its statement is of {until / 1000 - now - LIFE_S:.0f} s from now: clocks differ")
        if self.seen.has(envelope.id, now):
            if not again:
                raise Replayed("it came before")
        else:
            self.seen.add(envelope.id, until / 1000 + SKEW_S)
        return person
