"""What the commands for daemons and machines ask the gateway for, and how they show the answers: TLS-06 to TLS-09,
TLS-11."""

import io
import json

import pytest

from roost.cli import daemons, machines
from roost.cli.main import main


@pytest.fixture
def pool(monkeypatch):
    """Whatever is asked for, kept; answers as set."""

    class Fake:
        asked: list = []
        answers: list = [{"subsystem": "STARTD", "name": "node1", "done": True, "said": "fine"}]

        def __init__(self, address):
            self.address = address

        def __enter__(self):
            return self

        def __exit__(self, *exc):
            pass

        def order(self, path, order):
            self.asked.append((path, {name: value for name, value in order.items() if value}))
            return self.answers

    Fake.asked = []
    monkeypatch.setattr(daemons, "Client", Fake)
    monkeypatch.setattr(machines, "Client", Fake)
    monkeypatch.setenv("_CONDOR_FULL_HOSTNAME", "here.example.org")
    return Fake


HERE = {"names": ["here.example.org"]}
GRACEFUL = {"how": "graceful"}
DRAIN, AD = "/v1/machines/drain", "/v1/machines/update-ad"


@pytest.mark.parametrize(
    ("typed", "path", "order"),
    [
        ("reconfig", "/v1/daemons/reconfig", HERE),
        ("reconfig -all", "/v1/daemons/reconfig", {"all": True}),
        ("reconfig -schedd node1", "/v1/daemons/reconfig", {"names": ["node1"], "subsystems": ["SCHEDD"]}),
        ("restart -startd node1", "/v1/daemons/restart", {"names": ["node1"], "subsystems": ["STARTD"]}),
        ("off -all -neg", "/v1/daemons/off", {"all": True, "subsystems": ["NEGOTIATOR"]} | GRACEFUL),
        ("off -all -subsystem -had", "/v1/daemons/off", {"all": True, "subsystems": ["HAD"]} | GRACEFUL),
        ("off -daemon condor_startd -name a", "/v1/daemons/off", {"names": ["a"], "subsystems": ["STARTD"]} | GRACEFUL),
        ("off -peaceful a b", "/v1/daemons/off", {"names": ["a", "b"], "how": "peaceful"}),
        ("off -fast a -reason smoke", "/v1/daemons/off", {"names": ["a"], "how": "fast", "reason": "smoke"}),
        ("on -neg", "/v1/daemons/on", HERE | {"subsystems": ["NEGOTIATOR"]}),
        ("on -constraint x=?=1", "/v1/daemons/on", {"constraint": "x=?=1"}),
        ("vacate", "/v1/machines/vacate", HERE | GRACEFUL),
        ("vacate slot1_2@node1 -fast", "/v1/machines/vacate", {"names": ["slot1_2@node1"], "how": "fast"}),
        ("drain node1", "/v1/machines/drain", {"names": ["node1"], "on_completion": "nothing"} | GRACEFUL),
        (
            "drain -quick -reason kernel -resume-on-completion -check Cpus>0 -start TARGET.Short node1",
            "/v1/machines/drain",
            {
                "names": ["node1"],
                "how": "quick",
                "reason": "kernel",
                "on_completion": "resume",
                "check": "Cpus>0",
                "start": "TARGET.Short",
            },
        ),
        ("drain -fast -exit-on-completion -all", DRAIN, {"all": True, "how": "fast", "on_completion": "exit"}),
        ("drain a -restart-on-completion", DRAIN, {"names": ["a"], "on_completion": "restart"} | GRACEFUL),
        ("drain -cancel node1", "/v1/machines/cancel-drain", {"names": ["node1"]}),
        ("drain -cancel -request-id 7 node1", "/v1/machines/cancel-drain", {"names": ["node1"], "request_id": "7"}),
        ("undrain node1 -request-id 7", "/v1/machines/cancel-drain", {"names": ["node1"], "request_id": "7"}),
        ("undrain -all", "/v1/machines/cancel-drain", {"all": True}),
        ("update-machine-ad -remove A B -name node1", AD, {"names": ["node1"], "removed": ["A", "B"]}),
    ],
)
def test_what_is_asked_for(pool, typed, path, order, capsys):
    assert main(typed.split()) == 0
    assert pool.asked == [(path, order)]
    assert capsys.readouterr().out == "startd node1: fine\n"


@pytest.mark.parametrize(
    ("typed", "says"),
    [
        ("off -fast -peaceful a", "do not go together"),
        ("off -subsystem master", "a master takes no orders"),
        ("off -subsystem replication", "-had"),
        ("off -subsystem frob", "startd, schedd"),
        ("off -all a", "-all means everybody"),
        ("drain", "which machine"),
        ("undrain", "which machine"),
        ("drain -quick -fast a", "do not go together"),
        ("drain -exit-on-completion -resume-on-completion a", "do not go together"),
        ("drain a -request-id 7", "belongs to -cancel"),
        ("drain -cancel -fast a", "no effect with -cancel"),
        ("update-machine-ad a b", "one file only"),
        ("update-machine-ad /no/such/file", "/no/such/file"),
    ],
)
def test_what_is_refused_before_anything_is_asked(pool, typed, says, capsys):
    assert main(typed.split()) == 1
    told = capsys.readouterr().err
    assert told.startswith("roost: ")
    assert says in told
    assert not pool.asked


def test_attributes_come_from_a_file_or_standard_input(pool, tmp_path, monkeypatch):
    file = tmp_path / "ad"
    file.write_text('HasVM = True\nRoom = strcat("b", 17)\n')
    attributes = {"HasVM": "true", "Room": 'strcat("b",17)'}
    assert main(["update-machine-ad", str(file)]) == 0
    monkeypatch.setattr("sys.stdin", io.StringIO(file.read_text()))
    assert main(["update-machine-ad", "-name", "node1"]) == 0
    assert pool.asked == [
        ("/v1/machines/update-ad", HERE | {"attributes": attributes}),
        ("/v1/machines/update-ad", {"names": ["node1"], "attributes": attributes}),
    ]


@pytest.mark.parametrize("text", ["", "A = 1\n\nB = 2\n", "A = = 1\n"])
def test_a_file_that_is_not_one_ad_is_refused(pool, tmp_path, text, capsys):
    file = tmp_path / "ad"
    file.write_text(text)
    assert main(["update-machine-ad", str(file)]) == 1
    assert str(file) in capsys.readouterr().err
    assert not pool.asked


def test_answers_are_a_line_each_and_failures_an_exit_code(pool, capsys):
    changed = {"changed": ["START", "NUM_CPUS"], "at_start": ["NUM_CPUS"], "warnings": ["STRAT: no such knob"]}
    pool.answers = [
        {"subsystem": "STARTD", "name": "node1", "done": True} | changed,
        {"subsystem": "SCHEDD", "name": "node1", "done": True, "changed": [], "at_start": [], "warnings": []},
        {
            "subsystem": "HAD",
            "name": "cm",
            "done": False,
            "code": "refused",
            "said": "/etc/x, line 3: no such template",
        },
    ]
    assert main(["reconfig", "-all"]) == 1
    told = capsys.readouterr()
    assert told.out.splitlines() == [
        "startd node1: reconfigured; in force: START; after a restart: NUM_CPUS",
        "schedd node1: reconfigured, nothing has changed",
    ]
    assert told.err.splitlines() == [
        "WARNING: startd node1: STRAT: no such knob",
        "had cm: /etc/x, line 3: no such template",
    ]
    assert main(["reconfig", "-all", "-json"]) == 1
    assert json.loads(capsys.readouterr().out) == pool.answers


def test_slots_are_a_line_each(pool, capsys):
    pool.answers = [
        {
            "subsystem": "STARTD",
            "name": "node1",
            "done": True,
            "slots": {"slot1@node1": "vacated"},
            "unknown": ["slot9@node1"],
        }
    ]
    assert main(["vacate", "slot1@node1", "slot9@node1"]) == 1
    told = capsys.readouterr()
    assert told.out == "startd node1: slot1@node1: vacated\n"
    assert "slot9@node1" in told.err


def test_a_restart_that_is_to_be_peaceful_says_that_it_always_is(pool, capsys):
    assert main(["restart", "-peaceful", "node1"]) == 0
    assert "ends no job" in capsys.readouterr().err
    assert pool.asked == [("/v1/daemons/restart", {"names": ["node1"]})]


@pytest.mark.parametrize(
    ("slots", "unknown", "said", "code"),
    [
        ({"slot1@node1": "vacated"}, [], "startd node1: slot1@node1: vacated\n", 0),
        ({}, [], "startd node1: no claim, match or backfill to end\n", 0),
        ({}, ["slot9@node1"], "", 1),
    ],
)
def test_vacate_says_what_it_did_also_where_there_was_nothing_to_do(
    pool, monkeypatch, capsys, slots, unknown, said, code
):
    answer = {"subsystem": "STARTD", "name": "node1", "done": True, "slots": slots, "unknown": unknown}
    monkeypatch.setattr(pool, "answers", [answer])
    assert main(["vacate", "node1"]) == code
    told = capsys.readouterr()
    assert told.out == said
    assert ("there is no slot slot9@node1" in told.err) == bool(unknown)
