"""A file that comes in pieces while it is still being written: what a job says, at its access point (SUB-12)."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from shared.transfer.errors import OutOfStep, TransferError

#: A piece has no more bytes than this.
PIECE_BYTES: Final = 1 << 18
#: Status of HTTP that says that fewer bytes are there than the piece stands on; this header says how many. In a request
#: that brings output it says how many bytes of files are to come.
OUT_OF_STEP: Final = 409
SIZE_HEADER: Final = "X-Roost-Size"


def size_told(headers: Mapping[str, str]) -> int:
    """Bytes of files that are to come, as the execution point says; 0: it does not."""
    said = headers.get(SIZE_HEADER, "")
    return int(said) if said.isdigit() and len(said) <= 18 else 0


def write_piece(path: Path, at: int, piece: bytes, *, last: bool) -> None:
    """Write the piece so many bytes from the beginning of the file. At 0 the file begins anew; a link that stands in
    its place is replaced, as by a file that is received as a whole. last: it is on the disk when this returns. Raises
    OutOfStep for a file that is shorter than that, TransferError for what is no regular file, OSError."""
    if at == 0 and path.is_symlink():
        path.unlink()
    # O_NONBLOCK: a pipe that nobody reads would be waited for.
    flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    descriptor = os.open(path, flags, 0o644)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise TransferError(f"{path} is no regular file: nothing is streamed to it")
        if at == 0:
            os.ftruncate(descriptor, 0)
        elif status.st_size < at:
            raise OutOfStep(status.st_size)
        while piece:
            count = os.pwrite(descriptor, piece, at)
            at, piece = at + count, piece[count:]
        if last:
            os.fsync(descriptor)
    finally:
        os.close(descriptor)
