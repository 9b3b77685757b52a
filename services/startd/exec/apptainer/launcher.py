"""Runs jobs in containers of Apptainer or Singularity. The container is a process tree like a plain job's: it is
started by the process launcher, with the same isolation, measured, signalled, killed and adopted as that does it.

What is added: the command line (`plan`), the image's test before the job, and a look at runs that ended with the
runtime's own refusal, which is no end of the job's.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import stat
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Literal

from services.startd.core.run.failures import LONGEST_S, Fault, Health, RunFailed
from services.startd.core.run.job_launch import Account, Finished, Launch, Started
from services.startd.exec.api import LOOPBACK, LauncherHost, LauncherKind
from services.startd.exec.apptainer.plan import (
    REFUSED,
    ApptainerPlan,
    ApptainerSettings,
    Around,
    Command,
    choose_apptainer,
    image_path,
    is_about_program,
    last_words,
    make_command,
    read_apptainer_settings,
    refusal,
)
from services.startd.exec.process_based import ProcessBasedLauncher, read_end
from services.startd.isolation import scratch_dirs
from shared.classad import ClassAd

#: A run without a standard error of its own that ends with the runtime's status so soon has its image tested once more,
#: seconds.
SOON_S = 60.0
#: What this launcher keeps in a scratch directory: images that were fetched, and what the image's test said.
HIDDEN = ".apptainer"
#: Longest version, test run or making of an image, seconds.
STEP_S = 120.0
#: What the test container ends with: nothing else does by chance.
EXPECTED = 37
_MOUNTED = ("/bin", "/lib", "/lib64", "/usr")
_EMPTY = ("dev", "proc", "sys", "tmp", "etc", "root", "var/tmp", "run")


@dataclass(frozen=True, slots=True)
class RuntimeFound:
    """version: as the runtime prints it; empty when there is no runtime. trouble: why it runs nothing."""

    version: str = ""
    sandbox: bool = False  # it runs images that are directories
    sif: bool = False  # it runs images that are files
    trouble: str = ""

    @property
    def works(self) -> bool:
        return self.sandbox or self.sif


@dataclass(frozen=True, slots=True)
class Note:
    """What must be known of a run when it has ended, also by another life of the startd."""

    executable: str
    stdout: str
    stderr: str
    out_from: int  # sizes of the two files before the start
    err_from: int

    def pack(self) -> str:
        return json.dumps([self.executable, self.stdout, self.stderr, self.out_from, self.err_from])

    @classmethod
    def unpack(cls, text: str) -> Note:
        return cls(*json.loads(text))


class ApptainerLauncher(ProcessBasedLauncher):
    def __init__(self, host: LauncherHost) -> None:
        assert host.processes is not None
        self.host = host
        self.context = host.context
        self.processes = host.processes
        self.notes = host.folder / "apptainer"
        self.found: RuntimeFound | None = None  # None: not tried yet
        self.health = Health()
        self._again = asyncio.Event()
        self._trying = asyncio.Lock()

    @property
    def rules(self) -> ApptainerSettings:
        """The knobs, as they are now."""
        found = self.host.settings("apptainer")
        assert isinstance(found, ApptainerSettings)
        return found

    # ---------------------------------------------------------------- the runtime

    def program(self) -> str:
        """The runtime's path: what SINGULARITY names, else what PATH has. Empty when there is none."""
        named = self.rules.program
        if shutil.which(named):
            return named
        return shutil.which("apptainer") or shutil.which("singularity") or ""

    @staticmethod
    def path() -> str:
        return os.environ.get("PATH") or os.defpath

    # ---------------------------------------------------------------- a run

    async def adopt(self, runs: set[str]) -> None:
        await super().adopt(runs)
        await asyncio.to_thread(self._sweep, {self._note_path(run).name for run in runs})

    def _sweep(self, kept: set[str]) -> None:
        if self.notes.is_dir():
            for path in self.notes.iterdir():
                if path.name not in kept:
                    path.unlink(missing_ok=True)

    async def reaches(self, launch: Launch) -> str:
        return LOOPBACK  # containers of this runtime have the machine's network

    async def prepare(self, launch: Launch) -> None:
        """The image is tested (SNG-08); one that must be fetched comes with that."""
        await self.processes.prepare(launch)
        if not self.program():
            raise Fault.RUNTIME_BROKEN.failure(f"there is no container runtime here: no {self.rules.program}")
        hidden = launch.scratch / HIDDEN
        hidden.mkdir(mode=0o700, exist_ok=True)
        if launch.account is not None:
            os.chown(hidden, launch.account.uid, launch.account.gid)
        if not self.rules.test_first:
            return
        failed = await self._test(launch)
        if failed:
            trouble = await self.trouble()
            if trouble:
                raise Fault.RUNTIME_BROKEN.failure(f"the container runtime of this machine does not work: {trouble}")
            raise Fault.BAD_IMAGE.failure(failed)

    async def start(self, launch: Launch) -> Started:
        command = await asyncio.to_thread(self._command, launch)
        note = Note(
            launch.executable,
            launch.stdout,
            launch.stderr,
            _size(launch.stdout) if launch.append else 0,
            _size(launch.stderr) if launch.append else 0,
        )
        self.notes.mkdir(mode=0o700, exist_ok=True)
        self._note_path(launch.run).write_text(note.pack())
        # SNG-09: always told, for whoever wants to try it by hand.
        self.context.log.info("about_to_exec", run=launch.run, command=" ".join(command.argv), skipped=command.skipped)
        try:
            return await self.processes.start(_as_process(launch, command))
        except RunFailed as error:
            self._note_path(launch.run).unlink(missing_ok=True)
            if error.code == Fault.NO_EXECUTABLE.code:
                # It is the runtime that could not be executed, not the job.
                raise Fault.RUNTIME_BROKEN.failure(
                    f"the container runtime can not be started: {error.message}"
                ) from error
            raise

    def _command(self, launch: Launch, *, test: bool = False) -> Command:
        around = Around(os.path.exists, _has_target)
        verb: Literal["exec", "test"] = "test" if test else "exec"
        return make_command(self.program(), verb, _plan_of(launch), launch, around, self.path())

    async def _test(self, launch: Launch) -> str:
        """What is wrong with the image; empty when its test passed. Raises RunFailed when it could not be run."""
        said = str(launch.scratch / HIDDEN / "test.log")
        command = await asyncio.to_thread(self._command, launch, test=True)
        name = f"{launch.run}#test"
        tested = replace(_as_process(launch, command), run=name, stdin="", stdout=said, stderr=said, append=False)
        image = image_path(_plan_of(launch), str(launch.scratch))
        try:
            await self._begin(tested)
            limit = self.rules.test_timeout
            try:
                async with asyncio.timeout(limit):
                    end = await self.processes.finished(name)
            except TimeoutError:
                return f"the test of image {image} was not done after {limit:g} s"
        finally:
            await self.end(name)
        if end.exit_code == 0:
            return ""
        if end.exit_code is None and end.exit_signal is None:
            raise Fault.PROCESS_LOST.failure(f"the test of the image was lost: {end.trouble}")
        words = last_words(await asyncio.to_thread(read_end, said, 0))
        status = f"exit status {end.exit_code}" if end.exit_code is not None else f"signal {end.exit_signal}"
        return f"the test of image {image} failed with {status}: {words or 'it said nothing'}"

    async def _begin(self, tested: Launch) -> None:
        """A start is never cancelled: half of it would leave a process that nobody knows."""
        starting = asyncio.ensure_future(self.processes.start(tested))
        try:
            await asyncio.shield(starting)
        except asyncio.CancelledError:
            await asyncio.wait({starting})
            raise
        except RunFailed as error:
            raise Fault.RUNTIME_BROKEN.failure(f"the container runtime can not be started: {error.message}") from error

    async def end(self, name: str) -> None:
        """The processes of a test are gone when this returns, and forgotten; also when we are being cancelled."""
        await self.processes.kill(name)
        ended = asyncio.ensure_future(self.processes.finished(name))
        try:
            await asyncio.shield(ended)
        finally:
            if ended.done():
                await self.processes.forget(name)
            else:
                ended.add_done_callback(lambda _: asyncio.ensure_future(self.processes.forget(name)))

    async def finished(self, run: str) -> Finished:
        end = await self.processes.finished(run)
        if end.exit_code != REFUSED or end.hold_code:
            return end
        note = await asyncio.to_thread(self._read_note, run)
        if note is None:
            return end
        reason = await asyncio.to_thread(self._refused, end, note)
        if not reason and not (note.stderr == "" and end.at - end.started_at < SOON_S):
            return end
        trouble = await self.trouble()
        if trouble:
            return Finished(end.at, end.started_at).lost(
                Fault.RUNTIME_BROKEN, f"the container runtime does not work: {trouble}"
            )
        if not reason:
            return end
        if is_about_program(reason, note.executable):
            message = f"the executable can not be run in the container: {reason}"
            return end.held(Fault.NO_PROGRAM_IN_IMAGE, message)
        return end.held(Fault.BAD_IMAGE, f"the container can not be made: {reason}")

    def _refused(self, end: Finished, note: Note) -> str:
        if not note.stderr:
            return ""
        printed = note.stdout not in ("", note.stderr) and _size(note.stdout) > note.out_from
        return refusal(end.exit_code, printed, read_end(note.stderr, note.err_from))

    async def forget(self, run: str) -> None:
        self._note_path(run).unlink(missing_ok=True)
        await super().forget(run)

    # ---------------------------------------------------------------- whether it works

    def attributes(self, jobs: Sequence[ClassAd]) -> Mapping[str, object]:
        return attributes_of(self.found)

    def reread(self) -> None:
        self._again.set()

    async def trouble(self) -> str:
        """Why the runtime does not work, asked anew; empty: it works. The pool hears of it before the answer."""
        worked = self.found is not None and self.found.works
        found = await self._try()
        if worked and not found.works:
            self._again.set()  # from now on it is tried again and again
        return "" if found.works else found.trouble or "it is gone"

    async def watch(self) -> None:
        """The runtime is tried at the start, when the configuration is read again, and when a container did not come
        into being; while it does not work, again and again (SNG-01)."""
        while True:
            self._again.clear()
            found = await self._try()
            pause = None
            if not found.works:
                # One may be installed while we run.
                pause = self.health.wait_s(time.monotonic(), LONGEST_S) if found.version else LONGEST_S
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._again.wait()

    async def _try(self) -> RuntimeFound:
        """One at a time: the image that is tried is made anew for each."""
        async with self._trying:
            place = self.context.execute / f".apptainer-{scratch_dirs.prefix(self.host.startd).strip('_')}"
            try:
                # As the jobs' own account has it, if it has one.
                account = self.host.isolation.account(f"slot1@{self.host.startd}", ClassAd())
                found = await Probe(self, place, account)()
            except RunFailed as error:
                found = RuntimeFound("unknown", trouble=error.message)
            if found.works:
                self.health.proved()
            else:
                self.health.broke(found.trouble, time.monotonic())
            if found != self.found:
                self.found = found
                self.context.log.info("apptainer", version=found.version, reason=found.trouble, works=found.works)
                self.host.changed()
            return found

    # ---------------------------------------------------------------- notes

    def _note_path(self, run: str) -> Path:
        return self.notes / sha256(run.encode()).hexdigest()[:32]

    def _read_note(self, run: str) -> Note | None:
        with contextlib.suppress(OSError, ValueError, TypeError):
            return Note.unpack(self._note_path(run).read_text())
        return None


def _plan_of(launch: Launch) -> ApptainerPlan:
    assert isinstance(launch.plan, ApptainerPlan)
    return launch.plan


def _as_process(launch: Launch, command: Command) -> Launch:
    """The runtime as a process."""
    return replace(launch, executable=command.argv[0], argv=command.argv, env=command.env, image="")


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size if path else 0
    except OSError:
        return 0


def _has_target(image: str, path: str) -> bool | None:
    """Whether an exploded image has this path in it; None for other images. Links lead where they would inside."""
    if not os.path.isdir(image):
        return None
    place, todo, links = image, [part for part in reversed(path.split("/")) if part], 0
    while todo:
        part = todo.pop()
        if part == "..":
            place = os.path.dirname(place) if place != image else image
            continue
        step = os.path.join(place, part)
        try:
            link = os.readlink(step)
        except OSError:
            if not os.path.lexists(step):
                return False
            place = step
            continue
        links += 1
        if links > 40:
            return False
        if link.startswith("/"):
            place = image
        todo += [one for one in reversed(link.split("/")) if one and one != "."]
    return True


def attributes_of(found: RuntimeFound | None) -> dict[str, object]:
    """What slots say of the runtime."""
    if found is None or not found.version:
        return {"HasSingularity": False}
    if not found.works:
        return {"HasSingularity": False, "SingularityOfflineReason": found.trouble}
    ad: dict[str, object] = {
        "HasSingularity": True,
        "SingularityVersion": found.version,
        "HasSandboxImage": found.sandbox,
        "HasSIF": found.sif,
        "HasContainer": True,
    }
    if found.sif:
        ad["HasDockerURL"] = True  # it fetches a registry's image and makes a file of it
    return ad


# ---------------------------------------------------------------- a test of the runtime


class Probe:
    """Tries the runtime with an image of its own: an empty tree, into which the machine's programs are mounted; as a
    directory, and as one file (SNG-01). directory: where its image is made. account: whose the jobs' processes are."""

    def __init__(self, launcher: ApptainerLauncher, directory: Path, account: Account | None = None) -> None:
        self.launcher = launcher
        self.directory = directory
        self.account = account
        self._count = 0

    async def __call__(self) -> RuntimeFound:
        program = self.launcher.program()
        if not program:
            return RuntimeFound()
        try:
            await asyncio.to_thread(self._furnish)
            end, said = await self._run(program, ["--version"])
            version = next((line.strip() for line in said.splitlines() if line.strip()), "")
            if end.exit_code != 0 or not version:
                return RuntimeFound(version="unknown", trouble=f"{program} --version: {_told(end, said)}")
            trouble = await self._try(program, self.directory / "image")
            no_sif = await self._sif(program)
        except (RunFailed, OSError) as error:
            return RuntimeFound(version="unknown", trouble=f"{program}: {error}")
        finally:
            await asyncio.to_thread(shutil.rmtree, self.directory, ignore_errors=True)
        if trouble and no_sif:
            return RuntimeFound(version, trouble=f"directory: {trouble}; file: {no_sif}")
        return RuntimeFound(version, sandbox=not trouble, sif=not no_sif, trouble=trouble or no_sif)

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
        """Run the program by the jobs' own launcher, with the same isolation; nothing of it is left. Raises
        RunFailed."""
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
            in_container=True,
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


APPTAINER = LauncherKind(
    name="apptainer",
    make=ApptainerLauncher,
    choose=choose_apptainer,
    read_settings=read_apptainer_settings,
    absent={"HasSingularity": False},
)
