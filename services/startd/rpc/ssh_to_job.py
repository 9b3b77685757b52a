"""Lets the owners of running jobs look in: programs in a job's surroundings, and the files that it writes.

The schedd says who may (it knows whose job it is, and has the claim); from then on the gateway talks to the visit
itself, by its secret name, at an inbox of its own, so that questions that wait for output keep nobody else waiting.
"""

from __future__ import annotations

import asyncio
import hmac
import os
import secrets
from collections.abc import Coroutine, Mapping
from pathlib import Path
from typing import Any

from services.startd.context import Component, Handler, StartdContext
from services.startd.core import isolation
from services.startd.core.run.failures import RunFailed
from services.startd.core.run.job_launch import output_paths
from services.startd.exec.api import Launcher
from services.startd.exec.job_session import JobSession, ProcessSession, SessionRefused, find_target
from services.startd.rpc.claim_rpc import check_owner
from services.startd.run.run import Run
from shared.bus.api import RemoteFailure, Subscription
from shared.classad import evaluate, is_true
from shared.messages.base import Ack, Envelope, Failure, Message
from shared.messages.visits import (
    MAX_COMMAND,
    Printed,
    ReadVisit,
    StartVisit,
    SteerVisit,
    VisitInput,
    VisitOutput,
    VisitStarted,
    Wish,
    WriteVisit,
)

#: A visit that nobody asks for output any more is ended, and one that has ended is forgotten, after so many seconds.
UNHEARD_S = 60.0
#: How long input waits for room before the answer says that there was none, seconds.
ROOM_S = 10.0
#: Visits each keep a question waiting at the inbox.
PREFETCH = 500


class SshToJob(Component):
    def __init__(self, startd: StartdContext) -> None:
        super().__init__(startd)
        self.visits: dict[str, JobSession] = {}  # by their secret names
        self._starting = 0
        self._inbox: Subscription | None = None

    async def setup(self) -> None:
        context = self.startd.context
        self._inbox = await context.bus.serve(self.address, self._on_request, prefetch=PREFETCH)

    @property
    def address(self) -> str:
        return f"startd.{self.startd.name}/visits"

    def handlers(self) -> Mapping[type[Message], Handler]:
        return {StartVisit: self._on_start}

    def tasks(self) -> Mapping[str, Coroutine[Any, Any, None]]:
        return {"visits": self._watch()}

    async def close(self) -> None:
        if self._inbox is not None:
            await self._inbox.cancel()
        await asyncio.gather(*(visit.close() for visit in self.visits.values()), return_exceptions=True)
        self.visits.clear()

    def run_over(self, run: Run) -> None:
        for visit in self.visits.values():
            if visit.run == run.key:
                visit.job_over()

    async def _watch(self) -> None:
        clock = self.startd.context.clock
        while True:
            await clock.sleep(UNHEARD_S / 6)
            for name, visit in list(self.visits.items()):
                if clock.monotonic() - visit.heard > UNHEARD_S:
                    await visit.close()
                    del self.visits[name]

    # ---------------------------------------------------------------- beginning

    async def _on_start(self, envelope: Envelope) -> Message:
        body = envelope.body
        assert isinstance(body, StartVisit)
        check_owner(self.startd, envelope)
        run = self._run(body)
        settings = self.startd.settings
        machine = self.startd.runs.machine_ad(run.record.slot)
        if not is_true(evaluate(settings.visits, machine, run.job)):
            return Failure(code="denied", reason="this machine lets nobody into running jobs (ROOST_VISITS)")
        if self._starting + len(self.visits) >= settings.most_visits:
            reason = f"this machine has {settings.most_visits} visits already (ROOST_MAX_VISITS): try again later"
            return Failure(code="busy", reason=reason, retryable=True)
        if sum(map(len, body.wish.command)) > MAX_COMMAND or any("\0" in word for word in body.wish.command):
            return Failure(
                code="bad-request", reason=f"a command of more than {MAX_COMMAND} bytes, or with a zero byte"
            )
        self._starting += 1
        try:
            visit = await self._begin(run, body.user, body.wish)
        except (SessionRefused, RunFailed, OSError) as error:
            return Failure(code="refused", reason=str(error) or type(error).__name__)
        finally:
            self._starting -= 1
        visit.heard = self.startd.context.clock.monotonic()
        name = secrets.token_hex(16)
        self.visits[name] = visit
        self.startd.context.log.info("visit", kind=body.wish.kind, user=body.user, job_id=body.job_id)
        return VisitStarted(startd=self.startd.name, visit=name)

    def _run(self, body: StartVisit) -> Run:
        for run in self.startd.run_table.of_claim(body.claim_id):
            if (run.record.job_id, run.record.attempt) == (body.job_id, body.attempt):
                if run.record.launched and not run.ended:
                    return run
                raise RemoteFailure("conflict", f"job {body.job_id} is not running its program now", retryable=True)
        raise RemoteFailure("not-found", f"job {body.job_id} does not run here")

    async def _begin(self, run: Run, user: str, wish: Wish) -> JobSession:
        """Raises VisitRefused, OSError."""
        launcher = self.startd.launchers[run.record.launcher]
        if wish.kind == "run":
            own = await launcher.open_session(user, run.key, run.record.name, wish)
            if own is not None:
                return own
        visit = ProcessSession(user, run.key)
        await visit.start(
            await self._plan(run, launcher, wish), wish, (await asyncio.to_thread(_owner, run.scratch))[0]
        )
        return visit

    async def _plan(self, run: Run, launcher: Launcher, wish: Wish) -> dict[str, Any]:
        tail: dict[str, Any] = {}
        if wish.kind == "tail":
            base, path = _file(run, wish)
            tail = {"base": base, "path": path, "max_bytes": wish.max_bytes, "follow": wish.follow}
            tail["own"] = base == str(run.scratch)
        if launcher.processes_are == "of-an-engine":
            # No process of ours to take the account of; that the job is over it hears from us.
            uid, gid = await asyncio.to_thread(_owner, run.scratch)
            return {"target": 0, "uid": uid, "gid": gid, "mode": "tail", "tail": tail}
        process = self.startd.fork_server.running.get(run.record.name)
        if process is None:
            raise SessionRefused("the job has ended")
        if wish.kind == "tail":
            target, began = await find_target(process.pid, below=False)
            return {"target": target, "began": began, "mode": "tail", "tail": tail}
        target, began = await find_target(process.pid, below=launcher.processes_are == "below")
        manager = self.startd.isolation
        walls = isolation.isolation_request(manager.rules, manager.host, run.launch())
        return {
            "target": target,
            "began": began,
            "mode": "run",
            "argv": wish.command,
            "env": {"TERM": wish.term or "xterm"} if wish.tty else {},
            "landlock": walls.get("landlock"),
            "seccomp": walls.get("seccomp"),
        }

    # ---------------------------------------------------------------- talking

    async def _on_request(self, envelope: Envelope) -> Message:
        body = envelope.body
        if not isinstance(body, ReadVisit | WriteVisit | SteerVisit):
            return Failure(code="bad-request", reason=f"a visit does not answer {body.type}")
        visit = self._visit(body.visit, body.user)
        if visit is None:
            return Failure(code="not-found", reason="there is no such visit (any more)")
        clock = self.startd.context.clock
        if isinstance(body, ReadVisit):
            visit.heard = clock.monotonic()
            start, printed, end = await visit.read(body.after, body.wait_s)
            parts = [Printed(kind=kind, data=data) for kind, data in printed]
            visit.heard = clock.monotonic()
            if end is None:
                return VisitOutput(start=start, parts=parts)
            return VisitOutput(
                start=start,
                parts=parts,
                ended=True,
                exit_code=end.exit_code,
                exit_signal=end.exit_signal,
                reason=end.reason,
            )
        if isinstance(body, WriteVisit):
            taken, ended = await visit.write(body.start, body.data, body.eof, ROOM_S)
            return VisitInput(taken=taken, ended=ended)
        if body.rows or body.columns:
            visit.resize(body.rows, body.columns)
        if body.signal:
            visit.signal(body.signal)
        if body.leave:
            visit.leave()
        return Ack()

    def _visit(self, name: str, user: str) -> JobSession | None:
        """By comparing all of them in full: how long that takes tells nothing of the names."""
        found = [visit for key, visit in self.visits.items() if hmac.compare_digest(key.encode(), name.encode())]
        return found[0] if found and found[0].user == user else None


def _file(run: Run, wish: Wish) -> tuple[str, str]:
    """The directory that a file must lie in, and its path there. Raises VisitRefused."""
    if wish.file:
        return str(run.scratch), wish.file
    streams = output_paths(run.job, run.scratch, transfer=bool(run.record.transfer_url))
    path = streams[0 if wish.stream == "stdout" else 1]
    if not path:
        raise SessionRefused(f"the job's {wish.stream} goes nowhere: its submit file names no file for it")
    return os.path.dirname(path), os.path.basename(path)


def _owner(scratch: Path) -> tuple[int, int]:
    """Uid and gid of the job's directory: of its account."""
    try:
        found = scratch.stat()
        return found.st_uid, found.st_gid
    except OSError:
        return os.getuid(), os.getgid()
