"""What wakes a machine by its network interface (spec row PWR-05): as `ethtool` tells it, in HTCondor's words. Pure."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final

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


def read(answer: bytes) -> Wol:
    """What the kernel answered. Raises struct.error for what is too short."""
    _, supported, enabled, _ = WOLINFO.unpack_from(answer)
    return Wol(supported, enabled)


def question() -> bytes:
    return WOLINFO.pack(GET_WOL, 0, 0, b"")


def _names(bits: int) -> str:
    return ",".join(name for number, name in enumerate(_NAMES) if bits & 1 << number) or "NONE"
