"""What the collector takes in, and what becomes of ads whose time is over (spec rows COL-02, COL-04, ABS-01
to ABS-09).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from shared.classad import ClassAd, Expr, evaluate
from shared.daemon.ad_rows import BadAd, added
from shared.daemon.ad_table import AdMessage, inbox_of
from shared.messages.ads import AdInvalidate, AdUpdate

#: Longer names and types are nobody's; routing keys have 255 bytes.
LONGEST_NAME, LONGEST_TYPE = 1024, 64
_TYPE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
#: The type whose ads may become absent.
MACHINE = "Machine"


def check(message: AdMessage, sender: str) -> str:
    """Why a message can not be taken; empty when it can. `sender` is who sent it, as far as known."""
    if not _TYPE.fullmatch(message.my_type) or len(message.my_type) > LONGEST_TYPE:
        return f"my_type {message.my_type[:LONGEST_TYPE]!r} is no type of ads: letters and digits, such as Machine"
    if "@" not in message.daemon or len(message.daemon) > LONGEST_NAME or "\0" in message.daemon:
        return f"daemon {message.daemon[:80]!r}: want <subsystem>@<name>, such as startd@node1"
    if sender and sender != inbox_of(message.daemon):
        return f"ads of {message.daemon} from {sender}: a daemon speaks for itself only"
    if message.start_time < 0 or message.sequence < 0:
        return f"{message.daemon}: start_time and sequence are counted from 0"
    for name in getattr(message, "names", ()):
        if (not name and not isinstance(message, AdInvalidate)) or len(name) > LONGEST_NAME:
            return f"{message.daemon}: an ad's name has 1 to {LONGEST_NAME} characters, not {name[:80]!r}"
    return ""


@dataclass(frozen=True, slots=True)
class AbsentPolicy:
    """ABSENT_REQUIREMENTS and what goes with it. requirements None: nothing becomes absent."""

    requirements: Expr | None = None
    keep_s: float = 2592000.0  # ABSENT_EXPIRE_ADS_AFTER; 0: for ever
    invalidated_too: bool = False  # EXPIRE_INVALIDATED_ADS
    persistent: bool = False  # COLLECTOR_PERSISTENT_AD_LOG: offline ads are kept as such (ABS-05, ABS-09)
    offline_s: float = 2147483647.0  # OFFLINE_EXPIRE_ADS_AFTER


@dataclass(frozen=True, slots=True)
class AbsentAd:
    """A machine ad that expired and is remembered."""

    name: str
    daemon: str
    packed: bytes  # with Absent = true
    last_heard: float
    expires: float  # seconds since 1970; 0: never


def absent(
    policy: AbsentPolicy, my_type: str, name: str, daemon: str, packed: bytes, last_heard: float, now: float
) -> AbsentAd | None:
    """What is remembered of an ad whose time is over; None when nothing is."""
    if policy.requirements is None or my_type != MACHINE:
        return None
    try:
        ad = ClassAd.unpack(packed).check()
        if evaluate(policy.requirements, ad, None, now) is not True:
            return None
        marked = added(packed, {"Absent": True})
    except (BadAd, ValueError):
        return None
    return AbsentAd(name, daemon, marked, last_heard, now + policy.keep_s if policy.keep_s else 0.0)


def returned(message: AdMessage, absentees: Mapping[str, AbsentAd]) -> list[str]:
    """Names of absent ads that this message replaces (ABS-03)."""
    if not absentees or message.my_type != MACHINE or isinstance(message, AdInvalidate):
        return []
    names = message.names if isinstance(message, AdUpdate) else getattr(message, "names", [])
    return [name for name in names if name in absentees]
