"""What a run is told of its job: the whole ad, whose job and run it is, and where its files are."""

import pytest

from engine.queue.jobs import JobId, Shadow
from services.schedd.core.job_launch_ad import expand_for, is_container_job, make_activation, match_exprs, tell_match
from shared.classad import ClassAd, parse_ad
from tests.spec import spec
from tests.unit.schedd.test_decisions import cluster_of, job_of
from tests.unit.schedd.test_job_end import claim_of

NOW = 1234.9


def activation_of(job, *, transfer=True, expanded=None, claim=None):
    run = Shadow(job.id, 3, "secret", transfer, 1000.0)
    return make_activation("ap", job, claim or claim_of(""), run, expanded or {}, "https://ap:9620", NOW)


def test_a_run_gets_the_ad_of_cluster_and_proc_with_who_it_is():
    job = job_of(cluster_of('Cmd = "/bin/a"; Args = "all"; RequestCpus = ProcId + 1'), 2, 'args = "own"; Own = 5')
    told = activation_of(job)
    ad = ClassAd.unpack(told.job_ad)
    assert (ad.eval("Cmd"), ad.eval("Args"), ad.eval("Own"), ad.eval("RequestCpus")) == ("/bin/a", "own", 5, 3)
    assert [name for name, _ in ad.cells() if name.lower() == "args"] == ["Args"]
    assert (ad.eval("ProcId"), ad.eval("ServerTime"), ad.eval("ScheddName")) == (2, 1234, "ap")
    assert (ad.eval("SubmitterName"), ad.eval("RemoteUser")) == ("alice@p", "alice@p")
    assert str(ad.eval("GlobalJobId")).startswith("ap#1.2#")
    assert (told.job_id, told.attempt) == ("1.2", 3)


def test_where_files_travel_it_gets_the_place_and_the_token_and_else_neither():
    job = job_of(cluster_of(""), 7)
    told = activation_of(job)
    assert (told.transfer_url, told.transfer_token) == ("https://ap:9620/runs/1.7/3", "secret")
    told = activation_of(job, transfer=False)
    assert (told.transfer_url, told.transfer_token) == ("", "")


def test_what_was_filled_in_for_the_slot_stands_in_the_runs_ad_and_not_in_the_jobs():
    job = job_of(cluster_of('Args = "$$(Arch) $$(Nothing:none)"'))
    found = expand_for("ap", job, claim_of('Arch = "X86_64"'), NOW)
    assert found.changes == {"Args": "X86_64 none", "MATCH_EXP_Arch": "X86_64", "MATCH_EXP_Nothing": "none"}
    ad = ClassAd.unpack(activation_of(job, expanded=found.changes).job_ad)
    assert (ad.eval("Args"), ad.eval("MATCH_EXP_Arch")) == ("X86_64 none", "X86_64")
    assert job.cluster.ad.eval("Args") == "$$(Arch) $$(Nothing:none)"


@pytest.mark.parametrize("read", [False, True], ids=["text", "value"])
@pytest.mark.parametrize("place", ["cluster", "proc"])
def test_a_mark_is_found_in_the_clusters_ad_and_the_procs(place, read):
    text = 'Args = "$$(Arch)"'
    job = job_of(cluster_of(text if place == "cluster" else ""), 0, text if place == "proc" else "")
    if read:
        (job.cluster if place == "cluster" else job).ad["Args"] = "$$(Arch)"
    assert expand_for("ap", job, claim_of('Arch = "ARM"'), NOW).changes["Args"] == "ARM"
    problem = expand_for("ap", job, claim_of(""), NOW)
    assert not problem.changes
    assert "the matched slot has no attribute Arch" in problem.problem


@pytest.mark.parametrize("text", ["", 'Args = "$(Arch) $$ $$Arch"', "Args = 5"])
def test_without_a_mark_nothing_is_filled_in(text):
    found = expand_for("ap", job_of(cluster_of(text)), claim_of(""), NOW)
    assert (found.changes, found.problem) == ({}, "")


@spec("NEG-32")
def test_what_the_negotiator_told_replaces_what_an_earlier_one_told():
    slot = parse_ad('[Cpus = 4; NegotiatorMatchExprGroup = "physics"; negotiatormatchexprPrio = 2.5]')
    told = match_exprs(slot)
    assert ClassAd.unpack(told).eval("NegotiatorMatchExprPrio") == 2.5
    assert ClassAd.unpack(told).eval("Cpus") is not None
    assert len(list(ClassAd.unpack(told).cells())) == 2
    assert match_exprs(parse_ad("[Cpus = 4]")) == b""
    job, claim = job_of(cluster_of(""), text="NegotiatorMatchExprOld = 1; Kept = 2"), claim_of("")
    claim.match_exprs = told
    tell_match(job, claim)
    assert job.ad.eval("NegotiatorMatchExprGroup") == "physics"
    assert ("NegotiatorMatchExprOld" in job.ad, job.ad.eval("Kept")) == (False, 2)
    claim.match_exprs = b""
    tell_match(job, claim)
    assert "NegotiatorMatchExprGroup" not in job.ad


@pytest.mark.parametrize(
    ("ad", "container"),
    [
        ("WantDocker = true", True),
        ("WantContainer = true", True),
        ("WantDockerImage = true", True),
        ('DockerImage = "debian"', True),
        ('ContainerImage = "x.sif"', True),
        ("WantDocker = false", False),
        ("WantDocker = 1", False),
        ('DockerImage = ""', False),
        ("", False),
    ],
)
def test_which_jobs_run_in_containers(ad, container):
    assert is_container_job(parse_ad(f"[{ad}]")) is container


def test_a_run_is_named_by_job_and_attempt():
    job = job_of(cluster_of("", 12), 34)
    assert job.id == JobId(12, 34)
    assert activation_of(job).job_id == "12.34"
