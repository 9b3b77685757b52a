"""Which file system a process sees: the client compares its own with the schedd's to know whether files can be used in
place or must be sent."""

from __future__ import annotations

import os
import platform
from pathlib import Path


def host_id() -> str:
    """Equal for two processes exactly when they run on the same boot of the same machine and see the same root file
    system (a container has another one)."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        boot = platform.node()  # no such file outside Linux
    root = os.stat("/")
    return f"{boot}:{root.st_dev}:{root.st_ino}"
