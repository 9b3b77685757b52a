"""What daemons show at /metrics, made of plain numbers at the moment somebody asks. Names are
`roost_<subsystem>_<what>[_<unit>]`, units are base units, counters end in _total (docs/metrics.md lists all)."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from shared.tally import Durations


class Source(Collector):
    """Something that is measured. Register it with `context.metrics`."""

    def describe(self) -> Iterable[Metric]:
        return []  # nothing is known before the daemon is: names are held to be distinct by docs/metrics.md

    @abstractmethod
    def collect(self) -> Iterable[Metric]:
        """What is shown now."""


def gauge(name: str, text: str, value: float) -> Metric:
    return gauges(name, text, (), {(): value})


def gauges(name: str, text: str, labels: Sequence[str], values: Mapping[tuple[str, ...], float]) -> Metric:
    """values: by the labels' values, in their order."""
    family = GaugeMetricFamily(name, text, labels=labels)
    for given, value in values.items():
        family.add_metric(given, float(value))
    return family


def counter(name: str, text: str, value: float) -> Metric:
    """name: without the _total that is shown behind it."""
    return counters(name, text, (), {(): value})


def counters(name: str, text: str, labels: Sequence[str], values: Mapping[tuple[str, ...], float]) -> Metric:
    family = CounterMetricFamily(name, text, labels=labels)
    for given, value in values.items():
        family.add_metric(given, float(value))
    return family


def histogram(name: str, text: str, durations: Durations) -> Metric:
    family = HistogramMetricFamily(name, text)
    family.add_metric([], buckets=durations.buckets(), sum_value=durations.sum_s)
    return family


def histograms(name: str, text: str, label: str, by_name: Mapping[str, Durations]) -> Metric:
    family = HistogramMetricFamily(name, text, labels=[label])
    for given, durations in by_name.items():
        family.add_metric([given], buckets=durations.buckets(), sum_value=durations.sum_s)
    return family
