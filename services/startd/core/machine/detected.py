"""What is detected of a machine: its size, its system, its load, and the network interface that can wake it.

Of the interfaces, the one counts by which the machine speaks to others: its hardware address and subnet mask are in the
ads (spec rows PWR-05, TLS-11), with what wakes it as `ethtool` tells it, in HTCondor's words. Pure.
"""

from __future__ import annotations

import struct
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


def waking_interface(interfaces: Sequence[Interface], route: str) -> Interface | None:
    """The one that a wake-up packet is for: that of the default route, else the first that has a hardware address and
    an IPv4 address. None: no such packet can reach the machine."""
    able = [one for one in interfaces if one.hardware not in _NO_ADDRESS and one.address]
    return next((one for one in able if one.name == route), able[0] if able else None)


def interface_attributes(interface: Interface | None) -> Mapping[str, str]:
    """What the machine's ads say of it."""
    if interface is None:
        return {}
    return {
        "HardwareAddress": interface.hardware,
        "SubnetMask": interface.mask,
        "PublicNetworkIpAddr": interface.address,
    }


#: Of the kernel's `struct ethtool_wolinfo`: command, supported, enabled, password; as long as the kernel has it.
WOLINFO: Final = struct.Struct("=III6s2x")
GET_WOL: Final = 0x00000005
#: By the bit that it is.
_NAMES: Final = (
    "Physical Packet",
    "UniCast Packet",
    "MultiCast Packet",
    "BroadCast Packet",
    "ARP Packet",
    "Magic Packet",
    "Secure Magic Packet",
)
_MAGIC: Final = 1 << 5


@dataclass(frozen=True, slots=True)
class Wol:
    """supported, enabled: bits, as ethtool's "Supports Wake-on" and "Wake-on"."""

    supported: int = 0
    enabled: int = 0

    @property
    def wakeable(self) -> bool:
        """A magic packet wakes it, as `roost power` sends."""
        return bool(self.supported & self.enabled & _MAGIC)

    def attributes(self) -> dict[str, object]:
        return {
            "IsWakeOnLanSupported": bool(self.supported & _MAGIC),
            "IsWakeOnLanEnabled": bool(self.enabled & _MAGIC),
            "IsWakeAble": self.wakeable,
            "WakeOnLanSupportedFlags": _names(self.supported),
            "WakeOnLanEnabledFlags": _names(self.enabled),
        }


def parse_wolinfo(answer: bytes) -> Wol:
    """What the kernel answered. Raises struct.error for what is too short."""
    _, supported, enabled, _ = WOLINFO.unpack_from(answer)
    return Wol(supported, enabled)


def wolinfo_query() -> bytes:
    return WOLINFO.pack(GET_WOL, 0, 0, b"")


def _names(bits: int) -> str:
    return ",".join(name for number, name in enumerate(_NAMES) if bits & 1 << number) or "NONE"


@dataclass(frozen=True, slots=True)
class Detected:
    """What does not change while the daemon lives."""

    hostname: str
    cpus: int  # logical
    cores: int  # physical
    memory_mib: int
    swap_kib: int
    arch: str
    opsys: str = "LINUX"
    opsys_name: str = ""
    opsys_major: int = 0
    opsys_long_name: str = ""
    cpu_model: str = ""
    interface: Interface | None = None  # by which it can be woken


@dataclass(frozen=True, slots=True)
class Sample:
    """What does."""

    disk_kib: int = 0  # free where EXECUTE lies
    load_avg: float = 0.0
    keyboard_idle_s: int = 0  # since anybody typed, at a terminal or at the console
    console_idle_s: int = 0
    free_swap_kib: int = 0
    clock_min: int = 0  # minutes since local midnight
    clock_day: int = 0  # Sunday 0
