"""What the end of a container means for its job. Pure.

A container ends with a number, and several stories fit it: 137 is a job that killed itself, that was over its memory,
or whose container somebody removed under it. What the engine told meanwhile decides.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from services.startd.launchers.api import Finished
from services.startd.starter.faults import Fault

#: Of a process that was killed by a signal: this and the signal's number. The container's init says it so as well.
BY_SIGNAL = 128
KILLED = BY_SIGNAL + 9
#: What an engine says of containers that it lost (its machine was restarted), or that it stopped as it ended itself.
LOST_WITH_ENGINE = frozenset((255, KILLED, BY_SIGNAL + 15))
#: The init's exit codes when it could not execute the job.
NOT_EXECUTED = (126, 127)
_MIB_KIB = 1024


@dataclass(frozen=True, slots=True)
class State:
    """A container that has ended. Times in seconds since the epoch."""

    exit_code: int
    started_at: float
    finished_at: float
    out_of_memory: bool = False  # the kernel killed a process of it, perhaps not the job's main one


@dataclass(slots=True)
class Story:
    """What was heard of a run while it went on."""

    ours: set[int] = field(default_factory=set)  # signals that we sent
    foreign: set[int] = field(default_factory=set)  # that others had the engine send
    witnessed: bool = False  # the engine told of the end as it came: it was no engine's death
    peak_kib: int = 0
    limit_mib: int = 0
    out_of_memory: bool = False
    init_said: str = ""  # why it could not execute the job
    bad_output: str = ""  # why the output could not be written
    no_room: bool = False  # for want of room
    updates: dict[str, object] = field(default_factory=dict)  # attributes for the job
    user_cpu_s: float = 0.0
    sys_cpu_s: float = 0.0


def note_signal(story: Story, signal: str) -> None:
    """The engine sent the container a signal (its number, in an event's text): for us or for somebody else."""
    if signal.isdigit() and int(signal) not in story.ours:
        story.foreign.add(int(signal))


def finished(state: State, story: Story) -> Finished:
    """How the run ended: by itself, to be held, or lost."""
    code = state.exit_code
    number = code - BY_SIGNAL

    def end(**more: Any) -> Finished:
        values: dict[str, Any] = {
            "at": state.finished_at,
            "started_at": state.started_at,
            "exit_code": code,
            "user_cpu_s": story.user_cpu_s,
            "sys_cpu_s": story.sys_cpu_s,
            "max_rss_kib": story.peak_kib,
            "updates": dict(story.updates),
        }
        return Finished(**(values | more))

    def held(fault: Fault, message: str, **more: Any) -> Finished:
        return end(hold_code=fault.code, hold_subcode=fault.subcode, hold_message=message, **more)

    if story.bad_output:
        return held(Fault.NO_ROOM_FOR_OUTPUT if story.no_room else Fault.NO_OUTPUT_FILE, story.bad_output)
    if (state.out_of_memory or story.out_of_memory) and code == KILLED and 9 not in story.ours | story.foreign:
        # The flag alone also says that some child was killed while the job went on and ended by itself.
        limit = story.limit_mib
        used = max(-(-story.peak_kib // _MIB_KIB), limit)
        message = f"the job used {used} MiB of memory, its limit is {limit} MiB"
        return held(Fault.OVER_MEMORY, message, max_rss_kib=max(story.peak_kib, limit * _MIB_KIB))
    if number in story.foreign and number not in story.ours:
        return end(exit_code=None, trouble=f"its container was sent signal {number} by somebody else")
    if not story.witnessed and code in LOST_WITH_ENGINE and number not in story.ours:
        return end(exit_code=None, trouble="its container ended with the Docker engine")
    if story.init_said and code in NOT_EXECUTED:
        message = f"the executable can not be run in the container: {story.init_said}"
        return held(Fault.NO_PROGRAM_IN_IMAGE, message)
    return end()


def seconds(text: str) -> float:
    """Docker's timestamps have nanoseconds, Python's microseconds."""
    head, _, tail = text.rstrip("Z").partition(".")
    return datetime.fromisoformat(f"{head}.{(tail + '000000')[:6]}+00:00").timestamp()


def state_of(found: Mapping[str, Any]) -> State:
    """From `State` of the engine's answer about a container that has ended."""
    return State(
        exit_code=int(found["ExitCode"]),
        started_at=max(0.0, seconds(found["StartedAt"])),
        finished_at=max(0.0, seconds(found["FinishedAt"])),
        out_of_memory=bool(found.get("OOMKilled")),
    )
