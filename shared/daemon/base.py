"""The life of a daemon: set up, run named tasks until one ends or a stop is asked for, drain, tear down.

Every daemon subclasses Daemon. `shared.daemon.main` runs one as a process; the personal pool and the
simulation run several in one process (`shared.daemon.runner`). Any task's death, or its unexpected end, ends
the daemon (and a process exits non-zero, for its supervisor to start it again). Losing the broker or Redis
is no such death: it is retried and shown in health.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Coroutine, Mapping
from types import MappingProxyType
from typing import Any, ClassVar

from shared.config import Config
from shared.daemon.context import Context
from shared.daemon.off_mark import mark_off
from shared.daemon.shutdown_expression import Shutdown


class Daemon(ABC):
    """One daemon. Order of calls: setup, tasks (all run together), drain (bounded), close."""

    subsystem: ClassVar[str]  # HTCondor's name: "SCHEDD"
    #: What it reads only as it starts: shell patterns of knobs in upper case (besides `orders.AT_START`).
    at_start: ClassVar[tuple[str, ...]] = ("*",)
    #: Whether `roost off` may put an OffDaemon in its place.
    can_be_off: ClassVar[bool] = True
    #: Whether it keeps anything in Redis; else it has no connection to it, and no user there.
    uses_store: ClassVar[bool] = True
    #: What it keeps on disk that has a version of its own, by name: another release reads it or refuses.
    keeps: ClassVar[Mapping[str, int]] = MappingProxyType({})
    #: What it writes into Redis, by its names in shared.stored_versions: before its setup it agrees on the versions.
    writes: ClassVar[tuple[str, ...]] = ()

    def __init__(self, context: Context) -> None:
        self.context = context
        self.rereading = asyncio.Lock()  # the configuration is read again by one at a time

    @abstractmethod
    async def setup(self) -> None:
        """Recover state, subscribe, advertise. May be called again in a new process after any crash."""

    @abstractmethod
    def tasks(self) -> dict[str, Coroutine[Any, Any, None]]:
        """Named root tasks that run until cancelled."""

    async def reconfigure(self) -> None:
        """`context.config` is a new one (SIGHUP, `roost reconfig`). What is read only at setup takes effect at the next
        start, and the default is that everything is: see `at_start`. Raises ConfigError and others for a configuration
        that can not be used, and changes nothing then."""
        self.context.log.info("restart_to_reconfigure")

    def check(self, config: Config) -> None:  # noqa: B027  for most the typed settings say it all
        """Raises ConfigurationError for one that the daemon could not go by, beyond what its typed settings refuse.
        Changes nothing."""

    async def switch_off(self, shutdown: Shutdown) -> None:
        """Do as `roost off` says: an OffDaemon takes its place. Raises OSError."""
        context = self.context
        await asyncio.to_thread(mark_off, context, self.subsystem, self.subsystem.lower(), shutdown.reason)
        context.log.warning("switched_off", reason=shutdown.reason)
        context.again = True
        context.stopping.set()

    async def drain(self) -> None:  # noqa: B027  most daemons have nothing to finish
        """Finish what is under way, quickly; running jobs go on without us."""

    async def close(self) -> None:  # noqa: B027  most daemons have nothing to close
        """Release resources, also after a failed setup. The bus and the store are closed by whoever made the
        context."""

    def ready(self) -> str:
        """Empty when the daemon does its work; else what it waits for (shown by /readyz)."""
        return ""

    def troubles(self) -> list[str]:
        """What it does its work without, though it should not have to: what that is, and the mend. A line each."""
        return []

    def role(self) -> str:
        """`leader`, `passive`, or empty where there is no such thing."""
        return ""
