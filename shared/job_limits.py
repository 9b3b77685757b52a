"""What a job takes of concurrency limits: the ConcurrencyLimits attribute, read and written.

    wanted(job_ad, slot_ad, now)     # (("swx", 2.0), ("network_a", 1.0))

The negotiator counts by it, the schedd keeps claims to jobs that take the same. Pure. Spec rows LIM-02, LIM-03, LIM-06,
LIM-08, LIM-09, LIM-13.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

from shared.classad import ClassAd, Expr, flatten
from shared.classad.expr import Literal

#: (name in lower case, units above 0), each name once.
Wanted = tuple[tuple[str, float], ...]

#: Scheduler, grid and local universe: their jobs take no slot, and no limit counts them (LIM-02).
UNLIMITED_UNIVERSES: Final = frozenset((7, 9, 12))
#: A job that lists more names than this gets no slot: each is looked at for every slot it might get.
MAX_NAMES: Final = 100
#: What such a job wants. It is no name that anybody could write, and there is none of it.
TOO_MANY: Final = "(too many names)"
#: More units than any limit has. Larger numbers would swallow what is added to them.
MAX_UNITS: Final = 1e9

_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z_][A-Za-z0-9_]*)?")
_UNITS: Final = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_SEPARATORS: Final = re.compile(r"[\s,]+")
#: Longer texts are read each time, so that nobody fills the memory with them.
_MAX_CACHED: Final = 1_000


def is_limit_name(name: str) -> bool:
    """Letters, digits and underscores, at most one period; no part begins with a digit (LIM-03)."""
    return _NAME.fullmatch(name) is not None


def parse(text: str) -> Wanted:
    """The names and units of a ConcurrencyLimits text: `xsw, fileserver:3`, commas or blanks between them (LIM-09).

    Units may be fractions; those that are no number above 0 count as 1 (LIM-06). Malformed names are left out (LIM-03,
    LIM-13). A name that comes twice counts with the sum. Never raises.
    """
    return _parse(text) if len(text) > _MAX_CACHED else _parse_cached(text)


def _parse(text: str) -> Wanted:
    found: dict[str, float] = {}
    for item in _SEPARATORS.split(text):
        name, _, units = item.partition(":")
        if is_limit_name(name):
            key = name.lower()
            found[key] = min(MAX_UNITS, found.get(key, 0.0) + _units(units))
            if len(found) > MAX_NAMES:
                return ((TOO_MANY, 1.0),)
    return tuple(found.items())


_parse_cached = lru_cache(maxsize=4_096)(_parse)


def _units(text: str) -> float:
    """As the reference reads them: the number that the text begins with."""
    number = _UNITS.match(text)
    units = float(number.group()) if number else 0.0
    return min(units, MAX_UNITS) if units > 0 else 1.0


def text_of(wants: Wanted) -> str:
    """ConcurrencyLimits as a match carries it to the slot's ad: `parse` gives the same again."""
    return ",".join(name if units == 1 else f"{name}:{units:.15g}" for name, units in wants)


def wanted(request_ad: ClassAd, slot_ad: ClassAd, now: float) -> Wanted:
    """What a job takes on a slot. An expression is evaluated with the slot as TARGET (LIM-08); one that comes to
    something other than a string asks for nothing."""
    if request_ad.find("concurrencylimits") is None or _is_unlimited(request_ad):
        return ()
    value = request_ad.eval("ConcurrencyLimits", slot_ad, now)
    return parse(value) if isinstance(value, str) else ()


def depends_on_slot(request_ad: ClassAd) -> bool:
    """Whether two slots can make a difference to what a job takes. Only then is a full limit a matter of the slot; else
    it keeps the whole request from starting (LIM-08)."""
    cell = request_ad.find("concurrencylimits")
    if not isinstance(cell, Expr) or _is_unlimited(request_ad):
        return False
    return not isinstance(flatten(cell, request_ad), Literal)


def _is_unlimited(request_ad: ClassAd) -> bool:
    universe = request_ad.eval("JobUniverse")
    return isinstance(universe, int | float) and universe in UNLIMITED_UNIVERSES
