"""What a job's cgroup limits, and the files that say so in both versions of cgroups. Pure (ISO-06 to ISO-13).

Sizes are bytes. None is no limit.
"""

from __future__ import annotations

from dataclasses import dataclass

from services.startd.walls.rules import WallRules

MIB = 1024 * 1024
#: cpu.shares, and cpu.weight, for each core.
SHARES_OF_A_CORE = 100
_LEAST_SHARES, _MOST_SHARES = 2, 262144
_LEAST_WEIGHT, _MOST_WEIGHT = 1, 10000


@dataclass(frozen=True, slots=True)
class Limits:
    memory_hard: int | None
    memory_soft: int | None
    swap: int | None  # beside the memory; None: as much as there is
    cpu_shares: int
    processes: int | None


def limits_of(rules: WallRules, cpus: float, memory_mib: int, virtual_kib: int | None) -> Limits:
    """The limits of a job in a slot of this size. `virtual_kib`: the slot's VirtualMemory.

    hard: the slot's memory, softly nine tenths of it (ISO-06); soft: the machine's, softly the slot's (ISO-07);
    none: no limit (ISO-08). Swap is what VirtualMemory is more than Memory (ISO-12).
    """
    slot = memory_mib * MIB
    hard: int | None
    soft: int | None
    if not slot:  # a consumption policy may give none of a resource (CON-02), and still nothing runs without memory
        hard = soft = None
    elif rules.memory_policy == "hard":
        hard, soft = slot, slot * 9 // 10
    elif rules.memory_policy == "soft":
        hard, soft = max(slot, rules.machine_memory_mib * MIB), slot
    else:
        hard = soft = None
    swap: int | None = None
    if rules.no_swap:
        swap = 0
    elif hard is not None and virtual_kib is not None:
        swap = max(0, virtual_kib * 1024 - slot)
    shares = min(max(round(SHARES_OF_A_CORE * cpus), _LEAST_SHARES), _MOST_SHARES)
    return Limits(hard, soft, swap, shares, rules.most_processes or None)


def files_of_version_1(limits: Limits) -> list[tuple[str, str, str]]:
    """(controller, file, text), in the order in which they must be written. A limit on memory and swap together may
    not be below one on memory alone, so it is lifted first."""
    hard = limits.memory_hard
    found = [("memory", "memory.memsw.limit_in_bytes", "-1"), ("memory", "memory.limit_in_bytes", _or(hard, "-1"))]
    if hard is not None and limits.swap is not None:
        found.append(("memory", "memory.memsw.limit_in_bytes", str(hard + limits.swap)))
    if hard is None and limits.swap == 0:
        found.append(("memory", "memory.swappiness", "0"))
    found.append(("memory", "memory.soft_limit_in_bytes", _or(limits.memory_soft, "-1")))
    found.append(("cpu", "cpu.shares", str(limits.cpu_shares)))
    found.append(("pids", "pids.max", _or(limits.processes, "max")))
    return found


def files_of_version_2(limits: Limits) -> list[tuple[str, str, str]]:
    """The same of version 2. memory.high throttles a job rather than to warn its machine, so what is soft is
    memory.low, the memory that is not taken from it while others have more than theirs: nine tenths of a hard
    limit, or the slot's memory. What dies, dies whole (memory.oom.group)."""
    return [
        ("memory", "memory.max", _or(limits.memory_hard, "max")),
        ("memory", "memory.low", _or(limits.memory_soft, "0")),
        ("memory", "memory.swap.max", _or(limits.swap, "max")),
        ("memory", "memory.oom.group", "1"),
        ("cpu", "cpu.weight", str(weight_of(limits.cpu_shares))),
        ("pids", "pids.max", _or(limits.processes, "max")),
    ]


def weight_of(shares: int) -> int:
    """cpu.weight of these cpu.shares: the same number as far as it goes. Only the relation between jobs counts, since
    none but them are in their parent."""
    return min(max(shares, _LEAST_WEIGHT), _MOST_WEIGHT)


def _or(number: int | None, otherwise: str) -> str:
    return otherwise if number is None else str(number)


def group_name(execute: str, slot: str, hostname: str) -> str:
    """The name of a slot's cgroup (ISO-05): `condor_var_lib_condor_execute_slot1`. The slot's machine is named where
    it is another than this one's, because several startds may share the directory."""
    name, _, machine = slot.partition("@")
    if machine and machine != hostname:
        name = f"{name}@{machine}"
    return f"condor{execute}_{name}".replace("/", "_").replace("\0", "_")
