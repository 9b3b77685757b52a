"""The fork server alone, with real processes."""

import asyncio
import os
import signal
import sys
import time

import psutil
import pytest

from services.startd import forkserver
from services.startd.forkserver.client import ForkServer, SpawnFailed
from services.startd.forkserver.nanny import LOOK_GROWTH
from services.startd.forkserver.server import AFTER_LEASE_S
from tests import nannies
from tests.spec import spec
from tests.waiting import eventually


def request(*argv, **fields):
    return {
        "executable": argv[0],
        "argv": list(argv),
        "env": {},
        "cwd": "/",
        "stdin": "",
        "stdout": "",
        "stderr": "",
    } | fields


@pytest.fixture(autouse=True, params=nannies.KINDS)
def kind(request, monkeypatch):
    return nannies.use_nannies(request.param, monkeypatch)


@pytest.fixture
async def server(tmp_path, kind):
    server = ForkServer(tmp_path, orphan_s=600, now=time.time)
    await server.start()
    assert server.native == (kind == "native"), server.why_not
    yield server
    await server.stop(end_server=True)


@spec("ISO-21")
async def test_a_job_is_bound_to_its_cores(tmp_path, server):
    core = max(os.sched_getaffinity(0))
    told = tmp_path / "told"
    script = "import os; print(sorted(os.sched_getaffinity(0)))"
    await server.spawn("one", request(sys.executable, "-c", script, stdout=str(told), cores=[core]))
    assert (await server.end_of("one")).status == 0
    assert told.read_text() == f"[{core}]\n"
    with pytest.raises(SpawnFailed) as failed:
        await server.spawn("two", request("/bin/true", cores=[4000]))
    assert failed.value.what == "cores"


def test_frames_survive_any_cut():
    frames = [{"op": "x", "n": n, "text": "ü" * n} for n in range(50)]
    stream = b"".join(map(forkserver.pack, frames))
    for size in (1, 3, 7, 1000):
        reader = forkserver.Frames()
        found = [f for at in range(0, len(stream), size) for f in reader.feed(stream[at : at + size])]
        assert found == frames


def test_a_stream_that_is_no_frames_is_refused():
    with pytest.raises(ValueError):
        forkserver.Frames().feed(b"\xff\xff\xff\xff")


async def test_exit_status_and_usage_come_back(server):
    process = await server.spawn("one", request("/bin/sh", "-c", "exit 7"))
    end = await server.end_of("one")
    assert (end.status, end.started_at) == (7 << 8, process.started_at)
    assert end.at >= process.started_at
    assert end.max_rss_kib > 0


async def test_memory_of_all_processes_is_told_where_no_cgroup_counts_it(tmp_path, server):
    """The largest one alone has a third of it. The nanny looks ever less often: so the job goes on until a look is due,
    and until the nanny has done something after that."""
    held = 30 * 2**20
    (tmp_path / "hold").mkdir()
    go = f"while [ ! -e {tmp_path}/hold/go ]; do sleep 0.05; done"
    hold = f"{{ head -c {held} /dev/zero; echo > {tmp_path}/hold/up.$i; {go}; }} | tail -c {held} > /dev/null &"
    script = f"trap 'echo > {tmp_path}/hold/seen' USR1; for i in 1 2 3; do {hold} done; {go}; wait"
    began = time.monotonic()
    await server.spawn("one", request("/bin/sh", "-c", script))
    await eventually(lambda: len(list((tmp_path / "hold").glob("up.*"))) == 3)
    ready = time.monotonic()
    await eventually(lambda: time.monotonic() > ready + LOOK_GROWTH * (ready - began) + 3.0)
    server.signal("one", signal.SIGUSR1)
    await eventually((tmp_path / "hold" / "seen").exists)
    (tmp_path / "hold" / "go").touch()
    end = await server.end_of("one")
    assert end.status == 0
    assert end.max_rss_kib * 1024 > 3 * held


async def test_a_start_that_fails_names_its_step(server):
    for fields, what in (({}, "exec"), ({"cwd": "/no/such"}, "cwd"), ({"stdin": "/no/such"}, "stdin")):
        with pytest.raises(SpawnFailed) as failed:
            await server.spawn(what, request("/no/such/program", **fields))
        assert (failed.value.what, failed.value.errno) == (what, 2)


async def test_results_wait_for_the_next_client_until_they_are_forgotten(tmp_path, server):
    await server.spawn("one", request("/bin/sh", "-c", "exit 3"))
    await server.end_of("one")
    await server.stop(end_server=False)
    second = ForkServer(tmp_path, orphan_s=600, now=time.time)
    await second.start()
    assert (await second.end_of("one")).status == 3 << 8
    second.forget("one")
    await eventually(lambda: not list((tmp_path / "results").iterdir()))
    await second.stop(end_server=True)


async def test_result_that_nobody_acknowledges_outlives_the_server(tmp_path, server):
    await server.spawn("one", request("/bin/sh", "-c", "exit 3"))
    await server.end_of("one")
    await eventually(lambda: list((tmp_path / "results").iterdir()))
    await server.stop(end_server=True)
    second = ForkServer(tmp_path, orphan_s=600, now=time.time)
    await second.start()
    assert (await second.end_of("one")).status == 3 << 8
    await second.stop(end_server=True)


async def test_a_server_that_is_left_alone_ends_with_its_jobs(tmp_path):
    server = ForkServer(tmp_path, orphan_s=0.3, now=time.time)
    await server.start()
    process = await server.spawn("one", request("/bin/sleep", "1000"))
    await server.stop(end_server=False)
    await eventually(lambda: not psutil.pid_exists(process.pid))
    await eventually(lambda: not (tmp_path / "socket").exists())


async def test_a_server_of_an_older_version_keeps_its_jobs_and_goes_with_them(tmp_path):
    """It asks for no proof, and tells its state at once."""
    job = {"run": "old", "pid": 4711, "nanny": 4710, "at": 1.0, "uid": -1, "tracking_gid": 0, "group": ""}
    told, heard, warned = [job], [], []

    async def serve(reader, writer):
        writer.write(forkserver.pack({"op": "state", "pid": 4709, "running": told, "ended": []}))
        frames = forkserver.Frames()
        while data := await reader.read(1 << 16):
            for frame in frames.feed(data):
                heard.append(frame["op"])
                if frame["op"] == "exit":
                    old.close()
                    (tmp_path / "socket").unlink()
        writer.close()

    old = await asyncio.start_unix_server(serve, tmp_path / "socket")
    server = ForkServer(
        tmp_path, orphan_s=600, now=time.time, warn=lambda event, **about: warned.append((event, about["jobs"]))
    )
    await server.start()
    assert server.outdated
    assert server.running["old"].pid == 4711
    assert warned == [("fork_server_outdated", 1)]
    server.running.clear()  # as when the end of its last job was told
    process = await server.spawn("new", request("/bin/sh", "-c", "exit 3"))
    assert not server.outdated
    assert heard == ["exit"]
    assert process.pid != 4711
    assert (await server.end_of("new")).status == 3 << 8
    await server.stop(end_server=True)
    await old.wait_closed()


@spec("LEA-02")
async def test_a_run_whose_lease_passes_is_killed_without_a_startd(tmp_path, server):
    """With all that it started; others go on, and the next startd hears why it ended."""
    tree = "setsid sh -c 'sleep 1000 & echo $! > $0; wait' $0 & wait"
    child = tmp_path / "child"
    overdue = await server.spawn("overdue", request("/bin/sh", "-c", tree, str(child)), lease_s=1000.0)
    kept = await server.spawn("kept", request("/bin/sleep", "1000"), lease_s=1.0)
    free = await server.spawn("free", request("/bin/sleep", "1000"))
    await eventually(lambda: child.exists() and child.read_text().strip())
    server.lease({"kept": 1000.0, "overdue": 0.1, "unknown": 0.0})
    await server.stop(end_server=False)
    for pid in (overdue.pid, int(child.read_text())):
        await eventually(lambda pid=pid: not psutil.pid_exists(pid))
    second = ForkServer(tmp_path, orphan_s=600, now=time.time)
    await second.start()
    end = await second.end_of("overdue")
    assert (end.lease_over, os.WTERMSIG(end.status)) == (True, signal.SIGKILL)
    assert set(second.running) == {"kept", "free"}
    assert psutil.pid_exists(kept.pid)
    assert psutil.pid_exists(free.pid)
    await second.stop(end_server=True)


@spec("LEA-02")
async def test_a_lease_that_passed_can_not_be_renewed(server):
    await server.spawn("one", request("/bin/sleep", "1000"), lease_s=-AFTER_LEASE_S)
    server.lease({"one": 1000.0})
    assert (await server.end_of("one")).lease_over


async def test_a_nanny_that_does_not_kill_its_job_is_killed_with_it(tmp_path):
    server = ForkServer(tmp_path, orphan_s=600, now=time.time, killing_timeout_s=lambda: 0.2)
    await server.start()
    try:
        process = await server.spawn("one", request("/bin/sleep", "1000"))
        os.kill(process.nanny, signal.SIGSTOP)
        server.kill("one")
        end = await server.end_of("one")
        assert (end.status, end.lease_over) == (None, False)
        await eventually(lambda: not psutil.pid_exists(process.pid))
    finally:
        await server.stop(end_server=True)
