"""`roost negotiate` of files: what it says, and what it says of mistakes. What is decided: test_whatif.py."""

from __future__ import annotations

import io
import json
import time
from pathlib import Path

import pytest

from roost.cli.main import main
from roost.cli.negotiate import placed_lines
from roost.cli.output import ads_from
from roost.whatif import Placed
from shared.classad import ClassAd, ads_to_json, unparse_old
from tests.spec import spec
from tests.unit.analyze.pools import job, slot

TIME = 1_795_294_462


@pytest.fixture(autouse=True)
def files(tmp_path, monkeypatch):
    """slots.ads, jobs.ads, users.ads and groups.config in the working directory."""
    monkeypatch.chdir(tmp_path)
    for name in ("ROOST_URL", "ROOST_TOKEN", "ROOST_TOKEN_FILE", "CONDOR_CONFIG"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("ROOST_POOL_DIR", str(tmp_path / "none"))
    monkeypatch.setenv("ROOST_CONFIG", "ONLY_ENV")
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    write(
        "slots.ads",
        *(slot(f"slot1@node{number}", Cpus=1, LastHeardFrom=TIME) for number in range(1, 7)),
        slot("slot1@own", Cpus=4, SlotWeight=4, State="Claimed", Activity="Busy", RemoteUser="carol@pool",
             Rank='=TARGET.Owner == "bob"', CurrentRank=0.0),
    )  # fmt: skip
    write(
        "jobs.ads",
        *(job("true", ProcId=proc, AccountingGroup="physics.alice") for proc in range(6)),
        *(job("true", ClusterId=13, ProcId=proc, User="bob@pool", Owner="bob") for proc in range(6)),
        job("TARGET.Memory > 99999", ClusterId=14, User="bob@pool", Owner="bob"),
    )
    write(
        "users.ads",
        ClassAd({"Name": "<none>", "IsAccountingGroup": True}),
        ClassAd({"Name": "bob@pool", "Priority": 1000.0, "PriorityFactor": 1000.0, "LastUpdate": TIME}),
    )
    Path("groups.config").write_text("GROUP_NAMES = physics\nGROUP_QUOTA_physics = 2\n")
    yield
    monkeypatch.undo()
    time.tzset()


def write(name, *ads):
    Path(name).write_text("\n".join(unparse_old(ad) for ad in ads))


def negotiate(capsys, words, code=0, files="-slotads slots.ads -jobads jobs.ads"):
    assert main(["negotiate", *files.split(), *words.split()]) == code
    told = capsys.readouterr()
    return told.err if code else told.out


def row(text, name):
    return next(line.split()[1:] for line in text.splitlines() if line.split()[:1] == [name])


def test_what_everybody_gets(capsys):
    assert (
        negotiate(capsys, "-userprios users.ads -slots")
        == """\
13 idle jobs and 7 slots, 7 on offer, at 2026-11-21 20:54:22
Configuration: no file

SUBMITTER          PRIORITY IN USE ASKED MATCHED WEIGHT LOSES SHARE
carol@pool           500.00      4     0       0      0     4
physics.alice@pool   500.00      0     6       6      6     0 66.7%
bob@pool            1000.00      0     7       1      4     0 33.3%
TOTAL                            4    13       7     10     4

JOB  SUBMITTER          SLOT        PREEMPTS
12.0 physics.alice@pool slot1@node1
12.1 physics.alice@pool slot1@node2
12.2 physics.alice@pool slot1@node3
12.3 physics.alice@pool slot1@node4
12.4 physics.alice@pool slot1@node5
12.5 physics.alice@pool slot1@node6
13.0 bob@pool           slot1@own   carol@pool by rank

NOTHING FOR FIRST SUBMITTER BECAUSE
          5 13.1  bob@pool  7 of 7 slots suit, but were given to other jobs in this cycle
          1 14.0  bob@pool  can not run on any slot as things are (of 7 slots, 7 do not satisfy the job's Requirements)
"""
    )


def test_what_if_the_quota_were_four(capsys):
    text = negotiate(capsys, "-config groups.config -set GROUP_QUOTA_physics=4 -set group_sort_expr=1")
    assert "Configuration: groups.config\n  with GROUP_QUOTA_physics=4\n  with group_sort_expr=1\n" in text
    assert "GROUP, SUBMITTER     QUOTA PRIORITY" in text
    assert row(text, "physics") == ["4", "0", "6", "4", "4", "0"]
    assert row(text, "physics.alice@pool") == ["500.00", "0", "6", "4", "4", "0", "100.0%"]
    assert row(text, "<none>") == ["6", "4", "7", "3", "6", "4"]
    as_configured = negotiate(capsys, "-config groups.config")
    assert row(as_configured, "physics.alice@pool") == ["500.00", "0", "6", "2", "2", "0", "100.0%"]


def test_priorities_and_a_knob_of_preemption(capsys):
    write("users.ads", ClassAd({"Name": "carol@pool", "Priority": 9e6, "PriorityFactor": 1000.0, "LastUpdate": TIME}))
    write("jobs.ads", *(job("true", ProcId=proc) for proc in range(7)))
    words = "-userprios users.ads -slots -set NEGOTIATOR_PRE_JOB_RANK=RemoteUser=?=undefined"
    assert row(negotiate(capsys, words), "TOTAL") == ["4", "7", "6", "6"]
    taken = negotiate(capsys, words + " -set PREEMPTION_REQUIREMENTS=RemoteUserPrio>SubmitterUserPrio")
    assert row(taken, "TOTAL") == ["4", "7", "7", "10", "4"]
    assert "12.6 alice@pool slot1@own   carol@pool by priority\n" in taken


def test_claims_on_a_partitionable_slot_that_end_are_named():
    ended = (("slot1_2@big", "carol@pool"), ("slot1_1@big", "bob@pool"))
    placed = Placed("alice@pool", "", "12.0", "slot1@big", 2.0, "priority", ended)
    assert placed_lines([placed], schedds=False)[1:] == [
        "12.0 alice@pool slot1@big carol@pool (slot1_2@big), bob@pool (slot1_1@big) by priority"
    ]


def test_json_has_all_of_it(capsys):
    found = json.loads(negotiate(capsys, "--json -config groups.config -set GROUP_QUOTA_physics=3"))
    assert found["now"] == TIME
    assert found["config"] == {"files": ["groups.config"], "set": ["GROUP_QUOTA_physics=3"], "problems": []}
    assert found["slots"] == {"total": 7, "offered": 7, "weight": 10.0}
    assert found["jobs"] == {"asked": 13, "matched": len(found["matches"])}
    assert [(one["group"], one["quota"], one["requested"]) for one in found["groups"]] == [
        ("physics", 3.0, 6.0),
        ("<none>", 7.0, 11.0),
    ]
    assert {one["submitter"]: one["matched"] for one in found["submitters"]} == {
        "physics.alice@pool": 3,
        "bob@pool": 4,
        "carol@pool": 0,
    }
    assert {"slot": "slot1@own", "user": "carol@pool"} in [p for one in found["matches"] for p in one["preempts"]]
    hopeless = next(one for one in found["rejections"] if one["job"] == "14.0")
    assert (hopeless["code"], hopeless["counts"]) == ("no-match", {"job-requirements": 7})


def test_equal_files_give_equal_answers_whatever_the_time_is(capsys):
    assert json.loads(negotiate(capsys, "-json"))["now"] == TIME
    assert json.loads(negotiate(capsys, "-json -now 1795294999.5"))["now"] == 1795294999.5
    assert json.loads(negotiate(capsys, "-json -now 2026-11-21T20:54:23"))["now"] == TIME + 1
    write("slots.ads", slot("slot1@a"))
    before = time.time()
    assert before <= json.loads(negotiate(capsys, "-json"))["now"] <= time.time()


@spec("ACC-06")
def test_what_if_it_were_two_days_later(capsys):
    """Half-life of a day, so twice halved."""
    write("users.ads", ClassAd({"Name": "bob@pool", "Priority": 8e6, "PriorityFactor": 1000.0, "LastUpdate": TIME}))
    words = f"-userprios users.ads -now {TIME + 2 * 86400}"
    assert row(negotiate(capsys, words), "bob@pool")[0] == "2000000.00"


def test_files_may_be_json_or_htcondors_numbered_ads_or_standard_input(capsys, monkeypatch):
    expected = negotiate(capsys, "-userprios users.ads -slots")
    for name in ("slots", "jobs"):
        Path(f"{name}.json").write_text(ads_to_json(ads_from(f"{name}.ads")))
    Path("users.ads").write_text(
        f'LastUpdate = {TIME}\nName1 = "<none>"\nIsAccountingGroup1 = true\nName2 = "bob@pool"\n'
        "IsAccountingGroup2 = false\nPriority2 = 1000.0\nPriorityFactor2 = 1000.0\nNumSubmittors = 2\n"
    )
    monkeypatch.setattr("sys.stdin", io.StringIO(Path("slots.json").read_text()))
    assert negotiate(capsys, "-userprios users.ads -slots", files="-slotads - -jobads jobs.json") == expected


def test_several_schedds_are_told_apart(capsys):
    write("jobs.ads", *(job("true", GlobalJobId=f"{name}#12.0#17") for name in ("b", "a")))
    write("slots.ads", slot("slot1@a"))
    text = negotiate(capsys, "-slots")
    assert "12.0 a alice@pool slot1@a\n" in text
    assert "1 12.0 b alice@pool" in text


def test_nothing_matches_and_nothing_asks(capsys):
    write("jobs.ads", job("false"))
    assert "1 12.0  alice@pool can not run on any slot as things are (of 7 slots, 7 do not satisfy" in negotiate(
        capsys, "-slots"
    )
    write("jobs.ads")
    assert "0 idle jobs and 7 slots" in negotiate(capsys, "-slots")
    write("slots.ads")
    assert "0 idle jobs and 0 slots" in negotiate(capsys, "")


def test_few_lines_on_jobs_that_get_nothing(capsys):
    write("jobs.ads", *(job("false", ClusterId=number, RequestMemory=number) for number in range(1, 31)))
    text = negotiate(capsys, "")
    assert text.count("do not satisfy") == 20
    assert text.endswith("and 10 more; -limit 30 shows them\n")
    assert negotiate(capsys, "-limit 30").count("do not satisfy") == 30
    assert "NOTHING FOR" not in negotiate(capsys, "-limit 0")


def test_odd_names_stay_on_one_line(capsys):
    write("slots.ads", slot("slot1@a\u2028b\x1b[31m"))
    write("jobs.ads", job("true"))
    text = negotiate(capsys, "-slots")
    assert "slot1@a b [31m" in text
    assert "\x1b" not in text


def test_what_the_administrator_should_hear(capsys):
    Path("groups.config").write_text("GROUP_NAMES = physics\nGROUP_QUOTA_fysics = 3\nNEGOTIATOR_INTERVALL = 3\n")
    assert main(["negotiate", "-slotads", "slots.ads", "-jobads", "jobs.ads", "-config", "groups.config"]) == 0
    told = capsys.readouterr().err
    assert "WARNING: GROUP_QUOTA_fysics: no such group is in GROUP_NAMES" in told
    assert "NEGOTIATOR_INTERVALL" in told


@pytest.mark.parametrize(
    ("name", "bad", "says"),
    [
        ("slots", "Cpus = 3\n", "slots.ads, line {line}: it has no Name"),
        ("slots", '# again\nName = "slot1@own"\n', "slots.ads, line {after}: slot slot1@own comes twice"),
        ("slots", "Name = = 3\n", "slots.ads: line {line}"),
        ("jobs", "ClusterId = 99\n", "jobs.ads, line {line}: it has no ProcId"),
        ("jobs", 'MyType = "Machine"\n', "jobs.ads, line {line}: MyType is Machine, not Job"),
        ("users", 'Name = "zoe@pool"\nPriority = -1\n', "users.ads, line {line}: zoe@pool: Priority = -1 can not be"),
    ],
)
def test_a_mistake_in_a_file_is_told_with_its_line(capsys, name, bad, says):
    file = Path(f"{name}.ads")
    line = file.read_text().count("\n") + 2
    file.write_text(f"{file.read_text()}\n{bad}")
    told = negotiate(capsys, "-userprios users.ads", code=1)
    assert says.format(line=line, after=line + 1) in told


def test_a_mistake_in_json_is_told_with_its_number(capsys):
    Path("slots.ads").write_text(ads_to_json([slot("slot1@a"), ClassAd({"Cpus": 1})]))
    assert "slots.ads, ad number 2: it has no Name" in negotiate(capsys, "", code=1)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("-set GROUP_QUOTA_physics", "want KNOB=VALUE"),
        ("-set a/b=3", "want KNOB=VALUE"),
        ("-set NEGOTIATOR_INTERVALL=3", "did you mean NEGOTIATOR_INTERVAL?"),
        ("-set STARTD_DEBUG=3", "no knob of that name"),
        ("-set GROUP_QUOTA_physics=many", "<command line>: GROUP_QUOTA_PHYSICS = many is not usable"),
        ("-config none.config", "none.config"),
        ("-config broken.config", "broken.config, line 2"),
        ("-userprios none.ads", "none.ads: No such file"),
        ("-now soon", "-now soon: want seconds since 1970"),
        ("-now -1", "-now -1: want seconds since 1970"),
        ("-limit -1", "-limit wants 0 or more"),
        ("-pool somewhere", "-pool has no effect with both -slotads and -jobads"),
        ("-negotiator gpus", "-negotiator has no effect"),
        ("12.3", "'12.3' does not belong here"),
        ("-slotz", "did you mean -slots?"),
    ],
)
def test_mistakes_are_told_with_the_mend(capsys, words, says):
    Path("broken.config").write_text("GROUP_NAMES = physics\n= 3\n")
    told = negotiate(capsys, words, code=1)
    assert says in told
    assert any(line.startswith("roost: ") for line in told.splitlines())  # maybe after warnings


@pytest.mark.parametrize("given", ["", "-slotads slots.ads", "-jobads jobs.ads"])
def test_what_no_file_gives_comes_from_a_pool(capsys, given):
    assert "no pool found: start one with `roost up`" in negotiate(capsys, "", code=1, files=given)


def test_macros_that_the_configuration_uses_can_be_set(capsys):
    Path("groups.config").write_text("GROUP_NAMES = physics\nTHEIRS = 1\nGROUP_QUOTA_physics = $(THEIRS)\n")
    text = negotiate(capsys, "-config groups.config -set THEIRS=5")
    assert row(text, "physics")[0] == "5"
    assert row(negotiate(capsys, "-config groups.config -set NEGOTIATOR.THEIRS=4"), "physics")[0] == "4"


def test_help(capsys):
    assert main(["negotiate", "-help"]) == 0
    text = capsys.readouterr().out
    assert "nothing happens there" in text
    assert "-set KNOB=VALUE" in text
