"""Ads of hibernating machines: `Offline = true` says that a machine sleeps and can be woken (ABS-07). Pure."""

from __future__ import annotations

import re
from typing import Final

from shared.classad import ClassAd

#: In a packed ad: the name of the attribute, with its length before it.
MARK: Final = re.compile(rb"\xa7(?i:offline)")


def is_offline(packed: bytes, now: float) -> bool:
    """Whether an ad says so; what can not be read does not."""
    if MARK.search(packed) is None:
        return False
    try:
        return ClassAd.unpack(packed).check().eval("Offline", None, now) is True
    except ValueError:
        return False
