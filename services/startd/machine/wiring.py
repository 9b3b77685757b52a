"""Which of a machine's network interfaces can wake it (spec rows PWR-05, TLS-11): its hardware address and subnet mask
are in the machine's ads, for `roost power`. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

_NO_ADDRESS: Final = ("", "00:00:00:00:00:00")


@dataclass(frozen=True, slots=True)
class Interface:
    """An interface of the machine. hardware: aa:bb:cc:dd:ee:ff; address, mask: IPv4, dotted. Empty: it has none."""

    name: str
    hardware: str = ""
    address: str = ""
    mask: str = ""


def default_route(table: str) -> str:
    """The interface that the default route of least metric takes, of the text of /proc/net/route; "": none."""
    best: tuple[int, str] | None = None
    for line in table.splitlines()[1:]:
        words = line.split()
        if len(words) < 8 or words[1] != "00000000" or words[7] != "00000000" or not words[6].isdigit():
            continue
        found = (int(words[6]), words[0])
        best = found if best is None or found < best else best
    return best[1] if best else ""


def waking(interfaces: Sequence[Interface], route: str) -> Interface | None:
    """The one that a wake-up packet is for: that of the default route, else the first that has a hardware address and
    an IPv4 address. None: no such packet can reach the machine."""
    able = [one for one in interfaces if one.hardware not in _NO_ADDRESS and one.address]
    return next((one for one in able if one.name == route), able[0] if able else None)


def attributes(interface: Interface | None) -> Mapping[str, str]:
    """What the machine's ads say of it."""
    if interface is None:
        return {}
    return {
        "HardwareAddress": interface.hardware,
        "SubnetMask": interface.mask,
        "PublicNetworkIpAddr": interface.address,
    }
