"""The audit log: which requests are recorded (AuditPolicy, pure), and where (AuditLog). Records go to a file of JSON
lines that is rotated when it is large, to an event each, and the last ones stay in memory. A full disk or an absent
bus is told in the gateway's own log, and holds up nobody."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import structlog

from services.gateway.auth.caller import Caller
from services.gateway.core.limits import RateLimiter
from shared import private_files
from shared.bus.api import Bus, Exchange, Outgoing
from shared.daemon import closed_files
from shared.errors import RoostError
from shared.messages.base import Envelope
from shared.messages.events import GatewayAudit

SAFE: Final = frozenset({"GET", "HEAD", "OPTIONS", "WEBSOCKET"})
#: Records a second, for good and at once, of what one address or token is refused: more are counted, not told.
REFUSALS_RATE, REFUSALS_SECONDS = 1.0, 20.0
_VISITS: Final = "/v1/visits/"


class AuditPolicy:
    """Decides what is recorded: every request of somebody known that would change something, and refusals, as far as
    they do not flood the log."""

    def __init__(self, gateway: str) -> None:
        self._gateway = gateway
        self._refusals = RateLimiter(REFUSALS_RATE, REFUSALS_SECONDS)
        self._untold = 0

    def record(self, caller: Caller, method: str, path: str, now: float, took_s: float) -> GatewayAudit | None:
        """now: seconds since 1970. None: nothing is to be told."""
        refused = caller.status in (401, 403, 429)
        changing = method not in SAFE and caller.identity is not None and caller.status != 429
        if changing and path.startswith(_VISITS) and not refused:
            return None  # keystrokes: the visit's beginning is on record
        if not changing:
            if not refused:
                return None
            if self._refusals.take(caller.key, now):
                self._untold += 1
                return None
        untold, self._untold = self._untold, 0
        who = caller.identity
        if path.startswith(_VISITS):
            path = _VISITS + "..."  # the name of a visit is its key
        return GatewayAudit(
            at=now,
            gateway=self._gateway,
            request_id=caller.request_id,
            user=who.user if who is not None else "",
            token=who.token if who is not None else "",
            level=who.level.name if who is not None else "NONE",
            address=caller.address,
            method=method,
            path=path[:500].encode(errors="replace").decode(),
            operation=caller.operation,
            what=caller.what,
            status=caller.status,
            outcome=_outcome(caller.status),
            code=caller.code,
            message=caller.message,
            took_s=round(took_s, 6),
            untold=untold,
        )


def _outcome(status: int) -> str:
    if status == 0:
        return "broke off"
    if status < 400:
        return "done"
    return "refused" if status < 500 else "failed"


#: Records that `GET /v1/audit` can show, of all gateways.
KEPT: Final = 2000
#: Records that wait to be written; more are lost, and their number is told.
WAITING: Final = 10_000
_BATCH: Final = 500
_PUBLISH_S: Final = 5.0


class AuditLog:
    """Takes records at once and writes them behind the scenes. path: None for no file."""

    def __init__(
        self, gateway: str, path: Path | None, bus: Bus, log: structlog.stdlib.BoundLogger, *, most: int, files: int
    ) -> None:
        self._auditor = AuditPolicy(gateway)
        self._gateway = gateway
        self._path = path
        self._bus = bus
        self._log = log
        self._most = most
        self._files = files
        self._waiting: deque[GatewayAudit] = deque()
        self._work = asyncio.Event()
        self._lost = 0
        self._broken = ""
        self.kept: deque[GatewayAudit] = deque(maxlen=KEPT)

    def request(self, caller: Caller, method: str, path: str, now: float, took_s: float) -> None:
        """A request has been answered."""
        record = self._auditor.record(caller, method, path, now, took_s)
        if record is None:
            return
        self.kept.append(record)
        if len(self._waiting) >= WAITING:
            self._lost += 1
            return
        self._waiting.append(record)
        self._work.set()

    def heard(self, envelope: Envelope) -> None:
        """Another gateway's record."""
        if isinstance(envelope.body, GatewayAudit) and envelope.body.gateway != self._gateway:
            self.kept.append(envelope.body)

    async def close_files(self) -> None:
        """Take the log that earlier lives left from all but its owner."""
        if self._path is not None:
            closed_files.tell(await asyncio.to_thread(close_files, self._path, self._files), self._log)

    async def run(self) -> None:
        """Write and publish what there is, until cancelled."""
        while True:
            await self._work.wait()
            self._work.clear()
            while self._waiting:
                await self._hand_over()

    async def close(self) -> None:
        """Write what is waiting, for a short while."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_PUBLISH_S):
                while self._waiting:
                    await self._hand_over()

    async def _hand_over(self) -> None:
        batch = [self._waiting.popleft() for _ in range(min(_BATCH, len(self._waiting)))]
        if self._lost:
            self._log.error("audit_records_lost", count=self._lost)
            self._lost = 0
        if self._path is not None:
            try:
                await asyncio.to_thread(append, self._path, batch, self._most, self._files)
                self._broken = ""
            except OSError as error:
                if str(error) != self._broken:  # once, not for each line
                    self._log.error("audit_log_not_written", path=str(self._path), reason=str(error))
                self._broken = str(error)
        try:
            async with asyncio.timeout(_PUBLISH_S):
                await self._bus.publish_many([Outgoing(Exchange.EVENTS, one.type, one) for one in batch])
        except (RoostError, TimeoutError) as error:
            self._log.warning("audit_events_not_published", count=len(batch), reason=str(error) or "no answer in time")


def close_files(path: Path, files: int) -> private_files.Closed:
    """Take the log, and what was set aside of it, from all but their owner."""
    return private_files.close_all((path, *(path.with_name(f"{path.name}.{n}") for n in range(1, files + 1))))


def line(record: GatewayAudit) -> str:
    """One record as it stands in the file."""
    return json.dumps({"type": record.type, **record.model_dump(mode="json")}) + "\n"


def append(path: Path, records: Sequence[GatewayAudit], most: int, files: int) -> None:
    """Add lines to the log; one that is larger than `most` bytes is set aside as .1 first, and of older ones `files`
    are kept. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(FileNotFoundError):
        if most and path.stat().st_size >= most:
            turn_over(path, files)
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write("".join(map(line, records)))


def turn_over(path: Path, files: int) -> None:
    """path -> path.1 -> path.2 ..., the oldest goes."""
    if files < 1:
        path.unlink()
        return
    for number in range(files - 1, 0, -1):
        with contextlib.suppress(FileNotFoundError):
            os.replace(f"{path}.{number}", f"{path}.{number + 1}")
    os.replace(path, f"{path}.1")
