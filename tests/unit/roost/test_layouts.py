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
        (["status", "-ads", "slots.ads", "-pr", "alike.cpf"], "alike.cpf: SELECT FROM AUTOCLUSTER is for jobs"),
        (["history", "-file", "jobs.ads", "-pr", "alike.cpf"], "use it with roost q"),
        (["q", "-jobads", "jobs.ads", "-pr", "unique.cpf"], "unique.cpf: SELECT UNIQUE is not done here"),
    ],
)
def test_mistakes_are_named(words, says, tmp_path, monkeypatch, capsys):
    for file in LAYOUTS.glob("*.ads"):
        (tmp_path / file.name).write_text(file.read_text())
    (tmp_path / "bad.ads").write_text("A = 1\nB = (\n")
    (tmp_path / "alike.cpf").write_text("SELECT FROM AUTOCLUSTER\n Name AS NAME\n")
    (tmp_path / "unique.cpf").write_text("SELECT UNIQUE\n Owner AS OWNER\n")
    (tmp_path / "bad.json").write_text('[{"A": 1},')
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ROOST_URL", "127.0.0.1:9")
    monkeypatch.setenv("ROOST_TOKEN", "x")
    assert main(words) == 1
    told = capsys.readouterr()
    assert told.err.startswith("roost: ")
    assert says in told.err
    assert told.err.count("\n") == 1


def test_a_file_of_columns_may_ask_for_autoclusters(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    jobs = [f"ClusterId = {n}\nProcId = 0\nAutoClusterId = {n % 2}\nJobStatus = 1\n" for n in (1, 2, 3)]
    (tmp_path / "jobs.ads").write_text("\n".join(jobs))
    for head in ("SELECT FROM AUTOCLUSTER", "SELECT FROM JOBS"):
        (tmp_path / "file.cpf").write_text(f"{head} BARE\n AutoClusterId AS ID\n ClusterId AS FIRST\n")
        assert main(["q", "-jobads", "jobs.ads", "-pr", "file.cpf"]) == 0
        assert (
            main(["q", "-jobads", "jobs.ads", *(["-autocluster"] if "AUTO" in head else []), "-af", "ClusterId"]) == 0
        )
        printed = capsys.readouterr().out.split("\n")
        assert [line.split() for line in printed if line] == (
            [["0", "2"], ["1", "1"], ["2"], ["1"]]
            if "AUTO" in head
            else [["1", "1"], ["0", "2"], ["1", "3"], ["1"], ["2"], ["3"]]
        )
