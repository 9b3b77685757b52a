"""Where and by whom a file is submitted: what its commands are read against."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

_MEMORY_DEFAULT = "ifthenelse(MemoryUsage =!= undefined,MemoryUsage,(ImageSize + 1023) / 1024)"


@dataclass(frozen=True, slots=True)
class Place:
    """Defaults are those of the configuration knobs JOB_DEFAULT_* and DEFAULT_UNIVERSE where nobody set them."""

    directory: Path
    file: str
    user: str
    environment: Mapping[str, str]
    filesystem_domain: str
    arch: str = "X86_64"
    opsys: str = "LINUX"
    default_universe: str = "vanilla"
    default_cpus: str = "1"
    default_memory: str = _MEMORY_DEFAULT
    default_disk: str = "DiskUsage"
    default_lease: str = "2400"
    default_retries: int = 2
    nice_group: str = "nice-user"
    factory: str = "false"  # whether clusters of several jobs are made as -factory asks
