"""Which file system a process sees: the client compares its own with the schedd's to know whether files can be used in
place or must be sent."""

from __future__ import annotations

import os
import platform
from pathlib import Path


def boot_id() -> str:
    """Another one at each start of the machine; its name where the kernel does not tell (outside Linux)."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return platform.node()


def host_id() -> str:
    """Equal for two processes exactly when they run on the same boot of the same machine and see the same root file
    system (a container has another one)."""
    root = os.stat("/")
    return f"{boot_id()}:{root.st_dev}:{root.st_ino}"
