"""Colours by meaning, on a terminal only."""

from __future__ import annotations

import os
import sys
from typing import Final, TextIO


class Paint:
    """Colours for a terminal, nothing for a file."""

    def __init__(self, on: bool) -> None:
        self._on = on

    @classmethod
    def of_terminal(cls, stream: TextIO | None = None) -> Paint:
        """By what this stream is (standard output), NO_COLOR, and what the terminal can do."""
        shown = stream or sys.stdout
        able = os.environ.get("TERM", "") != "dumb" and not os.environ.get("NO_COLOR")
        return cls(able and shown.isatty())

    def strong(self, text: str) -> str:
        return self._in("1", text)

    def bad(self, text: str) -> str:
        """What failed, or was refused."""
        return self._in("31", text)

    def good(self, text: str) -> str:
        return self._in("32", text)

    def warn(self, text: str) -> str:
        return self._in("33", text)

    def _in(self, code: str, text: str) -> str:
        return f"\x1b[{code}m{text}\x1b[0m" if self._on else text


#: For files, and whoever wants none.
PLAIN: Final = Paint(False)
