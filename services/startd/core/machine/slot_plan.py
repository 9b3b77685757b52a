"""What a machine has and how it is divided: from knobs, what was detected, and what inventory programs said."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from engine.slots.amounts import CPUS, DISK, MEMORY, STANDARD, Amounts, Number
from engine.slots.carving import PlannedSlot
from services.startd.core.machine.detected import Detected
from services.startd.core.machine.resources import Output, Stock, picker, take_stock
from services.startd.core.machine.slot_types import ImpossiblePartition, Partition, divide, slot_types
from shared.config import Config
from shared.config.evaluate import number
from shared.config.knobs import StartdSettings

_KIB_PER_MIB = 1024


@dataclass(frozen=True, slots=True)
class SlotPlan:
    amounts: Amounts  # of the whole machine
    stock: Stock
    slots: list[PlannedSlot]
    partitions: Mapping[str, int]  # what the file systems of EXECUTE have, KiB


def plan_slots(
    config: Config,
    detected: Detected,
    disk_of: Callable[[str], Partition],
    outputs: Mapping[str, Output] | None = None,
) -> SlotPlan:
    """The machine as the administrator lets the pool have it (NUM_CPUS, MEMORY, RESERVED_*, MACHINE_RESOURCE_*), in
    slots. `disk_of` a directory tells the file system it is on, and what is free there. Raises ConfigError,
    ImpossiblePartition."""
    knobs = StartdSettings.from_config(config)
    if knobs.num_cpus < 1:
        raise ImpossiblePartition(f"NUM_CPUS = {knobs.num_cpus}: a machine has at least one core")
    memory = (knobs.memory or detected.memory_mib) - knobs.reserved_memory
    if memory < 1:
        knob = "MEMORY" if (knobs.memory or 0) < 0 else "RESERVED_MEMORY"
        raise ImpossiblePartition(f"{knob} leaves {memory} MiB of memory for jobs: it must leave 1 MiB at least")
    stock = take_stock(config, outputs or {})
    where = disks(config, disk_of)
    of: dict[str, Number] = {CPUS: knobs.num_cpus, MEMORY: memory, DISK: where[0].total_kib}
    machine = Amounts(of | dict(stock.amounts().of), stock.amounts().ids)
    custom = [name for name in machine if name not in STANDARD]
    types = slot_types(config.get, number, knobs.num_cpus, custom)
    slots = divide(machine, types, partition_of=lambda slot_id: where.get(slot_id, where[0]), pick=picker(stock))
    return SlotPlan(machine, stock, slots, {one.key: one.total_kib for one in where.values()})


def disks(config: Config, disk_of: Callable[[str], Partition]) -> dict[int, Partition]:
    """What jobs may have of the file systems, by slot id; 0 for all slots that are not there. RESERVED_DISK is MiB,
    Disk KiB."""
    knobs = StartdSettings.from_config(config)
    found = {}
    for slot_id, path in execute_directories(config).items():
        there = disk_of(path)
        total = knobs.disk if knobs.disk is not None else there.total_kib - _KIB_PER_MIB * knobs.reserved_disk
        found[slot_id] = Partition(there.key, max(0, total))
    return found


def execute_directories(config: Config) -> dict[int, str]:
    """EXECUTE by slot id; 0 for all slots that are not there (SLOT<N>_EXECUTE, SLT-08)."""
    found = {0: config.get("EXECUTE") or ""}
    for name in config.names():
        middle = name.removeprefix("slot").removesuffix("_execute")
        if name == f"slot{middle}_execute" and middle.isdigit() and (path := config.get(name)):
            found[int(middle)] = path
    return found
