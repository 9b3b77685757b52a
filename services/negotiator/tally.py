"""Claims as they begin and end, by the clock of this negotiator, whenever it hears of them (spec rows ACC-16, ACC-18).

The books charge for what slots are in use, from one look to the next. An ad that comes late, or a claim that came and
went while the bus was away, would be charged too late, too long or never. So slots tell since when they are claimed,
and which claims ended there of late; from that the tally makes what is to be charged, or given back, for times that
are over. Each claim counts once: it is known by its slot and the moment it began. A startd whose disk was full as one
ended finds it again when it is started again, and tells its end anew: then only the time between counts.

A startd's clock may be another than ours. Of all messages of some minutes the one that seems to have been under way for
the shortest time tells how far they are apart. Pure.
"""

from __future__ import annotations

import math
from collections import OrderedDict, deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

from shared.past_claims import Past, read_past

#: What is heard of within this time (s) is heard of at once: most ads are, and begin and end are late alike.
PROMPT_S: Final = 0.05
#: Nothing is charged for longer ago (s): a clock that is that wrong says nothing.
LONGEST_S: Final = 86_400.0
#: How long (s) ended claims are known, for whoever takes the lead over, and ads that were lost, should they come back.
REMEMBERED_S: Final = 600.0
#: So many of them.
MOST_REMEMBERED: Final = 100_000
#: How long (s) one message tells of a clock.
CLOCK_S: Final = 300.0

#: A clock that steps by more (s) was set.
BACK_S: Final = 0.5

#: Slot, and the moment a claim began as its startd says.
Key = tuple[str, float]


@dataclass(frozen=True, slots=True)
class Use:
    """A submitter used so much from `began` to `ended`, our clock; None: it still does; -inf: nobody knows since when.
    Of what is to be given back, `ended` comes before `began`."""

    user: str
    weight: float
    began: float
    ended: float | None


@dataclass(slots=True)
class _Open:
    """A claim that is charged as time goes by."""

    key: Key
    user: str
    weight: float
    began: float  # our clock; -inf: who knows


class _End(NamedTuple):
    """When a claim ended."""

    ours: float
    theirs: float  # its startd's clock


class Tally:
    """See the module. `late` is what is to be charged or given back, until somebody takes it."""

    def __init__(self) -> None:
        self._open: dict[str, _Open] = {}  # by slot
        self._lost: dict[Key, tuple[_Open, float]] = {}  # charged until then; how it ended nobody told
        self._ends: dict[Key, _End] = {}  # of claims that are charged still
        self._ended: OrderedDict[Key, _End] = (
            OrderedDict()
        )  # of those that are not, in the order in which they were heard of
        self._paused: OrderedDict[str, Key] = OrderedDict()  # by slot: the claim that was last free of charge there
        self._settled: dict[str, tuple[str, frozenset[Past]]] = {}  # by slot that told: its list, and what that named
        self._over: deque[Use] = deque()  # in the order in which they were heard of
        self._late: list[Use] = []

    def take_late(self) -> list[Use]:
        late, self._late = self._late, []
        return late

    def uses(self, now: float) -> Iterator[Use]:
        """All claims that are known: those that go on, and those that ended of late. For books that somebody else kept
        until a moment ago."""
        self._forget(now)
        yield from (Use(one.user, one.weight, one.began, None) for one in self._open.values())
        yield from (Use(one.user, one.weight, one.began, until) for one, until in self._lost.values())
        yield from self._over

    # --- what slots say

    def sees(
        self,
        slot: str,
        *,
        user: str,
        weight: float,
        claimed_at: float | None,
        past: str,
        now: float,
        offset: float = 0.0,
        by_cpus: bool = True,
    ) -> None:
        """A slot's ad. user: who is charged ("": nobody). claimed_at: since when it is claimed, its startd's clock;
        None if it does not say. past: RoostPastClaims. offset: what is to be added to that clock to get ours. by_cpus:
        use is weighted by cores."""
        self._hear_past(slot, past, now, offset, by_cpus)
        known = self._open.get(slot)
        if known is not None and (not user or (claimed_at is not None and known.key[1] != claimed_at)):
            if user or claimed_at is None:
                self._close(slot, now)
            else:
                self.pauses(slot, now)  # it is claimed, and free of charge for the time being
            known = None
        if not user:
            return
        if known is not None:
            known.user, known.weight = user, weight
            return
        if claimed_at is None:
            self._open[slot] = _Open((slot, -now), user, weight, -math.inf)
            return
        key, began = (slot, claimed_at), min(now, claimed_at + offset)
        lost, ended = self._lost.pop(key, None), self._ended.pop(key, None)
        if lost is not None:
            began, since = lost[0].began, lost[1]
        elif self._paused.pop(slot, None) == key:
            began = since = now
        elif ended is not None:  # its startd forgot that
            began = since = ended.ours
        else:
            since = began
        self._open[slot] = _Open(key, user, weight, began)
        self._charge(user, weight, since, now)

    def drops(self, slot: str, now: float) -> None:
        """There is no ad of this slot any more."""
        self._close(slot, now)
        self._settled.pop(slot, None)

    def pauses(self, slot: str, now: float) -> None:
        """The slot is not ours to charge for, for a while."""
        paused = self._open.pop(slot, None)
        if paused is not None:
            self._over.append(Use(paused.user, paused.weight, paused.began, now))
            self._paused[slot] = paused.key

    def _hear_past(self, teller: str, past: str, now: float, offset: float, by_cpus: bool) -> None:
        text, settled = self._settled.get(teller, ("", frozenset()))
        if past == text:
            return
        told = read_past(past)
        for one in told:
            if one not in settled:
                self._ends_at(one, now, offset, by_cpus)
        self._settled[teller] = past, frozenset(told)

    def _ends_at(self, one: Past, now: float, offset: float, by_cpus: bool) -> None:
        """A claim is over, and its startd says since when."""
        key, end = (one.slot, one.began), _End(min(now, one.ended + offset), one.ended)
        known = self._open.get(one.slot)
        if known is not None and known.key == key:
            self._ends[key] = end
            return
        lost, before = self._lost.pop(key, None), self._ended.get(key)
        if lost is not None:
            self._charge(lost[0].user, lost[0].weight, lost[1], end.ours)
            self._over.append(Use(lost[0].user, lost[0].weight, lost[0].began, end.ours))
        elif self._paused.get(one.slot) == key:
            del self._paused[one.slot]
        else:
            began = min(end.ours, one.began + offset)
            if before is not None:  # by their clock: what is to be added to it may be known better by now
                longer = end.theirs - before.theirs
                if longer <= PROMPT_S:
                    return
                began, end = before.ours, _End(min(now, before.ours + longer), end.theirs)
            use = Use(one.user, one.cpus if by_cpus else 1.0, began, end.ours)
            self._charge(use.user, use.weight, use.began, end.ours)
            self._over.append(use)
        self._ended[key] = end

    def _close(self, slot: str, now: float) -> None:
        over = self._open.pop(slot, None)
        if over is None:
            return
        ended = self._ends.pop(over.key, None)
        if ended is None:
            self._lost[over.key] = (over, now)
            return
        self._charge(over.user, over.weight, now, ended.ours)
        self._over.append(Use(over.user, over.weight, over.began, ended.ours))
        self._ended[over.key] = ended

    def _charge(self, user: str, weight: float, began: float, ended: float) -> None:
        """Charge for a time that is over, or, where it ends before it begins, give that back."""
        if abs(ended - began) > PROMPT_S and weight:
            self._late.append(Use(user, weight, max(began, ended - LONGEST_S), ended))

    def _forget(self, now: float) -> None:
        while self._over and (
            len(self._over) > MOST_REMEMBERED or not abs(now - (self._over[0].ended or 0.0)) < REMEMBERED_S
        ):
            self._over.popleft()
        while self._ended:
            end = next(iter(self._ended.values()))
            if len(self._ended) <= MOST_REMEMBERED and abs(now - end.ours) < REMEMBERED_S:
                break
            self._ended.popitem(last=False)
        while len(self._paused) > MOST_REMEMBERED:
            self._paused.popitem(last=False)
        for key in [key for key, (_, until) in self._lost.items() if abs(now - until) >= REMEMBERED_S]:
            del self._lost[key]

    def tidy(self, now: float) -> None:
        """Forget what is long over. To be called every few seconds."""
        self._forget(now)


class Clocks:
    """How far daemons' clocks are from ours."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[float, float, float]] = {}  # by daemon: since when; least now, and before
        self._sent: dict[str, float] = {}  # by daemon: its last message, its clock
        self._step = 0.0

    def heard(self, daemon: str, sent: float, now: float, monotonic: float) -> float:
        """A message came that was sent at `sent`, its daemon's clock, after all that came before. What is to be added
        to that clock to get ours."""
        if abs(now - monotonic - self._step) > BACK_S:  # our own clock was set
            self._known.clear()
        self._step = now - monotonic
        if sent < self._sent.get(daemon, sent) - BACK_S:  # theirs was set back, which looks like a slow bus
            self._known.pop(daemon, None)
        self._sent[daemon] = sent
        apart = now - sent
        since, least, before = self._known.get(daemon, (now, apart, apart))
        if now - since > CLOCK_S:
            since, least, before = now, apart, least
        least = min(least, apart)
        self._known[daemon] = (since, least, before)
        return min(least, before)

    def offset(self, daemon: str) -> float:
        """What `heard` said last; 0 before anything was heard."""
        _, least, before = self._known.get(daemon, (0.0, 0.0, 0.0))
        return min(least, before)

    def forget(self, daemons: Iterable[str]) -> None:
        for daemon in daemons:
            self._known.pop(daemon, None)
            self._sent.pop(daemon, None)
