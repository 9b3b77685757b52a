"""The events that a cycle comes to, for the journal: why jobs wait, who got what, how submitters stand.

`JournalEvents` tells only what has changed. A cycle lasts milliseconds and another follows, so a reason that goes to
and fro would be a flood: each autocluster and each submitter has an allowance of changes, which grows again with time,
the more slowly the more of them there are. What is held back is told as it is then; its beginning and its end are as
exact as cycles are.

`EventPublisher` publishes in the background: no cycle waits for the broker to have heard of the last one.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from engine.fairshare.group_tree import ROOT, GroupTree
from engine.fairshare.priorities import MINIMUM_PRIORITY, Record
from engine.match.model import Matched, Rejected, Result
from shared.bus.api import Exchange, Outgoing
from shared.daemon.context import Context
from shared.errors import RoostError
from shared.messages.events import (
    Event,
    GroupStanding,
    MatchesMade,
    MatchGroup,
    Reason,
    ReasonsChanged,
    StandingsTold,
    SubmitterStanding,
    Taken,
)

#: Changes of one subject that are told at once.
_BURST: Final = 4.0
#: Changes a second, of all subjects together, once they have used that up.
_RATE: Final = 20.0
#: Numbers alone (how many slots fail which condition) are told anew after this long (s).
_NUMBERS_S: Final = 60.0
#: Everything is told anew after this long (s): what the journal has forgotten for its age it knows again.
RESTATE_S: Final = 3600.0
#: A standing that only decays is told anew after this long (s).
_DECAY_S: Final = 300.0
#: Conditions that are named for one reason.
_DETAILS: Final = 8
#: Longest text and condition.
_TEXT: Final = 500

Key = tuple[str, int]  # schedd, autocluster


@dataclass(slots=True)
class _Told:
    """What was told of a subject, when, and how many changes may still be told."""

    what: tuple[Any, ...]
    at: float
    allowance: float = _BURST
    numbers: Any = None
    submitter: str = ""


class ChangeLimit:
    """An allowance of changes for each of many subjects."""

    def __init__(self) -> None:
        self.told: dict[Any, _Told] = {}

    def may(self, told: _Told, now: float) -> bool:
        """Whether a change of this subject may be told now; if so it is counted."""
        gap = now - told.at
        refill = gap * min(1.0, _RATE / max(1, len(self.told)))
        allowance = min(_BURST, told.allowance + max(0.0, refill))
        if allowance < 1.0:
            return False
        told.allowance, told.at = allowance - 1.0, now
        return True


@dataclass(frozen=True, slots=True)
class Reasons:
    """What is to be told of why jobs wait. whole: it is all there is. silent: schedds that did not answer; changed:
    they are others than before."""

    reasons: tuple[Reason, ...]
    whole: bool
    silent: tuple[str, ...]
    changed: bool

    def __bool__(self) -> bool:
        return bool(self.reasons or self.whole or self.changed)


@dataclass(slots=True)
class JournalEvents:
    """Makes the events that tell the journal what has changed, and remembers what was told. `tree`: of the groups in
    force."""

    tree: GroupTree
    _reasons: ChangeLimit = field(default_factory=ChangeLimit)
    _standings: ChangeLimit = field(default_factory=ChangeLimit)
    _silent: tuple[str, ...] = ()
    _whole: float = -math.inf  # when all was told
    _groups: tuple[Any, ...] = ()

    def forget(self) -> None:
        """Tell everything again: what was told may be lost, or somebody else told otherwise since."""
        self._reasons, self._standings = ChangeLimit(), ChangeLimit()
        self._whole, self._groups, self._silent = -math.inf, (), ()

    # --- why jobs wait

    def reasons(self, rejections: Iterable[Rejected], silent: Iterable[str], now: float) -> Reasons:
        """What has changed with this cycle. silent: schedds (inboxes) that did not answer; what they ask for stays as
        it was."""
        whole = not 0.0 <= now - self._whole < RESTATE_S
        if whole:
            self._reasons, self._whole = ChangeLimit(), now
        quiet = tuple(sorted(set(silent)))
        found: list[Reason] = []
        seen: set[Key] = set()
        told = self._reasons.told
        for rejected in rejections:
            request = rejected.request
            key = (request.schedd, request.autocluster)
            if key in seen:
                continue  # the first in its list is the one that others stand behind
            seen.add(key)
            before = told.get(key)
            what = (rejected.code, frozenset(rejected.counts))
            if before is None:
                told[key] = _Told(what, now, numbers=rejected.counts, submitter=rejected.submitter)
            elif before.what != what:
                if not self._reasons.may(before, now):
                    continue
                before.what, before.numbers = what, rejected.counts
            elif before.numbers != rejected.counts and now - before.at >= _NUMBERS_S:
                before.at, before.numbers = now, rejected.counts
            else:
                continue
            found.append(_reason(rejected))
        for key in [key for key in told if key not in seen and key[0] not in quiet]:
            one = told[key]
            # Kept as something that is over, so that who comes and goes all the time has the same allowance.
            if one.what:
                if not self._reasons.may(one, now):
                    continue
                one.what = ()
                found.append(Reason(schedd=_schedd(key[0]), submitter=one.submitter, autocluster=key[1]))
            elif now - one.at > RESTATE_S / 60:
                del told[key]
        changed, self._silent = quiet != self._silent, quiet
        return Reasons(tuple(found), whole, tuple(map(_schedd, quiet)), changed)

    # --- who got what

    def matches(self, given: Sequence[Matched], most: int) -> Iterator[list[MatchGroup]]:
        """Matches by request, in parts of so many at most."""
        by_request: dict[tuple[str, str, int], list[Matched]] = {}
        for match in given:
            request = match.request
            by_request.setdefault((request.schedd, match.submitter, request.autocluster), []).append(match)
        part: list[MatchGroup] = []
        size = 0
        for (schedd, submitter, autocluster), listed in by_request.items():
            for start in range(0, len(listed), most):
                some = listed[start : start + most]
                if size and size + len(some) > most:
                    yield part
                    part, size = [], 0
                ranks = [match.rank for match in some]
                part.append(
                    MatchGroup(
                        schedd=_schedd(schedd),
                        submitter=submitter,
                        autocluster=autocluster,
                        slots=[match.slot for match in some],
                        counts=[match.count for match in some],
                        weights=[match.weight for match in some],
                        ranks=ranks if any(ranks) else [],
                    )
                )
                size += len(some)
        if part:
            yield part

    def preempted(self, given: Iterable[Matched], preempted_users: Mapping[str, str]) -> list[Taken]:
        """Claims that end for these matches."""
        return [
            Taken(slot=slot, from_user=preempted_users.get(slot, ""), by_user=match.submitter, why=match.reason.lower())
            for match in given
            for slot in match.preempts
        ]

    # --- how submitters stand

    def standings(
        self,
        records: Mapping[str, Record],
        result: Result,
        in_use: Mapping[str, tuple[float, int]],
        requested: Mapping[str, float],
        now: float,
    ) -> tuple[list[SubmitterStanding], list[str]]:
        """Who stands otherwise than was told, and who neither asks for nor uses anything any more. records: of all who
        do, settled; in_use: before the cycle; requested: weight of what runs and waits."""
        told = self._standings.told
        lost: dict[str, float] = {}
        found: list[SubmitterStanding] = []
        for name, record in records.items():
            share = result.shares.get(name)
            fraction, limit, given = (
                (share.fraction, share.limit, share.given) if share is not None else (0.0, 0.0, 0.0)
            )
            weight, slots = in_use.get(name, (0.0, 0))
            used = max(0.0, weight + given - lost.get(name, 0.0))
            wanted = requested.get(name, used)
            what = (used, wanted, round(fraction, 3), record.factor, record.floor, record.ceiling)
            before = told.get(name)
            if before is None:
                told[name] = _Told(what, now)
            elif before.what != what:
                if not self._standings.may(before, now):
                    continue
                before.what = what
            elif now - before.at >= _DECAY_S:
                before.at = now
            else:
                continue
            found.append(
                SubmitterStanding(
                    submitter=name,
                    group=self.tree.group_of(name) if self.tree else ROOT,
                    priority=max(MINIMUM_PRIORITY, record.priority),
                    factor=record.factor,
                    in_use=used,
                    slots=slots,
                    share=fraction,
                    limit=limit if math.isfinite(limit) else 0.0,
                    given=given,
                    requested=wanted,
                    floor=record.floor,
                    ceiling=record.ceiling,
                    usage=record.weighted_usage,
                )
            )
        gone = [name for name in told if name not in records]
        for name in gone:
            del told[name]
        return found, gone

    def groups(self, result: Result) -> list[GroupStanding]:
        """How the groups stand, where that is otherwise than was told."""
        if not self.tree:
            return []
        found = [
            GroupStanding(
                group=plan.group,
                quota=_finite(plan.quota),
                allocated=_finite(plan.allocated),
                in_use=plan.in_use,
                requested=plan.requested,
            )
            for plan in result.groups
        ]
        what = tuple(found)
        if what == self._groups:
            return []
        self._groups = what
        return found


def _reason(rejected: Rejected) -> Reason:
    details = sorted(rejected.details.items(), key=lambda one: -one[1])[:_DETAILS]
    return Reason(
        schedd=_schedd(rejected.request.schedd),
        submitter=rejected.submitter,
        autocluster=rejected.request.autocluster,
        code=rejected.code,
        text=rejected.reason[:_TEXT],
        left=rejected.left,
        counts={str(code): int(number) for code, number in rejected.counts.items()},
        details={text[:_TEXT]: int(number) for text, number in details},
    )


def _schedd(inbox: str) -> str:
    """The schedd's name, for its inbox."""
    return inbox.removeprefix("schedd.")


def _finite(value: float) -> float:
    return value if math.isfinite(value) else 0.0


#: Matches, reasons or standings in one event.
_MOST_IN_EVENT: Final = 2000


def journal_events(
    told: JournalEvents,
    result: Result,
    given: Sequence[Matched],
    *,
    in_use: Mapping[str, tuple[float, int]],
    pool: float,
    records: Mapping[str, Record],
    requested: Mapping[str, float],
    silent: Iterable[str],
    half_life: float,
    by: Mapping[str, Any],
) -> list[Event]:
    """What is new with this cycle. given: its matches, as far as their slots are there still. in_use, pool, records: as
    the cycle had them; requested: by submitter, weight of what runs and waits; silent: schedds that did not answer.
    by: at, negotiator, epoch, cycle, shard."""
    now = float(by["at"])
    events: list[Event] = []
    taken = told.preempted(given, result.preempted_users)
    for groups in told.matches(given, _MOST_IN_EVENT):
        events.append(MatchesMade(**by, groups=groups, preempted=taken))
        taken = []
    if why := told.reasons(result.rejections, silent, now):
        for start in range(0, max(1, len(why.reasons)), _MOST_IN_EVENT):
            some = list(why.reasons[start : start + _MOST_IN_EVENT])
            events.append(ReasonsChanged(**by, whole=why.whole and not start, reasons=some, silent=list(why.silent)))
    stand, gone = told.standings(records, result, in_use, requested, now)
    groups_stand = told.groups(result)
    if stand or gone or groups_stand:
        for start in range(0, max(1, len(stand)), _MOST_IN_EVENT):
            events.append(
                StandingsTold(
                    **by,
                    pool=pool,
                    half_life=half_life,
                    submitters=stand[start : start + _MOST_IN_EVENT],
                    groups=[] if start else groups_stand,
                    gone=[] if start else gone,
                )
            )
    return events


#: Events that wait for the broker. More than this, and they are lost: cycles go on whoever hears of them.
MOST_WAITING: Final = 5000
#: In one go.
_STEP: Final = 200


class EventPublisher:
    """Publishes events in their order. `lost`: called when some of them were not."""

    def __init__(self, context: Context, lost: Callable[[], None]) -> None:
        self.context = context
        self._lost = lost
        self._waiting: deque[Event] = deque()
        self._wake = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self.lost = 0  # events that never were published
        context.bus.on_gap(self._on_gap)

    @property
    def waiting(self) -> int:
        """Events that are not published yet."""
        return len(self._waiting)

    async def _on_gap(self) -> None:
        """Have everything told anew: what was told while there was no broker has waited, but not without bound."""
        self._lost()

    def publish(self, events: Iterable[Event]) -> None:
        self._waiting.extend(events)
        if len(self._waiting) > MOST_WAITING:
            self.context.log.warning("events_not_told", events=len(self._waiting))
            self.lost += len(self._waiting)
            self._waiting.clear()
            self._lost()
        if self._waiting:
            self._idle.clear()
            self._wake.set()

    async def run(self) -> None:
        """Publish until cancelled."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._waiting:
                await self._some()
            self._idle.set()

    async def drain(self) -> None:
        """Wait until everything is published."""
        await self._idle.wait()

    async def _some(self) -> None:
        part = [self._waiting.popleft() for _ in range(min(_STEP, len(self._waiting)))]
        try:
            await self.context.bus.publish_many([Outgoing(Exchange.EVENTS, event.type, event) for event in part])
        except RoostError as error:
            self.lost += len(part)
            self.context.log.info("event_not_sent", events=len(part), type=part[-1].type, reason=str(error))
            self._lost()
