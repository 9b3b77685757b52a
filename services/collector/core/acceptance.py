"""Decides what the collector accepts, and what becomes of ads of machines that went silent or sleep (spec rows COL-02,
COL-04, ABS-01 to ABS-09).

An ad with `Offline = true` belongs to a machine that hibernates and can be woken. Such an ad outlives the silence that
follows, and says what is true of a sleeping machine, whatever its last update said.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from shared.classad import ClassAd, Expr, evaluate
from shared.daemon.ad_rows import LIFETIME, Patch, may_name, with_attributes
from shared.daemon.ad_table import AdMessage
from shared.daemon.offline_ads import OFFLINE, is_offline
from shared.messages.ads import AdDelta, AdInvalidate, AdUpdate

#: Longer names and types are nobody's; routing keys have 255 bytes.
LONGEST_NAME, LONGEST_TYPE = 1024, 64
_TYPE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
#: The type whose ads may become absent.
MACHINE = "Machine"


def check(message: AdMessage) -> str:
    """Why a message can not be taken; empty when it can."""
    if not _TYPE.fullmatch(message.my_type) or len(message.my_type) > LONGEST_TYPE:
        return f"my_type {message.my_type[:LONGEST_TYPE]!r} is no type of ads: letters and digits, such as Machine"
    if "@" not in message.daemon or len(message.daemon) > LONGEST_NAME or "\0" in message.daemon:
        return f"daemon {message.daemon[:80]!r}: want <subsystem>@<name>, such as startd@node1"
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


def absent_ad(
    policy: AbsentPolicy, my_type: str, name: str, daemon: str, packed: bytes, last_heard: float, now: float
) -> AbsentAd | None:
    """What is remembered of an ad whose time is over; None when nothing is."""
    if policy.requirements is None or my_type != MACHINE:
        return None
    try:
        if evaluate(policy.requirements, ClassAd.unpack(packed), None, now) is not True:
            return None
        marked = with_attributes(packed, {"Absent": True})
    except ValueError:  # also BadAd
        return None
    return AbsentAd(name, daemon, marked, last_heard, now + policy.keep_s if policy.keep_s else 0.0)


def returned(message: AdMessage, absentees: Mapping[str, AbsentAd]) -> list[str]:
    """Names of absent ads that this message replaces (ABS-03)."""
    if not absentees or message.my_type != MACHINE or isinstance(message, AdInvalidate):
        return []
    names = message.names if isinstance(message, AdUpdate) else getattr(message, "names", [])
    return [name for name in names if name in absentees]


#: What a sleeping machine is, and what it does not do.
_OFFLINE_STATE = {
    "State": "Unclaimed",
    "Activity": "Idle",
    "LoadAvg": 0.0,
    "CondorLoadAvg": 0.0,
    "TotalLoadAvg": 0.0,
    "TotalCondorLoadAvg": 0.0,
    "CpuIsBusy": False,
    "CpuBusyTime": 0,
}


def with_offline_ads(message: AdMessage, keep_s: float, now: float) -> Generator[None, None, AdMessage]:
    """The message with the ads of sleeping machines as they are kept; most come back as they are. An ad is looked at
    in each step. `keep_s`: OFFLINE_EXPIRE_ADS_AFTER."""
    if message.my_type != MACHINE or not isinstance(message, AdUpdate):
        return message
    ads = []
    for ad in message.ads:
        ads.append(offline_ad(ad, keep_s, now) if is_offline(ad, now) else ad)
        yield
    return message.model_copy(update={"ads": ads}) if ads != message.ads else message


def offline_ad(packed: bytes, keep_s: float, now: float) -> bytes:
    """The ad as it is kept. Raises BadAd."""
    told: dict[str, Any] = {**_OFFLINE_STATE, "EnteredCurrentState": int(now), "EnteredCurrentActivity": int(now)}
    return with_attributes(packed, {**told, LIFETIME: int(keep_s)})


def needs_whole_ad(message: AdMessage, rows: Iterable[bytes], now: float) -> Generator[None, None, bool]:
    """Whether a change is one of an ad that was kept in another form than it was sent (`rows`: ads that it changes), or
    tells of going to sleep: such a change can only be taken with the ad as a whole. One of them in each step."""
    if message.my_type != MACHINE or not isinstance(message, AdDelta):
        return False
    for change in message.changes:
        if may_name(change, OFFLINE):
            return True
        yield
    for packed in rows:
        if is_offline(packed, now):
            return True
        yield
    return False


def match_time_patch(at: float) -> Patch:
    """What changes in the ad of a slot when a job is matched with it in its sleep."""
    return Patch.of({"MachineLastMatchTime": int(at)})
