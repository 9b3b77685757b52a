"""Bodies of msgpack: flat maps of plain values, and nothing that becomes larger than it is."""

import time

import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.gateway.serialization import MOST_VALUES, flat

PLAIN = (
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.text() | st.binary() | st.floats(allow_nan=False)
)


@given(st.dictionaries(st.text(), PLAIN | st.lists(PLAIN, max_size=20), max_size=10))
@settings(max_examples=100)
def test_a_flat_map_comes_as_it_was_sent(value):
    assert flat(bytearray(msgpack.packb(value))) == value


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b"", "too early"),
        (b"\x81", "too early"),
        (b"\x81\xa1a", "too early"),
        (b"\x81\xa1a\x92\x01", "too early"),
        (b"\x81\xa1a\xdd\x00\x01", "too early"),
        (b"\x81\xa1a\x01more", "something follows"),
        (b"\x92\x01\x02", ""),
        (b"\xc1", ""),
        (b"\x81\x01\x02", "names must be texts"),
        (b"\x81\xa1a\x91\x90", ""),
        (b"\x81\xa1a\x91\x80", ""),
        (b"\x81\xa1a\x81\xa1b\x01", ""),
        (b"\x81\x91\xa1a\x01", ""),
        (b"\xdf\xff\xff\xff\xff", "more than"),
        (b"\x81\xa1a\xdd\xff\xff\xff\xff", "more than"),
        (msgpack.packb({"a": [None] * MOST_VALUES}), "more than"),
        (b"\x81\xa1a\xc7\x01\x05x", ""),  # an extension
        (b"\x81\xa1a" + b"\x91" * 100_000, ""),
    ],
)
def test_anything_else_is_refused(body, says):
    with pytest.raises((ValueError, msgpack.UnpackException), match=says or None):
        flat(bytearray(body))


def test_millions_of_lists_cost_nothing():
    """Ten million empty lists are ten megabytes, and were a gigabyte and eight seconds."""
    bomb = bytearray(b"\x81\xa5procs\xdd" + (10_000_000).to_bytes(4, "big") + b"\x90" * 10_000_000)
    began = time.process_time()
    with pytest.raises(ValueError, match="more than"):
        flat(bomb)
    assert time.process_time() - began < 2.0
