"""What a daemon says of itself over HTTP: /healthz (the process lives), /readyz (it does its work, or what
it waits for), /metrics (Prometheus)."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import structlog
from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, ProcessCollector, generate_latest
from prometheus_client.core import Metric

from shared.bus.api import BusHealth
from shared.daemon.base import Daemon
from shared.daemon.lag import EVERY_S, LONG_S, Held, LoopLag
from shared.daemon.metrics import MetricSource, counter, counters, gauge, gauges, histogram, histograms
from shared.state.api import StoreHealth
from shared.version import VERSION


def waiting_for(daemon: Daemon) -> list[str]:
    """Everything that keeps the daemon from its work; empty when it is ready."""
    context = daemon.context
    bus, store = context.bus.health, context.store.health
    found = []
    if not bus.connected or bus.waiting_for or bus.consumers < bus.expected_consumers:
        consumers = f"{bus.consumers} of {bus.expected_consumers} consumers"
        found.append(f"bus: {bus.waiting_for or consumers}")
    if not store.connected or store.waiting_for:
        found.append(f"store: {store.waiting_for or 'a connection'}")
    if context.waits:
        found.append(f"store: {context.waits}")
    if context.stopping.is_set():
        found.append("stopping")
    if not found and (own := daemon.ready()):
        found.append(own)
    return found


def report(daemon: Daemon) -> dict[str, Any]:
    """What /readyz answers."""
    context = daemon.context
    bus, store = context.bus.health, context.store.health
    reasons = waiting_for(daemon)
    return {
        "ready": not reasons,
        "waiting_for": reasons,
        "daemon": f"{daemon.subsystem.lower()}@{context.name}",
        "role": daemon.role(),
        "release": VERSION,
        "bus": {
            "connected": bus.connected,
            "consumers": bus.consumers,
            "expected_consumers": bus.expected_consumers,
            "reconnects": bus.reconnects,
            "last_error": bus.last_error,
        },
        "store": {"connected": store.connected, "variant": store.variant, "last_error": store.last_error},
    }


class HealthServer:
    """The HTTP server. `set_up` says when the daemon's setup is done: before that it is not asked
    anything."""

    def __init__(self, daemon: Daemon, host: str, port: int) -> None:
        self._daemon = daemon
        self._host, self._port = host, port
        self.set_up = False
        self._runner: web.AppRunner | None = None
        registry = daemon.context.metrics
        self._lag = daemon.context.lag = LoopLag(partial(_tell, daemon.context.log))
        registry.register(_Own(daemon, self._lag))
        ProcessCollector(registry=registry)

    @property
    def port(self) -> int:
        """The port really listened on (the one asked for may be 0)."""
        assert self._runner is not None
        return int(self._runner.addresses[0][1])

    async def start(self) -> None:
        """Raises OSError when the port is taken."""
        app = web.Application()
        app.add_routes(
            [web.get("/healthz", self._healthz), web.get("/readyz", self._readyz), web.get("/metrics", self._metrics)]
        )
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
        await self._runner.setup()
        await web.TCPSite(self._runner, self._host, self._port, reuse_address=True).start()
        self._lag.start()

    async def stop(self) -> None:
        self._lag.stop()
        if self._runner is not None:
            await self._runner.cleanup()

    async def _healthz(self, _: web.Request) -> web.Response:
        return web.json_response({"alive": True})

    async def _readyz(self, _: web.Request) -> web.Response:
        answer = report(self._daemon)
        if not self.set_up and answer["ready"]:
            answer |= {"ready": False, "waiting_for": ["setup"]}
        answer["loop"] = loop_report(self._lag)
        return web.json_response(answer, status=200 if answer["ready"] else 503)

    async def _metrics(self, _: web.Request) -> web.Response:
        body = generate_latest(self._daemon.context.metrics)
        return web.Response(body=body, headers={"Content-Type": CONTENT_TYPE_LATEST})


def _tell(log: structlog.stdlib.BoundLogger, held: Held, more: int) -> None:
    log.warning(
        "loop_held",
        seconds=round(held.seconds, 3),
        processor_s=round(held.processor_s, 3),
        by=held.by.function,
        calls=held.by.calls,
        more_since_told=more,
    )


def loop_report(lag: LoopLag) -> dict[str, Any]:
    """How often one piece of work kept the event loop for longer than it may, and the last time."""
    found: dict[str, Any] = {"held": lag.long, "longer_than_s": LONG_S}
    if lag.last is not None:
        last = lag.last
        found["last"] = {
            "ago_s": round(time.perf_counter() - last.at, 3),
            "seconds": round(last.seconds, 3),
            "processor_s": round(last.processor_s, 3),
            "by": last.by.function,
            "calls": last.by.calls,
        }
    return found


class _Own(MetricSource):
    """What every daemon measures of itself."""

    def __init__(self, daemon: Daemon, lag: LoopLag) -> None:
        self._daemon = daemon
        self._lag = lag

    def collect(self) -> Iterable[Metric]:
        daemon, context = self._daemon, self._daemon.context
        bus, store = context.bus.health, context.store.health
        yield gauges(
            "roost_daemon_info",
            "1; what this daemon is",
            ["subsystem", "name", "release"],
            {(daemon.subsystem, context.name, VERSION): 1},
        )
        yield gauge(
            "roost_daemon_leader", "1 while this daemon is the active one of its kind", daemon.role() == "leader"
        )
        yield gauge("roost_daemon_ready", "1 while it does its work", not waiting_for(daemon))
        text = f"How late timers of its event loop come, asked every {EVERY_S:g} s"
        yield histogram("roost_daemon_loop_lag_seconds", text, self._lag.late)
        text = "Processor time of its event loop's thread in which none came: one piece of work"
        yield histogram("roost_daemon_loop_held_seconds", text, self._lag.held)
        text = f"Times that it was more than {LONG_S:g} s, by the function that was at work"
        yield counters("roost_daemon_loop_held_by_function", text, ["function"], self._lag.long_by.by_name)
        disks = disk_sizes({"spool": context.spool, "execute": context.execute})
        labels = ["directory"]
        yield gauges(
            "roost_daemon_disk_free_bytes", "Free where it writes", labels, {(k,): v[0] for k, v in disks.items()}
        )
        yield gauges(
            "roost_daemon_disk_size_bytes", "Size of that disk", labels, {(k,): v[1] for k, v in disks.items()}
        )
        yield from _of_bus(bus)
        if self._daemon.uses_store:
            yield from _of_store(store)


def _of_bus(bus: BusHealth) -> Iterable[Metric]:
    yield gauge("roost_bus_connected", "1 while connected to the broker", bus.connected)
    yield gauge("roost_bus_consumers_missing", "Consumers that do not consume", bus.expected_consumers - bus.consumers)
    yield counter("roost_bus_reconnects", "Reconnections to the broker", bus.reconnects)
    yield counter("roost_bus_messages_published", "Messages published", bus.published)
    text = "Messages that were not published, by why (`dropped`: transient ones, without a connection)"
    yield counters("roost_bus_publish_failures", text, ["reason"], bus.unpublished.by_name)
    text = "Durable messages, until the broker has confirmed them"
    yield histogram("roost_bus_publish_duration_seconds", text, bus.confirmed)
    yield counter("roost_bus_messages_received", "Messages received", bus.received)
    text = "Messages received that somebody had before, and went away without taking them"
    yield counter("roost_bus_messages_redelivered", text, bus.redelivered)
    yield gauge("roost_bus_messages_in_hand", "Messages that came and are not done", bus.in_hand)
    yield counter("roost_bus_messages_dead_lettered", "Messages that no handler took", bus.dead_lettered)
    text = "Messages refused, as who sent them may not, by type"
    yield counters("roost_bus_messages_denied", text, ["type"], bus.denied.by_name)
    text = "Time in handlers, by type of message"
    yield histograms("roost_bus_handler_duration_seconds", text, "type", bus.handled.by_name)
    text = "Calls of handlers that could not do their work for now, and were made again"
    yield counter("roost_bus_handler_retries", text, bus.retried)
    text = "Requests that were given up, as their callers waited no longer"
    yield counter("roost_bus_requests_abandoned", text, bus.abandoned)
    text = "Requests to other daemons, until their answer or the lack of it, by type of request"
    yield histograms("roost_bus_call_duration_seconds", text, "type", bus.called.by_name)
    yield gauge("roost_bus_calls_waiting", "Requests to other daemons that wait for their answer", bus.calls_waiting)


def _of_store(store: StoreHealth) -> Iterable[Metric]:
    yield gauge("roost_store_connected", "1 while the state store answers", store.connected)
    yield gauge("roost_store_replicas", "Replicas of the state store, as far as known", store.replicas)
    text = "Calls of the state store with all their attempts, by script or command"
    yield histograms("roost_store_call_duration_seconds", text, "call", store.called.by_name)
    text = "Calls of the state store that came to nothing, by script or command"
    yield counters("roost_store_call_failures", text, ["call"], store.failed.by_name)


def disk_sizes(folders: Mapping[str, Path]) -> dict[str, tuple[int, int]]:
    """Free bytes and size of the disks that these are on; a folder that is not there is left out."""
    found = {}
    for name, folder in folders.items():
        try:
            usage = shutil.disk_usage(folder)
        except OSError:
            continue
        found[name] = (usage.free, usage.total)
    return found
