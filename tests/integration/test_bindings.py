"""Roost's htcondor2 and htcondor against a pool."""

import pickle
import time

import pytest

from roost_htcondor import old_class_ad, old_htcondor
from roost_htcondor.class_ad import ClassAd, ExprTree
from roost_htcondor.collector import Collector
from roost_htcondor.constants import (
    AdType,
    CredType,
    DaemonCommand,
    DaemonType,
    DrainType,
    JobAction,
    JobEventType,
    QueryOpt,
    TransactionFlag,
)
from roost_htcondor.credd import Credd
from roost_htcondor.daemons import ping, send_command
from roost_htcondor.dagman import DAGMan
from roost_htcondor.gateway import HTCondorException, SecurityContext
from roost_htcondor.job_events import JobEventLog
from roost_htcondor.negotiator import Negotiator
from roost_htcondor.schedd import Schedd
from roost_htcondor.settings import RemoteParam, param, reload_config
from roost_htcondor.startd import Startd
from roost_htcondor.submit import Submit
from tests.integration.inside import InsidePool
from tests.waiting import wait_until

SLEEP = {"executable": "/bin/sleep", "transfer_executable": "false", "arguments": "1000", "hold": "true"}


@pytest.fixture(scope="module")
def pool(tmp_path_factory):
    settable = {"ENABLE_RUNTIME_CONFIG": "true", "SETTABLE_ATTRS_ADMINISTRATOR": "MAX_JOBS_PER_OWNER"}
    inside = InsidePool(tmp_path_factory.mktemp("pool"), **settable)
    yield inside
    inside.close()


@pytest.fixture(autouse=True)
def here(pool, monkeypatch, tmp_path):
    """A program of the pool's owner, in an empty directory."""
    for name in ("ROOST_URL", "ROOST_TOKEN", "ROOST_CONFIG", "CONDOR_CONFIG"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("ROOST_POOL_DIR", str(pool.directory))
    monkeypatch.chdir(tmp_path)
    reload_config()
    return tmp_path


@pytest.fixture
def held():
    """A cluster of three jobs on hold."""
    schedd = Schedd()
    result = schedd.submit(Submit(SLEEP), count=3)
    yield schedd, result.cluster()
    schedd.act(JobAction.Remove, result.cluster())


def ended(schedd, cluster, jobs):
    wait_until(lambda: len(schedd.history(f"ClusterId == {cluster}")) == jobs, what="jobs in the history")


def test_jobs_run_and_their_log_and_history_tell_of_it(here):
    schedd = Schedd()
    description = Submit(
        {
            "executable": "/bin/sh",
            "transfer_executable": "false",
            "arguments": "\"-c 'echo $(x); exit $(code)'\"",
            "output": "out.$(x)",
            "log": "jobs.log",
        }
    )
    result = schedd.submit(description, itemdata=[{"x": "a", "code": "0"}, {"x": "b,c", "code": "3"}])
    assert (result.num_procs(), result.first_proc(), int(result)) == (2, 0, result.cluster())
    assert result.clusterad()["ClusterId"] == result.cluster()
    ends = {}
    with JobEventLog("jobs.log") as log:
        for event in log.events(stop_after=200):
            assert event.cluster == result.cluster()
            if event.type is JobEventType.JOB_TERMINATED:
                ends[event.proc] = event["ReturnValue"]
                if len(ends) == 2:
                    break
        assert ends == {0: 0, 1: 3}
        with pickle.loads(pickle.dumps(log)) as again:
            assert list(again.events(stop_after=0)) == list(log.events(stop_after=0))
    assert (here / "out.b,c").read_text() == "b,c\n"
    ended(schedd, result.cluster(), 2)
    newest = schedd.history(f"ClusterId == {result.cluster()}", ["ProcId", "ExitCode"], match=5)
    assert sorted((ad["ProcId"], ad["ExitCode"]) for ad in newest) == [(0, 0), (1, 3)]
    assert {name for ad in newest for name in ad} == {"ProcId", "ExitCode"}
    assert schedd.history("true", ["ProcId"], since=result.cluster()) == []
    assert schedd.history("true", ["ProcId"], since=ExprTree("ExitCode =!= undefined")) == []
    runs = schedd.jobEpochHistory(f"ClusterId == {result.cluster()}", ["ProcId", "RunInstanceId", "ExitCode"])
    assert sorted((ad["ProcId"], ad["RunInstanceId"], ad["ExitCode"]) for ad in runs) == [(0, 1, 0), (1, 1, 3)]
    assert schedd.jobEpochHistory(None, ["ProcId"], match=1, since="RunInstanceId == 0") == [
        ClassAd({"ProcId": runs[0]["ProcId"]})
    ]
    assert len(schedd.jobEpochHistory(match=1, ad_type=["EPOCH"])) == 1
    with pytest.raises(HTCondorException, match="'SPAWN': of a run one record is kept, EPOCH"):
        schedd.jobEpochHistory(ad_type="EPOCH,SPAWN")
    last = schedd.history("true", ["ProcId"], since="CompletionDate == 1", match=1)
    assert last == [ClassAd({"ProcId": newest[0]["ProcId"]})]


def test_spooled_jobs_take_their_files_and_bring_their_output(here):
    (here / "in.txt").write_text("from far away\n")
    schedd = Schedd()
    result = schedd.submit(
        Submit({"executable": "/bin/cat", "arguments": "in.txt", "transfer_input_files": "in.txt", "output": "o.txt"}),
        spool=True,
    )
    with pytest.raises(HTCondorException, match="no spooled job has ended"):
        schedd.retrieve(result.cluster())
    schedd.spool(result)
    wait_until(lambda: schedd.query(f"ClusterId == {int(result)} && JobStatus == 4"), what="the job's end")
    (here / "in.txt").unlink()
    schedd.retrieve([f"{int(result)}.0"])
    assert (here / "o.txt").read_text() == "from far away\n"


def test_jobs_are_asked_for(held):
    schedd, cluster = held
    mine = f"ClusterId == {cluster}"
    assert [dict(ad) for ad in schedd.query(mine, ["ProcId"])] == [{"ProcId": 0}, {"ProcId": 1}, {"ProcId": 2}]
    assert len(schedd.query(ExprTree(f"{mine} && ProcId > 0"), limit=1)) == 1
    assert schedd.query(mine, callback=lambda ad: ad["ProcId"] or None) == [1, 2]
    assert len(schedd.query(mine, opts=QueryOpt.DefaultMyJobsOnly)) == 3
    assert schedd.query(opts=QueryOpt.SummaryOnly)[0]["HeldJobs"] >= 3
    with pytest.raises(ValueError, match="no expression"):
        schedd.query("ClusterId ==")
    with pytest.raises(HTCondorException, match="group these"):
        schedd.query(opts=QueryOpt.AutoCluster)


def test_jobs_are_acted_on(held):
    schedd, cluster = held
    done = schedd.act(JobAction.Hold, [f"{cluster}.0", "999999.0"], reason="because")
    assert (done["TotalAlreadyDone"], done["TotalNotFound"], done["TotalSuccess"]) == (1, 1, 0)
    assert schedd.edit(cluster, "Note", '"careful"') == 3
    assert schedd.edit(f"{cluster}.1", "Twice", ExprTree("2 * ProcId")) == 1
    assert schedd.query(f"ClusterId == {cluster} && ProcId == 1")[0].eval("Twice") == 2
    assert schedd.act(JobAction.Remove, ExprTree(f"ClusterId == {cluster} && ProcId == 2"))["TotalSuccess"] == 1
    assert len(schedd.query(f"ClusterId == {cluster}")) == 2
    for wrong, error in ((["x"], ValueError), ([], ValueError), ("", ValueError), (True, TypeError)):
        with pytest.raises(error):
            schedd.act(JobAction.Hold, wrong)
    with pytest.raises(HTCondorException, match="leave flags out"):
        schedd.edit(cluster, "Note", "1", TransactionFlag.SetDirty)


def test_ads_are_asked_for_and_daemons_found():
    collector = Collector()
    (slot,) = collector.query(AdType.Slot, "PartitionableSlot", ["Name", "TotalCpus"])
    assert slot["TotalCpus"] == 2
    assert "Memory" not in slot
    assert {"Scheduler", "Machine"} <= {ad["MyType"] for ad in collector.query(projection=["MyType"])}
    where = collector.locate(DaemonType.Schedd)
    assert (where["MyType"], "MyAddress" in where, "Requirements" in where) == ("Scheduler", True, False)
    assert collector.locateAll(DaemonType.Schedd) == [where]
    assert collector.directQuery(DaemonType.Negotiator)["MyType"] == "Negotiator"
    assert Schedd(where).query("false") == []
    with pytest.raises(HTCondorException, match="of the name nosuch"):
        collector.locate(DaemonType.Schedd, "nosuch")
    with pytest.raises(HTCondorException, match="over the bus"):
        collector.advertise([ClassAd()])


def test_a_pool_and_a_token_can_be_named(pool):
    collector = Collector(pool.url, SecurityContext(pool.token))
    with pytest.raises(HTCondorException, match="token"):
        Collector(pool.url, SecurityContext("wrong")).query()
    where = collector.locate(DaemonType.Negotiator)
    assert where["RoostGateway"] == pool.url
    assert ping(pool.url, "WRITE", SecurityContext(pool.token))["Authorization"] == "ADMINISTRATOR"


def test_priorities_are_told_and_set():
    negotiator = Negotiator()
    negotiator.setFactor("a@b", 500)
    negotiator.setUsage("a@b", 1000)
    negotiator.setCeiling("a@b", 3)
    (ad,) = [ad for ad in negotiator.getPriorities() if ad["Name"] == "a@b"]
    assert (ad["PriorityFactor"], ad["Ceiling"]) == (500, 3)
    assert negotiator.getResourceUsage("a@b") == []
    negotiator.resetUsage("a@b")
    negotiator.deleteUser("a@b")
    assert "a@b" not in [ad["Name"] for ad in negotiator.getPriorities()]
    with pytest.raises(ValueError, match="name@domain"):
        negotiator.setFactor("alice", 5)
    with pytest.raises(HTCondorException):
        negotiator.setFactor("a@b", -1)


def test_daemons_are_configured_and_ordered():
    schedd, machine = (Collector().locate(kind) for kind in (DaemonType.Schedd, DaemonType.Startd))
    remote = RemoteParam(schedd)
    assert remote["NUM_CPUS"] == "2"
    remote["MAX_JOBS_PER_OWNER"] = "77"
    send_command(schedd, DaemonCommand.Reconfig)
    assert remote["max_jobs_per_owner"] == "77"
    assert "MAX_JOBS_PER_OWNER" in list(remote)
    with pytest.raises(HTCondorException, match="NUM_CPUS"):
        remote["NUM_CPUS"] = "5"
    with pytest.raises(HTCondorException, match="roost on"):
        send_command(schedd, DaemonCommand.DaemonsOn)
    draining = Startd(machine).drainJobs(DrainType.Quick, reason="test")
    with pytest.raises(HTCondorException):
        Startd(machine).cancelDrainJobs("another")
    Startd(machine).cancelDrainJobs(draining)


def test_the_configuration_is_a_mapping():
    assert param["num_cpus"] == "2"
    assert "NUM_CPUS" in param
    param["MY_OWN"] = "$(NUM_CPUS)0"
    assert param["MY_OWN"] == "20"
    reload_config()
    with pytest.raises(KeyError):
        param["MY_OWN"]


def test_tokens_of_services_are_kept():
    credd = Credd()
    credd.add_user_service_cred(CredType.OAuth, b"token", "box")
    assert float(credd.query_user_service_cred(CredType.OAuth, "box")) <= time.time() + 60
    assert credd.check_user_service_creds(CredType.OAuth, [ClassAd({"Service": "box"})])
    missing = credd.check_user_service_creds(CredType.OAuth, [ClassAd({"Service": "drive"})])
    assert (missing.present, "drive" in str(missing)) == (False, True)
    assert Submit({"use_oauth_services": "box"}).issue_credentials() is None
    with pytest.raises(HTCondorException, match="drive"):
        Submit({"use_oauth_services": "box, drive"}).issue_credentials()
    credd.delete_user_service_cred(CredType.OAuth, "box")
    with pytest.raises(HTCondorException, match="no token of box"):
        credd.query_user_service_cred(CredType.OAuth, "box")
    with pytest.raises(HTCondorException, match=r"CredType\.OAuth"):
        credd.add_user_service_cred(CredType.Kerberos, b"", "box")


def test_the_older_module_gives_its_own_ads(held):
    _, cluster = held
    schedd = old_htcondor.Schedd(old_htcondor.Collector().locate(DaemonType.Schedd))
    ads = list(schedd.xquery(old_class_ad.Attribute("ClusterId") == cluster, ["ProcId"]))
    assert [type(ad) for ad in ads] == [old_class_ad.ClassAd] * 3
    with pytest.raises(HTCondorException, match=r"Schedd\.submit"):
        schedd.submitMany()


def test_what_a_failed_transaction_queued_is_removed():
    schedd = old_htcondor.Schedd()
    with schedd.transaction() as block:
        kept = old_htcondor.Submit(SLEEP).queue(block, 2)
    with pytest.raises(RuntimeError), schedd.transaction() as block:  # noqa: PT012  what is raised inside is the point
        gone = old_htcondor.Submit(SLEEP).queue_with_itemdata(block, 1, iter([{"executable": "/bin/true"}]))
        raise RuntimeError
    assert len(schedd.query(f"ClusterId == {kept}")) == 2
    assert schedd.query(f"ClusterId == {gone.cluster()}") == []
    schedd.act(JobAction.Remove, kept)


ABSENT = (
    "refreshGSIProxy",
    "export_jobs",
    "unexport_jobs",
    "get_claims",
    "addUserRec",
    "create_ocu",
)


@pytest.mark.parametrize("name", ABSENT)
def test_what_there_is_not_is_refused_with_what_there_is(name):
    with pytest.raises(HTCondorException, match=f"^{name} is not in Roost: .{{10,}}"):
        getattr(Schedd(), name)("anything", at="all")


def test_a_dag_is_submitted_halted_and_resumed(here):
    (here / "node.sub").write_text("executable = /bin/sleep\narguments = $(naps)\ntransfer_executable = false\nqueue\n")
    (here / "d.dag").write_text(
        'JOB A node.sub\nJOB B node.sub\nVARS A naps="1000"\nVARS B naps="0"\nPARENT A CHILD B\n'
    )
    schedd = Schedd()
    result = schedd.submit(Submit.from_dag("d.dag", {"BatchName": "night"}))
    dag, mine = DAGMan(result.cluster()), f"DAGManJobId == {result.cluster()}"
    wait_until(lambda: schedd.query(mine), what="the job of node A")
    (line,) = schedd.query(f"ClusterId == {dag.dag_id}", ["JobUniverse", "JobBatchName"])
    assert (line["JobUniverse"], line["JobBatchName"]) == (7, "night")
    with pytest.raises(HTCondorException, match=f"is job {dag.dag_id}.0 already"):
        Submit.from_dag("d.dag")
    assert dag.halt("a reason") == (True, f"Halted DAG {dag.dag_id}")
    out = here / "d.dag.dagman.out"
    wait_until(lambda: "d.dag.halt: a reason" in out.read_text(), what="the halt")
    assert dag.resume() == (True, f"Resumed DAG {dag.dag_id}")
    wait_until(lambda: "the DAG goes on" in out.read_text(), what="the resumption")
    with pytest.raises(HTCondorException, match="from_dag"):
        dag.throttle(max_idle=5)
    schedd.act(JobAction.Remove, dag.dag_id)
    wait_until(lambda: not schedd.query(f"{mine} || ClusterId == {dag.dag_id}"), what="the removal")
    assert dag.halt()[0] is False
    assert (here / "d.dag.rescue001").exists()
