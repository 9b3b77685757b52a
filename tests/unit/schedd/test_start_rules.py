"""Jobs that are looked at before they are offered to slots."""

import pytest

from engine.queue.autoclusters import Autoclusters
from engine.queue.job_table import JobTable
from engine.queue.jobs import JobStatus
from services.schedd.core.job_changes import LeaveQueue, LogEvent, PublishEvent
from services.schedd.core.start_rules import Offer, Skip, decide_start, start_or_not
from shared import job_log
from shared.classad import parse_ad
from tests.unit.schedd.test_decisions import cluster_of, job_of


@pytest.mark.parametrize(
    ("text", "decision"),
    [
        ("IsNoopJob = true", Skip(0, None)),
        ("IsNoopJob = true; NoopJobExitCode = 3", Skip(3, None)),
        ("IsNoopJob = true; NoopJobExitCode = 259", Skip(3, None)),
        ("IsNoopJob = true; NoopJobExitSignal = 9", Skip(None, 9)),
        ("IsNoopJob = true; NoopJobExitSignal = 9; NoopJobExitCode = 1", Skip(1, None)),
        ("IsNoopJob = true; NoopJobExitSignal = 900", Skip(0, None)),
        ("IsNoopJob = ProcId == 1; ProcId = 1; NoopJobExitCode = ProcId + 1", Skip(2, None)),
        ("IsNoopJob = ProcId == 1; ProcId = 2", Offer()),
        ("IsNoopJob = Nowhere", Offer()),
        ('IsNoopJob = "yes"', Offer()),
        ("IsNoopJob = time() > 100", Offer()),
    ],
)
def test_what_a_noop_job_says(text, decision):
    assert decide_start(parse_ad(f"[{text}]"), 50.0) == decision


def test_a_job_with_a_rule_is_offered_once_it_was_looked_at():
    table, job = JobTable(Autoclusters()), job_of(cluster_of("IsNoopJob = ProcId > 5"))
    table.add(job.cluster, [job])
    assert (table.demand("alice@p")[0], list(table.undecided)) == (0, [job.id])
    start_or_not("ap", table, job, 9.0)
    assert table.demand("alice@p")[0] == 1
    table.look_again(job)
    assert table.demand("alice@p")[0] == 0
    assert table.check_invariants() == []


def test_a_noop_job_ends_without_a_run_and_its_log_tells_it():
    table, job = JobTable(Autoclusters()), job_of(cluster_of("IsNoopJob = true; NoopJobExitCode = 4"))
    table.add(job.cluster, [job])
    effects = start_or_not("ap", table, job, 9.0)
    assert (job.status, job.ad.eval("ExitCode"), job.ad.eval("CompletionDate")) == (JobStatus.COMPLETED, 4, 9)
    [log] = [effect.event() for effect in effects if isinstance(effect, LogEvent)]
    assert log.number == 5
    assert "Normal termination (return value 4)" in job_log.written(log, job_log.TEXT).decode()
    [ended] = [effect.event for effect in effects if isinstance(effect, PublishEvent)]
    assert (ended.type, ended.exit_code, ended.slot, ended.attempt) == ("job.ended", 4, "", 0)
    assert LeaveQueue(job, forced=False) in effects
