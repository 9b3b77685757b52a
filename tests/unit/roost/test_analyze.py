"""`roost analyze` of files, and how its reports are shown."""

from __future__ import annotations

import json

import pytest

from roost.cli.analyze import Paint, job_lines
from roost.cli.main import main
from shared.classad import unparse_old
from tests.unit.analyze.pools import job, slot


@pytest.fixture(autouse=True)
def files(tmp_path, monkeypatch):
    """slots.ads and jobs.ads in the working directory."""
    monkeypatch.chdir(tmp_path)
    for name in ("ROOST_URL", "ROOST_TOKEN", "ROOST_TOKEN_FILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("ROOST_POOL_DIR", str(tmp_path / "none"))
    write(
        "slots.ads",
        slot("slot1@node1"),
        slot("slot1@node2", Memory=65536),
        slot("slot1@gpu1", State="Claimed", RemoteUser="bob@pool"),
        slot("slot1@desk", Start='=TARGET.Owner == "zoe"', State="Owner"),
        slot("slot1@big", PartitionableSlot=True, Cpus=0, Memory=128, TotalSlotMemory=262144, TotalSlotCpus=64),
        slot("slot1_1@big", DynamicSlot=True, Cpus=64, Memory=262016, State="Claimed", RemoteUser="carol@pool"),
    )
    write(
        "jobs.ads",
        job(RequestMemory=999_999),
        job(ProcId=1),
        job(ProcId=2, JobStatus=5, HoldReason="by hand", HoldReasonCode=1),
        job(
            "TARGET.HasDocker && TARGET.Memory >= RequestMemory",
            ClusterId=13,
            Owner="dave",
            LastRejMatchReason="slots ran out",
            LastRejMatchTime=86400,
        ),
    )


def write(name, *ads):
    with open(name, "w") as file:
        file.write("\n".join(unparse_old(ad) for ad in ads))


def said(capsys, words, code=0):
    assert main([*words.split(), "-slotads", "slots.ads"]) == code
    told = capsys.readouterr()
    return told.err if code else told.out


def test_a_job_that_never_fits(capsys):
    assert (
        said(capsys, "analyze 12.0 -jobads jobs.ads")
        == """\
Job 12.0: idle
  No slot satisfies its Requirements: RequestMemory is 999999, and if it were 262144, 1 slot would; it does not \
run as things are.

  Slots
    6  do not satisfy the job's Requirements
    6  in all

  What the job requires, and how many slots satisfy it
       alone together  condition
           0        0  TARGET.Memory >= RequestMemory
           5        0  TARGET.Cpus >= RequestCpus

  What slots require of the job
     rejects   accept of slots  condition
           5        0        6  (TARGET.RequestMemory ?: 1) <= MY.Memory
           1        5        6  (TARGET.RequestCpus ?: 1) <= MY.Cpus

  What would help
    +1 slot:  RequestMemory = 262144 (it is 999999)
"""
    )


def test_a_job_that_could_run(capsys):
    assert (
        said(capsys, "analyze 12.1 -jobads jobs.ads")
        == """\
Job 12.1: idle
  2 slots could run it now; it waits for the next negotiation cycle.

  Slots
    2  suit and are free
    1  has too much in use for the job (Cpus: 8 of 76 free, at most 4 on one, Memory: 72.12 GiB of 280 GiB free, at \
most 64 GiB on one)
    2  are claimed: bob@pool 1, carol@pool 1
    1  does not accept the job (its START or Requirements) (1 in state Owner)
    6  in all

  What the job requires, and how many slots satisfy it
       alone together  condition
           5        5  TARGET.Memory >= RequestMemory
           5        5  TARGET.Cpus >= RequestCpus

  What slots require of the job
     rejects   accept of slots  condition
           1        0        1  TARGET.Owner == "zoe"
"""
    )


def test_all_idle_jobs_without_any_named(capsys):
    lines = said(capsys, "analyze -summary -jobads jobs.ads").splitlines()
    assert [line.split(":")[0] for line in lines] == ["12.0", "12.1", "13.0"]


@pytest.mark.parametrize(
    ("words", "jobs"),
    [
        ("12", ["12.0", "12.1", "12.2"]),
        ("12.1 13", ["12.1", "13.0"]),
        ("dave", ["13.0"]),
        ("-constraint RequestMemory>2000", ["12.0"]),
        ("-limit 1", ["12.0"]),
    ],
)
def test_jobs_are_chosen_as_everywhere(capsys, words, jobs):
    found = json.loads(said(capsys, f"analyze {words} -json -jobads jobs.ads"))
    assert [report["job"] for report in found["jobs"]] == jobs
    assert found["more"] == (2 if "limit" in words else 0)


def test_q_analyzes_in_htcondors_words(capsys):
    better = said(capsys, "q -better-analyze 12.1 -jobads jobs.ads")
    assert better.startswith("\n\n-- Jobads: jobs.ads\nThe Requirements expression for job 12.001 is\n\n    ")
    assert said(capsys, "q 12.1 -better -jobads jobs.ads") == better
    assert "Step    Matched  Condition\n" not in said(capsys, "q -analyze 12.1 -jobads jobs.ads")


def test_reverse_shows_the_slots_conditions_first_and_all(capsys):
    text = said(capsys, "analyze -reverse 12.1 -jobads jobs.ads")
    assert text.index("What slots require") < text.index("What the job requires")
    assert "           0        5        6  (TARGET.RequestMemory ?: 1) <= MY.Memory\n" in text
    assert "<= MY.Memory" not in said(capsys, "analyze 12.1 -jobads jobs.ads")


def test_one_machine_only(capsys):
    found = json.loads(said(capsys, "analyze 12.1 -machine desk -json -jobads jobs.ads"))
    assert found["jobs"][0]["outcomes"] == {"slot-requirements": 1}


def test_what_a_slot_would_take(capsys):
    assert (
        said(capsys, "analyze -machine node1 -jobads jobs.ads")
        == """\
Slot slot1@node1: Unclaimed/Idle
  It is on offer; of 3 idle jobs it would take 1, one or the other.

      JOB  SUBMITTER  JOBS WHY NOT
  no  12.0 alice@pool    1 the job requires TARGET.Memory >= RequestMemory
  yes 12.1 alice@pool    1
  no  13.0 alice@pool    1 the job requires TARGET.HasDocker
"""
    )


def test_the_last_cycle_and_a_condition_to_drop(capsys):
    text = said(capsys, "analyze 13 -jobads jobs.ads")
    assert "The last negotiation cycle at " in text
    assert " said: slots ran out\n" in text
    assert "  What would help\n    +4 slots: without TARGET.HasDocker\n" in text


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("analyze 14 12.1 -jobads jobs.ads", "there is no job 14 in jobs.ads"),
        ("analyze 12.9 -jobads jobs.ads", "there is no job 12.9 in jobs.ads"),
        ("analyze -machine node9 -jobads jobs.ads", "slots.ads has no slot or machine of that name"),
        ("analyze -jobads none.ads", "none.ads"),
        ("analyze -limit 0 -jobads jobs.ads", "-limit wants 1 to 50"),
        ("analyze -limit many -jobads jobs.ads", "wants a whole number"),
        ("analyze -constraint ((( -jobads jobs.ads", "-constraint"),
        ("q -analyze:priority 12 -jobads jobs.ads", "roost negotiate"),
        ("analyze 12", "roost up"),
    ],
)
def test_mistakes_are_told_with_the_mend(capsys, words, says):
    assert says in said(capsys, words, code=1)


def test_jobs_of_a_file_want_slots_of_a_file(capsys):
    assert main(["analyze", "-jobads", "jobs.ads"]) == 1
    assert "-jobads needs -slotads" in capsys.readouterr().err


def test_nothing_idle(capsys):
    write("jobs.ads", job(JobStatus=4))
    assert said(capsys, "analyze -jobads jobs.ads") == "No such jobs in the queue: nothing to explain.\n"


def test_long_and_odd_texts_stay_on_one_line(capsys):
    write("jobs.ads", job('TARGET.Name == "' + "x" * 500 + '" && TARGET.Arch == "a\u2028b"'))
    for line in said(capsys, "analyze -jobads jobs.ads").splitlines():
        assert len(line) < 260


def test_colours_are_for_terminals_only(capsys, monkeypatch):
    report = json.loads(said(capsys, "analyze 12.0 -json -jobads jobs.ads"))["jobs"][0]
    plain = list(job_lines(report, reverse=False, paint=Paint(False)))
    painted = list(job_lines(report, reverse=False, paint=Paint(True)))
    assert painted[0] == "\x1b[1mJob 12.0: idle\x1b[0m"
    for code in ("\x1b[1m", "\x1b[31m", "\x1b[32m", "\x1b[0m"):
        painted = [line.replace(code, "") for line in painted]
    assert painted == plain
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    monkeypatch.setenv("NO_COLOR", "1")
    assert Paint.of_terminal().bad("x") == "x"
    monkeypatch.delenv("NO_COLOR")
    assert Paint.of_terminal().bad("x") == "\x1b[31mx\x1b[0m"
