"""docs/metrics.md: every metric of every daemon, asked of the daemons themselves.

Write it anew with `python -m tests.infrastructure.metrics_page > docs/metrics.md`.
"""

import asyncio
import sys
import tempfile
from pathlib import Path

from prometheus_client import generate_latest

from services.adstash.daemon import Adstash
from services.collector.daemon import Collector
from services.defrag.daemon import Defrag
from services.gateway.daemon import Gateway
from services.had.daemon import Had
from services.journal.daemon import Journal
from services.monitor.daemon import Monitor
from services.negotiator.daemon import Negotiator
from services.registrar.daemon import Registrar
from services.rooster.daemon import Rooster
from services.schedd.daemon import Schedd
from services.startd.daemon import Startd
from shared.daemon.health import HealthServer
from tests.daemons import make_context

KINDS = (Collector, Negotiator, Had, Schedd, Startd, Gateway, Journal, Defrag, Rooster, Monitor, Adstash, Registrar)
BEGINNING = """# Metrics

With ROOST_HEALTH_PORT set, every daemon answers `/metrics` for Prometheus ([daemons.md](daemons.md)). The compose pool
brings a Prometheus, rules for alerts and pages for Grafana ([compose.md](compose.md#watching-the-pool)).

Names are `roost_<subsystem>_<what>_<unit>`; units are seconds and bytes; counters end in `_total`, and histograms are
three series: `_bucket` (label `le`), `_sum` and `_count`. Counters begin at 0 when a daemon starts. No label is a job's
id, and users are named only for the twenty with most in use (`submitter`; all others are `other`); types of messages,
scripts and doors are a fixed set, and 200 at most: the number of series does not grow with the queue. A daemon has 150
to 600, the eight of a small compose pool 2,600 together. What is counted on busy paths costs less than a microsecond;
all else is worked out when somebody asks. The monitor shows, besides what is told here, what its definitions make of
the pool's ads (`roost_pool_*`, [monitoring.md](monitoring.md)), as many series as you define.

This page is made from the daemons (`python -m tests.infrastructure.metrics_page > docs/metrics.md`).
"""
COMMON = "Every daemon"


def families_of(directory):
    """Section -> the metric families shown there. Needs a running loop."""
    found = {COMMON: []}
    for kind in KINDS:
        daemon = kind(make_context(kind.subsystem, directory=directory))
        if COMMON in found and not found[COMMON]:
            HealthServer(daemon, "", 0)
            every = list(daemon.context.metrics.collect())
            own = {f.name for f in every if f.name.startswith(f"roost_{kind.subsystem.lower()}_")}
            found[COMMON] = [f for f in every if f.name not in own]
            found[kind.__name__] = [f for f in every if f.name in own]
        else:
            found[kind.__name__] = list(daemon.context.metrics.collect())
    return found


def texts_of(directory):
    """What Prometheus would read of each kind of daemon, by the name of its class. Needs a running loop."""
    found = {}
    for kind in KINDS:
        daemon = kind(make_context(kind.subsystem, directory=directory))
        HealthServer(daemon, "", 0)
        found[kind.__name__] = generate_latest(daemon.context.metrics).decode()
    return found


def shown(family):
    """Its name as queries have it."""
    return f"{family.name}_total" if family.type == "counter" else family.name


def series_of(families):
    """Every name that a query may hold."""
    for family in families:
        if family.type == "histogram":
            yield from (f"{family.name}{end}" for end in ("_bucket", "_sum", "_count"))
        else:
            yield shown(family)


def page(sections):
    text = BEGINNING
    for section, families in sections.items():
        text += f"\n## {section}\n\n| metric | kind | labels | meaning |\n| --- | --- | --- | --- |\n"
        for family in sorted(families, key=shown):
            labels = ", ".join(f"`{label}`" for label in getattr(family, "_labelnames", ()))
            text += f"| `{shown(family)}` | {family.type} | {labels} | {family.documentation} |\n"
    return text


async def now():
    with tempfile.TemporaryDirectory() as directory:
        return families_of(Path(directory))


__all__ = ["KINDS", "families_of", "now", "page", "series_of", "shown", "texts_of"]

if __name__ == "__main__":
    sys.stdout.write(page(asyncio.run(now())))
