"""A job that left the queue once more: what a new submit of it says. Pure."""

from __future__ import annotations

from typing import Final

from shared.classad import ClassAd
from shared.classad.expr import fold

#: Says of a job which one it is another try of.
RERUN_OF: Final = "RoostRerunOf"
#: Of the first try only. (What tells how it fared the schedd leaves out by itself.)
_FIRST_TRY: Final = """
    HoldReason HoldReasonCode HoldReasonSubCode SubmitId JobBatchId DAGManJobId DAGNodeName
    TotalSubmitProcs LeaveJobInQueue NumJobAttempts JobFinishedHookDone RemoveReason LastRemoteStatus ImageSize
    ResidentSetSize ProportionalSetSizeKb MemoryUsage CpusUsage JobCoreDumped CurrentHosts
"""
_LEFT_OUT: Final = frozenset(map(fold, _FIRST_TRY.split()))


class NotAgain(Exception):
    """It can not be run again like this: the text says why, and what to do instead."""


def again(ad: ClassAd, job_id: str) -> ClassAd:
    """The ad of the new job. Raises NotAgain."""
    if isinstance(ad.eval("StageInFinish"), int):
        raise NotAgain(
            f"the input files of job {job_id} were sent to the schedd and are gone with it: submit it again "
            "(roost submit -spool)"
        )
    if isinstance(ad.eval("DAGManJobId"), int):
        raise NotAgain(f"job {job_id} is a node of a DAG: submit the DAG again, which runs what failed (rescue files)")
    table = {
        key: entry
        for key, entry in ad.table().items()
        if key not in _LEFT_OUT and not key.startswith("machineattr") and not key.endswith(("_raw", "provisioned"))
    }
    found = ClassAd.from_table(table)
    found[RERUN_OF] = job_id
    return found
