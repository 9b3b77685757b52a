"""Worked examples of whole cycles: ranks, preemption, group quotas, concurrency limits, consumption policies.

Those of shares and of the first sort (W-01, W-13, W-15, W-16) are in test_cycle.py.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from engine.fairshare.group_tree import ROOT
from engine.match.cycle import negotiate
from engine.match.model import NO_PREEMPTION, PRIORITY_PREEMPTION, RANK_PREEMPTION, Result
from tests.spec import spec
from tests.unit.negotiator.pools import NOW, POST, PRE, PREEMPTION, Pool


def slot(name: str, **attributes: str) -> dict[str, str]:
    return {
        "Name": f'"{name}"',
        "Cpus": "1",
        "Memory": "1024",
        "Disk": "100000",
        "SlotWeight": "Cpus",
        "Rank": "0.0",
        "Requirements": "true",
        "State": '"Unclaimed"',
        "Activity": '"Idle"',
        **attributes,
    }


def slots(number: int, **attributes: str) -> list[dict[str, str]]:
    return [slot(f"slot{i}@m", **attributes) for i in range(1, number + 1)]


def used(name: str, user: str, **attributes: str) -> dict[str, str]:
    running = {"State": '"Claimed"', "Activity": '"Busy"', "RemoteUser": f'"{user}"', "RemoteOwner": f'"{user}"'}
    return slot(name, **{**running, "CurrentRank": "0.0", **attributes})


def jobs(submitter: str, count: int, autocluster: int = 1, **attributes: str) -> dict[str, Any]:
    job = {"Requirements": "true", "RequestCpus": "1", "RequestMemory": "1", "RequestDisk": "1", **attributes}
    return {"submitter": submitter, "schedd": "schedd.a", "autocluster": autocluster, "count": count, "ad": job}


def decide(
    offered: list[dict[str, str]],
    asks: list[dict[str, Any]],
    eup: dict[str, float] | None = None,
    *,
    groups: dict[str, Any] | None = None,
    limits: dict[str, Any] | None = None,
    running: list[str] | None = None,
    **config: Any,
) -> Result:
    records = {name: {"priority": value, "factor": 1.0} for name, value in (eup or {}).items()}
    pool = Pool(offered, asks, records, config, groups or {}, limits or {}, running=running or [])
    knobs = pool.cycle_config()
    return negotiate(pool.snapshot(knobs), knobs, NOW)


def names(result: Result) -> list[str]:
    """Slots in the order in which they were given."""
    return [match.slot.partition("@")[0] for match in result.matches for _ in range(match.count)]


def got(result: Result) -> dict[str, int]:
    counts: Counter[str] = Counter()
    for match in result.matches:
        counts[match.submitter.rpartition(".")[0] or match.submitter] += match.count
    return dict(counts)


# --- ranks


@spec("W-02")
def test_the_smaller_slot_that_suits_wins_and_idle_ones_come_before_used_ones() -> None:
    a, b = {"Cpus": "4", "Memory": "8192"}, {"Cpus": "8", "Memory": "16384"}
    offered = [used("used@m", "b", **a), slot("b@m", **b), slot("a@m", **a)]
    result = decide(offered, [jobs("a", 3)], {"a": 1.0, "b": 9.0}, pre_job_rank=PRE, preemption_requirements="true")
    assert names(result) == ["a", "b", "used"]


@spec("W-03")
def test_faster_slots_come_first_and_offline_ones_are_not_handed_out() -> None:
    offered = [
        slot("s3@m", SlotID="3", Offline="true"),
        slot("s1@m", SlotID="1"),
        slot("s2@m", SlotID="2", KFlops="500000"),
    ]
    assert names(decide(offered, [jobs("a", 3)], post_job_rank=POST)) == ["s2", "s1"]


@spec("W-04")
def test_the_worst_user_is_preempted_first_then_who_ran_least() -> None:
    offered = [
        used("first@m", "x", TotalJobRunTime="3600"),
        used("second@m", "y"),
        used("third@m", "z", TotalJobRunTime="90000"),
    ]
    eup = {"a": 1.0, "x": 10.0, "y": 10.0, "z": 20.0}
    result = decide(offered, [jobs("a", 3)], eup, preemption_requirements="true", preemption_rank=PREEMPTION)
    assert names(result) == ["third", "second", "first"]


@spec("PRE-03", "W-05")
@pytest.mark.parametrize(
    ("rank", "eup", "requirements", "reason"),
    [
        ("5", 30.0, "false", RANK_PREEMPTION),
        ("0", 10.0, "true", PRIORITY_PREEMPTION),
        ("-1", 10.0, "true", None),
        ("0", 30.0, "true", None),
        ("0", 20.0, "true", None),
        ("0", 10.0, "false", None),
        ("0", 10.0, "undefined", None),
        ("0", 10.0, "1", None),  # a number is not TRUE (PRE-03)
    ],
)
def test_reasons_of_preemption(rank: str, eup: float, requirements: str, reason: str | None) -> None:
    offered = [used("s@m", "b", Rank="TARGET.Liking")]
    asks = [jobs("a", 1, Liking=rank)]
    result = decide(offered, asks, {"a": eup, "b": 20.0}, preemption_requirements=requirements)
    assert [(match.reason, match.preempts) for match in result.matches] == ([(reason, ("s@m",))] if reason else [])


@spec("PRE-05")
def test_nobody_preempts_himself_by_priority() -> None:
    assert not decide([used("s@m", "a")], [jobs("a", 1)], {"a": 1.0}, preemption_requirements="true").matches


@spec("NEG-19")
def test_a_claimed_slot_without_a_job_is_left_alone() -> None:
    offered = [used("s@m", "b", Activity='"Idle"', Rank="1")]
    assert not decide(offered, [jobs("a", 1)], preemption_requirements="true").matches


@spec("PRE-06")
def test_who_waits_to_preempt_a_slot_is_who_is_compared() -> None:
    offered = [used("s@m", "b", PreemptingUser='"c"')]
    eup = {"a": 10.0, "b": 20.0, "c": 5.0}
    assert not decide(offered, [jobs("a", 1)], eup, preemption_requirements="true").matches
    eup["c"] = 11.0
    assert decide(offered, [jobs("a", 1)], eup, preemption_requirements="true").matches


@spec("PRE-08")
@pytest.mark.parametrize("early", [False, True])
def test_slots_with_retirement_time_left_are_not_considered_unless_early(early: bool) -> None:
    offered = [used("s@m", "b", Rank="1", RetirementTimeRemaining="60")]
    result = decide(offered, [jobs("a", 1)], consider_early_preemption=early)
    assert len(result.matches) == early


# --- groups

STATIC = {"names": ["physics", "chemistry"], "quota": {"physics": 20.0, "chemistry": 10.0}}
TREE = ["physics", "physics.hep", "physics.lep", "chemistry"]


def members(**demand: int) -> list[dict[str, Any]]:
    """Jobs of one submitter a group; `_` in the group's name is a dot."""
    return [jobs(f"{group.replace('_', '.')}.u", count) for group, count in demand.items() if count]


@spec("W-18")
@pytest.mark.parametrize(
    ("pool", "over", "expected"),
    [
        (30, True, {"physics": 20, "chemistry": 10}),
        (15, False, {"physics": 10, "chemistry": 5}),
        (15, True, {"physics": 5, "chemistry": 10}),  # quotas 20 and 10; equal keys go by name
        (60, True, {"physics": 20, "chemistry": 10}),
    ],
)
def test_static_quotas(pool: int, over: bool, expected: dict[str, int]) -> None:
    groups = {**STATIC, "allow_oversubscription": over}
    result = decide(slots(pool), members(physics=60, chemistry=60), groups=groups)
    assert got(result) == expected
    quotas = {plan.name: plan.quota for plan in result.groups}
    scaled = 0.5 if pool == 15 and not over else 1.0
    assert quotas["physics"] == 20 * scaled
    assert quotas["chemistry"] == 10 * scaled


@spec("W-19")
@pytest.mark.parametrize(
    ("pool", "chemistry", "physics", "expected"),
    [
        (30, 0.33, 0.66, {"chemistry": 9, "physics": 19}),  # of 9.9 and 19.8
        (60, 0.33, 0.66, {"chemistry": 19, "physics": 39}),
        (30, 0.4, 0.8, {"chemistry": 10, "physics": 20}),  # they add up to more than 1
    ],
)
def test_dynamic_quotas(pool: int, chemistry: float, physics: float, expected: dict[str, int]) -> None:
    groups = {"names": ["physics", "chemistry"], "dynamic_quota": {"physics": physics, "chemistry": chemistry}}
    assert got(decide(slots(pool), members(physics=60, chemistry=60), groups=groups)) == expected


@spec("W-20")
def test_dynamic_subgroups() -> None:
    parts = {"chemistry": 0.33334, "physics": 0.66667, "physics.hep": 0.75, "physics.lep": 0.25}
    groups = {"names": TREE, "dynamic_quota": parts}
    result = decide(slots(30), members(physics_hep=60, physics_lep=60, chemistry=60), groups=groups)
    assert got(result) == {"physics.hep": 15, "physics.lep": 5, "chemistry": 10}


@spec("W-21")
@pytest.mark.parametrize(
    ("accepts", "demand", "expected"),
    [
        (False, (60, 60, 60), (15, 5, 10)),
        (False, (60, 0, 60), (20, 0, 10)),
        (False, (0, 60, 0), (0, 20, 0)),
        (False, (60, 60, 0), (15, 5, 0)),
        (True, (60, 60, 0), (22, 7, 0)),  # 22.5 and 7.5, whole slots only
        (True, (60, 0, 0), (30, 0, 0)),
        (True, (60, 60, 60), (15, 5, 10)),
    ],
)
def test_surplus(accepts: bool, demand: tuple[int, int, int], expected: tuple[int, int, int]) -> None:
    groups = {
        "names": TREE,
        "quota": {"physics": 20.0, "physics.hep": 15.0, "physics.lep": 5.0, "chemistry": 10.0},
        "accept_surplus_by": {"physics": accepts, "physics.hep": True, "physics.lep": True},
        "allow_oversubscription": False,
    }
    hep, lep, chemistry = demand
    result = decide(slots(30), members(physics_hep=hep, physics_lep=lep, chemistry=chemistry), groups=groups)
    counts = got(result)
    assert tuple(counts.get(name, 0) for name in ("physics.hep", "physics.lep", "chemistry")) == expected


@spec("W-21")
def test_oversubscribed_the_parent_still_caps_its_subtree() -> None:
    groups = {
        "names": TREE,
        "quota": {"physics": 20.0, "physics.hep": 15.0, "physics.lep": 5.0, "chemistry": 10.0},
        "accept_surplus_by": {"physics.hep": True, "physics.lep": True},
    }
    counts = got(decide(slots(30), members(physics_hep=60, physics_lep=60, chemistry=60), groups=groups))
    assert counts.get("physics.hep", 0) + counts.get("physics.lep", 0) == 20
    assert counts["chemistry"] == 10


@spec("W-22")
def test_static_and_dynamic_quotas_together() -> None:
    groups = {"names": ["fixed", "part"], "quota": {"fixed": 10.0}, "dynamic_quota": {"part": 0.5}}
    result = decide(slots(30), [*members(fixed=60, part=60), jobs("other", 60)], groups=groups)
    assert got(result) == {"fixed": 10, "part": 10, "other": 10}


PRIORITIES = {"names": ["physics", "chemistry"], "quota": {"physics": 1e6, "chemistry": 1e4}}


@spec("W-23")
@pytest.mark.parametrize(("physics", "expected"), [(100, {"physics": 30}), (12, {"physics": 12, "chemistry": 18})])
def test_strict_priority(physics: int, expected: dict[str, int]) -> None:
    groups = {**PRIORITIES, "sort_expr": 'ifThenElse(AccountingGroup == "physics", 1, 2)'}
    assert got(decide(slots(30), members(physics=physics, chemistry=100), groups=groups)) == expected


@spec("W-23")
def test_keys_of_the_default_order() -> None:
    offered = [used(f"slot{i}@m", "physics.u" if i < 20 else "chemistry.u") for i in range(21)]
    result = decide(offered, members(physics=1, chemistry=1), groups=PRIORITIES)
    keys = {plan.name: plan.sort_key for plan in result.groups}
    assert keys["physics"] == pytest.approx(2e-5)
    assert keys["chemistry"] == pytest.approx(1e-4)
    assert [plan.name for plan in result.groups] == ["physics", "chemistry", ROOT]


@spec("W-24")
def test_order_of_groups() -> None:
    groups = {"names": ["g1", "g2", "g3"], "quota": {"g1": 20.0, "g2": 10.0}}
    asks = [*members(g1=9, g2=9, g3=9), jobs("other", 9)]
    full = [used(f"used{i}@m", "g1.u" if i < 8 else "g2.u") for i in range(9)]
    keys = [(plan.name, plan.sort_key) for plan in decide(full, asks, groups=groups).groups]
    assert keys == [("g2", 0.1), ("g1", 0.4), ("g3", 3.3e38), (ROOT, 3.4e38)]
    assert got(decide(full + slots(1), asks, groups=groups)) == {"g2": 1}


# --- concurrency limits


@spec("W-27")
@pytest.mark.parametrize(("running", "expected"), [(0, 3), (2, 1), (3, 0)])
def test_a_named_limit(running: int, expected: int) -> None:
    offered = [used(f"used{i}@m", "b", ConcurrencyLimits='"xsw"') for i in range(running)] + slots(5)
    result = decide(offered, [jobs("a", 5, ConcurrencyLimits='"XSW"')], limits={"limits": {"xsw": 3.0}})
    assert sum(match.count for match in result.matches) == expected
    assert [(no.left, no.code) for no in result.rejections] == [(5 - expected, "limit")]


@spec("W-28")
@pytest.mark.parametrize(("default", "expected"), [(1.0, 1), (None, 5)])
def test_the_default_limit(default: float | None, expected: int) -> None:
    result = decide(slots(5), [jobs("a", 5, ConcurrencyLimits='"unnamed"')], limits={"default": default})
    assert sum(match.count for match in result.matches) == expected


@spec("W-29")
def test_units() -> None:
    asks = [jobs("a", 5, ConcurrencyLimits='"XSW, DATABASE, FILESERVER:3"')]
    result = decide(slots(5), asks, limits={"limits": {"fileserver": 7.0}})
    assert [match.limits for match in result.matches] == ["xsw,database,fileserver:3"] * 2


@spec("W-30")
def test_sets_of_limits() -> None:
    wanted = {"LARGE.SWLICENSE": 100, "LARGE.DBSESSION": 100, "SMALL.x": 25, "OTHER.LICENSE": 5}
    asks = [jobs("a", 120, i, ConcurrencyLimits=f'"{name}"') for i, name in enumerate(wanted)]
    result = decide(slots(480), asks, limits={"defaults": {"large": 100.0, "small": 25.0}, "default": 5.0})
    taken = Counter(match.limits for match in result.matches)
    assert taken == {name.lower(): number for name, number in wanted.items()}


def networks() -> list[dict[str, str]]:
    return [slot(f"slot{i}@m", NETWORK='"NETWORK_A"' if i % 2 else '"NETWORK_B"') for i in range(30)]


@spec("W-31")
def test_a_full_limit_of_a_slot_skips_that_slot_only() -> None:
    limits = {"limits": {"network_a": 10.0, "network_b": 10.0}}
    result = decide(networks(), [jobs("a", 30, ConcurrencyLimits="TARGET.NETWORK")], limits=limits)
    assert Counter(match.limits for match in result.matches) == {"network_a": 10, "network_b": 10}


@spec("W-31")
def test_a_limit_beside_those_of_the_slots() -> None:
    limits = {"limits": {"network_a": 10.0, "network_b": 10.0, "swx": 15.0}}
    asks = [jobs("a", 30, ConcurrencyLimits='strcat("SWX:2 ", TARGET.NETWORK)')]
    assert len(decide(networks(), asks, limits=limits).matches) == 7


# --- partitionable slots


def machine(name: str, cpus: int, **attributes: str) -> dict[str, str]:
    more = {"PartitionableSlot": "true", "SlotID": "1", "MachineResources": '"Cpus Memory Disk Swap"'}
    return slot(name, **{**more, "Machine": '"m"', "Cpus": str(cpus), "Memory": "8192", **attributes})


CONSUMES = {
    "ConsumptionCpus": "quantize(target.RequestCpus,{1})",
    "ConsumptionMemory": "quantize(target.RequestMemory,{128})",
    "ConsumptionDisk": "quantize(target.RequestDisk,{1024})",
}


@spec("W-48")
def test_a_consumption_policy() -> None:
    asks = [jobs("a", count, cpus, RequestCpus=str(cpus)) for cpus, count in ((2, 2), (4, 1), (1, 1))]
    result = decide([machine("slot1@m", 8, **CONSUMES)], asks)
    assert [(match.request.autocluster, match.count, match.weight) for match in result.matches] == [
        (2, 2, 4),
        (4, 1, 4),
    ]
    assert [no.request.autocluster for no in result.rejections] == [1]


@spec("W-48")
def test_a_custom_resource_runs_out_first() -> None:
    gpus = {"GPUs": "4", "ConsumptionGPUs": "quantize(target.RequestGPUs,{1})"}
    offered = [machine("slot1@m", 8, **CONSUMES, **gpus, MachineResources='"Cpus Memory Disk Swap GPUs"')]
    result = decide(offered, [jobs("a", 8, RequestGPUs="1")])
    assert [match.count for match in result.matches] == [4]


@spec("W-47")
@pytest.mark.parametrize(("retiring", "expected"), [(False, ("4", "2")), (True, ("2", "3"))])
def test_as_many_dynamic_slots_as_are_needed_are_preempted_lowest_rank_first(
    retiring: bool, expected: tuple[str, ...]
) -> None:
    parts = [
        used(
            f"slot1_{i}@m",
            "b",
            Machine='"m"',
            Cpus="2",
            Rank="5",
            CurrentRank=str(rank),
            DynamicSlot="true",
            SlotID="1",
            DSlotID=str(i),
            RetirementTimeRemaining="600" if retiring and rank == 0 else "0",
        )
        for i, rank in enumerate((3, 1, 2, 0), 1)
    ]
    offered = [machine("slot1@m", 0, Rank="5"), *parts]
    result = decide(offered, [jobs("a", 1, RequestCpus="4")], allow_pslot_preemption=True)
    assert [(match.slot, match.count, match.reason) for match in result.matches] == [("slot1@m", 1, RANK_PREEMPTION)]
    assert result.matches[0].preempts == tuple(f"slot1_{i}@m" for i in expected)


@spec("PRE-19")
def test_without_the_knob_a_partitionable_slot_is_not_emptied() -> None:
    parts = [used(f"slot1_{i}@m", "b", Cpus="2", Rank="5", DynamicSlot="true") for i in (1, 2)]
    asks = [jobs("a", 1, RequestCpus="4", Requirements="TARGET.Cpus >= 4")]
    assert not decide([machine("slot1@m", 0), *parts], asks).matches
    (match,) = decide([machine("slot1@m", 4), *parts], asks).matches
    assert (match.slot, match.reason, match.preempts) == ("slot1@m", NO_PREEMPTION, ())
