"""What a job's ad keeps of the machines that it ran on: MachineAttr<Name>0 of this run, 1 of the one before, and so on;
and how much of each resource its slot has, CpusProvisioned, MemoryProvisioned and so on.

`job_machine_attrs` names attributes of the slot, and SYSTEM_JOB_MACHINE_ATTRS names those of all jobs. No I/O.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from engine.queue.jobs import Job
from shared.classad import UNDEFINED, ClassAd, Expr
from shared.classad.ad import is_private
from shared.classad.budget import policies
from shared.classad.cells import Cell
from shared.classad.expr import AttrRef, Literal, fold
from shared.config.knobs.base import to_list

PREFIX: Final = "MachineAttr"
#: More names, and more runs, are left out.
MOST_NAMES: Final = 100
MOST_RUNS: Final = 100
#: What slots have of the machine's own, beside custom resources (MachineResources).
_STANDARD: Final = ("Cpus", "Memory", "Disk")
_NOT_PROVISIONED: Final = frozenset(("swap", *map(fold, _STANDARD)))
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}")


@dataclass(frozen=True, slots=True)
class MachineAttributes:
    """SYSTEM_JOB_MACHINE_ATTRS and SYSTEM_JOB_MACHINE_ATTRS_HISTORY_LENGTH."""

    names: tuple[str, ...] = ("Cpus", "SlotWeight")
    runs: int = 1


def note_machine(job: Job, slot: ClassAd, of_all: MachineAttributes, now: float, *, again: bool = False) -> None:
    """Note the machine of a run that begins; what is known of earlier ones moves on by one. again: of the same run,
    whose slot is known better now."""
    for name, runs in _wanted(job, of_all).items():
        if not again:
            for number in range(runs - 1, 0, -1):
                before = job.ad.find(fold(f"{PREFIX}{name}{number - 1}"))
                if before is not None:
                    job.ad[f"{PREFIX}{name}{number}"] = before
        cell = _plain(slot, fold(name))
        if isinstance(cell, Expr):  # else there is nothing to evaluate, nor to hold to a budget
            with policies("a machine attribute").open():
                job.ad[f"{PREFIX}{name}0"] = slot.eval(name, job.ad, now)
        else:
            job.ad[f"{PREFIX}{name}0"] = UNDEFINED if cell is None else cell
    _note_provisioned(job, slot)


def _plain(slot: ClassAd, key: str) -> Cell | None:
    """An attribute of a slot, and of one that only names another (SlotWeight is Cpus, mostly) that other, if that is a
    plain value."""
    cell = slot.find(key)
    if isinstance(cell, AttrRef) and cell.scope is None and not cell.absolute:
        named = slot.find(cell.key)
        if named is not None and not isinstance(named, Expr):
            return named
    return cell


def _note_provisioned(job: Job, slot: ClassAd) -> None:
    """<Resource>Provisioned: what the slot of the run has, which may be more than the job asked for."""
    named = _constant(slot, "machineresources")
    more = [] if not isinstance(named, str) else [name for name in named.split() if fold(name) not in _NOT_PROVISIONED]
    for name in (*_STANDARD, *more[:MOST_NAMES]):
        cell = _constant(slot, fold(name))
        if isinstance(cell, int | float) and _NAME.fullmatch(name):
            job.ad[f"{name}Provisioned"] = cell


def _constant(slot: ClassAd, key: str) -> object:
    """What a slot says outright, without an expression."""
    cell = slot.find(key)
    return cell.value if isinstance(cell, Literal) else cell


def _wanted(job: Job, of_all: MachineAttributes) -> dict[str, int]:
    """Names, each with the number of runs that are kept; 0 keeps none."""
    length = job.ad.eval("JobMachineAttrsHistoryLength")
    own = min(length, MOST_RUNS) if isinstance(length, int) and not isinstance(length, bool) else of_all.runs
    found: dict[str, tuple[str, int]] = {}
    for names, runs in ((of_all.names, of_all.runs), (to_list(job.ad.eval_string("JobMachineAttrs")), own)):
        for name in names[:MOST_NAMES]:
            key = fold(name)
            if runs > 0 and _NAME.fullmatch(name) and not is_private(key):
                first, most = found.get(key, (name, 0))
                found[key] = first, max(most, runs)
    return dict(found.values())
