"""A startd with real processes and a scripted schedd."""

import asyncio
import os
import stat
from pathlib import Path

import psutil
import pytest

from shared.classad import ClassAd
from shared.messages.claims import (
    ActivateClaim,
    Activated,
    Alive,
    ClaimGranted,
    ClaimRefused,
    DeactivateClaim,
    JobReportAck,
    JobReports,
    ReleaseClaim,
)
from shared.past_claims import read_past
from tests.spec import spec
from tests.startd_pool import Pool, job_ad
from tests.waiting import eventually


@pytest.fixture
async def pool(tmp_path):
    async with Pool(tmp_path) as pool:
        yield pool


def script(path, text, mode=0o755):
    path.write_text(text)
    path.chmod(mode)
    return str(path)


def scratch_dirs(pool):
    return [p.name for p in pool.execute.glob("dir_*")]


async def gone(pid):
    await eventually(lambda: not psutil.pid_exists(pid) or psutil.Process(pid).status() == "zombie")


async def test_a_job_runs_in_its_iwd_and_its_exit_code_is_reported(pool, tmp_path):
    cmd = script(tmp_path / "job", '#!/bin/sh\necho "$1 $PWD"; echo oops >&2; exit 7\n')
    activation, granted = await pool.run(cmd, Iwd=str(tmp_path), Arguments="'a b'", Out="out", Err="err")
    assert isinstance(granted, ClaimGranted)
    assert granted.activated
    assert granted.slot == "slot1_1@node1"
    end = await pool.schedd.end_of(activation.job_id)
    assert end.exit.reason == "exited"
    assert end.exit.exit_code == 7
    assert end.started_at > 0
    assert (tmp_path / "out").read_text() == f"a b {tmp_path}\n"
    assert (tmp_path / "err").read_text() == "oops\n"
    await eventually(lambda: not scratch_dirs(pool))
    assert pool.conditions()["slot1_1@node1"] == "Claimed/Idle"


@spec("LEA-10")
async def test_the_job_finds_its_environment_and_ads(pool, tmp_path):
    cmd = script(tmp_path / "job", "#!/bin/sh\nenv; cat $_CONDOR_JOB_AD $_CONDOR_MACHINE_AD\n")
    activation, _ = await pool.run(
        cmd,
        Iwd=str(tmp_path),
        Out="out",
        Environment="MINE='x y' OMP_NUM_THREADS=3 _CONDOR_SLOT=lie _CONDOR_JOB_ATTEMPT=lie",
        RequestCpus=2,
        attempt=3,
    )
    await pool.schedd.end_of(activation.job_id, attempt=3)
    lines = (tmp_path / "out").read_text().splitlines()
    scratch = next(line.partition("=")[2] for line in lines if line.startswith("_CONDOR_SCRATCH_DIR="))
    assert Path(scratch).parent == pool.execute
    assert {
        "MINE=x y",
        "OMP_NUM_THREADS=3",
        "MKL_NUM_THREADS=2",
        "_CONDOR_SLOT=slot1_1",
        "_CONDOR_JOB_ATTEMPT=3",
    } <= set(lines)
    assert {f"TMPDIR={scratch}", f"_CONDOR_JOB_AD={scratch}/.job.ad"} <= set(lines)
    assert 'Owner = "alice"' in lines
    assert 'Name = "slot1_1@node1"' in lines


async def test_the_ack_of_an_end_brings_the_next_job(pool, tmp_path):
    jobs = [pool.activation(cmd="/bin/true") for _ in range(5)]
    left = jobs[1:]
    pool.schedd.next_job = lambda report: JobReportAck(next=left.pop(0)) if left else JobReportAck(release=True)
    granted = await pool.call(pool.request(jobs[0]))
    await pool.schedd.end_of(jobs[-1].job_id)
    assert {r.claim_id for r in pool.schedd.reports} == {granted.claim_id}
    await eventually(lambda: pool.conditions() == {"slot1@node1": "Unclaimed/Idle"})
    slot = pool.startd.shared.slot_manager.slots["slot1@node1"]
    assert slot.free == slot.total
    assert not pool.startd.shared.runs.by_key


async def test_ends_of_several_slots_are_told_together_to_who_takes_them(pool, monkeypatch):
    """While the first is not answered the others gather, and each has its next job from one answer."""
    monkeypatch.setattr("services.startd.run.end_reports.GATHER_S", 3600.0)
    schedd, by_key = pool.schedd, pool.startd.shared.runs.by_key
    schedd.takes_batches = True
    await pool.run()
    await schedd.until(lambda: len(schedd.ends) == 1)  # it has said that it takes several
    left = [pool.activation() for _ in range(3)]
    follow = {activation.job_id for activation in left}
    schedd.next_job = lambda report: JobReportAck(next=left.pop(0)) if left else JobReportAck(release=True)
    answer, goes_on = schedd.on, asyncio.Event()

    async def slow(envelope):
        if isinstance(envelope.body, JobReports) or getattr(envelope.body, "phase", "") == "ended":
            await goes_on.wait()
        return await answer(envelope)

    await schedd.bus.stop_consuming()
    await schedd.bus.serve(f"schedd.{schedd.name}", slow)
    others = [(await pool.run())[0].job_id for _ in range(3)]
    await eventually(lambda: len(by_key) == 3 and all(run.ended for run in by_key.values()))
    goes_on.set()
    await schedd.until(lambda: follow <= {key.partition("/")[0] for key in schedd.ends})
    # The others came while the first was not answered, or with it in one turn of the loop.
    assert 2 <= len(schedd.together[0]) <= 3
    assert set(schedd.together[0]) <= set(others)
    ended = [report.job_id for report in schedd.reports if report.phase == "ended"]
    assert sorted(ended) == sorted(set(ended))


async def test_several_jobs_are_carved_by_leftovers_until_nothing_is_left(pool):
    offer = pool.startd.shared.slot_manager.slots["slot1@node1"].offer
    first = await pool.call(pool.request(ad=job_ad(RequestCpus=3)))
    assert first.leftover.claim_id == offer
    assert ClassAd.unpack(first.leftover.slot_ad).eval("Cpus") == 5
    second = await pool.call(pool.request(ad=job_ad(RequestCpus=5)))
    assert isinstance(second, ClaimGranted)
    assert second.leftover is None
    third = await pool.call(pool.request(ad=job_ad()))
    assert isinstance(third, ClaimRefused)
    assert third.code == "resources"
    for granted in (first, second):
        await pool.call(ReleaseClaim(claim_id=granted.claim_id))
    assert pool.conditions() == {"slot1@node1": "Unclaimed/Idle"}
    assert pool.startd.shared.slot_manager.slots["slot1@node1"].free["Cpus"] == 8


async def test_a_job_that_is_over_at_once_is_told_of_by_its_end_alone(pool, monkeypatch):
    """The first on a claim is told when it begins, whatever comes: nobody knows how long it will take."""
    monkeypatch.setattr("services.startd.runs.BRIEF_S", 3600.0)
    monkeypatch.setattr("services.startd.run.reports.BRIEF_S", 3600.0)
    left = [pool.activation(), pool.activation()]
    others = list(left)
    pool.schedd.next_job = lambda report: JobReportAck(next=left.pop(0)) if left else JobReportAck(release=True)
    first, _ = await pool.run()
    for activation in (first, *others):
        end = await pool.schedd.end_of(activation.job_id)
        assert end.exit.exit_code == 0
        assert end.started_at
        assert end.scratch
    await pool.schedd.until(lambda: "running" in pool.schedd.phases(first.job_id))  # it may be overtaken by the end
    assert [pool.schedd.phases(activation.job_id) for activation in others] == [["ended"], ["ended"]]


async def test_so_is_one_that_comes_to_a_claim_kept_after_such_a_job(pool, monkeypatch):
    monkeypatch.setattr("services.startd.runs.BRIEF_S", 3600.0)
    monkeypatch.setattr("services.startd.run.reports.BRIEF_S", 3600.0)
    pool.schedd.next_job = lambda report: JobReportAck()  # kept, without a job
    first, granted = await pool.run()
    await pool.schedd.end_of(first.job_id)
    second = pool.activation()
    await eventually(lambda: pool.conditions()[granted.slot] == "Claimed/Idle", what="the kept claim")
    assert isinstance(await pool.call(ActivateClaim(claim_id=granted.claim_id, activation=second)), Activated)
    await pool.schedd.end_of(second.job_id)
    assert pool.schedd.phases(second.job_id) == ["ended"]


async def test_a_longer_job_after_a_brief_one_is_told_to_run(pool, monkeypatch):
    monkeypatch.setattr("services.startd.runs.BRIEF_S", 3600.0)
    longer = pool.activation(cmd="/bin/sleep", Arguments="1000")
    pool.schedd.next_job = lambda report: JobReportAck(next=longer)
    _, granted = await pool.run()
    await pool.schedd.until(lambda: pool.schedd.phases(longer.job_id) == ["running"])
    pool.schedd.next_job = lambda report: JobReportAck(release=True)
    await pool.call(DeactivateClaim(claim_id=granted.claim_id, job_id=longer.job_id, attempt=1, how="fast"))
    await pool.schedd.end_of(longer.job_id)
    assert pool.schedd.phases(longer.job_id) == ["running", "ended"]


async def test_requests_that_come_twice_are_answered_alike(pool):
    activation = pool.activation(cmd="/bin/sleep", Arguments="1000")
    request = pool.request(activation)
    answers = [await pool.call(request) for _ in range(3)]
    assert len({a.claim_id for a in answers}) == 1
    again = ActivateClaim(claim_id=answers[0].claim_id, activation=activation)
    assert await pool.call(again) == Activated(job_id=activation.job_id, attempt=1)
    await pool.running(activation.job_id)
    assert len(pool.startd.shared.runs.by_key) == 1
    stop = DeactivateClaim(claim_id=answers[0].claim_id, job_id=activation.job_id, attempt=1, how="fast")
    for _ in range(3):
        await pool.call(stop)
    end = await pool.schedd.end_of(activation.job_id)
    assert end.exit.reason == "killed"
    assert pool.schedd.phases(activation.job_id).count("ended") == 1


@pytest.mark.parametrize("how", ["order", "request"])
async def test_an_order_that_is_slower_than_the_acknowledged_end_begins_nothing(pool, tmp_path, how):
    """A schedd that was killed orders its runs again, while their ends are on their way to it."""
    ran = tmp_path / "ran"
    activation = pool.activation(cmd="/bin/sh", Arguments=f"-c 'echo once >>{ran}'")
    request = pool.request(activation)
    granted = await pool.call(request)
    pool.schedd.next_job = lambda report: JobReportAck()  # the claim stays, for another job
    await pool.schedd.end_of(activation.job_id)
    await eventually(lambda: not pool.startd.shared.runs.by_key, what="the end to be acknowledged")
    again = request if how == "request" else ActivateClaim(claim_id=granted.claim_id, activation=activation)
    answer = await pool.call(again)
    assert getattr(answer, "activated", True)
    assert not pool.startd.shared.runs.by_key
    another = pool.activation(cmd="/bin/true")
    await pool.call(ActivateClaim(claim_id=granted.claim_id, activation=another))
    await pool.schedd.end_of(another.job_id)
    assert ran.read_text() == "once\n"
    assert pool.schedd.phases(activation.job_id).count("ended") == 1


@pytest.mark.parametrize(
    ("make", "code", "subcode", "words"),
    [
        (lambda p: str(p / "nothing"), 6, 2, "nothing"),
        (lambda p: script(p / "plain", "#!/bin/sh\n", 0o644), 6, 13, "chmod"),
        (lambda p: script(p / "odd", "#!/no/such/interpreter\n"), 6, 2, "interpreter"),
        (lambda p: script(p / "text", "just words\n"), 6, 8, "neither a program"),
        (lambda p: str(p), 6, 13, "directory"),
    ],
)
async def test_what_can_not_be_executed_is_held(pool, tmp_path, make, code, subcode, words):
    activation, _ = await pool.run(make(tmp_path), Iwd=str(tmp_path))
    end = await pool.schedd.end_of(activation.job_id)
    assert (end.exit.reason, end.exit.hold_code, end.exit.hold_subcode) == ("hold", code, subcode)
    assert words in end.exit.message
    await eventually(lambda: not scratch_dirs(pool))


@pytest.mark.parametrize(
    ("attrs", "code"),
    [
        ({"Iwd": "/no/such/directory"}, 14),
        ({"In": "/no/such/file"}, 8),
        ({"Out": "/no/such/directory/out"}, 7),
        ({"Err": "/no/such/directory/err"}, 7),
        ({"Arguments": "an 'open quote"}, 5),
        ({"Environment": "novalue"}, 5),
    ],
)
async def test_what_the_job_asks_and_can_not_have_is_held(pool, attrs, code):
    activation, _ = await pool.run(**attrs)
    end = await pool.schedd.end_of(activation.job_id)
    assert (end.exit.reason, end.exit.hold_code) == ("hold", code)
    assert end.exit.message


async def test_a_job_that_ignores_sigterm_is_killed_after_its_vacate_time(pool, tmp_path):
    cmd = script(tmp_path / "job", "#!/bin/sh\ntrap 'echo asked' TERM\necho up\nwhile :; do sleep 0.05; done\n")
    activation, granted = await pool.run(cmd, Iwd=str(tmp_path), Out="out", JobMaxVacateTime=1)
    await eventually(lambda: (tmp_path / "out").exists() and "up" in (tmp_path / "out").read_text())
    await pool.call(DeactivateClaim(claim_id=granted.claim_id, job_id=activation.job_id, attempt=1, why="hold"))
    end = await pool.schedd.end_of(activation.job_id)
    assert end.exit.reason == "killed"
    assert end.exit.exit_signal == 9
    assert "asked" in (tmp_path / "out").read_text()
    assert pool.conditions()["slot1_1@node1"] == "Claimed/Idle"


async def test_a_job_is_asked_to_leave_with_its_own_signal(pool, tmp_path):
    cmd = script(tmp_path / "job", "#!/bin/sh\ntrap 'exit 5' USR1\necho up\nwhile :; do sleep 0.05; done\n")
    activation, granted = await pool.run(cmd, Iwd=str(tmp_path), Out="out", KillSig="SIGUSR1")
    await eventually(lambda: (tmp_path / "out").exists() and "up" in (tmp_path / "out").read_text())
    await pool.call(DeactivateClaim(claim_id=granted.claim_id, job_id=activation.job_id, attempt=1, why="vacate"))
    end = await pool.schedd.end_of(activation.job_id)
    assert (end.exit.reason, end.exit.exit_code) == ("evicted", 5)


async def test_no_process_of_a_job_outlives_it(pool, tmp_path):
    cmd = script(
        tmp_path / "job",
        "#!/bin/sh\nsetsid sh -c 'echo $$ > one; env -i setsid sleep 1000 & echo $! > two; wait' &\n"
        "while [ ! -s two ]; do sleep 0.01; done; exit 0\n",
    )
    activation, _ = await pool.run(cmd, Iwd=str(tmp_path))
    await pool.schedd.end_of(activation.job_id)
    for name in ("one", "two"):
        await gone(int((tmp_path / name).read_text()))


async def test_scratch_is_removed_whatever_the_job_did_to_it(pool, tmp_path):
    cmd = script(
        tmp_path / "job",
        "#!/bin/sh\ncd $_CONDOR_SCRATCH_DIR\nmkdir -p a/b/c; echo x > a/b/c/f; ln -s / root\n"
        "chmod 0 a/b/c/f a/b/c a/b a; chmod 0 .\n",
    )
    activation, _ = await pool.run(cmd, Iwd=str(tmp_path))
    await pool.schedd.end_of(activation.job_id)
    await eventually(lambda: not scratch_dirs(pool))
    assert stat.S_ISDIR(os.lstat("/").st_mode)


async def test_a_huge_environment_and_much_output_pass(pool, tmp_path):
    big = "v" * 100_000
    cmd = script(tmp_path / "job", "#!/bin/sh\necho ${#BIG}\nhead -c 5000000 /dev/zero\n")
    activation, _ = await pool.run(cmd, Iwd=str(tmp_path), Out="out", Environment=f"BIG={big}")
    end = await pool.schedd.end_of(activation.job_id)
    assert end.exit.exit_code == 0
    assert (tmp_path / "out").stat().st_size == 5_000_007


async def test_usage_of_all_processes_is_reported(pool, tmp_path):
    cmd = script(tmp_path / "job", "#!/bin/sh\n(i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done)\n")
    activation, _ = await pool.run(cmd, Iwd=str(tmp_path))
    end = await pool.schedd.end_of(activation.job_id)
    assert end.usage.user_cpu_s > 0.02
    assert end.usage.resident_set_kib > 500


async def test_an_end_is_reported_until_it_is_acknowledged(pool):
    pool.schedd.refuse = 3
    activation, _ = await pool.run()
    end = await pool.schedd.end_of(activation.job_id)
    assert end.exit.exit_code == 0
    assert pool.schedd.phases(activation.job_id).count("ended") == 4
    await eventually(lambda: not pool.startd.shared.runs.by_key)
    assert pool.startd.shared.journal_writer.journal.load("runs") == {}


async def test_a_run_whose_end_nobody_acknowledged_does_not_begin_again_on_another_claim(pool):
    """Its claim is over, and with it the request that it came by; asked again, as after a broker that was away."""
    pool.schedd.refuse = 10**6
    activation, granted = await pool.run()
    await pool.schedd.until(lambda: pool.schedd.phases(activation.job_id).count("ended") >= 1)
    await pool.call(ReleaseClaim(claim_id=granted.claim_id))
    again = await pool.call(pool.request(activation))
    assert not again.activated
    assert "not acknowledged" in again.refusal
    pool.schedd.refuse = 0
    await pool.schedd.end_of(activation.job_id)
    await eventually(lambda: not pool.startd.shared.runs.by_key)
    await pool.call(ReleaseClaim(claim_id=again.claim_id))
    assert pool.conditions() == {"slot1@node1": "Unclaimed/Idle"}


@spec("STM-11")
async def test_a_request_that_comes_again_after_its_run_has_ended_does_not_keep_the_claim_for_ever(pool):
    """Its answer was lost, and so were the first reports of the end."""
    pool.schedd.refuse = 10**6
    activation = pool.activation(cmd="/bin/true")
    request = pool.request(activation)
    granted = await pool.call(request)
    await pool.schedd.until(lambda: pool.schedd.phases(activation.job_id).count("ended") >= 1)
    again = await pool.call(request)
    assert (again.claim_id, again.activated) == (granted.claim_id, True)
    assert pool.startd.shared.slot_manager.claims[granted.claim_id].run == ""
    pool.schedd.refuse = 0
    await pool.schedd.end_of(activation.job_id)
    await eventually(lambda: not pool.startd.shared.runs.by_key)
    await pool.call(ReleaseClaim(claim_id=granted.claim_id))
    assert pool.conditions() == {"slot1@node1": "Unclaimed/Idle"}


@spec("ACC-18")
async def test_claims_that_are_over_are_told_of_and_a_restart_does_not_forget_them(pool):
    """What the negotiator charges by, should it have heard of neither begin nor end."""
    before = pool.startd.context.clock.now()
    activation, granted = await pool.run()
    await pool.schedd.end_of(activation.job_id)
    slot = pool.startd.shared.slot_manager.slots[granted.slot]
    assert ClassAd.unpack(granted.slot_ad).eval("RoostClaimedAt") == slot.claim.made_at
    await pool.call(ReleaseClaim(claim_id=granted.claim_id))
    told = pool.startd.shared.ads.ad_of(pool.startd.shared.slot_manager.slots["slot1@node1"]).eval("RoostPastClaims")
    (past,) = read_past(told)
    assert (past.slot, past.cpus, past.user) == (granted.slot, 1.0, "alice@pool")
    assert before <= past.began <= past.ended <= pool.startd.context.clock.now()
    await pool.restart()
    assert (
        pool.startd.shared.ads.ad_of(pool.startd.shared.slot_manager.slots["slot1@node1"]).eval("RoostPastClaims")
        == told
    )


@spec("LEA-02")
async def test_a_silent_schedd_loses_its_claim_and_its_job_at_the_end_of_the_lease(pool):
    activation = pool.activation(cmd="/bin/sleep", Arguments="1000")
    granted = await pool.call(pool.request(activation, lease_s=1))
    running = await pool.running(activation.job_id)
    end = await pool.schedd.end_of(activation.job_id)
    assert end.exit.reason == "evicted"
    assert end.exit.exit_signal == 9
    assert [lost.claim_id for lost in pool.schedd.lost] == [granted.claim_id]
    await gone(running.pid)
    assert pool.conditions() == {"slot1@node1": "Unclaimed/Idle"}

    async def unknown():
        return (await pool.call(Alive(schedd="schedd1", sequence=1, claim_ids=[granted.claim_id]))).unknown

    await eventually(unknown, what="the claim to be forgotten with its run")
    assert await unknown() == [granted.claim_id]


@spec("LEA-02")
async def test_alive_keeps_a_claim(pool):
    granted = await pool.call(pool.request(lease_s=2))
    loop_end = pool.startd.context.clock.monotonic() + 2.6
    sequence = 0
    while pool.startd.context.clock.monotonic() < loop_end:
        sequence += 1
        answer = await pool.call(Alive(schedd="schedd1", sequence=sequence, claim_ids=[granted.claim_id, "other"]))
        assert answer.unknown == ["other"]
    assert granted.claim_id in pool.startd.shared.slot_manager.claims


async def test_a_release_ends_the_job_and_frees_the_slot(pool):
    activation, granted = await pool.run("/bin/sleep", Arguments="1000")
    running = await pool.running(activation.job_id)
    await pool.call(ReleaseClaim(claim_id=granted.claim_id))
    end = await pool.schedd.end_of(activation.job_id)
    assert end.exit.reason == "evicted"
    await gone(running.pid)
    assert pool.conditions() == {"slot1@node1": "Unclaimed/Idle"}


async def test_a_restarted_startd_adopts_what_runs_and_what_ended_meanwhile(pool, tmp_path):
    cmd = script(tmp_path / "job", "#!/bin/sh\nwhile [ ! -e go$1 ]; do sleep 0.01; done; echo done$1\nexit $1\n")
    runs = []
    for number in (3, 4):
        runs.append(await pool.run(cmd, Iwd=str(tmp_path), Arguments=str(number), Out=f"out{number}"))
        await pool.running(runs[-1][0].job_id)
    before = pool.startd.shared.slot_manager.slots["slot1@node1"].offer
    claims = set(pool.startd.shared.slot_manager.claims)
    await pool.stop()
    (tmp_path / "go3").touch()
    await eventually(lambda: (tmp_path / "out3").read_text() == "done3\n")
    await pool.start()
    assert set(pool.startd.shared.slot_manager.claims) == claims
    # A request to the former life opens nothing.
    assert pool.startd.shared.slot_manager.slots["slot1@node1"].offer not in ("", before)
    assert (await pool.schedd.end_of(runs[0][0].job_id)).exit.exit_code == 3
    assert pool.conditions()["slot1_2@node1"] == "Claimed/Busy"
    answer = await pool.call(Alive(schedd="schedd1", sequence=1, claim_ids=sorted(claims)))
    assert answer.unknown == []
    (tmp_path / "go4").touch()
    assert (await pool.schedd.end_of(runs[1][0].job_id)).exit.exit_code == 4
    assert (tmp_path / "out4").read_text() == "done4\n"
    await eventually(lambda: not scratch_dirs(pool))


async def test_an_end_that_was_not_acknowledged_is_reported_by_the_next_life(pool):
    pool.schedd.refuse = 10**6
    activation, _ = await pool.run()
    await pool.schedd.until(lambda: pool.schedd.phases(activation.job_id).count("ended") >= 1)
    await pool.stop()
    pool.schedd.refuse = 0
    await pool.start()
    assert (await pool.schedd.end_of(activation.job_id)).exit.exit_code == 0


async def test_jobs_die_with_the_fork_server_and_are_run_again(pool):
    activation, granted = await pool.run("/bin/sleep", Arguments="1000")
    running = await pool.running(activation.job_id)
    nanny = pool.startd.shared.fork_server.running[
        pool.startd.shared.run_table.of_claim(granted.claim_id)[0].record.name
    ].nanny
    psutil.Process(nanny).parent().kill()
    end = await pool.schedd.end_of(activation.job_id)
    assert end.exit.reason == "evicted"
    await gone(running.pid)
    again = pool.activation(cmd="/bin/true", job_id=activation.job_id, attempt=2)
    await pool.call(ActivateClaim(claim_id=granted.claim_id, activation=again))
    assert (await pool.schedd.end_of(activation.job_id, 2)).exit.exit_code == 0


@spec("LEA-08")
async def test_a_wrong_claim_id_opens_nothing(pool):
    refused = await pool.call(pool.request(claim_id="<node1>#1#1#guess"))
    assert isinstance(refused, ClaimRefused)
    assert refused.code == "unknown-claim"


async def test_a_match_of_an_older_epoch_is_refused(pool):
    await pool.call(pool.request(epoch=5))
    refused = await pool.call(pool.request(epoch=4))
    assert refused.code == "stale-epoch"


async def test_start_decides_on_each_job(tmp_path):
    async with Pool(tmp_path, START='TARGET.Owner =!= "alice"') as pool:
        refused = await pool.call(pool.request())
        assert refused.code == "requirements"
        granted = await pool.call(pool.request(ad=job_ad(Owner="bob")))
        assert isinstance(granted, ClaimGranted)


async def test_static_slots_get_a_new_claim_id_for_every_claim(tmp_path):
    types = {"NUM_SLOTS_TYPE_1": 2, "SLOT_TYPE_1": "cpus=1, 25%"}
    async with Pool(tmp_path, **types) as pool:
        offer = pool.startd.shared.slot_manager.slots["slot2@node1"].offer
        activation = pool.activation()
        granted = await pool.call(pool.request(activation, slot="slot2@node1"))
        assert granted.slot == "slot2@node1"
        assert granted.leftover is None
        assert (await pool.schedd.end_of(activation.job_id)).exit.exit_code == 0
        await pool.call(ReleaseClaim(claim_id=granted.claim_id))
        assert pool.conditions() == {"slot1@node1": "Unclaimed/Idle", "slot2@node1": "Unclaimed/Idle"}
        assert pool.startd.shared.slot_manager.slots["slot2@node1"].offer not in ("", offer)


async def test_a_report_tells_the_runs_directory_and_with_use_pss_the_memory_that_is_its_own(tmp_path):
    knobs = {"USE_PSS": "true", "STARTER_INITIAL_UPDATE_INTERVAL": "0.1", "STARTER_UPDATE_INTERVAL": "0.1"}
    async with Pool(tmp_path, **knobs) as pool:
        await pool.run("/bin/sh", Arguments="-c 'pwd; sleep 1000'", Iwd=str(tmp_path), Out="out")

        def measured():
            told = [report for report in pool.schedd.reports if report.phase == "running" and report.updates]
            return next((one for one in told if ClassAd.unpack(one.updates).eval("ProportionalSetSizeKb")), None)

        await pool.schedd.until(lambda: measured() is not None)
        report = measured()
        assert Path(report.scratch).parent == pool.execute
        assert os.path.isdir(report.scratch)  # noqa: ASYNC240  (a test may)
        assert 0 < ClassAd.unpack(report.updates).eval("ProportionalSetSizeKb") <= report.usage.image_size_kib
        assert {one.scratch for one in pool.schedd.reports if one.phase == "running"} == {report.scratch}
