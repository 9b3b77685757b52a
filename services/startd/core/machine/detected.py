"""What is detected of a machine: its size, its system, its load, and the network interface that can wake it.

Of the interfaces, the one counts by which the machine speaks to others: its hardware address and subnet mask are in the
ads (spec rows PWR-05, TLS-11), with what wakes it as `ethtool` tells it, in HTCondor's words. Pure.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

#: Attributes of what uname(2) says.
UTSNAME: Final = ("UtsnameSysname", "UtsnameNodename", "UtsnameRelease", "UtsnameVersion", "UtsnameMachine")
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


#: Flags of x86 processors that ads tell of, as has_<flag>.
_FLAGS: Final = ("avx", "avx2", "avx512_vnni", "avx512dq", "avx512f", "sse4_1", "sse4_2", "ssse3")
#: The levels of the x86-64 architecture, the highest first, with the flags that they ask for beyond those below.
_LEVELS: Final[tuple[tuple[str, frozenset[str]], ...]] = (
    ("x86_64-v4", frozenset(("avx512bw", "avx512cd", "avx512dq", "avx512f", "avx512vl"))),
    ("x86_64-v3", frozenset(("abm", "avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "movbe", "xsave"))),
    ("x86_64-v2", frozenset(("cx16", "lahf_lm", "popcnt", "sse4_1", "sse4_2", "ssse3"))),
    ("x86_64-v1", frozenset()),
)


@dataclass(frozen=True, slots=True)
class Processor:
    """A processor as Linux tells of it. family, number: those of x86 processors, 0: unknown; cache_kib: 0: unknown."""

    model: str = ""
    family: int = 0
    number: int = 0
    cache_kib: int = 0
    flags: frozenset[str] = frozenset()

    def attributes(self, arch: str) -> dict[str, object]:
        """What the machine's ads say of it; what is not known is not said. arch: Arch of the ads."""
        told: dict[str, object] = {"CpuModel": self.model}
        numbers = (("CpuFamily", self.family), ("CpuModelNumber", self.number), ("CpuCacheSize", self.cache_kib))
        told |= {name: number for name, number in numbers if number > 0}
        told |= {f"has_{flag}": True for flag in _FLAGS if flag in self.flags}
        if arch == "X86_64" and self.flags:
            told["Microarch"] = next(level for level, flags in _LEVELS if flags <= self.flags)
        return told


def parse_cpuinfo(text: str) -> Processor:
    """The first processor of the text of /proc/cpuinfo: those of one machine are taken to be alike."""
    first = text.strip().partition("\n\n")[0]
    said = {name.strip(): value.strip() for name, _, value in (line.partition(":") for line in first.splitlines())}

    def number(name: str) -> int:
        digits = said.get(name, "").partition(" ")[0]
        return int(digits) if digits.isdigit() else 0

    return Processor(
        model=said.get("model name", ""),
        family=number("cpu family"),
        number=number("model"),
        cache_kib=number("cache size"),
        flags=frozenset(said.get("flags", "").split()),
    )


@dataclass(frozen=True, slots=True)
class Detected:
    """What does not change while the daemon lives."""

    hostname: str
    cpus: int  # logical
    cores: int  # physical
    memory_mib: int
    swap_kib: int
    arch: str
    core_ids: tuple[int, ...] = ()  # of the logical cores that this process may use
    opsys: str = "LINUX"
    opsys_name: str = ""
    opsys_major: int = 0
    opsys_version: int = 0  # 100 x major + minor
    opsys_long_name: str = ""
    processor: Processor = Processor()
    interface: Interface | None = None  # by which it can be woken
    user_namespaces: bool = False  # anybody may make them
    utsname: tuple[str, ...] = ()  # what uname(2) says, in the order of UTSNAME


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
