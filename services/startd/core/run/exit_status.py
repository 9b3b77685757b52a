"""How a run ends: what the schedd is told of its exit, and which output is sent.

Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from services.startd.core.run.failures import Fault
from services.startd.core.run.job_launch import Finished
from shared.classad import ClassAd
from shared.messages.claims import JobExit

# ---------------------------------------------------------------- output


@dataclass(frozen=True, slots=True)
class Output:
    """What to send back: the listed paths, or (None) whatever is new or changed."""

    listed: tuple[str, ...] | None
    flatten: bool = True  # listed paths arrive under their last name


def output_of(job: ClassAd, exit_code: int | None, *, ended_by_itself: bool, asked: bool) -> Output | None:
    """Which output a run sends (manual: when_to_transfer_output); None: nothing at all."""
    when = job.eval_string("WhenToTransferOutput").upper()
    if not ended_by_itself and when != "ON_EXIT_OR_EVICT" and not asked:
        return None
    wanted = job.eval("SuccessExitCode")
    success = exit_code == (wanted if isinstance(wanted, int) else 0)
    if when == "ON_SUCCESS" and ended_by_itself and not success:
        return Output(())
    if job.eval("VMPARAM_No_Output_VM") is True:
        return Output(())
    listed = job.eval("TransferOutput")
    if not isinstance(listed, str):
        listed = job.eval("TransferOutputFiles")
    flatten = job.eval("PreserveRelativePaths") is not True
    if isinstance(listed, str):
        return Output(tuple(name for name in (part.strip() for part in listed.split(",")) if name), flatten)
    return Output(None, flatten)


def is_checkpoint(job: ClassAd, end: Finished) -> bool:
    """Whether a program that ended so has saved its work, and is to go on (manual: self-checkpointing jobs)."""
    if job.eval("WantFTOnCheckpoint") is not True or end.hold_code or end.trouble:
        return False
    if job.eval("SuccessCheckpointExitBySignal") is True:
        wanted, found = job.eval("SuccessCheckpointExitSignal"), end.exit_signal
    else:
        wanted, found = job.eval("SuccessCheckpointExitCode"), end.exit_code
    return found is not None and not isinstance(wanted, bool) and wanted == found


def checkpoint_of(job: ClassAd) -> Output:
    """What is saved: TransferCheckpoint, under the names that it has; else what an end would send."""
    listed = job.eval("TransferCheckpoint")
    if isinstance(listed, str):
        return Output(tuple(name for name in (part.strip() for part in listed.split(",")) if name), flatten=False)
    output = output_of(job, None, ended_by_itself=False, asked=True)
    return Output(output.listed if output is not None else None, flatten=False)


def saves_when_evicted(job: ClassAd, outcome: JobExit) -> bool:
    """Whether what such a run has made so far goes with the job to its next run (manual: ON_EXIT_OR_EVICT)."""
    return outcome.reason == "evicted" and job.eval_string("WhenToTransferOutput").upper() == "ON_EXIT_OR_EVICT"


def keeps_streams(job: ClassAd) -> bool:
    """Whether the next run of such a job goes on after what this one said, rather than to begin its output and error
    anew (manual: erase_output_and_error_on_restart)."""
    return job.eval("EraseOutputAndErrorOnRestart") is False


# ---------------------------------------------------------------- ends


Stop = Literal["killed", "evicted"]


@dataclass(slots=True)
class StopOrder:
    """A run is told from outside to end."""

    how: Stop
    why: str  # remove, hold, vacate, evict
    message: str
    fast: bool
    want_output: bool
    vacate_code: int = 0
    hold: tuple[str, int] | None = None  # it is to be held then, with this reason and subcode

    @classmethod
    def unpack(cls, record: Mapping[str, Any]) -> StopOrder:
        hold = record.get("hold")
        return cls(**{**record, "hold": None if hold is None else (hold[0], hold[1])})


def exit_of(end: Finished, stopped: Stop | None, why: str) -> JobExit:
    """How a run ended, for the schedd. A job that was told to stop was stopped, whatever its exit status."""
    if end.hold_code and stopped is None:
        return JobExit(
            reason="hold",
            exit_code=end.exit_code,
            message=end.hold_message,
            hold_code=end.hold_code,
            hold_subcode=end.hold_subcode,
        )
    if stopped is not None:
        return JobExit(
            reason=stopped,
            exit_code=end.exit_code,
            exit_signal=end.exit_signal,
            message=why,
            core_dumped=end.core_dumped,
        )
    if end.exit_code is None and end.exit_signal is None:
        return JobExit(reason="evicted", message=end.trouble or "the job was lost")
    return JobExit(reason="exited", exit_code=end.exit_code, exit_signal=end.exit_signal, core_dumped=end.core_dumped)


def unsent(outcome: JobExit, order: StopOrder | None, why: str) -> str:
    """What is said of a run whose output could not be sent. Why it had to leave comes first, also of a job that had
    come to its end by then: that is what a user asks."""
    trouble = f"output could not be sent: {why}"
    cause = outcome.message or (order.message if order is not None else "")
    return f"{cause}; {trouble}" if cause else trouble


def left(outcome: JobExit, order: StopOrder) -> JobExit:
    """The end of a job that had to leave: back to the queue, or held where the machine's policy wants that."""
    if order.hold is None:
        return outcome.model_copy(update={"vacate_code": order.vacate_code})
    reason, subcode = order.hold
    return outcome.model_copy(update=Fault.HELD_BY_POLICY.exit("hold", reason, subcode).model_dump(exclude_unset=True))
