"""What HTCondor 23.9.6's own tools print of the same ads, to the last blank. The first line of each file is the
command; the rest is what condor_q (with -allusers) or condor_status printed."""

import time
from pathlib import Path

import pytest

from roost.cli.main import main
from tests.spec import spec

LAYOUTS = Path(__file__).parent / "layouts"


@pytest.fixture(autouse=True)
def _utc(monkeypatch):
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@spec("TLS-01", "TLS-02", "TLS-05", "TLS-12")
@pytest.mark.parametrize("file", sorted(LAYOUTS.glob("*.txt")), ids=lambda file: file.stem)
def test_the_output_is_htcondors(file, monkeypatch, capsys):
    monkeypatch.chdir(LAYOUTS)
    command, _, expected = file.read_text().partition("\n")
    assert main(command.split(" ")) == 0
    assert capsys.readouterr().out == expected


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
