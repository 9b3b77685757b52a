"""How jobs are named: "cluster.proc"."""

from __future__ import annotations

from typing import NamedTuple


class JobId(NamedTuple):
    cluster: int
    proc: int

    def __str__(self) -> str:
        return f"{self.cluster}.{self.proc}"

    @classmethod
    def parse(cls, text: str) -> JobId:
        """ "12.3", or "12" with proc -1 for the whole cluster. Raises ValueError."""
        cluster, dot, proc = text.strip().partition(".")
        if not cluster.isascii() or not cluster.isdigit() or len(cluster) > 18:
            raise ValueError(f"{text[:40]!r} is no job id; want CLUSTER or CLUSTER.PROC, for instance 12.3")
        if not dot:
            return cls(int(cluster), -1)
        if not proc.isascii() or not proc.isdigit() or len(proc) > 18:
            raise ValueError(f"{text[:40]!r} is no job id; want CLUSTER or CLUSTER.PROC, for instance 12.3")
        return cls(int(cluster), int(proc))
