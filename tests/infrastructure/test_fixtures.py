"""The fixtures that every other suite trusts."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import aio_pika
import pytest
import redis.asyncio

from tests import servers
from tests.servers import Leashed, Rabbit, Redis, ports_for_servers
from tests.waiting import wait_until

ROOT = Path(__file__).parents[2]


def run_pytest(folder: Path, source: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a test module of its own under this project's fixtures and settings."""
    (folder / "test_inner.py").write_text(source)
    options = ["-c", str(ROOT / "pyproject.toml"), "--rootdir", str(ROOT), "-p", "tests.conftest", "-n", "0"]
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *options, *arguments, str(folder)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=100)


def gone(pid: int) -> bool:
    """Whether the process has ended; a zombie that its parent has not yet reaped has."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):  # gone before the file was opened, or before it was read
        return True
    return state == "Z"


def test_a_test_that_leaves_a_task_running_or_a_configuration_set_fails(tmp_path):
    done = run_pytest(
        tmp_path,
        "import asyncio, os\n"
        "kept = []\n"
        "async def test_it():\n"
        "    kept.append(asyncio.create_task(asyncio.sleep(60), name='forgotten'))\n"
        "def test_another():\n"
        "    os.environ['CONDOR_CONFIG'] = '/nowhere'\n"
        "def test_a_third():\n"
        "    assert os.environ.get('CONDOR_CONFIG') != '/nowhere'\n",
        "-p",
        "no:randomly",
    )
    assert done.returncode == 1
    assert "3 passed, 2 errors" in done.stdout
    assert "'CONDOR_CONFIG': '/nowhere'} in the environment" in done.stdout
    assert "left 1 asyncio task(s) running" in done.stdout
    assert "forgotten" in done.stdout


def test_a_task_that_a_fixture_ends_is_no_leak(tmp_path):
    done = run_pytest(
        tmp_path,
        "import asyncio, pytest\n"
        "@pytest.fixture\n"
        "async def ticking():\n"
        "    task = asyncio.create_task(asyncio.sleep(60))\n"
        "    yield task\n"
        "    task.cancel()\n"
        "async def test_it(ticking):\n"
        "    assert not ticking.done()\n",
    )
    assert done.returncode == 0, done.stdout


def test_a_missing_server_fails_the_test_and_names_the_mend(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    source = (
        "from tests.servers import Redis\n"
        "def test_it(redis_url, monkeypatch):\n"
        "    pass\n"
        "Redis.program = 'redis-server-of-tomorrow'\n"
    )
    done = run_pytest(tmp_path, source)
    assert done.returncode == 1
    assert "redis-server-of-tomorrow is not installed" in done.stdout
    assert "apt-get install" in done.stdout
    left_out = run_pytest(tmp_path, source, "--without", "servers", "-rs")
    assert left_out.returncode == 0
    assert "--without servers" in left_out.stdout


def test_servers_end_when_the_test_process_is_killed(tmp_path):
    script = (
        "import sys, time\n"
        "from tests.servers import Redis\n"
        "server = Redis()\n"
        "server.start()\n"
        "print(server.process.pid, server.directory, flush=True)\n"
        "time.sleep(60)\n"
    )
    owner = subprocess.Popen([sys.executable, "-c", script], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    with owner:
        pid, directory = owner.stdout.readline().split()
        os.kill(owner.pid, signal.SIGKILL)
    wait_until(lambda: gone(int(pid)), what="the end of redis-server")
    wait_until(lambda: not Path(directory).exists(), what="the removal of its directory")


def test_a_killed_process_group_is_gone_when_kill_returns(tmp_path):
    pids = tmp_path / "pids"
    script = f"sleep 60 & echo $! $$ > {pids}.new; mv {pids}.new {pids}; wait"
    process = Leashed(["sh", "-c", script], log=tmp_path / "log")
    wait_until(pids.exists)
    process.kill()
    assert all(not Path(f"/proc/{pid}").exists() for pid in pids.read_text().split())
    process.close()


def test_what_has_left_the_group_survives_a_kill_but_not_the_end_of_the_test(tmp_path):
    pid_file = tmp_path / "pid"
    script = f"setsid sh -c 'echo $$ > {pid_file}.new; mv {pid_file}.new {pid_file}; exec sleep 60' & wait"
    process = Leashed(["sh", "-c", script], log=tmp_path / "log")
    wait_until(pid_file.exists)
    job = Path("/proc", pid_file.read_text().strip())
    process.kill()
    assert job.exists()
    process.close()
    assert not job.exists()


def test_the_exit_status_of_a_leashed_process_is_told(tmp_path):
    process = Leashed(["sh", "-c", "echo out; echo err >&2; exit 7"], log=tmp_path / "log")
    assert process.wait() == 7
    assert process.tail() == "out\nerr\n"
    process.close()


async def test_every_test_has_a_broker_of_its_own(amqp_url, rabbit_server):
    with rabbit_server.vhost() as other_url:
        assert other_url != amqp_url
        async with await aio_pika.connect(amqp_url) as mine, await aio_pika.connect(other_url) as other:
            await (await mine.channel()).declare_queue("q", durable=True)
            await (await other.channel()).declare_queue("q", exclusive=True)  # refused if it were the same one


async def test_a_killed_broker_comes_back_on_its_port_with_durable_data(amqp_url, rabbit_server: Rabbit):
    async with await aio_pika.connect(amqp_url) as connection:
        channel = await connection.channel()
        await channel.declare_queue("kept", durable=True)
        message = aio_pika.Message(b"x", delivery_mode=aio_pika.DeliveryMode.PERSISTENT)
        await channel.default_exchange.publish(message, "kept")
        await asyncio.to_thread(rabbit_server.settle)
        await asyncio.to_thread(rabbit_server.kill)
    await asyncio.to_thread(rabbit_server.start)
    async with await aio_pika.connect(amqp_url) as connection:
        queue = await (await connection.channel()).declare_queue("kept", passive=True)
        assert (await queue.get()).body == b"x"


async def test_a_killed_redis_comes_back_with_its_data(redis_server: Redis):
    async with redis.asyncio.from_url(redis_server.url) as client:
        await client.set("k", "v")
    redis_server.restart()
    async with redis.asyncio.from_url(redis_server.url) as client:
        assert await client.get("k") == b"v"


async def test_redis_is_empty_whatever_the_test_before_left_there(redis_url):
    async with redis.asyncio.from_url(redis_url) as client:
        assert await client.dbsize() == 0
        await client.set("left", "behind")


def test_the_reference_implementation_is_there(reference):
    assert reference.classad.ClassAd("[a = 1 + 1]").eval("a") == 2


@pytest.mark.parametrize(
    ("said", "first"), [("32768\t60999", 20000), ("1024\t65535", 20001), ("1025 65535", 20000), ("20001 25000", 20000)]
)
def test_ports_of_servers_are_none_that_outgoing_connections_get(said, first):
    ports = ports_for_servers(said)
    assert ports[0] == first
    assert len(ports) in (6000, 12000)
    assert (len(ports) == 12000) == said.startswith("3")


def test_a_port_is_given_to_one_only_and_its_server_may_bind_it(monkeypatch):
    monkeypatch.setattr(servers, "PORTS", range(20101, 20109))
    given = {servers.free_port() for _ in range(3)}
    assert len(given) == 3
    for port in given:
        with socket.socket() as server:
            server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            server.bind(("127.0.0.1", port))
            server.listen()
            with socket.create_connection(("127.0.0.1", port)):
                pass
