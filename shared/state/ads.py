"""The collector's ads and the startds' claim ids in Redis: how they are written, and how whoever starts
reads them.

All ads of one daemon and type are a group: a hash of packed ads whose field "" tells how new it is.
`ADS_EXPIRY` lists the groups and when they expire. Several collectors may write the same: the newest stays.

Ads of large pools are compressed against dictionaries (shared.compression), which lie beside them and are there before
any ad that needs them: a write names all that its ads may need, and is refused where Redis lacks one.
"""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import msgpack

from shared.compression import AdCompressor
from shared.state import keys, versions
from shared.state.api import ScriptError, Store, Value
from shared.stored_versions import ADS, CLAIM_IDS

#: Bytes of ads in one call of a script, so that Redis is not held up for long.
BATCH_BYTES = 4 << 20


@dataclass(frozen=True, slots=True)
class StoredGroup:
    """All ads of one daemon and type."""

    my_type: str
    daemon: str
    start_time: int  # DaemonStartTime
    sequence: int  # the highest heard of
    content: int  # sequence number of the last message that changed something
    heard: float  # seconds since 1970
    ads: Mapping[str, bytes] = field(default_factory=dict)  # name -> packed; compressed for who has a compressor


@dataclass(frozen=True, slots=True)
class GroupWrite:
    """A group, or what changed in it since `base` (a content number); None writes the group whole."""

    group: StoredGroup
    expires: float
    base: int | None = None
    gone: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class GroupRemoval:
    """Names of expired ads of a group last heard of at `heard`. `rest_expires` None: the whole group goes."""

    my_type: str
    daemon: str
    heard: float
    names: Sequence[str] = ()
    rest_expires: float | None = None


async def write_ads(
    store: Store, writes: Sequence[GroupWrite], compressor: AdCompressor | None = None
) -> list[GroupWrite]:
    """Write groups, in several calls when they are large. `compressor`: whose dictionaries their ads may need. Returns
    those whose base Redis lacks: write them whole."""
    lacking: list[GroupWrite] = []
    for batch in _batches(writes):
        args: list[Value] = [" ".join(map(str, compressor.numbers)) if compressor is not None else ""]
        for write in batch:
            group = write.group
            args += [keys.group(group.my_type, group.daemon), repr(write.expires)]
            args += [group.start_time, group.sequence, group.content, repr(group.heard)]
            args += ["" if write.base is None else write.base, len(group.ads)]
            for name, packed in group.ads.items():
                args += [_utf8(name), packed]
            args += [len(write.gone), *map(_utf8, write.gone)]
        names = [keys.ads(write.group.my_type, write.group.daemon) for write in batch]
        named = [keys.ADS_EXPIRY, keys.ADS_DICTIONARIES, *names]
        try:
            reply = await store.run("ads_write", named, args)
        except ScriptError as error:
            if compressor is None or "NODICTIONARY" not in str(error):
                raise
            await _write_dictionaries(store, compressor)
            reply = await store.run("ads_write", named, args)
        assert isinstance(reply, list)
        lacking += [batch[number - 1] for number in reply]
    return lacking


async def remove_ads(store: Store, removals: Sequence[GroupRemoval]) -> list[GroupRemoval]:
    """Take expired ads out. Returns those whose daemon was heard of since, by another collector: read them
    again."""
    if not removals:
        return []
    args: list[Value] = []
    for removal in removals:
        rest = "" if removal.rest_expires is None else repr(removal.rest_expires)
        args += [keys.group(removal.my_type, removal.daemon), repr(removal.heard), rest]
        args += [len(removal.names), *map(_utf8, removal.names)]
    names = [keys.ads(removal.my_type, removal.daemon) for removal in removals]
    reply = await store.run("ads_remove", [keys.ADS_EXPIRY, *names], args)
    assert isinstance(reply, list)
    return [removals[number - 1] for number in reply]


async def load_ads(store: Store, my_type: str = "", compressor: AdCompressor | None = None) -> list[StoredGroup]:
    """All groups of a type (empty: of every type) as the collectors wrote them. AdTable.load takes them. `compressor`:
    gets the dictionaries, and the ads stay compressed. Raises StoreUnavailable, also where ads are of a later release
    (LaterRecords)."""
    await versions.check(store, ADS)
    return await load_groups(store, await stored_groups(store, my_type), compressor)


async def stored_groups(store: Store, my_type: str = "") -> list[tuple[str, str]]:
    """(my_type, daemon) of all groups of a type; empty: of every type."""
    members = await store.zrange_by_score(keys.ADS_EXPIRY, float("-inf"), float("inf"))
    pairs = [_pair(member) for member in members]
    return [pair for pair in pairs if not my_type or pair[0] == my_type]


async def load_groups(
    store: Store, groups: Sequence[tuple[str, str]], compressor: AdCompressor | None = None
) -> list[StoredGroup]:
    """These groups, given as (my_type, daemon), as far as they are there."""
    hashes = await store.hgetall_many([keys.ads(*pair) for pair in groups])
    # After the ads, since a dictionary is there before what needs it.
    known = compressor if compressor is not None else AdCompressor()
    if hashes:
        await load_dictionaries(store, known)
    found: list[StoredGroup] = []
    for (my_type, daemon), fields in zip(groups, hashes, strict=True):
        meta = fields.pop(b"", None)
        if meta is None:
            continue
        start, sequence, content, heard = meta.split()
        ads = {
            name.decode("utf-8", "surrogateescape"): packed if compressor is not None else _decompressed(known, packed)
            for name, packed in fields.items()
        }
        found.append(StoredGroup(my_type, daemon, int(start), int(sequence), int(content), float(heard), ads))
    return found


async def load_dictionaries(store: Store, compressor: AdCompressor) -> None:
    """Make all dictionaries known. What is none is left out: ads that need it are unreadable, and told as such."""
    for number, value in (await store.hgetall(keys.ADS_DICTIONARIES)).items():
        if number.isdigit() and int(number) not in compressor and len(value) > 8:
            with contextlib.suppress(ValueError):
                compressor.add(int(number), value[8:], *struct.unpack(">d", value[:8]))


async def _write_dictionaries(store: Store, compressor: AdCompressor) -> None:
    held = {}
    for number in compressor.numbers:
        data, since = compressor.dictionary(number)
        held[str(number)] = struct.pack(">d", since) + data
    await store.hset(keys.ADS_DICTIONARIES, held)


def _decompressed(compressor: AdCompressor, packed: bytes) -> bytes:
    try:
        return compressor.decompress(packed)
    except ValueError:
        return packed  # whoever reads it says that it is no ad


async def write_claims(store: Store, claims: Mapping[str, tuple[int, int, Mapping[str, str]]]) -> None:
    """Keep the claim ids of startds: daemon -> (start time, sequence, claim id by slot name)."""
    args: list[Value] = []
    for daemon, (start_time, sequence, by_slot) in claims.items():
        args += [daemon, start_time, sequence, msgpack.packb(dict(by_slot))]
    if args:
        await store.run("claims_write", [keys.CLAIMS], args)


async def forget_claims(store: Store, daemons: Iterable[str]) -> None:
    """Drop the claim ids of startds that are gone."""
    await store.hdel(keys.CLAIMS, *daemons)


async def load_claims(store: Store) -> dict[str, str]:
    """Claim id by slot name, of all startds. Secrets: for the negotiator alone. Raises as load_ads does."""
    await versions.check(store, CLAIM_IDS)
    claims: dict[str, str] = {}
    for value in (await store.hgetall(keys.CLAIMS)).values():
        claims.update(msgpack.unpackb(value.partition(b"\n")[2]))
    return claims


def _pair(member: bytes) -> tuple[str, str]:
    my_type, _, daemon = member.decode("utf-8", "surrogateescape").partition("/")
    return my_type, daemon


def _utf8(name: str) -> bytes:
    return name.encode("utf-8", "surrogateescape")


def _batches(writes: Sequence[GroupWrite]) -> Iterable[list[GroupWrite]]:
    batch: list[GroupWrite] = []
    size = 0
    for write in writes:
        batch.append(write)
        size += 200 + sum(map(len, write.group.ads.values()))
        if size >= BATCH_BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch
