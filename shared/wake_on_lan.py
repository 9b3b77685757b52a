"""Waking machines that sleep: the magic packet of wake-on-LAN, and where it is sent to (spec rows PWR-05, TLS-11)."""

from __future__ import annotations

import ipaddress
import re
import socket
from typing import Final

from shared.classad import ClassAd
from shared.errors import RoostError

#: The discard service: where such packets usually go; sleeping interfaces look at no port.
PORT: Final = 9
_HARDWARE: Final = re.compile(r"(?:[0-9a-fA-F]{2}([:-]))(?:[0-9a-fA-F]{2}\1){4}[0-9a-fA-F]{2}|[0-9a-fA-F]{12}")


class CanNotWake(RoostError):
    """Nobody can be woken so: says what is wrong, and the mend."""


def packet(hardware: str) -> bytes:
    """Six bytes of ones, then the hardware address sixteen times. Raises CanNotWake for what is none."""
    if not _HARDWARE.fullmatch(hardware):
        raise CanNotWake(f"{hardware[:80]!r} is no hardware address: six pairs of digits, as in 52:54:00:12:34:56")
    return b"\xff" * 6 + bytes.fromhex(hardware.replace(":", "").replace("-", "")) * 16


def target(subnet: str, address: str = "") -> str:
    """The address that a whole subnet hears. subnet: a mask (255.255.255.0, of `address`), a network (10.1.2.0/24) or a
    broadcast address; without it: this machine's own subnet. Raises CanNotWake."""
    if not subnet:
        return "255.255.255.255"
    try:
        if "/" in subnet:
            return str(ipaddress.IPv4Network(subnet, strict=False).broadcast_address)
        one = ipaddress.IPv4Address(subnet)
        if not _is_mask(int(one)):
            return str(one)
        if not address or int(one) == 2**32 - 1:
            return "255.255.255.255"
        return str(ipaddress.IPv4Network(f"{address}/{subnet}", strict=False).broadcast_address)
    except ValueError as error:
        raise CanNotWake(f"{error}: want a mask, a network such as 10.1.2.0/24 or a broadcast address") from None


def of_ad(ad: ClassAd) -> tuple[str, str]:
    """Hardware address of a machine's ad, and where its packet goes. Raises CanNotWake if the ad does not say."""
    name = ad.eval("Machine") if isinstance(ad.eval("Machine"), str) else "this ad"
    hardware, mask, address = (ad.eval(one) for one in ("HardwareAddress", "SubnetMask", "PublicNetworkIpAddr"))
    if not isinstance(hardware, str) or not hardware:
        raise CanNotWake(f"{name} has no HardwareAddress: name it with -m, and where it is with -s")
    return hardware, target(mask if isinstance(mask, str) else "", address if isinstance(address, str) else "")


def send(hardware: str, where: str, port: int = PORT) -> None:
    """Send the packet once. Nobody answers it. Raises CanNotWake where this machine can not reach that address."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
        try:
            sender.sendto(packet(hardware), (where, port))
        except OSError as error:
            raise CanNotWake(f"can not send to {where}, port {port}: {error.strerror}; name another with -s") from None


def _is_mask(number: int) -> bool:
    """Ones, then zeros."""
    inverse = number ^ (2**32 - 1)
    return number >> 31 == 1 and inverse & (inverse + 1) == 0
