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
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import repeat
from typing import Final

import numpy as np
from numpy.typing import NDArray

from shared.classad import ClassAd
from shared.classad.columnar import Table
from shared.classad.columnar.column import OTHER, STRING
from shared.job_limits import MAX_NAMES, TOO_MANY, Wanted, parse, text_of

#: HTCondor's number for "no limit", which CONCURRENCY_LIMIT_DEFAULT has where nobody sets it (LIM-04).
NO_LIMIT: Final = 2308032
#: Where the ad of a claimed slot tells what is in use, folded.
SHOWN: Final = ("concurrencylimits", "preemptingconcurrencylimits")
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


class LimitCounters:
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
        """Count so many jobs that were matched."""
        for name, units in wants:
            self.in_use[name] = self.in_use.get(name, 0.0) + units * jobs

    def give_back(self, wants: Wanted, jobs: int = 1) -> None:
        """Take back so many jobs that do not start after all."""
        for name, units in wants:
            left = self.in_use.get(name, 0.0) - units * jobs
            if left > _TOLERANCE:
                self.in_use[name] = left
            else:
                self.in_use.pop(name, None)


@dataclass(frozen=True, slots=True)
class WantedBySlot:
    """What each job of a request takes, slot by slot (LIM-08). wants: the different ones; kind: (n,) which of them, by
    row of the slot table; None: the first of all."""

    wants: Sequence[Wanted]
    kind: NDArray[np.intp] | None = None

    @classmethod
    def of(cls, rows: NDArray[np.intp], texts: Sequence[str | None], size: int) -> WantedBySlot:
        """For some of `size` rows, what ConcurrencyLimits is there; None: no string."""
        codes = {text: code for code, text in enumerate(dict.fromkeys(texts))}
        kind = np.zeros(size, np.intp)
        kind[rows] = [codes[text] for text in texts]
        return cls([parse(text or "") for text in codes], kind)

    def on(self, row: int) -> Wanted:
        return self.wants[0 if self.kind is None else int(self.kind[row])]

    def texts(self, rows: NDArray[np.intp]) -> Iterable[str]:
        """As matches carry it, for each of these rows; endless where it is the same for all."""
        texts = [text_of(wants) for wants in self.wants]
        return repeat(texts[0]) if self.kind is None else [texts[kind] for kind in self.kind[rows].tolist()]

    def take(self, counters: LimitCounters, rows: NDArray[np.intp]) -> None:
        """Count one job on each of these rows."""
        if self.kind is None:
            counters.take(self.wants[0], len(rows))
            return
        for wants, jobs in zip(self.wants, np.bincount(self.kind[rows], minlength=len(self.wants)), strict=True):
            if jobs:
                counters.take(wants, int(jobs))

    def with_room(self, counters: LimitCounters, rows: NDArray[np.intp]) -> tuple[NDArray[np.bool_], str]:
        """(m,) bool: on which of these rows a job may start, and the full limit of the first on which none may."""
        full = [counters.blocking(wants) for wants in self.wants]
        kinds = np.zeros(len(rows), np.intp) if self.kind is None else self.kind[rows]
        room: NDArray[np.bool_] = np.array([not name for name in full], np.bool_)[kinds]
        return room, "" if room.all() else full[kinds[int(room.argmin())]]

    def together(self, counters: LimitCounters, rows: NDArray[np.intp]) -> int:
        """How many of these rows, from the first on, may have a job each."""
        most = len(rows)
        kinds = np.zeros(most, np.intp) if self.kind is None else self.kind[rows]
        for name in dict.fromkeys(name for wants in self.wants for name, _ in wants):
            left = counters.config.capacity(name) - counters.in_use.get(name, 0.0)
            if left < math.inf:
                units = np.array([dict(wants).get(name, 0.0) for wants in self.wants])[kinds[:most]]
                over = (units > 0.0) & (units.cumsum() > left + _TOLERANCE)
                most = int(over.argmax()) if over.any() else most
        return most


def held_by(slot_ad: ClassAd) -> Wanted:
    """What a slot's ad says its claim holds, and a claim that waits to preempt it (LIM-12)."""
    texts = [
        text
        for name in SHOWN
        if isinstance(text := slot_ad.eval(name) if slot_ad.find(name) is not None else None, str)
    ]
    if len(texts) < 2:
        return parse(texts[0]) if texts else ()
    both = LimitCounters(LimitConfig())
    for text in texts:
        both.take(parse(text))
    return tuple(both.in_use.items())


def counts_of(slot_ads: Iterable[ClassAd], under_way: Iterable[tuple[Wanted, int]] = ()) -> dict[str, float]:
    """Units in use by name: of all slots (LIM-12), and of matches whose claims no ad shows yet: (what one job takes,
    how many jobs)."""
    counters = LimitCounters(LimitConfig())
    for ad in slot_ads:
        counters.take(held_by(ad))
    for wants, jobs in under_way:
        counters.take(wants, jobs)
    return counters.in_use


def counts_in(table: Table, under_way: Iterable[tuple[Wanted, int]] = ()) -> dict[str, float]:
    """As `counts_of`, of the slots of a columnar table: each different text is read once. Some ms for 100,000 slots."""
    counters = LimitCounters(LimitConfig())
    table.want(SHOWN)
    unusual: set[int] = set()
    for name in SHOWN:
        column = table.columns[name]
        if not column.tags & (1 << STRING | 1 << OTHER):
            continue
        codes, numbers = np.unique(column.code[column.tag == STRING], return_counts=True)
        for code, number in zip(codes.tolist(), numbers.tolist(), strict=True):
            counters.take(parse(table.codes.texts[code]), number)
        unusual.update(np.flatnonzero(column.tag == OTHER).tolist())
    for row in unusual:  # an expression, or a text that was written as one
        ad = table.ad(row)
        for name in SHOWN:
            column = table.columns[name]
            if column.tag[row] == OTHER and isinstance(text := ad.eval(name), str):
                counters.take(parse(text))
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
