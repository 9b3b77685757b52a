"""A clock that is set back while a pool runs: what daemons say afterwards is kept."""

from shared.state.ads import GroupWrite, StoredGroup, load_ads, load_claims, write_ads, write_claims
from shared.state.embedded import EmbeddedStore


async def test_claims_of_a_life_that_seems_earlier_are_kept_when_the_clock_was_set_back():
    clock = [9100.0]
    store = EmbeddedStore(now=lambda: clock[0])
    await store.start()
    await write_claims(store, {"startd@n1": (9000, 7, {"slot1": "old"})})
    await write_claims(store, {"startd@n1": (8000, 9, {"slot1": "late"})})
    assert await load_claims(store) == {"slot1": "old"}
    clock[0] = 5500.0
    await write_claims(store, {"startd@n1": (5400, 1, {"slot1": "new"})})
    assert await load_claims(store) == {"slot1": "new"}
    await store.stop()


async def test_ads_of_a_life_that_seems_earlier_are_kept_when_the_clock_was_set_back():
    store = EmbeddedStore()
    await store.start()

    async def kept_after(start, heard, text):
        await write_ads(store, [GroupWrite(StoredGroup("Machine", "startd@n1", start, 5, 5, heard, {"s": text}), 9e9)])
        (group,) = await load_ads(store)
        return group.ads["s"]

    assert await kept_after(9000, 9100.0, b"old") == b"old"
    assert await kept_after(8000, 9101.0, b"late") == b"old"
    assert await kept_after(5400, 5500.0, b"new") == b"new"
    await store.stop()
