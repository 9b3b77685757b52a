"""The monitor (HTCondor's GANGLIAD): makes metrics of the pool's ads, by definitions that an administrator may add to,
and gives them to Prometheus, at its /metrics, and to Ganglia.

Every GANGLIAD_INTERVAL it asks the collector for the attributes that the definitions read. Nobody waits for it, and it
stores nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any, ClassVar, Final

from prometheus_client.core import Metric as Family

from services.monitor import collector_client
from services.monitor.core.definitions import Definition, published, read, wanted
from services.monitor.core.gmond import BadChannel, Channel, channels_of_gmond_conf, channels_of_list
from services.monitor.core.metrics import Default, MetricIdentity, Result, measure
from services.monitor.ganglia import Ganglia, GangliaUnavailable
from services.monitor.prometheus import Page, families
from shared.classad import unparse
from shared.config.errors import config_error
from shared.config.knobs import MonitorSettings
from shared.counters import Durations
from shared.daemon.auxiliary import AuxiliaryDaemon
from shared.daemon.clock import wait_for_event
from shared.daemon.context import Context
from shared.daemon.metrics import Counter, Declared, Families, Gauge, Histogram, register
from shared.errors import RoostError

#: The definitions that come with it; a file of this name in GANGLIAD_METRICS_CONFIG_DIR takes their place.
DEFAULT_FILE: Final = "00_default_metrics"
#: Files of the directory that editors and packages leave behind.
_LEFT_BEHIND: Final = ("~", ".bak", ".rpmsave", ".rpmnew", ".dpkg-old", ".dpkg-dist", ".swp")
#: Problems that are told of one pass, and until definitions are read again: they may have values in them, which change.
_MOST_PROBLEMS, _MOST_TOLD = 50, 1000


class Monitor(AuxiliaryDaemon):
    """The monitor as a daemon: it measures the pool once in each interval."""

    subsystem: ClassVar[str] = "GANGLIAD"
    uses_store: ClassVar[bool] = False
    my_type: ClassVar[str] = "Gangliad"
    at_start: ClassVar[tuple[str, ...]] = ("ROOST_GANGLIAD_PORT",)

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self.settings = MonitorSettings.from_config(context.config)
        self.ganglia = Ganglia(context)
        self.definitions: list[Definition] = []
        self.problems: list[str] = []  # of files
        self.channels: list[Channel] = []
        self.result = Result()
        self.shown: list[Family] = []
        self.passes = self.failures = 0
        self.newest = 0.0
        self.durations = Durations()
        self.trouble = "its first look at the pool"
        self.unsent = ""  # why nothing goes to Ganglia
        self._told: set[str] = set()
        self._again = asyncio.Event()
        self._page = Page(context.metrics)
        register(context.metrics, METRICS, self)

    async def setup(self) -> None:
        await self._read()
        if port := self.settings.roost_gangliad_port:
            try:
                await self._page.start(self.settings.roost_health_bind, port)
            except OSError as error:
                raise config_error(f"ROOST_GANGLIAD_PORT: {port}: {error.strerror or error}") from error
        await super().setup()

    def tasks(self) -> dict[str, Coroutine[Any, Any, None]]:
        return {"measure": self._measure(), **super().tasks()}

    async def reconfigure(self) -> None:
        before = self.settings
        self.settings = MonitorSettings.from_config(self.context.config)
        try:
            await self._read()
        except RoostError:
            self.settings = before
            raise
        self._again.set()

    async def close(self) -> None:
        await self._page.stop()

    def ready(self) -> str:
        return self.trouble

    # --- what it goes by

    async def _read(self) -> None:
        """Definitions and channels. Raises ConfigError for what can not be read at all."""
        settings = self.settings
        found = read(await asyncio.to_thread(definition_files, Path(settings.gangliad_metrics_config_dir)))
        channels = await asyncio.to_thread(channels_of, settings)
        self.definitions = published(
            found.definitions, settings.gangliad_verbosity, per_node=settings.gangliad_per_execute_node_metrics
        )
        self.problems, self.channels = found.problems, channels
        self._told.clear()
        self._tell(found.problems)
        self.context.log.info(
            "definitions_read",
            metrics=len(self.definitions),
            left_out=len(found.definitions) - len(self.definitions),
            ganglia=[f"{one.host}:{one.port}" for one in channels],
        )

    def _tell(self, problems: list[str]) -> None:
        for text in problems[:_MOST_PROBLEMS]:
            if text not in self._told and len(self._told) < _MOST_TOLD:
                self._told.add(text)
                self.context.log.warning("metric_problem", problem=text)

    # --- what it does

    async def _measure(self) -> None:
        clock = self.context.clock
        while True:
            self._again.clear()
            began = clock.monotonic()
            try:
                await self.run_pass()
                self.trouble = ""
            except RoostError as error:
                self.failures += 1
                self.trouble = f"a look at the pool: {error}"
                self.context.log.info("pool_not_measured", reason=str(error))
            took = clock.monotonic() - began
            await wait_for_event(self._again, clock, max(1.0, self.settings.gangliad_interval - took))

    async def run_pass(self) -> None:
        """One pass: ask, work out, give on. Raises RoostError where the collector does not answer."""
        clock, settings = self.context.clock, self.settings
        began = clock.monotonic()
        owners = await self._owners()
        requirements = "" if settings.gangliad_requirements is None else unparse(settings.gangliad_requirements)
        definitions = self.definitions
        ads = await collector_client.ads(self.context.bus, wanted(definitions), owners.reads(), requirements)
        lifetime = max(6 * settings.gangliad_interval, settings.gangliad_min_metric_lifetime)
        self.result, self.shown = await asyncio.to_thread(_worked_out, definitions, ads, owners, lifetime, clock.now())
        self._tell(self.result.problems)
        self.passes += 1
        self.newest = clock.now()
        self.durations.add(clock.monotonic() - began)
        await self._to_ganglia()

    async def _owners(self) -> MetricIdentity:
        settings = self.settings
        ad = await collector_client.collector_ad(self.context.bus)
        host = (ad.eval_string("Machine") if ad is not None else "") or settings.condor_host or self.context.name
        return MetricIdentity(
            host.split(",")[0].strip(),
            "",
            Default.of(settings.gangliad_default_machine),
            Default.of(settings.gangliad_default_ip),
            Default.of(settings.gangliad_default_cluster),
        )

    async def _to_ganglia(self) -> None:
        settings = self.settings
        if not self.channels and not settings.ganglia_gmetric:
            return
        problems = []
        try:
            await self.ganglia.look(settings.ganglia_gstat_command)
        except GangliaUnavailable as error:
            if not settings.ganglia_send_data_for_all_hosts:
                problems.append(str(error))
        try:
            await self.ganglia.send(
                self.result.metrics,
                self.channels,
                settings.ganglia_gmetric or "",
                settings.gangliad_interval,
                all_hosts=settings.ganglia_send_data_for_all_hosts,
            )
        except GangliaUnavailable as error:
            problems.append(str(error))
        unsent = "; ".join(problems)
        if unsent and unsent != self.unsent:
            self.context.log.warning("ganglia_unavailable", reason=unsent)
        self.unsent = unsent

    def update_interval_s(self) -> float:
        return float(self.settings.master_update_interval)

    def ad_attributes(self) -> Mapping[str, object]:
        return {
            "MetricDefinitions": len(self.definitions),
            "MetricProblems": len(self.problems) + len(self.result.problems),
            "MetricsPublished": len(self.result.metrics),
            "GangliaProblem": self.unsent,
        }


def _worked_out(
    definitions: list[Definition], ads: Any, owners: MetricIdentity, lifetime: int, now: float
) -> tuple[Result, list[Family]]:
    """In a thread: a pool of 100,000 slots takes a second."""
    result = measure(definitions, ads, owners, lifetime, now)
    return result, families(result.metrics)


def definition_files(directory: Path) -> list[tuple[str, str]]:
    """(path, text) of the files of definitions, by name; ours first, unless there is one of that name. Raises
    ConfigError."""
    found: list[tuple[str, str]] = []
    try:
        paths = sorted(directory.iterdir()) if directory.is_dir() else []
        paths = [path for path in paths if path.is_file() and not path.name.startswith(".")]
        paths = [path for path in paths if not path.name.endswith(_LEFT_BEHIND)]
        if DEFAULT_FILE not in {path.name for path in paths}:
            found.append((DEFAULT_FILE, (files("services.monitor") / DEFAULT_FILE).read_text(encoding="utf-8")))
        found += [(str(path), path.read_text(encoding="utf-8", errors="surrogateescape")) for path in paths]
    except OSError as error:
        raise config_error(f"GANGLIAD_METRICS_CONFIG_DIR: {error.filename}: {error.strerror}") from error
    return found


def channels_of(settings: MonitorSettings) -> list[Channel]:
    """Where Ganglia's packets go; nowhere if neither we nor a gmond.conf say. Raises ConfigError."""
    try:
        if settings.roost_ganglia_channels:
            return channels_of_list(settings.roost_ganglia_channels, "ROOST_GANGLIA_CHANNELS")
        path = Path(settings.ganglia_config)
        if not path.is_file():
            return []
        return channels_of_gmond_conf(path.read_text(encoding="utf-8", errors="replace"), str(path))
    except OSError as error:
        raise config_error(f"GANGLIA_CONFIG: {error.filename}: {error.strerror}") from error
    except BadChannel as error:
        raise config_error(str(error)) from error


METRICS: Final[Declared[Monitor]] = (
    Counter("roost_monitor_passes", "Looks at the pool", lambda monitor: monitor.passes),
    Counter("roost_monitor_failures", "Looks at the pool that came to nothing", lambda monitor: monitor.failures),
    Gauge(
        "roost_monitor_newest_seconds",
        "Time of the newest look at the pool, seconds since 1970; 0: none yet",
        lambda monitor: monitor.newest,
    ),
    Gauge("roost_monitor_definitions", "Definitions of metrics", lambda monitor: len(monitor.definitions)),
    Gauge(
        "roost_monitor_problems",
        "What is wrong with definitions, or metrics of theirs",
        lambda monitor: len(monitor.problems) + len(monitor.result.problems),
    ),
    Gauge(
        "roost_monitor_metrics",
        "Metrics of the pool, as of the newest look",
        lambda monitor: len(monitor.result.metrics),
    ),
    Counter("roost_monitor_ganglia_sent", "Packets or commands to Ganglia", lambda monitor: monitor.ganglia.sent),
    Counter(
        "roost_monitor_ganglia_failures",
        "Looks that Ganglia was not told whole",
        lambda monitor: monitor.ganglia.failed,
    ),
    Histogram(
        "roost_monitor_pass_duration_seconds", "Looks at the pool, worked out", lambda monitor: monitor.durations
    ),
    Families(lambda monitor: monitor.shown),
)
