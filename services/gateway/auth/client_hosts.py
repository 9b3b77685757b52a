"""Names of machines for ALLOW_ and DENY_ lists: asked of the name service, believed only if the name leads back to the
address, and remembered for a while."""

from __future__ import annotations

import asyncio
import socket
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

#: A name is remembered so long, seconds; an answer is waited for so long.
KEPT_S: Final = 300.0
WAIT_S: Final = 3.0
_KEPT: Final = 10_000


class ClientHosts:
    """own: names of this machine, for what comes from itself. wanted: whether any list asks for names; else none is
    looked up."""

    def __init__(self, own: tuple[str, ...], wanted: bool, monotonic: Callable[[], float]) -> None:
        self.own = tuple(dict.fromkeys(one.lower() for one in (*own, "localhost") if one))
        self._wanted = wanted
        self._monotonic = monotonic
        self._known: OrderedDict[str, tuple[float, tuple[str, ...]]] = OrderedDict()

    async def of(self, address: str) -> tuple[str, ...]:
        """In lower case; none where nothing answers in time, so that a list of names lets nobody in by mistake."""
        if address in ("127.0.0.1", "::1"):
            return self.own
        if not self._wanted or not address:
            return ()
        now = self._monotonic()
        known = self._known.get(address)
        if known is None or known[0] < now:
            try:
                async with asyncio.timeout(WAIT_S):
                    names = await asyncio.to_thread(_ask, address)
            except TimeoutError:
                names = ()
            known = (now + KEPT_S, names)
            self._known[address] = known
            self._known.move_to_end(address)
            if len(self._known) > _KEPT:
                self._known.popitem(last=False)
        return known[1]


def _ask(address: str) -> tuple[str, ...]:
    try:
        name, _ = socket.getnameinfo((address, 0), socket.NI_NAMEREQD)
        found = {one[4][0] for one in socket.getaddrinfo(name, None)}
    except OSError:
        return ()
    return (name.lower(),) if address in found else ()
