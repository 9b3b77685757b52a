"""Which idle job runs next on a claim whose job has ended (spec rows NEG-42, NEG-17). No I/O."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from engine.queue.bucket import Key
from engine.queue.idle_queue import IdleQueue
from shared.classad import ClassAd, half_match, is_true
from shared.job_limits import parse, text_of, wanted

#: What a dynamic or static slot offers of what a job requests.
_RESOURCES: Final = (("RequestCpus", "Cpus"), ("RequestMemory", "Memory"), ("RequestDisk", "Disk"))
#: At most so many autoclusters are tried on one claim each time: the rest is the negotiator's business.
MAX_TRIED: Final = 100


@dataclass(frozen=True, slots=True)
class Next:
    """The job that runs next on a claim; None, with the reason, when the claim goes back."""

    key: Key | None
    autocluster: int = 0
    reason: str = ""


def fits(job: ClassAd, slot: ClassAd, now: float, limits: str = "") -> bool:
    """Whether a job may run on a slot that is claimed already: each accepts the other, and the slot, which is not
    carved any more, is large enough.

    limits: what the claim was matched for. The negotiator counts just that of each concurrency limit while the claim
    lasts, so a job that takes anything else needs a match of its own.
    """
    if sorted(parse(limits_of(job, slot, now))) != sorted(parse(limits)):
        return False
    for request, offer in _RESOURCES:
        wanted, there = job.eval(request, slot, now), slot.eval(offer)
        if isinstance(wanted, int | float) and isinstance(there, int | float) and wanted > there:
            return False
    return half_match(job, slot, now=now) and _accepts(slot, job, now)


def limits_of(job: ClassAd, slot: ClassAd, now: float) -> str:
    """What a job takes of concurrency limits on a slot, as a match says it."""
    return text_of(wanted(job, slot, now))


def _accepts(slot: ClassAd, job: ClassAd, now: float) -> bool:
    # START alone: the rest of a slot's Requirements asks whether an unclaimed slot may be claimed.
    if "Start" in slot:
        return is_true(slot.eval("Start", job, now))
    return half_match(slot, job, now=now)


def next_job(idle: IdleQueue | None, known: dict[int, bool], fit: Callable[[Key, int], bool]) -> Next:
    """The first idle job, in the order in which jobs are to start, of an autocluster that fits the slot.

    known: autoclusters that were tried on this slot; added to. fit(first job of an autocluster, autocluster) tries one.
    """
    if idle is None or not idle.total:
        return Next(None, reason="its submitter has no idle job")
    tried = 0
    for key, autocluster in idle.heads():
        good = known.get(autocluster)
        if good is None:
            if tried == MAX_TRIED:
                break
            tried += 1
            good = known[autocluster] = fit(key, autocluster)
        if good:
            return Next(key, autocluster)
    return Next(None, reason="none of its submitter's idle jobs fits the slot")
