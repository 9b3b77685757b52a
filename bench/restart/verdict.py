"""What became of the attempts of each job: pure functions over what they wrote, and over job event logs."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise

#: An event of a job event log: its code.
EVENT = re.compile(r"^(\d{3}) \(\d+\.\d+\.\d+\) ", re.MULTILINE)
EXECUTING, EVICTED, TERMINATED = 1, 4, 5
#: Events that say why an attempt is over, and another one may begin: evicted, shadow exception, reconnection failed.
REASONS = (4, 7, 24)


@dataclass(frozen=True, slots=True)
class Attempt:
    """What an attempt wrote of itself: seconds since 1970 of its first and its last line; ended: it came to its end."""

    process: str
    begun: float
    last: float
    ended: bool


def attempts(text: str) -> list[Attempt]:
    """Of one job's file, in the order of their beginnings: lines are `word process seconds`, the words begin, alive and
    end. A last line that is half written is none. Raises ValueError for a line that no job writes."""
    found: dict[str, Attempt] = {}
    for line in text[: text.rfind("\n") + 1].splitlines():
        word, process, at = line.split()
        if word == "begin":
            found[process] = Attempt(process, float(at), float(at), False)
        elif word in ("alive", "end"):
            one = found[process]
            found[process] = Attempt(process, one.begun, max(one.last, float(at)), one.ended or word == "end")
        else:
            raise ValueError(f"{line!r} is no line of a job")
    return sorted(found.values(), key=lambda one: one.begun)


def faults(wrote: str, log: str, *, status: int | None, exit_code: int | None, starts: int) -> list[str]:
    """What is wrong with one job. wrote: its file; log: its event log; status, exit_code, starts: as the history has
    them (status None: it does not)."""
    tried = attempts(wrote)
    told = Counter(int(code) for code in EVENT.findall(log))
    reasons = sum(told[code] for code in REASONS)
    found = []
    if status != 4 or exit_code != 0:
        found.append(f"not completed: status {status}, exit code {exit_code}")
    if sum(one.ended for one in tried) != 1:
        found.append(f"{sum(one.ended for one in tried)} attempts came to their end")
    if any(earlier.last > later.begun for earlier, later in pairwise(tried)):
        found.append("two attempts at a time")
    if len(tried) > 1 + reasons:
        found.append(f"{len(tried)} attempts, {reasons} reasons")
    if told[EXECUTING] < len(tried) or starts < len(tried):
        found.append(f"{len(tried)} attempts, {told[EXECUTING]} events of a start, NumJobStarts {starts}")
    if told[EVICTED]:
        found.append(f"evicted {told[EVICTED]} times")
    if told[TERMINATED] != 1:
        found.append(f"{told[TERMINATED]} events of its end")
    return found


@dataclass(frozen=True, slots=True)
class Totals:
    """Over all jobs. explained: starts after the first one, for which there is a reason in the log."""

    jobs: int
    attempts: int
    explained: int
    faults: Mapping[str, list[str]]


def totals(jobs: Iterable[tuple[str, str, str, int | None, int | None, int]]) -> Totals:
    """jobs: token, what it wrote, its log, status, exit code, starts."""
    found: dict[str, list[str]] = {}
    count = tries = explained = 0
    for token, wrote, log, status, exit_code, starts in jobs:
        count += 1
        tried = attempts(wrote)
        tries += len(tried)
        explained += max(0, len(tried) - 1)
        wrong = faults(wrote, log, status=status, exit_code=exit_code, starts=starts)
        if wrong:
            found[token] = wrong
    return Totals(count, tries, explained, found)
