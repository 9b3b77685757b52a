"""Where Ganglia listens, and whom it knows: from gmond.conf and the listing of gstat. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from services.monitor.metrics import Metric

PORT: Final = 8649
_COMMENTS: Final = re.compile(r"/\*(?s:.*?)\*/|//[^\n]*|#[^\n]*")
_CHANNEL: Final = re.compile(r"(?s)\budp_send_channel\s*\{(.*?)\}")
_SETTING: Final = re.compile(r"""(?m)\b([a-z_]+)\s*=\s*(?:"([^"]*)"|'([^']*)'|([^\s#}]+))""")


@dataclass(frozen=True, slots=True)
class Channel:
    """Where packets go. ttl: of multicast packets, hops."""

    host: str
    port: int = PORT
    ttl: int = 1


class BadChannel(ValueError):
    """The text names the place and the mend."""


def of_gmond(text: str, file: str) -> list[Channel]:
    """The udp_send_channels of a gmond.conf. Raises BadChannel."""
    found = []
    for block in _CHANNEL.findall(_COMMENTS.sub(" ", text)):
        settings = {name: a or b or c for name, a, b, c in _SETTING.findall(block)}
        host = settings.get("host") or settings.get("mcast_join")
        if not host:
            raise BadChannel(f"{file}: a udp_send_channel names neither host nor mcast_join")
        numbers = {}
        for name, otherwise, most in (("port", PORT, 65535), ("ttl", 1, 255)):
            written = settings.get(name, str(otherwise))
            if not written.isascii() or not written.isdigit() or not 0 < int(written) <= most:
                raise BadChannel(f"{file}: {name} of a udp_send_channel is {written[:20]!r}: want 1 to {most}")
            numbers[name] = int(written)
        found.append(Channel(host, numbers["port"], numbers["ttl"]))
    return found


def of_list(items: Iterable[str], knob: str) -> list[Channel]:
    """`host[:port]`, or `[fd00::1]:port`, of each. Raises BadChannel."""
    found = []
    for item in items:
        match = re.fullmatch(r"(?:\[([^\]]+)\]|([^:\[\]]+))(?::([0-9]{1,5}))?", item)
        port = int(match[3] or PORT) if match else 0
        if not match or not 0 < port <= 65535:
            raise BadChannel(f"{knob}: {item[:60]!r}: want host or host:port, such as localhost:{PORT}")
        found.append(Channel(match[1] or match[2], port))
    return found


def hosts_of(listing: str) -> frozenset[str]:
    """The hosts in what gstat --mpifile prints, `name:processes` in each line; in lower case."""
    found = set()
    for line in listing.splitlines():
        host = line.strip().partition(":")[0].split(" ")[0]
        if host and not host.startswith("#"):
            found.add(host.lower())
    return frozenset(found)


def is_known(metric: Metric, hosts: frozenset[str]) -> bool:
    """Whether Ganglia watches the machine (MON-14); one daemon of several there is named name@host."""
    machine = metric.machine.lower()
    return machine in hosts or machine.rpartition("@")[2] in hosts
