"""The surroundings of a daemon. The same daemon code runs on RabbitMQ and Redis, in a personal pool (one process), and
in a simulation: only this differs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import structlog
from prometheus_client import CollectorRegistry

from shared.bus.api import Bus
from shared.config import Config
from shared.config.dynamic import Dynamic
from shared.daemon.clock import Clock, SystemClock
from shared.daemon.lag import LoopLag
from shared.daemon.process_usage import ProcessUsage
from shared.daemon.shutdown_expression import Shutdown
from shared.messages.base import new_id
from shared.state.api import Store


@dataclass(slots=True)
class Context:
    """The surroundings of one daemon."""

    name: str  # unique in the pool for its subsystem, e.g. "node1"; the inbox is "<subsystem>.<name>"
    config: Config
    bus: Bus
    store: Store
    spool: Path  # SPOOL: what must survive a restart of this daemon
    execute: Path  # EXECUTE: scratch directories of jobs
    log: structlog.stdlib.BoundLogger
    clock: Clock = field(default_factory=SystemClock)
    new_id: Callable[[], str] = new_id
    stopping: asyncio.Event = field(default_factory=asyncio.Event)
    waits: str = ""  # what it waits for before its setup, besides bus and store
    again: bool = False  # the daemon stops to be started again: not for good, and not by mistake
    over: bool = False  # the daemon stops for good, by its own decision
    shutdown: Shutdown | None = None  # what DAEMON_SHUTDOWN asks for, until it is done
    shutdown_asked: asyncio.Event = field(default_factory=asyncio.Event)
    #: Reads the configuration anew, from the files; None where there are none. Blocks, and raises ConfigError.
    reread: Callable[[], Config] | None = None
    #: The same with what was set over the bus as said here instead of as it is: whether something can be set.
    rehearse: Callable[[Dynamic], Config] | None = None
    runtime: Mapping[str, str] = field(default_factory=dict)  # what was set until the daemon restarts
    #: Measures the process; None where it is not this daemon's to speak of, as in a simulation.
    usage: ProcessUsage | None = None
    metrics: CollectorRegistry = field(default_factory=CollectorRegistry)  # give metrics `registry=context.metrics`
    #: Measures the event loop; None where nobody does: without a port for health, and in a personal pool.
    lag: LoopLag | None = None
