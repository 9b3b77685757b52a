"""The health of a consumer, for people and for whoever watches its process."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

from aiohttp import web

from roost.consumer.source import Received, Source


@dataclass(slots=True)
class Health:
    """Counts since the start."""

    name: str
    transport: str
    received: int = 0  # events, also those that the filter does not take
    handled: int = 0  # items that were taken
    failed: int = 0  # attempts
    given_up: int = 0  # items: to the dead letters, or skipped
    gaps: int = 0
    last_id: str = ""
    last_at: float = 0.0  # when the last event happened, seconds since 1970
    last_error: str = ""
    source: Source | None = None

    @property
    def connected(self) -> bool:
        return self.source is not None and self.source.connected

    @property
    def waiting_for(self) -> str:
        return self.source.waiting_for if self.source is not None else "its start"

    def heard(self, got: Received) -> None:
        self.received += 1
        self.last_id = got.id
        self.last_at = got.at

    def report(self) -> dict[str, Any]:
        """What /readyz answers."""
        counts = {key: getattr(self, key) for key in ("received", "handled", "failed", "given_up", "gaps")}
        return {
            "ready": self.connected,
            "waiting_for": [self.waiting_for] if self.waiting_for else [],
            "consumer": self.name,
            "transport": self.transport,
            **counts,
            "last_id": self.last_id,
            "last_event_age_s": round(time.time() - self.last_at, 3) if self.last_at else None,
            "last_error": self.last_error,
        }


class HealthPage:
    """/healthz: the process lives; /readyz: it hears the pool, with the counts. Raises OSError for a taken port."""

    def __init__(self, health: Health, port: int) -> None:
        self._health = health
        self._asked_port = port
        self._runner: web.AppRunner | None = None

    @property
    def port(self) -> int:
        assert self._runner is not None
        return int(self._runner.addresses[0][1])

    async def __aenter__(self) -> HealthPage:
        app = web.Application()
        app.add_routes([web.get("/healthz", self._healthz), web.get("/readyz", self._readyz)])
        self._runner = web.AppRunner(app, access_log=None)
        await self._runner.setup()
        await web.TCPSite(self._runner, None, self._asked_port).start()
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._runner is not None
        await self._runner.cleanup()

    async def _healthz(self, _: web.Request) -> web.Response:
        return web.json_response({"alive": True})

    async def _readyz(self, _: web.Request) -> web.Response:
        report = self._health.report()
        return web.json_response(report, status=200 if report["ready"] else 503)
