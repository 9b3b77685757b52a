"""When to start and stop execution points: pure decisions over what waits, what is free, and which workers there are.

Work that waits for a while (`start_after_s`) gets as many workers as it would fill; a worker that has nothing to do for
a while (`idle_after_s`), while nothing waits, is drained, and stopped when it is empty. Between the two nothing is
done: that keeps workers from coming and going with every job. Workers that were started and are not there yet count as
free.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import takewhile
from types import MappingProxyType
from typing import Literal


@dataclass(frozen=True, order=True)
class Size:
    """What a job asks for, or a slot has."""

    gpus: int
    cpus: int
    memory_mib: int

    def fits(self, other: "Size") -> bool:
        return self.cpus <= other.cpus and self.memory_mib <= other.memory_mib and self.gpus <= other.gpus

    def without(self, other: "Size") -> "Size":
        return Size(self.gpus - other.gpus, self.cpus - other.cpus, self.memory_mib - other.memory_mib)


@dataclass(frozen=True)
class Worker:
    """An execution point that we started. since: when it came into this state, seconds."""

    name: str
    state: Literal["starting", "running", "draining", "dead"]
    busy: bool = False  # it has a claimed slot
    since: float = 0.0


@dataclass(frozen=True)
class Policy:
    size: Size  # of a worker
    least: int = 0
    most: int = 4
    step: int = 2  # workers started at a time
    start_after_s: float = 10.0
    idle_after_s: float = 300.0
    starting_s: float = 120.0  # a worker that is not in the pool by then has failed
    in_order: bool = False  # workers go from the last one on only


@dataclass(frozen=True)
class Memory:
    """What is remembered from one look to the next."""

    unmet_since: float | None = None
    idle_since: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True)
class Decision:
    start: int = 0
    drain: tuple[str, ...] = ()
    stop: tuple[str, ...] = ()
    why: str = ""
    unmet: int = 0  # jobs
    never: int = 0  # jobs that no worker is large enough for


def leftover(jobs: Mapping[Size, int], free: Iterable[Size]) -> dict[Size, int]:
    """Jobs that are left when the free slots are filled, the largest first, each into the first slot that has room."""
    slots = sorted(free, reverse=True)
    left = {}
    for size, count in sorted(jobs.items(), reverse=True):
        for position, slot in enumerate(slots):
            while count and size.fits(slot):
                slot = slot.without(size)
                count -= 1
            slots[position] = slot
            if not count:
                break
        if count:
            left[size] = count
    return left


def workers_for(jobs: Mapping[Size, int], size: Size, most: int) -> int:
    """How many new workers jobs would fill, `most` at most. All of them must fit on one."""
    count = 0
    while jobs and count < most:
        jobs = leftover(jobs, [size])
        count += 1
    return count


def decide(
    now: float,
    memory: Memory,
    jobs: Mapping[Size, int],
    free: Sequence[Size],
    workers: Sequence[Worker],
    policy: Policy,
) -> tuple[Decision, Memory]:
    """What to do, and what to remember. jobs: idle ones, by what they ask for; free: what free slots have, without
    those of workers that drain; workers: the first one first."""
    failed = [w for w in workers if w.state == "starting" and now - w.since > policy.starting_s]
    alive = [w for w in workers if w.state in ("starting", "running") and w not in failed]
    coming = [policy.size for w in alive if w.state == "starting"]
    left = leftover(jobs, [*free, *coming])
    never = sum(count for size, count in left.items() if not size.fits(policy.size))
    left = {size: count for size, count in left.items() if size.fits(policy.size)}
    unmet = sum(left.values())
    since = (memory.unmet_since if memory.unmet_since is not None else now) if unmet else None

    done = [w.name for w in workers if w in failed or w.state == "dead" or (w.state == "draining" and not w.busy)]
    last_first = [w.name for w in reversed(workers)]
    stop = list(takewhile(set(done).__contains__, last_first)) if policy.in_order else done
    room = policy.most - len(alive)
    start, why = 0, ""
    if len(alive) < policy.least:
        start, why = policy.least - len(alive), f"there are always {policy.least}"
    if since is not None and now - since >= policy.start_after_s and room > 0:
        needed = min(policy.step, room, workers_for(left, policy.size, room))
        if needed > start:
            start, why = needed, f"{unmet} jobs wait for {now - since:.0f} s"

    idle = {w.name: memory.idle_since.get(w.name, now) for w in alive if w.state == "running" and not w.busy}
    drain: list[str] = []
    if not jobs and not start:
        due = {name for name, since in idle.items() if now - since >= policy.idle_after_s}
        if policy.in_order:
            going = due | {w.name for w in workers if w not in alive}
            candidates = [name for name in takewhile(going.__contains__, last_first) if name in due]
        else:  # the one that is idle for the longest time first
            candidates = sorted(due, key=lambda one: (idle[one], one))
        drain = candidates[: max(0, len(alive) - policy.least)]
        if drain:
            why = f"idle for {policy.idle_after_s:g} s"
    remembered = replace(memory, unmet_since=since, idle_since=MappingProxyType(idle))
    return Decision(max(0, start), tuple(drain), tuple(stop), why, unmet, never), remembered
