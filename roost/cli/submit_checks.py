"""What `roost submit` tells of jobs that will not run as they are: before they are held, or wait for ever."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from engine.reasons import NEVER
from roost.client import Client, Cluster
from roost.errors import ClientError
from roost.submit import DescribedCluster

#: Jobs of a cluster that are looked at, and clusters that the pool is asked about.
_MOST_JOBS: Final = 1000
_MOST_CLUSTERS: Final = 5
_FILES: Final = (("Out", "output"), ("Err", "error"), ("UserLog", "log"))


def files_told(clusters: Sequence[DescribedCluster]) -> list[str]:
    """Programs that nobody may execute, and directories of output that are not there, where jobs use files where they
    lie."""
    return list(dict.fromkeys(one for cluster in clusters for one in _of_cluster(cluster)))


def _of_cluster(cluster: DescribedCluster) -> Iterator[str]:
    seen: set[str] = set()
    for proc in cluster.procs[:_MOST_JOBS]:
        ad = {**cluster.attributes, **proc}
        base = Path(str(ad.get("Iwd") or "."))
        program = ad.get("Cmd")
        if isinstance(program, str) and program and "$$" not in program and ad.get("TransferExecutable") is not False:
            path = base / program
            if str(path) not in seen and path.is_file() and not os.access(path, os.X_OK):
                yield f"{path} is not executable: its jobs would be held; run: chmod +x {path}"
            seen.add(str(path))
        for attribute, command in _FILES:
            name = ad.get(attribute)
            if not isinstance(name, str) or not name or name == "/dev/null" or "$$" in name or "://" in name:
                continue
            directory = (base / name).parent
            if str(directory) not in seen and not directory.is_dir():
                yield f"{command} = {name}: there is no directory {directory}; run: mkdir -p {directory}"
            seen.add(str(directory))


def never_run(client: Client, queued: Sequence[Cluster]) -> list[str]:
    """Jobs that no slot of the pool can ever run, with what would help. Nothing where the pool can not say."""
    try:
        found = client.analysis(
            *(str(one.cluster) for one in queued[:_MOST_CLUSTERS]), schedd=queued[0].schedd, limit=_MOST_CLUSTERS
        )
    except ClientError:
        return []
    return [text for report in found["jobs"] if (text := _never(report))]


def _never(report: dict[str, Any]) -> str:
    blocked = report.get("blocked_by")  # a gateway of an earlier version says nothing of it
    if report["state"] != "idle" or not blocked or not NEVER.union(("no-slots",)).issuperset(blocked):
        return ""
    return f"job {report['job']} waits: {report['verdict']} `roost analyze {report['job']}` tells more."
