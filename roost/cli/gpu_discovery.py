"""`roost gpu-discovery`: which GPUs this machine has, as the startd sees them (TLS-13)."""

from __future__ import annotations

import subprocess
import sys


def run(_command: str, argv: list[str]) -> int:
    # In a process of its own, as for the startd: the drivers' libraries end, or hang, whoever loads them.
    return subprocess.run([sys.executable, "-m", "shared.gpus", *argv], check=False).returncode
