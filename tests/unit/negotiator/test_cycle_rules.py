"""Rules of a cycle that no worked example shows: one test for each statement, on the smallest pool that shows it."""

from __future__ import annotations

import math
import time
from typing import Any

import pytest

from engine.match.cycle import negotiate
from engine.match.model import NO_PREEMPTION, RANK_PREEMPTION, CycleConfig, Result
from engine.match.slot_table import SlotTable, snapshot_of
from engine.policy import read_policy
from shared.classad import evaluate, parse_expr
from shared.config import load_config
from tests.spec import spec
from tests.unit.negotiator.pools import NOW, Pool, ad
from tests.unit.negotiator.test_worked_examples import decide, got, jobs, machine, names, slot, slots, used

#: Whatever the policy may be, by priority.
ANYBODY = {"preemption_requirements": "true"}


def users(result: Result) -> list[str]:
    """Submitters in the order in which they got slots."""
    return [match.submitter for match in result.matches]


def given(result: Result) -> int:
    return sum(match.count for match in result.matches)


# --- slots on offer


@spec("NEG-05")
def test_claimed_slots_are_not_looked_at_without_preemption_but_claimed_machines_are() -> None:
    preferred = used("busy@m", "b", Rank="9", CurrentRank="1")
    part = machine("slot1@m2", 2, State='"Claimed"', Activity='"Idle"')
    assert names(decide([preferred, part], [jobs("a", 3)])) == ["busy", "slot1", "slot1"]
    off = decide([preferred, part], [jobs("a", 3)], consider_preemption=False)
    assert names(off) == ["slot1", "slot1"]
    assert not decide([used("s@m", "b")], [jobs("a", 1)], consider_preemption=False, **ANYBODY).matches


@spec("NEG-20")
def test_an_unclaimed_slot_is_taken_from_nobody() -> None:
    (match,) = decide(slots(1, Rank="5"), [jobs("a", 1)], **ANYBODY).matches
    assert (match.reason, match.preempts) == (NO_PREEMPTION, ())


@spec("NEG-20")
@pytest.mark.parametrize("state", ["Owner", "Matched", "Drained", "Backfill"])
def test_other_states_leave_the_decision_to_START(state: str) -> None:
    assert given(decide(slots(1, State=f'"{state}"'), [jobs("a", 1)])) == 1


@spec("NEG-22")
def test_a_slot_that_was_given_leaves_the_list() -> None:
    offered = [slot("best@m", Quality="9"), slot("next@m", Quality="5"), slot("last@m", Quality="1")]
    asks = [jobs(name, 1, Rank="TARGET.Quality") for name in ("a", "b", "c")]
    result = decide(offered, asks, {"a": 1.0, "b": 1.1, "c": 1.2})
    assert [(match.submitter, match.slot) for match in result.matches] == [
        ("a", "best@m"),
        ("b", "next@m"),
        ("c", "last@m"),
    ]


@spec("NEG-33")
@pytest.mark.parametrize(("threshold", "expected"), [(0.0, 2), (60.0, 1)])
def test_slots_that_shut_down_soon_get_no_match(threshold: float, expected: int) -> None:
    leaving = slot("leaving@m", DaemonShutdown=f"time() >= {NOW + 30:.0f}")
    staying = slot("staying@m", DaemonShutdown=f"time() >= {NOW + 90:.0f}")
    result = decide([leaving, staying], [jobs("a", 2)], trim_shutdown_s=threshold)
    assert given(result) == expected
    assert "staying" in names(result)


@spec("NEG-34")
@pytest.mark.parametrize(("deep", "expected"), [(True, {"m1": 4, "m2": 0}), (False, {"m1": 2, "m2": 2})])
def test_depth_first_packs_a_machine_before_the_next(deep: bool, expected: dict[str, int]) -> None:
    offered = [machine("slot1@m1", 4, Machine='"m1"'), machine("slot1@m2", 4, Machine='"m2"')]
    # The emptier machine is liked better: without the knob the jobs go to and fro.
    result = decide(offered, [jobs("a", 4)], pre_job_rank="MY.Cpus", depth_first=deep)
    found = dict.fromkeys(expected, 0)
    for match in result.matches:
        found[match.slot.partition("@")[2]] += match.count
    assert found == expected


# --- whose turn it is, and for how much


@spec("NEG-07")
def test_submitters_go_by_effective_priority_lowest_number_first() -> None:
    eup = {"worst": 30.0, "best": 10.0, "middle": 20.0}
    result = decide(slots(3), [jobs(name, 1) for name in eup], eup)
    assert users(result) == ["best", "middle", "worst"]
    assert users(decide(slots(1), [jobs(name, 1) for name in eup], eup)) == ["best"]


@spec("NEG-08", "NEG-16")
def test_a_name_counts_once_however_many_access_points_it_has() -> None:
    asks = [jobs("a", 9), jobs("a", 9) | {"schedd": "schedd.b"}, jobs("b", 9)]
    assert got(decide(slots(8), asks, {"a": 1.0, "b": 1.0})) == {"a": 4, "b": 4}


@spec("NEG-16")
def test_all_jobs_of_one_access_point_come_before_those_of_the_next() -> None:
    asks = [jobs("a", 2, 1), jobs("a", 1, 2), jobs("a", 9, 1) | {"schedd": "schedd.b"}]
    found = decide(slots(5), asks)
    assert [(match.request.schedd, match.request.autocluster) for match in found.matches] == [
        ("schedd.a", 1),
        ("schedd.a", 1),
        ("schedd.a", 2),
        ("schedd.b", 1),
        ("schedd.b", 1),
    ]


@spec("NEG-08")
@pytest.mark.parametrize(
    ("free", "in_use", "busy", "asking", "expected"),
    [
        (4, 6, 100.0, {"a": 100.0, "b": 100.1}, [3, 1]),
        (5, 5, 90.0, {"a": 100.0, "b": 100.1}, [3, 2]),
        (6, 9, 100.0, {"a": 100.0, "b": 100.1, "c": 100.2}, [3, 3, 0]),
    ],
)
def test_who_only_runs_jobs_has_a_part_of_the_pool(
    free: int, in_use: int, busy: float, asking: dict[str, float], expected: list[int]
) -> None:
    """HTCondor's negotiator was asked for these."""
    offered = [*slots(free), *(used(f"slot{n}@busy", "u") for n in range(1, in_use + 1))]
    asks = [jobs(name, 20, number) for number, name in enumerate(asking, 1)]
    priorities = {**asking, "u": busy}
    gifts = got(decide(offered, asks, priorities, running=["u", "a"]))
    assert [gifts.get(name, 0) for name in asking] == expected
    # Nobody can take what others run: then only those who ask have a part.
    first, *_ = users(decide(offered, asks, priorities, running=["u"], consider_preemption=False))
    off = got(decide(offered, asks, priorities, running=["u"], consider_preemption=False))
    assert (first, off["a"]) == ("a", min(free, math.ceil((free + in_use) / len(asking))))


@spec("NEG-07")
def test_of_equal_priorities_who_has_least_of_its_due_comes_first() -> None:
    offered = [*slots(1), *(used(f"slot{n}@busy", "a") for n in (1, 2)), used("slot3@busy", "b")]
    asks = [jobs("a", 5), jobs("b", 5), jobs("c", 5)]
    equal = {"a": 7.0, "b": 7.0, "c": 7.0}
    assert users(decide(offered, asks, equal)) == ["c"]
    assert users(decide(offered, asks[:2], equal)) == ["b"]


@spec("NEG-10")
def test_later_spins_reach_slots_that_can_be_preempted_up_to_what_is_due() -> None:
    """Ten slots, none free: `a` is due 6.67 and has 5, takes one, and in the second spin, when `b` is out, its due is
    ten: it takes the slots of who has the worst priority, and none of b's."""
    offered = [
        *(used(f"slot{n}@a", "a") for n in range(1, 6)),
        *(used(f"slot{n}@b", "b", Start="false", Requirements="false") for n in range(1, 3)),
        *(used(f"slot{n}@c", "c") for n in range(1, 4)),
    ]
    policy = {"preemption_requirements": "RemoteUserPrio > SubmitterUserPrio * 1.2"}
    result = decide(offered, [jobs("a", 9)], {"a": 10.0, "b": 20.0, "c": 90.0}, running=["a", "b", "c"], **policy)
    assert [match.preempts for match in result.matches] == [("slot1@c",), ("slot2@c",), ("slot3@c",)]


@spec("NEG-14")
def test_jobs_that_slots_prefer_ignore_the_share_in_the_first_spin() -> None:
    offered = [used(f"slot{i}@m", "b", Rank="TARGET.Liked") for i in range(4)]
    eup = {"a": 1e6, "b": 1.0, "c": 1.0}  # a share of next to nothing
    asks = [jobs("a", 4, Liked="1"), jobs("c", 1, Liked="0")]
    result = decide(offered, asks, eup)
    assert [(match.submitter, match.reason) for match in result.matches] == [("a", RANK_PREEMPTION)] * 4
    assert not decide(offered, asks, eup, consider_preemption=False).matches


@spec("NEG-17")
@pytest.mark.parametrize(("all_jobs", "expected"), [(False, 0), (True, 1)])
def test_after_a_rejection_the_rest_of_the_autocluster_is_passed_over(all_jobs: bool, expected: int) -> None:
    """Jobs of an autocluster can differ where SIGNIFICANT_ATTRIBUTES leaves something out."""
    asks = [jobs("a", 1, 1, Requirements="false"), jobs("a", 1, 1)]
    assert given(decide(slots(1), asks, all_jobs_in_cluster=all_jobs)) == expected
    other = [jobs("a", 1, 1, Requirements="false"), jobs("a", 1, 2)]
    assert given(decide(slots(1), other)) == 1
    elsewhere = [jobs("a", 1, 1, Requirements="false"), jobs("a", 1, 1) | {"schedd": "schedd.b"}]
    assert given(decide(slots(1), elsewhere)) == 1


# --- time limits


class Ticking:
    """A clock that goes on by a second whenever it is read."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += 1.0
        return self.now


ASKS = [
    *(jobs(name, 1, autocluster) for name in ("a", "b") for autocluster in range(40)),
    *(jobs("c", 1, autocluster) | {"schedd": "schedd.b"} for autocluster in range(40)),
]
LONG = 1e9


@spec("NEG-26")
@pytest.mark.parametrize(
    ("limit", "who"),
    [
        ("submitter", {"a", "b", "c"}),
        ("piespin", {"a", "b", "c"}),
        ("schedd", {"schedd.a", "schedd.b"}),
        ("cycle", {"cycle"}),
    ],
)
def test_who_is_out_of_time_is_passed_over(limit: str, who: set[str]) -> None:
    knobs: dict[str, Any] = {
        f"max_time_per_{name}_s": 15.0 if name == limit else LONG
        for name in ("submitter", "schedd", "cycle", "piespin")
    }
    pool = Pool(slots(120), ASKS, {})
    base = pool.cycle_config()
    config = CycleConfig(**{name: getattr(base, name) for name in ("groups", "limits")}, monotonic=Ticking(), **knobs)
    result = negotiate(pool.snapshot(config), config, NOW)
    assert set(result.out_of_time) == who
    assert 0 < given(result) < 120
    late = [no for no in result.rejections if no.code == "out-of-time"]
    assert late
    assert all("time" in no.reason for no in late)


@spec("NEG-26")
def test_a_limit_of_one_party_leaves_the_others_their_turn() -> None:
    """Each of three submitters gets something, and each of two access points."""
    pool = Pool(slots(120), ASKS, {})
    config = CycleConfig(monotonic=Ticking(), max_time_per_submitter_s=15.0)
    assert set(got(negotiate(pool.snapshot(config), config, NOW))) == {"a", "b", "c"}
    config = CycleConfig(monotonic=Ticking(), max_time_per_schedd_s=15.0)
    result = negotiate(pool.snapshot(config), config, NOW)
    assert {match.request.schedd for match in result.matches} == {"schedd.a", "schedd.b"}


#: Half a millisecond for each slot, which is not dear yet: it has no form for whole columns, as Name is different in
#: each of them.
DEAR = f"size(strcat({', '.join(['toUpper(TARGET.Name)'] * 60)})) > 0"


@spec("NEG-26")
@pytest.mark.parametrize(("limit", "who"), [("submitter", "a"), ("piespin", "a"), ("schedd", "schedd.a")])
def test_a_limit_binds_within_a_request_and_others_have_their_turn(limit: str, who: str) -> None:
    """The clock stands still, so that nothing but the processor time of one request's evaluations counts."""
    asks = [jobs("a", 1, Requirements=DEAR), jobs("b", 1) | {"schedd": "schedd.b"}]
    pool = Pool(slots(500), asks, {})
    knobs: dict[str, Any] = {f"max_time_per_{limit}_s": 0.02}
    began = time.thread_time()
    result = negotiate(pool.snapshot(CycleConfig()), CycleConfig(monotonic=lambda: 1.0, **knobs), NOW)
    used = time.thread_time() - began
    assert result.out_of_time == (who,)
    assert got(result) == {"b": 1}
    assert [(no.submitter, no.code) for no in result.rejections] == [("a", "out-of-time")]
    assert not result.rejections[0].counts  # they would have cost as much again
    began = time.thread_time()
    assert got(negotiate(pool.snapshot(CycleConfig()), CycleConfig(), NOW)) == {"a": 1, "b": 1}
    assert used < time.thread_time() - began  # it was ended before it had seen all slots


@spec("NEG-26")
def test_without_a_clock_there_is_no_time_limit() -> None:
    pool = Pool(slots(120), ASKS, {})
    config = CycleConfig(max_time_per_submitter_s=0.0, max_time_per_cycle_s=0.0)
    assert given(negotiate(pool.snapshot(config), config, NOW)) == 120


@spec("NEG-26")
def test_defaults_of_the_time_limits() -> None:
    cycle = policy().cycle
    times = (cycle.max_time_per_submitter_s, cycle.max_time_per_schedd_s, cycle.max_time_per_cycle_s)
    assert (*times, cycle.max_time_per_piespin_s) == (60.0, 120.0, 1200.0, 120.0)


# --- what changes within a cycle


@spec("NEG-27")
def test_the_list_of_a_request_may_be_kept_or_made_anew() -> None:
    offered = [slot(f"slot{i}@m", Quality=str(i * 7 % 5)) for i in range(12)]
    asks = [jobs(name, 3, number, Rank="TARGET.Quality") for name in "ab" for number in (1, 2)]
    kept, anew = (decide(offered, asks, matchlist_caching=caching) for caching in (True, False))
    assert kept.matches == anew.matches
    assert len(kept.matches) == 12


@spec("NEG-27", "NEG-43")
@pytest.mark.parametrize(("caching", "expected"), [(True, 4), (False, 2)])
def test_without_caching_a_policy_sees_what_the_job_before_got(caching: bool, expected: int) -> None:
    """A START that looks at SubmitterUserResourcesInUse."""
    offered = slots(4, Requirements="TARGET.SubmitterUserResourcesInUse < 2")
    assert given(decide(offered, [jobs("a", 4)], matchlist_caching=caching)) == expected


@spec("NEG-28")
@pytest.mark.parametrize("knob", ["preemption_requirements_stable", "preemption_rank_stable"])
def test_a_preemption_policy_that_is_not_stable_is_asked_for_every_job(knob: str) -> None:
    offered = [used(f"slot{i}@m", "b") for i in range(4)]
    eup = {"a": 1.0, "b": 100.0}
    policy = {"preemption_requirements": "RemoteUserResourcesInUse > SubmitterUserResourcesInUse"}
    stable = decide(offered, [jobs("a", 4)], eup, **policy)
    assert given(stable) == 4
    assert given(decide(offered, [jobs("a", 4)], eup, **policy, **{knob: False})) == 2


@spec("NEG-43")
@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("SubmitterUserPrio == 10.0", True),
        ("SubmitterUserResourcesInUse == 1", True),
        ("RemoteUserPrio == 20.0", True),
        ("RemoteUserResourcesInUse == 2", True),
        ("Slot2_RemoteUserPrio == 20.0", True),
        ("Slot3_RemoteUserPrio =?= undefined", True),  # nobody has that one
        ("TARGET.SubmitterUserPrio == 10.0 && MY.RemoteUserPrio == 20.0", True),
        ("SubmitterUserPrio > RemoteUserPrio", False),
    ],
)
def test_policies_see_priorities_and_use_of_both_sides(condition: str, expected: bool) -> None:
    at = {"Machine": '"m"', "Requirements": "TARGET.Here"}
    offered = [
        used("slot1@m", "b", Machine='"m"', SlotID="1"),
        used("slot2@m", "b", SlotID="2", **at),
        slot("slot3@m", SlotID="3", **at),
        used("slot1@n", "a", Machine='"n"', SlotID="1", Requirements="false"),
    ]
    ask = jobs("a", 1, Here="false")
    result = decide(offered, [ask], {"a": 10.0, "b": 20.0}, preemption_requirements=condition)
    assert [match.slot for match in result.matches] == (["slot1@m"] if expected else [])


TREE = {"names": ["physics", "chemistry"], "quota": {"physics": 6.0, "chemistry": 3.0}}


@spec("NEG-44")
@pytest.mark.parametrize(
    "condition",
    [
        'SubmitterGroup == "physics"',
        "SubmitterGroupQuota == 6.0",
        "SubmitterGroupResourcesInUse == 1.0",
        'RemoteGroup == "chemistry"',
        "RemoteGroupQuota == 3.0",
        "RemoteGroupResourcesInUse == 2.0",
        'SubmitterNegotiatingGroup == "physics"',
        "SubmitterAutoregroup == false",
    ],
)
def test_policies_see_the_groups_of_both_sides(condition: str) -> None:
    offered = [
        used("target@m", "chemistry.b"),
        used("other@m", "chemistry.c", Requirements="false"),
        used("own@m", "physics.b", Requirements="false"),
    ]
    eup = {"physics.a": 1.0, "chemistry.b": 9.0}
    asks = [jobs("physics.a", 1)]
    assert given(decide(offered, asks, eup, groups=TREE, preemption_requirements=condition)) == 1
    assert given(decide(offered, asks, eup, groups=TREE, preemption_requirements=f"!({condition})")) == 0


@spec("NEG-43")
def test_ephemeral_attributes_are_not_there_without_a_cycle() -> None:
    snapshot = Pool([slot("s@m")], [jobs("a", 1, Requirements="SubmitterUserPrio > 0")], {}).snapshot(CycleConfig())
    (result,) = negotiate(snapshot, CycleConfig(), NOW).matches
    assert "SubmitterUserPrio" not in result.request.ad
    assert "RemoteUserPrio" not in snapshot.slots.ad("s@m")


# --- weights, the size of the pool


@spec("NEG-04")
@pytest.mark.parametrize(("knobs", "weight"), [({}, 6.0), ({"slot_constraint": "Cpus > 1"}, 5.0)])
def test_slots_outside_the_constraint_are_no_part_of_the_pool(knobs: dict[str, str], weight: float) -> None:
    config = CycleConfig(**{name: parse_expr(text) for name, text in knobs.items()})
    ads = [ad(slot(f"slot{cpus}@m", Cpus=str(cpus))) for cpus in (1, 2, 3)]
    snapshot = snapshot_of(ads, {}, {}, config)
    table = SlotTable(config)
    assert snapshot.total_weight == weight
    for one in ads:
        table.put(str(one.eval("Name")), one)
        table.claims[str(one.eval("Name"))] = "secret"
    request = {"a": Pool([], [jobs("a", 9)], {}).snapshot(config).requests["a"]}
    for taken in (snapshot_of(ads, request, {}, config), table.snapshot(config, request, {})):
        assert len(negotiate(taken, config, NOW).matches) == (3 if not knobs else 2)


@spec("NEG-35")
def test_slots_that_do_not_count_for_the_size_are_matched_all_the_same() -> None:
    """Two of four slots count: quotas and shares are of two, and both users together may have them all."""
    offered = [slot(f"slot{i}@m", Counts="true" if i < 2 else "false") for i in range(4)]
    groups = {"names": ["half"], "dynamic_quota": {"half": 0.5}}
    knobs = {"poolsize_constraint": "Counts"}
    result = decide(offered, [jobs("half.a", 4)], groups=groups, **knobs)
    assert {plan.name: plan.quota for plan in result.groups}["half"] == 1.0
    assert given(result) == 1
    assert given(decide(offered, [jobs("half.a", 4)], groups=groups)) == 2
    uncounted = decide(offered, [jobs("a", 1, Requirements="!TARGET.Counts")], **knobs)
    assert given(uncounted) == 1


@spec("NEG-37")
@pytest.mark.parametrize(
    ("knobs", "weights"),
    [
        ({}, [3.0, 4.0, 1.0]),
        ({"use_slot_weights": False}, [1.0, 1.0, 1.0]),
        ({"force_slot_weight": True, "slot_weight": "Memory / 512"}, [2.0, 2.0, 2.0]),
        ({"slot_weight": "Memory / 512"}, [3.0, 2.0, 1.0]),
    ],
)
def test_what_a_slot_is_charged(knobs: dict[str, Any], weights: list[float]) -> None:
    told, silent, nonsense = slot("told@m", SlotWeight="3"), slot("silent@m", Cpus="4"), slot("odd@m", SlotWeight="-2")
    del silent["SlotWeight"]
    result = decide([told, silent, nonsense], [jobs("a", 3)], **knobs)
    charged = {match.slot: match.weight for match in result.matches}
    assert [charged[name] for name in ("told@m", "silent@m", "odd@m")] == weights


# --- defaults of the ranks


def policy(**knobs: str) -> Any:
    env = {f"_CONDOR_{name}": value for name, value in knobs.items()}
    return read_policy(load_config([], subsystem="NEGOTIATOR", env=env), lambda: 0.0)


@spec("NEG-23", "W-02")
@pytest.mark.parametrize(
    ("attributes", "value"),
    [
        ({"Cpus": "4", "Memory": "8192"}, 591808.0),
        ({"Cpus": "8", "Memory": "16384"}, 183616.0),
        ({"Cpus": "4", "Memory": "8192", "RemoteOwner": '"b"'}, -408192.0),
        ({"Cpus": "4", "Memory": "8192", "Rank": "2"}, 20591808.0),
    ],
)
def test_default_of_the_rank_before_the_jobs(attributes: dict[str, str], value: float) -> None:
    assert evaluate(policy().cycle.pre_job_rank, ad(slot("s@m", **attributes)), ad({})) == value


@spec("NEG-24", "W-03")
@pytest.mark.parametrize(
    ("attributes", "value"),
    [
        ({"SlotID": "1"}, 999.0),
        ({"SlotID": "2", "KFlops": "500000"}, 499998.0),
        ({"SlotID": "3", "Offline": "true"}, -9999999003.0),
        ({"SlotID": "1", "RemoteOwner": '"b"'}, 0.0),
    ],
)
def test_default_of_the_rank_after_the_jobs(attributes: dict[str, str], value: float) -> None:
    assert evaluate(policy().cycle.post_job_rank, ad(slot("s@m", **attributes)), ad({})) == value


@spec("PRE-07", "W-04")
@pytest.mark.parametrize(
    ("attributes", "value"),
    [
        ({"RemoteUserPrio": "10.0", "TotalJobRunTime": "3600"}, 9996400.0),
        ({"RemoteUserPrio": "10.0"}, 10000000.0),
        ({"RemoteUserPrio": "20.0", "TotalJobRunTime": "90000"}, 19910000.0),
    ],
)
def test_default_of_the_rank_of_preemption(attributes: dict[str, str], value: float) -> None:
    assert evaluate(policy().cycle.preemption_rank, ad(slot("s@m", **attributes)), ad({})) == value


@spec("NEG-25")
@pytest.mark.parametrize("knob", ["NEGOTIATOR_PRE_JOB_RANK", "NEGOTIATOR_POST_JOB_RANK"])
def test_a_slot_of_which_a_configured_rank_says_nothing_comes_last(knob: str) -> None:
    """Also where it is the slot's own RANK that is undefined, as by default. A job's Rank counts 0 there."""
    offered = [slot("s1@m", Worth="-5"), slot("s2@m"), slot("s3@m", Worth="-1e30"), slot("s4@m", Worth="7")]
    pool = Pool(offered, [jobs("a", 4)], {}, {}, {}, {})
    config = policy(**{"NEGOTIATOR_PRE_JOB_RANK": "0", knob: "MY.Worth"}).cycle
    assert names(negotiate(pool.snapshot(config), config, NOW)) == ["s4", "s1", "s3", "s2"]
    offered = [slot("s1@m", Rank='TARGET.Wants == "x"'), slot("s2@m", Rank="0", Memory="90000")]
    pool = Pool(offered, [jobs("a", 2)], {}, {}, {}, {})
    assert names(negotiate(pool.snapshot(policy().cycle), policy().cycle, NOW)) == ["s2", "s1"]


@spec("PRE-07")
def test_whom_the_rank_of_preemption_does_not_know_is_preempted_last() -> None:
    config = policy(PREEMPTION_RANK="MY.Cheap", PREEMPTION_REQUIREMENTS="true").cycle
    offered = [used("s1@m", "b"), used("s2@m", "b", Cheap="-9")]
    pool = Pool(
        offered,
        [jobs("a", 1)],
        {"a": {"priority": 1.0, "factor": 1.0}, "b": {"priority": 9.0, "factor": 1.0}},
        {},
        {},
        {},
    )
    assert names(negotiate(pool.snapshot(config), config, NOW)) == ["s2"]


#: What an expression may be in place of a number, and two that are as good as numbers; none of them a number's text.
ODD = ('"text"', '"7"', "error", "undefined", "{1}", "[a = 1]", "true", "false", "-5", "3")


@spec("NEG-25", "PRE-07")
@pytest.mark.parametrize("knob", ["PRE", "POST", "PREEMPTION"])
def test_ranks_that_are_no_numbers_are_where_htcondor_puts_them(knob: str) -> None:
    """After all numbers, as HTCondor 23.9.6's negotiator has them, asked live; equals by name. A job's Rank is 0."""
    knobs = {"PRE": "NEGOTIATOR_PRE_JOB_RANK", "POST": "NEGOTIATOR_POST_JOB_RANK", "PREEMPTION": "PREEMPTION_RANK"}
    config = policy(
        **{"NEGOTIATOR_PRE_JOB_RANK": "0", "NEGOTIATOR_POST_JOB_RANK": "0", knobs[knob]: "MY.Odd"},
        PREEMPTION_REQUIREMENTS="true",
    )
    made = used if knob == "PREEMPTION" else lambda name, user, **more: slot(name, **more)
    offered = [made(f"s{n}@m", "b", Odd=text) for n, text in enumerate(ODD)]
    users = {"a": {"priority": 1.0, "factor": 1.0}, "b": {"priority": 9.0, "factor": 1.0}}
    last = ["s9", "s6", "s7", "s8", "s0", "s1", "s2", "s3", "s4", "s5"]
    pool = Pool(offered, [jobs("a", len(ODD))], users, {}, {}, {})
    assert names(negotiate(pool.snapshot(config.cycle), config.cycle, NOW)) == last
    if knob == "PRE":
        plain = policy(NEGOTIATOR_PRE_JOB_RANK="0", NEGOTIATOR_POST_JOB_RANK="0").cycle
        pool = Pool(offered, [jobs("a", len(ODD), Rank="TARGET.Odd")], users, {}, {}, {})
        nothing = ["s0", "s1", "s2", "s3", "s4", "s5", "s7"]
        assert names(negotiate(pool.snapshot(plain), plain, NOW)) == ["s9", "s6", *nothing, "s8"]


@spec("PRE-01", "PRE-02")
@pytest.mark.parametrize(
    ("rank", "current", "by_rank", "by_priority"),
    [
        ('"text"', "-1.0", 0, 0),
        ("error", "0.0", 0, 0),
        ("undefined", "-1.0", 0, 0),
        ("{1}", "-1.0", 0, 0),
        ("1.0", '"text"', 0, 0),
        ("1.0", "error", 0, 0),
        ("1.0", "undefined", 0, 0),
        ("true", "0.0", 1, 1),
        ("true", "1.0", 0, 1),
        ("1.0", "false", 1, 1),
        ("2.0", "true", 1, 1),
        ("1.0", "true", 0, 1),
        ("0.0", "0.0", 0, 1),
    ],
)
def test_a_machines_rank_that_is_no_number_neither_takes_nor_gives(rank, current, by_rank, by_priority) -> None:
    """As HTCondor 23.9.6's negotiator decided, asked live."""
    offered = [used("s@m", "b", Rank=rank, CurrentRank=current)]
    for requirements, expected in (("false", by_rank), ("RemoteUserPrio > SubmitterUserPrio", by_priority)):
        decided = decide(offered, [jobs("a", 1)], {"a": 1.0, "b": 9.0}, preemption_requirements=requirements)
        assert given(decided) == expected


# --- preemption


@spec("PRE-04")
@pytest.mark.parametrize(
    ("requirements", "expected"),
    [
        ("MY.Speed == 5 && TARGET.Size == 3", 1),
        ("Speed == 5 && Size == 3", 1),
        ("Size == 3", 1),  # the idle job's: MY has none
        ("MY.Size =?= undefined && TARGET.Speed =?= undefined", 1),
        ("MY.RunningSize == 7", 1),  # of the running job, by STARTD_JOB_ATTRS
        ("TARGET.RunningSize == 7", 0),
    ],
)
def test_the_policy_sees_slot_and_idle_job(requirements: str, expected: int) -> None:
    offered = [used("s@m", "b", Speed="5", RunningSize="7")]
    asks = [jobs("a", 1, Size="3")]
    assert given(decide(offered, asks, {"a": 1.0, "b": 9.0}, preemption_requirements=requirements)) == expected


@spec("PRE-03")
@pytest.mark.parametrize(
    ("requirements", "expected"),
    [(None, 0), ("undefined", 0), ("error", 0), ('"true"', 0), ("1", 0), ("1 + 1", 0), ("Nothing > 3", 0), ("true", 1)],
)
def test_only_true_lets_anybody_preempt(requirements: str | None, expected: int) -> None:
    knobs = {} if requirements is None else {"preemption_requirements": requirements}
    assert given(decide([used("s@m", "b")], [jobs("a", 1)], {"a": 1.0, "b": 9.0}, **knobs)) == expected
    assert policy().cycle.preemption_requirements is not None
    assert evaluate(policy().cycle.preemption_requirements) is False


@spec("PRE-09")
def test_a_policy_that_respects_groups() -> None:
    offered = [used(f"{group}@m", f"{group}.b", TotalJobRunTime="1") for group in ("physics", "chemistry")]
    eup = {"physics.a": 1.0, "physics.b": 9.0, "chemistry.b": 99.0}
    knobs = {"preemption_requirements": "SubmitterGroup =?= RemoteGroup", "preemption_rank": "RemoteUserPrio"}
    result = decide(offered, [jobs("physics.a", 2)], eup, groups=TREE, **knobs)
    assert [match.preempts for match in result.matches] == [("physics@m",)]


@spec("GRP-24", "PRE-02")
def test_a_full_groups_members_go_on_sharing_it_by_preemption() -> None:
    """What a member takes from another is no more use of the group: only free slots wait for its room."""
    groups = TREE | {"quota": {"physics": 4.0, "chemistry": 0.0}}
    offered = [*(used(f"s{n}@m", "physics.b") for n in range(4)), *slots(2)]
    knobs = {"preemption_requirements": "SubmitterGroup =?= RemoteGroup"}
    result = decide(offered, [jobs("physics.a", 9)], {"physics.a": 1.0, "physics.b": 9.0}, groups=groups, **knobs)
    assert given(result) == 4
    assert all(match.preempts for match in result.matches)
    none = decide(offered, [jobs("physics.a", 9)], {"physics.a": 1.0, "physics.b": 9.0}, groups=groups)
    assert not none.matches


@spec("GRP-14")
@pytest.mark.parametrize(("accepts", "expected"), [(False, 1), (True, 6)])
def test_what_a_group_takes_from_others_is_bounded_by_a_hard_cap(accepts: bool, expected: int) -> None:
    """Of a quota of 4, b has 3 that do not suit; a takes what is left from the other group, and more only where the
    group was given surplus."""
    groups = TREE | {"quota": {"physics": 4.0, "chemistry": 9.0}, "accept_surplus": accepts}
    offered = [
        *(used(f"s{n}@m", "physics.b", Requirements="false") for n in range(3)),
        *(used(f"t{n}@m", "chemistry.c") for n in range(6)),
    ]
    eup = {"physics.a": 1.0, "physics.b": 9.0, "chemistry.c": 99.0}
    result = decide(offered, [jobs("physics.a", 9)], eup, groups=groups, **ANYBODY)
    assert given(result) == expected


@spec("GRP-24")
def test_a_group_above_its_quota_shares_out_no_more_than_that() -> None:
    groups = TREE | {"quota": {"physics": 2.0, "chemistry": 0.0}}
    offered = [used(f"s{n}@m", "physics.b") for n in range(4)]
    result = decide(offered, [jobs("physics.a", 9)], {"physics.a": 1.0, "physics.b": 9.0}, groups=groups, **ANYBODY)
    assert given(result) == 2


@spec("NEG-13")
def test_free_slots_are_measured_against_the_slice_without_what_was_preempted() -> None:
    """A slice of 4.5: three preempted slots, and then a free one of weight 2, which was the first of these."""
    offered = [
        *(used(f"s{n}@m", "b", Quality=str(9 - n)) for n in range(3)),
        slot("free@m", Cpus="2", SlotWeight="2", Quality="1"),
        *(used(f"t{n}@m", "b") for n in range(4)),
    ]
    asks = [jobs("a", 9, Rank="TARGET.Quality ?: 0"), jobs("b", 1, Requirements="false")]
    result = decide(offered, asks, {"a": 1.0, "b": 1.0 + 1e-6}, **ANYBODY)
    assert names(result)[:4] == ["s0", "s1", "s2", "free"]
    assert sum(match.weight for match in result.matches) == 5.0


@spec("NEG-44")
def test_who_is_in_no_group_is_in_none() -> None:
    """In a pool with groups; policies that compare the groups see that two such users are in the same."""
    offered = [used("s@m", "b")]
    for condition in ('SubmitterGroup == "<none>"', "SubmitterGroup == RemoteGroup"):
        knobs = {"preemption_requirements": condition}
        assert given(decide(offered, [jobs("a", 1)], {"a": 1.0, "b": 9.0}, groups=TREE, **knobs)) == 1
        assert not decide(offered, [jobs("a", 1)], {"a": 1.0, "b": 9.0}, **knobs).matches


@spec("PRE-08")
def test_the_early_knob_is_ignored_without_preemption() -> None:
    offered = [used("s@m", "b", Rank="1", RetirementTimeRemaining="60")]
    knobs = {"consider_early_preemption": True, "consider_preemption": False}
    assert not decide(offered, [jobs("a", 1)], **knobs).matches


@spec("NEG-44", "GRP-23")
def test_members_that_negotiate_again_in_the_root_are_looked_at_anew() -> None:
    offered = slots(4, Requirements='TARGET.SubmitterAutoregroup || TARGET.SubmitterNegotiatingGroup == "chemistry"')
    groups = TREE | {"autoregroup_by": {"physics": True}}
    result = decide(offered, [jobs("physics.a", 9), jobs("chemistry.a", 1)], groups=groups)
    assert got(result) == {"chemistry": 1, "physics": 3}


def test_group_that_has_used_up_its_quota_is_told_so() -> None:
    groups = TREE | {"quota": {"physics": 2.0, "chemistry": 1.0}}
    result = decide(slots(6), [jobs("physics.a", 9)], groups=groups)
    (rejected,) = result.rejections
    assert rejected.code == "quota"
    assert "quota" in rejected.reason


def test_nobody_is_told_of_its_share_of_slots_that_do_not_suit() -> None:
    result = decide(slots(2, Requirements="false"), [jobs("a", 3)])
    assert [rejected.code for rejected in result.rejections] == ["no-match"]
