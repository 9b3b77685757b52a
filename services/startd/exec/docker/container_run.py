"""A run in a Docker container, and how it ended.

A container ends with a number that can mean several things: 137 is a job that killed itself, that was over its memory,
or whose container somebody removed. What the engine's events told meanwhile decides (`finished_of`, pure). `ExitReader`
looks at the container where they leave it open, and waits for all of its output.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from hashlib import sha256
from typing import Any

from services.startd.core.run.failures import Fault
from services.startd.core.run.job_launch import Finished
from services.startd.exec.docker.engine import PODMANS_INIT, Engine, EngineAway, EngineRefused
from services.startd.exec.docker.streams import Streams, open_output, write_all
from shared.disk_space import is_full

#: Of a process that was killed by a signal: this and the signal's number. The container's init says it so as well.
BY_SIGNAL = 128
KILLED = BY_SIGNAL + 9
#: What an engine says of containers that it lost (its machine was restarted), or that it stopped as it ended itself.
LOST_WITH_ENGINE = frozenset((255, KILLED, BY_SIGNAL + 15))
#: The init's exit codes when it could not execute the job: Docker's, and Podman's.
NOT_EXECUTED = (126, 127, 1)
#: More than such an init says, bytes.
ERRORS = 8192
#: What a container's state is called when it has ended; Podman has not put away one that is `stopped`.
_ENDED = ("exited", "dead", "stopped")
_MIB_KIB = 1024


@dataclass(frozen=True, slots=True)
class ContainerState:
    """A container that has ended. Times in seconds since the epoch."""

    exit_code: int
    started_at: float
    finished_at: float
    out_of_memory: bool = False  # the kernel killed a process of it, perhaps not the job's main one


@dataclass(slots=True)
class ContainerEvents:
    """What was heard of a run while it went on."""

    ours: set[int] = field(default_factory=set)  # signals that we sent
    foreign: set[int] = field(default_factory=set)  # that others had the engine send
    sent: int = 0  # how often we sent one
    unnamed: int = 0  # how often the engine told of one, not which: Podman does not say
    witnessed: bool = False  # the engine told of the end as it came: it was no engine's death
    peak_kib: int = 0
    limit_mib: int = 0
    out_of_memory: bool = False
    init_said: str = ""  # why it could not execute the job
    bad_output: str = ""  # why the output could not be written
    no_room: bool = False  # for want of room
    updates: dict[str, object] = field(default_factory=dict)  # attributes for the job
    user_cpu_s: float = 0.0
    sys_cpu_s: float = 0.0


def note_signal(events: ContainerEvents, signal: str) -> None:
    """The engine sent the container a signal (its number, in an event's text; empty: it does not say which): for us or
    for somebody else."""
    if not signal:
        events.unnamed += 1
    elif signal.isdigit() and int(signal) not in events.ours:
        events.foreign.add(int(signal))


def _sent_by_anybody(events: ContainerEvents, number: int) -> bool:
    return number in events.ours or _was_foreign(events, number)


def _was_foreign(events: ContainerEvents, number: int) -> bool:
    """Whether a signal that ended the container came from somebody else, by the engine."""
    return number not in events.ours and (number in events.foreign or (number > 0 and events.unnamed > events.sent))


def finished_of(state: ContainerState, events: ContainerEvents) -> Finished:
    """How the run ended: by itself, to be held, or lost."""
    code = state.exit_code
    number = code - BY_SIGNAL

    def end(**more: Any) -> Finished:
        values: dict[str, Any] = {
            "at": state.finished_at,
            "started_at": state.started_at,
            "exit_code": code,
            "user_cpu_s": events.user_cpu_s,
            "sys_cpu_s": events.sys_cpu_s,
            "max_rss_kib": events.peak_kib,
            "updates": dict(events.updates),
        }
        return Finished(**(values | more))

    if events.bad_output:
        return end().held(Fault.NO_ROOM_FOR_OUTPUT if events.no_room else Fault.NO_OUTPUT_FILE, events.bad_output)
    if (state.out_of_memory or events.out_of_memory) and code == KILLED and not _sent_by_anybody(events, 9):
        # The flag alone also says that some child was killed while the job went on and ended by itself.
        limit = events.limit_mib
        used = max(-(-events.peak_kib // _MIB_KIB), limit)
        message = f"the job used {used} MiB of memory, its limit is {limit} MiB"
        return end(max_rss_kib=max(events.peak_kib, limit * _MIB_KIB)).held(Fault.OVER_MEMORY, message)
    if _was_foreign(events, number):
        return end().lost(Fault.CONTAINER_LOST, f"its container was sent signal {number} by somebody else")
    if not events.witnessed and code in LOST_WITH_ENGINE and number not in events.ours:
        return end().lost(Fault.CONTAINER_LOST, "its container ended with the Docker engine")
    if events.init_said and code in NOT_EXECUTED:
        message = f"the executable can not be run in the container: {events.init_said}"
        return end().held(Fault.NO_PROGRAM_IN_IMAGE, message)
    return end()


def what_init_said(code: int, errors: str) -> str:
    """Why the container's init could not execute the job; empty: it could. errors: the first that was said, at most
    ERRORS bytes; then nobody said anything else."""
    said = errors.strip()
    by_docker = code != 1 and said.startswith("[FATAL tini")
    by_podman = code == 1 and said.startswith(PODMANS_INIT.decode()) and "failed to exec pid1" in said
    return said if (by_docker or by_podman) and "\n" not in said else ""


def _first_errors(api: Any, container: str) -> bytes:
    """From the log's beginning: of one that has parts of lines, as Podman writes it, it does not find the last line."""
    found = b""
    log = api.logs(container, stdout=False, stderr=True, stream=True, follow=False)
    with contextlib.closing(log):
        for piece in log:
            found += piece
            if len(found) >= ERRORS:
                break
    return found[:ERRORS]


def seconds(text: str) -> float:
    """Docker's timestamps have nanoseconds, Python's microseconds."""
    head, _, tail = text.rstrip("Z").partition(".")
    return datetime.fromisoformat(f"{head}.{(tail + '000000')[:6]}+00:00").timestamp()


def state_of(found: Mapping[str, Any]) -> ContainerState:
    """The state in the engine's answer about a container that has ended."""
    return ContainerState(
        exit_code=int(found["ExitCode"]),
        started_at=max(0.0, seconds(found["StartedAt"])),
        finished_at=max(0.0, seconds(found["FinishedAt"])),
        out_of_memory=bool(found.get("OOMKilled")),
    )


def container_name(run: str) -> str:
    return f"roost-{sha256(run.encode()).hexdigest()[:32]}"


@dataclass(slots=True)
class ContainerRun:
    """A run of ours, from its start until it is forgotten."""

    container: str = ""  # its id
    image: str = ""
    outputs: tuple[str, str] = ("", "")
    append: bool = False
    own_network: bool = True
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    events: ContainerEvents = field(default_factory=ContainerEvents)
    fresh: bool = False  # begun by this life, with events heard: its end will be told
    missed: bool = False  # the engine went away meanwhile
    started_at: float = 0.0
    died: ContainerState | None = None  # as the engine's events told it
    streams: Streams | None = None
    pid: int = 0  # of its first process, where that was looked up

    def note_output(self, error: OSError) -> None:
        self.events.bad_output = f"the job's output could not be written: {error}"
        self.events.no_room = is_full(error)


#: For the rest of the output of a container that has ended, seconds.
OUTPUT_S = 10.0
#: A stream of output that ended so long before its container was broken off, seconds.
STREAM_S = 1.0
#: For the kernel's word on a container that was killed, seconds: it may come after the end.
OOM_S = 0.3


class ExitReader:
    """Finds out how containers ended."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def of(self, name: str, run: ContainerRun) -> Finished | None:
        """How the run ended; None while it goes on. Raises EngineAway."""
        ask, events = self._engine.ask, run.events
        if run.died is None and run.fresh:
            run.fresh = False
            return None
        state = run.died
        where = run.container or container_name(name)
        try:
            if state is None or state.exit_code > BY_SIGNAL or not state.started_at:
                found = await ask(lambda api: api.inspect_container(where))
                if found["State"]["Status"] == "created":
                    return Finished(0.0, 0.0, trouble="its container was never started")
                if found["State"]["Status"] not in _ENDED:
                    return None
                state = state_of(found["State"])
                run.container = found["Id"]
                events.limit_mib = events.limit_mib or int(found["HostConfig"].get("Memory", 0)) // 2**20
                if state.exit_code > BY_SIGNAL:
                    state = await self._oddly(run, state, found)
            if not await self._has_output(run, state):
                await self._copy_log(run)
            if state.exit_code in NOT_EXECUTED and (state.exit_code != 1 or self._engine.facts.podman):
                said = await ask(lambda api: _first_errors(api, run.container))
                events.init_said = what_init_said(state.exit_code, said.decode("utf-8", "replace"))
        except EngineRefused as error:
            if error.status == 404:
                return Finished(0.0, 0.0, trouble="its container was removed by somebody else")
            raise EngineAway(error.message) from error
        return finished_of(state, events)

    async def _oddly(self, run: ContainerRun, state: ContainerState, found: Mapping[str, Any]) -> ContainerState:
        """A container that was ended by a signal: by whom."""
        since = int(max(0.0, seconds(found["Created"])))
        query = {"container": run.container, "event": ["kill", "die", "died"]}
        events = await self._engine.ask(
            lambda api: list(api.events(since=since, until=int(time.time()) + 1, filters=query, decode=True))
        )
        heard, run.events.unnamed = run.events.unnamed, 0  # all of them are told again
        for event in events:
            if event.get("Action") == "kill":
                note_signal(run.events, str(event["Actor"]["Attributes"].get("signal", "")))
            else:
                run.events.witnessed = True
        run.events.unnamed = max(heard, run.events.unnamed)
        if state.exit_code == KILLED and not state.out_of_memory and not _sent_by_anybody(run.events, 9):
            await asyncio.sleep(OOM_S)
            again = await self._engine.ask(lambda api: api.inspect_container(run.container))
            state = state_of(again["State"])
        return state

    async def _has_output(self, run: ContainerRun, state: ContainerState) -> bool:
        """Whether all of the output has come by its stream: that ended when the container did, not before."""
        if run.events.bad_output or not any(run.outputs):
            return True
        if run.streams is None:
            return False
        await run.streams.over(OUTPUT_S)
        return not run.missed and run.streams.ended_at > state.finished_at - STREAM_S

    async def _copy_log(self, run: ContainerRun) -> None:
        """The output of a run whose streams were not followed to their end: from the engine's log. Raises EngineAway,
        Refused."""
        if run.streams is not None:
            await run.streams.close()
            run.streams = None
        stdout, stderr = run.outputs
        both = bool(stdout) and stdout == stderr
        for path, streams in (
            (stdout, {"stdout": True, "stderr": both}),
            ("" if both else stderr, {"stdout": False, "stderr": True}),
        ):
            if path:
                copy = _Copy(path, run.container, streams)
                await self._engine.ask(copy.run)
                if copy.trouble is not None:
                    run.note_output(copy.trouble)


class _Copy:
    """Copies the engine's log to a file, in a thread. trouble: what the disk said."""

    def __init__(self, path: str, container: str, streams: Mapping[str, bool]) -> None:
        self.path = path
        self.container = container
        self.streams = streams
        self.trouble: OSError | None = None

    def run(self, api: Any) -> None:
        try:
            fd = open_output(self.path, append=False)
        except OSError as error:
            self.trouble = error
            return
        try:
            for chunk in api.logs(self.container, stream=True, follow=False, **self.streams):
                try:
                    write_all(fd, chunk)
                except OSError as error:
                    self.trouble = error
                    return
        finally:
            os.close(fd)
