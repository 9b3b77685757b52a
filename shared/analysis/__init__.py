"""Why a job does not run, and what would help: explanations made of a pool's slots and a job's ad.

`explain_job` looks at one job against all slots, `explain_slot` at one slot against the requests that wait. Both are
pure and give reports of plain values (`to_map` for JSON). The negotiator makes them of its slots, `roost analyze` of
files; that is why they stand here.
"""

from __future__ import annotations

from shared.analysis.jobs import explain_job
from shared.analysis.report import JobReport, Request, SlotReport, Term, to_map
from shared.analysis.slots import Slots
from shared.analysis.waiting import Waiting, explain_slot

__all__ = [
    "JobReport",
    "Request",
    "SlotReport",
    "Slots",
    "Term",
    "Waiting",
    "explain_job",
    "explain_slot",
    "to_map",
]
