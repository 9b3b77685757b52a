"""How often a job was held, and how often a run of it was broken off, by reason: NumHolds and NumHoldsByReason,
NumVacates and NumVacatesByReason. Codes and their words are HTCondor's. No I/O.

Requests may grow with these, as in `request_memory = 1024 * (1 + (NumHoldsByReason.JobOutOfResources ?: 0))`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from engine.queue.jobs import Job
from shared.classad import ClassAd

#: VacateReasonCode of what the access point itself sees.
NOT_STARTED: Final = 1003
RUN_FAILED: Final = 1002
REQUEUED: Final = 1005
STARTER_ERROR: Final = 1007
RECONNECT_FAILED: Final = 1008
REMOVED: Final = 1023

#: HoldReasonCode, and from 1000 on VacateReasonCode.
_WORDS: Final = """
    0 Unspecified 1 UserRequest 2 GlobusGramError 3 JobPolicy 4 CorruptedCredential 5 JobPolicyUndefined
    6 FailedToCreateProcess 7 UnableToOpenOutput 8 UnableToOpenInput 9 UnableToOpenOutputStream
    10 UnableToOpenInputStream 11 InvalidTransferAck 12 TransferOutputError 13 TransferInputError 14 IwdError
    15 SubmittedOnHold 16 SpoolingInput 17 JobShadowMismatch 18 InvalidTransferGoAhead 19 HookPrepareJobFailure
    20 MissedDeferredExecutionTime 21 StartdHeldJob 22 UnableToInitUserLog 23 FailedToAccessUserAccount
    24 NoCompatibleShadow 25 InvalidCronSettings 26 SystemPolicy 27 SystemPolicyUndefined
    32 MaxTransferInputSizeExceeded 33 MaxTransferOutputSizeExceeded 34 JobOutOfResources 35 InvalidDockerImage
    36 FailedToCheckpoint 43 PreScriptFailed 44 PostScriptFailed 45 SingularityTestFailed 46 JobDurationExceeded
    47 JobExecuteExceeded 48 HookShadowPrepareJobFailure
    1000 JobPolicyVacate 1001 SystemPolicyVacate 1002 ShadowException 1003 JobNotStarted 1004 UserVacateJob
    1005 JobShouldRequeue 1006 FailedToActivateClaim 1007 StarterError 1008 ReconnectFailed 1009 ClaimDeactivated
    1010 StartdVacateCommand 1011 StartdPreemptExpression 1012 StartdException 1013 StartdShutdown 1014 StartdDraining
    1015 StartdCoalesce 1016 StartdHibernate 1017 StartdReleaseCommand 1018 StartdPreemptingClaimRank
    1019 StartdPreemptingClaimUserPrio 1020 VMError 1021 ContainerError 1022 ScheddVacate 1023 JobRemoved
    1024 ScratchDirError
"""
_PAIRS: Final = _WORDS.split()
WORDS: Final[Mapping[int, str]] = dict(zip(map(int, _PAIRS[::2]), _PAIRS[1::2], strict=True))


def count_hold(job: Job, code: int) -> None:
    """The job is put on hold with this HoldReasonCode."""
    _count(job, "NumHolds", code)


def count_vacate(job: Job, code: int) -> None:
    """A run whose program had begun is over, and the job is not. code: a HoldReasonCode or VacateReasonCode."""
    _count(job, "NumVacates", code)


def _count(job: Job, name: str, code: int) -> None:
    job.count(name)
    known = job.ad.eval(f"{name}ByReason")
    counts = known.copy() if isinstance(known, ClassAd) else ClassAd()
    word = WORDS.get(code, WORDS[0])  # an execution point may send any number, and each would be an attribute
    before = counts.eval(word)
    counts[word] = (before if isinstance(before, int) and not isinstance(before, bool) else 0) + 1
    job.ad[f"{name}ByReason"] = counts
