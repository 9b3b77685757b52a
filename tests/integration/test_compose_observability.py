"""The compose pool as Prometheus sees it: every daemon as itself, every rule and every query of the pages at work."""

import json
import urllib.parse
import urllib.request

import pytest

from tests.containers.pool import DAEMONS
from tests.infrastructure.test_observability import queries, rules
from tests.waiting import wait_until

IMAGE = "prom/prometheus:v3.5.0"
ASKED = {*DAEMONS, "journal"}
#: Nothing to show while nothing fails, and nothing runs.
MAY_BE_EMPTY = {
    "roost_daemon_ready == 0",
    "sum by (reason) (rate(roost_bus_publish_failures_total[1m]))",
    "sum (rate(roost_store_call_failures_total[1m]))",
    "sum by (what) (rate(roost_schedd_transfer_failures_total[1m]))",
    "max by (submitter) (roost_negotiator_weighted_in_use)",
}
SUBMIT = """
executable = /bin/sh
arguments = "-c 'cat input; exit $(code)'"
transfer_executable = false
transfer_input_files = input
should_transfer_files = yes
output = out.$(Process)
on_exit_hold = ExitCode != 0
request_disk = 1MB
request_memory = $(memory)
queue code, memory from (
0 32
0 32
3 32
0 64TB
)
"""


class Prometheus:
    def __init__(self, url):
        self.url = url

    def get(self, path, **words):
        with urllib.request.urlopen(f"{self.url}{path}?{urllib.parse.urlencode(words)}", timeout=60) as answer:
            return json.load(answer)["data"]

    def query(self, text):
        """[(labels, value)]; an error of the query is an error here."""
        found = self.get("/api/v1/query", query=text)["result"]
        return [(one["metric"], float(one["value"][1])) for one in found]


@pytest.fixture
def prometheus(compose_pool, docker_engine):
    docker_engine.image(IMAGE)
    compose_pool.env["PROMETHEUS_PORT"] = "0"
    profile = ("--profile", "observability")
    try:
        compose_pool.compose(*profile, "up", "--detach", "--wait", "--wait-timeout", "120", "--no-deps", "prometheus")
        yield Prometheus(f"http://{compose_pool.compose(*profile, 'port', 'prometheus', '9090').strip()}")
    finally:
        compose_pool.compose(*profile, "rm", "--stop", "--force", "--volumes", "prometheus")


def test_prometheus_sees_every_daemon_as_itself_and_every_page_has_something_to_show(
    compose_pool, prometheus, tmp_path
):
    (tmp_path / "input").write_text("some\n")
    (tmp_path / "all.sub").write_text(SUBMIT)
    done = compose_pool.roost("submit", "-spool", "-terse", "all.sub", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    seen = {}

    def each_is_itself():
        told = prometheus.query('roost_daemon_info and on (instance) up{job="roost"} == 1')
        seen.update({labels["instance"]: labels["subsystem"] for labels, _ in told})
        return len(seen) == len(ASKED)

    wait_until(each_is_itself, 120, f"daemons at Prometheus: {seen}")
    assert seen == {f"{name}:9690": name.rstrip("12").upper() for name in ASKED}
    wait_until(
        lambda: len(prometheus.query('up{job=~"rabbitmq.*"} == 1')) == 2, 120, "the broker, asked for two things"
    )

    empty = set()

    def pages_are_filled():
        empty.clear()
        for where, text in queries():
            if ".json" in where:
                text = text.replace("$__rate_interval", "1m")
                if not prometheus.query(text):
                    empty.add(text)
        return empty <= MAY_BE_EMPTY

    try:
        wait_until(pages_are_filled, 180, f"something to show: {empty}")
    except TimeoutError as error:
        raise AssertionError(f"nothing to show: {sorted(empty - MAY_BE_EMPTY)}") from error
    finally:
        compose_pool.roost("rm", done.stdout.split(".")[0])
    known = prometheus.get("/api/v1/rules")["groups"][0]["rules"]
    assert {rule["name"] for rule in known} == {rule["alert"] for rule in rules()}
    assert {rule["health"] for rule in known} == {"ok"}
