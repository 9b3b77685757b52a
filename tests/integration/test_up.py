"""`roost up` and `roost down` as a user has them: processes, their terminal, and what outlives them."""

import json
import os
import signal
import socket
import sys

import pytest

from tests.integration.pools import ROOT, EmbeddedPool
from tests.servers import Leashed
from tests.spec import spec
from tests.waiting import wait_until

JOB = "executable = /bin/true\nlog = jobs.log\nqueue 3\n"


@pytest.fixture
def pool(tmp_path):
    made = EmbeddedPool(tmp_path / "pool")
    yield made
    made.close()


def up(pool, *options) -> Leashed:
    """`roost up` that is expected to say something and end."""
    return Leashed(
        [sys.executable, "-m", "roost", "up", *options],
        log=pool.directory / "other.log",
        env=pool.environment(),
        cwd=ROOT,
    )


def ended(process: Leashed) -> None:
    wait_until(lambda: process.returncode is not None, 60, "the end of roost up")


def refused(process: Leashed) -> str:
    ended(process)
    said = process.tail()
    assert process.returncode == 1, said
    assert "Traceback" not in said
    process.close()
    return said


def test_a_pool_remembers_users_and_jobs_over_stop_and_kill(pool, tmp_path):
    pool.start("-cpus", "2", "-memory", "2048")
    (tmp_path / "true.sub").write_text(JOB)
    (tmp_path / "held.sub").write_text("executable = /bin/true\nhold = true\nqueue 2\n")
    done = pool.submit(tmp_path / "true.sub")
    pool.wait_for_rest(done, 3)
    held = pool.submit(tmp_path / "held.sub")
    assert {status for status, _, _ in pool.final(held).values()} == {5}
    pool.roost("userprio", "-setfactor", "alice@x", "77")
    (me,) = set(pool.roost("q", "-af", "User").stdout.split())
    pool.roost("userprio", "-setfactor", me, "55")

    def known() -> tuple:
        users = pool.roost("userprio", "-allusers", "-af", "Name", "PriorityFactor").stdout
        factors = {name: float(factor) for name, factor in (line.split() for line in users.splitlines())}
        jobs = pool.roost("q", "-af:j", "JobStatus", "TotalSubmitProcs").stdout.splitlines()
        past = pool.roost("history", "-af", "ClusterId", "ProcId", "JobStatus").stdout.splitlines()
        return factors["alice@x"], factors[me], jobs, sorted(past)

    before = known()
    assert before == (77.0, 55.0, [f"{held}.{n} 5 2" for n in range(2)], [f"{done} {n} 4" for n in range(3)])
    assert pool.roost("down").stdout == "The pool is down.\n"
    assert not (pool.directory / "pool.json").exists()
    pool.start("-cpus", "2", "-memory", "2048")
    assert known() == before
    pool.roost("userprio", "-setfactor", "alice@x", "78")
    pool.kill()
    pool.start("-cpus", "2", "-memory", "2048")
    assert known() == (78.0, *before[1:])
    pool.roost("release", str(held))
    pool.wait_for_rest(held, 2)
    assert {status for status, _, _ in pool.final(held).values()} == {4}


#: A view server as the manual writes it, without a port, and more daemons of each kind.
SEVERAL = """
VIEWSERV01 = $(COLLECTOR)
VIEWSERV01_ARGS = -f -p 12345 -local-name VIEWSERV01
VIEWSERV01_ENVIRONMENT = "_CONDOR_COLLECTOR_LOG=$(LOG)/ViewServerLog01"
VIEWSERV01.POOL_HISTORY_DIR = $(LOCAL_DIR)/poolhist01
VIEWSERV01.KEEP_POOL_HISTORY = TRUE
VIEWSERV01.CONDOR_VIEW_HOST =
CONDOR_VIEW_HOST = localhost.localdomain:12345
SCHEDD_ALPHA = $(SCHEDD)
SCHEDD_ALPHA_ARGS = -f -local-name alpha
alpha.SCHEDD_NAME = alpha
STARTD_RED = $(STARTD)
STARTD_RED_ENVIRONMENT = "_CONDOR_STARTD_ATTRS=Colour _CONDOR_Colour='""red""'"
NEGOTIATOR_B = $(NEGOTIATOR)
NEGOTIATOR_B_ARGS = -local-name B
B.NEGOTIATOR_NAME = bee
B.NEGOTIATOR_SLOT_CONSTRAINT = Colour =?= "red"
NEGOTIATOR.NEGOTIATOR_SLOT_CONSTRAINT = Colour =!= "red"
DAEMON_LIST = MASTER COLLECTOR NEGOTIATOR SCHEDD STARTD VIEWSERV01 SCHEDD_ALPHA STARTD_RED NEGOTIATOR_B
"""


@spec("CFG-12", "CFG-13")
def test_daemons_of_one_kind_under_names_of_their_own(pool, tmp_path):
    (pool.directory / "config").write_text(f"LOCAL_DIR = {tmp_path}\n{SEVERAL}")
    pool.start("-cpus", "2", "-memory", "2048")
    host = socket.gethostname()
    names = {
        *(f"Collector {name}" for name in (host, f"VIEWSERV01@{host}")),
        *(f"HAD {name}" for name in (host, f"B@{host}")),
        *(f"Negotiator {name}" for name in (host, "bee")),
        *(f"Scheduler {name}" for name in (host, "alpha")),
        *(f"Machine slot1@{name}" for name in (host, f"STARTD_RED@{host}")),
    }
    wait_until(
        lambda: names <= set(pool.roost("status", "-any", "-af", "MyType", "Name").stdout.splitlines()),
        what="the ads of all of them",
    )
    (tmp_path / "red.sub").write_text('executable = /bin/true\nrequirements = Colour == "red"\nqueue 2\n')
    done = pool.submit(tmp_path / "red.sub", "-name", "alpha")
    pool.wait_for_rest(done, 2)
    ran = pool.roost("history", "-name", "alpha", "-af", "JobStatus", "LastRemoteHost").stdout.splitlines()
    assert [line.partition("@")[2] for line in ran] == [f"STARTD_RED@{host}"] * 2
    assert {line.split()[0] for line in ran} == {"4"}
    assert (tmp_path / "poolhist01").is_dir()
    assert pool.roost("down").stdout == "The pool is down.\n"


def test_one_directory_is_one_pool(pool):
    pool.start()
    said = refused(up(pool, "-port", "0"))
    assert "a pool is up in" in said
    assert "`roost down` stops it" in said
    assert pool.roost("status", "-total").returncode == 0
    assert pool.roost("down").stdout == "The pool is down.\n"
    assert "no pool is up" in pool.roost("down", ok=False).stderr


def test_a_taken_port_is_told(pool):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        said = refused(up(pool, "-port", str(port)))
    assert str(port) in said
    assert "-port" in said
    assert not (pool.directory / "pool.json").exists()
    pool.start()  # nothing of it is in the way


@pytest.mark.parametrize(
    ("config", "says"),
    [
        ("NUM_CPUS = 2\nif true\nMEMORY = 5\n", "line 2"),
        ("NUM_CPUS = many\n", "NUM_CPUS"),
        ("A = 1\nuse ROLE : Nonsense\n", "line 2"),
    ],
)
def test_a_mistake_in_the_configuration_is_told_with_file_and_line(pool, config, says):
    (pool.directory / "config").write_text(config)
    said = refused(up(pool, "-port", "0"))
    assert "roost: " in said
    assert str(pool.directory / "config") in said
    assert says in said
    assert not (pool.directory / "pool.json").exists()


@pytest.mark.parametrize(("options", "says"), [(("-cpus", "many"), "whole number"), (("-port", "99999"), "to 65535")])
def test_bad_options_are_told(pool, options, says):
    assert says in refused(up(pool, "-port", "0", *options))


def test_a_broker_that_is_away_is_waited_for_until_a_signal(pool):
    process = up(pool, "-port", "0", "-amqp", "amqp://127.0.0.1:1/")
    wait_until(lambda: "waiting for the journal" in process.tail(), what="a word on what it waits for")
    os.kill(process.pid, signal.SIGTERM)
    ended(process)
    assert process.returncode == 0, process.tail()
    process.close()


def test_a_signal_while_starting_ends_it_cleanly(pool):
    for _ in range(3):
        process = up(pool, "-port", "0")
        wait_until((pool.directory / "log" / "pool.log").exists, what="the log")
        os.kill(process.pid, signal.SIGTERM)
        ended(process)
        assert process.returncode == 0, process.tail()
        assert "Traceback" not in process.tail()
        assert not (pool.directory / "pool.json").exists()
        process.close()
        (pool.directory / "log" / "pool.log").unlink()
    pool.start()


def test_the_same_on_real_servers(pool, amqp_url, redis_url, tmp_path):
    pool.start("-amqp", amqp_url, "-redis", redis_url, "-cpus", "1", "-memory", "1024")
    (tmp_path / "true.sub").write_text(JOB)
    pool.wait_for_rest(pool.submit(tmp_path / "true.sub"), 3)
    pool.roost("userprio", "-setfactor", "alice@x", "77")
    assert json.loads((pool.directory / "pool.json").read_text())["bus"] == "RabbitMQ"
    pool.kill()
    pool.start("-amqp", amqp_url, "-redis", redis_url, "-cpus", "1", "-memory", "1024")
    assert "alice@x 77.0" in pool.roost("userprio", "-allusers", "-af", "Name", "PriorityFactor").stdout


_WATCHED = """
import asyncio, gc, os, signal, sys
from pathlib import Path
from roost import up
from shared.daemon.garbage import THRESHOLDS

def announce(pool):
    assert gc.get_threshold() == THRESHOLDS and gc.get_freeze_count() > 10_000
    os.kill(os.getpid(), signal.SIGTERM)

directory = Path(sys.argv[1])
up.prepare(directory)
asyncio.run(up.run(up.Plan(directory, knobs={"ROOST_GATEWAY_PORT": "0", "RUNBENCHMARKS": "false"}), announce))
assert gc.get_threshold() != THRESHOLDS
"""


def test_collections_of_garbage_are_short_in_a_personal_pool_too(pool):
    """Its daemons are one process, with one garbage collector."""
    program = [sys.executable, "-c", _WATCHED, str(pool.directory)]
    process = Leashed(program, log=pool.directory / "other.log", env=pool.environment(), cwd=ROOT)
    ended(process)
    assert process.returncode == 0, process.tail()
    process.close()
