"""Large messages with ads travel compressed; whoever reads them need not know."""

import msgpack
import pytest
import zstandard

from shared.compression import LARGEST, MAGIC
from shared.messages import BadMessage, Envelope
from shared.messages.ads import AdHeartbeat, AdPage, AdUpdate
from shared.messages.base import COMPRESS_ABOVE
from shared.messages.claims import Alive
from shared.messages.wire import type_of

ADS = [msgpack.packb({f"Attribute{i}": f"value {i}" for i in range(100)}) for _ in range(16)]


def update(ads):
    names = [f"slot{i}@n" for i in range(len(ads))]
    return AdUpdate(my_type="Machine", daemon="startd@n", start_time=1, sequence=1, names=names, ads=ads)


def test_large_ads_are_compressed_and_come_out_as_they_went_in():
    for body in (update(ADS), AdPage(ads=ADS, next="x")):
        envelope = Envelope(body, "startd.n", "0" * 32, 1.0)
        data = envelope.pack()
        assert data.startswith(MAGIC)
        assert len(data) * 5 < sum(map(len, ADS))
        assert Envelope.unpack(data) == envelope
        assert type_of(data) == body.type


def test_what_is_small_or_holds_no_ads_stays_as_it_is():
    small = AdHeartbeat(my_type="Machine", daemon="startd@n", start_time=1, base=1, sequence=2)
    few = update([b"\x80"])
    others = Alive(schedd="s", sequence=1, claim_ids=["x" * COMPRESS_ABOVE])
    for body in (small, few, others):
        assert not Envelope(body).pack().startswith(MAGIC)


@pytest.mark.parametrize("size", [LARGEST + 1, 1 << 40])
def test_what_would_grow_too_large_is_refused_before_it_does(size):
    bomb = zstandard.ZstdCompressor(level=1).compress(bytes(LARGEST + 1))
    if size > LARGEST + 1:  # a frame that only says so: single segment, content size of 8 bytes
        bomb = MAGIC + bytes((0xE0,)) + size.to_bytes(8, "little") + b"\x01\x00\x00"
    with pytest.raises(BadMessage, match="at most"):
        Envelope.unpack(bomb)
    assert type_of(bomb) == ""


def test_broken_frames_are_bad_messages():
    data = Envelope(update(ADS)).pack()
    for broken in (data[:-5], MAGIC, MAGIC + b"\xff" * 40, data[:20] + b"\x00" * 20 + data[40:]):
        with pytest.raises(BadMessage):
            Envelope.unpack(broken)
