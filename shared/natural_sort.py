"""Sorts names as people do: slot2 before slot10."""

from __future__ import annotations

import re
from typing import Final

_DIGITS: Final = re.compile(r"\d+")


def natural_key(name: str) -> str:
    """A text that sorts as people would sort the names. Digits are led by their number. (`roost status` sorts as
    HTCondor does: roost.cli.slot_order.)"""
    return _DIGITS.sub(lambda found: _numbered(found.group()), name)


def _numbered(digits: str) -> str:
    digits = digits.lstrip("0") or "0"
    return chr(0x30 + min(len(digits), 0x4F)) + digits
