"""`roost gpu-discovery`: which GPUs this machine has, as its startd sees them (TLS-13)."""

from __future__ import annotations

import subprocess
import sys

from roost.cli.output import say
from shared.gpus.options import USAGE, parse


def run(_command: str, argv: list[str]) -> int:
    if parse(argv).help:
        say(USAGE.rstrip())
        return 0
    # In a process of its own, as for the startd: the drivers' libraries end, or hang, whoever loads them.
    return subprocess.run([sys.executable, "-m", "shared.gpus", *argv], check=False).returncode
