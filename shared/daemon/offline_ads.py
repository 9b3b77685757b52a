"""Ads of hibernating machines: `Offline = true` says that a machine sleeps and can be woken (ABS-07). Pure."""

from __future__ import annotations

from typing import Final

from shared.classad import ClassAd
from shared.daemon.ad_rows import may_name

OFFLINE: Final = "Offline"


def is_offline(packed: bytes, now: float) -> bool:
    """Whether an ad says so; what can not be read does not."""
    if not may_name(packed, OFFLINE):
        return False
    try:
        return ClassAd.unpack(packed).eval(OFFLINE, None, now) is True
    except ValueError:
        return False
