"""What compose brings for Prometheus and Grafana speaks of metrics that there are, and alerts fire when they should.

The queries themselves are held to promtool."""

import asyncio
import json
import re
import subprocess
from pathlib import Path

import yaml

from shared.bus.topology import ROLES
from shared.counters import QUICK_S
from tests.infrastructure.metrics_page import now, series_of
from tests.infrastructure.test_docs import anchors

ROOT = Path(__file__).parents[2]
OBSERVABILITY = ROOT / "compose" / "observability"
DASHBOARDS = sorted((OBSERVABILITY / "grafana" / "dashboards").glob("*.json"))
#: Of Prometheus itself and of the broker: not ours to list.
OTHERS = {"up", "rabbitmq_detailed_queue_messages_ready"}
#: Values of labels that queries choose by, as the daemons write them.
_BOUNDS = {*map(repr, QUICK_S), "+Inf"}
CHOSEN = {
    "roost_daemon_loop_lag_seconds_bucket": _BOUNDS,
    "roost_daemon_loop_held_seconds_bucket": _BOUNDS,
    "roost_had_state": {"Leader", "Passive"},
    "roost_schedd_jobs": {"Idle", "Held", "Running"},
    "roost_startd_slots": {"Unclaimed", "Claimed"},
    "roost_startd_runs_ended_total": {"failed", "exited"},
    "roost_schedd_jobs_held_total": {"system", "user"},
    "roost_collector_ads": {"Machine"},
}


class Lenient(yaml.SafeLoader):
    """Also takes the tags that are compose's own (!override, !reset)."""


Lenient.add_multi_constructor("!", lambda loader, suffix, node: None)


def rules():
    groups = yaml.safe_load((OBSERVABILITY / "alerts.yml").read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def queries():
    """(where, query) of all there are."""
    found = [(rule["alert"], rule["expr"]) for rule in rules()]
    for path in DASHBOARDS:
        for panel in json.loads(path.read_text())["panels"]:
            found += [(f"{path.name}: {panel['title']}", target["expr"]) for target in panel["targets"]]
    return found


def names_in(query):
    """The metrics a query names; no text in it counts."""
    return set(re.findall(r"\b(?:roost|process|rabbitmq)_\w+|\bup\b", re.sub(r'"[^"]*"', '""', query)))


async def test_queries_name_metrics_that_there_are():
    known = OTHERS | {name for families in (await now()).values() for name in series_of(families)}
    assert len(DASHBOARDS) == 4
    for where, query in queries():
        assert names_in(query), where
        assert names_in(query) <= known, where


def test_a_metric_that_is_unknown_is_seen():
    assert names_in('sum(rate(roost_schedd_nothing_total{type=~"roost_x"}[5m])) > up') == {
        "roost_schedd_nothing_total",
        "up",
    }


def test_queries_choose_by_values_that_there_are():
    chosen = 0
    for where, query in queries():
        for metric, label, value in re.findall(r'(roost_\w+)\{(\w+)="([^"]+)"', query):
            assert value in CHOSEN[metric], f"{where}: {metric}, {label}"
            chosen += 1
    assert chosen > 10


def test_every_alert_is_shown_to_fire_and_not_to():
    tests = yaml.safe_load((ROOT / "tests" / "prometheus" / "alerts_test.yml").read_text())["tests"]
    told = {(one["alertname"], bool(one["exp_alerts"])) for test in tests for one in test["alert_rule_test"]}
    names = [rule["alert"] for rule in rules()]
    assert len(names) == len(set(names)) > 20
    assert told == {(name, fires) for name in names for fires in (True, False)}


def test_every_alert_says_where_to_read_on():
    for rule in rules():
        assert rule["labels"]["severity"] in ("critical", "warning"), rule["alert"]
        assert rule["annotations"]["summary"], rule["alert"]
        page, _, anchor = rule["annotations"]["runbook"].partition("#")
        assert (ROOT / page).is_file(), rule["alert"]
        assert not anchor or anchor in anchors(ROOT / page), rule["alert"]


def test_every_daemon_of_the_pool_is_asked():
    daemons = set()
    for name in ("compose.yaml", "compose.ha.yaml"):
        services = yaml.compose((ROOT / "compose" / name).read_text())
        text = {key.value: value for key, value in services.value}["services"]
        daemons |= {key.value for key, _ in text.value}
    roles = "|".join(ROLES)
    wanted = {name for name in daemons if re.match(rf"({roles})\d*$", name)}
    jobs = yaml.safe_load((OBSERVABILITY / "prometheus.yml").read_text())["scrape_configs"]
    roost = next(job for job in jobs if job["job_name"] == "roost")
    asked = [target.removesuffix(":9690") for one in roost["static_configs"] for target in one["targets"]]
    asked += [name for one in roost["dns_sd_configs"] for name in one["names"]]
    assert sorted(asked) == sorted(wanted)
    assert "ROOST_HEALTH_PORT=9690" in (ROOT / "compose" / "Dockerfile").read_text()


def test_a_name_leads_to_one_service():
    """Docker finds containers by service and by host name: two of one name would be asked by turns, and one never."""
    found = {}
    for name in ("compose.yaml", "compose.ha.yaml"):
        for service, told in yaml.load((ROOT / "compose" / name).read_text(), Loader=Lenient)["services"].items():
            if isinstance(told, dict) and "hostname" in told:
                assert told["hostname"] in (service, "")  # "": Docker's, of which there is one for each container
                found[service] = told["hostname"]
    assert {"negotiator", "had", "negotiator2", "had2", "had3"} <= set(found)


def test_pages_stand_on_the_source_that_is_provisioned():
    provisioning = OBSERVABILITY / "grafana" / "provisioning"
    source = yaml.safe_load((provisioning / "datasources" / "prometheus.yml").read_text())["datasources"][0]
    assert source["url"] == "http://prometheus:9090"
    for path in DASHBOARDS:
        page = json.loads(path.read_text())
        assert page["uid"] == path.stem
        places = set()
        for panel in page["panels"]:
            assert panel["datasource"]["uid"] == source["uid"]
            at = panel["gridPos"]
            places.add((at["x"], at["y"]))
            assert at["x"] + at["w"] <= 24
        assert len(places) == len(page["panels"])


def together(tests):
    """The same tests in few: promtool takes a third of a second for each. Those are told together whose rules and
    series name nothing in common."""
    named = {rule["alert"]: names_in(rule["expr"]) for rule in rules()}
    found = []
    for test in tests:
        names = {one["series"].partition("{")[0] for one in test["input_series"]}
        names = names.union(*(named[one["alertname"]] for one in test["alert_rule_test"]))
        for whole, taken in found:
            if not names & taken and whole["interval"] == test["interval"]:
                whole["name"] += f", {test['name']}"
                whole["input_series"] += test["input_series"]
                whole["alert_rule_test"] += test["alert_rule_test"]
                taken |= names
                break
        else:
            found.append((test, names))
    return [whole for whole, _ in found]


async def test_promtool_takes_the_configuration_and_every_alert(promtool, tmp_path):
    told = yaml.safe_load((ROOT / "tests" / "prometheus" / "alerts_test.yml").read_text())
    asserted = [one for test in told["tests"] for one in test["alert_rule_test"]]
    fewer = together(told["tests"])
    assert sum(len(test["alert_rule_test"]) for test in fewer) == len(asserted)
    told |= {"rule_files": [str(OBSERVABILITY / "alerts.yml")], "tests": fewer}
    (tmp_path / "alerts_test.json").write_text(json.dumps(told))  # which is YAML, too
    for words, folder in (
        (["check", "config", "prometheus.yml"], OBSERVABILITY),
        (["test", "rules", "alerts_test.json"], tmp_path),
    ):
        run = asyncio.to_thread(
            subprocess.run, [promtool, *words], cwd=folder, capture_output=True, text=True, check=False
        )
        done = await run
        assert done.returncode == 0, done.stdout + done.stderr


async def test_promtool_can_read_every_query_of_the_pages(tmp_path, promtool):
    found = [
        {"record": "test:query", "expr": query.replace("$__rate_interval", "5m"), "labels": {"number": str(number)}}
        for number, (_, query) in enumerate(queries())
    ]
    path = tmp_path / "rules.yml"
    path.write_text(json.dumps({"groups": [{"name": "all", "rules": found}]}))
    command = [promtool, "check", "rules", str(path)]
    done = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
