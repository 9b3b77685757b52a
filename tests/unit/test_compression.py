"""Compression against dictionaries made of ads."""

import threading

import msgpack
import pytest
import zstandard

from shared.compression import MAGIC, AdCompressor, UnknownDictionary, train_dictionary


def ads(count, kind=""):
    return [
        msgpack.packb(
            {**{f"{kind}Attribute{i}": f"value {i} of {kind}" for i in range(60)}, "Name": f"slot{n}@node{n}"}
        )
        for n in range(count)
    ]


@pytest.fixture(scope="module")
def dictionary():
    made = train_dictionary(ads(300), 7)
    assert made is not None
    return made


def test_an_ad_against_a_dictionary_is_a_fraction_of_itself(dictionary):
    compressor = AdCompressor()
    (ad,) = ads(1)
    assert compressor.compress(ad) == ad  # nothing to compress with
    compressor.add(7, dictionary, 1.0)
    stored = compressor.compress(ad)
    assert len(stored) * 8 < len(ad)
    assert zstandard.get_frame_parameters(stored).dict_id == 7
    assert compressor.decompress(stored) == ad
    assert compressor.compress(stored) == stored
    assert compressor.decompress(ad) == ad


def test_what_does_not_get_shorter_stays(dictionary):
    compressor = AdCompressor()
    compressor.add(7, dictionary, 1.0)
    assert compressor.compress(b"\x80") == b"\x80"


def test_an_older_dictionary_is_still_read_and_an_unknown_one_named(dictionary):
    old, new = AdCompressor(), AdCompressor()
    old.add(7, dictionary, 1.0)
    other = train_dictionary(ads(300, "Other"), 5)
    stored = old.compress(ads(1)[0])
    new.add(5, other, 2.0)
    with pytest.raises(UnknownDictionary) as error:
        new.decompress(stored)
    assert error.value.number == 7
    new.add(7, dictionary, 1.0)
    assert new.current == 5  # the newest is used
    assert new.decompress(stored) == ads(1)[0]
    assert 7 in new
    assert new.numbers == [5, 7]


def test_broken_bytes_are_told(dictionary):
    compressor = AdCompressor()
    compressor.add(7, dictionary, 1.0)
    stored = compressor.compress(ads(1)[0])
    for broken in (stored[:-3], MAGIC, MAGIC + b"\xff" * 9):
        with pytest.raises(ValueError, match=r"compress|dictionary"):
            compressor.decompress(broken)


def test_too_few_or_odd_samples_give_none():
    assert train_dictionary(ads(20), 1) is None
    assert train_dictionary([b""] * 200, 1) is None


def test_threads_do_not_get_in_each_others_way(dictionary):
    compressor = AdCompressor()
    compressor.add(7, dictionary, 1.0)
    wrong = []

    def work(first):
        for ad in ads(300)[first:]:
            if compressor.decompress(compressor.compress(ad)) != ad:
                wrong.append(ad)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert wrong == []
