"""The table of job states: what is allowed, and what can never happen."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.queue.jobs import ACTIVE, JobStatus
from services.schedd.core.job_states import Effect, JobEvent, Verdict, suspension, transition

IDLE, RUNNING, REMOVED, COMPLETED, HELD, OUTPUT, SUSPENDED = JobStatus


@pytest.mark.parametrize(
    ("status", "event", "has_run", "new", "effects"),
    [
        (IDLE, "start", False, RUNNING, ()),
        (IDLE, "taken", True, RUNNING, ()),
        (IDLE, "hold", True, HELD, ("stop-run",)),
        (IDLE, "remove", True, REMOVED, ("stop-run",)),
        (RUNNING, "complete", False, COMPLETED, ("leave",)),
        (RUNNING, "hold", True, HELD, ("stop-run",)),
        (IDLE, "hold", False, HELD, ()),
        (HELD, "release", False, IDLE, ("offer",)),
        (HELD, "release", True, IDLE, ()),
        (IDLE, "over", False, IDLE, ("offer",)),
        (HELD, "over", False, HELD, ()),
        (REMOVED, "over", False, REMOVED, ("leave",)),
        (RUNNING, "remove", True, REMOVED, ("stop-run",)),
        (HELD, "remove", True, REMOVED, ("stop-run",)),
        (HELD, "remove", False, REMOVED, ("leave",)),
        (RUNNING, "vacate", True, RUNNING, ("stop-run",)),
        (SUSPENDED, "requeue", False, IDLE, ("offer",)),
        (REMOVED, "force", True, REMOVED, ("abandon-run", "leave")),
        (COMPLETED, "remove", False, REMOVED, ("leave",)),
    ],
)
def test_what_follows(status, event, has_run, new, effects):
    change = transition(status, JobEvent(event), has_run=has_run)
    assert (change.verdict, change.status, change.effects) == (Verdict.DONE, new, effects)


@pytest.mark.parametrize(
    ("status", "event", "verdict"),
    [
        (HELD, "hold", "already"),
        (REMOVED, "remove", "already"),
        (IDLE, "release", "already"),
        (IDLE, "vacate", "wrong-state"),
        (COMPLETED, "hold", "wrong-state"),
        (REMOVED, "release", "wrong-state"),
        (HELD, "start", "wrong-state"),
        (IDLE, "taken", "wrong-state"),
        (HELD, "taken", "wrong-state"),
    ],
)
def test_what_changes_nothing_says_why(status, event, verdict):
    change = transition(status, JobEvent(event))
    assert (change.verdict, change.status, change.effects) == (verdict, status, ())
    assert change.reason


@pytest.mark.parametrize(
    ("status", "event", "suspended", "stopping", "verdict"),
    [
        (RUNNING, JobEvent.SUSPEND, False, False, "done"),
        (RUNNING, JobEvent.SUSPEND, True, False, "already"),  # its execution point has not reported it yet
        (RUNNING, JobEvent.CONTINUE, True, False, "done"),
        (RUNNING, JobEvent.CONTINUE, False, False, "already"),
        (SUSPENDED, JobEvent.CONTINUE, True, False, "done"),
        (SUSPENDED, JobEvent.CONTINUE, False, False, "wrong-state"),  # the machine suspended it
        (SUSPENDED, JobEvent.SUSPEND, False, False, "done"),
        (RUNNING, JobEvent.SUSPEND, False, True, "wrong-state"),
        (IDLE, JobEvent.SUSPEND, False, False, "wrong-state"),
        (HELD, JobEvent.CONTINUE, True, False, "wrong-state"),
    ],
)
def test_what_a_user_may_suspend(status, event, suspended, stopping, verdict):
    assert suspension(status, event, suspended=suspended, stopping=stopping) == verdict


@given(st.lists(st.tuples(st.sampled_from(list(JobEvent)), st.booleans()), max_size=30))
def test_a_job_never_leaves_while_it_has_a_run_nor_starts_twice(steps):
    """Random events, with a run that begins at `start` or, where the slot is asked for first, before `taken`, and ends
    when the table says so or at `over`."""
    status, has_run = IDLE, False
    for event, run_ends in steps:
        if event == JobEvent.TAKEN and status == IDLE and run_ends:
            has_run = True
        if event in (JobEvent.OVER, JobEvent.REQUEUE, JobEvent.COMPLETE):
            if not has_run:
                continue
            has_run = False  # these are told when the run is over
            if status not in ACTIVE:
                event = JobEvent.OVER
            elif event == JobEvent.OVER:
                event = JobEvent.REQUEUE
        elif event == JobEvent.START and (has_run or run_ends):
            continue
        change = transition(status, event, has_run=has_run)
        if change.verdict is not Verdict.DONE:
            assert change.status == status
            continue
        status = change.status
        if event == JobEvent.START:
            has_run = True
        if Effect.ABANDON_RUN in change.effects:
            has_run = False
        if Effect.LEAVE in change.effects:
            assert not has_run
            assert status in (REMOVED, COMPLETED)
            return
        if Effect.OFFER in change.effects:
            assert status == IDLE
            assert not has_run
        assert (status in ACTIVE) <= has_run


def test_a_job_does_not_start_before_its_last_run_is_over():
    change = transition(JobStatus.IDLE, JobEvent.START, has_run=True)
    assert (change.verdict, change.status, change.effects) == (Verdict.WRONG_STATE, JobStatus.IDLE, ())
    assert change.reason == "its last run is not over yet"
