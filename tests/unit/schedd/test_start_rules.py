"""Jobs that are looked at before they are offered to slots."""

from datetime import UTC, datetime

import pytest

from engine.queue.autoclusters import Autoclusters
from engine.queue.crontab import WallClock
from engine.queue.job_table import JobTable
from engine.queue.jobs import JobStatus
from services.schedd.core.job_changes import LeaveQueue, LogEvent, LookAgain, PublishEvent
from services.schedd.core.policies import Hold
from services.schedd.core.start_rules import MISSED, Offer, PutOnHold, Skip, Wait, decide_start, start_or_not
from shared import job_log
from shared.classad import parse_ad
from tests.spec import spec
from tests.unit.schedd.test_decisions import cluster_of, job_of

UTC_CLOCK = WallClock(
    lambda seconds: datetime.fromtimestamp(seconds, UTC).replace(tzinfo=None),
    lambda moment: moment.replace(tzinfo=UTC).timestamp(),
)
LATE = PutOnHold(MISSED, Hold.MISSED_DEFERRED_EXECUTION_TIME)


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
    assert decide_start(parse_ad(f"[{text}]"), 50.0, UTC_CLOCK) == decision


def test_a_job_with_a_rule_is_offered_once_it_was_looked_at():
    table, job = JobTable(Autoclusters()), job_of(cluster_of("IsNoopJob = ProcId > 5"))
    table.add(job.cluster, [job])
    assert (table.demand("alice@p")[0], list(table.undecided)) == (0, [job.id])
    start_or_not("ap", table, job, 9.0, UTC_CLOCK)
    assert table.demand("alice@p")[0] == 1
    table.look_again(job)
    assert table.demand("alice@p")[0] == 0
    assert table.check_invariants() == []


def test_a_noop_job_ends_without_a_run_and_its_log_tells_it():
    table, job = JobTable(Autoclusters()), job_of(cluster_of("IsNoopJob = true; NoopJobExitCode = 4"))
    table.add(job.cluster, [job])
    effects = start_or_not("ap", table, job, 9.0, UTC_CLOCK)
    assert (job.status, job.ad.eval("ExitCode"), job.ad.eval("CompletionDate")) == (JobStatus.COMPLETED, 4, 9)
    [log] = [effect.event() for effect in effects if isinstance(effect, LogEvent)]
    assert log.number == 5
    assert "Normal termination (return value 4)" in job_log.written(log, job_log.TEXT).decode()
    [ended] = [effect.event for effect in effects if isinstance(effect, PublishEvent)]
    assert (ended.type, ended.exit_code, ended.slot, ended.attempt) == ("job.ended", 4, "", 0)
    assert LeaveQueue(job, forced=False) in effects


@spec("SUB-02")
@pytest.mark.parametrize(
    ("text", "now", "decision"),
    [
        ("DeferralTime = 2000; DeferralPrepTime = 100", 1000.0, Wait(1900)),
        ("DeferralTime = 2000; DeferralPrepTime = 100", 1900.0, Offer(2000)),
        ("DeferralTime = 2000", 1699.0, Wait(1700)),
        ("DeferralTime = 2000; DeferralPrepTime = 0", 1979.0, Wait(1980)),
        ("DeferralTime = QDate + 1000; QDate = 1000", 1800.0, Offer(2000)),
        ("DeferralTime = 2000; DeferralWindow = 60", 2059.0, Offer(2060)),
        ("DeferralTime = 2000; DeferralWindow = 60", 2060.0, LATE),
        ("DeferralTime = 2000; DeferralWindow = -60", 1999.0, Offer(2000)),
        ("DeferralTime = 2000", 2000.0, LATE),
        (
            "DeferralTime = QDate",
            2000.0,
            PutOnHold("Invalid deferred execution time: QDate", Hold.MISSED_DEFERRED_EXECUTION_TIME),
        ),
        ("DeferralTime = 0", 5.0, PutOnHold("Invalid deferred execution time: 0", Hold.MISSED_DEFERRED_EXECUTION_TIME)),
    ],
)
def test_when_a_deferred_job_may_start(text, now, decision):
    assert decide_start(parse_ad(f"[{text}]"), now, UTC_CLOCK) == decision


@spec("SUB-03")
@pytest.mark.parametrize(
    ("text", "now", "decision"),
    [
        ("", 7300.0, Wait(10500, 10800)),  # 3:00 comes next
        ("DeferralTime = 10800", 7300.0, Wait(10500, None)),
        ("", 10700.0, Offer(10800, 10800)),
        ("DeferralTime = 10800", 10799.0, Offer(10800, None)),
        # The window has passed without a slot; with one that is open the time stays.
        ("DeferralTime = 10800", 10800.0, Wait(14100, 14400)),
        ("DeferralTime = 10800; DeferralWindow = 60", 10830.0, Offer(10860, None)),
        # It has run at that time, by a clock that was ahead of ours or within the window.
        ("DeferralTime = 10800; JobCurrentStartExecutingDate = 10800", 10795.0, Wait(14100, 14400)),
        (
            "DeferralTime = 10800; DeferralWindow = 60; JobCurrentStartExecutingDate = 10800",
            10830.0,
            Wait(14100, 14400),
        ),
        ("DeferralTime = 7200; JobCurrentStartExecutingDate = 3600", 10830.0, Wait(14100, 14400)),
        # Somebody has changed the table.
        ("DeferralTime = 99999", 10795.0, Offer(10800, 10800)),
    ],
)
def test_when_a_cron_job_may_start(text, now, decision):
    for minute in ('"0"', "0"):
        assert decide_start(parse_ad(f"[CronMinute = {minute}; {text}]"), now, UTC_CLOCK) == decision


def test_a_table_that_can_not_be_read_holds_the_job():
    table, job = JobTable(Autoclusters()), job_of(cluster_of('CronHour = "25"'))
    table.add(job.cluster, [job])
    start_or_not("ap", table, job, 9.0, UTC_CLOCK)
    assert (job.status, job.ad.eval("HoldReasonCode")) == (JobStatus.HELD, 25)
    assert job.text("HoldReason").startswith("Invalid cron schedule parameters: CronHour = 25: want numbers from 0")


def test_a_job_that_waits_for_its_time_is_looked_at_then():
    table, job = JobTable(Autoclusters()), job_of(cluster_of("DeferralTime = 2000; DeferralPrepTime = 30"))
    table.add(job.cluster, [job])
    assert start_or_not("ap", table, job, 9.0, UTC_CLOCK) == (LookAgain(job, 1970),)
    assert (table.demand("alice@p")[0], job.due) == (0, False)
    table.look_again(job)
    assert LookAgain(job, 2000) in start_or_not("ap", table, job, 1970.0, UTC_CLOCK)
    assert table.demand("alice@p")[0] == 1
    assert table.check_invariants() == []
