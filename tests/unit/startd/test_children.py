"""What a partitionable slot tells of its dynamic slots (SLT-24, PRE-11): texts that are kept say what lists would."""

from hypothesis import given, settings
from hypothesis import strategies as st

from engine.slots.amounts import Amounts
from engine.slots.carving import SlotKind
from services.startd.ads.child_lists import ChildLists
from services.startd.ads.claim_ads import retirement_left
from services.startd.core.slots.model import Claim, Slot
from services.startd.core.slots.transitions import Activity, Condition, State
from shared.classad import UNDEFINED, ClassAd

AWKWARD = ["", "alice@pool", 'a"b\\c', "é ü", "group_x.bob", "true", "1"]


def slot(number: int, amounts: dict, claim: dict | None, since: float) -> Slot:
    made = None
    if claim is not None:
        made = Claim(f"id{number}", f"slot1_{number}@ep", "ap", claim["user"], "r", 60, 20, b"", 0, 1)
        made.rank, made.owner, made.accounting_group = claim["rank"], claim["owner"], claim["group"]
        made.run, made.run_since, made.retirement_s = claim["run"], since, claim["retirement"]
    condition = Condition(State.CLAIMED, Activity.BUSY if made and made.run else Activity.IDLE)
    total = Amounts(amounts)
    return Slot(
        f"slot1_{number}@ep",
        1,
        number,
        SlotKind.DYNAMIC,
        1,
        total,
        total,
        condition,
        since,
        since,
        "slot1@ep",
        claim=made,
    )


def plainly(children) -> ClassAd:
    ad = ClassAd({"NumDynamicSlots": len(children), "PslotRollupInformation": True})
    claims = [one.claim for one in children]
    lists = {
        "Name": [one.name for one in children],
        "DSlotId": [one.dynamic_id for one in children],
        "State": [str(one.state) for one in children],
        "Activity": [str(one.activity) for one in children],
        "EnteredCurrentState": [int(one.state_since) for one in children],
        "CurrentRank": [claim.rank if claim else 0.0 for claim in claims],
        "RemoteUser": [(claim and (claim.owner or claim.submitter)) or UNDEFINED for claim in claims],
        "RemoteOwner": [(claim and claim.owner) or UNDEFINED for claim in claims],
        "AccountingGroup": [(claim and claim.accounting_group) or UNDEFINED for claim in claims],
        "RetirementTimeRemaining": [retirement_left(one) for one in children],
    }
    for resource in {name: None for one in children for name in one.total}:
        lists[resource] = [one.total[resource] for one in children]
    for name, values in lists.items():
        ad[f"Child{name}"] = values
    return ad


claims = st.fixed_dictionaries(
    {
        "user": st.sampled_from(AWKWARD),
        "owner": st.sampled_from(AWKWARD),
        "group": st.sampled_from(AWKWARD),
        "rank": st.sampled_from([0.0, -0.0, 1.0, 0.1, -2.5e300]),
        "run": st.sampled_from(["", "1.0/1"]),
        "retirement": st.sampled_from([0, 1, 3600.5, 1e30]),
    }
)
amounts = st.sampled_from(
    [{"Cpus": 1, "Memory": 128}, {"Cpus": 1, "Memory": 128, "GPUs": 2}, {"Cpus": 1.5, "Memory": 1}]
)
rounds = st.lists(
    st.lists(
        st.tuples(st.integers(1, 5), amounts, st.none() | claims, st.integers(0, 3)),
        max_size=5,
        unique_by=lambda c: c[0],
    ),
    min_size=1,
    max_size=4,
)


@settings(max_examples=60)
@given(rounds)
def test_whatever_changes_it_is_what_lists_would_be(rounds):
    kept = ChildLists()
    for each in rounds:
        children = [slot(*one) for one in each]
        ad = ClassAd()
        kept.put(ad, children)
        expected = plainly(children)
        assert ClassAd.unpack(ad.pack()) == ad == expected
        if children:
            assert ad.pack() == expected.pack()


def test_numbers_of_different_types_do_not_stand_for_each_other():
    for one in (1, 1.0, True):
        ad = ClassAd()
        ChildLists().put(ad, [slot(1, {"Cpus": one}, None, 0)])
        (value,) = ad.eval("ChildCpus")
        assert type(value) is type(one)
