"""Slots as the plain cycle has them: their weight, and what a job takes of a partitionable one."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field

from engine.match.model import CycleConfig
from shared.classad import ClassAd, evaluate, half_match
from shared.consumption import Shortage, as_consumed, consumption, has_policy


@dataclass
class PlainSlot:
    """ad: as it stands now. usable: it may be given away, whoever has it. user: whose priority counts (PRE-06).
    charged: whose use it is. ephemeral: what only the cycle knows."""

    name: str
    ad: ClassAd
    weight: float
    partitionable: bool
    claimed: bool
    usable: bool
    user: str
    charged: str
    children: list[PlainSlot] = field(default_factory=list)
    taken: bool = False
    ephemeral: ClassAd = field(default_factory=ClassAd)

    def seen(self) -> ClassAd:
        ad = self.ad.copy()
        ad.update(self.ephemeral)
        return ad


def natural(name: str) -> list[str | int]:
    """slot2 before slot10."""
    return [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", name)]


def number(value: object, nothing: float = 0.0) -> float:
    """A rank: what is no number counts `nothing` (CLA-25)."""
    if isinstance(value, bool | int | float) and not math.isnan(value):
        return float(value)
    return nothing


def weight_of(ad: ClassAd, config: CycleConfig, now: float) -> float:
    """NEG-37."""
    if not config.use_slot_weights:
        return 1.0
    if "SlotWeight" in ad and not config.force_slot_weight:
        value = ad.eval("SlotWeight", now=now)
    elif config.slot_weight is not None:
        value = evaluate(config.slot_weight, ad, now=now)
    else:
        value = ad.eval("Cpus", now=now)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1e9:
        return 1.0
    return float(value)


def without_part(whole: ClassAd, seen: ClassAd, job: ClassAd, now: float) -> ClassAd | None:
    """A partitionable slot's ad after the job has its part; None: it does not match, or fit. seen: the ad with what
    only the cycle knows."""
    taken: dict[str, int | float]
    if has_policy(whole):
        amounts = consumption(job, seen, now)
        if isinstance(amounts, Shortage):
            return None
        job, taken = as_consumed(job, amounts), amounts
    else:
        found = _carved(seen, job, now)
        if found is None:
            return None
        taken = found
    if not half_match(job, seen, now=now) or not half_match(seen, job, now=now):
        return None
    after = whole.copy()
    for name, amount in taken.items():
        there = whole.eval(name, now=now)
        assert isinstance(there, int | float)
        rest = there - amount
        after[name] = int(rest) if isinstance(rest, float) and rest.is_integer() else rest  # as the startd has it
    return after


def is_full(slot: PlainSlot) -> bool:
    """A partitionable slot without a core left; by a policy of its own a job may do without."""
    cpus = slot.ad.eval("Cpus")
    return slot.partitionable and not has_policy(slot.ad) and isinstance(cpus, int | float) and cpus < 1


def is_part_of(child: PlainSlot, slot: PlainSlot) -> bool:
    """slot1_2@host is a dynamic slot of slot1@host."""
    own, _, host = slot.name.partition("@")
    its, _, its_host = child.name.partition("@")
    return slot.partitionable and host == its_host and its.startswith(f"{own}_")


def _carved(slot: ClassAd, job: ClassAd, now: float) -> dict[str, int | float] | None:
    """What the startd carves out for a job by default: whole cpus, 128 MiB, 1 MiB of disk, custom resources as asked;
    where that does not fit, the plain request (SLT-18)."""
    taken: dict[str, int | float] = {}
    for name, quantum, default in (("Cpus", 1, 1), ("Memory", 128, 0), ("Disk", 1024, 0)):
        there = slot.eval(name, now=now)
        if not isinstance(there, int | float):
            continue
        asked = job.eval(f"Request{name}", slot, now)
        if not isinstance(asked, int | float) or isinstance(asked, bool):
            asked = default
        if not math.isfinite(asked):
            return None
        plain = max(1 if name.lower() in ("cpus", "memory") else 0, math.ceil(asked))
        rounded = math.ceil(plain / quantum) * quantum
        taken[name] = rounded if rounded <= there else plain
        if taken[name] > there:
            return None
    machine = slot.eval("MachineResources", now=now)
    for name in machine.replace(",", " ").split() if isinstance(machine, str) else ():
        asked = job.eval(f"Request{name}", slot, now)
        if name.lower() in ("cpus", "memory", "disk", "swap") or isinstance(asked, bool):
            continue
        if isinstance(asked, int | float) and asked > 0:
            there = slot.eval(name, now=now)
            if not isinstance(there, int | float) or asked > there:
                return None
            taken[name] = asked
    return taken
