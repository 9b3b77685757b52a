"""Whom an administrator's order means (TLS-06, TLS-08, TLS-09)."""

import pytest

from services.gateway.core.command_targets import addressed, choose, in_turns, of_slots, read
from shared.classad import ClassAd
from tests.spec import spec


def machine(slot, startd):
    return ClassAd(
        {"MyType": "Machine", "Name": f"{slot}@{startd}", "Machine": startd, "MyAddress": f"startd.{startd}"}
    )


def daemon(my_type, subsystem, name, **more):
    ad = {"MyType": my_type, "Name": name, "Machine": f"{name}.example.org", "MyAddress": f"{subsystem.lower()}.{name}"}
    return ClassAd(ad | more)


POOL = [
    machine("slot1", "node1"),
    machine("slot1_1", "node1"),
    machine("slot1", "node2"),
    daemon("Scheduler", "SCHEDD", "node1"),
    daemon("Negotiator", "NEGOTIATOR", "cm1", Name="gpus"),
    daemon("HAD", "HAD", "cm1"),
    daemon("Collector", "COLLECTOR", "cm1"),
    daemon("Journal", "JOURNAL", "j1"),
    ClassAd(
        {
            "MyType": "DaemonMaster",
            "Name": "schedd@ap2",
            "Machine": "ap2.example.org",
            "MyAddress": "schedd.off.ap2",
            "Subsystem": "SCHEDD",
            "DaemonName": "ap2",
        }
    ),
]


def chosen(*names, everybody=False, subsystems=()):
    targets, missing = choose(read(POOL), names=names, everybody=everybody, subsystems=subsystems)
    return {target.inbox: target.slots for target in targets}, missing


def test_ads_become_daemons():
    found = {target.inbox: target for target in read(POOL)}
    assert set(found) == {
        "startd.node1",
        "startd.node2",
        "schedd.node1",
        "negotiator.cm1",
        "had.cm1",
        "collector.cm1",
        "journal.j1",
        "schedd.off.ap2",
    }
    assert found["startd.node1"].slots == ["slot1@node1", "slot1_1@node1"]
    assert found["schedd.off.ap2"].off
    assert found["schedd.off.ap2"].name == "ap2"
    assert not found["schedd.node1"].off


@pytest.mark.parametrize(
    "ad",
    [
        {"MyType": "Machine", "Name": "slot1@x", "Machine": "x", "MyAddress": "schedd.node1"},
        {"MyType": "Scheduler", "Name": "x", "MyAddress": "schedd."},
        {"MyType": "Submitter", "Name": "alice", "MyAddress": "schedd.node1"},
        {"MyType": "DaemonMaster", "Name": "x", "Subsystem": "STARTD", "DaemonName": "x", "MyAddress": "startd.node1"},
        {"MyType": "Machine", "Name": 7, "MyAddress": 8},
        {},
    ],
)
def test_an_ad_that_leads_elsewhere_is_passed_over(ad):
    assert read([ClassAd(ad)]) == []


@pytest.mark.parametrize(
    ("names", "inboxes"),
    [
        (["node1"], {"startd.node1": [], "schedd.node1": []}),
        (["NODE1"], {"startd.node1": [], "schedd.node1": []}),
        (["slot1@node1"], {"startd.node1": ["slot1@node1"]}),
        (["slot1@node1", "slot1_1@node1"], {"startd.node1": ["slot1@node1", "slot1_1@node1"]}),
        (["slot1@node1", "node1"], {"startd.node1": [], "schedd.node1": []}),
        (["node1", "slot1@node1"], {"startd.node1": [], "schedd.node1": []}),
        (["gpus"], {"negotiator.cm1": []}),
        (["cm1"], {"negotiator.cm1": [], "had.cm1": [], "collector.cm1": []}),
        (["ap2.example.org"], {"schedd.off.ap2": []}),
    ],
)
def test_names_mean_daemons_machines_and_slots(names, inboxes):
    assert chosen(*names) == (inboxes, [])


def test_a_name_that_fits_nobody_is_told():
    assert chosen("node1", "node9", "slot7@node1")[1] == ["node9", "slot7@node1"]
    assert chosen("node1", subsystems=["HAD"]) == ({}, ["node1"])


@spec("TLS-09")
def test_all_are_those_of_a_kind():
    """Off -all -neg."""
    assert chosen(everybody=True, subsystems=["NEGOTIATOR"]) == ({"negotiator.cm1": []}, [])
    assert len(chosen(everybody=True)[0]) == 8
    assert chosen() == ({}, [])


def test_slots_of_a_constraint_lead_to_their_startds():
    found = of_slots(read(POOL), ["slot1@node1", "slot1@node2"])
    assert {target.inbox: target.slots for target in found} == {
        "startd.node1": ["slot1@node1"],
        "startd.node2": ["slot1@node2"],
    }


def test_while_nobody_knows_who_is_there_names_become_addresses():
    found = addressed(["COLLECTOR", "STARTD"], ["cm1"])
    assert [(target.inbox, target.off) for target in found] == [
        ("collector.cm1", False),
        ("collector.off.cm1", True),
        ("startd.cm1", False),
    ]


def test_the_collector_ends_after_those_whom_it_knows_and_the_journal_after_it():
    def order(begin):
        return [turn[0].subsystem for turn in in_turns(read(POOL), begin=begin)]

    assert order(begin=False) == ["STARTD", "SCHEDD", "HAD", "NEGOTIATOR", "COLLECTOR", "JOURNAL"]
    assert order(begin=True) == order(begin=False)[::-1]
