"""Why a job does not run, and what would help: explanations made of a pool's slots and a job's ad.

`explain_job` looks at one job against all slots, `explain_slot` at one slot against the requests that wait. Both are
pure and give reports of plain values (`to_map` for JSON). The negotiator makes them of its slots, `roost analyze` of
files; that is why they stand here.
"""

from __future__ import annotations

from engine.analyze.job_report import explain_job
from engine.analyze.report import JobReport, Request, SlotReport, Term, to_map
from engine.analyze.slot_report import WaitingRequest, explain_slot
from engine.analyze.slots import Slots

__all__ = [
    "JobReport",
    "Request",
    "SlotReport",
    "Slots",
    "Term",
    "WaitingRequest",
    "explain_job",
    "explain_slot",
    "to_map",
]
