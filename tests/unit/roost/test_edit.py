"""`roost qedit` and `roost prio`: what they ask the pool for, and how they tell what became of it."""

import json

import pytest

from roost.cli import edit
from roost.cli.main import main
from shared.classad import ClassAd


@pytest.fixture
def pool(monkeypatch):
    class Fake:
        asked: list = []
        answer: dict = {"12.0": "done", "12.1": "done"}
        priorities: dict = {}

        def __init__(self, address):
            pass

        def __enter__(self):
            return self

        def __exit__(self, *exc):
            pass

        def edit(self, ids, attributes, *, constraint="", schedd=""):
            self.asked.append((list(ids), dict(attributes), constraint))
            return self.answer

        def jobs(self, *, constraint, projection, schedd):
            self.asked.append(constraint)
            for (cluster, proc), priority in self.priorities.items():
                yield ClassAd({"ClusterId": cluster, "ProcId": proc, "JobPrio": priority})

    Fake.asked = []
    monkeypatch.setattr(edit, "Client", Fake)
    return Fake


@pytest.mark.parametrize(
    ("typed", "asked"),
    [
        (["12.3", "Foo", "7"], (["12.3"], {"Foo": "7"}, "")),
        (["12", "13.1", "Foo", "-7"], (["12", "13.1"], {"Foo": "-7"}, "")),
        (["12", "Foo=1+2", 'Bar = "x = y"'], (["12"], {"Foo": "1+2", "Bar": '"x = y"'}, "")),
        (["12", "Foo", "1", "Bar", "A == B"], (["12"], {"Foo": "1", "Bar": "A == B"}, "")),
        (["alice", "Foo", "1"], ([], {"Foo": "1"}, '(Owner == "alice")')),
        (["-owner", "12", "Foo", "1"], ([], {"Foo": "1"}, '(Owner == "12")')),
        (["-constraint", "JobPrio > 3", "Foo", "1"], ([], {"Foo": "1"}, "(JobPrio > 3)")),
    ],
)
def test_jobs_and_edits_are_read(pool, typed, asked, capsys):
    assert main(["qedit", *typed]) == 0
    assert pool.asked == [asked]
    assert capsys.readouterr().out.splitlines()[0] == 'Set attribute "Foo" for 2 matching jobs.'


def test_edits_come_from_a_file_too(pool, tmp_path):
    file = tmp_path / "edits"
    file.write_text('# why\nFoo = 1\n\nBar = "b"\n')
    assert main(["qedit", "12", "-edits", str(file)]) == 0
    assert pool.asked == [(["12"], {"Foo": "1", "Bar": '"b"'}, "")]
    file.write_text("Foo = 1\nnonsense\n")
    assert main(["qedit", "12", "-edits", str(file)]) == 1


@pytest.mark.parametrize(
    ("typed", "says"),
    [
        (["qedit"], "of which jobs"),
        (["qedit", "Foo=1"], "of which jobs"),
        (["qedit", "12"], "change what"),
        (["qedit", "12", "Foo"], "which value"),
        (["qedit", "12", "Foo", "1 +"], "Foo"),
        (["qedit", "12", "2x", "1"], "no name of an attribute"),
        (["qedit", "12", "-owner", "bob", "Foo", "1"], "not both"),
        (["prio", "12"], "which priority"),
        (["prio", "-p", "high", "12"], "a whole number"),
        (["prio", "-p", "10"], "of which jobs"),
        (["prio", "-p", "10", "12", "bob"], "not both"),
    ],
)
def test_what_is_not_clear_is_refused_before_anything_is_asked(pool, typed, says, capsys):
    assert main(typed) == 1
    assert says in capsys.readouterr().err
    assert not pool.asked


def test_what_was_refused_is_told_job_by_job(pool, capsys):
    pool.answer = {"12.0": "done", "12.1": "denied", "12.2": "wrong-state"}
    assert main(["qedit", "12", "Foo", "1"]) == 1
    told = capsys.readouterr()
    assert told.out == 'Set attribute "Foo" for 1 matching job.\n'
    assert [line.partition(": ")[2].partition(":")[0] for line in told.err.splitlines()] == ["job 12.1", "job 12.2"]
    assert main(["qedit", "12", "Foo", "1", "-json"]) == 1
    assert json.loads(capsys.readouterr().out) == pool.answer
    pool.answer = {}
    assert main(["qedit", "12", "Foo", "1"]) == 1
    assert "no jobs match" in capsys.readouterr().err


def test_priorities_are_set(pool, capsys):
    assert main(["prio", "-p", "-7", "12", "13.2"]) == 0
    assert main(["prio", "-p", "10", "alice"]) == 0
    assert main(["prio", "-p", "10", "-all"]) == 0
    assert pool.asked == [
        (["12", "13.2"], {"JobPrio": "-7"}, ""),
        ([], {"JobPrio": "10"}, '(Owner == "alice")'),
        ([], {"JobPrio": "10"}, "true"),
    ]


def test_priorities_are_raised_by_what_each_job_has(pool, capsys):
    pool.priorities = {(12, 0): 0, (12, 1): 5, (12, 2): 0}
    assert main(["prio", "+5", "12"]) == 0
    assert pool.asked == [
        "((ClusterId == 12))",
        (["12.0", "12.2"], {"JobPrio": "5"}, ""),
        (["12.1"], {"JobPrio": "10"}, ""),
    ]
    assert capsys.readouterr().out == "Changed the priority of 2 jobs.\n"
