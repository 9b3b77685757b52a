"""Hooks of jobs with real programs (JHK-02 to JHK-09, FHK-14)."""

import os
import signal
import tempfile
from pathlib import Path

import pytest
import structlog

from services.startd.core.run.job_hooks import Hook, Hooks
from services.startd.core.run.job_launch import Account
from services.startd.isolation.manager import IsolationManager
from services.startd.run.hook_runner import HookRefused, call_hook
from shared.classad import parse_ad
from tests.spec import spec
from tests.startd_pool import Endpoint, Pool
from tests.waiting import eventually


def script(path, name, text):
    program = path / name
    program.write_text(f"#!/bin/sh\n{text}\n")
    program.chmod(0o755)
    return program


@pytest.fixture
def folder(tmp_path):
    """Where hooks lie, write what they are told, and can be seen in their order."""
    (tmp_path / "hooks").mkdir()
    return tmp_path / "hooks"


def told(folder, name):
    """The ad that a hook got, once it has written it whole."""
    path = folder / name
    return parse_ad(path.read_text(), "old") if path.exists() else None


def keep(folder, name):
    return f"cat > {folder}/.{name}; mv {folder}/.{name} {folder}/{name}"


@spec("JHK-01", "JHK-02")
async def test_prepare_hooks_change_the_job_before_and_after_the_input_came(tmp_path, folder):
    """The first sees no input, the second does; Cmd is a path of the machine."""
    before = script(folder, "before", f"{keep(folder, 'ad1')}; ls > {folder}/files1; echo 'Extra = 7'")
    other = script(folder, "other", "echo this is the other; cat in.txt; pwd")
    after = script(folder, "after", f"{keep(folder, 'ad2')}; ls > {folder}/files2; echo 'Cmd = \"{other}\"'")
    macros = {"JAVA5_HOOK_PREPARE_JOB": after, "JAVA5_HOOK_PREPARE_JOB_BEFORE_TRANSFER": before}
    async with Endpoint(tmp_path) as endpoint, Pool(tmp_path, **macros) as pool:
        (endpoint.input / "in.txt").write_text("input\n")
        (endpoint.input / "condor_exec.exe").write_text("#!/bin/sh\necho wrong\n")
        attrs = {"HookKeyword": "JAVA5", "Out": "out", "ShouldTransferFiles": "YES"}
        activation = pool.activation(url=endpoint.url, **attrs)
        await pool.call(pool.request(activation))
        end = await pool.schedd.end_of(activation.job_id)
        assert (end.exit.reason, end.exit.exit_code) == ("exited", 0)
        assert endpoint.text("_condor_stdout").startswith("this is the other\ninput\n")
        assert "in.txt" not in (folder / "files1").read_text()
        assert "in.txt" in (folder / "files2").read_text()
        assert told(folder, "ad1").eval("Cmd") == "/bin/true"
        assert told(folder, "ad2").eval("Extra") == 7


@spec("JHK-03", "JHK-04", "JHK-05")
@pytest.mark.parametrize(
    ("text", "reason", "code", "subcode", "message"),
    [
        ("exit 3", "hold", 19, 3, "X_HOOK_PREPARE_JOB ended with status 3"),
        ("echo 'HookStatusCode = 12'; echo 'HookStatusMessage = \"no licence\"'", "hold", 19, 12, "no licence"),
        ("echo 'HookStatusCode = 300'; echo 'HookStatusMessage = \"not now\"'", "failed", 0, 0, "not now"),
        ("echo 'HookStatusCode = 0'; exit 9", "exited", 0, 0, ""),
        ("kill -9 $$", "failed", 0, 0, "signal 9"),
        ("kill -3 $$", "failed", 0, 0, "signal 3"),
        ("kill -1 $$", "failed", 0, 0, "signal 1"),
        ("kill -15 $$", "failed", 0, 0, "signal 15"),
        ("echo rubbish", "failed", 0, 0, "can not be read"),
    ],
)
async def test_a_prepare_hook_decides_whether_the_job_runs(tmp_path, folder, text, reason, code, subcode, message):
    hook = script(folder, "hook", f"ulimit -c 0; {text}")
    async with Pool(tmp_path, X_HOOK_PREPARE_JOB=hook, STARTER_DEFAULT_JOB_HOOK_KEYWORD="X") as pool:
        activation, _ = await pool.run("/bin/true")
        end = (await pool.schedd.end_of(activation.job_id)).exit
        assert (end.reason, end.hold_code, end.hold_subcode) == (reason, code, subcode)
        assert message in end.message
        assert ("running" in pool.schedd.phases(activation.job_id)) == (reason == "exited")


async def test_a_hook_that_hangs_is_ended_and_the_job_goes_elsewhere(tmp_path, folder):
    pid = folder / "pid"
    hook = script(folder, "hook", f"trap '' TERM; echo $$ > {pid}; while :; do sleep 100; done")
    macros = {"X_HOOK_PREPARE_JOB": hook, "STARTER_JOB_HOOK_KEYWORD": "X", "ROOST_HOOK_TIMEOUT": "0.5"}
    async with Pool(tmp_path, **macros) as pool:
        activation, _ = await pool.run("/bin/true")
        end = (await pool.schedd.end_of(activation.job_id)).exit
        assert (end.reason, "too long" in end.message) == ("failed", True)
        await eventually(lambda: not os.path.exists(f"/proc/{pid.read_text().strip()}"))


async def test_a_job_that_is_evicted_while_its_hook_runs_leaves_at_once(tmp_path, folder):
    pid = folder / "pid"
    hook = script(folder, "hook", f"echo $$ > {pid}; sleep 1000")
    async with Pool(tmp_path, X_HOOK_PREPARE_JOB=hook, STARTER_JOB_HOOK_KEYWORD="X") as pool:
        activation, answer = await pool.run("/bin/true")
        await eventually(lambda: pid.exists() and pid.read_text().strip())
        startd = pool.startd.shared
        _, effects = startd.slot_manager.vacate(answer.claim_id, "test", graceful=True, now=startd.now())
        startd.effects.carry_out(effects)
        end = (await pool.schedd.end_of(activation.job_id)).exit
        assert end.reason == "evicted"
        await eventually(lambda: not os.path.exists(f"/proc/{pid.read_text().strip()}"))


@spec("JHK-06", "JHK-07", "JHK-08")
async def test_update_and_exit_hooks_are_told_how_the_job_does(tmp_path, folder):
    """JOB_EXIT comes before the output is sent, and its status means nothing."""
    update = script(folder, "update", f"{keep(folder, 'update.ad')}; echo 'Cmd = \"ignored\"'; exit 5")
    leave = script(
        folder,
        "leave",
        f'{keep(folder, "exit.ad")}; echo "$@" > {folder}/word; ls {tmp_path}/output > {folder}/sent; exit 7',
    )
    job = script(folder, "job", f"echo out; while [ ! -e {folder}/update.ad ]; do sleep 0.05; done; exit 4")
    macros = {
        "X_HOOK_UPDATE_JOB_INFO": update,
        "X_HOOK_JOB_EXIT": leave,
        "STARTER_JOB_HOOK_KEYWORD": "X",
        "STARTER_INITIAL_UPDATE_INTERVAL": 1,
    }
    async with Endpoint(tmp_path) as endpoint, Pool(tmp_path, **macros) as pool:
        attrs = {"Out": "out", "ShouldTransferFiles": "YES", "TransferExecutable": False}
        activation = pool.activation(url=endpoint.url, cmd=str(job), **attrs)
        await pool.call(pool.request(activation))
        end = (await pool.schedd.end_of(activation.job_id)).exit
        assert (end.reason, end.exit_code) == ("exited", 4)
        ad = told(folder, "update.ad")
        running = await pool.running(activation.job_id)
        assert ad.eval("JobState") == "Running"
        assert ad.eval("JobPid") == running.pid
        assert ad.eval("JobStartDate") == int(running.started_at)
        assert ad.eval("NumPids") >= 1
        assert all(isinstance(ad.eval(name), float) for name in ("RemoteSysCpu", "RemoteUserCpu"))
        assert ad.eval("ImageSize") > 0
        ad = told(folder, "exit.ad")
        assert (folder / "word").read_text() == "exit\n"
        assert [ad.eval(name) for name in ("ExitBySignal", "ExitCode")] == [False, 4]
        assert "ExitReason" not in ad
        assert ad.eval("JobDuration") > 0
        assert (folder / "sent").read_text() == ""
        assert endpoint.text("_condor_stdout") == "out\n"


@spec("JHK-07", "JHK-08")
@pytest.mark.parametrize(("why", "word"), [("remove", "remove"), ("hold", "hold"), ("vacate", "evict")])
async def test_the_exit_hook_hears_why_a_job_was_stopped(tmp_path, folder, why, word):
    from shared.messages.claims import DeactivateClaim

    leave = script(folder, "leave", f'echo "$@" > {folder}/word; {keep(folder, "ad")}')
    async with Pool(tmp_path, X_HOOK_JOB_EXIT=leave, STARTER_JOB_HOOK_KEYWORD="X") as pool:
        activation, answer = await pool.run("/bin/sleep", Args="1000")
        await pool.running(activation.job_id)
        stop = DeactivateClaim(claim_id=answer.claim_id, job_id=activation.job_id, attempt=1, why=why)
        await pool.call(stop)
        await pool.schedd.end_of(activation.job_id)
        assert (folder / "word").read_text() == f"{word}\n"
        ad = told(folder, "ad")
        assert [ad.eval("ExitBySignal"), ad.eval("ExitSignal")] == [True, signal.SIGTERM]


@spec("JHK-08")
async def test_a_job_that_ends_by_a_signal_is_told_so(tmp_path, folder):
    """Whatever signal it is and whatever the startd ignores."""
    leave = script(folder, "leave", keep(folder, "ad"))
    numbers = (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGKILL, signal.SIGPIPE, signal.SIGTERM)
    before = [signal.signal(one, signal.SIG_IGN) for one in (signal.SIGHUP, signal.SIGQUIT)]
    try:
        async with Pool(tmp_path, X_HOOK_JOB_EXIT=leave, STARTER_JOB_HOOK_KEYWORD="X") as pool:
            for number in numbers:
                (folder / "ad").unlink(missing_ok=True)
                arguments = f"-c 'kill -{int(number)} $$; sleep 100'"
                activation, _ = await pool.run("/bin/sh", Arguments=arguments)
                end = (await pool.schedd.end_of(activation.job_id)).exit
                assert end.exit_signal == number
                assert told(folder, "ad").eval("ExitSignal") == number
    finally:
        for one, handler in zip((signal.SIGHUP, signal.SIGQUIT), before, strict=True):
            signal.signal(one, handler)


async def test_the_exit_hook_comes_after_a_prepare_hook_that_failed(tmp_path, folder):
    prepare = script(folder, "prepare", "exit 1")
    leave = script(folder, "leave", f'echo "$@" > {folder}/word')
    macros = {"X_HOOK_PREPARE_JOB": prepare, "X_HOOK_JOB_EXIT": leave, "STARTER_JOB_HOOK_KEYWORD": "X"}
    async with Pool(tmp_path, **macros) as pool:
        activation, _ = await pool.run("/bin/true")
        await pool.schedd.end_of(activation.job_id)
        assert (folder / "word").read_text() == "evict\n"


@spec("FHK-14")
async def test_stderr_is_in_the_log_and_open_hooks_are_refused(tmp_path, folder):
    hook = script(folder, "hook", "echo it was me >&2; exit 1")
    hooks = Hooks("X", {Hook.PREPARE_JOB: str(hook)}, timeout_s=60)
    with structlog.testing.capture_logs() as logs:
        ended = await call_hook(hooks, Hook.PREPARE_JOB, structlog.get_logger(), stdin="")
        assert ended.exit_code == 1
        hook.chmod(0o757)
        with pytest.raises(HookRefused, match="everybody may write it: chmod o-w"):
            await call_hook(hooks, Hook.PREPARE_JOB, structlog.get_logger(), stdin="")
        hook.chmod(0o755)
        folder.chmod(0o777)
        with pytest.raises(HookRefused, match="everybody may write its directory"):
            await call_hook(hooks, Hook.PREPARE_JOB, structlog.get_logger(), stdin="")
        gone = Hooks("X", {Hook.PREPARE_JOB: str(folder / "none")}, timeout_s=60)
        with pytest.raises(HookRefused, match="No such file"):
            await call_hook(gone, Hook.PREPARE_JOB, structlog.get_logger(), stdin="")
    assert any("it was me" in one.get("stderr", "") for one in logs)


@spec("JHK-09")
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be somebody else")
async def test_hooks_of_jobs_run_as_the_jobs_user(monkeypatch):
    """See nothing of the startd's secrets."""
    monkeypatch.setenv("ROOST_AMQP_PASSWORD", "secret")
    monkeypatch.setenv("ANYTHING", "of the startd")
    # Not below pytest's directory, which only root may enter.
    with tempfile.TemporaryDirectory(prefix="roost-hook-") as open_to_all:
        os.chmod(open_to_all, 0o755)
        hook = script(Path(open_to_all), "hook", "id -u; id -g; id -G; env")
        ended = await called_as_nobody(hook)
    lines = ended.stdout.decode().splitlines()
    assert lines[:2] == ["65534", "65534"], ended
    assert set(lines[2].split()) == {"65534", "65533"}
    assert "_CONDOR_SLOT=slot1" in lines
    assert not [line for line in lines if "secret" in line or "ANYTHING" in line]


async def called_as_nobody(hook):
    hooks = Hooks("X", {Hook.UPDATE_JOB_INFO: str(hook)}, timeout_s=60)
    account = Account("nobody", uid=65534, gid=65534, groups=(65533,), home="/nonexistent")
    env = {"_CONDOR_SLOT": "slot1"}
    return await call_hook(hooks, Hook.UPDATE_JOB_INFO, structlog.get_logger(), stdin="", account=account, env=env)


@spec("JHK-09")
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can choose")
async def test_the_hooks_of_a_run_get_its_account(tmp_path, folder, monkeypatch):
    """What the walls chose for the job counts for its hooks."""

    seen = []

    async def noted(hooks, hook, log, *arguments, account=None, **more):
        seen.append((hook, account))
        return await call_hook(hooks, hook, log, *arguments, **more)

    monkeypatch.setattr("services.startd.run.hook_runner.call_hook", noted)
    account = Account("slot1", uid=os.geteuid(), gid=os.getegid())
    monkeypatch.setattr(IsolationManager, "account", lambda self, slot, job: account)
    hook = script(folder, "hook", "exit 0")
    macros = {f"X_HOOK_{name}": hook for name in ("PREPARE_JOB", "PREPARE_JOB_BEFORE_TRANSFER", "JOB_EXIT")}
    async with Pool(tmp_path, **macros, STARTER_JOB_HOOK_KEYWORD="X") as pool:
        activation, _ = await pool.run("/bin/true")
        await pool.schedd.end_of(activation.job_id)
    assert seen == [
        (Hook.PREPARE_JOB_BEFORE_TRANSFER, account),
        (Hook.PREPARE_JOB, account),
        (Hook.JOB_EXIT, account),
    ]
