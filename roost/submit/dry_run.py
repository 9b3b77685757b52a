"""The output of `roost submit -dry-run`: the ads that would be queued, as condor_submit -dry-run prints them, with a
dot behind each job on standard output and an empty line before each in a file."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from roost.submit.description import DescribedCluster
from shared.classad import unparse


def lines(cluster: DescribedCluster, number: int, now: float) -> Iterator[str]:
    """The first job in full, of every other what differs, as standard output has it."""
    for job in _jobs(cluster.written or cluster, number, now):
        yield from job
        yield "."


def lines_of_file(cluster: DescribedCluster, number: int, now: float) -> Iterator[str]:
    """The same as a file has it."""
    for job in _jobs(cluster.written or cluster, number, now):
        yield ""
        yield from job


def _jobs(cluster: DescribedCluster, number: int, now: float) -> Iterator[list[str]]:
    common = {**cluster.attributes, "QDate": int(now), "EnteredCurrentStatus": int(now)}
    lines = [f"ClusterId={number}", *_sorted_lines(common, extra={} if "Owner" in common else {"Owner": "undefined"})]
    for proc in cluster.procs:
        lines += [f"ProcId={proc['ProcId']}", f"JobStatus={proc['JobStatus']}"]
        yield lines + _sorted_lines({n: v for n, v in proc.items() if n not in ("ProcId", "JobStatus")})
        lines = []


def _sorted_lines(attributes: dict[str, Any], extra: dict[str, str] | None = None) -> list[str]:
    texts = {name: unparse(value, syntax="old") for name, value in attributes.items()} | (extra or {})
    return [f"{name}={texts[name]}" for name in sorted(texts, key=lambda name: (len(name), name.lower()))]
