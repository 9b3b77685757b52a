"""The ads to measure with: as long as HTCondor's own (134 attributes, 4.4 kB packed), 16 slots a machine."""

from __future__ import annotations

from collections.abc import Iterator

from bench.classad.ads import machine
from shared.classad import parse_ad
from shared.daemon.ad_rows import pack, unpack
from shared.messages.ads import AdDelta, AdHeartbeat, AdUpdate

TEMPLATES = 256
SLOTS = 16


def host_of(number: int) -> str:
    return f"node{number:06}.example.org"


def names_of(number: int) -> list[str]:
    """Names of the slots of a machine."""
    return [f"slot{slot}@{host_of(number)}" for slot in range(1, SLOTS + 1)]


def updates(ads: int, sequence: int = 1, first: int = 0) -> Iterator[AdUpdate]:
    """All ads, a message for each machine from the one numbered `first` on. Those of another sequence number differ a
    little."""
    templates = [unpack(parse_ad(machine(number), "old").pack()) for number in range(TEMPLATES)]
    for number in range(first, first + ads // SLOTS):
        host, names = host_of(number), names_of(number)
        packed = [
            pack(
                templates[(number * 7 + slot) % TEMPLATES]
                | {"Name": name, "Machine": host, "SlotID": slot, "LoadAvg": (sequence * 37 + slot) % 100 / 100}
            )
            for slot, name in enumerate(names, 1)
        ]
        yield AdUpdate(
            my_type="Machine", daemon=f"startd@{host}", start_time=1, sequence=sequence, names=names, ads=packed
        )


def delta(number: int, base: int, sequence: int) -> AdDelta:
    """One slot of a machine changes three attributes."""
    change = pack(
        {"LoadAvg": sequence % 100 / 100, "State": "Claimed" if sequence % 2 else "Unclaimed", "Disk": sequence}
    )
    slot = (number + sequence) % SLOTS
    return AdDelta(
        my_type="Machine", daemon=f"startd@{host_of(number)}", start_time=1, base=base, sequence=sequence,
        names=names_of(number)[slot : slot + 1], changes=[change], removed_attrs=[[]],
    )  # fmt: skip


def heartbeat(number: int, base: int, sequence: int) -> AdHeartbeat:
    return AdHeartbeat(
        my_type="Machine", daemon=f"startd@{host_of(number)}", start_time=1, base=base, sequence=sequence
    )
