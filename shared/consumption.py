"""Consumption policies: what a job takes out of a partitionable slot, by the slot's own expressions.

A slot has a policy if its ad has Consumption<resource> for each of its MachineResources. The startd carves by it, and
the negotiator foresees it, so several jobs get their part of the slot in one cycle:

    amounts = consumption(job, slot)          # {"Cpus": 2, "Memory": 256, "Disk": 1024}, or a Shortage
    half_match(slot, as_consumed(job, amounts))

Pure. Spec rows CON-01 to CON-07.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from shared.classad import ClassAd, Expr, parse_expr
from shared.classad.expr import fold

Number = int | float

PREFIX: Final = "Consumption"
#: Where `as_consumed` keeps what the job asked for itself.
ORIGINAL_PREFIX: Final = "_cp_orig_Request"


@dataclass(frozen=True, slots=True)
class Shortage:
    """Why a slot's policy gives a job nothing. resource: the one that is short; empty: none in particular."""

    reason: str
    resource: str = ""


def resources(slot: ClassAd) -> tuple[str, ...]:
    """What the slot's machine has, as MachineResources names it, without swap."""
    names = slot.eval("MachineResources")
    if not isinstance(names, str):
        return ()
    return tuple(name for name in names.replace(",", " ").split() if name.lower() != "swap")


def has_policy(slot: ClassAd) -> bool:
    """Whether the slot says what jobs consume: of every resource, or it has no policy."""
    if slot.find("consumptioncpus") is None:  # nearly all slots, at the price of one look
        return False
    return all(slot.find(fold(PREFIX + name)) is not None for name in resources(slot))


@lru_cache(maxsize=64)
def within_limits(names: tuple[str, ...]) -> Expr:
    """WithinResourceLimits of a slot with a policy: true of jobs that fit, as they are and `as_consumed`."""
    each = (
        f"ifThenElse(TARGET.{ORIGINAL_PREFIX}{name} isnt undefined, TARGET.Request{name} <= MY.{name}, "
        f"MY.{PREFIX}{name} <= MY.{name})"
        for name in names
    )
    return parse_expr(" && ".join(each))


def consumption(job: ClassAd, slot: ClassAd, now: float | None = None) -> dict[str, Number] | Shortage:
    """What the job takes of each resource of a slot that has a policy (CON-02, CON-05), if there is enough (CON-04).

    A request that the job does not make counts 0. An expression that is no number of 0 or more gives nothing, and so
    does a policy by which the job takes nothing at all.
    """
    names = resources(slot)
    asking = job
    missing = [name for name in names if job.find(fold(f"Request{name}")) is None]
    if missing:
        asking = ClassAd({f"Request{name}": 0 for name in missing})
        asking.chain(job)
    amounts: dict[str, Number] = {}
    for name in names:
        amount = _amount(slot.eval(PREFIX + name, asking, now))
        if amount is None:
            return Shortage(f"the slot's {PREFIX}{name} is no number of 0 or more for this job", name)
        there = slot.eval(name)
        if not isinstance(there, int | float) or amount > there:
            left = there if isinstance(there, int | float) else 0
            return Shortage(f"not enough is left of the slot: {name} {amount} of {left} left", name)
        amounts[name] = amount
    if not any(amounts.values()):
        return Shortage("by the slot's consumption policy the job takes nothing of it")
    return amounts


def as_consumed(job: ClassAd, amounts: Mapping[str, Number]) -> ClassAd:
    """The job with its requests replaced by what it consumes, as Requirements are to see it (CON-07). Requests that the
    job does not make stay away. The job itself is not changed."""
    seen = ClassAd()
    for name, amount in amounts.items():
        request = job.lookup(f"Request{name}")
        if request is not None:
            seen[f"{ORIGINAL_PREFIX}{name}"] = request
            seen[f"Request{name}"] = amount
    merged = job.copy()
    merged.update(seen)
    return merged


def _amount(value: object) -> Number | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return int(value) if isinstance(value, bool) else None
    if not 0 <= value < math.inf:
        return None
    return int(value) if float(value).is_integer() else value
