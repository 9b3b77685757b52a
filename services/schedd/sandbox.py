"""What a schedd decides about sandboxes: whether files travel, and where those of spooled jobs lie. Which files they
are is shared with the clients that spool (shared.transfer.sandbox)."""

from __future__ import annotations

import os
from pathlib import Path

from services.schedd.jobs import Job
from shared.classad import ClassAd
from shared.transfer.bundle import Source
from shared.transfer.sandbox import NOWHERE, STDERR, STDOUT, Move, input_sources, output_moves, parse_remaps

__all__ = [
    "NOWHERE",
    "STDERR",
    "STDOUT",
    "Move",
    "input_sources",
    "is_container_job",
    "output_moves",
    "parse_remaps",
    "spool_dirs",
    "spooled_sources",
    "wants_transfer",
]


def is_container_job(ad: ClassAd) -> bool:
    return any(ad.eval(name) is True for name in ("WantDocker", "WantContainer", "WantDockerImage")) or bool(
        ad.eval_string("DockerImage") or ad.eval_string("ContainerImage")
    )


def wants_transfer(ad: ClassAd, slot: ClassAd, *, spooled: bool) -> bool:
    """Whether files travel: ShouldTransferFiles YES, or IF_NEEDED (the default) and the slot does not see the schedd's
    files (another FileSystemDomain, a container, or a spooled job)."""
    should = ad.eval_string("ShouldTransferFiles").upper() or "IF_NEEDED"
    if spooled or should == "YES":
        return True
    if should == "NO":
        return False
    domain, theirs = ad.eval("FileSystemDomain"), slot.eval("FileSystemDomain")
    same = isinstance(domain, str) and isinstance(theirs, str) and domain.lower() == theirs.lower()
    return not same or is_container_job(ad)


def spooled_sources(shared: Path, own: Path) -> list[Source]:
    """What goes along with a spooled job: the files of its cluster, then its own."""
    found: dict[str, Source] = {}
    for folder in (shared, own):
        if folder.is_dir():
            for entry in sorted(os.listdir(folder)):
                found[entry] = Source(folder / entry, entry, within=folder)
    return list(found.values())


def spool_dirs(spool: Path, job: Job) -> tuple[Path, Path, Path]:
    """Directories of a spooled job: input of its cluster, its own input, its output."""
    base = spool / str(job.cluster.id)
    return base / "shared", base / f"proc{job.proc}" / "in", base / f"proc{job.proc}" / "out"
