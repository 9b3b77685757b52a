"""What systemd is told by a daemon that it started: that it is ready, what it waits for, that its loop turns
(sd_notify(3)). Nothing where no systemd listens."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import Callable, MutableMapping
from typing import Final

#: Seconds between two looks at what the daemon waits for.
EVERY_S: Final = 5.0
_WORKS: Final = "does its work"
_SOCKET, _WATCHDOG, _WATCHED = "NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"


class Systemd:
    """address: of systemd's socket, empty for none. within_s: seconds within which it wants to hear that the daemon
    lives; 0: never."""

    def __init__(self, address: str = "", within_s: float = 0.0) -> None:
        self._address = "\0" + address[1:] if address.startswith("@") else address
        self._every_s = min(EVERY_S, within_s / 2) if within_s > 0 else EVERY_S
        self._watched = within_s > 0
        self._status = ""
        self._ready = False

    @classmethod
    def of(cls, environment: MutableMapping[str, str]) -> Systemd:
        """As the environment says, where it is not found any more afterwards: no job is to speak for the daemon."""
        address, within, whom = (environment.pop(name, "") for name in (_SOCKET, _WATCHDOG, _WATCHED))
        meant = whom in ("", str(os.getpid()))
        return cls(address, int(within) / 1e6 if within.isdecimal() and meant else 0.0)

    def ready(self) -> None:
        """The daemon is set up."""
        self._ready, self._status = True, _WORKS
        self._tell("READY=1", f"STATUS={_WORKS}")

    def stopping(self) -> None:
        self._tell("STOPPING=1")

    async def keep_telling(self, waiting_for: Callable[[], str]) -> None:
        """Until cancelled: that the loop turns, and what the daemon waits for, in words."""
        while self._address:
            waits = waiting_for() or ("" if self._ready else "its setup")
            self.tell_alive(f"waits for {waits}" if waits else _WORKS)
            await asyncio.sleep(self._every_s)

    def tell_alive(self, status: str) -> None:
        """That the loop turns, and what it does, in words."""
        changed, self._status = status != self._status, status
        self._tell(*(["WATCHDOG=1"] if self._watched else []), *([f"STATUS={status}"] if changed else []))

    def _tell(self, *lines: str) -> None:
        if not self._address or not lines:
            return
        # A systemd that does not listen any more is no reason to end.
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as out:
            out.setblocking(False)
            out.sendto("\n".join(one.replace("\n", " ") for one in lines).encode(), self._address)
