"""The totals of `roost q`: jobs by state."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final

from roost.cli.print_mask import integer
from shared.classad import ClassAd
from shared.classad.column_page import Sheet

STATUS: Final = {1: "idle", 2: "running", 3: "removed", 4: "completed", 5: "held", 6: "running", 7: "suspended"}
_ORDER: Final = ("completed", "removed", "idle", "running", "held", "suspended")
#: STATUS by the names that schedds count under.
KEY: Final = {
    "Idle": "idle", "Running": "running", "Removed": "removed", "Completed": "completed", "Held": "held",
    "TransferringOutput": "running", "Suspended": "suspended",
}  # fmt: skip


def is_dagman(ad: ClassAd) -> bool:
    """A job that manages others: the line of its batch tells of those, and it is not counted itself."""
    return integer(ad, "JobUniverse") == 7


def counts_of(jobs: Iterable[ClassAd]) -> Counter[str]:
    """Jobs by state, those of the scheduler universe (DAGMan) and what is in no known state left out."""
    found: Counter[str] = Counter()
    if isinstance(jobs, Sheet):
        numbered = [cell is not None for cell in jobs.cells("procid")]
        alike = zip(jobs.alike(("jobstatus", "jobuniverse")), numbered, strict=True)
        for (place, has_number), times in Counter(alike).items():
            state = STATUS.get(integer(jobs[place], "JobStatus") or 0)
            if state is not None and has_number and not is_dagman(jobs[place]):
                found[state] += times
        return found
    for ad in jobs:
        state = STATUS.get(integer(ad, "JobStatus") or 0)
        if state is not None and not is_dagman(ad) and "ProcId" in ad:
            found[state] += 1
    return found


def totals(what: str, jobs: Iterable[ClassAd]) -> str:
    return totals_line(what, counts_of(jobs))


def totals_line(what: str, counts: Counter[str]) -> str:
    parts = ", ".join(f"{counts[name]} {name}" for name in _ORDER)
    return f"Total for {what}: {counts.total()} jobs; {parts}"


def summary_ad(jobs: Sequence[ClassAd]) -> ClassAd:
    """The totals as an ad (-totals -long)."""
    counts = counts_of(jobs)
    managers = Counter(
        STATUS[state] for ad in jobs if is_dagman(ad) and (state := integer(ad, "JobStatus") or 0) in STATUS
    )
    ad = ClassAd({"MyType": "Summary", "Jobs": counts.total(), "SchedulerJobs": managers.total()})
    for name in _ORDER:
        ad[name.capitalize()] = counts[name]
        if name != "suspended":
            ad[f"Scheduler{name.capitalize()}"] = managers[name]
    return ad
