"""Keywords of hooks, and what hooks of jobs say and are told (FHK-01, FHK-03, JHK-01 to JHK-08)."""

import pytest

from services.startd.core.run.job_hooks import (
    Hook,
    Progress,
    changed_job,
    exit_ad,
    exit_word,
    judge,
    read_hook_config,
    status_ad,
)
from shared.classad import ClassAd
from shared.config import load_config
from shared.config.knobs import StartdSettings
from shared.messages.claims import JobExit, Usage
from shared.subprocess_runner import CompletedProgram
from tests.spec import spec


def read(**macros):
    env = {f"_CONDOR_{name}": str(value) for name, value in macros.items()}
    return read_hook_config(StartdSettings.from_config(load_config([], subsystem="STARTD", env=env)))


def job(**attrs):
    return ClassAd({"ClusterId": 1, "ProcId": 0, "Owner": "alice", "Cmd": "/bin/true"} | attrs)


def said(text="", code=0, by=None, **more):
    return judge("X_HOOK_PREPARE_JOB", CompletedProgram(None if by else code, by, text.encode(), **more))


# ---------------------------------------------------------------- keywords


@spec("FHK-01", "W-73")
def test_the_keyword_of_a_slot():
    """The manual's example; keywords are not case-sensitive."""
    found = read(
        STARTD_JOB_HOOK_KEYWORD="database",
        SLOT4_JOB_HOOK_KEYWORD="WEB",
        DATABASE_HOOK_FETCH_WORK="/db/fetch",
        DATABASE_HOOK_REPLY_FETCH="/db/reply",
        WEB_HOOK_FETCH_WORK="/web/fetch",
    )
    assert found.of_slot(1).paths == {Hook.FETCH_WORK: "/db/fetch", Hook.REPLY_FETCH: "/db/reply"}
    assert found.of_slot(4).paths == {Hook.FETCH_WORK: "/web/fetch"}
    assert found.of_slot(1).knob(Hook.REPLY_FETCH) == "DATABASE_HOOK_REPLY_FETCH"


@spec("FHK-03")
def test_without_fetch_work_no_hook_of_the_startd_runs():
    assert read(STARTD_JOB_HOOK_KEYWORD="X", X_HOOK_REPLY_FETCH="/x", X_HOOK_EVICT_CLAIM="/y").of_slot(1) is None
    assert read(X_HOOK_FETCH_WORK="/x").of_slot(1) is None


@spec("JHK-01")
@pytest.mark.parametrize(
    ("forced", "own", "default", "used"),
    [
        ("", "A", "", "A"),
        ("", "a", "B", "A"),
        ("", "", "B", "B"),
        ("", "NONE", "B", "B"),  # invalid: nothing is defined for it
        ("", "FETCH", "B", "B"),  # nor is anything for jobs
        ("B", "A", "", "B"),
        ("NONE", "A", "A", None),
        ("", "", "", None),
        ("", "NONE", "", None),
    ],
)
def test_the_keyword_of_a_job(forced, own, default, used):
    found = read(
        A_HOOK_PREPARE_JOB="/a",
        B_HOOK_JOB_EXIT="/b",
        FETCH_HOOK_FETCH_WORK="/f",
        STARTER_JOB_HOOK_KEYWORD=forced,
        STARTER_DEFAULT_JOB_HOOK_KEYWORD=default,
    )
    hooks = found.of_job(job(HookKeyword=own) if own else job())
    assert (hooks and hooks.keyword) == used


def test_times():
    found = read(A_HOOK_JOB_EXIT="/a", A_HOOK_JOB_EXIT_TIMEOUT=7, B_HOOK_JOB_EXIT="/b", ROOST_HOOK_TIMEOUT=99)
    a, b = found.hooks["a"], found.hooks["b"]
    assert [one.time_of(Hook.JOB_EXIT) for one in (a, b)] == [7, 30]
    assert a.time_of(Hook.PREPARE_JOB) == 99


# ---------------------------------------------------------------- what a prepare hook says


@spec("JHK-02", "W-75")
def test_output_changes_the_job():
    """The manual's example."""
    verdict = said('Cmd = "/usr/java/java5/bin/java"\nNew = RequestCpus + 1\n')
    assert (verdict.kind, verdict.message) == ("go", "")
    changed = changed_job(job(RequestCpus=2), verdict.updates)
    assert changed.eval("Cmd") == "/usr/java/java5/bin/java"
    assert changed.eval("TransferExecutable") is False
    assert changed.eval("New") == 3


def test_a_hook_can_not_make_it_another_users_job():
    """It runs as the job's user, who may get at it."""
    text = 'Owner = "root"\nUser = "root@pool"\nRunAsOwner = true\nClusterId = 7\nClaimId = "x"\nMine = 1\n'
    verdict = said(text + 'HookStatusCode = 0\nHookStatusMessage = "fine"\n')
    assert dict(verdict.updates.items()) == {"Mine": 1}
    assert verdict.message == "fine"


@spec("JHK-03", "JHK-05", "W-76")
@pytest.mark.parametrize(
    ("text", "code", "kind", "subcode"),
    [
        ("", 0, "go", 0),
        ("", 3, "hold", 3),  # JHK-05
        ("HookStatusCode = 0", 3, "go", 0),  # JHK-03: overrides the exit status
        ("HookStatusCode = 1", 0, "hold", 1),
        ("HookStatusCode = 299", 0, "hold", 299),
        ("HookStatusCode = 300", 0, "idle", 300),
        ("HookStatusCode = 1000", 2, "idle", 1000),
        ("HookStatusCode = -1", 0, "go", 0),
        ("HookStatusCode = -1", 4, "hold", 4),
        ('HookStatusCode = "x"', 4, "hold", 4),
        ("HookStatusCode = true", 0, "go", 0),
    ],
)
def test_status_code(text, code, kind, subcode):
    verdict = said(text, code)
    assert (verdict.kind, verdict.subcode) == (kind, subcode)


@spec("JHK-03", "W-76")
def test_a_hook_that_died_by_a_signal_is_not_believed():
    """Unless the hook died by a signal."""
    verdict = said('HookStatusCode = 0\nHookStatusMessage = "lost the disk"', by=9)
    assert (verdict.kind, verdict.message) == ("idle", "lost the disk")
    assert "signal 9" in said(by=9).message
    assert said(by=15, timed_out=True).kind == "idle"
    assert "too long" in said(by=15, timed_out=True).message


@spec("JHK-04")
def test_the_message_is_the_reason():
    assert said('HookStatusMessage = "no licence"', 1).message == "no licence"
    assert said('HookStatusCode = 400\nHookStatusMessage = "busy"').message == "busy"
    assert said("", 5).message == "X_HOOK_PREPARE_JOB ended with status 5"
    assert "HookStatusCode 17" in said("HookStatusCode = 17").message


def test_rubbish_is_not_the_jobs_fault():
    assert said("this is no ad").kind == "idle"
    assert said("this is no ad", 2).kind == "hold"
    assert said("A = 1", cut=True).kind == "idle"


# ---------------------------------------------------------------- what hooks are told

USAGE = Usage(user_cpu_s=3.5, sys_cpu_s=1.5, image_size_kib=2048, procs=3)


@spec("JHK-06")
def test_update_job_info_is_told_how_the_job_does():
    ad = status_ad(job(ClaimId="secret"), Progress(False, 42, 1000.7, USAGE))
    names = ("JobState", "JobPid", "NumPids", "JobStartDate", "RemoteSysCpu", "RemoteUserCpu", "ImageSize")
    assert [ad.eval(name) for name in names] == ["Running", 42, 3, 1000, 1.5, 3.5, 2048]
    assert ad.eval("Cmd") == "/bin/true"
    assert "ClaimId" not in ad
    assert status_ad(job(), Progress(True, 42, 1000.0, USAGE)).eval("JobState") == "Suspended"


@spec("JHK-07")
@pytest.mark.parametrize(
    ("reason", "stopped_for", "word"),
    [
        ("exited", "", "exit"),
        ("killed", "remove", "remove"),
        ("killed", "hold", "hold"),
        ("evicted", "vacate", "evict"),
        ("evicted", "evict", "evict"),
        ("hold", "", "hold"),
        ("failed", "", "evict"),
        ("evicted", "", "evict"),
    ],
)
def test_the_argument_of_job_exit(reason, stopped_for, word):
    assert exit_word(JobExit(reason=reason), stopped_for) == word


@spec("JHK-08")
def test_job_exit_is_told_how_it_ended():
    ad = exit_ad(job(), Progress(False, 42, 1000.0, USAGE), JobExit(reason="exited", exit_code=3), 1012.5)
    names = ("ExitReason", "ExitBySignal", "ExitCode", "JobDuration", "ImageSize")
    assert [ad.eval(name) for name in names[1:]] == [False, 3, 12.5, 2048]
    assert not {"ExitReason", "ExitSignal"} & set(ad)
    outcome = JobExit(reason="killed", exit_signal=15, message="removed by alice")
    ad = exit_ad(job(), Progress(False, 42, 1000.0, USAGE), outcome, 1001.0)
    assert [ad.eval(name) for name in ("ExitBySignal", "ExitSignal")] == [True, 15]
    assert ad.eval("ExitReason") == "died on signal 15: removed by alice"
    assert "ExitCode" not in ad
    assert exit_ad(job(), Progress(False, 0, 0.0, Usage()), JobExit(reason="failed"), 9.0).eval("JobDuration") == 0.0
