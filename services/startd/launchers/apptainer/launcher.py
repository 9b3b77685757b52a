"""Runs jobs in containers of Apptainer or Singularity. The container is a process tree like a plain job's: it is
started by the process launcher, with the same walls, measured, signalled, killed and adopted as that does it.

What is added: the command line (`plan`), the image's test before the job, and a look at runs that ended with the
runtime's own refusal, which is no end of the job's.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Literal

from services.startd.launchers.api import Finished, Launch, Launcher, LaunchFailed, Started
from services.startd.launchers.apptainer.plan import (
    REFUSED,
    Around,
    Command,
    Rules,
    image_path,
    is_about_program,
    last_words,
    make_command,
    refusal,
)
from services.startd.launchers.process import OnProcesses, read_end
from services.startd.starter.faults import Fault
from shared.daemon.context import Context

#: A run without a standard error of its own that ends with the runtime's status so soon has its image tested once more,
#: seconds.
SOON_S = 60.0
#: What this launcher keeps in a scratch directory: images that were fetched, and what the image's test said.
HIDDEN = ".apptainer"


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


class ApptainerLauncher(OnProcesses):
    """rules: the knobs, as they are now. notes: a directory that only the startd may enter."""

    def __init__(self, context: Context, processes: Launcher, rules: Callable[[], Rules], notes: Path) -> None:
        self.context = context
        self.processes = processes
        self.rules = rules
        self.notes = notes
        #: What is wrong with the runtime, empty when it works: asked when a container did not come into being. Set by
        #: who watches the runtime.
        self.doubt: Callable[[], Awaitable[str]] = _no_doubt

    # ---------------------------------------------------------------- the runtime

    def program(self) -> str:
        """Where the runtime is: what SINGULARITY names, else what PATH has. Empty when there is none."""
        named = self.rules().program
        if shutil.which(named):
            return named
        return shutil.which("apptainer") or shutil.which("singularity") or ""

    @staticmethod
    def path() -> str:
        return os.environ.get("PATH") or os.defpath

    # ---------------------------------------------------------------- a run

    async def adopt(self, runs: set[str]) -> None:
        await self.processes.adopt(runs)
        await asyncio.to_thread(self._sweep, {self._note_path(run).name for run in runs})

    def _sweep(self, kept: set[str]) -> None:
        if self.notes.is_dir():
            for path in self.notes.iterdir():
                if path.name not in kept:
                    path.unlink(missing_ok=True)

    async def prepare(self, launch: Launch) -> None:
        """The image is tested (SNG-08); one that must be fetched comes with that."""
        await self.processes.prepare(launch)
        if not self.program():
            raise Fault.RUNTIME_BROKEN.failure(f"there is no container runtime here: no {self.rules().program}")
        hidden = launch.scratch / HIDDEN
        hidden.mkdir(mode=0o700, exist_ok=True)
        if launch.account is not None:
            os.chown(hidden, launch.account.uid, launch.account.gid)
        if not self.rules().test_first:
            return
        failed = await self._test(launch)
        if failed:
            trouble = await self.doubt()
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
        except LaunchFailed as error:
            self._note_path(launch.run).unlink(missing_ok=True)
            if error.code == Fault.NO_EXECUTABLE.code:
                # It is the runtime that could not be executed, not the job.
                raise Fault.RUNTIME_BROKEN.failure(
                    f"the container runtime can not be started: {error.message}"
                ) from error
            raise

    def _command(self, launch: Launch, *, test: bool = False) -> Command:
        assert launch.container is not None
        around = Around(os.path.exists, _has_target)
        verb: Literal["exec", "test"] = "test" if test else "exec"
        return make_command(self.program(), verb, launch.container, launch, around, self.path())

    async def _test(self, launch: Launch) -> str:
        """What is wrong with the image; empty when its test passed. Raises LaunchFailed when it could not be run."""
        said = str(launch.scratch / HIDDEN / "test.log")
        command = await asyncio.to_thread(self._command, launch, test=True)
        name = f"{launch.run}#test"
        tested = replace(_as_process(launch, command), run=name, stdin="", stdout=said, stderr=said, append=False)
        assert launch.container is not None
        image = image_path(launch.container, str(launch.scratch))
        try:
            await self._begin(tested)
            limit = self.rules().test_timeout
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
        except LaunchFailed as error:
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
        trouble = await self.doubt()
        if trouble:
            return Finished(end.at, end.started_at, trouble=f"the container runtime does not work: {trouble}")
        if not reason:
            return end
        if is_about_program(reason, note.executable):
            message = f"the executable can not be run in the container: {reason}"
            return _held(end, Fault.NO_PROGRAM_IN_IMAGE, message)
        return _held(end, Fault.BAD_IMAGE, f"the container can not be made: {reason}")

    def _refused(self, end: Finished, note: Note) -> str:
        if not note.stderr:
            return ""
        printed = note.stdout not in ("", note.stderr) and _size(note.stdout) > note.out_from
        return refusal(end.exit_code, printed, read_end(note.stderr, note.err_from))

    async def forget(self, run: str) -> None:
        self._note_path(run).unlink(missing_ok=True)
        await super().forget(run)

    # ---------------------------------------------------------------- notes

    def _note_path(self, run: str) -> Path:
        return self.notes / sha256(run.encode()).hexdigest()[:32]

    def _read_note(self, run: str) -> Note | None:
        with contextlib.suppress(OSError, ValueError, TypeError):
            return Note.unpack(self._note_path(run).read_text())
        return None


async def _no_doubt() -> str:
    return ""


def _held(end: Finished, fault: Fault, message: str) -> Finished:
    return replace(end, hold_code=fault.code, hold_subcode=fault.subcode, hold_message=message)


def _as_process(launch: Launch, command: Command) -> Launch:
    """The runtime as a process; that it is a container's stays known, for the walls that a runtime can not live in."""
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
