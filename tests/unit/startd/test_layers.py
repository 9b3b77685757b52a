"""Ads put together from kept layers are those that are made from nothing."""

import pytest

from services.startd.ads.ad_layers import AdLayers
from services.startd.core.slots.effects import SlotEffects
from shared.classad import ClassAd, parse_expr
from tests.startd_pool import Pool, job_ad


def test_what_compares_equal_and_is_another_type_is_another_layer():
    layers = AdLayers()
    for value in (0, 0.0, False, "0"):
        assert type(layers.told("x", {"A": value})["A"]) is type(value)
    assert "B" in layers.told("x", {"B": "0"})


def test_a_layer_that_changes_in_part_is_the_one_that_is_made_from_nothing():
    layers, before = AdLayers(), None
    for number, word in ((1, "a"), (1, "b"), (True, "b"), (1.0, None), (1, parse_expr("Load > 1"))):
        told = {"Same": 3, "Number": number, "Word": word}
        layer = layers.told("x", told)
        assert layer == ClassAd(told)
        assert before is None or before[0] == ClassAd(before[1])  # ads that have it keep it as it was
        before = layer, told
    for first, second in ((1, 2), (1, 3), (4, 3)):
        assert layers.told("x", {"A": first, "a": second}) == ClassAd({"A": first, "a": second})


@pytest.fixture
async def pool(tmp_path):
    async with Pool(tmp_path, STARTD_JOB_ATTRS="Mood, Hopes", STARTD_ATTRS="Colour", Colour='"red"') as pool:
        yield pool


def fresh(showcase, slot) -> ClassAd:
    """The ad as it would be without anything that was kept."""
    kept, showcase._layers = showcase._layers, AdLayers()
    children, showcase._children = showcase._children, {}
    try:
        return showcase._make(slot, {})
    finally:
        showcase._layers, showcase._children = kept, children


async def test_kept_layers_follow_every_change(pool, monkeypatch):
    startd = pool.startd
    manager, showcase, effects = startd.shared.slot_manager, startd.shared.ads, SlotEffects()

    def same():
        moment = startd.shared.now()  # both tell it, and the second may change between them
        with monkeypatch.context() as held:
            held.setattr(showcase, "_now", lambda: moment)
            for slot in list(manager.slots.values()):
                showcase.forget(slot.name)
                assert showcase.ad_of(slot) == fresh(showcase, slot), slot.name

    same()
    granted = [await pool.call(pool.request(ad=job_ad(Mood="good"))) for _ in range(2)]
    same()
    claim = granted[0].claim_id
    for mood in ("bad", "worse"):
        ad = job_ad(Mood=mood, Hopes=parse_expr("TARGET.RoostLook + 1"), AccountingGroup="a.b")
        effects.add(manager.activate(claim, f"1.0/{mood}", ad.pack(), ad, startd.shared.now())[1])
        same()
        slot = manager.slots[granted[0].slot]
        assert showcase.ad_of(slot)["Mood"] == mood
        effects.add(manager.run_gone(claim, f"1.0/{mood}", startd.shared.now()))
        same()
    effects.add(manager.drain("d1", now=startd.shared.now())[1])
    same()
    effects.add(manager.cancel_drain("", startd.shared.now())[1])
    same()
    await startd.reconfigure()
    same()
    startd.shared.effects.carry_out(effects)
    assert set(showcase._layers._made) <= {
        key for key in showcase._layers._made if key[0] not in ("frame", "claim") or key[1] in manager.slots
    }


async def test_what_depends_on_the_slot_is_looked_at_each_time(pool):
    """A job attribute that goes by the slot's ad."""
    startd = pool.startd
    ad = job_ad(Hopes=parse_expr("TARGET.LoadAvg + 1"))
    granted = await pool.call(pool.request(ad=ad))
    manager, showcase = startd.shared.slot_manager, startd.shared.ads
    slot = manager.slots[granted.slot]
    values = []
    for load in (1.0, 2.0):
        showcase.add_source("zz", lambda slot, load=load: {"LoadAvg": load})
        showcase.forget(slot.name)
        values.append(showcase.ad_of(slot).eval("Hopes"))
    assert values == [2.0, 3.0]
