"""The pool's metrics for Prometheus: a family for each name, with the machine as a label; and a page with them on a
port of their own, for daemons without /metrics (a personal pool is one process).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily
from prometheus_client.core import Metric as Family

from services.monitor.core.metrics import Metric

PREFIX: Final = "roost_pool_"
LABELS: Final = ("metric", "machine", "group", "cluster")
_ODD: Final = re.compile(r"[^a-zA-Z0-9]+")
#: Between words of a name: JobsRunning, HTTPErrors, slot1Load.
_WORDS: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_LONGEST: Final = 120


def family_name(name: str) -> str:
    """A name that Prometheus takes: JobsRunning is roost_pool_jobs_running."""
    words = _WORDS.sub("_", _ODD.sub("_", name)).strip("_").lower()[:_LONGEST]
    return PREFIX + (words or "unnamed")


def families(metrics: Iterable[Metric]) -> list[Family]:
    """Names that differ only in what Prometheus does not take are one family, and differ in the label `metric`, which
    is the name as it was defined. What is derived is a counter; a string is the label `value` of an info metric."""
    found: dict[tuple[str, str], Family] = {}
    for one in metrics:
        kind = "info" if one.type == "string" else "counter" if one.derivative else "gauge"
        name = family_name(one.name)
        if kind == "counter":
            name = name.removesuffix("_total")  # which is put behind it
        elif kind == "info":
            name = name.removesuffix("_info")
        family = found.get((kind, name))
        if family is None:
            text = one.desc or one.title
            if one.units:
                text = f"{text} ({one.units})"
            if kind == "info":
                family = InfoMetricFamily(name, text, labels=LABELS)
            elif kind == "counter":
                family = CounterMetricFamily(name, text, labels=LABELS)
            else:
                family = GaugeMetricFamily(name, text, labels=LABELS)
            found[kind, name] = family
        labels = (one.name, one.machine, one.group, one.cluster)
        if isinstance(family, InfoMetricFamily):
            family.add_metric(labels, {"value": str(one.value)})
        elif isinstance(family, CounterMetricFamily | GaugeMetricFamily):
            family.add_metric(labels, float(one.value))
    return _apart(found)


def _apart(found: dict[tuple[str, str], Family]) -> list[Family]:
    """A name is of one kind to Prometheus: where two have it, the later one's kind is put behind it."""
    taken: set[str] = set()
    kept = []
    for (kind, name), family in found.items():
        if family.name in taken:
            while family.name in taken:
                family.name += f"_{kind}"
            for place, sample in enumerate(family.samples):
                ending = sample.name[len(name) :]
                family.samples[place] = sample._replace(name=f"{family.name}{ending}")
        taken.add(family.name)
        kept.append(family)
    return kept


class Page:
    """GET /metrics of one registry."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry
        self._runner: web.AppRunner | None = None

    async def start(self, host: str, port: int) -> None:
        """Raises OSError when the port is taken."""
        app = web.Application()
        app.add_routes([web.get("/metrics", self._metrics)])
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
        await self._runner.setup()
        await web.TCPSite(self._runner, host, port, reuse_address=True).start()

    async def stop(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    async def _metrics(self, _: web.Request) -> web.Response:
        return web.Response(body=generate_latest(self._registry), headers={"Content-Type": CONTENT_TYPE_LATEST})
