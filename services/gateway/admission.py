"""Admits few long answers at once; the others wait for their turn. core.limits.FairQueue decides who is next."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Final

from services.gateway.core.limits import FairQueue

#: Longest wait, seconds: a client is told within half a minute.
WAIT_S: Final = 20.0


@dataclass(eq=False, slots=True)
class _Ticket:
    turn: asyncio.Event
    called: bool = False


class AdmissionQueue:
    """`enter`, and `leave` once for each that came in."""

    def __init__(self, line: FairQueue, wait_s: float = WAIT_S) -> None:
        self._line = line
        self._wait_s = wait_s

    async def enter(self, key: str) -> str:
        """Empty when it is inside; else what it has waited for in vain."""
        ticket = _Ticket(asyncio.Event())
        if self._line.enter(key, ticket):
            return ""
        try:
            async with asyncio.timeout(self._wait_s):
                await ticket.turn.wait()
        except BaseException as error:
            if ticket.called:  # in the same moment
                self.leave(key)
            else:
                self._line.give_up(key, ticket)
            if isinstance(error, TimeoutError):
                return f"{self._line.count} are under way, {self._line.waiting} wait for their turn; ask for less"
            raise
        return ""

    def leave(self, key: str) -> None:
        """One of this key has gone."""
        for ticket in self._line.leave(key):
            assert isinstance(ticket, _Ticket)
            ticket.called = True
            ticket.turn.set()
