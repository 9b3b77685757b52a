"""Claims and their leases (LEA-01 to LEA-08) between real daemons, and who may die meanwhile."""

import time

import psutil
import pytest

from services.startd.core.run import run_times
from shared.classad import ClassAd
from shared.messages.claims import ActivateClaim, Alive, ClaimRefused, DeactivateClaim, JobReportAck
from tests.integration.inside import InsidePool
from tests.spec import spec
from tests.startd_pool import Pool
from tests.waiting import eventually, wait_until


@pytest.fixture
async def pool(tmp_path):
    async with Pool(tmp_path) as pool:
        yield pool


@pytest.fixture
def whole(tmp_path):
    pool = InsidePool(tmp_path / "pool")
    yield pool
    pool.close()


def submit(pool, folder, lease=2400) -> str:
    """A job that runs until there is a file `go`; its id."""
    (folder / "job").write_text(
        "#!/bin/sh\necho $$ >> pids\nwhile [ ! -e go ]; do sleep 0.05; done\necho done >> out\n"
    )
    (folder / "job").chmod(0o755)
    (folder / "job.sub").write_text(
        f"executable = {folder}/job\ninitialdir = {folder}\nshould_transfer_files = NO\n"
        f"job_lease_duration = {lease}\nlog = log\nqueue\n"
    )
    cluster = pool.roost("submit", str(folder / "job.sub")).rpartition("cluster ")[2].strip().rstrip(".")
    wait_until((folder / "pids").exists, what="the start of the job")
    return f"{cluster}.0"


def ended(pool, job) -> dict[str, int]:
    """Its ad's numbers when it has left the queue."""
    names = ["JobStatus", "ExitCode", "NumShadowStarts", "NumJobStarts"]
    with pool.client() as client:
        client.wait([job], timeout=110)
        (ad,) = client.jobs(job, projection=names, history=True)
    return {name: ad.eval(name) for name in names}


ONCE = {"JobStatus": 4, "ExitCode": 0, "NumShadowStarts": 1, "NumJobStarts": 1}


@spec("LEA-02")
def test_a_restarted_schedd_finds_its_running_jobs_again(whole, tmp_path):
    """Within the lease it is as if it had never been away."""
    job = submit(whole, tmp_path)
    whole.stop_daemon("schedd")
    whole.start_daemon("schedd")
    with whole.client() as client:
        wait_until(lambda: [ad.eval("JobStatus") for ad in client.jobs(job)] == [2], what="the job, running")
    (tmp_path / "go").touch()
    assert ended(whole, job) == ONCE
    assert (tmp_path / "out").read_text() == "done\n"
    assert len((tmp_path / "pids").read_text().split()) == 1


@spec("LEA-12")
def test_a_job_that_ends_while_its_schedd_is_away_has_ended_once_and_used_what_it_used(tmp_path):
    """What it used ends with its run, not when the schedd hears of that; so does what is charged for the claim, which
    ends with it."""
    whole = InsidePool(tmp_path / "pool", CLAIM_WORKLIFE="0")
    try:
        job = submit(whole, tmp_path)
        whole.stop_daemon("schedd")
        (run,) = whole.runner("startd").daemon.shared.run_table.by_key.values()
        (tmp_path / "go").touch()
        wait_until(lambda: run.record.ended_at, what="the end of the run")
        # So long that it shows: what is compared below would be longer by it.
        wait_until(lambda: time.time() > run.record.ended_at + 3.0, what="a while without the schedd")
        whole.start_daemon("schedd")
        assert ended(whole, job) == ONCE
        assert len((tmp_path / "pids").read_text().split()) == 1
        with whole.client() as client:
            names = ["RemoteWallClockTime", "CumulativeSlotTime", "CompletionDate"]
            (ad,) = client.jobs(job, projection=names, history=True)

            def users() -> list:
                return [one for one in client.priorities() if not one.eval("IsAccountingGroup")]

            wait_until(lambda: not any(one.eval("WeightedResourcesUsed") for one in users()), what="no claim")
            charged = sum(one.eval("AccumulatedUsage") for one in users())
    finally:
        whole.close()
    had = run_times.had_s(run.record)
    assert ad.eval("RemoteWallClockTime") == pytest.approx(had, abs=0.001)
    assert ad.eval("CumulativeSlotTime") == pytest.approx(had, abs=0.001)
    assert charged == pytest.approx(had, abs=0.5)
    assert ad.eval("CompletionDate") == int(run.record.ended_at)
    stamp = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(run.record.ended_at))
    assert f"005 ({int(job.split('.')[0]):03d}.000.000) {stamp}" in (tmp_path / "log").read_text()


@spec("LEA-02")
def test_an_orphaned_job_ends_with_its_lease_and_runs_again_when_its_schedd_is_back(whole, tmp_path):
    """Nobody speaks for it any more, so it is evicted; the slot is free for others meanwhile."""
    job = submit(whole, tmp_path, lease=20)
    whole.stop_daemon("schedd")
    # The startd's clock can not be turned; its lease can.
    startd = whole.runner("startd").daemon

    async def end_the_lease():
        (claim,) = startd.shared.slot_manager.claims.values()
        startd.shared.effects.leased(claim, first_s=0.001)

    whole.run(end_the_lease())
    wait_until(lambda: not startd.shared.slot_manager.claims, what="the end of the claim")
    assert not (tmp_path / "out").exists()
    whole.start_daemon("schedd")
    wait_until(lambda: len((tmp_path / "pids").read_text().split()) == 2, 110, "the second start of the job")
    (tmp_path / "go").touch()
    assert ended(whole, job) == ONCE | {"NumShadowStarts": 2, "NumJobStarts": 2}
    assert (tmp_path / "out").read_text() == "done\n"


@spec("LEA-01", "LEA-06")
def test_a_job_that_is_removed_where_no_startd_lives_leaves_the_queue_after_its_lease(whole, tmp_path):
    """Nobody can end it there but its nanny, when the lease has passed: before that its slot may still run it."""
    folder, words = str(tmp_path), "echo $$ > pids; exec sleep 1000"
    ad = {"Cmd": "/bin/sh", "Arguments": f"-c '{words}'", "Iwd": folder, "ShouldTransferFiles": "NO"}
    with whole.client() as client:  # not by a submit file, where no lease is below 20 s
        ad |= {"TransferExecutable": False, "JobLeaseDuration": 5}
        (job,) = client.submit(ClassAd(ad), [ClassAd()]).ids()
        wait_until((tmp_path / "pids").exists, what="the start of the job")
        started = {"constraint": "NumJobStarts == 1"}
        wait_until(lambda: list(client.jobs(job, **started)), what="the schedd to hear of it")
        whole.stop_daemon("startd")
        client.act("remove", [job])
        pid = int((tmp_path / "pids").read_text())
        assert [ad.eval("JobStatus") for ad in client.jobs(job)] == [3], "it left the queue while it may still run"
        wait_until(lambda: not psutil.pid_exists(pid), what="the end of its process")
        wait_until(lambda: not list(client.jobs(job)), 110, "the end of the removed job")
        (ad,) = client.jobs(job, projection=["JobStatus", "NumJobStarts"], history=True)
        assert (ad.eval("JobStatus"), ad.eval("NumJobStarts")) == (3, 1)


async def test_a_further_job_brings_its_own_lease(pool):
    """The interval by which a job without a lease is judged is that of the claim."""
    short = pool.activation(cmd="/bin/sleep", Arguments="1000", JobLeaseDuration=1, job_id="99.0")
    first = pool.activation(cmd="/bin/true")
    pool.schedd.next_job = lambda report: JobReportAck(next=short) if report.job_id != "99.0" else JobReportAck()
    granted = await pool.call(pool.request(first, lease_s=2400, alive_interval_s=50))
    end = await pool.schedd.end_of("99.0")
    assert end.exit.reason == "evicted"
    assert [lost.claim_id for lost in pool.schedd.lost] == [granted.claim_id]
    assert "1 s" in pool.schedd.lost[0].reason
    pool.schedd.next_job = lambda report: JobReportAck()
    second = await pool.call(pool.request(pool.activation(cmd="/bin/true"), lease_s=2400, alive_interval_s=50))
    claim = pool.startd.shared.slot_manager.claims[second.claim_id]
    await eventually(lambda: not claim.run)
    await pool.call(ActivateClaim(claim_id=second.claim_id, activation=pool.activation(cmd="/bin/true")))
    assert claim.lease_s == 300


@spec("LEA-07", "LEA-02")
async def test_losses_of_keep_alives_cost_nothing_before_the_lease_is_over(pool):
    """One that arrives begins the lease anew, whatever came before it."""
    granted = await pool.call(pool.request(lease_s=2400))
    leases, clock = pool.startd.shared.leases, pool.startd.context.clock
    before = clock.boottime() + leases.left_s(granted.claim_id)
    assert before == pytest.approx(clock.boottime() + 2400, abs=60)
    await eventually(lambda: clock.boottime() + 2400 > before)
    answer = await pool.call(Alive(schedd="schedd1", sequence=99, claim_ids=[granted.claim_id]))
    assert answer.unknown == []
    assert clock.boottime() + leases.left_s(granted.claim_id) > before
    # One that only asks changes nothing.
    left = leases.left_s(granted.claim_id)
    answer = await pool.call(Alive(schedd="schedd1", sequence=100, claim_ids=[], only_asked=[granted.claim_id, "x"]))
    assert answer.unknown == ["x"]
    assert leases.left_s(granted.claim_id) < left


@spec("LEA-08")
@pytest.mark.parametrize(
    "change", [lambda claim: claim + "x", lambda claim: claim.rpartition("#")[0] + "#", lambda _: "guess"]
)
async def test_only_who_knows_the_claim_id_has_the_claim(pool, change):
    activation, granted = await pool.run("/bin/sleep", Arguments="1000")
    await pool.running(activation.job_id)
    wrong = change(granted.claim_id)
    refused = await pool.call(pool.request(claim_id=wrong))
    assert isinstance(refused, ClaimRefused)
    assert refused.code == "unknown-claim"
    stop = DeactivateClaim(claim_id=wrong, job_id=activation.job_id, attempt=1, how="fast")
    await pool.call(stop)
    assert (await pool.call(Alive(schedd="schedd1", sequence=1, claim_ids=[wrong]))).unknown == [wrong]
    assert pool.conditions()["slot1_1@node1"] == "Claimed/Busy"


@spec("LEA-02")
async def test_a_restarted_startd_goes_on_with_the_lease_that_it_finds(pool):
    """Nobody kept it meanwhile, so nobody may take it for longer than it was."""
    granted = await pool.call(pool.request(pool.activation(cmd="/bin/sleep", Arguments="1000"), lease_s=2400))
    await pool.running("1.0")
    left = pool.startd.shared.leases.left_s(granted.claim_id)
    await pool.restart()
    assert 0 < pool.startd.shared.leases.left_s(granted.claim_id) < left
    assert (await pool.call(Alive(schedd="schedd1", sequence=1, claim_ids=[granted.claim_id]))).unknown == []
    assert pool.startd.shared.leases.left_s(granted.claim_id) > left - 60


def short_lease(pool, granted):
    """The lease of this claim passes in a moment, and the startd does nothing about it."""
    pool.startd.shared.leases.expired = dict
    pool.startd.shared.effects.leased(pool.startd.shared.slot_manager.claims[granted.claim_id], first_s=0.5)


@spec("LEA-02")
async def test_a_lease_that_passes_while_no_startd_is_there_ends_the_job(pool):
    """As in minutes after kill -9 of the startd; the next one says that the job must run again."""
    activation, granted = await pool.run("/bin/sleep", Arguments="1000")
    pid = (await pool.running(activation.job_id)).pid
    short_lease(pool, granted)
    await pool.stop()
    await eventually(lambda: not psutil.pid_exists(pid))
    await pool.start()
    end = await pool.schedd.end_of(activation.job_id)
    assert end.exit.reason == "evicted"
    assert "lease" in end.exit.message
    assert (await pool.call(Alive(schedd="schedd1", sequence=1, claim_ids=[granted.claim_id]))).unknown


@spec("LEA-02")
async def test_a_job_of_a_hung_startd_ends_with_its_lease(pool):
    """What keeps the processes does not wait for a startd that is there and does nothing."""
    activation, granted = await pool.run("/bin/sleep", Arguments="1000")
    await pool.running(activation.job_id)
    short_lease(pool, granted)
    end = await pool.schedd.end_of(activation.job_id)
    assert (end.exit.reason, end.exit.exit_signal) == ("evicted", None)
    assert "lease" in end.exit.message


@spec("LEA-09")
async def test_a_run_that_its_schedd_may_not_have_heard_of_has_a_short_lease_until_it_is_kept(pool):
    activation = pool.activation(cmd="/bin/sleep", Arguments="1000")
    request = pool.request(activation, lease_s=2400, first_lease_s=40)
    granted = await pool.call(request)
    leases = pool.startd.shared.leases
    assert leases.left_s(granted.claim_id) <= 40
    assert await pool.call(request) == granted
    assert leases.left_s(granted.claim_id) <= 40
    await pool.call(Alive(schedd="schedd1", sequence=1, claim_ids=[granted.claim_id]))
    assert leases.left_s(granted.claim_id) > 2300
    await pool.call(request)
    assert leases.left_s(granted.claim_id) > 2300


@spec("LEA-09")
async def test_a_job_that_has_just_begun_has_its_whole_lease_once_its_schedd_answers_that(pool):
    """So it outlives a broker that goes away before the first keep-alive."""
    leases = pool.startd.shared.leases
    granted = await pool.call(pool.request(pool.activation(cmd="/bin/sleep", Arguments="1000"), first_lease_s=40))
    await pool.schedd.until(lambda: [report.renew for report in pool.schedd.reports] == [True])
    assert leases.is_first(granted.claim_id)
    pool.schedd.knows = True
    granted = await pool.call(pool.request(pool.activation(cmd="/bin/sleep", Arguments="1000"), first_lease_s=40))
    await eventually(lambda: not leases.is_first(granted.claim_id), what="the whole lease")
    assert leases.left_s(granted.claim_id) > 2300


@spec("LEA-09")
async def test_a_schedd_that_does_not_answer_hears_of_the_beginning_all_the_same(pool):
    """What it was asked is said to it once more, as a message that waits for it."""
    await pool.schedd.bus.stop()
    granted = await pool.call(pool.request(pool.activation(cmd="/bin/sleep", Arguments="1000"), first_lease_s=40))
    (run,) = pool.startd.shared.run_table.by_key.values()
    await eventually(lambda: run.record.launched, what="the start of the job")
    await pool.schedd.start()
    await pool.schedd.until(lambda: [report.phase for report in pool.schedd.reports] == ["running"])
    assert pool.startd.shared.leases.is_first(granted.claim_id)
