"""Which slots get what a cron job printed (CRN-02 to CRN-05, CRN-08)."""

import pytest

from services.startd.core.cron_ads import MAX_NAMES, CronAds
from shared.classad import ClassAd
from shared.cron.jobs import CronJob
from shared.cron.output import OutputReader
from tests.spec import spec


def job(name="j", **fields):
    return CronJob(name, "/bin/x", **fields)


def printed(text, prefix=""):
    ads = []
    reader = OutputReader(ads.append, prefix)
    reader.feed(text.encode())
    reader.close()
    return ads


def take(ads, text, one=None, now=1000.0):
    one = one or job()
    return [ads.put(one, ad, now) for ad in printed(text, one.prefix)]


def slot(slot_id, type_id=1, name=None, **attrs):
    return ClassAd({"Name": name or f"slot{slot_id}@node1", "SlotID": slot_id, "SlotTypeID": type_id} | attrs)


def seen(ads, one):
    found = ads.of(one, one.eval("SlotID"))
    return {name: ClassAd({name: expr}).eval(name) for name, expr in found.items() if name != "LastUpdate"}


MANUAL = "Value=1\nSlotId=1\n-s1\nValue=2\nSlotId=2\n-s2\nValue=10\n- update:true\n"


@spec("CRN-04", "CRN-05", "W-65")
@pytest.mark.parametrize("text", [MANUAL, "Value=10\n-\nSlotId=1\nValue=1\n-s1\nSlotId=2\nValue=2\n-s2\n"])
def test_the_example_of_the_manual_in_any_order(text):
    ads = CronAds()
    take(ads, text)
    assert [seen(ads, slot(n)) for n in (1, 2, 3)] == [{"Value": 1}, {"Value": 2}, {"Value": 10}]


@spec("CRN-02")
def test_an_ad_takes_the_place_of_the_one_with_its_name():
    """All of it, so an attribute that is not printed any more goes."""
    ads = CronAds()
    assert take(ads, "A=1\nB=2\n-x\nC=3\n-\n") == [True, True]
    assert take(ads, "A=5\n-x\n") == [True]
    assert seen(ads, slot(1)) == {"A": 5, "C": 3}
    assert take(ads, "SlotId=1\n-X\n") == [True]
    assert seen(ads, slot(1)) == {"C": 3}


def test_the_same_again_is_no_change():
    ads = CronAds()
    assert take(ads, "A=1\n-\n", now=5) == [True]
    assert take(ads, "A=1\n-\n", now=6) == [False]
    assert ads.of(slot(1), 1)["LastUpdate"].value == 6
    assert take(ads, "A=1\nSlotId=1\n-\n") == [True]


@spec("CRN-02")
def test_names_of_two_jobs_do_not_meet():
    """The name is job.name."""
    ads = CronAds()
    take(ads, "A=1\n-x\n", job("one"))
    take(ads, "B=1\n-x\n", job("two"))
    assert seen(ads, slot(1)) == {"A": 1, "B": 1}


@spec("CRN-03", "CRN-05")
@pytest.mark.parametrize(
    ("selectors", "chosen"),
    [
        ("", [1, 2, 3]),
        ("SlotId=2\n", [2]),
        ("SlotTypeId=1\n", [1, 2]),
        ("SlotTypeId=1\nSlotId=3\n", [1, 2]),
        ('Name="slot1"\n', [1]),
        ('SlotName="SLOT"\n', [1, 2]),
        ('SlotName="gpu"\nSlotTypeId=1\nSlotId=1\n', [3]),
        ('Name="slot1"\nSlotName="gpu"\n', [3]),
        ('Name=""\nSlotId=2\n', [2]),
        ('SlotMergeConstraint=TARGET.Memory > Least\nLeast=150\nName="slot1"\nSlotId=1\n', [2, 3]),
        ("SlotMergeConstraint=undefined\nSlotId=1\n", []),
        ('SlotMergeConstraint=StringListMember("CUDA1", AssignedGPUs)\n', [3]),
    ],
)
def test_selectors_from_high_to_low(selectors, chosen):
    ads = CronAds()
    take(ads, f"A=1\n{selectors}-x\n")
    slots = [
        slot(1, Memory=100),
        slot(2, Memory=200),
        slot(3, type_id=2, name="gpu3@node1", Memory=300, AssignedGPUs="CUDA0,CUDA1"),
    ]
    assert [one.eval("SlotID") for one in slots if "A" in seen(ads, one)] == chosen
    assert not {"Name", "SlotId", "SlotName", "SlotTypeId", "SlotMergeConstraint"} & set(seen(ads, slots[0]))  # CRN-05


@spec("CRN-08")
def test_slots_of_the_job_bound_all_of_its_ads():
    ads = CronAds()
    take(ads, "A=1\n-\nB=2\nSlotId=2\n-x\n", job(slots=frozenset({1, 3})))
    assert [seen(ads, slot(n)) for n in (1, 2, 3)] == [{"A": 1}, {}, {"A": 1}]


@spec("CRN-08")
def test_prefix_and_time_of_the_update():
    ads = CronAds()
    take(ads, "A=1\n-\n", job(prefix="foo_"), now=77.9)
    found = ads.of(slot(1), 1)
    assert (found["foo_A"].value, found["foo_LastUpdate"].value) == (1, 77)


def test_values_may_be_expressions():
    ads = CronAds()
    take(ads, "A = Memory * 2\n-\n")
    one = slot(1, Memory=21)
    one.update(ads.of(one, 1))
    assert one.eval("A") == 42


def test_jobs_that_are_gone_leave_nothing_behind():
    ads = CronAds()
    take(ads, "A=1\n-\n", job("one"))
    take(ads, "B=1\n-\n", job("two"))
    assert ads.keep_only([job("TWO"), job("three")])
    assert seen(ads, slot(1)) == {"B": 1}
    assert not ads.keep_only([job("two")])


def test_names_do_not_grow_without_bound():
    ads = CronAds()
    results = [take(ads, f"A=1\n-n{n}\n")[0] for n in range(MAX_NAMES + 5)]
    assert results.count(None) == 5
    assert take(ads, "A=2\n-n0\n") == [True]
    assert take(ads, "B=2\n-\n") == [True]  # its own ad has room
