"""The negotiator's explanations: from its own ads, with what only it knows."""

from __future__ import annotations

import asyncio

import pytest

from engine.match.model import Rejected, Request
from services.negotiator.analyze_rpc import AnalyzedJob, Analyzer, NoSuchSlot, PoolState, TooSlow
from shared.caller import CallerGone, Wait, awaited
from shared.classad import ClassAd, parse_expr
from tests.unit.analyze.pools import job, slot


class Seconds:
    def __init__(self) -> None:
        self.at = 0.0

    def __call__(self) -> float:
        return self.at


def packed(*ads: ClassAd) -> dict[str, bytes]:
    return {str(ad.eval("Name")): ad.pack() for ad in ads}


def around(ads, *, pending=(), constraint=None, without=()) -> PoolState:
    claims = {name: f"{name}#secret" for name in ads if name not in without}
    return PoolState(1000.0, claims, pending, parse_expr(constraint) if constraint else None)


def ask(analyst: Analyzer, ads, *jobs: ClassAd, machine: str = "", **more):
    return analyst.jobs(ads, around(ads, **more), [AnalyzedJob(ad, "schedd.ap", 7) for ad in jobs], machine)


def test_what_only_the_negotiator_knows_is_told():
    ads = packed(slot("slot1@a"), slot("slot1@b"), slot("slot1@c"), slot("slot1@d"))
    (found,) = ask(
        Analyzer(Seconds()), ads, job(), pending=["slot1@b"], without=["slot1@c"], constraint='Name != "slot1@d"'
    )
    assert found["outcomes"] == {"free": 1, "match-under-way": 1, "no-claim-id": 1, "constraint": 1}
    assert found["also"] == 7


def test_the_last_cycle_is_remembered_by_autocluster():
    analyst = Analyzer(Seconds())
    ads = packed(slot("slot1@a"))
    said = Rejected("alice@pool", Request("schedd.ap", 3, 5, job()), 5, "share", "the share is used up", {"share": 1})
    analyst.remember([said], 900.0)
    mine, other, unknown = ask(analyst, ads, job(AutoClusterId=3), job(AutoClusterId=4), job())
    assert mine["last"] == {"reason": "the share is used up", "code": "share", "at": 900.0, "counts": {"share": 1}}
    assert (other["last"], unknown["last"]) == (None, None)
    analyst.remember([], 901.0)
    assert ask(analyst, ads, job(AutoClusterId=3))[0]["last"] is None


def test_slots_come_change_and_go_between_questions():
    analyst = Analyzer(Seconds())
    ads = packed(slot("slot1@a"), slot("slot1@b"))
    assert ask(analyst, ads, job())[0]["outcomes"] == {"free": 2}
    ads |= packed(slot("slot1@b", Memory=1), slot("slot1@c", State="Claimed"))
    assert ask(analyst, ads, job())[0]["outcomes"] == {"free": 1, "claimed": 1, "job-requirements": 1}
    del ads["slot1@a"]
    assert ask(analyst, ads, job())[0]["outcomes"] == {"claimed": 1, "job-requirements": 1}


def test_an_ad_that_can_not_be_read_does_not_keep_the_others_from_being_told_of():
    ads = {**packed(slot("slot1@a")), "slot1@b": b"\xc1junk"}
    assert ask(Analyzer(Seconds()), ads, job())[0]["slots"] == 1


def test_one_machine_only():
    ads = packed(slot("slot1@a"), slot("slot2@a", Memory=1), slot("slot1@b"))
    analyst = Analyzer(Seconds())
    assert ask(analyst, ads, job(), machine="a")[0]["outcomes"] == {"free": 1, "job-requirements": 1}
    assert ask(analyst, ads, job(), machine="slot1@b")[0]["slots"] == 1
    with pytest.raises(NoSuchSlot, match="no slot or machine 'zz' in the pool"):
        ask(analyst, ads, job(), machine="zz")


def test_what_slots_would_take():
    ads = packed(slot("slot1@a"), slot("slot2@a", Memory=10), slot("slot1@b"))
    requests = {
        "bob@pool": [Request("schedd.ap", 2, 4, job(ClusterId=2))],
        "alice@pool": [Request("schedd.ap", 1, 3, job(ClusterId=1, RequestCpus=99))],
    }
    one, two = Analyzer(Seconds()).slots(ads, around(ads), requests, "a")
    assert (one["slot"], one["fits"], one["jobs"]) == ("slot1@a", 4, 7)
    assert (two["slot"], two["fits"]) == ("slot2@a", 0)
    assert [(r["job"], r["submitter"], r["fits"]) for r in one["requests"]] == [
        ("1.0", "alice@pool", False),
        ("2.0", "bob@pool", True),
    ]
    with pytest.raises(NoSuchSlot):
        Analyzer(Seconds()).slots(ads, around(ads), requests, "slot9@a")


def test_conditions_that_take_too_long_are_given_up():
    clock = Seconds()

    def hurried() -> float:
        clock.at += 1.0
        return clock.at

    ads = packed(*[slot(f"slot{n}@a", Parts=f"={{ {n} }}") for n in range(20)])
    slow = job("TARGET.Parts[0] == 3", ClusterId=44)
    with pytest.raises(TooSlow, match=r"conditions of job 44\.0 take more than the 5 s of processor time"):
        ask(Analyzer(hurried), ads, slow)
    with pytest.raises(TooSlow, match="slot0@a or of the jobs that wait"):
        Analyzer(hurried).slots(ads, around(ads), {"a": [Request("s", 1, 1, slow)] * 9}, "slot0@a")

    analyst = Analyzer(clock)  # whose clock stands still
    assert ask(analyst, ads, slow)[0]["terms"][0]["alone"] == 1


async def test_an_analysis_ends_when_nobody_waits_for_it():
    """In its thread."""
    ads = packed(*[slot(f"slot{n}@a") for n in range(5)])
    with awaited(Wait(-1.0)), pytest.raises(CallerGone):
        await asyncio.to_thread(ask, Analyzer(), ads, job())
    with awaited(Wait(3600.0)):
        assert await asyncio.to_thread(ask, Analyzer(), ads, job())
