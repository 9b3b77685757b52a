"""What the rules share."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from fractions import Fraction
from typing import Any

from roost.submit.commands import Commands
from shared.config.errors import config_error

Attributes = dict[str, Any]
Rule = Callable[[Commands, Attributes], None]
NULL = "/dev/null"
_AMOUNT = re.compile(r"([+-]?(?:\d+(?:\.\d*)?|\.\d+))\s*([KMGT]?)(B?)", re.IGNORECASE)
_KIB = {"K": 1, "M": 1024, "G": 1024**2, "T": 1024**3}


def iwd(c: Commands) -> str:
    """The directory that the job's file names are relative to. Raises ConfigError if there is none."""
    given = c.text("initialdir", "initial_dir", "job_iwd", "iwd")
    if not given:
        return str(c.place.directory)
    path = given if given[0] == "/" else f"{c.place.directory}/{given}"
    if not c.is_directory(path):
        raise config_error(f"No such directory: {path}", c.source("initialdir"), "make it, or correct initialdir")
    return path


def usage(c: Commands, command: str) -> int | None:
    """KiB that a command like disk_usage gives, None if it does not. Raises ConfigError below 1."""
    text = c.text(command)
    if text is None:
        return None
    kib = amount(text, "K")
    if kib is None or kib < 1:
        raise config_error(
            f"'{text}' is not valid for {command}. It must be >= 1", c.source(command), "write KiB, or 2G"
        )
    return kib


def amount(text: str, unit: str) -> int | None:
    """A literal amount with its unit, in `unit`s rounded up; None when the text is something else."""
    match = _AMOUNT.fullmatch(text.strip())
    if match is None or (match[3] and not match[2]):
        return None
    number, letter = Fraction(match[1]), match[2].upper() or unit
    whole = math.floor(number) if number >= 0 else math.ceil(number)
    thousandths = int((number - whole) * 1000)  # further digits do not count
    in_unit = (whole + Fraction(thousandths, 1000)) * _KIB[letter]
    return math.trunc((in_unit * 1024 + _KIB[unit] * 1024 - 1) / (_KIB[unit] * 1024))


def leading_number(text: str) -> int:
    """The whole number that a text begins with; 0 if it does not."""
    match = re.match(r"\s*(-?\d+)", text)
    return int(match[1]) if match else 0


def unquoted(text: str) -> str:
    """A text without the double quotes around all of it."""
    return text[1:-1] if len(text) > 1 and text[0] == text[-1] == '"' else text
