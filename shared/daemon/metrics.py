"""What daemons show at /metrics, made of plain numbers at the moment somebody asks. Names are
`roost_<subsystem>_<what>[_<unit>]`, units are base units, counters end in _total (docs/metrics.md lists all).

A daemon declares its metrics as a table and registers it once:

    METRICS: Final[Declared[Rooster]] = (
        Gauge("roost_rooster_acts", "1 for the one that acts", lambda rooster: rooster.leads),
        Counter("roost_rooster_woken", "Machines that were woken", lambda rooster: rooster.woken),
    )
    register(context.metrics, METRICS, rooster)

A metric with labels gives a mapping: the labels' values, in their order, to the number.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeAlias, TypeVar

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from shared.counters import Durations

S = TypeVar("S")

Labelled: TypeAlias = "Mapping[tuple[str, ...], float]"


@dataclass(frozen=True, slots=True)
class Gauge(Generic[S]):
    """A number that goes up and down. value: of the subject it is registered with."""

    name: str
    text: str
    value: Callable[[S], float | Labelled]
    labels: Sequence[str] = ()

    def families(self, subject: S) -> Iterable[Metric]:
        yield _filled(GaugeMetricFamily(self.name, self.text, labels=self.labels), self.value(subject))


@dataclass(frozen=True, slots=True)
class Counter(Generic[S]):
    """A number that only grows. name: without the _total that is shown behind it."""

    name: str
    text: str
    value: Callable[[S], float | Labelled]
    labels: Sequence[str] = ()

    def families(self, subject: S) -> Iterable[Metric]:
        yield _filled(CounterMetricFamily(self.name, self.text, labels=self.labels), self.value(subject))


@dataclass(frozen=True, slots=True)
class Histogram(Generic[S]):
    """Durations; with a label, durations by its value."""

    name: str
    text: str
    value: Callable[[S], Durations | Mapping[str, Durations]]
    label: str = ""

    def families(self, subject: S) -> Iterable[Metric]:
        found = self.value(subject)
        if isinstance(found, Durations):
            yield histogram(self.name, self.text, found)
        else:
            yield histograms(self.name, self.text, self.label, found)


@dataclass(frozen=True, slots=True)
class Families(Generic[S]):
    """Metrics that are made otherwise: whole families, none or many."""

    families: Callable[[S], Iterable[Metric]]


Declared: TypeAlias = "Sequence[Gauge[S] | Counter[S] | Histogram[S] | Families[S]]"


class MetricSource(Collector):
    """Something that is measured. Register it with `context.metrics`."""

    def describe(self) -> Iterable[Metric]:
        return []  # nothing is known before the daemon is: names are held to be distinct by docs/metrics.md

    @abstractmethod
    def collect(self) -> Iterable[Metric]:
        """What is shown now."""


class _Declared(MetricSource, Generic[S]):
    def __init__(self, declared: Declared[S], subject: S) -> None:
        self._declared, self._subject = declared, subject

    def collect(self) -> Iterable[Metric]:
        for one in self._declared:
            yield from one.families(self._subject)


def register(registry: CollectorRegistry, declared: Declared[S], subject: S) -> None:
    """Show these metrics of `subject` from now on."""
    registry.register(_Declared(declared, subject))


def _filled(
    family: GaugeMetricFamily | CounterMetricFamily, value: float | Labelled
) -> GaugeMetricFamily | CounterMetricFamily:
    for labels, number in value.items() if isinstance(value, Mapping) else (((), value),):
        family.add_metric(labels, float(number))
    return family


# The same, one family at a time, for a MetricSource of one's own.


def gauge(name: str, text: str, value: float) -> Metric:
    return gauges(name, text, (), {(): value})


def gauges(name: str, text: str, labels: Sequence[str], values: Labelled) -> Metric:
    """values: by the labels' values, in their order."""
    return _filled(GaugeMetricFamily(name, text, labels=labels), values)


def counter(name: str, text: str, value: float) -> Metric:
    """name: without the _total that is shown behind it."""
    return counters(name, text, (), {(): value})


def counters(name: str, text: str, labels: Sequence[str], values: Labelled) -> Metric:
    return _filled(CounterMetricFamily(name, text, labels=labels), values)


def histogram(name: str, text: str, durations: Durations) -> Metric:
    family = HistogramMetricFamily(name, text)
    family.add_metric([], buckets=durations.buckets(), sum_value=durations.sum_s)
    return family


def histograms(name: str, text: str, label: str, by_name: Mapping[str, Durations]) -> Metric:
    family = HistogramMetricFamily(name, text, labels=[label])
    for given, durations in by_name.items():
        family.add_metric([given], buckets=durations.buckets(), sum_value=durations.sum_s)
    return family
