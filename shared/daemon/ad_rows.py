"""Packed ads and the differences between them, without parsing any expression.

A packed ad is what `ClassAd.pack()` makes: a msgpack map from attribute to literal, or to an extension with
the text of an expression. Two states of an ad differ by a *patch*: attributes set, attributes gone.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from typing import Any

import msgpack

from shared.classad.cells import MOST_ATTRIBUTES, TEXT_CODE, unpack_flat
from shared.compression import AdCompressor, is_compressed

#: An ad's own lifetime in seconds, instead of CLASSAD_LIFETIME.
LIFETIME = "ClassAdLifetime"
#: Names of a length that are looked at one by one, before all is searched.
_MOST_LOOKS = 1_000
#: Patches that a row keeps unmerged. Merging costs one unpack and one pack of the ad (40 us for 120
#: attributes), so rows that nobody reads only collect them.
MAX_PATCHES = 16

Attributes = dict[str, Any]


class BadAd(ValueError):
    """Bytes that are no packed ad: the text says what is wrong."""


def unpack(packed: bytes) -> Attributes:
    """Attributes by name as they stand in the packed form. Raises BadAd."""
    return _flat(packed, msgpack.ExtType, "code")


def check_readable(packed: bytes) -> None:
    """Raises BadAd where `unpack` would, in half the time: texts stay bytes, expressions become slice(code, text)."""
    _flat(packed, slice, "start", raw=True)


def _flat(packed: bytes, extension: type, code: str, **options: Any) -> dict[Any, Any]:
    """The map, with what `extension` makes of expressions; `code` is the attribute with their code."""
    try:
        found = unpack_flat(packed, extension, **options)
    except Exception as error:
        raise BadAd(f"not a packed ad: {type(error).__name__} {error}") from error
    if not isinstance(found, dict):
        raise BadAd(f"not a packed ad: {type(found).__name__} where a map of attributes belongs")
    for value in found.values():
        if value.__class__ is extension and getattr(value, code) != TEXT_CODE:
            raise BadAd(f"not a packed ad: an attribute has the unknown extension type {getattr(value, code)}")
    return found


def pack(attributes: Attributes) -> bytes:
    packed: bytes = msgpack.packb(attributes, unicode_errors="surrogateescape")
    return packed


@dataclass(frozen=True, slots=True)
class Patch:
    """What turns one state of an ad into the next: first `removed`, then `changed` (so a new spelling of an
    attribute's name is the old one removed and the new one set). It stays packed, as most wait unread until the next
    ones replace them: thousands of cells that are objects of their own keep collections of garbage busy."""

    packed: bytes
    removed: tuple[str, ...] = ()

    @classmethod
    def of(cls, changed: Attributes, removed: tuple[str, ...] = ()) -> Patch:
        return cls(pack(changed), removed)

    @property
    def changed(self) -> Attributes:
        """Read anew each time. Raises BadAd."""
        return unpack(self.packed)

    def lifetime(self) -> tuple[float | None] | None:
        """The ad's own lifetime from then on; None where nothing is said of it. Raises BadAd."""
        if may_name(self.packed, LIFETIME):
            told = [(name, value) for name, value in self.changed.items() if name.lower() == LIFETIME.lower()]
            if told:
                return (own_lifetime(told),)
        return (None,) if any(name.lower() == LIFETIME.lower() for name in self.removed) else None


def difference(before: bytes, after: bytes) -> Patch:
    """The patch from one packed ad to another."""
    old, new = unpack(before), unpack(after)
    changed = {name: value for name, value in new.items() if name not in old or not _same(old[name], value)}
    return Patch.of(changed, tuple(name for name in old if name not in new))


def _same(left: Any, right: Any) -> bool:
    # Type matters: TRUE, 1 and 1.0 are equal in Python and three different ClassAd values. NaN and -0.0 are
    # told apart by how they are written.
    if type(left) is not type(right):
        return False
    if type(left) is float:
        return bool(msgpack.packb(left) == msgpack.packb(right))
    return bool(left == right)


#: Bytes of one ad of a daemon: more than a job's own and its cluster's together. Answers with ads hold some, and one
#: that none can hold would spoil them all.
MOST_AD_BYTES = 2 << 20
#: Attributes of one: fewer than can be read, as collectors add some.
MOST_AD_ATTRIBUTES = MOST_ATTRIBUTES - 1_000


class StoredAd:
    """One ad as received: packed, with patches that are merged when somebody reads it; compressed once it was stored,
    where there is a compressor. Reading is safe in any thread, as the state changes in one step."""

    __slots__ = ("_compressor", "_held", "lifetime_s", "most_attributes", "most_bytes")

    def __init__(self, packed: bytes, compressor: AdCompressor | None = None) -> None:
        #: The ad, or with what is to be merged into it.
        self._held: bytes | tuple[bytes, tuple[Patch, ...]] = packed
        self._compressor = compressor
        #: Bytes that it has at most, packed, and attributes; 0: nobody has looked yet.
        self.most_bytes = self.most_attributes = 0
        #: The ad's own lifetime, or None for the collector's. An ad that has one is never compressed.
        self.lifetime_s: float | None = None
        if is_compressed(packed):
            return
        self.most_bytes = len(packed)
        if may_name(packed, LIFETIME):
            self.lifetime_s = own_lifetime(unpack(packed).items())

    def apply(self, patch: Patch) -> None:
        """Bring the ad up to date. Raises BadAd."""
        self.follow(patch, patch.lifetime())
        self.settle()

    def follow(self, patch: Patch, lifetime: tuple[float | None] | None) -> None:
        """The same in no time; call `settle` now and then. lifetime: what the patch says of it."""
        held = self._held
        self._held = (held, (patch,)) if isinstance(held, bytes) else (held[0], (*held[1], patch))
        self.most_bytes += len(patch.packed)
        self.most_attributes += entries(patch.packed)
        if lifetime is not None:
            self.lifetime_s = lifetime[0]

    def settle(self) -> None:
        """Merge what waits, once there is enough of it: time O(size of the ad). Raises BadAd."""
        if not isinstance(self._held, bytes) and len(self._held[1]) >= MAX_PATCHES:
            self.packed()

    def grown_by(self, change: int, attributes: int) -> tuple[int, int]:
        """Bytes, and attributes, that it would have at most with a packed change of so many. Raises BadAd."""
        known = self.most_bytes and self.most_attributes
        if (
            not known
            or self.most_bytes + change > MOST_AD_BYTES
            or self.most_attributes + attributes > MOST_AD_ATTRIBUTES
        ):
            packed = self.packed()
            self.most_bytes, self.most_attributes = len(packed), entries(packed)
        return self.most_bytes + change, self.most_attributes + attributes

    def patched(self, patch: Patch) -> StoredAd:
        """The ad with a patch, as another one; this one stays as it is."""
        other = StoredAd.__new__(StoredAd)
        other._held, other._compressor, other.lifetime_s = self._held, self._compressor, self.lifetime_s
        other.most_bytes, other.most_attributes = self.most_bytes, self.most_attributes
        other.apply(patch)
        return other

    def packed(self) -> bytes:
        """The whole ad as it is now. Raises BadAd when what came was none."""
        held = self._held
        if isinstance(held, bytes):
            return self._decompressed(held)
        merged = self._held = pack(self.attributes())
        return merged

    def read(self) -> bytes:
        """The same without keeping anything, for threads beside the one that changes ads. Raises BadAd."""
        held = self._held
        return self._decompressed(held) if isinstance(held, bytes) else pack(self._merged(held))

    def stored(self) -> bytes:
        """The ad as it is kept in the store and from now on here: compressed if that is of use. Raises BadAd."""
        held = self._held if isinstance(self._held, bytes) else self.packed()
        if self._compressor is not None and self.lifetime_s is None:
            held = self._held = self._compressor.compress(held)
        return held

    def attributes(self) -> Attributes:
        """The whole ad as it is now, unpacked. Raises BadAd."""
        held = self._held
        return unpack(self._decompressed(held)) if isinstance(held, bytes) else self._merged(held)

    def _merged(self, held: tuple[bytes, tuple[Patch, ...]]) -> Attributes:
        attributes = unpack(self._decompressed(held[0]))
        for patch in held[1]:
            for name in patch.removed:
                attributes.pop(name, None)
            attributes.update(patch.changed)
        return attributes

    def _decompressed(self, held: bytes) -> bytes:
        if self._compressor is None:
            return held
        try:
            return self._compressor.decompress(held)
        except ValueError as error:
            raise BadAd(str(error)) from error


def may_name(packed: bytes, attribute: str) -> bool:
    """Whether a packed ad may have an attribute of such a name, in any case. A look at each name of that length takes a
    fifth of what a search in the ad in lower case does, but in an ad of 2 MiB that is full of what comes before such a
    name a second."""
    mark, name = _packed_name(attribute)
    size = len(name)
    at = packed.find(mark)
    for _ in range(_MOST_LOOKS):
        if at < 0:
            return False
        if packed[at + 1 : at + 1 + size].lower() == name:
            return True
        at = packed.find(mark, at + 1)
    return name in packed.lower()


@cache
def _packed_name(attribute: str) -> tuple[int, bytes]:
    """The byte before a name in a packed ad, and the name in lower case."""
    return 0xA0 | len(attribute), attribute.lower().encode()


def own_lifetime(attributes: Iterable[tuple[str, Any]]) -> float | None:
    """ClassAdLifetime of an ad in seconds; None when it has none, or none that is a positive number."""
    for name, value in attributes:
        if name.lower() == LIFETIME.lower():
            if isinstance(value, int | float) and not isinstance(value, bool) and value > 0:
                return float(value)
            return None
    return None


_MAP16, _MAP32 = 0xDE, 0xDF


def with_attributes(packed: bytes, more: Attributes) -> bytes:
    """The packed ad with these attributes set, without unpacking it: what comes later in the map counts.
    Raises BadAd."""
    count, start = _map_of(packed)
    tail = b"".join(pack_one(name) + pack_one(value) for name, value in more.items())
    return b"".join((bytes((_MAP32,)), (count + len(more)).to_bytes(4, "big"), packed[start:], tail))


def entries(packed: bytes) -> int:
    """How many attributes a packed ad says that it has. Raises BadAd."""
    return _map_of(packed)[0]


def _map_of(packed: bytes) -> tuple[int, int]:
    """Entries of the map, and where the first one begins. Raises BadAd."""
    first = packed[0] if packed else 0
    if 0x80 <= first <= 0x8F:
        return first & 0x0F, 1
    if first == _MAP16 and len(packed) >= 3:
        return int.from_bytes(packed[1:3], "big"), 3
    if first == _MAP32 and len(packed) >= 5:
        return int.from_bytes(packed[1:5], "big"), 5
    raise BadAd(f"not a packed ad: it begins with {packed[:5]!r}")


def pack_one(value: Any) -> bytes:
    packed: bytes = msgpack.packb(value, unicode_errors="surrogateescape")
    return packed
