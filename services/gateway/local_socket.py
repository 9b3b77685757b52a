"""The gateway's Unix socket: the kernel says which account of this machine has connected, so no token is needed (as
HTCondor's method FS)."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import stat
from pathlib import Path
from typing import Any, cast

import structlog
import uvicorn

from services.gateway.auth.local_peer import LOCAL_PEER, peer_of
from services.gateway.connections import Connection, Connections


class LocalConnection(Connection):
    """One connection over the socket."""

    def address_of(self, transport: asyncio.Transport) -> str:
        found = transport.get_extra_info("socket")
        # A transport's view of a socket has no options of its own on every loop.
        with socket.socket(fileno=os.dup(found.fileno())) as same:
            peer = peer_of(same)
        self.app_state = {**self.app_state, LOCAL_PEER: peer}  # for every request of this connection, WebSockets too
        return peer.address


class LocalSocket:
    """The socket at a path; open() makes it, serve() answers on it, close() removes it."""

    def __init__(self, path: Path, log: structlog.stdlib.BoundLogger) -> None:
        self.path = path
        self._log = log
        self._socket: socket.socket | None = None
        self._inode = 0

    def open(self) -> str:
        """Listen, for every account of this machine that may enter the directory. Returns why that can not be; empty:
        it listens."""
        try:
            self._open()
        except OSError as error:
            return f"{self.path}: {error.strerror or error}"
        return ""

    def _open(self) -> None:
        # 0755, not closed: whoever may enter those above it may come in. One that is there stays as it is.
        self.path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        directory = os.open(self.path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        try:
            status = os.fstat(directory)
            if status.st_uid not in (os.geteuid(), 0) or status.st_mode & stat.S_IWOTH:
                raise OSError(0, "the directory has to be this account's or root's, and no others' to write")
            with contextlib.suppress(FileNotFoundError):
                if not stat.S_ISSOCK(os.stat(self.path.name, dir_fd=directory, follow_symlinks=False).st_mode):
                    raise OSError(0, "something else has this name: remove it, or name another in ROOST_GATEWAY_SOCKET")
                os.unlink(self.path.name, dir_fd=directory)
            made.bind(f"/proc/self/fd/{directory}/{self.path.name}")  # however long the path is
            os.chmod(self.path.name, 0o666, dir_fd=directory)
            self._inode = os.stat(self.path.name, dir_fd=directory).st_ino
            made.listen(1024)
        except BaseException:
            made.close()
            raise
        finally:
            os.close(directory)
        self._socket = made

    @property
    def listens(self) -> bool:
        """Whether it is there."""
        return self._socket is not None

    async def serve(self, server: uvicorn.Server, connections: Connections) -> None:
        """Answer on the socket as `server` does, until cancelled."""
        if self._socket is None:
            await asyncio.Event().wait()
        if not server.config.loaded:
            server.config.load()

        def make() -> asyncio.Protocol:
            state: dict[str, Any] = {}
            return cast(
                "asyncio.Protocol",
                LocalConnection(
                    config=server.config, server_state=server.server_state, app_state=state, connections=connections
                ),
            )

        listening = await asyncio.get_running_loop().create_unix_server(make, sock=self._socket)
        try:
            await asyncio.Event().wait()
        finally:
            listening.close()

    def close(self) -> None:
        """Remove it, unless another gateway has taken its place."""
        if self._socket is None:
            return
        self._socket.close()
        with contextlib.suppress(OSError):
            if self.path.lstat().st_ino == self._inode:
                self.path.unlink()
        self._socket = None
