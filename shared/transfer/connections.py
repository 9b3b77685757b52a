"""Connections of file transfer, kept between transfers: a handshake of TLS costs both ends together 1.4 ms of processor
time, more than what a small transfer takes without it."""

from __future__ import annotations

import resource
import socket
from typing import Any, Final

import aiohttp
from aiohttp import web
from aiohttp.client_proto import ResponseHandler

#: Seconds for which a connection is kept that carries nothing.
KEPT_S: Final = 600.0
#: So many of them for each server: a job's transfers follow each other, and few jobs begin or end at a time.
KEPT_MOST: Final = 2
#: Seconds of silence after which the other end is asked whether it is there, seconds between such questions, and how
#: many without an answer make a connection dead. What stands between forgets connections that are silent for minutes.
_ASKED: Final = {"TCP_KEEPIDLE": 60, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 3}


class KeptConnections(aiohttp.TCPConnector):
    """The client's. limit: connections at a time, 0: any number."""

    def __init__(self, limit: int = 0) -> None:
        super().__init__(limit=limit, keepalive_timeout=KEPT_S, socket_factory=_socket)

    def _release(self, key: Any, protocol: ResponseHandler, *, should_close: bool = False) -> None:
        # The library bounds connections in use only.
        enough = len(self._conns.get(key, ())) >= KEPT_MOST
        super()._release(key, protocol, should_close=should_close or enough)


def _socket(address: tuple[Any, ...]) -> socket.socket:
    family, kind, protocol, *_ = address
    made = socket.socket(family, kind, protocol)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _ASKED.items():
        if hasattr(socket, name):  # not on macOS, all of them
            made.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
    return made


def most_kept(files: int) -> int | None:
    """How many connections a server keeps where a process may have so many files open, those in use among them; None:
    any number. Pure."""
    return None if files < 0 else max(1, files // 4)


def runner_of(app: web.Application) -> web.AppRunner:
    """The server's: where it has many connections, each is closed behind its answer. Who reads on after an answer does
    so in the handler, and no longer."""
    runner = web.AppRunner(app, access_log=None, lingering_time=0)
    most = most_kept(resource.getrlimit(resource.RLIMIT_NOFILE)[0])

    async def close_where_many(_: web.Request, response: web.StreamResponse) -> None:
        if most is not None and runner.server is not None and len(runner.server.connections) > most:
            response.force_close()
            response.headers["Connection"] = "close"  # the library has written them by now

    app.on_response_prepare.append(close_where_many)
    return runner
