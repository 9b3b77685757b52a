"""A personal pool with GANGLIAD and ADSTASH in DAEMON_LIST, from the submit file's side to metrics and records."""

import json
import os
import re
from pathlib import Path

import pytest
from prometheus_client import generate_latest

from roost.cli.condor_names import NAMES
from roost.cli.main import main
from shared.classad import UNDEFINED, ClassAd, unparse_old
from shared.effects import by_name, daemon_attributes, machine_attributes
from tests.integration.inside import InsidePool
from tests.spec import spec
from tests.waiting import wait_until

TESTS = Path(__file__).parents[1]
FACTS = json.loads((TESTS / "data" / "reference_metrics" / "attributes.json").read_text())
ADS = TESTS / "data" / "reference_metrics" / "ads_of_daemons.json"
SLOTS = TESTS / "infrastructure" / "data" / "slot_attributes_of_a_pool_of_23_9_6.txt"
#: Of slots that drain, or have been in such a state (tests/unit/startd).
DRAINED = {
    *("draining", "drainingrequestid", "drainreason", "lastdrainstarttime", "totalmachinedrainingbadput"),
    *("totalmachinedrainingunclaimedtime", "totaltimedrainedidle", "totaltimedrainedretiring", "totaltimeowneridle"),
}


def definitions():
    """A file of metrics in the form of the reference's own, one for each attribute."""
    for my_type, names in FACTS["told"].items():
        for name in names:
            yield f'[\n  Name   = "{my_type}.{name}";\n  Value  = {name};\n  Type   = "string";\n'
            yield f'  TargetType = "{my_type}";\n]\n'


@pytest.fixture(scope="module")
def pool(tmp_path_factory):
    directory = tmp_path_factory.mktemp("monitoring")
    metrics = directory / "ganglia.d"
    metrics.mkdir()
    (metrics / "90_reference").write_text("".join(definitions()))
    inside = InsidePool(
        directory / "pool",
        DAEMON_LIST="$(DAEMON_LIST), GANGLIAD, ADSTASH",
        NUM_CPUS="2",
        GANGLIAD_INTERVAL="1",
        GANGLIAD_METRICS_CONFIG_DIR=str(metrics),
        GANGLIA_CONFIG="/nonexistent",
        ADSTASH_INTERFACE="jsonfile",
        ADSTASH_SAMPLE_INTERVAL="1",
        NEGOTIATOR_CYCLE_DELAY="0",
        NEGOTIATOR_MIN_INTERVAL="0",
        SYSTEM_JOB_MACHINE_ATTRS="OpSys NoSuch",
        SYSTEM_JOB_MACHINE_ATTRS_HISTORY_LENGTH="2",
    )
    with inside.client() as client:
        program, seen = directory / "program", directory / "seen"
        program.write_text(f"#!/bin/sh\nwhile [ ! -e {seen} ]; do sleep 0.05; done\n")
        program.chmod(0o755)
        job = ClassAd({"Cmd": str(program), "Iwd": "/tmp", "TransferExecutable": False, "ShouldTransferFiles": "NO"})
        job["JobMachineAttrs"] = "Arch, Memory"
        for _ in range(3):
            client.submit(job, [ClassAd({"RequestMemory": 16, "RequestDisk": 16, "MyColour": "red"})])

        def busy():
            ads = list(client.ads("Machine"))
            runs = [ad for ad in ads if ad.eval("Activity") == "Busy" and "JobStart" in ad]
            return ads if runs and any("ChildCpus" in ad for ad in ads) else []

        wait_until(busy, what="a slot with a job")
        inside.busy = busy()
        seen.touch()
        wait_until(lambda: len(list(client.jobs(history=True))) == 3, what="three jobs that are done")
        # While a job has a slot of its own, the machine has two ads for each metric of 90_reference.
        wait_until(lambda: len(list(client.ads("Machine"))) == 1, what="the jobs' slots to be gone")
    yield inside
    inside.close()


def lines(directory):
    return [json.loads(line) for file in sorted(directory.glob("*.jsonl")) for line in file.read_text().splitlines()]


@spec(
    "MON-01",
    "MON-02",
    "MON-03",
    "MON-04",
    "MON-05",
    "MON-06",
    "MON-07",
    "MON-08",
    "MON-09",
    "MON-10",
    "MON-11",
    "MON-12",
    "MON-13",
    "MON-14",
    "MON-15",
    "MON-16",
)
def test_the_pools_ads_are_metrics(pool):
    """As a whole: what `use FEATURE : ganglia` adds to DAEMON_LIST."""
    monitor = pool.runner("gangliad").daemon
    for _ in range(2):  # the first may go by ads of before
        before = monitor.result
        wait_until(lambda before=before: monitor.result is not before, what="a look at the pool as it is now")

    def value(name):
        return {metric.name: metric.value for metric in monitor.result.metrics}.get(name)

    wait_until(lambda: value("CpusTotal") == 2 and value("SchedulersTotal") == 1, what="the pool's metrics")
    assert monitor.result.problems == []
    text = generate_latest(monitor.context.metrics).decode()
    assert "roost_pool_slots_total{" in text
    assert "roost_pool_jobs_idle{" in text
    with pool.client() as client:
        wait_until(lambda: any(client.ads("Gangliad")), what="its ad")
    assert "gangliad" in pool.roost("reconfig", "-gangliad")


@spec("MON-21")
def test_daemons_ads_tell_what_the_references_metrics_are_made_of(pool):
    """Each has a value, as gangliad finds it in the ads of a pool that has run jobs."""
    monitor = pool.runner("gangliad").daemon
    wanted = {f"{my_type}.{name}" for my_type, names in FACTS["told"].items() for name in names}

    def lacking():
        return wanted - {metric.name for metric in monitor.result.metrics}

    wait_until(lambda: not lacking(), what="a metric of each attribute")
    with pool.client() as client:
        (schedd,) = client.ads("Scheduler")
        machine = next(iter(client.ads("Machine")))
    done = {name: schedd.eval(name) for name in ("JobsSubmitted", "JobsStarted", "JobsCompleted", "JobsExitedNormally")}
    assert done == dict.fromkeys(done, 3)
    assert [schedd.eval(f"Recent{name}") for name in done] == [3] * len(done)
    assert schedd.eval("JobsCompletedRuntimes").startswith("3, 0")
    assert (machine.eval("JobStarts"), machine.eval("JobBusyTimeCount")) == (3, 3)
    assert 0 < schedd.eval("DaemonCoreDutyCycle") <= 1
    assert schedd.eval("MonitorSelfResidentSetSize") > 1000
    assert schedd.eval("MonitorSelfRegisteredSocketCount") > 0
    assert (schedd.eval("JobsMissedDeferralTime"), schedd.eval("NumJobStartsDelayed")) == (0, 0)


def of_last_cycle(name):
    """A negotiator tells of as many cycles as it has had, three at most."""
    return re.sub(r"^(LastNegotiationCycle\w+)\d$", r"\g<1>0", name)


def lowered(names):
    return {name.lower() for name in names}


@pytest.mark.parametrize("my_type", daemon_attributes.NEVER)
def test_daemons_ads_have_what_htcondors_have_or_the_page_says_why_not(pool, my_type):
    recorded = {of_last_cycle(name) for name in json.loads(ADS.read_text())[my_type]}
    with pool.client() as client:
        (ad,) = client.ads(my_type)
    listed = {of_last_cycle(name) for name in by_name(daemon_attributes.NEVER[my_type])}
    assert len(recorded) > 60
    assert sorted(name for name in recorded if name.lower() not in lowered(ad) | lowered(listed)) == []
    assert lowered(ad) & lowered(listed) == set(), "take these out of shared/effects/daemon_attributes.py"
    assert [name for name in listed if not any(name in each for each in json.loads(ADS.read_text()).values())] == []


def test_slots_ads_have_what_those_of_htcondors_startds_have_or_the_page_says_why_not(pool):
    """Also what its startd's own ad has; and of a slot with a job, as one of HTCondor's was recorded."""
    with pool.client() as client:
        published = lowered(name for ad in [*pool.busy, *client.ads("Machine")] for name in ad)
    there = published | lowered(by_name(machine_attributes.NEVER)) | lowered(by_name(machine_attributes.PART)) | DRAINED
    recorded = {*SLOTS.read_text().split(), *json.loads(ADS.read_text())["StartD"]}
    assert len(recorded) > 200
    assert sorted(name for name in recorded if name.lower() not in there) == []
    assert published & lowered(by_name(machine_attributes.NEVER)) == set()


@spec("SUB-05")
def test_jobs_keep_attributes_of_their_machines(pool):
    """By SYSTEM_JOB_MACHINE_ATTRS and by job_machine_attrs, in the history of a real schedd."""
    with pool.client() as client:
        ads = list(client.jobs(history=True))
        (machine,) = client.ads("Machine")
    assert len(ads) == 3
    for ad in ads:
        kept = {name: ad.eval(name) for name in ad if name.startswith("MachineAttr")}
        assert kept.keys() == {"MachineAttrOpSys0", "MachineAttrNoSuch0", "MachineAttrArch0", "MachineAttrMemory0"}
        assert kept["MachineAttrOpSys0"] == machine.eval("OpSys")
        assert kept["MachineAttrArch0"] == machine.eval("Arch")
        assert kept["MachineAttrNoSuch0"] is UNDEFINED
        assert 16 <= kept["MachineAttrMemory0"] < machine.eval("TotalMemory")


@spec("MON-17", "MON-19", "MON-20")
def test_the_daemon_exports_histories(pool):
    directory = pool.directory / "spool" / "adstash"
    wait_until(lambda: len(lines(directory)) >= 3, what="the jobs of the history")
    found = lines(directory)
    assert len({line["_id"] for line in found}) == len(found) == 3
    assert {line["MyColour"] for line in found} == {"red"}
    assert all(line["ExitCode"] == 0 for line in found)
    with pool.client() as client:
        wait_until(lambda: any(client.ads("Adstash")), what="its ad")


@pytest.fixture
def roost(pool, tmp_path, monkeypatch, capsys):
    """The command, in this process and an empty directory: (exit code, what it said, stderr). The pool's daemons,
    which are here too, say things between that."""
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith(("ROOST_", "_CONDOR_", "CONDOR_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("ROOST_POOL_DIR", str(pool.directory))

    def run(*words):
        status = main(words)
        done = capsys.readouterr()
        return status, [line for line in done.out.splitlines() if "[" not in line], done.err

    return run


@spec("MON-20", "MON-19")
def test_the_command_exports_histories(pool, roost, tmp_path):
    """Stand-alone, through the gateway or from a file, each record once."""
    assert NAMES["condor_adstash"][0] == ("adstash",)
    options = ("adstash", "-interface", "jsonfile")
    assert roost(*options) == (0, ["3 records exported"], "")
    assert roost(*options) == (0, ["0 records exported"], "")
    assert len(lines(tmp_path / "adstash")) == 3
    with pool.client() as client:
        ads = [unparse_old(ad).rstrip() for ad in client.jobs(history=True)]
    (tmp_path / "history").write_text("".join(f"{ad}\n*** Offset = 0\n" for ad in ads))
    of_file = (*options, "-file", "history", "-json_dir", "other")
    assert roost(*of_file) == (0, ["3 records exported"], "")
    assert roost(*of_file) == (0, ["0 records exported"], "")
    assert {line["Source"] for line in lines(tmp_path / "other")} == {"ad_file"}


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("-schedds", "nobody"), "there is no schedd nobody; the pool has"),
        (("-interface", "elasticsearch", "-se_host", "a b"), "ADSTASH_SE_HOST: 'a b': want host:port"),
        (("-file", "/nonexistent"), "/nonexistent: there is no such file"),
        (("extra",), "extra: adstash takes options only"),
    ],
)
def test_the_command_refuses_what_can_not_be(roost, tmp_path, options, said):
    status, _, err = roost("adstash", "-interface", "jsonfile", *options)
    assert status == 1
    assert said in err
    assert list(tmp_path.iterdir()) == []
