"""Ganglia's own packets (XDR over UDP, since Ganglia 3.1), as its gmetric sends them: what a metric is, and its value.

gmond keeps what it is told under the name of the host that the packet names ("spoofing": `address:name`), so one sender
speaks for all machines of a pool.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable
from typing import Final
from xml.sax.saxutils import escape

from services.monitor.metrics import Metric

_DESCRIPTION, _VALUE_AS_TEXT = 128, 133
_SLOPE_ZERO, _SLOPE_BOTH, _SLOPE_DERIVATIVE = 0, 3, 5
#: Bytes of one text, before it is escaped: gmond reads no longer packets than 1472 bytes.
_MOST_TEXT: Final = 120
_CONTROL: Final = re.compile("[\\x00-\\x1f\\x7f]")


def description(metric: Metric, host: str, tmax: int) -> bytes:
    """What gmond must know before it takes values. host: `address:name`; tmax: seconds within which a value comes."""
    extra = [("SPOOF_HOST", host)]
    extra += [("CLUSTER", metric.cluster)] if metric.cluster else []
    extra += [("GROUP", metric.group)] if metric.group else []
    extra += [("DESC", metric.desc)] if metric.desc else []
    extra += [("TITLE", metric.title)] if metric.title else []
    slope = _SLOPE_DERIVATIVE if metric.derivative else _SLOPE_ZERO if metric.type == "string" else _SLOPE_BOTH
    return _described(host, metric.name, metric.type, metric.units, slope, tmax, metric.lifetime, extra)


def value(metric: Metric, host: str) -> bytes:
    """What the metric is now."""
    return _valued(host, metric.name, as_text(metric))


def heartbeat(host: str) -> list[bytes]:
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
