"""All machines in columns."""

import json

import pytest

from services.gateway.core import machine_map
from services.gateway.core.machine_map import FIELDS, MachineMap
from shared.classad import ClassAd
from shared.cooperative import at_once


def told(*slots):
    found = MachineMap()
    at_once(found.add([slot.get(name) for name in FIELDS] for slot in slots))
    return json.loads(found.told(1000.0))


def slot(machine="n1", state="Unclaimed", cpus=4, **more):
    return {"Machine": machine, "State": state, "Cpus": cpus, **more}


def state_of(*slots):
    found = told(*slots)
    return found["states"][found["state"][0]]


def test_slots_of_a_machine_are_added():
    found = told(
        slot(cpus=1, PartitionableSlot=True, LoadAvg=0.5, LastHeardFrom=900, DaemonStartTime=10),
        slot(state="Claimed", cpus=2, LoadAvg=1.5, LastHeardFrom=990, DaemonStartTime=10),
        slot(state="Preempting", cpus=1, LoadAvg=0.25, LastHeardFrom=980, DaemonStartTime=10),
    )
    assert found == {
        "at": 1000.0,
        "left_out": 0,
        "states": ["Asleep", "Draining", "Claimed", "Owner", "Unclaimed"],
        "machine": ["n1"],
        "state": [2],
        "cpus": [4],
        "used": [3],
        "load": [2.25],
        "heard": [990],
        "began": [10],
    }


@pytest.mark.parametrize(
    ("slots", "state"),
    [
        ([slot(state="Unclaimed")], "Unclaimed"),
        ([slot(state="Owner")], "Owner"),
        ([slot(state="Owner"), slot(state="Unclaimed")], "Unclaimed"),
        ([slot(state="Owner"), slot(state="Unclaimed", cpus=0, PartitionableSlot=True)], "Owner"),
        ([slot(state="Owner"), slot(state="Backfill")], "Claimed"),
        ([slot(state="Claimed"), slot(Draining=True)], "Draining"),
        ([slot(state="Unclaimed", Offline=True, Draining=True)], "Asleep"),
    ],
)
def test_a_machine_is_the_first_that_fits(slots, state):
    assert state_of(*slots) == state
    assert state_of(*slots[::-1]) == state


def test_machines_are_in_the_order_of_their_names():
    assert told(slot("n10"), slot("n9"), slot("a1"))["machine"] == ["a1", "n9", "n10"]


@pytest.mark.parametrize("value", [None, True, "4", float("nan"), float("inf"), -3, 1e300])
def test_what_is_no_amount_counts_for_nothing(value):
    found = told(slot(cpus=value, LoadAvg=value, LastHeardFrom=value, DaemonStartTime=value))
    assert [found[name] for name in ("cpus", "load", "heard", "began")] == [[0]] * 4


@pytest.mark.parametrize("name", [None, "", 7, "x" * 256, ClassAd()])
def test_a_slot_of_no_machine_is_left_out(name):
    assert told(slot(name))["machine"] == []


def test_more_machines_than_are_drawn_are_counted(monkeypatch):
    monkeypatch.setattr(machine_map, "MOST", 2)
    found = told(slot("n1"), slot("n2"), slot("n3"), slot("n3"), slot("n4"), slot("n1"))
    assert (found["machine"], found["left_out"], found["cpus"]) == (["n1", "n2"], 2, [8, 4])
