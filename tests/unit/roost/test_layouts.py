"""What HTCondor 23.9.6's own tools print of the same ads, to the last blank. The first line of each file is the
command; the rest is what condor_q (with -allusers) or condor_status printed."""

import time
from pathlib import Path

import pytest

from roost.cli.main import main

LAYOUTS = Path(__file__).parent / "layouts"


@pytest.fixture(autouse=True)
def _utc(monkeypatch):
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize("file", sorted(LAYOUTS.glob("*.txt")), ids=lambda file: file.stem)
def test_the_output_is_htcondors(file, monkeypatch, capsys):
    monkeypatch.chdir(LAYOUTS)
    command, _, expected = file.read_text().partition("\n")
    assert main(command.split(" ")) == 0
    assert capsys.readouterr().out == expected


def test_held_jobs_are_shown_with_their_codes(monkeypatch, capsys):
    """Spec row TLS-05; HTCondor's table has the codes from version 25 on."""
    monkeypatch.chdir(LAYOUTS)
    assert main(["q", "-jobads", "jobs.ads", "-hold", "carol", "root"]) == 0
    heading, *rows = capsys.readouterr().out.splitlines()[3:6]
    assert heading == " ID       OWNER          HELD_SINCE  CODE/SUB HOLD_REASON"
    assert rows[0] == "    1.3   root           11/20 13:07 1/0      via condor_hold (by user root)"
    assert rows[1].startswith("12345.100 carol           4/12 10:00 12/13    Error from slot1@node: a very long reason")


def test_a_machine_is_one_line_of_the_compact_table(monkeypatch, capsys):
    """Spec row TLS-01."""
    monkeypatch.chdir(LAYOUTS)
    assert main(["status", "-ads", "slots.ads", "-compact", "b.example"]) == 0
    assert capsys.readouterr().out.splitlines()[:3] == [
        "Machine      Platform     Slots Cpus Gpus  TotalGb FreCpu  FreeGb  CpuLoad ST Jobs/Min MaxSlotGb",
        "",
        "b.example    x64/Debian12    2    16         31.25     14   27.34         ** _             2.00",
    ]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["q", "-jobads", "no-such-file"], "no-such-file: No such file or directory"),
        (["q", "-jobads", "bad.ads"], "bad.ads: line 2"),
        (["status", "-ads", "bad.json"], "bad.json: "),
        (["status", "-ads", "slots.ads", "-constraint", "((("], "-constraint (((: "),
        (["q", "-jobads", "jobs.ads", "-af", "Cmd +"], "-af Cmd +: "),
        (["q", "-jobads", "jobs.ads", "-af:x", "Cmd"], "unknown letter 'x'"),
        (["q", "-jobads", "jobs.ads", "-long", "-af", "Cmd"], "exclude each other"),
        (["q", "-limit", "some", "-jobads", "jobs.ads"], "wants a whole number"),
    ],
)
def test_mistakes_are_named(words, says, tmp_path, monkeypatch, capsys):
    for file in LAYOUTS.glob("*.ads"):
        (tmp_path / file.name).write_text(file.read_text())
    (tmp_path / "bad.ads").write_text("A = 1\nB = (\n")
    (tmp_path / "bad.json").write_text('[{"A": 1},')
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ROOST_URL", "127.0.0.1:9")
    monkeypatch.setenv("ROOST_TOKEN", "x")
    assert main(words) == 1
    told = capsys.readouterr()
    assert told.err.startswith("roost: ")
    assert says in told.err
    assert told.err.count("\n") == 1
