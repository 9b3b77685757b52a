"""Metrics of the pool as Prometheus reads them."""

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

from services.monitor.prometheus import families, family_name
from tests.unit.monitor.test_ganglia import metric


class Shown(Collector):
    def __init__(self, metrics):
        self.metrics = metrics

    def describe(self):
        return []

    def collect(self):
        return families(self.metrics)


def scraped(*metrics):
    registry = CollectorRegistry()
    registry.register(Shown(metrics))
    found = {}
    for family in text_string_to_metric_families(generate_latest(registry).decode()):
        for sample in family.samples:
            key = (sample.name, tuple(sorted(sample.labels.items())))
            assert key not in found
            found[key] = (family.type, sample.value)
    return found


def test_names():
    assert family_name("JobsRunning") == "roost_pool_jobs_running"
    assert family_name("slot1 HTTPLoad %") == "roost_pool_slot1_http_load"
    assert family_name("Prio_é") == "roost_pool_prio"
    assert family_name("%%") == "roost_pool_unnamed"


def test_gauges_counters_and_strings():
    found = scraped(
        metric(), metric(name="Up", derivative=True, value=3), metric(name="Who", value='an"n\n', type="string")
    )
    assert {(name, kind, value) for (name, _), (kind, value) in found.items()} == {
        ("roost_pool_jobs_running", "gauge", 42),
        ("roost_pool_up_total", "counter", 3),
        ("roost_pool_who_info", "gauge", 1),
    }
    labels = next(dict(labels) for name, labels in found if name == "roost_pool_jobs_running")
    assert labels == {
        "metric": "JobsRunning", "machine": "ap1.example.org", "group": "Schedd", "cluster": "Pool",
    }  # fmt: skip
    assert any(("value", 'an"n\n') in labels for _, labels in found)


def test_names_that_prometheus_can_not_tell_apart_stay_apart():
    """One series for each, whatever their names, kinds and machines."""
    found = scraped(
        metric(name="A b"), metric(name="A-b"), metric(name="A.b", derivative=True), metric(name="a b", type="string",
        value="x"), metric(name="A b", machine="other"), metric(name="A b_total"),
    )  # fmt: skip
    assert len(found) == 6
