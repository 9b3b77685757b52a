"""The smaller decisions: autoclusters, claim reuse, $$ expansion, what ads may say, where files go."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.queue import autoclusters
from engine.queue.autoclusters import Autoclusters
from engine.queue.claim_reuse import fits, next_job
from engine.queue.idle_queue import IdleQueue
from engine.queue.job_table import JobTable
from engine.queue.jobs import BadSubmit, Cluster, JobId, JobStatus
from engine.queue.submitters import submitter_of
from services.schedd.core.acceptance import accept_cluster, accept_proc, check_edits
from services.schedd.core.job_launch_ad import expand_dollar_dollar, wants_transfer
from services.schedd.io import history
from services.schedd.io.submission import make_job
from shared.classad import ClassAd, parse_ad
from shared.transfer.bundle import Entry
from shared.transfer.errors import TransferError
from shared.transfer.sandbox import output_moves, parse_remaps
from tests.spec import spec

NOW = 1000.0


def cluster_of(text, number=1):
    return Cluster(number, "alice", "alice@p", "alice@p", 0, parse_ad(f"[{text}]"))


def job_of(cluster, proc=0, text=""):
    return make_job(cluster, proc, parse_ad(f"[{text}]").pack(), JobStatus.IDLE, 0, "alice@p")


def test_when_a_job_became_idle_is_known_exactly_and_after_a_restart_by_its_ad_to_the_second():
    job = job_of(cluster_of("QDate = 995"))
    assert job.idle_since() == 995
    job.ad["LastVacateTime"] = 997
    assert job.idle_since() == 997
    table = JobTable(Autoclusters())
    table.add(job.cluster, [job])
    table.set_status(job, JobStatus.HELD, NOW + 1)
    table.set_status(job, JobStatus.IDLE, NOW + 2.25)
    assert job.idle_since() == NOW + 2.25


# Autoclusters


def test_jobs_that_differ_only_in_what_no_slot_sees_share_an_autocluster():
    found = Autoclusters()
    one, two = cluster_of('RequestMemory = 5; Cmd = "a"'), cluster_of('RequestMemory = 5; Cmd = "b"', 2)
    ids = [found.assign(job_of(one, proc, f'Args = "{proc}"')) for proc in range(3)]
    ids.append(found.assign(job_of(two)))
    assert len(set(ids)) == 1


@pytest.mark.parametrize("text", ["RequestMemory = 6", "RequestMemory = 5.0", "RequestFoo = 1", "Rank = 1"])
def test_jobs_that_slots_can_tell_apart_do_not(text):
    found, cluster = Autoclusters(), cluster_of("RequestMemory = 5")
    assert found.assign(job_of(cluster)) != found.assign(job_of(cluster, 1, text))


def test_references_are_followed_in_the_job():
    found, cluster = Autoclusters(), cluster_of("Requirements = TARGET.X >= Wanted; Wanted = Base + 1; Base = 1")
    assert found.assign(job_of(cluster)) != found.assign(job_of(cluster, 1, "Base = 2"))
    assert found.assign(job_of(cluster)) == found.assign(job_of(cluster, 2, "X = 2"))


def test_requirements_that_name_the_proc_tell_procs_apart():
    found, cluster = Autoclusters(), cluster_of("Requirements = TARGET.Number == ProcId")
    assert found.assign(job_of(cluster, 0)) != found.assign(job_of(cluster, 1))


def test_new_significant_attributes_sort_anew_and_never_reuse_a_number():
    found, cluster = Autoclusters(), cluster_of("RequestMemory = 5")
    jobs = [job_of(cluster, proc, f"Colour = {proc}") for proc in range(2)]
    before = {found.assign(job) for job in jobs}
    assert len(before) == 1
    assert found.set_significant(["Colour"])
    assert not found.set_significant(["colour"])
    after = {found.assign(job) for job in jobs}
    assert len(after) == 2
    assert not before & after


@spec("NEG-17")
def test_what_the_administrator_calls_significant_replaces_what_negotiators_say():
    found, cluster = Autoclusters(significant=["Colour"]), cluster_of("RequestMemory = 5")
    assert not found.set_significant(["Size"])
    same = [job_of(cluster, 0, "Size = 1"), job_of(cluster, 1, "Size = 2")]
    assert len({found.assign(job) for job in same}) == 1
    differing = [job_of(cluster, 2, "Colour = 1"), job_of(cluster, 3, "RequestMemory = 6")]
    assert len({found.assign(job) for job in (*same, *differing)}) == 3


def test_autoclusters_of_jobs_long_gone_do_not_fill_the_memory(monkeypatch):
    monkeypatch.setattr(autoclusters, "MAX_KNOWN", 3)
    found, cluster = Autoclusters(), cluster_of("RequestMemory = 5")
    ids = [found.assign(job_of(cluster, proc, f"RequestX = {proc % 7}")) for proc in range(50)]
    assert len(found._ids) <= 3
    # Whoever shares a number is alike.
    kinds = {}
    for proc, number in enumerate(ids):
        assert kinds.setdefault(number, proc % 7) == proc % 7


def test_different_submitters_never_share():
    found, cluster = Autoclusters(), cluster_of("RequestMemory = 5")
    other = job_of(cluster, 1)
    other.submitter = "group.x@p"
    assert found.assign(job_of(cluster)) != found.assign(other)


# Claims


@pytest.mark.parametrize(
    ("job", "slot", "good"),
    [
        ("Requirements = TARGET.M > 1", "M = 2; Start = true", True),
        ("Requirements = TARGET.M > 1", "M = 1; Start = true", False),
        ("Requirements = true", 'Start = TARGET.Owner == "x"', False),
        ("Requirements = true; RequestCpus = 2", "Cpus = 1; Start = true", False),
        ("Requirements = true; RequestMemory = 2 * 64", "Memory = 128; Start = true", True),
        ("Requirements = true", "Requirements = true", True),
        ("Requirements = undefined", "Start = true", False),
        ("Requirements = true", "Start = true; Requirements = false", True),
    ],
)
def test_what_fits_a_claim(job, slot, good):
    assert fits(parse_ad(f"[{job}]"), parse_ad(f"[{slot}]"), NOW) is good


def test_the_first_job_that_fits_is_next_and_misfits_are_remembered():
    idle, known, tried = IdleQueue(), {}, []
    for proc, autocluster in enumerate((7, 8, 7, 9)):
        idle.add(autocluster, (0, 1, proc))

    def fit(key, autocluster):
        tried.append(autocluster)
        return autocluster != 7

    assert next_job(idle, known, fit).key == (0, 1, 1)
    assert next_job(idle, known, fit).key == (0, 1, 1)
    assert tried == [7, 8]
    idle.remove(8, (0, 1, 1))
    idle.remove(9, (0, 1, 3))
    assert next_job(idle, known, fit).reason
    assert next_job(None, {}, fit).key is None


# Expansion


@spec("SLT-27")
@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("$$(Name)", "s1"),
        ("a$$(Cpus)b$$(Name)", "a4bs1"),
        ("$$(nope:def ault)", "def ault"),
        ("$$(nope:)", ""),
        ("$$([TARGET.Cpus * 2 + MY.N])", "9"),
        ('$$([strcat("(", TARGET.Name, ")")])', "(s1)"),
        ("$(X) $ $$ $$x", None),
        ("$$(ClaimId:hidden)", "hidden"),
    ],
)
def test_dollar_dollar(text, result):
    """Attributes of the matched slot stand in for $$(...)."""
    expanded = expand_dollar_dollar(
        ClassAd({"Args": text, "N": 1}), parse_ad('[Name = "s1"; Cpus = 4; ClaimId = "s"]'), NOW
    )
    assert not expanded.problem
    assert expanded.changes.get("Args") == result


@pytest.mark.parametrize("text", ["$$(nope)", "$$([1 +])", "$$([nosuch])", "$$(un closed", "$$(a b)", "$$(ClaimId)"])
def test_dollar_dollar_that_can_not_be_expanded_says_where(text):
    assert "Args" in expand_dollar_dollar(ClassAd({"Args": text}), parse_ad('[ClaimId = "s"]'), NOW).problem


@given(st.text(alphabet='$(x)[":] ', max_size=40))
def test_no_text_breaks_the_expansion(text):
    expand_dollar_dollar(ClassAd({"Args": text}), ClassAd({"x": 1}), NOW)


# What ads may say


def test_an_accepted_ad_begins_at_the_beginning():
    ad = parse_ad('[Owner = "root"; NumJobStarts = 9; JobStatus = 4; _condor_privX = 1; Cmd = "c"; Custom = 3]')
    accepted = accept_cluster(ad, user="alice@p", cluster=4, now=NOW, spool=False)
    assert (accepted.ad["Owner"], accepted.ad["User"], accepted.ad["NumJobStarts"]) == ("alice", "alice@p", 0)
    assert (accepted.ad["JobStatus"], accepted.ad["ClusterId"], accepted.ad["Custom"]) == (1, 4, 3)
    assert "_condor_privX" not in accepted.ad


@pytest.mark.parametrize(
    ("ad", "spool", "code"), [("JobStatus = 5", False, 15), ("", True, 16), ("JobStatus = 5", True, 16)]
)
def test_jobs_submitted_on_hold(ad, spool, code):
    accepted = accept_cluster(parse_ad(f"[{ad}]"), user="a@p", cluster=1, now=NOW, spool=spool)
    assert accepted.status == JobStatus.HELD
    assert accepted.each["HoldReasonCode"] == code


@pytest.mark.parametrize(
    ("ad", "name"),
    [
        ("", "alice@p"),
        ('AccountingGroup = "phys.alice"', "phys.alice@p"),
        ('AccountingGroup = "phys.bob@q"', "phys.bob@q"),
        ("NiceUser = true", "nice-user.alice@p"),
    ],
)
def test_submitter_names(ad, name):
    assert submitter_of(parse_ad(f"[{ad}]"), "alice@p") == name


def test_procs_lose_what_is_not_theirs_and_bad_ones_are_refused():
    packed, names = accept_proc(parse_ad('[Args = "1"; Owner = "root"; ProcId = 7]').pack(), "job 0")
    assert set(ClassAd.unpack(packed)) == {"Args"}
    assert names == {"args"}
    for bad in (b"", b"\xff", ClassAd({"a": 1}).pack()[:-1]):
        with pytest.raises(BadSubmit, match="job 3"):
            accept_proc(bad, "job 3")


@pytest.mark.parametrize("text", ["Owner = 1", "jobstatus = 1", 'Iwd = "/"', 'JobPrio = "high"', "ClaimId = 1"])
def test_edits_that_are_refused(text):
    with pytest.raises(BadSubmit):
        check_edits(parse_ad(f"[{text}]").pack(), admin=False)


@pytest.mark.parametrize("text", ["x", "1.", "1.x", "-1", "1.-2", "9" * 30, "¹.2", ""])
def test_job_ids_that_are_none(text):
    with pytest.raises(ValueError, match="no job id"):
        JobId.parse(text)


# Files


@pytest.mark.parametrize(
    ("job", "slot", "spooled", "wanted"),
    [
        ('ShouldTransferFiles = "YES"', "", False, True),
        ('ShouldTransferFiles = "NO"', "", False, False),
        ('ShouldTransferFiles = "NO"', "", True, True),
        ('FileSystemDomain = "a"', 'FileSystemDomain = "A"', False, False),
        ('FileSystemDomain = "a"', 'FileSystemDomain = "b"', False, True),
        ('FileSystemDomain = "a"; DockerImage = "x"', 'FileSystemDomain = "a"', False, True),
        ("", "", False, True),
    ],
)
def test_when_files_travel(job, slot, spooled, wanted):
    assert wants_transfer(parse_ad(f"[{job}]"), parse_ad(f"[{slot}]"), spooled=spooled) is wanted


def test_remaps_are_read():
    assert parse_remaps("a=b; c = d/e;bad;=x;y=") == {"a": "b", "c": "d/e"}
    assert parse_remaps(r"a\;b=c\=d") == {"a;b": "c=d"}


def test_outputs_find_their_places(tmp_path):
    ad = ClassAd({"Out": "/abs/out", "Err": "", "TransferOutputRemaps": "d=/far; x=y"})
    entries = [Entry(name, "file") for name in ("_condor_stdout", "_condor_stderr", "d/e/f", "x", "z")]
    moves = {move.name: move.target for move in output_moves(ad, entries, iwd=tmp_path)}
    assert moves == {
        "_condor_stdout": "/abs/out",
        "d/e/f": "/far/e/f",
        "x": str(tmp_path / "y"),
        "z": str(tmp_path / "z"),
    }
    (tmp_path / "way").symlink_to("/")
    with pytest.raises(TransferError, match="outside"):
        output_moves(ad, [Entry("way/x", "file")], iwd=Path(tmp_path))


def test_history_keeps_the_newest(tmp_path):
    import sqlite3

    database = sqlite3.connect(":memory:")
    database.execute("CREATE TABLE history (seq INTEGER PRIMARY KEY, ad BLOB)")
    database.executemany("INSERT INTO history VALUES (?, ?)", [(n, bytes(10)) for n in range(1, 11)])
    assert history.prune(database, 45) == 6
    assert [row[0] for row in database.execute("SELECT seq FROM history")] == [7, 8, 9, 10]
    assert history.prune(database, 0) == 0
