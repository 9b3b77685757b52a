"""Rows TLS-01 (status), TLS-02 (userprio), TLS-05 (q) and TLS-12 (history): what HTCondor 23.9.6's own tools
print of the same files of ads, byte for byte. Recorded with TZ=UTC and standard output to a pipe; `-jobads` with
-allusers' meaning. Each line of recordings.jsonl has a command without `roost` or `condor_`, and its output; those with
`terminal` were recorded on one of so many columns."""

import json
import time
from pathlib import Path

import pytest

from roost.cli import output
from roost.cli.main import main
from tests.spec import spec

DATA = Path(__file__).parent / "data"
RECORDED = [json.loads(line) for line in (DATA / "recordings.jsonl").read_text().splitlines()]


@pytest.fixture(autouse=True)
def _utc(monkeypatch):
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    monkeypatch.chdir(DATA)
    yield
    monkeypatch.undo()
    time.tzset()


@spec("TLS-01", "TLS-02", "TLS-05", "TLS-12")
@pytest.mark.parametrize("case", RECORDED, ids=lambda case: " ".join(case["command"])[:100].replace("\\", "/"))
def test_the_output_is_htcondors(case, capsys, monkeypatch):
    monkeypatch.setattr(output, "terminal_width", lambda: case.get("terminal", 0))
    assert main(case["command"]) == 0
    assert capsys.readouterr().out == case["output"]


GROUPS_ALONE = """\
NumSubmittors = 3
LastUpdate = 1795352160
Name1 = "<none>"
IsAccountingGroup1 = true
AccountingGroup1 = "<none>"
Name2 = "chem"
IsAccountingGroup2 = true
AccountingGroup2 = "<none>"
Name3 = "alice@pool"
IsAccountingGroup3 = false
AccountingGroup3 = "<none>"
Priority3 = 500.0
PriorityFactor3 = 1000.0
"""


@spec("TLS-12")
def test_groups_without_users_are_not_told_apart(tmp_path, capsys):
    """bin/fidelity --family userprio found this layout of HTCondor's tool."""
    (tmp_path / "ads").write_text(GROUPS_ALONE)
    assert main(["userprio", "-inputfile", str(tmp_path / "ads"), "-allusers", "-order"]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["User", "Name", "Order"] in lines
    assert ["chem"] in lines
    assert ["<none>"] not in lines


def test_an_accounting_ad_keeps_its_number_where_others_are_left_out(tmp_path, capsys):
    (tmp_path / "ads").write_text(GROUPS_ALONE)
    command = f"userprio -inputfile {tmp_path / 'ads'} -allusers -long -modular -constraint".split()
    assert main([*command, "!IsAccountingGroup"]) == 0
    assert "SubmittorId = 3\n" in capsys.readouterr().out


def test_all_tools_have_recordings():
    tools = {case["command"][0] for case in RECORDED}
    assert tools == {"status", "q", "history", "userprio"}
    assert len(RECORDED) >= 150


@spec("TLS-05")
@pytest.mark.parametrize("clock", ["1e30", "123456789012345678", "-123456789012345678"])
def test_a_queues_clock_that_no_calendar_has_is_not_shown(clock, tmp_path, capsys):
    (tmp_path / "jobs").write_text(f"ClusterId = 1\nProcId = 0\nJobStatus = 1\nServerTime = {clock}\n")
    assert main(["q", "-jobads", str(tmp_path / "jobs"), "-totals"]) == 0
    assert "1 idle" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "printed"),
    [
        ("-totals -af:h Jobs Idle", "Jobs Idle\n2    1   \n\n"),
        ("-totals -af:jl Held Owner", " Held = 0 Owner = undefined\n\n"),
        ("-af:lv Owner", "Owner = ann\nOwner = bob\n"),
    ],
)
def test_columns_behind_totals_are_of_what_all_jobs_come_to(options, printed, tmp_path, capsys):
    jobs = [
        f'ClusterId = {n}\nProcId = 0\nJobStatus = {n}\nOwner = "{owner}"\n' for n, owner in ((1, "ann"), (2, "bob"))
    ]
    (tmp_path / "jobs").write_text("\n".join(jobs))
    assert main(["q", "-jobads", str(tmp_path / "jobs"), *options.split()]) == 0
    assert capsys.readouterr().out == printed
