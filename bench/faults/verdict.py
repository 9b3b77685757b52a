"""What became of the jobs of a workload: pure functions over what was acknowledged, recorded and written down."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

#: An event of a job event log: code, cluster, proc.
EVENT = re.compile(r"^(\d{3}) \((\d+)\.(\d+)\.\d+\) ", re.MULTILINE)
COMPLETED = 4
SUBMITTED, EXECUTING, TERMINATED = 0, 1, 5


@dataclass(frozen=True, slots=True)
class Recorded:
    """What the schedd's history says of a job. ran_s: RemoteWallClockTime; starts: NumJobStarts."""

    job: str
    token: str
    status: int
    exit_code: int | None
    starts: int
    ran_s: float


@dataclass(frozen=True, slots=True)
class Line:
    """What a job wrote while it ran: word "begin" or "end", its token, when (seconds since 1970)."""

    word: str
    token: str
    at: float


@dataclass(frozen=True, slots=True)
class Verdict:
    """lost: acknowledged jobs that are not in the history as completed, or did not run to their end. twice: jobs, even
    unacknowledged ones, that began more than once, by what they wrote or by NumJobStarts. ended_twice: those that ran
    to their end more than once. doubled: jobs that are in the history more than once. log: what job event logs lack or
    have too often. ran_s, charged_s: what the history and the accountant say the jobs used."""

    jobs: int = 0
    lost: tuple[str, ...] = ()
    twice: tuple[str, ...] = ()
    ended_twice: tuple[str, ...] = ()
    doubled: tuple[str, ...] = ()
    log: tuple[str, ...] = ()
    ran_s: float = 0.0
    charged_s: float = 0.0

    def faults(self) -> list[str]:
        """Every fault as a line to read; empty when nothing was lost and nothing done twice."""
        said = {
            "lost": self.lost,
            "run twice": self.twice,
            "ended twice": self.ended_twice,
            "twice in the history": self.doubled,
            "log": self.log,
        }
        return [f"{what}: {', '.join(which[:20])}" for what, which in said.items() if which]


@dataclass(slots=True)
class Facts:
    """acknowledged: tokens of jobs whose submit was answered, with their job id. logs: the texts of job event logs;
    None where there are none to look at."""

    acknowledged: dict[str, str] = field(default_factory=dict)
    history: Sequence[Recorded] = ()
    lines: Sequence[Line] = ()
    logs: Sequence[str] | None = ()
    charged_s: float = 0.0


def lines(text: str) -> list[Line]:
    """What jobs wrote, `word token seconds` a line. Raises ValueError for a line that no job writes."""
    found = []
    for row in text.splitlines():
        word, token, at = row.split()
        found.append(Line(word, token, float(at)))
    return found


def judge(facts: Facts) -> Verdict:
    begun = Counter(line.token for line in facts.lines if line.word == "begin")
    ended = Counter(line.token for line in facts.lines if line.word == "end")
    recorded = {entry.token: entry for entry in facts.history}
    lost = []
    for token in facts.acknowledged:
        entry = recorded.get(token)
        if entry is None or entry.status != COMPLETED or entry.exit_code != 0 or not ended[token]:
            lost.append(token)
    starts = {entry.token: entry.starts for entry in facts.history}
    twice = [token for token in sorted({*begun, *starts}) if begun[token] > 1 or starts.get(token, 0) > 1]
    copies = Counter(entry.token for entry in facts.history)
    return Verdict(
        jobs=len(facts.acknowledged),
        lost=tuple(lost),
        twice=tuple(twice),
        ended_twice=tuple(token for token, count in sorted(ended.items()) if count > 1),
        doubled=tuple(token for token, count in sorted(copies.items()) if count > 1),
        log=() if facts.logs is None else tuple(_log_faults(facts.acknowledged.values(), facts.logs)),
        ran_s=sum(entry.ran_s for entry in facts.history),
        charged_s=facts.charged_s,
    )


def _log_faults(jobs: Iterable[str], logs: Sequence[str]) -> list[str]:
    """Each job's log tells once of its submit, of its start and of its end."""
    told = Counter((int(code), f"{int(c)}.{int(p)}") for text in logs for code, c, p in EVENT.findall(text))
    found = []
    for job in jobs:
        for code in (SUBMITTED, EXECUTING, TERMINATED):
            if told[code, job] != 1:
                found.append(f"{job}: event {code:03d} {told[code, job]} times")
    return found


def longest_gap(moments: Iterable[float], since: float, until: float) -> float:
    """The longest time without any of `moments` between `since` and `until`, both of them counted as moments."""
    inside = sorted(moment for moment in moments if since <= moment <= until)
    edges = [since, *inside, until]
    return max(later - earlier for earlier, later in pairwise(edges))
