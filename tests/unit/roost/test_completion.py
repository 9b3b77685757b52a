"""Completion: from what the commands declare, with the pool's values."""

import json

import pytest

from roost.cli import completion
from roost.cli.completion import FILES, complete, options_of
from roost.cli.main import COMMANDS, main
from roost.cli.options import flag, lettered, many, value

ABOUT = {"q": "jobs", "qedit": "edit", "exec": "run", "submit": "queue", "config-val": "", "ping": "", "vacate": ""}
OPTIONS = (
    flag("long", "l", help="whole ads"),
    value("constraint", help="", metavar="EXPR"),
    value("name", help="", metavar="SCHEDD"),
    value("file", help="", metavar="FILE"),
    many("af", help="", metavar="ATTR", letters=True),
    lettered("wide", help=""),
)
VALUES = {
    "job attributes": ["Cmd", "OnExitHold", "Owner"],
    "jobs": ["12", "12.0", "13.1"],
    "schedds": ["ap1"],
    "knobs": ["NUM_CPUS", "START"],
    "machines": ["node1"],
}


def completed(text):
    asked = []

    def values(kind):
        asked.append(kind)
        return VALUES.get(kind, [])

    found = complete(text.split(" "), ABOUT, lambda command: OPTIONS, values)
    return [candidate.word for candidate in found], asked


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", list(ABOUT)),
        ("q", ["q", "qedit"]),
        ("help q", ["q", "qedit"]),
        ("q -", ["-long", "-constraint", "-name", "-file", "-af", "-wide"]),
        ("q -l", ["-long", "-l"]),
        ("q -lo", ["-long"]),
        ("q --co", ["--constraint"]),
        ("q ", ["12", "12.0", "13.1"]),
        ("q 13", ["13.1"]),
        ("q 12 -l ", ["12", "12.0", "13.1"]),
        ("q -constraint ", []),
        ("q -constraint x ", ["12", "12.0", "13.1"]),
        ("q -name ", ["ap1"]),
        ("vacate nod", ["node1"]),
        ("q -file a", [FILES]),
        ("q -af:h Ow", ["Owner"]),
        ("q -af Cmd o", ["OnExitHold", "Owner"]),
        ("vacate -af o", []),
        ("q -af Owner -", ["-long", "-constraint", "-name", "-file", "-af", "-wide"]),
        ("submit ", [FILES]),
        ("exec 12.0 l", [FILES]),
        ("config-val num", ["NUM_CPUS"]),
        ("ping w", ["WRITE"]),
        ("nothing ", []),
    ],
)
def test_what_may_come_next(text, words):
    assert completed(text)[0] == words


def test_the_pool_is_asked_only_for_what_is_wanted():
    assert completed("q -co")[1] == []
    assert completed("q ")[1] == ["jobs"]
    assert completed("submit -name ")[1] == ["schedds"]


@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_every_commands_options_are_found(command, capsys):
    """One source: what -help shows is what is completed."""
    if command in ("gpu-discovery", "version"):
        return
    names = {name for option in options_of(command) for name in option.names}
    assert "help" in names
    assert main([command, "-help"]) == 0
    told = capsys.readouterr().out
    assert all(f"-{option.names[0]}" in told for option in options_of(command))


def test_values_are_kept_for_some_seconds(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    asked = []
    monkeypatch.setattr(completion, "_ask", lambda kind: asked.append(kind) or ["12.0"])
    assert completion.values("jobs") == completion.values("jobs") == ["12.0"]
    assert asked == ["jobs"]
    (file,) = (tmp_path / "roost").iterdir()
    kept = json.loads(file.read_text())
    file.write_text(json.dumps(kept | {"at": kept["at"] - 60}))
    assert completion.values("jobs") == ["12.0"]
    assert asked == ["jobs", "jobs"]
    file.write_text("broken")
    assert completion.values("jobs") == ["12.0"]
    monkeypatch.setenv("ROOST_URL", "http://elsewhere")
    completion.values("jobs")
    assert len(asked) == 4, "another pool has other jobs"


def test_an_unknown_shell_is_told(capsys):
    assert main(["completion", "tcsh"]) == 1
    assert "bash, zsh, fish" in capsys.readouterr().err
