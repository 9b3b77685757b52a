"""Tools go by the configuration of the pool that they speak of."""

import json

import pytest

from roost import up
from roost.cli.main import main
from roost.personal_config import tool_config
from roost.pool_directory import POOL_FILE
from roost.submit import here


@pytest.fixture
def directory(tmp_path, monkeypatch):
    for name in ("ROOST_CONFIG", "CONDOR_CONFIG", "ROOST_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("ROOST_POOL_DIR", str(tmp_path))
    (tmp_path / "config").write_text("NUM_CPUS = 6\nMEMORY = 512\nJOB_DEFAULT_REQUESTCPUS = 3\nSPOOL = /elsewhere\n")
    return tmp_path


def describe(directory, **more):
    (directory / POOL_FILE).write_text(json.dumps({"url": "http://127.0.0.1:9680", "bus": "in-process", **more}))


@pytest.mark.parametrize("is_up", [False, True])
def test_tools_and_daemons_of_a_personal_pool_read_one_file(directory, is_up, capsys):
    if is_up:
        describe(directory, config=str(directory / "config"), knobs={"MEMORY": "1024"})
    assert main(["config-val", "NUM_CPUS", "MEMORY", "SPOOL"]) == 0
    assert capsys.readouterr().out.split() == ["6", "1024" if is_up else "512", str(directory / "spool")]
    assert str(here("job.sub").knobs.job_default_requestcpus) == "3"


def test_a_tool_sees_what_the_command_line_of_the_pool_said(directory):
    plan = up.Plan(directory=directory, amqp_url="amqp://somewhere", knobs={"MEMORY": "1024", "NUM_CPUS": "2"})
    describe(directory, bus="RabbitMQ", knobs=plan.knobs)
    pool = up.PersonalPool(plan)
    for subsystem in ("STARTD", "GATEWAY", "SCHEDD"):
        of_daemon, of_tool = pool.config(subsystem), tool_config(subsystem)
        assert {m.name: m.text for m in of_tool.macros()} == {m.name: m.text for m in of_daemon.macros()}


@pytest.mark.parametrize("name", ["ROOST_CONFIG", "CONDOR_CONFIG"])
def test_a_named_file_is_read_in_its_place(directory, name, tmp_path, monkeypatch):
    (tmp_path / "named").write_text("NUM_CPUS = 8\n")
    monkeypatch.setenv(name, str(tmp_path / "named"))
    assert tool_config().get("NUM_CPUS") == "8"
    assert up.PersonalPool(up.Plan(directory=directory)).config("STARTD").get("NUM_CPUS") == "8"


def test_the_personal_pool_is_not_meant_where_another_one_is_named(directory, monkeypatch):
    describe(directory)
    monkeypatch.setenv("ROOST_URL", "http://pool.example:9680")
    assert tool_config().get("NUM_CPUS") != "6"
    monkeypatch.setenv("ROOST_URL", "http://127.0.0.1:9680/")
    assert tool_config().get("NUM_CPUS") == "6"
