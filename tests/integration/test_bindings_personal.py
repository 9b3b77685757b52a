"""PersonalPool of the Python modules: a pool that a program starts, uses and stops."""

import os

import pytest

from roost_htcondor.class_ad import ClassAd
from roost_htcondor.collector import Collector
from roost_htcondor.constants import AdType, JobEventType
from roost_htcondor.gateway import HTCondorException
from roost_htcondor.job_events import JobEventLog
from roost_htcondor.personal import PersonalPool, PersonalPoolState, SetCondorConfig
from roost_htcondor.schedd import Schedd
from roost_htcondor.settings import param, reload_config
from roost_htcondor.submit import Submit

NAMES = ("ROOST_URL", "ROOST_TOKEN", "ROOST_TOKEN_FILE", "ROOST_CONFIG", "CONDOR_CONFIG", "ROOST_POOL_DIR")


@pytest.fixture(autouse=True)
def environment(monkeypatch, tmp_path):
    for name in NAMES:
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    reload_config()
    yield
    reload_config()


def test_a_program_starts_a_pool_uses_it_and_stops_it(tmp_path, monkeypatch):
    monkeypatch.setenv("ROOST_URL", "http://nowhere.example:1")
    knobs = {"NUM_CPUS": "1", "MY_KNOB": "seven", "RUNBENCHMARKS": "false"}
    log = tmp_path / "job.log"
    with PersonalPool(tmp_path / "pool", config=knobs, raw_config="OTHER = $(MY_KNOB)!") as pool:
        assert pool.state is PersonalPoolState.READY
        assert os.environ["CONDOR_CONFIG"] == str(pool.config_file)
        assert (param["OTHER"], pool.get_config_val("MY_KNOB"), pool.get_config_val("NONE", "x")) == (
            "seven!",
            "seven",
            "x",
        )
        with pytest.raises(KeyError):
            pool.get_config_val("NONE")
        (slot,) = Collector().query(AdType.Startd, 'SlotType =?= "Partitionable"')
        assert slot["Cpus"] == 1
        done = Schedd().submit(Submit({"executable": "/bin/true", "transfer_executable": "false", "log": str(log)}))
        with JobEventLog(str(log)) as events:
            assert any(event.type == JobEventType.JOB_TERMINATED for event in events.events(stop_after=60))
        assert f"{done.cluster()}" in pool.run_command(["condor_history", "-af", "ClusterId"]).stdout
        with SetCondorConfig(tmp_path / "other" / "config"):  # pool.schedd is this pool's all the same
            assert len(pool.schedd.history()) == 1
        other = PersonalPool.attach(pool.local_dir).detach()
        assert other.who()["IsReady"]
        other.stop()  # which leaves one that is detached alone
        assert pool.who()["MASTER_PID"] == other.who()["MASTER_PID"]
    assert pool.state is PersonalPoolState.STOPPED
    assert pool.who() == ClassAd()
    assert os.environ["ROOST_URL"] == "http://nowhere.example:1"
    with pytest.raises(HTCondorException, match="no pool is up"):
        PersonalPool.attach(pool.local_dir)


def test_one_that_can_not_start_says_why(tmp_path):
    pool = PersonalPool(tmp_path / "pool", config={"NUM_CPUS": "many"}, use_config=False)
    with pytest.raises(HTCondorException, match="NUM_CPUS"):
        pool.start()
    assert pool.state is PersonalPoolState.STOPPED


def test_its_configuration_is_written_over_only_where_that_is_wanted(tmp_path):
    pool = PersonalPool(tmp_path / "pool", config={"A": "1", "B": None}, use_config=False)
    assert pool.state is PersonalPoolState.UNINITIALIZED
    assert pool.initialize().state is PersonalPoolState.INITIALIZED
    assert {"A = 1", "B = "} <= set(pool.config_file.read_text().splitlines())
    again = PersonalPool(tmp_path / "pool", use_config=False)
    with pytest.raises(FileExistsError):
        again.initialize(overwrite_config=False)
    assert "A = 1" in pool.config_file.read_text()
    assert pool.stop() is pool
    assert PersonalPool(use_config=False).local_dir == tmp_path / ".condor" / "personal"
