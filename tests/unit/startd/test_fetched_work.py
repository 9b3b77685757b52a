"""Work that hooks fetch (FHK-02, FHK-09 to FHK-13)."""

import re

import pytest

from services.startd.core.fetched_work import BadWork, accept, delay_s, log_event, log_path, read_work
from shared.classad import ClassAd, parse_expr
from shared.messages.claims import JobExit, JobReport, Usage
from tests.spec import spec


def take(keyword="WEB", root=False, partitionable=False, **attrs):
    return accept(
        ClassAd({"Cmd": "/bin/work"} | attrs),
        keyword=keyword,
        root=root,
        partitionable=partitionable,
        uid_domain="pool",
        java="/opt/java",
    )


@spec("FHK-02")
@pytest.mark.parametrize("text", [b"", b"\n  \n", b"# nothing today\n"])
def test_no_output_is_no_work(text):
    assert read_work(text) is None


@spec("FHK-02")
def test_output_is_a_job():
    assert read_work(b'Cmd = "/bin/x"\nArgs = "1 2"\n').eval("Args") == "1 2"
    for text in (b"rubbish", b"A = \xff", b"A = 1 +"):
        with pytest.raises(BadWork):
            read_work(text)


@spec("FHK-10")
@pytest.mark.parametrize(
    ("attrs", "mend"),
    [
        ({"Cmd": ""}, "Cmd is missing"),
        ({"root": True}, "Owner is missing"),
        ({"Owner": "a b"}, "no name of an account"),
        ({"Owner": "../x"}, "no name of an account"),
        ({"partitionable": True, "RequestCpus": 1, "RequestMemory": 1}, "RequestDisk is missing"),
        ({"partitionable": True, "RequestCpus": 1, "RequestMemory": "x", "RequestDisk": 1}, "RequestMemory"),
        ({"JobUniverse": 7}, "JobUniverse is neither"),
        ({"JobUniverse": "vanilla"}, "JobUniverse is neither"),
    ],
)
def test_what_a_job_needs(attrs, mend):
    with pytest.raises(BadWork, match=mend):
        take(**attrs)


@spec("FHK-10", "FHK-13")
def test_what_a_job_gets():
    """The keyword of its hook, whatever it says itself."""
    job = take(root=True, Owner="alice", HookKeyword="OTHER", ClaimId="x", JobLeaseDuration=20)
    names = ("HookKeyword", "User", "JobUniverse", "ClusterId", "ProcId", "Requirements", "RunAsOwner")
    assert [job.eval(name) for name in names] == ["WEB", "alice@pool", 5, 1, 0, True, True]
    assert "ClaimId" not in job
    assert "JobLeaseDuration" not in job  # nobody renews it
    assert take(Requirements=parse_expr("false")).eval("Requirements") is False
    assert take(ClusterId=77).eval("ClusterId") == 77


@spec("FHK-10")
def test_java():
    """Universe 10; the first argument is the class with main."""
    job = take(JobUniverse=10, Cmd="/w/Hello.class", Args="Hello 3", JarFiles="a.jar, b.jar")
    assert job.eval("Cmd") == "/opt/java"
    assert job.eval("Args") == "-classpath a.jar:b.jar:/w Hello 3"


@spec("FHK-10", "FHK-12")
def test_the_log_lies_below_iwd():
    assert log_path(take(StarterUserLog="log", Iwd="/data"), "/scratch") == "/data/log"
    assert log_path(take(StarterUserLog="log"), "/scratch") == "/scratch/log"
    assert log_path(take(StarterUserLog="/var/log"), "/scratch") == "/var/log"
    assert log_path(take(), "/scratch") == ""


@spec("FHK-09", "W-74")
@pytest.mark.parametrize(
    ("text", "state", "seconds"),
    [
        ("300", "Unclaimed", 300),
        ('ifThenElse(State == "Claimed" && Activity == "Idle", 0, 300)', "Claimed", 0),
        ('ifThenElse(State == "Claimed" && Activity == "Idle", 0, 300)', "Unclaimed", 300),
        ("undefined", "Unclaimed", 300),
        ('"soon"', "Unclaimed", 300),
        ("-7", "Unclaimed", 0),
        ("TARGET.Pause", "Claimed", 42),
        ("1.5", "Unclaimed", 1.5),
    ],
)
def test_the_delay(text, state, seconds):
    """In the ads of slot and job; 300 s where it is no number."""
    slot = ClassAd({"State": state, "Activity": "Idle"})
    assert delay_s(parse_expr(text), slot, ClassAd({"Pause": 42})) == seconds


def report(phase, **fields):
    values = {"startd": "n", "slot": "slot1@n", "claim_id": "c", "job_id": "7.3", "attempt": 1, "sequence": 1}
    return JobReport(**values, phase=phase, at=1_700_000_000.0, started_at=1_699_999_990.0, **fields)


def ended(**fields):
    return report("ended", usage=Usage(user_cpu_s=2.0), exit=JobExit(**fields))


@spec("FHK-12")
@pytest.mark.parametrize(
    ("what", "first", "number", "kind", "words"),
    [
        (report("running"), True, "001", "ExecuteEvent", "Job executing on host: <n>"),
        (report("running"), False, "006", "JobImageSizeEvent", "Image size of job updated"),
        (report("suspended"), False, "010", "JobSuspendedEvent", "Job was suspended."),
        (ended(reason="exited", exit_code=3), False, "005", "JobTerminatedEvent", "return value 3"),
        (ended(reason="exited", exit_signal=9), False, "005", "JobTerminatedEvent", "signal 9"),
        (ended(reason="evicted", message="away"), False, "004", "JobEvictedEvent", "away"),
        (ended(reason="hold", message="no", hold_code=19), False, "012", "JobHeldEvent", "Code 19"),
        (ended(reason="failed", message="bad"), False, "007", "ShadowExceptionEvent", "bad"),
    ],
)
def test_the_log_of_fetched_work(what, first, number, kind, words):
    """In both forms."""
    job = take(ClusterId=7, ProcId=3)
    text = log_event(job, ClassAd({"Cpus": 1}), what, "n", first=first).decode()
    assert text.startswith(f"{number} (007.003.000) ")
    assert text.endswith("...\n")
    assert words in text
    job["StarterUserLogUseXML"] = True
    text = log_event(job, ClassAd({"Cpus": 1}), what, "n", first=first).decode()
    assert re.match(r"\s*<c>", text)
    assert f"<s>{kind}</s>" in text
    assert '<a n="Cluster"><i>7</i></a>' in text


def test_what_is_no_event_is_not_in_the_log():
    assert log_event(take(), ClassAd(), report("transferring-input"), "n", first=True) == b""
