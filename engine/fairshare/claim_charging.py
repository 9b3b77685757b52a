"""Which claims are charged for which time, to whom (spec rows ACC-04, ACC-14 to ACC-16, ACC-18). Pure.

The accounting records charge for what slots are in use, from one look to the next. An ad that comes late, or a claim
that came and went while the bus was away, would be charged too late, too long or never. So slots tell since when they
are claimed, and which claims ended there of late; `ClaimCharges` makes of that what is to be charged, or given back,
for times that are over. Each claim counts once: it is known by its slot and the moment it began, by its startd's clock
(its id is a secret, and is nowhere here). A startd whose disk was full as a claim ended finds the claim again when it
is restarted, and tells its end anew: then only the time between counts.

Every negotiator follows the claims, whoever leads. The leader writes them with the charges, in the same write: claims
that began, ended, paused or were lost sight of since the last one. Whoever leads next goes on from there.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol

from shared.classad.values import Value
from shared.past_claims import Past, read_past

#: States in which a slot is charged to its user: a preempting one still is (ACC-15).
_CHARGED = ("Claimed", "Preempting")


class Evaluated(Protocol):
    """What is asked for the values of attributes: an ad, say."""

    def eval(self, name: str, /) -> Value: ...


def charged_to(ad: Evaluated, *, discount_suspended: bool = False) -> str:
    """The submitter who uses the slot, or "" if nobody is charged for it.

    A partitionable slot is not: its dynamic slots are. discount_suspended:
    NEGOTIATOR_DISCOUNT_SUSPENDED_RESOURCES, a slot whose job is suspended is free of charge.
    """
    if ad.eval("State") not in _CHARGED or ad.eval("PartitionableSlot") is True:
        return ""
    if discount_suspended and ad.eval("Activity") == "Suspended":
        return ""
    for name in ("AccountingGroup", "RemoteUser"):
        submitter = ad.eval(name)
        if isinstance(submitter, str) and submitter:
            return submitter
    return ""


#: What is heard of within this time (s) is heard of at once: most ads are, and begin and end are late alike.
PROMPT_S: Final = 0.05
#: Of what ended longer ago (s) than this it is believed that it was charged: others may have forgotten it since.
BELIEVED_S: Final = 600.0

#: Slot, and the moment a claim began as its startd says; 0.0 if it does not say.
Key = tuple[str, float]
Span = tuple[float, float]


class Claim(NamedTuple):
    """`weight` is charged to `user` from `began` to `until`, the leader's clock. began -inf: nobody knows since when.
    until None: it goes on. paused: it is free of charge for the time being. theirs: when it ended, its startd's clock;
    None: nobody told."""

    user: str
    weight: float
    began: float
    until: float | None = None
    paused: bool = False
    theirs: float | None = None

    def clock_set(self, seconds: float) -> Claim:
        """The same by a clock of ours that was set by so many seconds."""
        return self._replace(began=self.began + seconds, until=None if self.until is None else self.until + seconds)


@dataclass(frozen=True, slots=True)
class LateCharge:
    """A charge for a time that is over: so much from `began` to `ended`, our clock. Where it ends before it begins,
    that much is given back."""

    user: str
    weight: float
    began: float
    ended: float

    def clock_set(self, seconds: float) -> LateCharge:
        """The same by a clock of ours that was set by so many seconds."""
        return LateCharge(self.user, self.weight, self.began + seconds, self.ended + seconds)


@dataclass(frozen=True, slots=True)
class Takeover:
    """What is to be charged since the accounting records were written. going: submitter -> (weight, slots) of what is
    in use since then, and still is; late: everything else."""

    going: Mapping[str, tuple[float, int]]
    late: Sequence[LateCharge]


def between(began: float, ended: float, gaps: Iterable[Span] = ()) -> list[Span]:
    """The time from one moment to another but for these gaps, which are in order; backwards it is one piece."""
    if ended <= began or began == -math.inf:
        return [(began, ended)] if -math.inf < ended < began else []
    found = []
    for first, last in gaps:
        if last > began and first < ended:
            if first > began:
                found.append((began, first))
            began = max(began, last)
    return [*found, (began, ended)] if began < ended else found


def carry_on(
    mine: Claim | None, recorded: Claim | None, gaps: Sequence[Span], base: float, now: float
) -> tuple[Claim, list[Span]]:
    """A claim as this negotiator heard of it, and as the accounting records of `base` have it, one of which there is:
    what is true of it from now on, and for which time it is to be charged yet, or given back."""
    if recorded is None:
        assert mine is not None
        if mine.until is not None and mine.until <= base - BELIEVED_S:
            return mine, []  # whoever led then may have forgotten it
        return mine, between(mine.began, now if mine.until is None else mine.until, gaps)
    charged = base if recorded.until is None else min(recorded.until, base)
    if mine is None:
        return recorded._replace(until=charged), []
    mine = mine._replace(began=recorded.began)
    if mine.until is None:
        return mine, between(charged, now, gaps)
    if mine.theirs is not None:
        if recorded.paused:
            return recorded._replace(paused=False, theirs=mine.theirs), []
        if recorded.theirs is None:
            return mine, between(charged, mine.until, gaps)
        longer = mine.theirs - recorded.theirs  # their clock: what is to be added to it may be known better by now
        if longer <= PROMPT_S:
            return recorded, []
        return recorded._replace(until=charged + longer, theirs=mine.theirs), [(charged, charged + longer)]
    if mine.paused:
        if recorded.theirs is not None:
            return mine._replace(until=charged), []
        return mine, between(charged, mine.until, gaps)
    if recorded.theirs is not None or recorded.paused or mine.until <= charged:
        return recorded._replace(until=charged), []
    return mine, between(charged, mine.until, gaps)


#: Nothing is charged for longer ago (s): a clock that is that wrong says nothing.
LONGEST_S: Final = 86_400.0
#: How long (s) claims that ended are known after it was heard: for longer than their end is believed to be new.
REMEMBERED_S: Final = BELIEVED_S + 300.0
#: How long (s) claims are known of which nobody heard how they ended: their startd may come back.
LOST_S: Final = LONGEST_S
#: So many of each.
MOST_REMEMBERED: Final = 100_000
#: So many of the times for which a claim was free of charge are known.
_MOST_GAPS: Final = 16


class _End(NamedTuple):
    """When a claim ended."""

    ours: float
    theirs: float  # its startd's clock


class ClaimCharges:
    """Follows the claims of all slots. Late charges and changed claims gather until somebody takes them."""

    def __init__(self) -> None:
        self._claims: dict[Key, Claim] = {}
        self._at: dict[str, Key] = {}  # by slot: the claim that is there, paused or not
        self._gaps: dict[Key, tuple[Span, ...]] = {}  # when a claim was free of charge
        self._ends: dict[Key, _End] = {}  # of claims that are charged still
        self._ended: dict[Key, float] = {}  # over, and when that was heard, in that order
        self._lost: dict[Key, float] = {}  # likewise; how they ended nobody told
        self._settled: dict[str, tuple[str, frozenset[Past]]] = {}  # by slot that told: its list, and what that named
        self._late: list[LateCharge] = []
        self._changed: dict[Key, None] = {}
        self._believed = -math.inf  # whatever was up to then is charged

    def take_late(self) -> list[LateCharge]:
        late, self._late = self._late, []
        return late

    def take_changed(self) -> dict[Key, Claim | None]:
        """Claims that are not as they were when this was called last; None: there is nothing more to be known."""
        changed, self._changed = self._changed, {}
        return {key: self._claims.get(key) for key in changed}

    def take_over(self, recorded: Mapping[Key, Claim] | None, base: float, now: float) -> Takeover:
        """Charge on from accounting records of `base`, our clock. recorded: the claims that they name; None if they
        are of a version that names none, which are believed. `take_changed` has afterwards what is not in the
        accounting records as it should be."""
        self._late = []
        self._changed = {}
        self._believed = base if recorded is None else -math.inf
        heard, self._claims = self._claims, {}
        going: dict[str, tuple[float, int]] = {}
        late: list[LateCharge] = []
        there = recorded or {}
        for key in {**there, **heard}:
            mine, was = heard.get(key), there.get(key)
            if mine is not None and was is not None and mine.until is was.until is None and key not in self._gaps:
                # Goes on, as almost all do; a large pool is to be led at once.
                self._claims[key] = claim = was
                if (mine.user, mine.weight) != (was.user, was.weight):
                    self._claims[key] = claim = mine._replace(began=was.began)
                    self._changed[key] = None
                weight, slots = going.get(claim.user, (0.0, 0))
                going[claim.user] = weight + claim.weight, slots + 1
                continue
            if mine is None and not key[1]:
                self._changed[key] = None  # nobody will ever tell how it ended
                continue
            if recorded is None and mine is not None:
                was = _believed(mine, base)
            gaps = self._gaps.get(key, ())
            claim, spans = carry_on(mine, was, gaps, base, now)
            if claim.until is None and was is not None and was.until is None:
                weight, slots = going.get(claim.user, (0.0, 0))
                going[claim.user] = weight + claim.weight, slots + 1
                spans = [(last, max(first, base)) for first, last in gaps if last > base]
            late += [LateCharge(claim.user, claim.weight, max(span[0], span[1] - LONGEST_S), span[1]) for span in spans]
            if claim.until is None and was is not None and was.until is not None and was.theirs is not None:
                self._ends.setdefault(key, _End(was.until, was.theirs))  # what we believe may be of long ago
            self._claims[key] = claim
            if claim != there.get(key):
                self._changed[key] = None
            if claim.until is not None and self._at.get(key[0]) != key:
                (self._lost if claim.theirs is None else self._ended).setdefault(key, now)
                (self._ended if claim.theirs is None else self._lost).pop(key, None)
        return Takeover(going, late)

    def clock_set(self, seconds: float) -> None:
        """Our clock was set by so many seconds: go on by it, as if it had always been so."""
        self._claims = {key: claim.clock_set(seconds) for key, claim in self._claims.items()}
        self._gaps = {
            key: tuple((first + seconds, last + seconds) for first, last in gaps) for key, gaps in self._gaps.items()
        }
        self._ends = {key: end._replace(ours=end.ours + seconds) for key, end in self._ends.items()}
        self._ended = {key: heard + seconds for key, heard in self._ended.items()}
        self._lost = {key: heard + seconds for key, heard in self._lost.items()}
        self._late = [use.clock_set(seconds) for use in self._late]
        self._believed += seconds

    # --- what slots say

    def slot_seen(
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
        clock_set: float = 0.0,
    ) -> None:
        """Take in a slot's ad. user: who is charged ("": nobody). claimed_at: since when it is claimed, its startd's
        clock as it was then; None if it does not say. clock_set: by how many seconds that clock was set since. past:
        RoostPastClaims. offset: what is to be added to that clock to get ours. by_cpus: use is weighted by cores."""
        self._hear_past(slot, past, now, offset, by_cpus)
        key, there = (slot, claimed_at or 0.0), self._at.get(slot)
        if there is not None and (there != key or (not user and claimed_at is None)):
            self._close(slot, now)
            there = None
        if not user:
            self.slot_paused(slot, now)
            return
        known = self._claims.get(key)
        if known is None:
            began = -math.inf if claimed_at is None else min(now, claimed_at + clock_set + offset)
            since = max(began, self._believed)
        elif known.until is None:
            if (known.user, known.weight) != (user, weight):
                self._put(key, known._replace(user=user, weight=weight))
            return
        elif known.paused:
            began, since = known.began, now
            self._gaps[key] = (*self._gaps.get(key, ())[1 - _MOST_GAPS :], (known.until, now))
        else:
            began, since = known.began, known.until  # its ad was lost; or its startd forgot that it had ended
        self._lost.pop(key, None)
        self._ended.pop(key, None)
        self._at[slot] = key
        self._put(key, Claim(user, weight, began))
        if claimed_at is not None:
            self._charge(user, weight, since, now)

    def slot_dropped(self, slot: str, now: float) -> None:
        """Note that there is no ad of this slot any more."""
        self._close(slot, now)
        self._settled.pop(slot, None)

    def slot_paused(self, slot: str, now: float) -> None:
        """Note that the slot is not ours to charge for, for a while."""
        key = self._at.get(slot)
        if key is not None and self._claims[key].until is None:
            self._put(key, self._claims[key]._replace(until=now, paused=True))

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
        """Note that a claim is over, as its startd says, and since when."""
        offset += one.clock_set
        key, end = (one.slot, one.began), _End(min(now, one.ended + offset), one.ended)
        known = self._claims.get(key)
        if known is not None:
            end = end._replace(ours=max(end.ours, min(now, known.began)))  # nothing is given back that was not charged
        else:
            if end.ours <= now - BELIEVED_S:
                return
            # As long as its startd had it, also where that clock is ahead, and its end would be yet to come.
            began = end.ours - max(0.0, one.ended - one.began)
            known = Claim(one.user, one.cpus if by_cpus else 1.0, began, max(began, min(end.ours, self._believed)))
        if known.until is None:
            self._ends[key] = end
            return
        if known.paused:
            end = _End(known.until, end.theirs)
        elif known.theirs is not None:
            longer = end.theirs - known.theirs  # their clock: what is to be added to it may be known better by now
            if longer <= PROMPT_S:
                return
            end = _End(min(now, known.until + longer), end.theirs)
        self._charge(known.user, known.weight, known.until, end.ours)
        self._over(key, known, end, now)

    def _close(self, slot: str, now: float) -> None:
        key = self._at.pop(slot, None)
        if key is None:
            return
        known, end = self._claims[key], self._ends.pop(key, None)
        if not key[1]:
            self._put(key, None)  # nobody will ever tell how it ended
        elif known.until is None and end is not None:
            self._charge(known.user, known.weight, now, end.ours)
            self._over(key, known, end, now)
        else:
            self._put(key, known._replace(until=now) if known.until is None else known)
            (self._lost if known.theirs is None else self._ended)[key] = now

    def _over(self, key: Key, known: Claim, end: _End, now: float) -> None:
        if self._at.get(key[0]) == key:
            del self._at[key[0]]
        self._lost.pop(key, None)
        self._ended.pop(key, None)
        self._ended[key] = now
        self._put(key, known._replace(until=end.ours, paused=False, theirs=end.theirs))

    def _put(self, key: Key, claim: Claim | None) -> None:
        self._changed[key] = None
        if claim is None:
            self._claims.pop(key, None)
            self._gaps.pop(key, None)
        else:
            self._claims[key] = claim

    def _charge(self, user: str, weight: float, began: float, ended: float) -> None:
        """Charge for a time that is over, or, where it ends before it begins, give that back."""
        if abs(ended - began) > PROMPT_S and weight:
            self._late.append(LateCharge(user, weight, max(began, ended - LONGEST_S), ended))

    def tidy(self, now: float) -> None:
        """Forget what is long over. To be called every few seconds."""
        for over, longest in ((self._ended, REMEMBERED_S), (self._lost, LOST_S)):
            while over:
                key, heard = next(iter(over.items()))
                if len(over) <= MOST_REMEMBERED and now - heard < longest:
                    break
                del over[key]
                self._put(key, None)


def _believed(mine: Claim, base: float) -> Claim | None:
    """What accounting records that name no claims were charged for this one: all that was until then."""
    if mine.began >= base:
        return None
    if mine.until is not None and mine.until <= base:
        return mine
    return mine._replace(until=None, paused=False, theirs=None)
