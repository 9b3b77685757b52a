"""Options of `roost submit` that need no pool, or stop before one is asked."""

import pytest

from roost.cli.main import main
from roost.cli.submit import _split_queue


@pytest.mark.parametrize(
    ("argv", "left", "queue"),
    [
        (["f", "-queue", "10"], ["f"], "10"),
        (["-queue", "2", "a,b", "from", "-", "-dry-run", "-", "f"], ["-dry-run", "-", "f"], "2 a,b from -"),
        (["-queue"], [], ""),
        (["f"], ["f"], None),
    ],
)
def test_queue_takes_words_up_to_the_next_option(argv, left, queue):
    assert _split_queue(argv) == (left, queue)


@pytest.fixture
def file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "job.sub").write_text("executable = /bin/true\nmistpe = 1\nqueue 3\n")
    return "job.sub"


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["-maxjobs", "2"], "3, would exceed -maxjobs 2"),
        (["-maxjobs", "many"], "a whole number"),
        (["-interactive"], "for one job"),
    ],
)
def test_nothing_is_queued_against_a_limit(file, options, says, capsys):
    assert main(["submit", file, "-pool", "127.0.0.1:1", *options]) == 1
    assert says in capsys.readouterr().err


def test_several_clusters_can_be_refused(tmp_path, capsys):
    (tmp_path / "two.sub").write_text("executable = /bin/true\nqueue\nexecutable = /bin/false\nqueue\n")
    assert main(["submit", str(tmp_path / "two.sub"), "-single-cluster", "-pool", "127.0.0.1:1"]) == 1
    assert "2 clusters, against -single-cluster" in capsys.readouterr().err


def test_a_dry_run_keeps_to_the_limits_too(file, tmp_path, capsys):
    assert main(["submit", file, "-maxjobs", "2", "-dry-run", "-"]) == 1
    told = capsys.readouterr()
    assert "3, would exceed -maxjobs 2" in told.err
    assert told.out == ""
    assert main(["submit", file, "-maxjobs", "3", "-single-cluster", "-dry-run", "-"]) == 0
    (tmp_path / "two.sub").write_text("executable = /bin/true\nqueue\nexecutable = /bin/false\nqueue\n")
    assert main(["submit", str(tmp_path / "two.sub"), "-single-cluster", "-dry-run", "-"]) == 1


def test_a_script_of_dos_is_refused_unless_that_is_asked_for(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run.sh").write_bytes(b"#!/bin/sh\r\nexit 0\r\n")
    (tmp_path / "fine.sh").write_bytes(b"#!/bin/sh\nexit 0\r\n")
    for script, kept, options, code in (
        ("run.sh", "", [], 1),
        ("run.sh", "", ["-allow-crlf-script"], 0),
        ("run.sh", "transfer_executable = false\n", [], 0),  # it is of another machine
        ("fine.sh", "", [], 0),
    ):
        (tmp_path / "job.sub").write_text(f"executable = {script}\n{kept}queue\n")
        assert main(["submit", "job.sub", "-dry-run", "-", *options]) == code
        assert ("ends as on DOS" in capsys.readouterr().err) == (script == "run.sh" and not kept)
    (tmp_path / "job.sub").write_text("\nexecutable = run.sh\nqueue\n")
    main(["submit", "job.sub", "-dry-run", "-"])
    assert "job.sub, line 2: " in capsys.readouterr().err


def test_warnings_of_unused_lines_can_be_silenced(file, capsys):
    assert main(["submit", "-file", file, "-dry-run", "-"]) == 0
    assert "was unused" in capsys.readouterr().err
    assert main(["submit", file, "-dump", "-", "-unused", "-factory", "-disable"]) == 0
    told = capsys.readouterr()
    assert told.err == ""
    assert told.out.endswith("3 job(s) dry-run to cluster 1.\n")
