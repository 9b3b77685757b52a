"""Submit.from_dag of Roost's htcondor2, without a pool."""

from pathlib import Path

import pytest

from engine.dag.language import finished, reading
from roost.dag.beginning import Wishes, line_ad
from roost.dag.journal import read_journal
from roost.dag.settings import settings_of
from roost_htcondor.gateway import HTCondorException
from roost_htcondor.old_htcondor import Submit as OldSubmit
from roost_htcondor.submit import Submit
from shared.job_text import words_v2


@pytest.fixture(autouse=True)
def dag(tmp_path, monkeypatch):
    for name in ("ROOST_URL", "ROOST_TOKEN", "ROOST_CONFIG", "CONDOR_CONFIG"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("ROOST_POOL_DIR", str(tmp_path))
    monkeypatch.setenv("_CONDOR_ODD", """a 'b' "c" $(d) $""")
    monkeypatch.chdir(tmp_path)
    Path("a b.dag").write_text('JOB A a.sub\nSET_JOB_ATTR Project = strcat("$", "tau")\n')
    return "a b.dag"


def test_it_is_the_line_that_submit_dag_queues(dag, tmp_path):
    submit = Submit.from_dag(dag)
    (ad,) = submit.jobs()
    read = finished(reading([dag], lambda path: Path(path).read_text()))
    line = line_ad(tmp_path / dag, tmp_path, read, Wishes(), settings_of("", tmp_path).knobs)
    for name in line:
        if name not in ("Rank", "Requirements", "LeaveJobInQueue", "TargetType", "OtherJobRemoveRequirements"):
            found, wanted = ad.eval(name), line.eval(name)
            if name == "Environment":  # in an order of its own
                found, wanted = sorted(words_v2(found)), sorted(words_v2(wanted))
            assert (name, found) == (name, wanted)
    assert (submit["universe"], ad.eval("OtherJobRemoveRequirements")) == ("scheduler", "DAGManJobId == 1")
    assert read_journal(tmp_path / f"{dag}.journal").header.files == [dag]


def test_it_can_be_changed_and_written_down_like_any_other(dag):
    submit = Submit.from_dag(dag, {"BatchName": "night"})
    assert submit["+JobBatchName"] == '"night"'
    submit["accounting_group"] = "physics"
    (ad,) = Submit(str(submit)).jobs()
    assert (ad["JobBatchName"], ad["AcctGroup"]) == ("night", "physics")
    assert isinstance(OldSubmit.from_dag(dag), OldSubmit)


@pytest.mark.parametrize(
    ("options", "limits", "wanted"),
    [
        ({"MaxIdle": 5, "maxjobs": "7"}, {"max_idle": 5, "max_jobs": 7}, {}),
        ({"PostRun": True}, {"always_post": True}, {}),
        ({"AlwaysRunPost": 0}, {"always_post": False}, {}),
        ({"suppress_notification": "False"}, {}, {"suppress_notification": False}),
        ({"Priority": -3, "Force": 1, "Verbose": False, "DoRecov": True}, {}, {"least_priority": -3}),
    ],
)
def test_options_are_those_of_submit_dag(dag, options, limits, wanted):
    Submit.from_dag(dag, options)
    header = read_journal(Path(f"{dag}.journal")).header
    assert limits.items() <= header.limits.items()
    assert wanted.items() <= header.options.items()


@pytest.mark.parametrize(
    ("options", "error", "told"),
    [
        (None, TypeError, "a dict"),
        ({5: 1}, TypeError, "strings"),
        ({"": 1}, ValueError, "no name"),
        ({"MaxJobs": None}, TypeError, "MaxJobs: the value"),
        ({"MaxJobs": "many"}, TypeError, "whole number"),
        ({"MaxJobs": True}, TypeError, "whole number"),
        ({"Force": "perhaps"}, TypeError, "true or false"),
        ({"MaxJbos": 1}, KeyError, "from_dag_options"),
        ({"OutfileDir": "x"}, HTCondorException, "lies beside FILE"),
        ({"valgrind": True}, HTCondorException, "own manager"),
        ({"MaxHold": 3}, HTCondorException, "without a limit"),
        ({"LockFile": "x"}, HTCondorException, "locks FILE.journal"),
        ({"DoRescueFrom": 3}, HTCondorException, "rescue003"),
        ({"ConfigFile": "nosuch"}, HTCondorException, "no such file"),
    ],
)
def test_what_is_no_option_is_told(dag, options, error, told):
    with pytest.raises(error, match=told):
        Submit.from_dag(dag, options)


def test_a_wrong_dag_is_told(dag):
    Path(dag).write_text("JOB A a.sub\nPARENT A CHILD B\n")
    with pytest.raises(HTCondorException, match="line 2"):
        Submit.from_dag(dag)


def test_the_options_are_printed(capsys):
    Submit.from_dag_options()
    told = capsys.readouterr().out
    assert "MaxIdle               int    submit nothing while" in told
    assert "Force                 bool " in told
