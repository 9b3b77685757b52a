"""What became of the jobs of a workload: pure functions over what was acknowledged, recorded and written down."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
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

    def faults(self, *, restarts: bool = False) -> list[str]:
        """Every fault as a line to read; empty when nothing was lost and nothing done twice. restarts: jobs ended with
        what was struck. That they begin again is no fault then, even of one that was done just before and could not
        tell any more; that one of them is in the history twice is."""
        said = {
            "lost": self.lost,
            "run twice": () if restarts else self.twice,
            "ended twice": () if restarts else self.ended_twice,
            "twice in the history": self.doubled,
            "log": self.log,
        }
        return [f"{what}: {', '.join(which[:20])}" for what, which in said.items() if which]


@dataclass(slots=True)
class Facts:
    """By token: job ids of what was acknowledged, and texts of job event logs."""

    acknowledged: dict[str, str] = field(default_factory=dict)
    history: Sequence[Recorded] = ()
    lines: Sequence[Line] = ()
    logs: Mapping[str, str] = field(default_factory=dict)
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
        log=tuple(_log_faults(facts.acknowledged, facts.logs, starts)),
        ran_s=sum(entry.ran_s for entry in facts.history),
        charged_s=facts.charged_s,
    )


def _log_faults(jobs: Mapping[str, str], logs: Mapping[str, str], starts: Mapping[str, int]) -> list[str]:
    """Each job's log tells once of its submit, of its end, and of each start."""
    found = []
    for token, job in jobs.items():
        told = Counter((int(code), f"{int(c)}.{int(p)}") for code, c, p in EVENT.findall(logs.get(token, "")))
        for code, wanted in ((SUBMITTED, 1), (EXECUTING, starts.get(token, 1)), (TERMINATED, 1)):
            if told[code, job] != wanted:
                found.append(f"{token} ({job}): event {code:03d} {told[code, job]} times, not {wanted}")
    return found


def longest_gap(moments: Iterable[float], since: float, until: float) -> float:
    """The longest time without any of `moments` between `since` and `until`, both of them counted as moments."""
    inside = sorted(moment for moment in moments if since <= moment <= until)
    edges = [since, *inside, until]
    return max(later - earlier for earlier, later in pairwise(edges))


@dataclass(frozen=True, slots=True)
class Glimpse:
    """What a negotiator said when it was asked for its role: when it was asked, and when the answer was there (seconds
    since 1970), and whether it led."""

    asked: float
    answered: float
    leads: bool


def without_leader(glimpses: Iterable[Sequence[Glimpse]], since: float, until: float) -> float:
    """The longest time in which no negotiator said that it led, in seconds."""
    moments = [one.answered for said in glimpses for one in said if one.leads]
    return longest_gap(moments, since, until)


def two_leaders(glimpses: Iterable[Sequence[Glimpse]], since: float, until: float) -> float:
    """For how long two negotiators said that they led, in seconds: at least so long, as each of them led from the first
    answer of a row to the question of the last."""
    reigns = sorted(
        (begun, end) for said in glimpses for begun, end in _reigns(said) if since <= end and begun <= until
    )
    both, latest = 0.0, float("-inf")
    for begun, end in reigns:
        both += max(0.0, min(latest, end, until) - max(begun, since))
        latest = max(latest, end)
    return both


def _reigns(said: Sequence[Glimpse]) -> Iterable[tuple[float, float]]:
    row: list[Glimpse] = []
    for one in said:
        if one.leads:
            row.append(one)
            continue
        if len(row) > 1:
            yield row[0].answered, row[-1].asked
        row = []
    if len(row) > 1:
        yield row[0].answered, row[-1].asked
