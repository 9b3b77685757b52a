"""One slot against the requests that wait."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from engine.analyze.report import Request, SlotReport
from engine.analyze.slots import Slots
from shared.classad import ClassAd
from shared.classad.columnar import OTHER_SIDE

MOST_REQUESTS: Final = 1_000  # looked at, the first ones
MOST_FAILS: Final = 10  # conditions told of one request


@dataclass(frozen=True, slots=True)
class WaitingRequest:
    """`count` idle jobs that no slot can tell apart, and the ad that stands for them."""

    job: str  # id of the first
    submitter: str
    count: int
    ad: ClassAd


def explain_slot(slots: Slots, name: str, waiting: Sequence[WaitingRequest]) -> SlotReport:
    """What a slot would take of what waits, and why not the rest. `slots` has this slot only (a table of the pool
    would be evaluated whole for each request). Raises KeyError if it has not, and what `slots.patience` does."""
    ad = slots.table.ad(slots.table.row(name))
    requests = tuple(_request(slots, each) for each in waiting[:MOST_REQUESTS])
    jobs = sum(each.count for each in requests)
    fits = sum(each.count for each in requests if each.fits)
    return SlotReport(
        slot=name,
        state="/".join(str(ad.eval(key)) for key in ("State", "Activity") if isinstance(ad.eval(key), str)),
        verdict=_verdict(slots, name, ad, jobs, fits),
        requests=requests,
        jobs=jobs,
        fits=fits,
    )


def _request(slots: Slots, waiting: WaitingRequest) -> Request:
    matching = slots.matching
    conjuncts = matching.together(lambda: matching.conjuncts(waiting.ad, apart=True))
    failing = [each for each in conjuncts if not each.mask.all()]
    if not failing:
        return Request(waiting.job, waiting.submitter, waiting.count, fits=True)
    # The job's conditions come first: a slot that does not interest it need not accept it.
    mine = [each.text for each in failing if each.side == OTHER_SIDE]
    fails = mine or [each.text for each in failing]
    side = "job" if mine else "slot"
    return Request(waiting.job, waiting.submitter, waiting.count, False, side, tuple(fails[:MOST_FAILS]))


def _verdict(slots: Slots, name: str, ad: ClassAd, jobs: int, fits: int) -> str:
    user = ad.eval("RemoteUser")
    if ad.eval("Offline") is True:
        waking = name in slots.waking or ad.lookup("MachineLastMatchTime") is not None
        state = "It sleeps, and is to be woken" if waking else "It sleeps"
    elif ad.eval("State") in ("Claimed", "Preempting") and ad.eval("PartitionableSlot") is not True:
        state = f"It is claimed by {user}" if isinstance(user, str) else "It is claimed"
    elif slots.unoffered.get(name) == "match-under-way":
        state = "It is promised to a job that was matched a moment ago"
    elif slots.unoffered.get(name) == "no-claim-id":
        state = "It has not sent its claim id yet"
    elif slots.matching.together(slots.look).left_out.all():
        state = "NEGOTIATOR_SLOT_CONSTRAINT leaves it out"
    else:
        state = "It is on offer"
    if not jobs:
        return f"{state}; no idle jobs wait."
    return f"{state}; of {jobs} idle jobs it would take {fits}, one or the other."
