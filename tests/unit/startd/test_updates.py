"""Attributes set by hand on a machine (TLS-11)."""

import pytest

from services.startd.ads.admin_attributes import MAX_ATTRIBUTES, AdminAttributes, BadUpdate
from shared.classad import ClassAd


def shown(updates):
    return {name: str(expr) for name, expr in updates.attributes.items()}


def test_attributes_are_shown_until_they_are_replaced_or_removed():
    updates = AdminAttributes()
    updates.apply(ClassAd({"HasVM": True, "Room": "b17"}))
    updates.apply(ClassAd({"hasvm": False}))
    assert shown(updates) == {"Room": '"b17"', "hasvm": "false"}
    updates.apply(ClassAd(), ["ROOM", "NeverSet"])
    assert shown(updates) == {"hasvm": "false"}
    updates.apply(ClassAd({"Room": "b18"}), ["room"])
    assert shown(updates) == {"hasvm": "false"}


@pytest.mark.parametrize(
    "name", ["State", "name", "MYADDRESS", "ClaimId", "Capability", "TotalCpus", "ChildState", "Cpus", "Start"]
)
def test_what_the_startd_itself_says_is_not_set_by_hand(name):
    updates = AdminAttributes()
    updates.apply(ClassAd({"Kept": 1}))
    with pytest.raises(BadUpdate, match=f"(?i){name}"):
        updates.apply(ClassAd({"Other": 1, name: "x"}))
    with pytest.raises(BadUpdate, match=f"(?i){name}"):
        updates.apply(ClassAd(), [name])
    assert shown(updates) == {"Kept": "1"}


def test_they_are_bounded():
    updates = AdminAttributes()
    updates.apply(ClassAd({f"A{number}": number for number in range(MAX_ATTRIBUTES)}))
    with pytest.raises(BadUpdate, match="at most"):
        updates.apply(ClassAd({"OneMore": 1}))
    with pytest.raises(BadUpdate, match="at most"):
        updates.apply(ClassAd({"A0": "x" * 300_000}))
    assert len(updates.attributes) == MAX_ATTRIBUTES
