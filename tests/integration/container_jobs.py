"""Startds that run jobs on a real Docker engine: what their tests share."""

import asyncio
import contextlib
import os
from pathlib import Path

from docker.errors import APIError

from services.startd.exec.docker.engine import EngineAway, EngineRefused
from services.startd.exec.docker.plan import STARTD_LABEL
from shared.classad import ClassAd
from tests.startd_pool import Pool
from tests.waiting import eventually

IMAGE = "debian:bookworm-slim"
#: Of a loaded machine: starts of containers take their time there.
PATIENCE_S = 120
USER = os.getuid() or 65534


def use_engine(docker_engine, monkeypatch):
    """The engine, as what startds of this test find."""
    docker_engine.image(IMAGE)
    monkeypatch.setenv("DOCKER_HOST", docker_engine.url)
    return docker_engine


@contextlib.asynccontextmanager
async def running_pool(path, **macros):
    """A startd that offers Docker. Its containers are gone at the end."""
    path.chmod(0o755)
    # Most tests need no test of the engine before them.
    async with Pool(path, **{"ROOST_DOCKER": "true", "DOCKER_PERFORM_TEST": "false"} | macros) as pool:
        await eventually(lambda: machine(pool).eval("HasDocker") is True, PATIENCE_S)
        try:
            yield pool
        finally:
            if pool.startd is not None:
                for record in pool.startd.shared.journal_writer.journal.load("runs").values():
                    await launcher(pool).forget(record["name"])
                # Those that the startd is about to remove, too: what is left would have its watcher wait for long.
                with contextlib.suppress(EngineAway, EngineRefused):
                    await launcher(pool)._engine.ask(lambda api: remove_all(api, launcher(pool).startd))


def remove_all(api, startd):
    for found in api.containers(all=True, filters={"label": f"{STARTD_LABEL}={startd}"}):
        with contextlib.suppress(APIError):  # the startd was quicker
            api.remove_container(found["Id"], force=True, v=True)


def launcher(pool):
    return pool.startd.shared.launchers["docker"]


def machine(pool, slot="slot1@node1"):
    return pool.startd.shared.runs.machine_ad(slot)


def containers(engine, pool):
    label = f"{STARTD_LABEL}={launcher(pool).startd}"
    return engine.client.containers.list(all=True, sparse=True, ignore_removed=True, filters={"label": label})


async def start(pool, files, text=None, **attrs):
    """Claim the slot and start a job with this shell script; the activation and the startd's answer."""
    job = {"WantDocker": True, "DockerImage": IMAGE, "Out": "out", "Err": "err", "Iwd": "/nowhere", "cmd": "job.sh"}
    if text is not None:
        (files.input / "condor_exec.exe").write_text(f"#!/bin/sh\n{text}\n")
    activation = pool.activation(url=files.url, **job | attrs)
    return activation, await pool.call(pool.request(activation))


async def end_of(pool, activation):
    return await pool.schedd.end_of(activation.job_id, timeout=PATIENCE_S)


async def run(pool, files, text=None, **attrs):
    """Start a job and wait for its end: the last report."""
    activation, _ = await start(pool, files, text, **attrs)
    return await end_of(pool, activation)


async def up(pool, name="up"):
    """Wait for a file in the scratch directory of the one job that runs; its path."""
    return (await eventually(lambda: list(pool.execute.glob(f"dir_*/{name}")), PATIENCE_S))[0]


def told(pool, activation, name):
    """The last value of an attribute that the startd told of a job."""
    value = None
    for report in pool.schedd.reports:
        if report.job_id == activation.job_id and report.updates:
            found = ClassAd.unpack(report.updates).eval(name)
            value = found if isinstance(found, str | int | float) else value
    return value


class Proxy:
    """A way to the engine that can be cut, as if the engine went away. cut: nobody answers; mend: it does again."""

    def __init__(self, url: str, path: Path) -> None:
        self.target = url.removeprefix("unix://")
        self.path = path
        self.url = f"unix://{path}"
        self._pipes: set[asyncio.Task] = set()
        self._server = None

    async def __aenter__(self):
        await self.mend()
        return self

    async def __aexit__(self, *exc):
        await self.cut()

    async def mend(self):
        self._server = await asyncio.start_unix_server(self._serve, self.path)

    async def cut(self):
        if self._server is None:
            return
        self._server.close()
        self.path.unlink(missing_ok=True)
        for pipe in list(self._pipes):
            pipe.cancel()
        await asyncio.gather(*self._pipes, return_exceptions=True)
        self._server = None

    async def _serve(self, reader, writer):
        task = asyncio.current_task()
        self._pipes.add(task)
        try:
            there, back = await asyncio.open_unix_connection(self.target)
            try:
                await asyncio.gather(self._pipe(reader, back), self._pipe(there, writer))
            finally:
                back.close()
        except (OSError, asyncio.CancelledError):
            pass  # cut
        finally:
            writer.close()
            self._pipes.discard(task)

    async def _pipe(self, reader, writer):
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()
        if writer.can_write_eof():
            writer.write_eof()
