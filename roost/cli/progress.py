"""How far a long command is, on standard error: one line that is drawn over and over on a terminal, else a line now and
then, so that a log does not fill up."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from typing import Final, TextIO

#: Seconds between two drawings on a terminal, and between two lines elsewhere. What is quicker shows nothing.
TERMINAL_S: Final = 0.2
LOG_S: Final = 10.0


class Progress:
    """`show` as often as you like; `clear` before anything else is written."""

    def __init__(self, stream: TextIO | None = None, now: Callable[[], float] = time.monotonic) -> None:
        self._stream = stream or sys.stderr
        self._now = now
        self._terminal = self._stream.isatty()
        self._pause = TERMINAL_S if self._terminal else LOG_S
        self._shown = now()
        self._width = 0

    def show(self, text: str) -> None:
        at = self._now()
        if at - self._shown < self._pause:
            return
        self._shown = at
        if self._terminal:
            if columns := columns_of(self._stream):
                text = text[: columns - 1]  # a line that is broken could not be drawn over
            self._stream.write(f"\r{text:<{self._width}}")
            self._width = len(text)
        else:
            self._stream.write(f"{text}\n")
        self._stream.flush()

    def clear(self) -> None:
        if self._terminal and self._width:
            self._stream.write(f"\r{'':<{self._width}}\r")
            self._stream.flush()
            self._width = 0


def columns_of(stream: TextIO) -> int:
    """Columns of the terminal that a stream is; 0: it is none, or does not tell."""
    try:
        return os.get_terminal_size(stream.fileno()).columns
    except (OSError, ValueError):
        return 0
