"""The events that a cycle comes to, besides its sum: for the journal. Pure but for what the chronicle remembers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from services.negotiator.chronicle import Chronicle
from services.negotiator.pool import Matched, Result
from services.negotiator.priorities import Record
from shared.messages.events import Event, MatchesMade, ReasonsChanged, StandingsTold

#: Matches, reasons or standings in one event.
MOST: Final = 2000


def tell_why(
    chronicle: Chronicle,
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
    taken = chronicle.preempted(given, result.losers)
    for groups in chronicle.matches(given, MOST):
        events.append(MatchesMade(**by, groups=groups, preempted=taken))
        taken = []
    if why := chronicle.reasons(result.rejections, silent, now):
        for start in range(0, max(1, len(why.reasons)), MOST):
            some = list(why.reasons[start : start + MOST])
            events.append(ReasonsChanged(**by, whole=why.whole and not start, reasons=some, silent=list(why.silent)))
    stand, gone = chronicle.standings(records, result, in_use, requested, now)
    groups_stand = chronicle.groups(result)
    if stand or gone or groups_stand:
        for start in range(0, max(1, len(stand)), MOST):
            events.append(
                StandingsTold(
                    **by,
                    pool=pool,
                    half_life=half_life,
                    submitters=stand[start : start + MOST],
                    groups=[] if start else groups_stand,
                    gone=[] if start else gone,
                )
            )
    return events
