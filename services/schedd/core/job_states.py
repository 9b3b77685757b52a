"""What may happen to a job in which state, and what follows: one table.

    Idle -start-> Running -output-> TransferringOutput -complete-> (history)          Idle -skip-> (history)
    Running <-suspend/continue-> Suspended          any -hold-> Held -release-> Idle
    Running, TransferringOutput, Suspended -requeue-> Idle          any -remove-> Removed -> (history)

A job that is held or removed while it runs changes its state at once, and its run is torn down behind it: it may not
start again, nor leave the queue, before that run is over (`over`). Pure.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from engine.queue.jobs import JobStatus

IDLE, RUNNING, REMOVED, COMPLETED, HELD, OUTPUT, SUSPENDED = (
    JobStatus.IDLE,
    JobStatus.RUNNING,
    JobStatus.REMOVED,
    JobStatus.COMPLETED,
    JobStatus.HELD,
    JobStatus.TRANSFERRING_OUTPUT,
    JobStatus.SUSPENDED,
)


class JobEvent(StrEnum):
    """What can happen to a job."""

    START = "start"  # a run of it begins on a slot that is there
    TAKEN = "taken"  # the execution point has taken it, with the run that was begun
    OUTPUT = "output"  # its program is done, its output travels
    SUSPEND = "suspend"
    CONTINUE = "continue"
    HOLD = "hold"  # by its owner, by policy, by trouble
    RELEASE = "release"
    REMOVE = "remove"
    FORCE = "force"  # remove without waiting for the run's end
    VACATE = "vacate"  # end this run, then run it again
    REQUEUE = "requeue"  # the run ended without success: run it again
    COMPLETE = "complete"  # the run ended and that was it
    SKIP = "skip"  # it is done without a run
    OVER = "over"  # the run of a job that was held or removed meanwhile has ended


class Effect(StrEnum):
    """What the shell must do besides storing the new state."""

    STOP_RUN = "stop-run"  # tell the startd to end the run; `over` or `requeue` comes back
    ABANDON_RUN = "abandon-run"  # forget the run and give its claim back, whatever the startd says
    LEAVE = "leave"  # into the history
    OFFER = "offer"  # among the idle jobs again, as soon as no run is left


class Verdict(StrEnum):
    DONE = "done"
    ALREADY = "already"  # nothing to do: duplicates are normal
    WRONG_STATE = "wrong-state"


@dataclass(frozen=True, slots=True)
class Change:
    """The outcome of an event."""

    verdict: Verdict
    status: JobStatus
    effects: tuple[Effect, ...] = ()
    reason: str = ""  # why nothing changed


_ON_SLOT: Final = (RUNNING, OUTPUT, SUSPENDED)

#: (state, event) -> new state and effects. What is missing is refused; what is in _ALREADY changes nothing.
_TABLE: Final[dict[tuple[JobStatus, JobEvent], tuple[JobStatus, tuple[Effect, ...]]]] = {
    (IDLE, JobEvent.START): (RUNNING, ()),
    (IDLE, JobEvent.TAKEN): (RUNNING, ()),
    (RUNNING, JobEvent.OUTPUT): (OUTPUT, ()),
    (RUNNING, JobEvent.SUSPEND): (SUSPENDED, ()),
    (SUSPENDED, JobEvent.CONTINUE): (RUNNING, ()),
    (SUSPENDED, JobEvent.OUTPUT): (OUTPUT, ()),
    (HELD, JobEvent.RELEASE): (IDLE, (Effect.OFFER,)),
    (IDLE, JobEvent.HOLD): (HELD, ()),
    (IDLE, JobEvent.SKIP): (COMPLETED, (Effect.LEAVE,)),
    (COMPLETED, JobEvent.REMOVE): (REMOVED, (Effect.LEAVE,)),
    **{(state, JobEvent.HOLD): (HELD, (Effect.STOP_RUN,)) for state in _ON_SLOT},
    **{(state, JobEvent.REMOVE): (REMOVED, (Effect.STOP_RUN,)) for state in _ON_SLOT},
    **{(state, JobEvent.REMOVE): (REMOVED, (Effect.LEAVE,)) for state in (IDLE, HELD)},
    **{(state, JobEvent.FORCE): (REMOVED, (Effect.ABANDON_RUN, Effect.LEAVE)) for state in JobStatus},
    **{(state, JobEvent.VACATE): (state, (Effect.STOP_RUN,)) for state in _ON_SLOT},
    **{(state, JobEvent.REQUEUE): (IDLE, (Effect.OFFER,)) for state in _ON_SLOT},
    **{(state, JobEvent.COMPLETE): (COMPLETED, (Effect.LEAVE,)) for state in _ON_SLOT},
    (REMOVED, JobEvent.OVER): (REMOVED, (Effect.LEAVE,)),
    (HELD, JobEvent.OVER): (HELD, ()),
    (IDLE, JobEvent.OVER): (IDLE, (Effect.OFFER,)),
}

_ALREADY: Final = {
    (HELD, JobEvent.HOLD): "the job is held already",
    (REMOVED, JobEvent.REMOVE): "the job is being removed already",
    (IDLE, JobEvent.RELEASE): "the job is not held",
    (RUNNING, JobEvent.CONTINUE): "the job is not suspended",
    (SUSPENDED, JobEvent.SUSPEND): "the job is suspended already",
    (OUTPUT, JobEvent.OUTPUT): "its output is on the way already",
}


def suspension(status: JobStatus, event: JobEvent, *, suspended: bool, stopping: bool) -> Verdict:
    """Whether a user's SUSPEND or CONTINUE is to be passed on to the execution point, whose reports then change the
    state. suspended: whether the user has the run suspended so far; stopping: whether it is being ended. What the
    machine suspended goes on when the machine says so."""
    if status not in (RUNNING, SUSPENDED) or stopping:
        return Verdict.WRONG_STATE
    if event is JobEvent.SUSPEND:
        return Verdict.ALREADY if suspended else Verdict.DONE
    if suspended:
        return Verdict.DONE
    return Verdict.ALREADY if status == RUNNING else Verdict.WRONG_STATE


def transition(status: JobStatus, event: JobEvent, *, has_run: bool = False) -> Change:
    """What `event` makes of a job in `status`.

    has_run: a run of the job is still there, under way or being torn down. A held job whose run is not over yet, for
    instance, is not removed from the queue before that run is.
    """
    if status == COMPLETED and event == JobEvent.HOLD:
        return Change(Verdict.WRONG_STATE, status, reason="the job is completed")
    if (status, event) in _ALREADY:
        return Change(Verdict.ALREADY, status, reason=_ALREADY[status, event])
    found = _TABLE.get((status, event))
    if found is None:
        return Change(Verdict.WRONG_STATE, status, reason=f"a job that is {status.name.lower()} takes no {event.value}")
    new, effects = found
    if event in (JobEvent.START, JobEvent.SKIP) and has_run:
        return Change(Verdict.WRONG_STATE, status, reason="its last run is not over yet")
    if event == JobEvent.TAKEN and not has_run:
        return Change(Verdict.WRONG_STATE, status, reason="no run of it was begun")
    if has_run and (status, event) == (IDLE, JobEvent.HOLD):
        effects = (Effect.STOP_RUN,)  # its execution point may take it yet
    if has_run and event == JobEvent.REMOVE and Effect.LEAVE in effects:
        effects = (Effect.STOP_RUN,)
    if has_run and event == JobEvent.RELEASE:
        effects = ()  # `over` offers it
    if not has_run:
        effects = tuple(e for e in effects if e not in (Effect.STOP_RUN, Effect.ABANDON_RUN))
        if event == JobEvent.REMOVE and Effect.LEAVE not in effects:
            effects = (*effects, Effect.LEAVE)
    return Change(Verdict.DONE, new, effects)
