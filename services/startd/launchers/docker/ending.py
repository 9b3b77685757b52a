"""How a container's run ended: from what its events told, from the container where they leave it open, and with all of
its output."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Mapping
from typing import Any

from services.startd.launchers.api import Finished
from services.startd.launchers.docker import ends
from services.startd.launchers.docker.engine import Engine, EngineAway, Refused
from services.startd.launchers.docker.runs import ContainerRun, container_name
from services.startd.launchers.docker.streams import open_output, write_all

#: For the rest of the output of a container that has ended, seconds.
OUTPUT_S = 10.0
#: A stream of output that ended so long before its container was broken off, seconds.
STREAM_S = 1.0
#: For the kernel's word on a container that was killed, seconds: it may come after the end.
OOM_S = 0.3


class Endings:
    """See the module."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def of(self, name: str, run: ContainerRun) -> Finished | None:
        """How the run ended; None while it goes on. Raises EngineAway."""
        ask, story = self._engine.ask, run.story
        if run.died is None and run.fresh:
            run.fresh = False
            return None
        state = run.died
        where = run.container or container_name(name)
        try:
            if state is None or state.exit_code > ends.BY_SIGNAL or not state.started_at:
                found = await ask(lambda api: api.inspect_container(where))
                if found["State"]["Status"] == "created":
                    return Finished(0.0, 0.0, trouble="its container was never started")
                if found["State"]["Status"] not in ("exited", "dead"):
                    return None
                state = ends.state_of(found["State"])
                run.container = found["Id"]
                story.limit_mib = story.limit_mib or int(found["HostConfig"].get("Memory", 0)) // 2**20
                if state.exit_code > ends.BY_SIGNAL:
                    state = await self._oddly(run, state, found)
            if not await self._has_output(run, state):
                await self._copy_log(run)
            if state.exit_code in ends.NOT_EXECUTED:
                log = await ask(lambda api: api.logs(run.container, stdout=False, stderr=True, tail=1))
                last = bytes(log).decode("utf-8", "replace").strip()
                story.init_said = last if last.startswith("[FATAL tini") else ""
        except Refused as error:
            if error.status == 404:
                return Finished(0.0, 0.0, trouble="its container was removed by somebody else")
            raise EngineAway(error.message) from error
        return ends.finished(state, story)

    async def _oddly(self, run: ContainerRun, state: ends.State, found: Mapping[str, Any]) -> ends.State:
        """A container that was ended by a signal: by whom."""
        since = int(max(0.0, ends.seconds(found["Created"])))
        query = {"container": run.container, "event": ["kill", "die"]}
        events = await self._engine.ask(
            lambda api: list(api.events(since=since, until=int(time.time()) + 1, filters=query, decode=True))
        )
        for event in events:
            if event.get("Action") == "kill":
                ends.note_signal(run.story, str(event["Actor"]["Attributes"].get("signal", "")))
            else:
                run.story.witnessed = True
        if state.exit_code == ends.KILLED and not state.out_of_memory and not run.story.ours | run.story.foreign:
            await asyncio.sleep(OOM_S)
            again = await self._engine.ask(lambda api: api.inspect_container(run.container))
            state = ends.state_of(again["State"])
        return state

    async def _has_output(self, run: ContainerRun, state: ends.State) -> bool:
        """Whether all of the output has come by its stream: that ended when the container did, not before."""
        if run.story.bad_output or not any(run.outputs):
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
    """From the engine's log to a file, in a thread. trouble: what the disk said."""

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
