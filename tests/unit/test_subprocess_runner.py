"""Programs that a daemon runs: whatever they do, it lives."""

import asyncio
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from shared import subprocess_runner
from shared.subprocess_runner import MAX_OUTPUT, Program, ProgramFailed, clean_environment, run
from tests.waiting import PATIENCE_S, eventually, wait_until

ENV = {"PATH": os.environ["PATH"]}


async def shell(script, **options):
    return await run(["/bin/sh", "-c", script], **({"env": ENV, "timeout_s": 60.0} | options))


async def test_input_output_and_status():
    ended = await shell("cat; echo trouble >&2; exit 3", stdin=b"hello\n" * 50_000)
    assert (ended.exit_code, ended.exit_signal, ended.good) == (3, None, False)
    assert (ended.stdout, ended.stderr) == (b"hello\n" * 50_000, b"trouble\n")


async def test_input_that_nobody_reads_does_no_harm():
    assert (await shell("exit 0", stdin=b"x" * 1_000_000)).good


async def test_a_program_that_takes_too_long_is_ended_with_all_of_its_group(tmp_path):
    """Also one that does not mind SIGTERM."""
    pids = tmp_path / "pids"
    script = f"trap '' TERM; sleep 1000 & echo $! > {pids}; while :; do sleep 1000; done"
    ended = await shell(script, timeout_s=0.5)
    assert (ended.timed_out, ended.exit_signal) == (True, signal.SIGKILL)
    assert "too long" in str(ended)
    await eventually(lambda: not os.path.exists(f"/proc/{pids.read_text().strip()}") or _dead(pids.read_text()))


def _dead(pid):
    try:
        return Path(f"/proc/{int(pid)}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


async def test_what_it_leaves_in_the_background_is_ended(tmp_path):
    pids = tmp_path / "pids"
    ended = await shell(f"sleep 1000 & echo $! > {pids}; echo done")
    assert (ended.exit_code, ended.stdout) == (0, b"done\n")
    await eventually(lambda: _dead(pids.read_text()))


async def test_a_flood_is_cut():
    ended = await shell(f"yes | head -c {3 * MAX_OUTPUT}", timeout_s=60)
    assert (len(ended.stdout), ended.cut, ended.exit_code) == (MAX_OUTPUT, True, 0)


async def test_a_program_may_close_its_output_and_work_on():
    assert (await shell("exec >&- 2>&-; sleep 0.2; exit 4")).exit_code == 4


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGPIPE, signal.SIGTERM])
async def test_a_signal_is_told(number):
    ended = await shell(f"ulimit -c 0; kill -{number} $$; sleep 1000")
    assert (ended.exit_code, ended.exit_signal) == (None, number)


IGNORING = """
import asyncio, signal, sys
for one in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGPIPE, signal.SIGUSR1):
    signal.signal(one, signal.SIG_IGN)
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGQUIT})
from shared.subprocess_runner import run
async def main():
    for one in (1, 2, 3, 13, 10, 15):
        script = f"ulimit -c 0; kill -{one} $$; sleep 1000"
        ended = await run(["/bin/sh", "-c", script], env={"PATH": "/usr/bin:/bin"}, timeout_s=60)
        print(ended.exit_signal)
asyncio.run(main())
"""


def test_signals_are_as_the_system_has_them_whatever_the_daemon_ignores_or_blocks():
    """A daemon started by nohup, or in the background of a shell, ignores some: its programs must not."""
    done = subprocess.run([sys.executable, "-c", IGNORING], capture_output=True, text=True, check=True, timeout=100)
    assert done.stdout.split() == ["1", "2", "3", "13", "10", "15"]


@pytest.mark.parametrize(
    ("path", "reason"),
    [("/no/such", "not there"), ("/etc/passwd", "not an executable"), ("/tmp", "not an executable")],
)
async def test_a_program_that_can_not_be_started_is_told(path, reason):
    with pytest.raises(ProgramFailed, match=f"{path} can not be run.*{reason}"):
        await run([path], env=ENV, timeout_s=1)


async def test_directory_and_zero_bytes(tmp_path):
    ended = await run(["/bin/pwd", "-P"], env=ENV, cwd=str(tmp_path), timeout_s=60)
    assert ended.stdout.decode().strip() == str(tmp_path.resolve())
    with pytest.raises(ProgramFailed, match="directory"):
        await run(["/bin/pwd"], env=ENV, cwd=str(tmp_path / "none"), timeout_s=1)
    with pytest.raises(ProgramFailed, match="zero byte"):
        await run(["/bin/echo", "a\0b"], env=ENV, timeout_s=1)


async def test_cancelling_ends_it(tmp_path):
    pids = tmp_path / "pids"
    work = asyncio.create_task(shell(f"echo $$ > {pids}; sleep 1000"))
    await eventually(lambda: pids.exists() and pids.read_text().strip())
    work.cancel()
    with pytest.raises(asyncio.CancelledError):
        await work
    await eventually(lambda: _dead(pids.read_text()))


async def test_cancelling_ends_it_whenever_that_comes(tmp_path):
    """Also while it is being started, when nobody has it in hand yet."""
    started = []
    for delay in range(60):
        pids = tmp_path / f"pid{delay}"
        work = asyncio.create_task(shell(f"echo $$ > {pids}; exec sleep 1000"))
        for _ in range(delay):
            await asyncio.sleep(0 if delay % 2 else 0.0002)
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)
        started.append(pids)
    await eventually(lambda: all(_dead(one.read_text()) for one in started if one.exists() and one.read_text().strip()))
    assert any(one.exists() for one in started)
    assert asyncio.all_tasks() == {asyncio.current_task()}


def test_what_is_started_as_its_loop_ends_is_ended_too(monkeypatch):
    """A daemon that stops while its monitor of GPUs starts leaves none behind."""
    begun, go, pids, spawn = threading.Event(), threading.Event(), [], subprocess_runner._spawn

    def late(*arguments):
        begun.set()
        go.wait(PATIENCE_S)
        started = spawn(*arguments)
        pids.append(started[0])
        return started

    async def cancelled():
        work = asyncio.create_task(Program.start(["/bin/sleep", "1000"], env=ENV))
        await asyncio.to_thread(begun.wait, PATIENCE_S)
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)
        go.set()

    monkeypatch.setattr(subprocess_runner, "_spawn", late)
    asyncio.run(cancelled())
    wait_until(lambda: _dead(str(pids[0])), what="the end of what nobody waits for")


async def test_output_comes_as_it_is_printed():
    program = await Program.start(["/bin/sh", "-c", "echo one; read x; echo never"], env=ENV, stdin=b"")
    seen = bytearray()
    await program.read(seen.extend)
    assert await program.wait() == 0
    assert bytes(seen) == b"one\nnever\n"


def test_secrets_and_handles_are_kept_back():
    given = {
        "PATH": "/bin",
        "CONDOR_INHERIT": "1 2 3",
        "CONDOR_PRIVATE_INHERIT": "x",
        "ROOST_AMQP_URL": "amqp://u:p@h",
        "ROOST_STARTD_PASSWORD": "p",
        "CONDOR_CONFIG": "/etc/condor/condor_config",
    }
    assert clean_environment(given) == {"PATH": "/bin", "CONDOR_CONFIG": "/etc/condor/condor_config"}
