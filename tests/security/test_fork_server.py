"""Who may command the fork server: its startd, and no job, whatever account both have."""

import asyncio
import contextlib
import os
import signal
import socket
import sys
import time
from pathlib import Path

import pytest

from services.startd import forkserver
from services.startd.forkserver import proof
from services.startd.forkserver.client import ForkServer
from tests import nannies
from tests.integration.isolated_pool import alive
from tests.waiting import eventually

#: A job that does all it can to be taken for the startd: it knows the secret, and how to use it.
ATTACK = """
import os, socket, sys
sys.path.insert(0, {root!r})
from services.startd.forkserver import proof
from services.startd.forkserver.frames import Frames, pack
link = socket.socket(socket.AF_UNIX)
link.settimeout(20)
link.connect({folder!r} + "/socket")
said, frames = "", Frames()
try:
    while not said.endswith("state"):
        data = link.recv(65536)
        if not data:
            break
        for frame in frames.feed(data):
            said = said + " " + frame["op"]
            if frame["op"] == "prove":
                secret = open({folder!r} + "/secret", "rb").read()
                mac = proof.mac(secret, "client", bytes.fromhex(frame["nonce"]))
                link.sendall(pack({{"op": "proof", "nonce": "00" * 32, "mac": mac}}))
except OSError as error:
    said += f" {{error}}"
try:
    link.sendall(pack({{"op": "spawn", "run": "evil", "executable": "/bin/touch", "argv": ["touch", {made!r}],
        "env": {{}}, "cwd": "/", "stdin": "", "stdout": "", "stderr": ""}}))
    link.recv(65536)
except OSError as error:
    said += f" {{error}}"
open({out!r}, "w").write(said + " end")
"""


def request(*argv, **fields):
    streams = {"stdin": "", "stdout": "", "stderr": ""}
    return {"executable": argv[0], "argv": list(argv), "env": {}, "cwd": "/"} | streams | fields


@pytest.fixture(autouse=True, params=nannies.KINDS)
def kind(request, monkeypatch):
    return nannies.use_nannies(request.param, monkeypatch)


@pytest.fixture
async def server(tmp_path, kind):
    folder = tmp_path / "server"
    folder.mkdir(mode=0o700)
    server = ForkServer(folder, orphan_s=600, now=time.time)
    await server.start()
    assert server.native == (kind == "native"), server.why_not
    yield server
    await server.stop(end_server=True)


def bare(server) -> socket.socket:
    link = socket.socket(socket.AF_UNIX)
    link.connect(str(server.directory / "socket"))
    return link


async def works(server, run="again") -> None:
    await server.spawn(run, request("/bin/sh", "-c", "exit 5"))
    assert (await server.end_of(run)).status == 5 << 8
    server.forget(run)


async def test_a_job_can_not_command_it_even_with_its_secret(tmp_path, server):
    """Whatever a job starts is below the server, and nothing below it is believed."""
    out, made = tmp_path / "out", tmp_path / "made"
    victim = await server.spawn("victim", request("/bin/sleep", "1000"))
    root = str(Path(__file__).parents[2])
    code = ATTACK.format(root=root, folder=str(server.directory), out=str(out), made=str(made))
    # Also what left the session and was given away by its parent: the server is the parent of all orphans.
    await server.spawn("job", request("/bin/sh", "-c", f'exec "{sys.executable}" -c "$CODE"', env={"CODE": code}))
    assert (await server.end_of("job")).status == 0
    said = out.read_text()
    assert said.endswith(" end")
    assert "proved" not in said
    assert "state" not in said
    escape = f'setsid sh -c \'setsid "{sys.executable}" -c "$CODE" & exit\'; while [ ! -e {out} ]; do sleep 0.02; done'
    out.unlink()
    await server.spawn("escaped", request("/bin/sh", "-c", escape, env={"CODE": code, "PATH": os.defpath}))
    assert (await server.end_of("escaped")).status == 0
    await eventually(lambda: out.read_text().endswith(" end"))
    assert "state" not in out.read_text()
    assert not made.exists()
    assert alive(victim.pid)
    assert "victim" in server.running
    await works(server)


async def test_who_does_not_know_the_secret_is_not_heard(tmp_path, server):
    victim = await server.spawn("victim", request("/bin/sleep", "1000"))
    made = tmp_path / "made"
    evil = {"op": "spawn", "run": "evil"} | request("/bin/touch", str(made))
    words = [
        forkserver.pack(evil),
        forkserver.pack({"op": "proof", "nonce": "00" * 32, "mac": "0" * 64}) + forkserver.pack(evil),
        forkserver.pack({"op": "proof", "nonce": "xyz", "mac": 7}),
        forkserver.pack({"op": "exit"}),
        b"\0\0\0\2[]",
        b"\0\0\0\1[" + b"[" * 900,
        b"\0\0\2\0" + b"[" * 512,
        b"\xff\xff\xff\xff",
        b"GET / HTTP/1.1\r\n\r\n",
        b"x" * 5000,
        b"",
    ]
    for said in words:
        with bare(server) as link:
            link.sendall(said)
            link.shutdown(socket.SHUT_WR)
            link.setblocking(False)
            heard = b""
            with contextlib.suppress(ConnectionError):
                while data := await asyncio.get_running_loop().sock_recv(link, 65536):
                    heard += data
        assert b'"state"' not in heard, said
    assert not made.exists()
    assert alive(victim.pid)
    assert server.running["victim"].pid == victim.pid
    await works(server)


async def test_callers_without_end_keep_no_startd_out(server):
    """Bare connections neither end the startd's, nor do they keep the next startd from its jobs."""
    victim = await server.spawn("victim", request("/bin/sleep", "1000"))
    links = []
    for _ in range(100):
        links.append(await asyncio.to_thread(bare, server))
    await works(server)
    await server.stop(end_server=False)
    second = ForkServer(server.directory, orphan_s=600, now=time.time)
    await second.start()
    try:
        assert second.running["victim"].pid == victim.pid
        await works(second)
    finally:
        await second.stop(end_server=True)
        for link in links:
            link.close()


async def test_a_startd_does_not_obey_a_false_server(tmp_path, server):
    """Somebody who answers in the directory, and knows no secret, is not told it and gets no jobs."""
    await server.stop(end_server=True)
    await eventually(lambda: not (server.directory / "socket").exists())
    (server.directory / "secret").write_bytes(b"s" * 32)
    heard = []

    async def play(reader, writer):
        writer.write(forkserver.pack({"op": "prove", "nonce": "11" * 32}))
        heard.append(await reader.read(1 << 16))
        writer.write(forkserver.pack({"op": "proved", "mac": "0" * 64}))
        writer.write(forkserver.pack({"op": "state", "pid": 1, "running": [], "ended": []}))
        await writer.drain()
        writer.close()
        await writer.wait_closed()

    false = await asyncio.start_unix_server(play, server.directory / "socket")
    second = ForkServer(server.directory, orphan_s=600, now=time.time)
    await second.start()
    try:
        assert heard
        assert b"s" * 32 not in b"".join(heard)
        assert second.pid != 1
        await works(second)
    finally:
        await second.stop(end_server=True)
        false.close()
        await false.wait_closed()


async def test_the_secret_is_its_owners_and_new_with_each_server(server):
    path = server.directory / "secret"
    first = path.read_bytes()
    assert (path.stat().st_mode & 0o777, len(first)) == (0o600, proof.SECRET_BYTES)
    await server.stop(end_server=True)
    second = ForkServer(server.directory, orphan_s=600, now=time.time)
    await second.start()
    assert path.read_bytes() != first
    await second.stop(end_server=True)


async def test_a_run_is_not_lost_while_its_server_lives(server):
    """A connection that breaks is made again; nothing is declared lost that runs."""
    process = await server.spawn("one", request("/bin/sh", "-c", "sleep 0.5; exit 9"))
    pid = server.pid
    ended = asyncio.create_task(server.end_of("one"))
    server._writer.transport.abort()
    end = await ended
    assert (end.status, end.started_at) == (9 << 8, process.started_at)
    assert server.pid == pid
    await works(server)


async def test_a_job_to_be_killed_is_killed_over_a_broken_connection(server):
    process = await server.spawn("one", request("/bin/sleep", "1000"))
    server._writer.transport.abort()
    server.kill("one")
    assert os.WTERMSIG((await server.end_of("one")).status) == signal.SIGKILL
    assert not alive(process.pid)


@pytest.mark.parametrize("slow", [False, True], ids=["at once", "stopped nannies"])
async def test_when_a_run_is_declared_lost_none_of_its_processes_is_left(tmp_path, server, slow):
    pids = tmp_path / "pids"
    script = f"for i in 1 2 3; do setsid sleep 1000 & echo $! >> {pids}; done; touch {pids}.ready; exec sleep 1000"
    process = await server.spawn("one", request("/bin/sh", "-c", script, env={"PATH": os.defpath}))
    await eventually(Path(f"{pids}.ready").exists)
    family = [process.pid, *map(int, pids.read_text().split())]
    if slow:
        os.kill(process.nanny, signal.SIGSTOP)
    os.kill(server.pid, signal.SIGKILL)
    end = await server.end_of("one")
    assert end.status is None
    assert not any(alive(pid) for pid in family)
    await works(server)
