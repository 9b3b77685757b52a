"""Ganglia's side: where gmond listens and which hosts it knows, from gmond.conf and the output of gstat; and its
packets (XDR over UDP, since Ganglia 3.1), as gmetric sends them. Pure.

gmond files a metric under the host that the packet names ("spoofing": `address:name`), so one sender speaks for all
machines of a pool.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final
from xml.sax.saxutils import escape

from services.monitor.core.metrics import Metric

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


def channels_of_gmond_conf(text: str, file: str) -> list[Channel]:
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


def channels_of_list(items: Iterable[str], knob: str) -> list[Channel]:
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


_DESCRIPTION, _VALUE_AS_TEXT = 128, 133
_SLOPE_ZERO, _SLOPE_BOTH, _SLOPE_DERIVATIVE = 0, 3, 5
#: Bytes of one text, before it is escaped: gmond reads no longer packets than 1472 bytes.
_MOST_TEXT: Final = 120
_CONTROL: Final = re.compile("[\\x00-\\x1f\\x7f]")


def description_packet(metric: Metric, host: str, tmax: int) -> bytes:
    """What gmond must know before it takes values. host: `address:name`; tmax: seconds within which a value comes."""
    extra = [("SPOOF_HOST", host)]
    extra += [("CLUSTER", metric.cluster)] if metric.cluster else []
    extra += [("GROUP", metric.group)] if metric.group else []
    extra += [("DESC", metric.desc)] if metric.desc else []
    extra += [("TITLE", metric.title)] if metric.title else []
    slope = _SLOPE_DERIVATIVE if metric.derivative else _SLOPE_ZERO if metric.type == "string" else _SLOPE_BOTH
    return _described(host, metric.name, metric.type, metric.units, slope, tmax, metric.lifetime, extra)


def value_packet(metric: Metric, host: str) -> bytes:
    """What the metric is now."""
    return _valued(host, metric.name, as_text(metric))


def heartbeat_packets(host: str) -> list[bytes]:
    """That a host lives that no gmond speaks for: without it Ganglia shows it as down."""
    extra = [("SPOOF_HOST", host), ("SPOOF_HEARTBEAT", "yes")]
    return [_described(host, "heartbeat", "uint32", "", _SLOPE_ZERO, 0, 0, extra), _valued(host, "heartbeat", "0")]


def as_text(metric: Metric) -> str:
    """The value as Ganglia has it: text."""
    return metric.value if isinstance(metric.value, str) else repr(metric.value)


def _described(
    host: str, name: str, kind: str, units: str, slope: int, tmax: int, dmax: int, extra: Iterable[tuple[str, str]]
) -> bytes:
    pairs = list(extra)
    return b"".join(
        (
            _begin(_DESCRIPTION, host, name),
            *(_text(kind), _text(name), _text(units)),
            struct.pack(">4I", slope, tmax, dmax, len(pairs)),
            *(_text(one) for pair in pairs for one in pair),
        )
    )


def _valued(host: str, name: str, text: str) -> bytes:
    return _begin(_VALUE_AS_TEXT, host, name) + _text("%s") + _text(text)


def _begin(kind: int, host: str, name: str) -> bytes:
    return struct.pack(">I", kind) + _text(host) + _text(name) + struct.pack(">I", 1)  # 1: spoofed


def _text(text: str) -> bytes:
    """gmond puts what it is told into its XML as it is, and one `<` in a user's name would make all of it unreadable:
    so it comes escaped, and without control characters."""
    plain = _CONTROL.sub(" ", text).encode(errors="replace")[:_MOST_TEXT]
    data = escape(plain.decode(errors="ignore"), {'"': "&quot;", "'": "&apos;"}).encode()
    return struct.pack(">I", len(data)) + data + bytes(-len(data) % 4)
