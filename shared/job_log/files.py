"""Appends to logs of jobs."""

from __future__ import annotations

import os
from collections.abc import Sequence


def append(events: Sequence[tuple[int, str, bytes]]) -> dict[str, str]:
    """Append the events (sequence number, path, text), those of one log with one write. Returns what went wrong, by
    path."""
    by_path: dict[str, list[bytes]] = {}
    for _, path, text in events:
        by_path.setdefault(path, []).append(text)
    problems: dict[str, str] = {}
    for path, texts in by_path.items():
        try:
            # O_NONBLOCK: a named pipe without a reader must not stop everybody's logs.
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NONBLOCK | os.O_CLOEXEC
            descriptor = os.open(path, flags, 0o644)
            try:
                _write_all(descriptor, b"".join(texts))
            finally:
                os.close(descriptor)
        except OSError as error:
            problems[path] = error.strerror or str(error)
        except ValueError as error:  # a zero byte in the path
            problems[path] = str(error)
    return problems


def _write_all(descriptor: int, data: bytes) -> None:
    while data:
        data = data[os.write(descriptor, data) :]
