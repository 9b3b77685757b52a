"""Files that travelled, as daemons show it at /metrics. Kinds: input, output, upload (spooled input), download (spooled
output)."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable, Iterator

from prometheus_client.core import Metric

from shared.counters import WORK_S, CountsBy, DurationsBy
from shared.daemon.metrics import counters, gauge, histograms


class TransferCounts:
    """What travelled since the daemon began."""

    def __init__(self) -> None:
        self.durations = DurationsBy(bounds=WORK_S)
        self.bytes = CountsBy()
        self.failed = CountsBy()
        self.under_way = 0
        #: Seconds that transfers waited for files and for the network, all transfers of both directions added up.
        self.file_read_s, self.file_write_s, self.net_read_s, self.net_write_s = 0.0, 0.0, 0.0, 0.0

    @contextlib.contextmanager
    def measured(self, kind: str) -> Iterator[None]:
        """Around files that travel."""
        began = time.perf_counter()
        self.under_way += 1
        try:
            yield
        except BaseException:
            self.failed.add(kind)
            raise
        finally:
            self.under_way -= 1
            self.durations.add(kind, time.perf_counter() - began)

    def metrics(self, daemon: str) -> Iterable[Metric]:
        """daemon: as in the names of its metrics, e.g. "schedd"."""
        text = "Files that travelled, with all attempts, by what they are"
        yield histograms(f"roost_{daemon}_transfer_duration_seconds", text, "what", self.durations.by_name)
        yield counters(f"roost_{daemon}_transfer_bytes", "What arrived of them", ["what"], self.bytes.by_name)
        text = "Transfers that broke off, or were given up"
        yield counters(f"roost_{daemon}_transfer_failures", text, ["what"], self.failed.by_name)
        yield gauge(f"roost_{daemon}_transfers", "Transfers under way", self.under_way)
