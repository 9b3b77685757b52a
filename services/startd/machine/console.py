"""When somebody last used a terminal or the console of this machine."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import psutil

#: Lines of /proc/interrupts that count keys and movements of the mouse.
_INPUT = ("i8042", "keyboard", "mouse")


@dataclass(slots=True)
class Console:
    """`devices`: names under /dev (CONSOLE_DEVICES). Times are on the wall clock, seconds."""

    devices: tuple[str, ...] = ("mouse", "console")
    dev: Path = Path("/dev")
    interrupts: Path = Path("/proc/interrupts")
    boot: float = field(default_factory=psutil.boot_time)
    _counted: int | None = None
    _pressed: float = 0.0

    def idle(self, now: float) -> tuple[int, int]:
        """Seconds since a terminal (or the console) was used, and since the console was; since boot when never."""
        console = max(self.boot, self._used(now), _latest(self.dev / name for name in self.devices))
        logged_in = (user.terminal for user in psutil.users())
        terminals = max(console, _latest(self.dev / terminal for terminal in logged_in if terminal))
        return max(0, int(now - terminals)), max(0, int(now - console))

    def _used(self, now: float) -> float:
        """When a key was pressed: the interrupts counted since the last look."""
        try:
            lines = self.interrupts.read_text().splitlines()
        except OSError:
            return 0.0
        counted = sum(_count(line) for line in lines if any(word in line.lower() for word in _INPUT))
        if self._counted is not None and counted != self._counted:
            self._pressed = now
        self._counted = counted
        return self._pressed


def _count(line: str) -> int:
    """All processors' counts of one line, which begins with the interrupt's number."""
    total = 0
    for word in line.split()[1:]:
        if not word.isdigit():
            break
        total += int(word)
    return total


def _latest(paths: Iterable[Path]) -> float:
    """When one of these devices was last read or written, as far as they are there."""
    latest = 0.0
    for path in paths:
        try:
            status = os.stat(path)
        except OSError:
            continue  # a stale login record, or no such device on this machine
        latest = max(latest, status.st_atime)
    return latest
