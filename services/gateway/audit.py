"""The audit log: a file of JSON lines that is turned over when it is large, an event for each line, and the last ones
in memory. A full disk or an absent bus is told in the gateway's own log, and holds up nobody."""

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

from services.gateway.auditing import Auditor
from services.gateway.caller import Caller
from shared.bus.api import Bus, Exchange, Outgoing
from shared.errors import RoostError
from shared.messages.base import Envelope
from shared.messages.events import GatewayAudit

#: Records that `GET /v1/audit` can show, of all gateways.
KEPT: Final = 2000
#: Records that wait to be written; more are lost, and their number is told.
WAITING: Final = 10_000
_BATCH: Final = 500
_PUBLISH_S: Final = 5.0


class Audit:
    """Takes records at once and writes them behind the scenes. path: None for no file."""

    def __init__(
        self, gateway: str, path: Path | None, bus: Bus, log: structlog.stdlib.BoundLogger, *, most: int, files: int
    ) -> None:
        self._auditor = Auditor(gateway)
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
