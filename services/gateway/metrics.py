"""The gateway's metrics. Routes are named as in the API's description, never by the path of a request."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from prometheus_client.core import Metric

from shared.counters import CountsBy, DurationsBy
from shared.daemon.metrics import MetricSource, counter, counters, gauge, histograms

#: Methods that have a name of their own.
_METHODS = frozenset({"GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "WEBSOCKET"})


class RequestCounts:
    """Requests since this gateway began."""

    def __init__(self) -> None:
        self.requests = CountsBy(most=1000)  # (method, route, status)
        self.durations = DurationsBy(most=150)
        self.limited = 0
        self.gone = 0

    def add(self, method: str, route: str, status: int, seconds: float) -> None:
        """route: the path as the API's description has it; "": no route was found. status 0: nothing was answered."""
        if method not in _METHODS:
            method = "other"
        route = route or "none"
        self.requests.add(method, route, str(status))
        if status != 101 and route != "/v1/events":  # a stream lasts as long as somebody listens
            self.durations.add(route, seconds)
        if status == 429:
            self.limited += 1


class Metrics(MetricSource):
    def __init__(self, counts: RequestCounts, listeners: Callable[[], int]) -> None:
        self._counts, self._listeners = counts, listeners

    def collect(self) -> Iterable[Metric]:
        counts = self._counts
        yield counters(
            "roost_gateway_requests", "Requests answered", ["method", "door", "status"], counts.requests.by_name
        )
        yield histograms(
            "roost_gateway_request_duration_seconds", "Requests, but for streams", "door", counts.durations.by_name
        )
        yield counter("roost_gateway_rate_limited", "Requests turned away as too many", counts.limited)
        yield counter("roost_gateway_callers_gone", "Questions whose callers hung up before the answer", counts.gone)
        yield gauge("roost_gateway_streams", "Streams of events that are open", self._listeners())
