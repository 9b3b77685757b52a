"""Decides whether a disk has room: whether an error means that it is full, and how much is reserved for daemons that
must be able to write.

New jobs and output are refused while there is still a reserve, so that what happens to existing jobs can be recorded as
long as possible.
"""

from __future__ import annotations

import errno
import os
import sqlite3
from pathlib import Path
from typing import Final

MIB: Final = 1 << 20
#: Bytes kept back: this much, or a twentieth of a small file system.
RESERVE: Final = 64 * MIB
SMALL_PART: Final = 20
_FULL: Final = frozenset((errno.ENOSPC, errno.EDQUOT))


def is_full(error: BaseException) -> bool:
    """Whether this error says that a disk, or a user's quota of it, is full."""
    if isinstance(error, sqlite3.Error):
        return getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_FULL
    return isinstance(error, OSError) and error.errno in _FULL


def shortage(free: int, total: int, wanted: int) -> str:
    """Why `wanted` bytes more may not be written where `free` of `total` bytes are left. Empty: they may."""
    reserve = min(RESERVE, total // SMALL_PART)
    if free - wanted >= reserve:
        return ""
    return f"{free / MIB:.1f} MiB are left, of which {reserve / MIB:.1f} are kept back; {wanted / MIB:.1f} are needed"


def shortage_in(folder: Path, wanted: int) -> str:
    """`lacking` for the file system of a directory. Costs some microseconds."""
    status = os.statvfs(folder)
    return shortage(status.f_bavail * status.f_frsize, status.f_blocks * status.f_frsize, wanted)
