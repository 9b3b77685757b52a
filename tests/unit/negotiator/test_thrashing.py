"""Slots that go to and fro between users are told of."""

from __future__ import annotations

import pytest

from engine.fairshare.priorities import Record
from engine.match.cycle import negotiate
from engine.match.model import CycleConfig, Preempted, Request, Thrashing
from engine.match.slot_table import snapshot_of
from shared.classad import ClassAd, parse_ad, parse_expr

NOW = 10_000.0
CONFIG = CycleConfig(preemption_requirements=parse_expr("true"), thrash_count=3, thrash_window_s=3600.0)


def told(past: list[Preempted], config: CycleConfig = CONFIG) -> tuple[Thrashing, ...]:
    """a takes the slot of b now."""
    slot = parse_ad(
        '[ Name = "slot1@m"; State = "Claimed"; Activity = "Busy"; RemoteUser = "b"; Requirements = true; Cpus = 1;'
        " Rank = 0; CurrentRank = 0 ]"
    )
    request = Request("schedd", 1, 1, ClassAd({"Requirements": parse_expr("true")}))
    records = {"a": Record(priority=1.0, factor=1.0), "b": Record(priority=9.0, factor=1.0)}
    snapshot = snapshot_of([slot], {"a": [request]}, records, config, preempted=past)
    result = negotiate(snapshot, config, NOW)
    assert [(match.slot, match.preempts) for match in result.matches] == [("slot1@m", ("slot1@m",))]
    return result.thrashing


def test_two_users_who_take_a_slot_from_each_other() -> None:
    past = [Preempted("slot1@m", "a", "b", NOW - 600), Preempted("slot1@m", "b", "a", NOW - 1200)]
    assert told(past) == (Thrashing("slot1@m", ("a", "b"), 3),)
    assert told(past[::-1]) == told(past)


@pytest.mark.parametrize(
    "past",
    [
        [],
        [Preempted("slot1@m", "a", "b", NOW - 600)],
        [Preempted("slot1@m", "a", "b", NOW - 600), Preempted("slot1@m", "b", "a", NOW - 4000)],
        [Preempted("slot2@m", "a", "b", NOW - 600), Preempted("slot2@m", "b", "a", NOW - 700)],
        [Preempted("slot1@m", "c", "b", NOW - 600), Preempted("slot1@m", "d", "c", NOW - 700)],
    ],
    ids=["never before", "twice", "too long ago", "another slot", "handed on, not back"],
)
def test_other_preemptions_are_no_loop(past: list[Preempted]) -> None:
    assert told(past) == ()


def test_loops_are_not_looked_for_without_a_count() -> None:
    past = [Preempted("slot1@m", "a", "b", NOW - 600), Preempted("slot1@m", "b", "a", NOW - 1200)]
    assert told(past, CycleConfig(preemption_requirements=parse_expr("true"), thrash_count=0)) == ()
