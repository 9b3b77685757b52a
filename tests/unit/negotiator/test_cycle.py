"""One negotiation cycle: who gets what (rows NEG, worked examples W-01, W-13, W-15, W-16)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.fairshare.priorities import Record
from engine.match.cycle import negotiate
from engine.match.model import CycleConfig, Request, Result, Snapshot
from engine.match.slot_arrays import slot_weight
from engine.match.slot_table import snapshot_of
from shared.classad import ClassAd, parse_expr
from tests.spec import spec

NOW = 1_000_000_000.0
PLAIN = CycleConfig()


def slot(number: int, weight: float = 1.0, **attributes: object) -> ClassAd:
    name = f"slot{number}@m"
    ad = ClassAd({"Name": name, "Cpus": int(weight) or 1, "Memory": 1024, "SlotWeight": weight, "SlotID": number})
    ad["State"] = "Unclaimed"
    ad["Requirements"] = parse_expr("true")
    for key, value in attributes.items():
        ad[key] = value
    return ad


def pslot(number: int, cpus: int, memory: int = 100_000, **attributes: object) -> ClassAd:
    ad = slot(number, float(cpus), PartitionableSlot=True, Cpus=cpus, Memory=memory, Disk=10_000_000, **attributes)
    ad["SlotWeight"] = parse_expr("Cpus")
    return ad


def request(count: int, schedd: str = "schedd.a", autocluster: int = 1, **attributes: object) -> Request:
    ad = ClassAd({"Requirements": parse_expr("true"), "Rank": 0.0, "RequestCpus": 1, "RequestMemory": 1})
    for key, value in attributes.items():
        ad[key] = value
    return Request(schedd, autocluster, count, ad)


def pool(
    slots: list[ClassAd],
    requests: Mapping[str, list[Request]],
    records: Mapping[str, Record],
    in_use: Mapping[str, float] | None = None,
    config: CycleConfig = PLAIN,
    nameless: frozenset[str] = frozenset(),
) -> Snapshot:
    use = in_use or {}
    weight = sum(slot_weight(ad, config) for ad in slots) + sum(use.values())
    return snapshot_of(
        slots,
        requests,
        records,
        config,
        in_use={name: (weight, int(weight)) for name, weight in use.items()} or None,
        total_weight=weight,
        nameless=nameless,
    )


def run(snapshot: Snapshot, config: CycleConfig = PLAIN) -> Result:
    return negotiate(snapshot, config, NOW)


def got(result: Result) -> Counter[str]:
    counts: Counter[str] = Counter()
    for match in result.matches:
        counts[match.submitter] += match.count
    return counts


def eup(value: float, **more: float) -> Record:
    return Record(priority=value, factor=1.0, updated=NOW, **more)


@spec("NEG-08", "W-13")
def test_shares_are_inverse_to_effective_priority() -> None:
    """5, 10, 20 get 4:2:1 of 70."""
    everybody = {"a": eup(5), "b": eup(10), "c": eup(20)}
    result = run(pool([slot(i) for i in range(70)], {n: [request(100)] for n in everybody}, everybody))
    assert got(result) == {"a": 40, "b": 20, "c": 10}


@spec("NEG-10", "W-13")
def test_what_one_leaves_is_shared_by_the_others_in_their_ratio() -> None:
    """A wants only 10."""
    everybody = {"a": eup(5), "b": eup(10), "c": eup(20)}
    wanted = {"a": [request(10)], "b": [request(100)], "c": [request(100)]}
    result = run(pool([slot(i) for i in range(70)], wanted, everybody))
    assert got(result) == {"a": 10, "b": 40, "c": 20}


@spec("NEG-09")
def test_use_counts_against_the_slice() -> None:
    """A holds 30 of 70 already."""
    everybody = {"a": eup(10), "b": eup(10)}
    wanted = {n: [request(100)] for n in everybody}
    result = run(pool([slot(i) for i in range(40)], wanted, everybody, {"a": 30.0}))
    assert got(result) == {"a": 5, "b": 35}


@spec("NEG-13", "W-16")
def test_slices_below_one_slot_round_up_for_who_has_nothing() -> None:
    """Two slots of weight 8, four equal users: the first two get one each."""
    everybody = {n: eup(10) for n in "abcd"}
    wanted = {n: [request(1)] for n in everybody}
    result = run(pool([slot(1, 8.0), slot(2, 8.0)], wanted, everybody))
    assert got(result) == {"a": 1, "b": 1}


@spec("NEG-11", "NEG-12", "W-15")
def test_floor_goes_first_and_ceiling_stops() -> None:
    everybody = {"a": eup(500, ceiling=30.0), "b": eup(50_000, floor=10.0)}
    wanted = {n: [request(200)] for n in everybody}
    scarce = run(pool([slot(i) for i in range(10)], wanted, everybody))
    assert got(scarce) == {"b": 10}
    ample = run(pool([slot(i) for i in range(100)], wanted, everybody))
    assert got(ample) == {"a": 30, "b": 70}


@spec("NEG-21", "W-01")
def test_order_of_slots_by_pre_job_post_rank() -> None:
    values = [(100, 1, 10), (100, 2, 20), (100, 2, 30), (0, 1, 40), (200, 1, 50)]
    slots = [slot(i, 1.0, Pre=a, Mid=b, Post=c) for i, (a, b, c) in enumerate(values, 1)]
    config = CycleConfig(pre_job_rank=parse_expr("MY.Pre"), post_job_rank=parse_expr("MY.Post"))
    one = run(pool(slots, {"a": [request(3, Rank=parse_expr("TARGET.Mid"))]}, {"a": eup(1)}), config)
    assert [m.slot for m in one.matches] == ["slot5@m", "slot3@m", "slot2@m"]


@spec("NEG-25", "CLA-25")
def test_rank_that_is_no_number_counts_as_zero() -> None:
    slots = [slot(1, 1.0, Speed=5), slot(2, 1.0)]
    chosen = run(
        pool(slots, {"a": [request(1, Rank=parse_expr("TARGET.Speed"))]}, {"a": eup(1)}),
        CycleConfig(pre_job_rank=parse_expr("undefined"), post_job_rank=parse_expr('"text"')),
    )
    assert [m.slot for m in chosen.matches] == ["slot1@m"]


@spec("NEG-18", "CLA-23")
@pytest.mark.parametrize("text", ["false", "undefined", "error", '"yes"', "TARGET.Nope > 1"])
def test_requirements_must_hold_on_both_sides(text: str) -> None:
    picky_job = run(pool([slot(1)], {"a": [request(1, Requirements=parse_expr(text))]}, {"a": eup(1)}))
    assert not picky_job.matches
    assert picky_job.rejections[0].code == "no-match"
    assert picky_job.rejections[0].reason == (
        "can not run on any slot as things are (of 1 slot, 1 does not satisfy the job's Requirements)"
    )
    picky_slot = run(pool([slot(1, 1.0, Requirements=parse_expr(text))], {"a": [request(1)]}, {"a": eup(1)}), PLAIN)
    assert not picky_slot.matches
    assert picky_slot.rejections[0].counts == {"slot-requirements": 1}


def test_claimed_and_offline_slots_are_not_given_away() -> None:
    slots = [slot(1, 1.0, State="Claimed"), slot(2, 1.0, Offline=True), slot(3)]
    result = run(pool(slots, {"a": [request(3)]}, {"a": eup(1)}))
    assert [m.slot for m in result.matches] == ["slot3@m"]
    assert result.rejections[0].counts == {"claimed": 1, "offline": 1, "taken": 1}


def test_partitionable_slot_is_carved_for_several_users_in_one_cycle() -> None:
    everybody = {"a": eup(10), "b": eup(10)}
    wanted = {n: [request(20, RequestCpus=2)] for n in everybody}
    result = run(pool([pslot(1, 16)], wanted, everybody))
    assert got(result) == {"a": 4, "b": 4}
    assert {m.submitter: m.count for m in result.matches} == {"a": 4, "b": 4}
    assert sum(m.weight for m in result.matches) == 16.0


def test_memory_of_a_partitionable_slot_runs_out_too() -> None:
    result = run(pool([pslot(1, 16, memory=1000)], {"a": [request(9, RequestMemory=300)]}, {"a": eup(1)}))
    assert got(result) == {"a": 2}  # 300 is rounded up to 384: two fit, a third neither rounded nor plain


@pytest.mark.parametrize(("cpus", "jobs"), [("Half * 2", 4), ("Half * 1.5", 3), ("Half - 2", 0)])
def test_what_a_machine_has_may_be_an_expression(cpus: str, jobs: int) -> None:
    machine = pslot(1, 4, Half=2)
    machine["Cpus"], machine["SlotWeight"] = parse_expr(cpus), 4
    assert got(run(pool([machine], {"a": [request(9)]}, {"a": eup(1)})))["a"] == jobs


def test_custom_resources_are_carved() -> None:
    machine = pslot(1, 16)
    machine["MachineResources"] = "Cpus Memory Disk Swap GPUs"
    machine["GPUs"] = 2
    wants = request(5, RequestGPUs=1, Requirements=parse_expr("TARGET.GPUs >= RequestGPUs"))
    assert got(run(pool([machine], {"a": [wants]}, {"a": eup(1)}), PLAIN)) == {"a": 2}


@spec("DFR-11")
def test_slots_that_are_being_drained_are_told_apart_from_those_whose_policy_refuses() -> None:
    """A drained machine's START is the drain's, so it is no policy of anybody."""
    drained = slot(1, Draining=True, Start=False, Requirements=parse_expr("START"))
    refusing = slot(2, Start=False, Requirements=parse_expr("START"))
    taking = slot(3, Draining=True)  # older jobs still run there, and the drain's START takes more
    result = run(pool([drained, refusing, taking], {"a": [request(2)]}, {"a": eup(1)}))
    assert [match.slot for match in result.matches] == ["slot3@m"]
    assert result.rejections[0].counts == {"draining": 1, "slot-requirements": 1, "taken": 1}
    alone = run(pool([drained], {"a": [request(1)]}, {"a": eup(1)}))
    assert alone.rejections[0].reason == ("waits for a slot: 1 is being drained (of 1 slot, 1 is being drained)")


CPUS = "TARGET.Cpus >= RequestCpus"


def emptied(number: int, left: int, whole: int, start: str = "true", **attributes: object) -> ClassAd:
    """A partitionable slot of which whole - left cpus are in use."""
    return pslot(number, left, TotalSlotCpus=whole, Requirements=parse_expr(start), **attributes)


@pytest.mark.parametrize(
    ("machine", "requirements", "cause"),
    [
        (emptied(1, 2, 8), CPUS, "in-use"),
        (emptied(1, 2, 8, start="TARGET.RequestCpus <= Cpus"), "true", "in-use"),
        (emptied(1, 2, 3), CPUS, "job-requirements"),
        (emptied(1, 2, 3, start="TARGET.RequestCpus <= Cpus"), "true", "slot-requirements"),
        (emptied(1, 2, 8), f'{CPUS} && TARGET.OpSys == "VMS"', "job-requirements"),
        (emptied(1, 2, 8, Draining=True, start="false"), CPUS, "draining"),
        (pslot(1, 2), CPUS, "job-requirements"),
    ],
)
def test_partitionable_slot_with_too_much_in_use_is_told_from_one_that_never_suits(
    machine: ClassAd, requirements: str, cause: str
) -> None:
    wants = request(1, RequestCpus=4, Requirements=parse_expr(requirements))
    assert run(pool([machine], {"a": [wants]}, {"a": eup(1)})).rejections[0].counts == {cause: 1}


def test_what_is_in_use_is_looked_at_machine_by_machine() -> None:
    """Also where others do not say what their whole is, or were carved in this cycle."""
    machines = [emptied(1, 1, 8), pslot(2, 1), emptied(3, 8, 8), slot(4, TotalSlotCpus=1)]
    wants = request(3, RequestCpus=6, Requirements=parse_expr(CPUS))
    result = run(pool(machines, {"a": [wants]}, {"a": eup(1)}))
    assert [match.slot for match in result.matches] == ["slot3@m"]
    assert result.rejections[0].counts == {"in-use": 2, "job-requirements": 2}
    assert result.rejections[0].reason == (
        "waits for 6 cpus on one machine: 13 of 16 are claimed, and the most that one slot has free is 2 (of 4 slots, "
        "2 have too much in use for the job, "
        "2 do not satisfy the job's Requirements)"
    )


def test_a_cycle_that_tells_no_reasons_gives_the_same() -> None:
    snapshot = pool([slot(1), pslot(2, 4)], {"a": [request(9)], "b": [request(2)]}, {"a": eup(1), "b": eup(2)})
    told, quiet = negotiate(snapshot, PLAIN, 0.0), negotiate(snapshot, PLAIN, 0.0, why=False)
    assert quiet.matches == told.matches
    assert told.rejections
    assert quiet.rejections == ()


def test_slot_without_claim_id_is_left_alone_and_the_reason_says_so() -> None:
    result = run(pool([slot(1)], {"a": [request(1)]}, {"a": eup(1)}, nameless=frozenset({"slot1@m"})))
    assert not result.matches
    assert "claim id" in result.rejections[0].reason


@spec("NEG-37")
@pytest.mark.parametrize(
    ("text", "expected"), [("3.5", 3.5), ("0", 0.0), ("-1", 1.0), ("undefined", 1.0), ('"x"', 1.0), ("true", 1.0)]
)
def test_slot_weight_of_odd_values(text: str, expected: float) -> None:
    ad = ClassAd({"Cpus": 4, "SlotWeight": parse_expr(text)})
    assert slot_weight(ad, PLAIN) == expected
    assert slot_weight(ClassAd({"Cpus": 4}), PLAIN) == 4.0
    assert slot_weight(ad, CycleConfig(use_slot_weights=False)) == 1.0


@settings(max_examples=75)
@given(
    cpus=st.lists(st.integers(1, 8), min_size=1, max_size=6),
    statics=st.lists(st.sampled_from([1.0, 2.0, 4.0]), max_size=6),
    asks=st.lists(st.tuples(st.sampled_from("abcd"), st.integers(1, 12), st.integers(1, 4)), min_size=1, max_size=6),
    priorities=st.lists(st.floats(0.5, 1000.0), min_size=4, max_size=4),
)
def test_nothing_is_given_twice_and_no_machine_overcommitted(
    cpus: list[int], statics: list[float], asks: list[tuple[str, int, int]], priorities: list[float]
) -> None:
    machines = {f"slot{i}@m": c for i, c in enumerate(cpus)}
    slots = [pslot(i, c) for i, c in enumerate(cpus)] + [slot(100 + i, w) for i, w in enumerate(statics)]
    wanted: dict[str, list[Request]] = {}
    for number, (name, count, size) in enumerate(asks):
        wanted.setdefault(name, []).append(request(count, autocluster=number, RequestCpus=size))
    records = {name: eup(p) for name, p in zip("abcd", priorities, strict=True)}
    result = run(pool(slots, wanted, records))
    taken: Counter[str] = Counter()
    for match in result.matches:
        size = int(str(match.request.ad.eval("RequestCpus"))) if match.slot in machines else 1
        taken[match.slot] += match.count * size
    for name, most in machines.items():
        assert taken[name] <= most
    assert all(number == 1 for name, number in taken.items() if name not in machines)
    for name, listed in wanted.items():
        assert got(result)[name] <= sum(r.count for r in listed)
    for rejection in result.rejections:
        assert rejection.reason
    again = run(pool(slots, dict(reversed(list(wanted.items()))), records))
    assert got(again) == got(result)
