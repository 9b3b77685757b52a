"""The ads of a pool as somebody hears them: a fold of updates, deltas, heartbeats and invalidations (spec
rows COL-03, COL-04, COL-08). The collector and the negotiator use the same one.

Messages come at least once and out of order. All ads of one daemon and type form a *group*; `(start_time,
sequence)` orders what is said about it, and `content` is the sequence number of the last message that
changed something. A delta or heartbeat names the content it stands on: whoever has another one asks the
daemon for everything (SendAds). Nothing here reads a clock or sends anything.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum

from shared.compression import AdCompressor, is_compressed
from shared.cooperative import at_once
from shared.daemon.ad_bounds import attributes_of, check_number, check_size
from shared.daemon.ad_rows import BadAd, Patch, StoredAd, check_readable, entries
from shared.messages.ads import MOST_UPDATES, AdDelta, AdHeartbeat, AdInvalidate, AdUpdate

AdMessage = AdUpdate | AdDelta | AdHeartbeat | AdInvalidate
GroupKey = tuple[str, str]  # (my_type, daemon)

#: A daemon silent for this long that comes back with an older start time has had its clock set back: believe
#: it.
CLOCK_STEP_S = 60.0


class Outcome(Enum):
    APPLIED = "applied"  # ads changed
    ALIVE = "alive"  # nothing changed, the ads live on
    OLDER = "older"  # a duplicate, or overtaken by what is known: ignored
    MISSING = "missing"  # stands on something never received: ask for everything


@dataclass(frozen=True, slots=True)
class Change:
    """What one message did."""

    outcome: Outcome
    my_type: str
    daemon: str
    #: Ads that are new or changed, by Name. The patch tells what changed; None means that the whole ad is
    #: new.
    updated: Mapping[str, Patch | None] = field(default_factory=dict)
    #: Names of ads that are no more.
    removed: tuple[str, ...] = ()
    #: Content (sequence number) that this change stands on; None when it replaces the group.
    base: int | None = None

    @property
    def ask(self) -> bool:
        """Whether to send the daemon SendAds (see `inbox_of`), because something was missed."""
        return self.outcome is Outcome.MISSING


@dataclass(slots=True)
class Group:
    """All ads of one daemon and type. Empty of rows after an invalidation: it then only remembers what is
    older."""

    my_type: str
    daemon: str
    start_time: int
    sequence: int  # the highest seen
    content: int  # the last that changed something
    heard: float  # seconds since 1970, the receiver's clock
    rows: dict[str, StoredAd] = field(default_factory=dict)
    received: int = 0  # messages taken
    lost: int = 0  # sequence numbers never seen
    queued: float = math.inf  # when the table looks at it next

    @property
    def key(self) -> GroupKey:
        return (self.my_type, self.daemon)

    def miss(self, messages: int) -> None:
        """So many messages did not arrive. Bounded, since a daemon may say what it likes in each of its lives."""
        self.lost = min(self.lost + messages, MOST_UPDATES)

    def due(self, lifetime_s: float) -> float:
        """When the first of its ads expires unless something is heard."""
        own = [row.lifetime_s for row in self.rows.values() if row.lifetime_s is not None]
        if len(own) < len(self.rows) or not self.rows:
            own.append(lifetime_s)
        return self.heard + min(own)

    def overdue(self, now: float, lifetime_s: float) -> list[str]:
        """Names of ads whose time is over."""
        silent = now - self.heard
        return [n for n, row in self.rows.items() if silent >= (row.lifetime_s or lifetime_s)]


@dataclass(slots=True)
class _Prepared:
    """The change of one ad, looked at."""

    name: str
    patch: Patch
    lifetime: tuple[float | None] | None  # as Patch.lifetime says it
    row: StoredAd | None  # the new ad, where there was none


class AdTable:
    """Groups by (my_type, daemon): of one type, or of all when `my_type` is empty. `lifetime_s` is
    CLASSAD_LIFETIME, for ads that bring no ClassAdLifetime.

    A name belongs to its daemon: two schedds may both have a submitter ad of the same name (COL-07).
    """

    def __init__(self, lifetime_s: float = 900.0, compressor: AdCompressor | None = None) -> None:
        """`compressor`: for ads that are kept compressed."""
        self.lifetime_s = lifetime_s
        self._compressor = compressor
        self._types: dict[str, dict[str, Group]] = {}
        #: type -> folded name -> the daemon; where there are several, or the name is spelt otherwise, daemon -> name.
        self._named: dict[str, dict[str, str | dict[str, str]]] = {}
        # Heap of (when, group). An entry counts only if `when` is what its group has as `queued`: one for
        # each group.
        self._due: list[tuple[float, GroupKey]] = []

    # -- reading

    def types(self) -> list[str]:
        return [my_type for my_type, groups in self._types.items() if groups]

    def groups(self, my_type: str = "") -> Iterator[Group]:
        """Groups of one type, or all. Do not change the table meanwhile."""
        for groups in (self._types.get(my_type, {}),) if my_type else self._types.values():
            yield from groups.values()

    def group(self, my_type: str, daemon: str) -> Group | None:
        return self._types.get(my_type, {}).get(daemon)

    def row(self, my_type: str, daemon: str, name: str) -> StoredAd | None:
        group = self.group(my_type, daemon)
        return group.rows.get(name) if group else None

    def rows(self, my_type: str = "") -> Iterator[tuple[str, str, StoredAd]]:
        """(daemon, name, row) of every ad, of one type or all."""
        for group in self.groups(my_type):
            for name, row in group.rows.items():
                yield group.daemon, name, row

    def named(self, my_type: str, name: str) -> Mapping[str, str]:
        """Daemons that have an ad of this type and Name (case does not matter), with its spelling there:
        mostly one, but see the class. Time O(1)."""
        folded = name.casefold()
        found = self._named.get(my_type, {}).get(folded, {})
        return {found: folded} if isinstance(found, str) else found

    def __len__(self) -> int:
        return sum(len(group.rows) for group in self.groups())

    # -- folding

    def apply(self, message: AdMessage, now: float) -> Change:
        """Take one message in. Raises BadAd (and changes nothing) when it is malformed."""
        return at_once(self.steps(message, now))

    def steps(self, message: AdMessage, now: float) -> Generator[None, None, Change]:
        """The same an ad at a time: others may have their turn in between, and change the table. It is changed by the
        message in the last step, all at once: what takes time was done before."""
        group = self.group(message.my_type, message.daemon)
        if group is not None and self._is_older(group, message, now):
            return Change(Outcome.OLDER, message.my_type, message.daemon)
        rows: dict[str, StoredAd] = {}
        patches: list[_Prepared] = []
        if isinstance(message, AdUpdate):
            rows = yield from self._rows_of(message)
        elif isinstance(message, AdDelta):
            patches = yield from self._patches_of(group, message)
        group = self.group(message.my_type, message.daemon)
        if group is not None and self._is_older(group, message, now):
            return Change(Outcome.OLDER, message.my_type, message.daemon)
        if isinstance(message, AdUpdate):
            return self._update(group, message, now, rows)
        if isinstance(message, AdInvalidate):
            return self._invalidate(group, message, now)
        return self._follow(group, message, now, patches)

    def load(
        self,
        my_type: str,
        daemon: str,
        *,
        start_time: int,
        sequence: int,
        content: int,
        heard: float,
        ads: Mapping[str, bytes],
    ) -> Group:
        """Put a group in as it was kept in the store (shared.state.ads.load_ads), unless something newer is
        here."""
        group = self.group(my_type, daemon)
        if group is None or (group.start_time, group.sequence) < (start_time, sequence):
            queued = group.queued if group is not None else math.inf
            rows = {name: StoredAd(packed, self._compressor) for name, packed in ads.items()}
            group = Group(my_type, daemon, start_time, sequence, content, heard, rows, queued=queued)
            self._put(group)
        return group

    def expire(self, now: float) -> list[tuple[GroupKey, str]]:
        """Take all expired ads out. Returns ((my_type, daemon), name) of each."""
        over: list[tuple[GroupKey, str]] = []
        for group, names in self.expired(now):
            over += [(group.key, name) for name in names]
            self.remove(*group.key, names)
        return over

    def set_lifetime(self, lifetime_s: float) -> None:
        """Go by another CLASSAD_LIFETIME, also for ads that are there."""
        if lifetime_s != self.lifetime_s:
            self.lifetime_s = lifetime_s
            for group in list(self.groups()):
                self._queue(group)

    def clock_set(self, seconds: float) -> None:
        """The receiver's clock was set by so many seconds: what was heard is not older or newer for that."""
        self._due.clear()
        for group in self.groups():
            group.heard += seconds
            group.queued = math.inf
            self._queue(group)

    def expired(self, now: float) -> list[tuple[Group, list[str]]]:
        """Groups with the names of ads whose time is over; the caller takes them out with `remove`. Groups
        that are empty and silent come with no names. Time O(log n) for each group that is due."""
        over: list[tuple[Group, list[str]]] = []
        while self._due and self._due[0][0] <= now:
            when, key = heapq.heappop(self._due)
            group = self.group(*key)
            if group is None or group.queued != when:
                continue
            group.queued = math.inf
            if group.due(self.lifetime_s) <= now:
                over.append((group, group.overdue(now, self.lifetime_s)))
            else:
                self._queue(group)
        for group, _ in over:
            self._queue(group)  # in case the caller leaves it there
        return over

    def remove(self, my_type: str, daemon: str, names: Iterable[str] | None = None) -> None:
        """Take out these ads, or the whole group. A group that has no ad left goes with the last of them."""
        group = self.group(my_type, daemon)
        if group is None:
            return
        for name in list(group.rows) if names is None else names:
            if group.rows.pop(name, None) is not None:
                self._unname(my_type, daemon, name)
        if names is None or not group.rows:
            del self._types[my_type][daemon]

    # -- how

    def _is_older(self, group: Group, message: AdMessage, now: float) -> bool:
        if message.start_time == group.start_time:
            return message.sequence <= group.sequence
        # A clock that was set back makes the daemon's new life look like an earlier one; if that clock is ours too,
        # what was heard last lies in the future.
        return message.start_time < group.start_time and abs(now - group.heard) < CLOCK_STEP_S

    def _rows_of(self, message: AdUpdate) -> Generator[None, None, dict[str, StoredAd]]:
        if len(message.names) != len(message.ads):
            raise BadAd(f"{message.daemon}: {len(message.names)} names for {len(message.ads)} ads")
        rows = {}
        for name, packed in zip(message.names, message.ads, strict=True):
            if is_compressed(packed):
                raise BadAd(f"{message.daemon}: the ad {name[:80]!r} is compressed by itself")
            rows[name] = self._new_row(message.daemon, name, packed)
            yield
        return rows

    def _new_row(self, daemon: str, name: str, packed: bytes) -> StoredAd:
        check_size(daemon, name, len(packed), attributes_of(packed))
        return StoredAd(packed, self._compressor)

    def _update(self, group: Group | None, message: AdUpdate, now: float, rows: dict[str, StoredAd]) -> Change:
        updated: dict[str, Patch | None] = dict.fromkeys(rows)
        if message.complete:
            check_number(message, (), rows)
            removed = tuple(n for n in group.rows if n not in rows) if group else ()
            self._put(self._successor(group, message, now, rows))
            return Change(Outcome.APPLIED, message.my_type, message.daemon, updated, removed)
        # One part of a long list stands on the part before it.
        if group is None or group.start_time != message.start_time or group.content != message.sequence - 1:
            return Change(Outcome.MISSING, message.my_type, message.daemon)
        check_number(message, group.rows, rows)
        base = group.content
        for name, row in rows.items():
            self._set(group, name, row)
        self._note(group, message, now, changed=True)
        return Change(Outcome.APPLIED, message.my_type, message.daemon, updated, (), base)

    def _invalidate(self, group: Group | None, message: AdInvalidate, now: float) -> Change:
        rows = group.rows if group else {}
        removed = tuple(n for n in message.names or rows if n in rows)
        if message.names and group is None:
            return Change(Outcome.OLDER, message.my_type, message.daemon)
        gone = frozenset(removed)
        kept = {n: row for n, row in rows.items() if n not in gone}
        # What was said before and arrives late must not bring the ads back, so the group stays for a while.
        self._put(self._successor(group, message, now, kept))
        return Change(Outcome.APPLIED, message.my_type, message.daemon, {}, removed)

    def _follow(
        self, group: Group | None, message: AdDelta | AdHeartbeat, now: float, patches: list[_Prepared]
    ) -> Change:
        if group is None or group.start_time != message.start_time or group.content != message.base:
            return Change(Outcome.MISSING, message.my_type, message.daemon)
        if isinstance(message, AdHeartbeat):
            self._note(group, message, now, changed=False)
            return Change(Outcome.ALIVE, message.my_type, message.daemon, base=group.content)
        check_number(message, group.rows, message.names)
        updated: dict[str, Patch | None] = {}
        rows: dict[str, StoredAd] = {}
        for one in patches:
            row = group.rows.get(one.name)
            if row is not None:
                size = row.grown_by(len(one.patch.packed), entries(one.patch.packed))
                check_size(message.daemon, one.name, *size)
            else:  # as it was before, or gone meanwhile
                rows[one.name] = one.row or self._new_row(message.daemon, one.name, one.patch.packed)
            updated[one.name] = None if row is None else one.patch
        base = group.content
        for one in patches:
            if one.name in rows:
                self._set(group, one.name, rows[one.name])
            else:
                group.rows[one.name].follow(one.patch, one.lifetime)
        removed = tuple(n for n in message.gone if group.rows.pop(n, None) is not None)
        for name in removed:
            self._unname(group.my_type, group.daemon, name)
        self._note(group, message, now, changed=True)
        return Change(Outcome.APPLIED, message.my_type, message.daemon, updated, removed, base)

    def _patches_of(self, group: Group | None, message: AdDelta) -> Generator[None, None, list[_Prepared]]:
        """The changes, looked at, and the ads that they are of ready to take them. Nothing where they can not be
        taken."""
        if group is None or group.start_time != message.start_time or group.content != message.base:
            return []
        if not len(message.names) == len(message.changes) == len(message.removed_attrs):
            raise BadAd(
                f"{message.daemon}: {len(message.names)} names, {len(message.changes)} changes, "
                f"{len(message.removed_attrs)} lists of removed attributes"
            )
        check_number(message, group.rows, message.names)
        found = []
        for name, packed, removed in zip(message.names, message.changes, message.removed_attrs, strict=True):
            check_readable(packed)
            patch, new = Patch(packed, tuple(removed)), None
            if (row := group.rows.get(name)) is None:
                new = self._new_row(message.daemon, name, packed)
            else:
                row.settle()
                row.grown_by(len(packed), entries(packed))
            found.append(_Prepared(name, patch, patch.lifetime(), new))
            yield
        return found

    def _successor(
        self, group: Group | None, message: AdUpdate | AdInvalidate, now: float, rows: dict[str, StoredAd]
    ) -> Group:
        new = Group(message.my_type, message.daemon, message.start_time, message.sequence, message.sequence, now, rows)
        new.received = 1
        if group is not None:
            new.received += group.received
            new.lost = group.lost
            new.queued = group.queued
            if group.start_time == message.start_time:
                new.miss(message.sequence - group.sequence - 1)
        return new

    def _note(self, group: Group, message: AdMessage, now: float, *, changed: bool) -> None:
        group.received += 1
        group.miss(message.sequence - group.sequence - 1)
        group.sequence = message.sequence
        group.heard = now
        if changed:
            group.content = message.sequence
            self._queue(group)

    def _put(self, group: Group) -> None:
        groups = self._types.setdefault(group.my_type, {})
        before = groups.get(group.daemon)
        if before is not None:
            for name in before.rows:
                if name not in group.rows:
                    self._unname(group.my_type, group.daemon, name)
        groups[group.daemon] = group
        for name in group.rows:
            if before is None or name not in before.rows:
                self._name(group.my_type, group.daemon, name)
        self._queue(group)

    def _set(self, group: Group, name: str, row: StoredAd) -> None:
        group.rows[name] = row
        self._name(group.my_type, group.daemon, name)

    def _name(self, my_type: str, daemon: str, name: str) -> None:
        named = self._named.setdefault(my_type, {})
        folded = name.casefold()
        known = named.get(folded)
        if known is None and folded == name:
            named[name] = daemon
        elif known != daemon or folded != name:
            several = {known: folded} if isinstance(known, str) else dict(known or {})
            several[daemon] = name
            named[folded] = several

    def _unname(self, my_type: str, daemon: str, name: str) -> None:
        named = self._named.get(my_type, {})
        folded = name.casefold()
        known = named.get(folded)
        if isinstance(known, str):
            if known == daemon and folded == name:
                del named[folded]
        elif known is not None and known.get(daemon) == name:
            del known[daemon]
            if not known:
                del named[folded]

    def _queue(self, group: Group) -> None:
        # Never moved to later times here: `expired` does that when the entry comes up, which a heartbeat
        # need not pay.
        due = group.due(self.lifetime_s)
        if due < group.queued:
            group.queued = due
            heapq.heappush(self._due, (due, group.key))


def daemon_name(subsystem: str, name: str) -> str:
    """How a daemon signs its ads: daemon_name("STARTD", "node1") is "startd@node1"."""
    return f"{subsystem.lower()}@{name}"


def inbox_of(daemon: str) -> str:
    """The inbox of a daemon, from its signature: "startd@node1" has "startd.node1"."""
    subsystem, _, name = daemon.partition("@")
    return f"{subsystem}.{name}"
