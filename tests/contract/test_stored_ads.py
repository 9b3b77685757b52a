"""Compressed ads need their dictionary in the store, on every variant (shared.state.ads)."""

import msgpack
import pytest

from shared.compression import MAGIC, AdCompressor, train_dictionary
from shared.state import keys, open_store
from shared.state.ads import GroupWrite, StoredGroup, load_ads, write_ads


@pytest.fixture(params=[pytest.param("redis", marks=pytest.mark.servers), "embedded"])
async def store(request, tmp_path):
    url = request.getfixturevalue("redis_url") if request.param == "redis" else "embedded:"
    made = open_store(url, tmp_path)
    await made.start()
    yield made
    await made.stop()


def group(ads, sequence=1):
    return StoredGroup("Machine", "startd@n1", 5, sequence, sequence, 1000.0, ads)


async def test_a_write_brings_the_dictionary_that_is_not_there(store):
    ads = {
        f"s{n}": msgpack.packb({**{f"Attribute{i}": f"value {i}" for i in range(60)}, "Name": f"s{n}"})
        for n in range(200)
    }
    compressor = AdCompressor()
    compressor.add(70000, train_dictionary(list(ads.values()), 70000), 12.5)
    compressed = {name: compressor.compress(packed) for name, packed in ads.items()}
    assert all(packed.startswith(MAGIC) for packed in compressed.values())
    assert await write_ads(store, [GroupWrite(group(compressed), 1900)], compressor) == []
    # Again, after the store lost it.
    await store.delete(keys.ADS_DICTIONARIES)
    change = GroupWrite(group({"s0": compressed["s1"]}, 2), 1900, base=1)
    assert await write_ads(store, [change], compressor) == []
    assert (await load_ads(store, "Machine"))[0].ads == {**ads, "s0": ads["s1"]}
    other = AdCompressor()
    assert (await load_ads(store, compressor=other))[0].ads == {**compressed, "s0": compressed["s1"]}
    assert other.dictionary(70000) == compressor.dictionary(70000)
    # Whoever has no dictionaries writes as ever.
    assert await write_ads(store, [GroupWrite(group({"s": b"\x80"}, 3), 1900)], AdCompressor()) == []
    assert (await load_ads(store))[0].ads == {"s": b"\x80"}
