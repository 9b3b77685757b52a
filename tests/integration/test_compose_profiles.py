"""Daemons that the compose pool has with a profile only: each comes up with the rights that it needs, and works."""

import json
import re

import pytest

from tests.containers.pool import ComposePool
from tests.spec import spec
from tests.waiting import wait_until

PROFILES = ("--profile", "defrag", "--profile", "rooster", "--profile", "monitoring")
SERVICES = ("defrag", "rooster", "gangliad", "adstash")
SETTINGS = {
    "DEFRAG_INTERVAL": "1",
    "DEFRAG_DRAINING_MACHINES_PER_HOUR": "3600",
    "ROOSTER_INTERVAL": "1",
    "ROOSTER_WAKEUP_CMD": "/bin/true",
}
EXPORTS = "/var/lib/roost/spool/adstash"
METRICS = "import urllib.request\nprint(urllib.request.urlopen('http://127.0.0.1:9690/metrics').read().decode())"


def submit(pool: ComposePool, directory, command: str, arguments: str = "") -> str:
    text = (
        f"executable = {command}\narguments = {arguments}\ntransfer_executable = false\nshould_transfer_files = yes\n"
    )
    (directory / "job.sub").write_text(f"{text}request_memory = 32\nrequest_disk = 1MB\nqueue\n")
    done = pool.roost("submit", "-spool", "-terse", "job.sub", cwd=directory)
    assert done.returncode == 0, done.stderr
    return done.stdout.split(".")[0]


@pytest.fixture(scope="module")
def profiles(compose_pool: ComposePool, tmp_path_factory):
    """The pool with all of them, and the number of a job that is in its history."""
    compose_pool.wait_ready()
    cluster = submit(compose_pool, tmp_path_factory.mktemp("past"), "/bin/true")
    assert compose_pool.roost("wait", cluster, "-timeout", "120").returncode == 0
    assert compose_pool.roost("rm", cluster).returncode == 0  # what was spooled waits for that
    before = compose_pool.env
    compose_pool.env = {**before, **SETTINGS}
    up = ("up", "--detach", "--wait", "--wait-timeout", "180", "--no-deps", "--no-build", *SERVICES)
    try:
        compose_pool.compose(*PROFILES, *up)
        yield cluster
    finally:
        compose_pool.compose(*PROFILES, "rm", "--stop", "--force", *SERVICES)
        compose_pool.env = before


def ad(pool: ComposePool, kind: str):
    with pool.client() as client:
        found = list(client.ads(kind))
    return found[0] if found else None


def test_each_has_its_own_key_and_no_more_rights_than_others(compose_pool: ComposePool, profiles):
    for service in SERVICES:
        look = "cat /proc/1/status; grep -rhoE '//[a-z0-9.]+:' /run/roost"
        text = compose_pool.container(service).exec_run(["sh", "-c", look]).output.decode()
        assert not re.search(r"^Uid:\s+0\s", text, re.MULTILINE), service
        assert re.search(r"^CapEff:\s+0+$", text, re.MULTILINE), service
        assert set(re.findall(r"//[a-z0-9.]+:", text)) == {f"//{service}.{service}:"}


@spec("DFR-01")
def test_defrag_drains_a_machine_that_is_in_pieces_and_does_so_after_a_crash(
    compose_pool: ComposePool, profiles, tmp_path
):
    """With the users that the broker and Redis have for it."""
    drained = 0

    def drains() -> bool:
        found = ad(compose_pool, "Defrag")
        return found is not None and (found.eval("DrainSuccesses") or 0) > drained

    cluster = submit(compose_pool, tmp_path, "/bin/sleep", "600")
    try:
        wait_until(drains, 90, "a drain")
        compose_pool.crash("defrag")
        drained = ad(compose_pool, "Defrag").eval("DrainSuccesses")
        wait_until(drains, 90, "another drain, counted beside those before the crash")
    finally:
        compose_pool.roost("rm", cluster)


def test_the_rooster_leads_and_makes_rounds(compose_pool: ComposePool, profiles):
    def rounds() -> bool:
        text = compose_pool.container("rooster").exec_run(["python3", "-c", METRICS]).output.decode()
        return bool(re.search(r"^roost_rooster_rounds_total ([2-9]|\d\d)", text, re.MULTILINE))

    wait_until(rounds, 60, "two rounds")
    assert ad(compose_pool, "Rooster") is not None


def test_the_monitor_shows_the_pool_as_metrics(compose_pool: ComposePool, profiles):
    def slots() -> bool:
        text = compose_pool.container("gangliad").exec_run(["python3", "-c", METRICS]).output.decode()
        return bool(re.search(r'^roost_pool_cpus_total\{.*machine="collector".*\} 4\.0$', text, re.MULTILINE))

    wait_until(slots, 120, "the pool's cores among the metrics of the monitor")


def test_jobs_of_the_past_are_exported(compose_pool: ComposePool, profiles):
    def exported() -> bool:
        text = compose_pool.compose(*PROFILES, "exec", "-T", "adstash", "sh", "-c", "cat $0/*.jsonl || true", EXPORTS)
        return any(json.loads(line).get("ClusterId") == int(profiles) for line in text.splitlines())

    wait_until(exported, 90, f"job {profiles} among the exported ones")


def test_none_of_them_is_refused_anything(compose_pool: ComposePool, profiles):
    """By Redis, the broker or another daemon: each would say so."""
    told = []
    for service in SERVICES:
        lines = compose_pool.container(service).logs().decode().splitlines()
        told += [json.loads(line) for line in lines if line.startswith("{")]
    assert {one["daemon"] for one in told} == set(SERVICES)
    assert [one for one in told if one["level"] in ("error", "warning")] == []
