"""Pools whose startd is root and puts up walls, for tests of them: where other accounts can enter."""

import contextlib
import os
import shutil
import tempfile
from pathlib import Path

from tests.startd_pool import Endpoint, Machine, Pool

#: As make_context has it for all other tests, where nothing but root's files is at hand.
WALLS = {"ROOST_OWN_USERS": ""}
NOBODY = 65534


@contextlib.contextmanager
def open_directory(parent: str | None = None):
    """A directory that every account can enter. Whatever jobs did to it, it goes."""
    path = Path(tempfile.mkdtemp(prefix="roost-walls-", dir=parent))
    path.chmod(0o755)
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


class IsolatedPool:
    """A pool, and jobs that are shell scripts with file transfer."""

    def __init__(self, path: Path, machine: Machine | None = None, **knobs) -> None:
        path.mkdir(exist_ok=True)
        self.path = path
        self.pool = Pool(path, machine, **(WALLS | knobs))
        self._jobs = 0
        self._stack = contextlib.AsyncExitStack()

    async def __aenter__(self):
        await self._stack.enter_async_context(self.pool)
        return self

    async def __aexit__(self, *exc):
        await self._stack.aclose()

    @property
    def startd(self):
        return self.pool.startd

    @property
    def execute(self):
        return self.path / "execute"

    async def begin(self, script: str, files=None, claim=None, **attrs):
        """Start a job; its id and the endpoint that gets its output."""
        self._jobs += 1
        folder = self.path / f"access-{self._jobs}"
        folder.mkdir(mode=0o700)
        endpoint = await self._stack.enter_async_context(Endpoint(folder))
        for name, content in {"script.sh": script, **(files or {})}.items():
            (endpoint.input / name).write_text(content)
        attrs = {
            "Arguments": "script.sh",
            "TransferExecutable": False,
            "Out": "out",
            "Err": "err",
            "ShouldTransferFiles": "YES",
            "WhenToTransferOutput": "ON_EXIT",
        } | attrs
        activation = self.pool.activation(cmd="/bin/sh", url=endpoint.url, **attrs)
        answer = await self.pool.call(self.pool.request(activation))
        assert answer.type == "claim.granted", answer
        return activation.job_id, endpoint

    async def run(self, script: str, files=None, **attrs):
        """Run a job to its end: the report, and what it printed (None: it could not be sent)."""
        job_id, endpoint = await self.begin(script, files, **attrs)
        report = await self.pool.schedd.end_of(job_id)
        out = endpoint.output / "_condor_stdout"
        return report, out.read_text(errors="replace") if out.exists() else None

    async def running(self, job_id):
        return await self.pool.running(job_id)

    def run_of(self, job_id):
        return next(run for run in self.startd.shared.runs.by_key.values() if run.record.job_id == job_id)

    def scratch_of(self, job_id) -> Path:
        return self.run_of(job_id).scratch


def has_cgroups(pool: IsolatedPool) -> bool:
    """Whether jobs get cgroups there: a test that goes without them must not have any."""
    return bool(pool.startd.shared.isolation.cgroups.hierarchies)


def alive(pid: int) -> bool:
    """Whether a process is there and no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def is_root() -> bool:
    return os.geteuid() == 0
