"""What a slot would take of what waits."""

from __future__ import annotations

import pytest

from engine.analyze import WaitingRequest, explain_slot
from shared.classad import parse_expr
from tests.unit.analyze.pools import job, pool, slot


def waiting(**jobs):
    return [WaitingRequest(f"{n}.0", f"{owner}@pool", 10 + n, ad) for n, (owner, ad) in enumerate(jobs.items(), 1)]


def test_requests_are_told_apart_by_what_fails():
    mine = slot("slot1@a", Start='=TARGET.Owner != "eve"')
    found = explain_slot(
        pool(mine),
        "slot1@a",
        waiting(
            alice=job(),
            bob=job(RequestMemory=10**6, RequestCpus=99),
            eve=job(Owner="eve"),
        ),
    )
    assert [(r.job, r.submitter, r.count, r.fits, r.side, r.fails) for r in found.requests] == [
        ("1.0", "alice@pool", 11, True, "", ()),
        ("2.0", "bob@pool", 12, False, "job", ("TARGET.Memory >= RequestMemory", "TARGET.Cpus >= RequestCpus")),
        ("3.0", "eve@pool", 13, False, "slot", ('TARGET.Owner != "eve"',)),
    ]
    assert (found.jobs, found.fits) == (36, 11)
    assert found.verdict == "It is on offer; of 36 idle jobs it would take 11, one or the other."
    assert found.state == "Unclaimed/Idle"


@pytest.mark.parametrize(
    ("more", "unoffered", "says"),
    [
        ({"State": "Claimed", "RemoteUser": "bob@pool"}, "", "It is claimed by bob@pool; no idle jobs wait."),
        ({"State": "Claimed", "PartitionableSlot": True}, "", "It is on offer; no idle jobs wait."),
        ({"Offline": True}, "", "It sleeps; no idle jobs wait."),
        ({"Offline": True}, "waking", "It sleeps, and is to be woken; no idle jobs wait."),
        ({"Offline": True, "MachineLastMatchTime": 9}, "", "It sleeps, and is to be woken; no idle jobs wait."),
        ({}, "match-under-way", "It is promised to a job that was matched a moment ago; no idle jobs wait."),
        ({}, "no-claim-id", "It has not sent its claim id yet; no idle jobs wait."),
    ],
)
def test_what_the_slot_is(more, unoffered, says):
    slots = pool(
        slot("a", **more),
        unoffered={"a": unoffered} if unoffered else {},
        waking=["a"] if unoffered == "waking" else [],
    )
    assert explain_slot(slots, "a", []).verdict == says


def test_a_slot_that_the_constraint_leaves_out():
    slots = pool(slot("a"), constraint=parse_expr("Cpus > 99"))
    assert explain_slot(slots, "a", []).verdict == "NEGOTIATOR_SLOT_CONSTRAINT leaves it out; no idle jobs wait."


def test_an_unknown_slot():
    with pytest.raises(KeyError):
        explain_slot(pool(slot("a")), "b", [])
