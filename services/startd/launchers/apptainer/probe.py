"""Does the container runtime of this machine work? Tried with an image of our own: an empty tree, into which the
machine's programs are mounted; as a directory, and as one file (SNG-01)."""

from __future__ import annotations

import asyncio
import os
import shutil
import stat
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from services.startd.launchers.api import Account, Finished, Launch, LaunchFailed
from services.startd.launchers.apptainer.launcher import ApptainerLauncher
from services.startd.launchers.apptainer.plan import Plan, last_words
from services.startd.launchers.process import read_end

#: Longest version, test run or making of an image, seconds.
STEP_S = 120.0
#: What the test container ends with: nothing else does by chance.
EXPECTED = 37
_MOUNTED = ("/bin", "/lib", "/lib64", "/usr")
_EMPTY = ("dev", "proc", "sys", "tmp", "etc", "root", "var/tmp", "run")


@dataclass(frozen=True, slots=True)
class Found:
    """version: as the runtime prints it; empty when there is no runtime. trouble: why it runs nothing."""

    version: str = ""
    sandbox: bool = False  # it runs images that are directories
    sif: bool = False  # it runs images that are files
    trouble: str = ""

    @property
    def works(self) -> bool:
        return self.sandbox or self.sif


class Probe:
    """directory: where its image is made. account: whose the jobs' processes are."""

    def __init__(self, launcher: ApptainerLauncher, directory: Path, account: Account | None = None) -> None:
        self.launcher = launcher
        self.directory = directory
        self.account = account
        self._count = 0

    async def __call__(self) -> Found:
        program = self.launcher.program()
        if not program:
            return Found()
        try:
            await asyncio.to_thread(self._furnish)
            end, said = await self._run(program, ["--version"])
            version = next((line.strip() for line in said.splitlines() if line.strip()), "")
            if end.exit_code != 0 or not version:
                return Found(version="unknown", trouble=f"{program} --version: {_told(end, said)}")
            trouble = await self._try(program, self.directory / "image")
            no_sif = await self._sif(program)
        except (LaunchFailed, OSError) as error:
            return Found(version="unknown", trouble=f"{program}: {error}")
        finally:
            await asyncio.to_thread(shutil.rmtree, self.directory, ignore_errors=True)
        if trouble and no_sif:
            return Found(version, trouble=f"directory: {trouble}; file: {no_sif}")
        return Found(version, sandbox=not trouble, sif=not no_sif, trouble=trouble or no_sif)

    async def _sif(self, program: str) -> str:
        """Why files can not be run; empty when they can."""
        image = self.directory / "image.sif"
        end, said = await self._run(program, ["-s", "build", "--force", str(image), str(self.directory / "image")])
        if end.exit_code != 0:
            return f"no image to try it with could be made: {_told(end, said)}"
        return await self._try(program, image)

    async def _try(self, program: str, image: Path) -> str:
        options = ["-s", "exec", *_binds(), "--no-home", "-C", str(image)]
        end, said = await self._run(program, [*options, "/bin/sh", "-c", f"exit {EXPECTED}"])
        return "" if end.exit_code == EXPECTED else _told(end, said)

    async def _run(self, program: str, arguments: Sequence[str]) -> tuple[Finished, str]:
        """Through the jobs' own launcher: with the same walls, and nothing of it is left. Raises LaunchFailed."""
        self._count += 1
        name, said = f"apptainer-probe#{self._count}", self.directory / f"said-{self._count}"
        launch = Launch(
            run=name,
            executable=program,
            argv=(program, *arguments),
            env={
                "PATH": self.launcher.path(),
                "LANG": "C.UTF-8",
                "APPTAINER_TMPDIR": str(self.directory),
                "SINGULARITY_TMPDIR": str(self.directory),
                "APPTAINER_CACHEDIR": str(self.directory / "cache"),
                "SINGULARITY_CACHEDIR": str(self.directory / "cache"),
            },
            cwd=str(self.directory),
            stdin="",
            stdout=str(said),
            stderr=str(said),
            scratch=self.directory,
            cpus=1.0,
            memory_mib=1024,
            slot="probe",
            account=self.account,
            container=Plan(str(self.directory)),
        )
        processes = self.launcher.processes
        await processes.start(launch)
        try:
            async with asyncio.timeout(STEP_S):
                end = await processes.finished(name)
        except TimeoutError:
            end = Finished(0.0, 0.0, trouble=f"it was not done after {STEP_S:g} s")
        finally:
            await self.launcher.end(name)
        return end, await asyncio.to_thread(read_end, str(said), 0)

    def _furnish(self) -> None:
        shutil.rmtree(self.directory, ignore_errors=True)
        image = self.directory / "image"
        for part in (*_EMPTY, *(path.lstrip("/") for path in _MOUNTED)):
            (image / part).mkdir(parents=True, exist_ok=True)
        for name in ("etc/passwd", "etc/group", "etc/hosts", "etc/localtime", "etc/resolv.conf"):
            (image / name).touch()
        if self.account is not None:
            for folder, folders, files in os.walk(self.directory):
                for name in (*folders, *files):
                    os.chown(os.path.join(folder, name), self.account.uid, self.account.gid, follow_symlinks=False)
            os.chown(self.directory, self.account.uid, self.account.gid)
        self.directory.chmod(stat.S_IRWXU)


def _binds() -> list[str]:
    return [word for path in _MOUNTED if os.path.exists(path) for word in ("-B", path)]


def _told(end: Finished, said: str) -> str:
    if end.exit_code is None and end.exit_signal is None:
        return end.trouble
    how = f"exit status {end.exit_code}" if end.exit_code is not None else f"signal {end.exit_signal}"
    words = last_words(said)
    return f"{how}: {words}" if words else how
