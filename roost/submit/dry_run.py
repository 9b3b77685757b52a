"""What `roost submit -dry-run` prints: the ads that would be queued, as condor_submit -dry-run prints them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from roost.submit.description import Cluster
from shared.classad import unparse


def lines(cluster: Cluster, number: int, now: float) -> Iterator[str]:
    """The first job in full, of every other what differs; each ends with a line of one dot."""
    common = {**cluster.attributes, "QDate": int(now), "EnteredCurrentStatus": int(now)}
    yield f"ClusterId={number}"
    yield "\n".join(_sorted(common, extra={} if "Owner" in common else {"Owner": "undefined"}))
    for proc in cluster.procs:
        yield f"ProcId={proc['ProcId']}"
        yield f"JobStatus={proc['JobStatus']}"
        yield from _sorted({n: v for n, v in proc.items() if n not in ("ProcId", "JobStatus")})
        yield "."


def _sorted(attributes: dict[str, Any], extra: dict[str, str] | None = None) -> list[str]:
    texts = {name: unparse(value, syntax="old") for name, value in attributes.items()} | (extra or {})
    return [f"{name}={texts[name]}" for name in sorted(texts, key=lambda name: (len(name), name.lower()))]
