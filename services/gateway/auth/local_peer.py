"""The account at the other end of the gateway's Unix socket, told by SO_PEERCRED once, as the connection is made.

Jobs are kept out by something that they can not undo: all of them run with no-new-privileges, and a process that has it
is not believed here, whoever it belongs to."""

from __future__ import annotations

import asyncio
import contextlib
import os
import pwd
import select
import socket
import struct
from pathlib import Path
from typing import Final

from starlette.types import Scope

#: Where it stands in the state of a request, for who has come over the socket: a LocalPeer.
LOCAL_PEER: Final = "roost.local_peer"
_SO_PEERPIDFD: Final = 77  # Linux 6.5
_OVERFLOW: Final = Path("/proc/sys/kernel/overflowuid")


class LocalPeer:
    """The account at the other end. uid: None where it can not be known, with the reason in why."""

    __slots__ = ("_name", "uid", "why")

    def __init__(self, uid: int | None, why: str = "") -> None:
        self.uid = uid
        self.why = why
        self._name = ""

    @property
    def address(self) -> str:
        """In place of an address of the network."""
        return "local" if self.uid is None else f"local uid {self.uid}"

    async def name(self) -> str:
        """The account's name, asked for once a connection. Raises ValueError with the reason."""
        if self.uid is None:
            raise ValueError(self.why)
        if not self._name:
            try:
                # Accounts may come from a server that takes its time.
                self._name = (await asyncio.to_thread(pwd.getpwuid, self.uid)).pw_name
            except KeyError:
                raise ValueError(f"this machine has no account with uid {self.uid}") from None
        return self._name


def peer_of(found: socket.socket) -> LocalPeer:
    """Whose process has connected."""
    pid, uid, _ = struct.unpack("3i", found.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i")))
    if uid == _overflow_uid():
        return LocalPeer(None, "your account is one of another user namespace, which this machine does not know")
    if pid <= 0:
        return LocalPeer(None, "your process is of another process namespace, so it may be a job's; send a token")
    try:
        handle = _handle_of(found, pid)
    except OSError:
        return LocalPeer(None, "the process that has connected has ended")
    try:
        status = Path(f"/proc/{pid}/status").read_text()
        if select.select([handle], [], [], 0)[0]:  # it has ended, and the number may be another's
            return LocalPeer(None, "the process that has connected has ended")
    except (FileNotFoundError, ProcessLookupError):
        return LocalPeer(None, "the process that has connected has ended")
    except OSError as error:
        return LocalPeer(None, f"nothing can be learned of your process ({error.strerror}); send a token")
    finally:
        os.close(handle)
    if confined(status):
        return LocalPeer(None, "a process with no-new-privileges, as jobs are, has to send a token")
    return LocalPeer(uid)


def _handle_of(found: socket.socket, pid: int) -> int:
    """A descriptor of the process that has connected. Raises OSError where it has ended."""
    with contextlib.suppress(OSError):
        return found.getsockopt(socket.SOL_SOCKET, _SO_PEERPIDFD)
    return os.pidfd_open(pid)


def confined(status: str) -> bool:
    """Whether /proc/PID/status is of a process that can not get more rights. Where it does not say, it may be one."""
    for line in status.splitlines():
        name, _, value = line.partition(":")
        if name == "NoNewPrivs":
            return value.strip() != "0"
    return True


def _overflow_uid() -> int:
    try:
        return int(_OVERFLOW.read_text())
    except (OSError, ValueError):
        return 65534


def local_address(scope: Scope) -> str:
    """Where a request comes from that has no address of the network; empty: it is not of the socket."""
    found = scope.get("state", {}).get(LOCAL_PEER)
    return found.address if isinstance(found, LocalPeer) else ""
