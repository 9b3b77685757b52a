"""What people and programs are told of jobs, against what became of them: facts on the stream, and users' logs."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from shared.bus.memory import Item
from shared.messages.events import (
    JobEnded,
    JobEvent,
    JobEvicted,
    JobHeld,
    JobRemoved,
    JobsOrdered,
    JobsSubmitted,
    JobStarted,
)

#: A fact may be told so long before what it tells of is on the disk, or after: a schedd that dies meanwhile forgets one
#: of the two. (Slow disks take that much, and so do messages.)
BETWEEN_S = 30.0
#: Job, as users' logs name it: 12.0 is (012.000.000).
_HEAD = re.compile(rb"^(\d{3}) \((\d+)\.(-?\d+)\.000\) ", re.MULTILINE)
SUBMIT, EXECUTE, TERMINATED, ABORTED = 0, 1, 5, 9


class News:
    """Every fact about jobs that came to the broker, in this order. `time()`: seconds of the simulation."""

    def __init__(self, time: Callable[[], float]) -> None:
        self.time = time
        self.facts: dict[tuple[str, str], list[tuple[float, JobEvent]]] = defaultdict(list)  # by schedd and job
        self.submitted: Counter[tuple[str, str]] = Counter()
        self.broken: dict[str, list[float]] = defaultdict(list)  # by daemon: when one ended without having said all

    def hear(self, item: Item) -> None:
        body: Any = item.body
        if isinstance(body, JobsSubmitted):
            for proc in range(body.first_proc, body.first_proc + body.count):
                self.submitted[f"schedd.{body.schedd}", f"{body.cluster}.{proc}"] += 1
        elif isinstance(body, JobEvent):
            for one in body.each() if isinstance(body, JobsOrdered) else (body,):
                self.facts[f"schedd.{one.schedd}", one.job_id].append((self.time(), one))

    def broke_off(self, life: Any) -> None:
        self.broken[life.name].append(self.time())

    def _forgot(self, schedd: str, since: float, until: float) -> bool:
        """Whether this schedd died at a moment that kept the stream and the queue from agreeing."""
        return any(since - 1.0 <= at <= until for at in self.broken[schedd])

    def wrong_about(self, schedd: str, job: str, *, status: int, starts: int) -> list[str]:
        """What the stream says of a job that is no more, and should not: its JobStatus and NumJobStarts."""
        facts, wrong = self.facts[schedd, job], []
        broke = bool(self.broken[schedd])
        submits = self.submitted[schedd, job]
        if submits != 1 and not broke:
            wrong.append(f"it was submitted {submits} times")
        runs: dict[int, list[tuple[float, str]]] = defaultdict(list)
        over, running = 0.0, 0
        for at, fact in facts:
            if isinstance(fact, JobStarted | JobEnded | JobEvicted):
                runs[fact.attempt].append((at, fact.type))
                if over and not self._forgot(schedd, over - BETWEEN_S, at):
                    wrong.append(f"{fact.type} at {at:.3f}, though it was over at {over:.3f}")
            if isinstance(fact, JobStarted):
                if running and not broke:
                    wrong.append(f"run {fact.attempt} began, and nobody said that run {running} was over")
                running = fact.attempt
            elif isinstance(fact, JobEnded | JobEvicted | JobHeld | JobRemoved):
                if isinstance(fact, JobEnded) and running != fact.attempt and not broke:
                    wrong.append(f"run {fact.attempt} ended, and nobody said that it began")
                running = 0
            if isinstance(fact, JobEnded | JobRemoved):
                over = over or at
        for attempt, told in runs.items():
            twice = [kind for kind, times in Counter(kind for _, kind in told).items() if times > 1]
            if twice and not self._forgot(schedd, told[0][0] - BETWEEN_S, told[-1][0]):
                wrong.append(f"run {attempt}: {', '.join(twice)} came twice")
        kinds = [fact.type for _, fact in facts]
        if not broke:
            if (JobEnded.type in kinds) != (status == 4):
                wrong.append(f"its status is {status}, and it {'' if JobEnded.type in kinds else 'never '}ended")
            if status == 3 and JobRemoved.type not in kinds:
                wrong.append("it was removed, and nobody said so")
            if kinds.count(JobStarted.type) != starts:
                wrong.append(f"it started {kinds.count(JobStarted.type)} times, and its NumJobStarts is {starts}")
        return [f"the stream tells of {job} of {schedd}: {one} ({' '.join(kinds)})" for one in wrong]


def log_of(paths: Iterable[Path]) -> dict[str, list[int]]:
    """By job ("1.0"; "1.-1": the whole cluster): the numbers of its events, in their order."""
    found: dict[str, list[int]] = defaultdict(list)
    for path in paths:
        for number, cluster, proc in _HEAD.findall(path.read_bytes()):
            found[f"{int(cluster)}.{int(proc)}"].append(int(number))
    return found


def wrong_in_log(events: list[int], *, status: int, starts: int) -> list[str]:
    """What a user's log says of a job that is no more, and should not. What it says is written down with what happens,
    so there is no excuse."""
    if not events:
        return ["nothing is in it"]
    wrong = []
    count = Counter(events)
    if count[SUBMIT] != 1 or events[0] != SUBMIT:
        wrong.append("it was not submitted once, and first")
    ends = (count[TERMINATED], count[ABORTED])
    if ends != ((1, 0) if status == 4 else (0, 1)):
        wrong.append(f"its status is {status}")
    if events[-1] not in (TERMINATED, ABORTED):
        wrong.append("it goes on after its end")
    if count[EXECUTE] != starts:
        wrong.append(f"its NumJobStarts is {starts}")
    return [f"{one} ({' '.join(f'{number:03}' for number in events)})" for one in wrong]
