"""How often a job was held and its runs were broken off, by reason."""

import pytest

from engine.queue.jobs import JobStatus
from services.schedd.core.job_changes import apply_event
from services.schedd.core.job_states import JobEvent
from services.schedd.core.policies import Hold
from services.schedd.core.reason_counts import WORDS
from services.startd.core.run.failures import Fault
from services.startd.core.slots.model import VacateReason
from shared.classad import UNDEFINED, ClassAd, evaluate, parse_expr
from shared.messages.claims import JobExit
from tests.unit.schedd.test_job_changes import queued
from tests.unit.schedd.test_job_end import ended_run


def counts(job, name):
    found = job.ad.eval(f"{name}ByReason")
    return job.number(name), {} if found is UNDEFINED else {word: found.eval(word) for word in found}


def test_holds_are_counted_by_reason_and_requests_may_grow_with_them():
    table, job = queued(JobStatus.RUNNING, runs=True)
    for code in (34, 1, 34, 123456):
        apply_event("ap", table, job, JobEvent.HOLD, 9.0, reason="because", code=code)
        job.shadow = None
        apply_event("ap", table, job, JobEvent.RELEASE, 9.0, reason="again")
    assert counts(job, "NumHolds") == (4, {"JobOutOfResources": 2, "UserRequest": 1, "Unspecified": 1})
    job.ad = ClassAd.unpack(job.ad.pack())  # as the queue's database keeps it
    asked = parse_expr("1024 * (1 + (NumHoldsByReason.JobOutOfResources ?: 0))")
    assert evaluate(asked, job.ad) == 3072
    assert counts(job, "NumVacates") == (0, {})  # its program had not begun


@pytest.mark.parametrize(
    ("event", "code", "word"),
    [(JobEvent.HOLD, 26, "SystemPolicy"), (JobEvent.REMOVE, 0, "JobRemoved"), (JobEvent.FORCE, 0, "JobRemoved")],
)
def test_a_job_that_runs_and_is_held_or_removed_is_vacated(event, code, word):
    table, job = queued(JobStatus.RUNNING, runs=True)
    job.shadow.executing = 6.0
    apply_event("ap", table, job, event, 9.0, reason="because", code=code)
    assert counts(job, "NumVacates") == (1, {word: 1})


@pytest.mark.parametrize(
    ("exit_", "text", "executing", "expected"),
    [
        (JobExit(reason="evicted", vacate_code=1018), "", 1002.0, (1, {"StartdPreemptingClaimRank": 1})),
        (JobExit(reason="evicted"), "", 1002.0, (1, {"Unspecified": 1})),
        (JobExit(reason="evicted"), "", 0.0, (0, {})),
        (JobExit(reason="failed"), "", 1002.0, (1, {"ShadowException": 1})),
        (JobExit(reason="failed"), "", 0.0, (0, {})),
        (JobExit(reason="exited", exit_code=1), "OnExitRemove = false", 1002.0, (1, {"JobShouldRequeue": 1})),
        (JobExit(reason="exited", exit_code=1), "", 1002.0, (0, {})),
    ],
)
def test_runs_that_are_broken_off_are_counted_by_reason(exit_, text, executing, expected):
    job, _ = ended_run(exit_, text=text, executing=executing)
    assert counts(job, "NumVacates") == expected


def test_every_code_that_a_daemon_gives_has_its_word():
    given = {int(code) for code in (*Hold, *VacateReason)} | {fault.value.code for fault in Fault}
    assert given <= WORDS.keys()
