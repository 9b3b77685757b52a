"""Makes sure that one daemon of a name uses a spool. Two would both keep its jobs or slots, and each would undo what
the other wrote: two containers on one volume are enough (`docker compose up --scale startd1=2`).
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from shared.errors import RoostError


class AlreadyRunning(RoostError):
    """Another process has this daemon's place."""


def acquire(spool: Path, subsystem: str, name: str) -> int:
    """Take the daemon's place in the spool for as long as this process lives. Returns the descriptor that holds it.
    Raises NotAlone, OSError."""
    path = spool / f"{subsystem.lower()}.{name.replace('/', '_')}.lock"
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise AlreadyRunning(
            f"another {subsystem.lower()} named {name} uses {spool}; stop it, or give this one another name and "
            "another SPOOL"
        ) from None
    except OSError:  # a file system without locks
        return descriptor
    return descriptor
