"""`roost ping`, `roost who`, and `roost config-val` of running daemons: what is shown of what the pool says."""

import pytest

from roost.cli import config_val, ping
from roost.cli.main import main
from shared.classad import ClassAd
from tests.spec import spec

ME = {"user": "alice@pool", "level": "WRITE", "token": "0f3a51c29bd4", "scopes": [], "expires": 0.0}


def test_levels_include_those_before_them():
    lines, passed = ping.told(ME, ["READ", "WRITE"], "http://gw", None)
    assert lines == ["READ command succeeded as alice@pool", "WRITE command succeeded as alice@pool"]
    assert passed
    lines, passed = ping.told(ME, ["WRITE", "ADMINISTRATOR"], "http://gw", None)
    assert lines[1] == "ADMINISTRATOR command failed as alice@pool, who has WRITE"
    assert not passed


def test_who_you_are_is_told():
    lines, passed = ping.told(ME | {"scopes": ["events"], "expires": 86400.0}, [], "http://gw", 0.0123)
    assert passed
    assert lines[:3] == [
        "alice@pool with level WRITE",
        "This token opens only: events",
        "Gateway: http://gw, answered in 12.3 ms",
    ]
    assert lines[3].startswith("Token: 0f3a51c29bd4, until 1970-01-0")


def test_an_unknown_level_is_refused(capsys):
    assert main(["ping", "GOD"]) == 1
    assert "READ, WRITE, ADMINISTRATOR" in capsys.readouterr().err


def test_what_runs_on_a_machine_is_a_line_each():
    ad = ClassAd(
        {
            "Name": "slot1_1@node1",
            "Machine": "node1",
            "RemoteOwner": "alice@pool",
            "JobId": "12.3",
            "JobStart": 1000,
            "Activity": "Busy",
            "ClientMachine": "ap1",
        }
    )
    heading, line = ping.table([ad], 1000 + 3725)
    assert heading.split() == ["OWNER", "CLIENT", "SLOT", "JOB", "RUNTIME", "ACTIVITY"]
    assert line.split() == ["alice@pool", "ap1", "slot1_1@node1", "12.3", "0+01:02:05", "Busy"]


def macro(name, value, **more):
    return {"name": name, "value": value, "raw": value, "file": None, "line": 0, "default": None} | more


def answer(name, *macros):
    return {"subsystem": "STARTD", "name": name, "done": True, "macros": list(macros)}


@spec("TLS-10")
def test_one_daemons_values_stand_alone():
    """A running daemon's, as those of files."""
    one = [answer("node1", macro("START", "true"), macro("NUM_CPUS", "4"))]
    assert config_val.told(one, ["start", "NUM_CPUS"], field="value", verbose=False) == (["true", "4"], [])
    assert config_val.told(one, ["Nope"], field="value", verbose=False) == ([], ["Not defined: Nope"])
    assert config_val.told(one, [], field="value", verbose=False)[0] == ["NUM_CPUS = 4", "START = true"]


def test_several_daemons_say_who_they_are():
    away = {"subsystem": "SCHEDD", "name": "ap", "done": False, "said": "does not answer"}
    two = [answer("node1", macro("START", "true", file="/etc/r", line=3, default="false", raw="$(X)")), away]
    out, errors = config_val.told(two, ["START"], field="raw", verbose=True)
    assert out == [
        "startd node1: START = $(X)",
        " # at: /etc/r, line 3",
        " # raw: START = $(X)",
        " # default: false",
    ]
    assert errors == ["schedd ap: does not answer"]


@pytest.mark.parametrize(
    ("typed", "asked"),
    [
        ("-name node1 START", ((("START",)), {"daemons": ["node1"], "subsystems": [], "pattern": ""})),
        ("-startd START A", ((("START", "A")), {"daemons": [], "subsystems": ["STARTD"], "pattern": ""})),
        ("-name n -schedd -dump MAX*", (((), {"daemons": ["n"], "subsystems": ["SCHEDD"], "pattern": "MAX*"}))),
        ("-name n -subsystem had X", ((("X",)), {"daemons": ["n"], "subsystems": ["HAD"], "pattern": ""})),
    ],
)
def test_running_daemons_are_asked(monkeypatch, typed, asked, capsys):
    seen = []

    class Fake:
        def __init__(self, address):
            pass

        def __enter__(self):
            return self

        def __exit__(self, *exc):
            pass

        def config(self, *names, **who):
            seen.append((names, who))
            return [answer("node1", *(macro(name, "1") for name in names))]

    monkeypatch.setattr(config_val, "Client", Fake)
    assert main(["config-val", *typed.split()]) == 0
    assert seen == [asked]


@pytest.mark.parametrize("typed", ["-name n", "-name n -local-name x START", "-startd -dump A B"])
def test_what_running_daemons_can_not_tell_is_refused(typed, capsys):
    assert main(["config-val", *typed.split()]) == 1
    assert capsys.readouterr().err.startswith("roost: ")
