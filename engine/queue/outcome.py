"""Whether a job that is done did what it was to do: a state of its own for whoever looks at many of them."""

from __future__ import annotations

import signal
from typing import Final

from shared.classad import ClassAd

#: TRUE of jobs that ran to their end and failed.
FAILED: Final = (
    "JobStatus == 4 && (ExitBySignal =?= true || (isInteger(ExitCode) && "
    "ExitCode != (JobSuccessExitCode ?: SuccessExitCode ?: 0)))"
)
#: What that reads.
ATTRIBUTES: Final = ("JobStatus", "ExitBySignal", "ExitCode", "ExitSignal", "JobSuccessExitCode", "SuccessExitCode")
_COMPLETED: Final = 4


def failure(ad: ClassAd) -> str:
    """How a completed job failed: "exit code 3", "signal 11 (SIGSEGV)"; "" of one that succeeded or is not done. The
    exit code that is a success is 0, or the job's own success_exit_code."""
    if ad.eval("JobStatus") != _COMPLETED:
        return ""
    number, code = ad.eval("ExitSignal"), ad.eval("ExitCode")
    if ad.eval("ExitBySignal") is True:
        return signalled(number) if isinstance(number, int) else "a signal"
    if not isinstance(code, int) or isinstance(code, bool):
        return ""
    return "" if code == success_code(ad) else f"exit code {code}"


def success_code(ad: ClassAd) -> int:
    """The exit code with which the job says that it succeeded."""
    for name in ("JobSuccessExitCode", "SuccessExitCode"):
        code = ad.eval(name)
        if isinstance(code, int) and not isinstance(code, bool):
            return code
    return 0


def signalled(number: int) -> str:
    """ "signal 9 (SIGKILL)"."""
    try:
        return f"signal {number} ({signal.Signals(number).name})"
    except ValueError:
        return f"signal {number}"
