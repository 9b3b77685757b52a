"""The steps of docs/migration.md, as they are written there, with a pool that has groups, policies, cron jobs, users
and a queue: nothing is lost, and what does nothing here is told."""

import random
import re
from pathlib import Path

import pytest

from tests.integration.inside import InsidePool
from tests.integration.test_import import NOW, accountant_log, queue_log, shared, users
from tests.spec import spec
from tests.waiting import wait_until

PAGE = Path(__file__).parents[2] / "docs" / "migration.md"
STEPS = [
    "CONDOR_CONFIG=/etc/condor/condor_config roost config-val -check",
    "roost import accountant -dry-run /var/lib/condor/spool/Accountantnew.log",
    "roost import accountant /var/lib/condor/spool/Accountantnew.log",
    "roost import queue -dry-run /var/lib/condor/spool/job_queue.log",
    "roost import queue /var/lib/condor/spool/job_queue.log",
    "roost userprio -allusers",
    "roost q -allusers",
]
CONFIG = """\
UID_DOMAIN = elsewhere
GROUP_NAMES = group_physics, group_physics.hep
GROUP_QUOTA_group_physics = 20
GROUP_QUOTA_group_physics.hep = 5
GROUP_ACCEPT_SURPLUS = true
use POLICY : Hold_If_Memory_Exceeded
START = TARGET.Owner =!= "nobody"
STARTD_CRON_AUTOPUBLISH = If_Changed
STARTD_CRON_JOBLIST = rack
STARTD_CRON_rack_EXECUTABLE = {program}
STARTD_CRON_rack_PERIOD = 1h
STARTD_CRON_rack_PREFIX = Site
"""
#: Each does nothing here.
VAIN = ("ACCOUNTANT_DATABASE_FILE = /var/accounts", "MAX_ACCOUNTANT_DATABASE_SIZE = 1000000")


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return tmp_path_factory.mktemp("migration")


@pytest.fixture(scope="module")
def pool(place):
    program = place / "rack"
    program.write_text("#!/bin/sh\necho Rack = 17\n")
    program.chmod(0o755)
    text = CONFIG.format(program=program)
    (place / "condor_config").write_text(text + "\n".join(VAIN) + "\n")
    (place / "pool").mkdir()
    knobs = dict(line.split(" = ", 1) for line in text.splitlines() if " = " in line)
    made = InsidePool(place / "pool", **knobs)
    yield made
    made.close()


def test_the_page_has_these_steps():
    found = re.findall(r"^    ((?:[A-Z_]+=\S+ )?roost .*)$", PAGE.read_text(), re.MULTILINE)
    assert found == STEPS


@spec("ACC-23", "TLS-19")
def test_nothing_is_lost_on_the_way(pool, place, monkeypatch):
    rng = random.Random(5)
    records = users(20, rng, "elsewhere") | {
        "group_physics.hep": {"Priority": "9.0", "WeightedAccumulatedUsage": "3600.0"}
    }
    (place / "Accountantnew.log").write_text(accountant_log(records, NOW))
    group = {"AcctGroup": '"group_physics.hep"', "WhoSaid": '"moved"'}
    common = {7000 + n: shared(f"user{n % 20}@elsewhere", **group) for n in range(20)}
    clusters = {
        number: (ad, {proc: {"JobStatus": rng.choice("125"), "HoldReasonCode": "1"} for proc in range(5)})
        for number, ad in common.items()
    }
    (place / "job_queue.log").write_text(queue_log(clusters))
    told = {}
    for step in STEPS:
        setting, _, words = step.rpartition("roost ")
        if setting:
            with monkeypatch.context() as patch:
                changed = {**pool.environment(), "CONDOR_CONFIG": str(place / "condor_config")}
                patch.setattr(pool, "environment", lambda changed=changed: changed)
                told[words] = pool.roost(*words.split())
        else:
            told[words] = pool.roost(*words.replace("/var/lib/condor/spool", str(place)).split())
    checked = told["config-val -check"]
    for number, line in enumerate(VAIN, len(CONFIG.splitlines()) + 1):
        name = line.split()[0]
        assert re.search(rf"WARNING: {place}/condor_config, line {number}: .*{name}", checked), checked
    assert "ERROR" not in checked
    assert "21 records: 21 taken in" in told["import accountant /var/lib/condor/spool/Accountantnew.log"]
    assert "20 clusters: 100 jobs taken in" in told["import queue /var/lib/condor/spool/job_queue.log"]
    for name in records:
        assert name.partition("@")[0] in told["userprio -allusers"]
    with pool.client() as client:
        jobs = list(client.jobs(constraint='WhoSaid == "moved"'))
        assert {f"{ad['ClusterId']}.{ad['ProcId']}" for ad in jobs} == {
            f"{number}.{proc}" for number in clusters for proc in range(5)
        }
        for ad in jobs:
            was = clusters[ad["ClusterId"]][1][ad["ProcId"]]["JobStatus"]
            assert ad["JobStatus"] == (5 if was == "5" else 1)
        groups = {ad.eval("Name"): ad for ad in client.priorities()}
        assert groups["group_physics.hep"].eval("WeightedAccumulatedUsage") == pytest.approx(3600.0)
        wait_until(lambda: list(client.ads("Machine", constraint="SiteRack == 17")), what="what the cron job found")
