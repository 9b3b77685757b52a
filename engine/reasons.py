"""Why an idle job waits, in codes and in one sentence: what the negotiator writes of a cycle, what `analyze` says of
this moment and what the journal keeps are the same words.

A slot counts under the first cause that keeps it from a job. The nearest of these causes (`nearest`) and the policy
that stopped the job, if one did, are what it waits for (`blockers`): once they are lifted it is matched.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

#: Where a slot stands towards a job, with what is said of so many slots; the nearest to running it first.
SLOTS: Final = {
    "free": "suit and are free",
    "taken": "were given to other jobs in this cycle",
    "match-under-way": "are kept for a match that is on its way",
    "no-claim-id": "have not sent their claim id yet",
    "in-use": "have too much in use for the job",
    "claimed": "are claimed",
    "consumed": "have not enough left",
    "shutting-down": "are about to shut down",
    "draining": "are being drained",
    "waking": "sleep and are to be woken",
    "offline": "sleep",
    "constraint": "are left out by NEGOTIATOR_SLOT_CONSTRAINT",
    "slot-requirements": "do not accept the job (their START or Requirements)",
    "job-requirements": "do not satisfy the job's Requirements",
}
#: The same of one slot, by the first word.
_OF_ONE: Final = {"are": "is", "do": "does", "have": "has", "sleep": "sleeps", "suit": "suits", "were": "was"}
#: What decided about a request in a cycle.
CODES: Final = {
    "no-match": "no slot suits that is free",
    "taken": "the slots that suit were given to others",
    "share": "the submitter has used up its share of the pool",
    "ceiling": "the submitter is at its ceiling",
    "quota": "the submitter's group has used up its quota",
    "limit": "a concurrency limit is reached",
    "out-of-time": "the time for this submitter, schedd or cycle was over",
}
#: Those of them that slots have no part in.
POLICIES: Final = frozenset(("share", "ceiling", "quota", "limit", "out-of-time"))
#: Where all slots stand so, no wait helps: the job or the pool has to change.
NEVER: Final = frozenset(("slot-requirements", "job-requirements", "constraint"))
#: How the sentence about such a job begins.
CAN_NOT_RUN: Final = "can not run"
#: What slots of these causes wait for is other jobs' end.
_BUSY: Final = ("claimed", "in-use", "consumed")

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Amount:
    """A resource of the slots that would suit a job if nothing of them were in use. asked: by the job, of one slot.
    whole, free: of all these slots together; most: the most that is free on one. short: slots with less free than is
    asked. Memory in MiB, disk in KiB, else pieces."""

    name: str
    asked: float
    whole: float
    free: float
    most: float
    short: int


def amounts(
    asked: Mapping[str, float],
    whole: Callable[[str], Floats],
    left: Callable[[str], Floats],
    rows: Mask,
) -> tuple[Amount, ...]:
    """What is short on these rows, the one that is so on most of them first. `asked`: by name, of what slots are
    divided into; `whole` and `left` give a number for each row of the table."""
    found = []
    for name, wanted in asked.items():
        has = left(name)[rows]
        short = int(np.count_nonzero(has < wanted))
        if short:
            found.append(
                Amount(name, wanted, float(whole(name)[rows].sum()), float(has.sum()), float(has.max()), short)
            )
    return tuple(sorted(found, key=lambda one: -one.short))


def nearest(counts: Mapping[str, int]) -> str:
    """The cause that is nearest to running the job; "" without slots."""
    return next((code for code in SLOTS if counts.get(code)), "")


def blockers(code: str, counts: Mapping[str, int]) -> tuple[str, ...]:
    """What has to be lifted before a cycle matches the job: a policy (of POLICIES, or "taken" as `code` says) and,
    where no slot suits that is free, the nearest cause of SLOTS; "no-slots" where there are none. Empty: the next
    cycle matches it."""
    cause = nearest(counts) or "no-slots"
    found = [code] if code in POLICIES else []
    if cause not in ("free", "taken") or (cause == "taken" and not found):
        found.append(cause)
    return tuple(found)


def wait(counts: Mapping[str, int], short: Iterable[Amount] = (), *, spared: bool = False) -> str:
    """What a job waits for as far as slots go, as the end of "it ...". `short`: what is short on slots in use, if that
    is known. spared: some that are busy may be preempted, but none of them by this job."""
    cause = nearest(counts)
    number = counts.get(cause, 0)
    if not cause:
        return f"{CAN_NOT_RUN}: there are no slots in the pool"
    if cause in _BUSY:
        return _busy(counts, next(iter(short), None), spared)
    if cause == "free":
        return f"could run on {slots(number)}"
    if cause in NEVER:
        return f"{CAN_NOT_RUN} on any slot as things are"
    return f"waits for a slot: {said(cause, number)}"


def _busy(counts: Mapping[str, int], short: Amount | None, spared: bool) -> str:
    suit = sum(counts.get(code, 0) for code in _BUSY)
    if short is None:
        text = f"waits for a slot: {suit} of {suit} that suit {'is' if suit == 1 else 'are'} claimed"
    else:
        claimed = short.whole - short.free
        text = f"waits for {_asked(short)}: {amount(short.name, claimed)} of {amount(short.name, short.whole)} "
        text += "is claimed" if short.name.lower() in _MEASURED else "are claimed"
        if short.free > 0 and short.asked > 1:
            text += f", and the most that one slot has free is {amount(short.name, short.most)}"
    return f"{text}; it may preempt none of the jobs that run there" if spared else text


_MEASURED: Final = {"memory": 1 << 20, "disk": 1 << 10}  # in so many bytes
_UNITS: Final = ("KiB", "MiB", "GiB", "TiB", "PiB")


def _asked(short: Amount) -> str:
    key = short.name.lower()
    if key in _MEASURED:
        return f"{amount(short.name, short.asked)} of {key}"
    if key == "cpus":
        return "a cpu" if short.asked == 1 else f"{short.asked:g} cpus on one machine"
    return f"{short.asked:g} {short.name}" + ("" if short.asked == 1 else " on one machine")


def amount(name: str, value: float) -> str:
    """So much of a resource: memory and disk with a unit."""
    size = _MEASURED.get(name.lower())
    if size is None:
        return f"{value:g}"
    number, place = value * size / 1024, 0
    while number >= 1024 and place < len(_UNITS) - 1:
        number, place = number / 1024, place + 1
    return f"{number:.4g} {_UNITS[place]}"


def counted(counts: Mapping[str, int], total: int) -> str:
    """How many slots there are and where they stand, most first."""
    if total == 0:
        return "there are no slots in the pool"
    parts = [said(code, number) for code, number in sorted(counts.items(), key=lambda one: -one[1]) if number]
    return f"of {slots(total)}, " + ", ".join(parts)


def explained(counts: Mapping[str, int], total: int, short: Iterable[Amount] = (), *, spared: bool = False) -> str:
    """One sentence, and the counts behind it."""
    if total == 0:
        return counted(counts, total)
    return f"{wait(counts, short, spared=spared)} ({counted(counts, total)})"


def slots(number: int) -> str:
    return "1 slot" if number == 1 else f"{number} slots"


def said(code: str, number: int) -> str:
    """What is said of so many slots."""
    if number != 1:
        return f"{number} {SLOTS[code]}"
    verb, _, rest = SLOTS[code].partition(" ")
    words = rest.replace("their", "its").replace("and are ", "and is ")
    return f"1 {_OF_ONE[verb]} {words}".rstrip()
