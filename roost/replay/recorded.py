"""What the journal recorded of an interval, as a replay takes it. No I/O."""

from __future__ import annotations

import base64
import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from roost.errors import ClientError
from shared.classad import ClassAd


@dataclass(frozen=True, slots=True)
class Work:
    """An offer of work (services/journal/core/replay.py). kind: key of Recording.kinds. runs_s: how long it runs,
    guessed where `guessed`; slot: it ran there as the interval began. waited_s, ran_s, started, ended: in truth."""

    schedd: str
    cluster: int
    proc: int
    submitter: str
    kind: str
    at: float
    until: float | None
    runs_s: float
    slot: str
    waited_s: float
    ran_s: float
    started: float
    ended: bool
    guessed: bool = False

    @property
    def name(self) -> str:
        return f"{self.cluster}.{self.proc}"


@dataclass(slots=True)
class Recording:
    """An interval. slots: by name (since, ad); ad None: gone from then on. standings: by submitter, as the journal has
    them. knobs: of the negotiator that was in force. start_s: from a match to a running job. guesses: offers whose
    length nobody knows; odd: offers that can not be replayed, as nothing is recorded of what they asked for."""

    start: float
    end: float
    shard: str
    knobs: Mapping[str, str]
    knob_changes: int
    slots: dict[str, list[tuple[float, ClassAd | None]]]
    work: list[Work]
    kinds: dict[str, ClassAd]
    standings: Mapping[str, Mapping[str, Any]]
    cycles: int
    start_s: float
    recorded_since: float
    guesses: int = 0
    odd: int = 0


@dataclass(slots=True)
class _Raw:
    first: Mapping[str, Any] = field(default_factory=dict)
    slots: dict[str, list[list[Any]]] = field(default_factory=dict)
    offers: list[list[Any]] = field(default_factory=list)
    kinds: dict[str, str] = field(default_factory=dict)


def read(parts: Iterable[Mapping[str, Any]]) -> Recording:
    """Put the parts of an answer together. Raises ClientError where nothing can be made of them."""
    raw = _Raw()
    for part in parts:
        raw.first = raw.first or part
        raw.slots.update(part.get("slots", {}))
        raw.offers += part.get("offers", [])
        raw.kinds.update(part.get("kinds", {}))
    try:
        return _recording(raw)
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise ClientError(f"the journal's record can not be read: {type(error).__name__}: {error}") from error


def _recording(raw: _Raw) -> Recording:
    first = raw.first
    kinds = {key: ClassAd.unpack(base64.b64decode(ad)).check() for key, ad in raw.kinds.items() if ad}
    slots = {
        name: [(float(at), ClassAd.unpack(data) if (data := base64.b64decode(ad)) else None) for at, ad in listed]
        for name, listed in raw.slots.items()
    }
    guess = _Guess(raw.offers)
    work, odd, guesses = [], 0, 0
    for schedd, cluster, proc, submitter, number, at, until, runs_s, slot, waited, ran, started, ended in raw.offers:
        kind = f"{schedd}/{number}"
        if kind not in kinds:
            odd += 1
            continue
        guessed = runs_s is None
        guesses += guessed and until is None
        length = guess.of(submitter, kind, ran) if guessed else float(runs_s)
        work.append(
            Work(schedd, cluster, proc, submitter, kind, at, until, length, slot, waited, ran, started, ended, guessed)
        )
    work.sort(key=lambda one: (one.at, one.cluster, one.proc))
    return Recording(
        start=float(first["start"]),
        end=float(first["end"]),
        shard=first["shard"],
        knobs=first["policy"]["knobs"],
        knob_changes=len(first["policy_changes"]),
        slots=slots,
        work=work,
        kinds=kinds,
        standings=first["standings"],
        cycles=int(first["cycles"]),
        start_s=float(first["start_s"]),
        recorded_since=float(first["recorded_since"]),
        guesses=guesses,
        odd=odd,
    )


class _Guess:
    """How long a job may run of which that is not recorded: the median of its kind, of its submitter, of all; and no
    less than it has run already."""

    def __init__(self, offers: Iterable[list[Any]]) -> None:
        known: dict[str, list[float]] = {}
        for offer in offers:
            schedd, submitter, number, runs_s = offer[0], offer[3], offer[4], offer[7]
            if runs_s is not None:
                for key in (f"{schedd}/{number}", submitter, ""):
                    known.setdefault(key, []).append(float(runs_s))
        self._medians = {key: statistics.median(values) for key, values in known.items()}

    def of(self, submitter: str, kind: str, ran: float) -> float:
        found = self._medians.get(kind, self._medians.get(submitter, self._medians.get("", 600.0)))
        return max(found, float(ran))
