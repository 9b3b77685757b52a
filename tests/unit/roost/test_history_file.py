"""History files are read from their end, without what is not asked for (TLS-12)."""

import io

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from roost.cli import history_files
from roost.cli.main import main
from tests.spec import spec

_LINES = st.lists(
    st.sampled_from(["A = 1\n", 'B = "ü"\n', "***\n", "*** Offset = 0\n", "# c\n", "\n", "C = 2\r\n", "** x\n", "***"]),
    max_size=12,
)


@settings(max_examples=100)
@given(lines=_LINES)
def test_both_ways_find_the_same_jobs(lines):
    """But for what stands behind the last line of stars, which is still being written."""
    stream = io.BytesIO("".join(lines).encode())
    forwards = list(history_files._forwards(stream))
    stream.seek(0)
    assert list(history_files._backwards(stream)) == forwards[-2::-1]


def test_the_last_jobs_are_read_without_the_others(tmp_path, capsys, monkeypatch):
    file = tmp_path / "history"
    file.write_text("".join(f'ClusterId = {n}\nProcId = 0\nOwner = "a"\n*** Offset = 0\n' for n in range(500)))
    read = []
    monkeypatch.setattr(
        history_files, "_record", lambda lines, real=history_files._record: read.append(lines) or real(lines)
    )
    assert main(["history", "-file", str(file), "-limit", "3", "-af", "ClusterId"]) == 0
    assert capsys.readouterr().out == "499\n498\n497\n"
    assert len(read) == 3
    assert main(["history", "-file", str(file), "-forwards", "-limit", "2", "-af", "ClusterId"]) == 0
    assert capsys.readouterr().out == "0\n1\n"
    assert len(read) == 5


def test_a_file_without_jobs_has_none(tmp_path, capsys):
    file = tmp_path / "history"
    file.write_text("")
    assert main(["history", "-file", str(file), "-af", "ClusterId"]) == 0
    assert capsys.readouterr().out == ""
    assert main(["history", "-file", str(tmp_path), "-af", "ClusterId"]) == 1
    assert main(["history", "-file", str(tmp_path / "none"), "-af", "ClusterId"]) == 1
    assert "none" in capsys.readouterr().err


_RECORD = """ClusterId = {0}
ProcId = {1}
Owner = "{2}"
QDate = {3}
TotalSubmitProcs = {4}
CompletionDate = {5}
*** Offset = 0 ClusterId = {0} ProcId = {1} Owner = "{2}" CompletionDate = {5}
"""


def _asked(capsys, file, *words):
    assert main(["history", "-file", str(file), *words, "-af", "ClusterId", "ProcId"]) == 0
    return capsys.readouterr().out.replace(" ", ".").split()


@spec("TLS-12")
@pytest.mark.parametrize(
    ("words", "shown", "read"),
    [
        (["3.0"], ["3.0"], 1),  # the one before it in the file is looked at no more
        (["1"], ["1.1", "1.0"], 2),  # both of its jobs
        (["4.0"], [], 0),
        (["2"], ["2.0"], 1),  # it has a job that is not there: what was completed before it was queued ends the search
        (["alice"], ["3.0", "3.0", "1.1", "1.0"], 4),
        (["bob", "1.1"], ["2.0", "1.1"], 3),
        (["3.0", "-forwards"], ["3.0"], 4),
        (["3.0", "-scanlimit", "1"], ["3.0"], 1),  # what is passed over is not counted
        (["2", "-since", "3"], ["2.0"], 1),  # nor looked at
    ],
)
def test_the_lines_of_stars_say_which_records_to_read(tmp_path, capsys, monkeypatch, words, shown, read):
    file = tmp_path / "history"
    jobs = (
        (1, 0, "alice", 10, 2, 20),
        (1, 1, "alice", 10, 2, 30),
        (2, 0, "bob", 50, 2, 60),
        (3, 0, "alice", 40, 1, 70),
    )
    file.write_text("".join(_RECORD.format(*job) for job in (*jobs, jobs[-1])))
    taken = []
    real = history_files._record
    monkeypatch.setattr(history_files, "_record", lambda lines: taken.append(lines) or real(lines))
    if words == ["3.0"]:
        assert _asked(capsys, file, "bob") == ["2.0"]
        taken.clear()
    assert _asked(capsys, file, *words) == shown
    assert len(taken) == read


@spec("TLS-12")
def test_records_of_other_types_are_not_jobs(tmp_path, capsys):
    """Transfers and runs may be recorded in the same file."""
    file = tmp_path / "history"
    file.write_text(
        'ClusterId = 1\nProcId = 0\n*** EPOCH ClusterId=1 ProcId=0 Owner="a" CurrentTime=5\n'
        "ClusterId = 2\nProcId = 0\n***\nClusterId = 3\nProcId = 0\n*** Offset = 0 ClusterId = 3 ProcId = 0\n"
        'ClusterId = 4\nProcId = 0\n*** INPUT ClusterId=4 ProcId=0 Owner="a"\n'
    )
    assert _asked(capsys, file) == ["3.0", "2.0"]
    assert _asked(capsys, file, "-type", "epoch") == ["2.0", "1.0"]
    assert _asked(capsys, file, "-type", "transfer,JOB") == ["4.0", "3.0", "2.0"]
    assert _asked(capsys, file, "-type", "all", "1") == ["1.0"]


@spec("TLS-12")
def test_older_files_are_found_beside_the_file(tmp_path, capsys):
    for name, cluster in (("h", 3), ("h.20250102T030405", 2), ("h.20240102T030405", 1), ("h.old", 9), ("other", 8)):
        (tmp_path / name).write_text(f"ClusterId = {cluster}\n*** Offset = 0\n")
    search = ["history", "-search", str(tmp_path / "h"), "-af", "ClusterId"]
    assert main(search) == 0
    assert capsys.readouterr().out == "3\n2\n1\n"
    assert main([*search, "-forwards", "-limit", "2"]) == 0
    assert capsys.readouterr().out == "1\n2\n"
    assert main(["history", "-search", str(tmp_path / "none")]) == 1
    assert "none.DATETIME" in capsys.readouterr().err


@spec("TLS-12")
@pytest.mark.parametrize(
    ("words", "instead"), [(["-dir"], "-search"), (["-epochs:d"], "MAX_EPOCH"), (["-u", "log"], "wait")]
)
def test_what_means_nothing_here_says_what_does(words, instead, capsys):
    assert main(["history", *words]) == 1
    assert instead in capsys.readouterr().err
