"""Concurrency limits: how many units of a licence, a database, a network all running jobs may use together.

    config = LimitConfig({"xsw": 3.0})
    counters = Counters(config, counts_of(slot_ads))
    wants = wanted(request_ad, slot_ad, now)      # (("xsw", 1.0),)
    if not counters.blocking(wants):
        counters.take(wants)

Nothing here is remembered from cycle to cycle: what is in use stands in the ads of claimed slots (LIM-12), so a
negotiator that takes over counts the same. Nothing is ever ended because a limit is exceeded (LIM-11): then only no
further job starts. Pure. Spec rows LIM-01 to LIM-14.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

from shared.classad import ClassAd, Expr, flatten
from shared.classad.expr import Literal

#: (name in lower case, units above 0), each name once.
Wanted = tuple[tuple[str, float], ...]

#: HTCondor's number for "no limit", which CONCURRENCY_LIMIT_DEFAULT has where nobody sets it (LIM-04).
NO_LIMIT: Final = 2308032
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
#: Sums of tenths miss whole numbers by this much.
_TOLERANCE: Final = 1e-9


@dataclass(frozen=True, slots=True)
class LimitConfig:
    """Capacities, in units. Names and parts in lower case.

    limits: <NAME>_LIMIT, by the full name. defaults: CONCURRENCY_LIMIT_DEFAULT_<part>, for the names `part.anything`.
    default: for all others; None: no limit. unreadable: texts of <NAME>_LIMIT that are no number. Many macros end in
    _LIMIT, so such a text is a mistake only when a job asks for the name: then nothing of it is handed out.
    """

    limits: Mapping[str, float] = field(default_factory=dict)
    defaults: Mapping[str, float] = field(default_factory=dict)
    default: float | None = None
    unreadable: Mapping[str, str] = field(default_factory=dict)

    def capacity(self, name: str) -> float:
        """Units of `name` that may be in use at once; infinity where there is no limit (LIM-04, LIM-05)."""
        if name == TOO_MANY or name in self.unreadable:
            return 0.0
        own = self.limits.get(name)
        if own is not None:
            return own
        part, period, _ = name.partition(".")
        of_set = self.defaults.get(part) if period else None
        if of_set is not None:
            return of_set
        return math.inf if self.default is None else self.default


class Counters:
    """What is in use of each limit, as one cycle changes it. `in_use` is units by name, in lower case."""

    def __init__(self, config: LimitConfig, in_use: Mapping[str, float] | None = None) -> None:
        self.config = config
        self.in_use: dict[str, float] = dict(in_use or {})

    def blocking(self, wants: Wanted) -> str:
        """The first of the names of which there is not enough left for one such job; empty: it may start (LIM-07)."""
        for name, units in wants:
            if self.in_use.get(name, 0.0) + units > self.config.capacity(name) + _TOLERANCE:
                return name
        return ""

    def room(self, wants: Wanted) -> float:
        """How many jobs that want this may still start, a whole number; infinity where no limit counts them."""
        room = math.inf
        for name, units in wants:
            left = self.config.capacity(name) - self.in_use.get(name, 0.0)
            if left < math.inf:
                room = min(room, max(0.0, math.floor((left + _TOLERANCE) / units)))
        return room

    def take(self, wants: Wanted, jobs: int = 1) -> None:
        """So many jobs were matched."""
        for name, units in wants:
            self.in_use[name] = self.in_use.get(name, 0.0) + units * jobs

    def give_back(self, wants: Wanted, jobs: int = 1) -> None:
        """So many jobs do not start after all."""
        for name, units in wants:
            left = self.in_use.get(name, 0.0) - units * jobs
            if left > _TOLERANCE:
                self.in_use[name] = left
            else:
                self.in_use.pop(name, None)


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
        if _NAME.fullmatch(name):
            key = name.lower()
            found[key] = min(MAX_UNITS, found.get(key, 0.0) + _units(units))
            if len(found) > MAX_NAMES:
                return ((TOO_MANY, 1.0),)
    return tuple(found.items())


_MAX_CACHED: Final = 1_000
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
    return request_ad.eval("JobUniverse") in UNLIMITED_UNIVERSES


def held_by(slot_ad: ClassAd) -> Wanted:
    """What a slot's ad says its claim holds, and a claim that waits to preempt it (LIM-12)."""
    texts = [
        text
        for name in ("ConcurrencyLimits", "PreemptingConcurrencyLimits")
        if isinstance(text := slot_ad.eval(name) if slot_ad.find(name.lower()) is not None else None, str)
    ]
    if len(texts) < 2:
        return parse(texts[0]) if texts else ()
    both = Counters(LimitConfig())
    for text in texts:
        both.take(parse(text))
    return tuple(both.in_use.items())


def counts_of(slot_ads: Iterable[ClassAd], under_way: Iterable[tuple[Wanted, int]] = ()) -> dict[str, float]:
    """Units in use by name: of all slots (LIM-12), and of matches whose claims no ad shows yet: (what one job takes,
    how many jobs)."""
    counters = Counters(LimitConfig())
    for ad in slot_ads:
        counters.take(held_by(ad))
    for wants, jobs in under_way:
        counters.take(wants, jobs)
    return counters.in_use


def explain(config: LimitConfig, name: str, in_use: float) -> str:
    """A sentence for people: why `name` keeps a job from starting."""
    if name == TOO_MANY:
        return f"the job lists more than {MAX_NAMES} concurrency limits"
    if name in config.unreadable:
        return f"concurrency limit {name}: {name.upper()}_LIMIT = {config.unreadable[name]} is no number"
    return f"concurrency limit {name} is reached: {in_use:g} of {config.capacity(name):g} in use"
