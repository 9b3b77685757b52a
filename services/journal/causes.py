"""What a job can wait for, and how that is called. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

#: Every cause of waiting, with a few words for people. The negotiator's codes are its own (negotiation.reasons), but
#: for `no-match`, which is told apart by what kept most slots away.
CAUSES: Final[Mapping[str, str]] = {
    "requirements": "no slot satisfies its Requirements",
    "draining": "machines that suit are being drained",
    "start-policy": "slots do not accept it (START)",
    "busy": "slots that suit are busy",
    "taken": "slots that suit went to other jobs",
    "no-slots": "there are no slots",
    "offline": "slots that suit sleep",
    "slot-starting": "slots that suit are not ready yet",
    "shutting-down": "slots that suit are about to shut down",
    "share": "its submitter had its share of the pool",
    "ceiling": "its submitter is at its ceiling",
    "quota": "its group had its quota",
    "limit": "a concurrency limit is reached",
    "out-of-time": "the time for its submitter in a cycle was over",
    "negotiation": "no cycle had decided about it yet",
    "no-broker": "its schedd or the negotiator had no connection to the broker",
    "no-negotiator": "no negotiator led",
    "schedd-down": "its schedd was down",
    "schedd-silent": "its schedd did not answer the negotiator",
    "schedd-limit": "its schedd ran as many jobs as it may (MAX_JOBS_RUNNING)",
    "starting": "its slot was being claimed, and its files brought there",
    "vacating": "its slot was being emptied of the job that had it",
    "held": "it was on hold",
    "unknown": "the journal has no record of that time",
}
#: What a slot that suits a job may be doing instead of it, by reasons.SLOTS of the negotiator.
_BUSY: Final = ("claimed", "consumed", "match-under-way", "taken")
_OTHERS: Final = (
    ("offline", "offline"),
    ("shutting-down", "shutting-down"),
    ("no-claim-id", "slot-starting"),
    ("draining", "draining"),
)


def cause_of(code: str, counts: Mapping[str, int]) -> str:
    """The cause for a code of the negotiator and its counts of slots."""
    if code != "no-match":
        return code if code in CAUSES else "unknown"
    if not sum(counts.values()):
        return "no-slots"
    if any(counts.get(one) for one in _BUSY):
        return "busy"
    for count, cause in _OTHERS:
        if counts.get(count):
            return cause
    if counts.get("slot-requirements"):
        return "start-policy"
    if counts.get("job-requirements"):
        return "requirements"
    return "busy" if counts.get("free") else "unknown"
