"""Visits into containers of a real Docker engine."""

import signal

import pytest

from shared.messages.visits import StartVisit, Wish
from tests.integration.container_jobs import USER as UID
from tests.integration.container_jobs import end_of, running_pool, start, up, use_engine
from tests.integration.test_visits import USER, Visitor
from tests.startd_pool import Endpoint

pytestmark = pytest.mark.timeout(600)


@pytest.fixture
def engine(docker_engine, monkeypatch):
    return use_engine(docker_engine, monkeypatch)


@pytest.fixture
async def visit(engine, tmp_path):
    """visit(*command, **wish): into a job that runs in a container."""
    async with running_pool(tmp_path) as pool, Endpoint(tmp_path) as files:
        text = "echo line one; echo up > up; while test ! -e go; do sleep 0.1; done; echo line two"
        activation, granted = await start(pool, files, text)
        await up(pool)
        await pool.running(activation.job_id)

        async def begin(*command, **wish):
            wanted = Wish(**{"kind": "run", "command": list(command)} | wish)
            asked = StartVisit(claim_id=granted.claim_id, job_id=activation.job_id, attempt=1, user=USER, wish=wanted)
            return Visitor(pool, (await pool.schedd.bus.call("startd.node1", asked, timeout=60.0)).visit)

        begin.pool, begin.job = pool, activation
        yield begin


async def test_a_program_runs_in_the_container_as_the_job_does(visit):
    text = "pwd; id -u; echo $BATCH_SYSTEM; grep -E 'CapEff|NoNewPrivs' /proc/self/status; cat; echo bad >&2; exit 3"
    visitor = await visit("/bin/sh", "-c", text)
    await visitor.write(b"typed\n" * 1000, eof=True)
    end = await visitor.finish()
    where, uid, system, capabilities, quiet, *typed = visitor.out.decode().splitlines()
    assert where.startswith(str(visit.pool.execute))
    assert (uid, system) == (str(UID), "HTCondor")
    assert (capabilities.split()[1], quiet.split()[1]) == ("0" * 16, "1")
    assert typed == ["typed"] * 1000
    assert (visitor.err, end.exit_code) == (b"bad\n", 3)


async def test_the_terminal_has_its_size_from_the_first_moment(visit):
    command = ("/bin/sh", "-c", "trap 'stty size' WINCH; stty size; while :; do sleep 0.05; done")
    visitor = await visit(*command, tty=True, rows=41, columns=113)
    await visitor.until(b"41 113\r\n")
    assert visitor.out == b"41 113\r\n"
    await visitor.steer(rows=24, columns=80)
    await visitor.until(b"24 80")
    await visitor.write(b"\x03")
    assert (await visitor.finish()).exit_code == 128 + signal.SIGINT


async def test_signals_and_the_visitors_leave_reach_the_program(visit):
    visitor = await visit("/bin/sh", "-c", "trap 'echo got; exit 9' USR1; echo up; while :; do sleep 0.05; done")
    await visitor.until(b"up\n")
    await visitor.steer(signal=signal.SIGUSR1)
    assert (await visitor.finish()).exit_code == 9
    sleeper = await visit("/bin/sh", "-c", "echo up; exec sleep 4242")
    await sleeper.until(b"up\n")
    await sleeper.steer(leave=True)
    await sleeper.finish()
    look = "for f in /proc/[0-9]*/cmdline; do tr '\\0' ' ' < $f; done 2>/dev/null | grep -c 'sleep 424[2]'; true"
    for _ in range(100):
        seen = await visit("/bin/sh", "-c", look)
        await seen.finish()
        if seen.out == b"0\n":
            break
    assert seen.out == b"0\n"


async def test_a_program_that_is_not_there_says_so(visit):
    visitor = await visit("/no/such/program")
    assert (await visitor.finish()).exit_code == 127
    assert b"/no/such/program" in visitor.err


async def test_much_output_arrives_whole(visit):
    visitor = await visit("head", "-c", "3000000", "/dev/zero")
    assert (await visitor.finish()).exit_code == 0
    assert visitor.out == bytes(3_000_000)


async def test_files_are_shown_and_followed_to_the_jobs_end(visit):
    file = await visit(kind="tail", file="up")
    assert (await file.finish()).exit_code == 0
    assert file.out == b"up\n", file.err
    followed = await visit(kind="tail", follow=True)
    await followed.until(b"line one\n")
    inside = await visit("touch", "go")
    await inside.finish()
    await end_of(visit.pool, visit.job)
    assert (await followed.finish()).exit_code == 0
    assert followed.out == b"line one\nline two\n"
