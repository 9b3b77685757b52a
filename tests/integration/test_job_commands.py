"""What submit commands ask of an access point, with real daemons or its own half of the protocol."""

import os
import shutil
import time
from email import message_from_string

import pytest

import roost
from shared.classad import UNDEFINED, ClassAd
from tests.integration.pools import EmbeddedPool
from tests.scheddpool import Pool, job_ad
from tests.smtp_server import SmtpServer
from tests.spec import spec
from tests.waiting import eventually, wait_until


@pytest.fixture(scope="module")
def personal(tmp_path_factory):
    pool = EmbeddedPool(tmp_path_factory.mktemp("commands") / "pool")
    pool.start()
    yield pool
    pool.close()


@pytest.fixture
def submitted(personal, tmp_path):
    """Submit a file, in a directory that lives as long as the test; gives the cluster."""

    def submit(text):
        file = tmp_path / "job.sub"
        file.write_text(f"log = {tmp_path}/log\n{text}\nqueue\n")
        return personal.submit(file)

    return submit


def job_of(pool, cluster, history=False):
    with pool.client() as client:
        found = list(client.jobs(str(cluster), history=history))
    return found[0] if found else None


@spec("SUB-02", "SUB-03")
def test_jobs_start_at_their_time_and_again(personal, submitted, tmp_path):
    """One that is to start in some seconds; one that is late; one for each minute, whose next time is reckoned anew."""
    at = int(time.time()) + 6
    deferred = submitted(
        f"executable = /bin/sh\narguments = \"-c 'date +%s > {tmp_path}/began'\"\nshould_transfer_files = no\n"
        f"deferral_time = {at}\ndeferral_window = 3600"
    )
    late = submitted("executable = /bin/true\ndeferral_time = 1000000000")
    every = submitted("executable = /bin/true\ncron_minute = *\ncron_prep_time = 0\non_exit_remove = false")
    wait_until(lambda: job_of(personal, late).eval("JobStatus") == 5)
    assert job_of(personal, late).eval("HoldReasonCode") == 20
    first = job_of(personal, every).eval("DeferralTime")
    assert first % 60 == 0
    wait_until(lambda: job_of(personal, deferred, history=True))
    assert int((tmp_path / "began").read_text()) >= at
    personal.roost("rm", str(every))


@spec("SUB-09")
def test_a_job_has_the_stack_that_it_asks_for_and_hears_where_no_mail_is_sent(personal, submitted, tmp_path):
    told = tmp_path / "told"
    cluster = submitted(
        f"executable = /bin/sh\narguments = \"-c 'ulimit -s > {told}'\"\nshould_transfer_files = no\n"
        "stack_size = 4 * 1024 * 1024"
    )
    wait_until(lambda: job_of(personal, cluster, history=True))
    assert told.read_text() == "4096\n"
    (tmp_path / "mail.sub").write_text("executable = /bin/true\nnotification = error\nhold = true\nqueue\n")
    said = personal.roost("submit", "mail.sub", cwd=tmp_path)
    assert ("notification has no effect" in said.stderr) is (shutil.which("mail") is None)
    personal.roost("rm", said.stdout.rpartition("cluster ")[2].strip().rstrip("."))


@spec("SUB-10")
def test_a_manifest_comes_back_with_the_output(personal, submitted, tmp_path):
    (tmp_path / "data").write_text("x")
    cluster = submitted(
        "executable = /bin/sh\narguments = \"-c 'touch made'\"\ntransfer_executable = false\n"
        f"initialdir = {tmp_path}\ntransfer_input_files = data\nshould_transfer_files = yes\n"
        'environment = "A=1"\nmanifest = true\ntransfer_output_files = made'
    )
    wait_until(lambda: job_of(personal, cluster, history=True))
    told = tmp_path / f"{cluster}_0_manifest"
    before, after = ((told / name).read_text().split() for name in ("in", "out"))
    assert "data" in before
    assert "made" not in before
    assert {"data", "made", told.name} <= set(after)
    assert "A=1" in (told / "environment").read_text().splitlines()


@spec("STM-59")
def test_a_user_suspends_a_job_which_stays_so_over_kills_and_lets_it_go_on(personal, submitted, tmp_path):
    written = tmp_path / "written"
    script = tmp_path / "counts.py"
    script.write_text(f"import time\nwhile True:\n    open({str(written)!r}, 'a').write('x')\n    time.sleep(0.02)\n")
    cluster = submitted(f"executable = /usr/bin/python3\narguments = {script}\nshould_transfer_files = no")
    idle = submitted("executable = /bin/true\nrequirements = false")
    wait_until(lambda: written.exists() and job_of(personal, cluster).eval("JobStatus") == 2)
    assert f"Job {idle}.0: not in a state for that" in personal.roost("suspend", str(idle), ok=False).stdout
    assert f"Job {cluster}.0 suspended" in personal.roost("condor_suspend", f"{cluster}.0").stdout
    wait_until(lambda: job_of(personal, cluster).eval("JobStatus") == 7)
    assert " S " in personal.roost("q", "-nobatch", str(cluster)).stdout
    personal.process.kill()  # schedd and startd at once
    personal.start()
    wait_until(lambda: job_of(personal, cluster))
    sizes = []

    def same():
        sizes.append(written.stat().st_size)
        return len(sizes) > 20 and len(set(sizes[-20:])) == 1

    wait_until(same)
    assert job_of(personal, cluster).eval("JobStatus") == 7
    suspended = ("status", "-constraint", 'Activity == "Suspended"', "-af", "State")
    wait_until(lambda: personal.roost(*suspended).stdout.split() == ["Claimed"])
    assert f"Job {cluster}.0 continued" in personal.roost("continue", str(cluster)).stdout
    wait_until(lambda: written.stat().st_size > sizes[-1] and job_of(personal, cluster).eval("JobStatus") == 2)
    assert personal.roost("continue", str(cluster)).stdout == f"Job {cluster}.0: already so\n"
    personal.roost("suspend", str(cluster))
    wait_until(lambda: job_of(personal, cluster).eval("JobStatus") == 7)
    personal.roost("hold", str(cluster))  # what stands still is ended by its signal all the same
    wait_until(lambda: job_of(personal, cluster).eval("RemoteHost") is UNDEFINED)

    def events():
        lines = (tmp_path / "log").read_text().splitlines()
        told = [line[:3] for line in lines if f"({cluster:03d}.000.000)" in line]
        return [event for event in told if event in ("001", "010", "011", "012")]

    wait_until(lambda: events()[-1:] == ["012"])
    assert events() == ["001", "010", "011", "010", "012"]
    assert job_of(personal, cluster).eval("TotalSuspensions") == 2
    personal.roost("rm", str(cluster), str(idle))


@spec("STM-59")
async def test_a_users_wish_to_suspend_reaches_the_execution_point_over_a_restart(tmp_path):
    async with Pool(tmp_path) as pool:
        run = await pool.run_one()
        await eventually(lambda: pool.schedd.claim_table.by_claim_id)
        await pool.startd.report(run, "running", started_at=5.0)
        assert await pool.act("suspend", "1.0", user="mallory@pool") == {"1.0": "denied"}
        pool.startd.mute = True
        assert await pool.act("suspend", "1.0") == {"1.0": "done"}
        assert await pool.act("suspend", "1.0") == {"1.0": "already"}
        await pool.restart()
        pool.startd.mute = False
        await eventually(lambda: pool.startd.suspended)
        assert {(order.job_id, order.attempt, order.suspended) for order in pool.startd.suspended} == {("1.0", 1, True)}
        await pool.startd.report(run, "suspended")
        assert (await pool.job("1.0"))["JobStatus"] == 7
        assert await pool.act("continue", "1.0") == {"1.0": "done"}
        await eventually(lambda: not pool.startd.suspended[-1].suspended)
        await pool.startd.report(run, "running")
        assert (await pool.job("1.0"))["JobStatus"] == 2


@spec("SUB-01")
async def test_noop_jobs_end_without_a_slot(tmp_path):
    log = tmp_path / "log"
    async with Pool(tmp_path) as pool:
        ad = job_ad(IsNoopJob="=ProcId != 1", NoopJobExitCode="=ProcId", UserLog=str(log))
        await pool.submit(ad, procs=300)

        async def all_but_one():
            return len(await pool.jobs()) == 1

        await eventually(all_but_one)
        [left] = await pool.jobs()
        assert (left["ProcId"], left["JobStatus"]) == (1, 1)
        [done] = await pool.history("1.200")
        assert (done["JobStatus"], done["ExitCode"]) == (4, 200)
        requests = (await pool.requests()).requests[pool.user]
        assert [(request.first_job, request.count) for request in requests] == [("1.1", 1)]
        edits = ClassAd()
        edits["IsNoopJob"] = True
        assert await pool.act("edit", "1.1", edits=edits.pack()) == {"1.1": "done"}
        await eventually(lambda: log.read_text().count("\n005 (") == 300)
        assert await pool.jobs() == []


async def test_a_noop_job_on_hold_waits_and_one_of_before_ends_after_a_restart(tmp_path):
    async with Pool(tmp_path) as pool:
        await pool.submit(job_ad(IsNoopJob=True, JobStatus=5, HoldReasonCode=15, HoldReason="asked for"))
        await pool.restart()
        assert (await pool.job("1.0"))["JobStatus"] == 5
        assert await pool.act("release", "1.0") == {"1.0": "done"}
        await eventually(lambda: pool.history("1.0"))
        assert await pool.jobs() == []


@spec("SUB-03")
async def test_a_cron_job_that_has_run_waits_for_its_next_time(tmp_path):
    async with Pool(tmp_path) as pool:
        ad = job_ad(CronMinute="0", DeferralPrepTime=7200, DeferralWindow=0, OnExitRemove=False)
        run = await pool.run_one(ad=ad)
        first = (await pool.job("1.0"))["DeferralTime"]
        assert (first % 3600, first > time.time() - 60) == (0, True)
        await pool.startd.report(run, "running", started_at=float(first))
        ack = await pool.startd.finish(run)
        assert ack.next is None or ack.next.job_id == "1.0"
        assert (await pool.job("1.0"))["DeferralTime"] > first


async def test_jobs_that_wait_for_their_time_are_no_demand_before_nor_after_a_restart(tmp_path):
    async with Pool(tmp_path) as pool:
        at = int(time.time()) + 100_000
        await pool.submit(job_ad(DeferralTime=at, DeferralPrepTime=30), procs=3)
        for _ in range(2):
            assert not (await pool.requests()).requests.get(pool.user)
            await pool.restart()
        edits = ClassAd()
        edits["DeferralPrepTime"] = 200_000
        await pool.act("edit", "1.1", edits=edits.pack())
        requests = (await pool.requests()).requests[pool.user]
        assert [(request.first_job, request.count) for request in requests] == [("1.1", 1)]


@spec("SUB-04")
async def test_mail_goes_to_a_server_which_may_be_away_for_a_while(tmp_path):
    async with SmtpServer(greeting="421 not now") as server:
        knobs = {"SMTP_SERVER": server.address, "MAIL_FROM": "pool@example.org", "EMAIL_DOMAIN": "example.org"}
        async with Pool(tmp_path, **knobs) as pool:
            ad = job_ad(JobNotification=2, NotifyUser="alice", EmailAttributes="JobPrio", JobPrio=7)
            run = await pool.run_one(ad=ad)
            await pool.startd.finish(run, code=3)
            await eventually(lambda: server.connections)
            server.greeting = "220 here"
            await eventually(lambda: server.messages)
    [(sender, recipients, text)] = server.messages
    assert (sender, recipients) == ("pool@example.org", ["alice@example.org"])
    assert "Subject: [Roost] Job 1.0 has ended" in text
    body = message_from_string(text).get_payload(decode=True).decode()
    assert "has exited normally with status 3" in body
    assert "JobPrio = 7" in body


async def test_what_a_server_refuses_is_not_sent_again_and_other_mail_is(tmp_path):
    async with SmtpServer(recipient="550 nobody") as server, Pool(tmp_path, SMTP_SERVER=server.address) as pool:
        await pool.submit(job_ad(JobNotification=3, NotifyUser="a@b", DeferralTime=1))
        await eventually(lambda: server.asked)
        server.recipient = "250 yes"
        await pool.submit(job_ad(JobNotification=3, NotifyUser="c@d", DeferralTime=1))
        await eventually(lambda: server.messages)
        assert [recipients for _, recipients, _ in server.messages] == [["c@d"]]
        assert server.connections == 2


async def test_mail_by_a_program(tmp_path):
    program = tmp_path / "mail"
    copy = f"{tmp_path}/part"
    program.write_text(f'#!/bin/sh\nprintf "%s|" "$@" > {copy}\ncat >> {copy}\nmv {copy} {tmp_path}/sent\n')
    program.chmod(0o755)
    async with Pool(tmp_path, MAIL=str(program)) as pool:
        await pool.submit(job_ad(JobNotification=3, NotifyUser="a@b", DeferralTime=1))
        await eventually((tmp_path / "sent").exists)
    sent = (tmp_path / "sent").read_text()
    assert sent.startswith("-s|[Roost] Job 1.0 was put on hold|a@b|This is an automated email")
    assert "was put on hold (code 20): Job missed deferred execution time" in sent


@spec("SUB-05", "SUB-06")
async def test_a_run_leaves_its_machine_in_the_ad_and_is_stopped_as_the_job_wants(tmp_path):
    async with Pool(tmp_path) as pool:
        ad = job_ad(JobMachineAttrs="Name", JobMachineAttrsHistoryLength=2, WantGracefulRemoval=False)
        run = await pool.run_one(ad=ad)

        async def known():
            return (await pool.job("1.0")).eval("MachineAttrCpus0") == 1

        await eventually(known)
        job = await pool.job("1.0")
        assert job["MachineAttrName0"] == pool.startd.claim_of[run.job_id, run.attempt][1]
        await pool.act("remove", "1.0")
        await eventually(lambda: pool.startd.deactivated)
        assert pool.startd.deactivated[0].how == "fast"


@spec("SUB-13")
def test_a_job_whose_output_is_there_is_skipped_and_runs_when_its_input_is_newer(personal, submitted, tmp_path):
    source, target = tmp_path / "source", tmp_path / "target"
    job = (
        f"executable = /bin/cp\narguments = source target\ntransfer_executable = false\n"
        f"should_transfer_files = yes\ntransfer_input_files = {source}\ntransfer_output_files = target\n"
        f"initialdir = {tmp_path}\nskip_if_dataflow = true"
    )
    source.write_text("new")
    target.write_text("old")
    os.utime(source, (1e9, 1e9))
    first = submitted(job)
    wait_until(lambda: job_of(personal, first, history=True))
    skipped = job_of(personal, first, history=True)
    told = {name: skipped.eval(name) for name in ("JobStatus", "ExitCode", "DataflowJobSkipped")}
    assert told == {"JobStatus": 4, "ExitCode": 0, "DataflowJobSkipped": True}
    assert skipped.eval("NumShadowStarts") == 0
    assert target.read_text() == "old"
    wait_until(lambda: "\n005 (" in (tmp_path / "log").read_text(), what="the end in the log")
    with roost.JobEventLog(str(tmp_path / "log")) as log:
        events = [event.type for event in log.events(stop_after=0)]
    assert [int(number) for number in events] == [0, 46, 5]
    os.utime(target, (1e8, 1e8))
    second = submitted(job)
    wait_until(lambda: job_of(personal, second, history=True))
    assert job_of(personal, second, history=True).eval("DataflowJobSkipped") is False
    assert target.read_text() == "new"
