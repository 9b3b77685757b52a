"""Groups as a tree, from accounting ads."""

from services.gateway.core.fair_share import tree
from shared.classad import ClassAd


def group(name, parent, **more):
    return ClassAd({"Name": name, "AccountingGroup": parent, "IsAccountingGroup": True, **more})


def member(name, of):
    return ClassAd({"Name": name, "AccountingGroup": of, "IsAccountingGroup": False})


def shape(groups):
    return {one["name"]: (one["submitters"], shape(one["groups"])) for one in groups}


def test_groups_stand_under_their_parents_with_their_submitters():
    ads = [
        group("a.b", "a", EffectiveQuota=5.0, SurplusPolicy="byquota", Requested=3),
        group("<none>", "<none>"),
        group("a", "<none>", ConfigQuota=0.5),
        member("a.b.y@x", "a.b"),
        member("a.b.x@x", "a.b"),
        member("z@x", "<none>"),
    ]
    found = tree(ads)
    assert shape(found) == {"<none>": (["z@x"], {"a": ([], {"a.b": (["a.b.x@x", "a.b.y@x"], {})})})}
    inner = found[0]["groups"][0]["groups"][0]
    assert (inner["effective_quota"], inner["requested"], inner["surplus_policy"]) == (5.0, 3.0, "byquota")


def test_ads_of_any_making_are_a_tree():
    ads = [
        group("a", "b"),
        group("b", "a"),  # each above the other
        group("c", "nowhere"),
        group("d", 7),
        ClassAd({"Name": 5, "IsAccountingGroup": True}),
        group("e", "<none>", ConfigQuota="much", EffectiveQuota=True),
        member("f@x", "nowhere"),
    ]
    assert set(shape(tree(ads))) == {"a", "b", "c", "d", "e"}
    assert tree([]) == []
