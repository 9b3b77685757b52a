"""Which cores a job is bound to: ASSIGN_CPU_AFFINITY, ENFORCE_CPU_AFFINITY and SLOT<N>_CPU_AFFINITY. Pure."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from shared.classad import ClassAd, Expr, evaluate
from shared.classad.expr import Literal


@dataclass(frozen=True, slots=True)
class CpuAffinity:
    """assign: looked at in the job's ad; where it is true, the job gets as many cores of its own as its slot has.
    enforce: jobs of slot N are bound to `by_slot[N]`, where the administrator lists cores for it, else as by assign."""

    assign: Expr = field(default_factory=lambda: Literal(False))
    enforce: bool = False
    by_slot: Mapping[int, tuple[int, ...]] = field(default_factory=dict)

    def cores(
        self, job: ClassAd, slot_id: int, cpus: float, machine: Sequence[int], in_use: Iterable[Collection[int]]
    ) -> tuple[int, ...]:
        """The cores for a job; none: it is not bound. cpus: of its slot. machine: the cores that there are. in_use:
        those of each other job that runs."""
        if evaluate(self.assign, job) is True:
            return free_cores(machine, in_use, cpus)
        if not self.enforce:
            return ()
        listed = self.by_slot.get(slot_id)
        return listed if listed is not None else free_cores(machine, in_use, cpus)


def free_cores(machine: Sequence[int], in_use: Iterable[Collection[int]], cpus: float) -> tuple[int, ...]:
    """The cores that fewest other jobs have, as many as `cpus` begins, those with the lowest numbers first. Where a
    machine offers more cores than it has, some are shared."""
    jobs = Counter(core for cores in in_use for core in cores)
    wanted = min(len(machine), max(1, math.ceil(cpus)))
    return tuple(sorted(sorted(machine, key=lambda core: (jobs[core], core))[:wanted]))


def listed_cores(text: str, machine: Sequence[int]) -> tuple[int, ...]:
    """The cores of `0, 2-3`. Raises ValueError, with the mend, for what is no such list or names none of the machine's.

    machine: empty where it is not known which there are."""
    cores: set[int] = set()
    for item in filter(None, re.split(r"[\s,]+", text)):
        found = re.fullmatch(r"(\d{1,5})(?:-(\d{1,5}))?", item)
        if found is None:
            raise ValueError(f"{item} is no core: give numbers from 0 on, with commas between them")
        cores.update(range(int(found[1]), int(found[2] or found[1]) + 1))
    missing = sorted(cores.difference(machine)) if machine else []
    if missing:
        raise ValueError(f"there is no core {missing[0]}: this startd may use {', '.join(map(str, machine))}")
    return tuple(sorted(cores))
