"""Connections to Unix sockets whose paths are longer than the 107 bytes that an address may have."""

from __future__ import annotations

import os
import socket


def connect_local(path: str | os.PathLike[str], timeout: float | None) -> socket.socket:
    """A connection to a Unix socket, however long its path is: the way leads through its open directory. Blocking.
    Raises OSError."""
    folder, name = os.path.split(path)
    directory = os.open(folder or ".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    try:
        made.settimeout(timeout)
        made.connect(f"/proc/self/fd/{directory}/{name}")
    except BaseException:
        made.close()
        raise
    finally:
        os.close(directory)
    return made
