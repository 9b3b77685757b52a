"""How a startd and its fork server prove to each other who they are, where the way between them is a socket that others
of their account may reach.

    server  prove {nonce}
    client  proof {nonce, mac}      mac: of the server's nonce, by the secret
    server  proved {mac}            mac: of the client's nonce, by the secret; then `state`, as ever

The secret lies in the server's directory, which jobs do not see (Landlock, a mount, or the account keep them out) and
which only the account of the startd may read. Besides, no process below the server is ever believed: all that a job
starts is below it.
"""

import _blake2
import os
import socket
import struct

from services.startd.forkserver.frames import Frame, Frames

SECRET_FILE = "secret"
SECRET_BYTES = NONCE_BYTES = 32
#: A caller who sends more than this before its proof is none of ours, bytes.
MOST_SAID = 1024
_CREDENTIALS = struct.Struct("3i")  # pid, uid, gid


def make_secret(path: str) -> bytes:
    """A new one, put where the next startd finds it. Raises OSError."""
    secret = os.urandom(SECRET_BYTES)
    if os.path.lexists(path):
        os.unlink(path)
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        os.write(fd, secret)
    finally:
        os.close(fd)
    return secret


def mac(secret: bytes, speaker: str, nonce: bytes) -> str:
    """speaker: client or server. A proof of one is none of the other."""
    # hashlib would bring a library of some megabytes into every fork.
    return _blake2.blake2b(speaker.encode() + nonce, key=secret, digest_size=32).hexdigest()


def same(one: str, other: str) -> bool:
    """Compares in the same time, wherever they differ."""
    if len(one) != len(other) or not one.isascii() or not other.isascii():
        return False
    difference = 0
    for left, right in zip(one.encode(), other.encode(), strict=True):
        difference |= left ^ right
    return difference == 0


def nonce_of(frame: Frame) -> bytes:
    """Raises ValueError."""
    nonce = bytes.fromhex(str(frame.get("nonce", "")))
    if len(nonce) != NONCE_BYTES:
        raise ValueError(f"a nonce of {len(nonce)} bytes")
    return nonce


def peer_of(connection: socket.socket) -> tuple[int, int]:
    """Process and account at the other end when it connected. A process that can not be seen from here is 0."""
    found = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    pid, uid, _ = _CREDENTIALS.unpack(found)
    return pid, uid


class Caller:
    """Who has connected and not yet proved who it is. due: when the server's patience ends, monotonic."""

    def __init__(self, connection: socket.socket, pid: int, due: float) -> None:
        self.connection = connection
        self.pid = pid
        self.due = due
        self.frames = Frames()
        self._nonce = os.urandom(NONCE_BYTES)
        self._said = 0

    def challenge(self) -> Frame:
        return {"op": "prove", "nonce": self._nonce.hex()}

    def hear(self) -> Frame | None:
        """Its answer; None: it has not said it all. Raises OSError, ValueError."""
        try:
            data = self.connection.recv(MOST_SAID + 1)
        except BlockingIOError:
            return None
        self._said += len(data)
        if not data or self._said > MOST_SAID:
            raise ValueError("no proof")
        try:
            answers = self.frames.feed(data)
        except RecursionError:
            raise ValueError("no proof") from None
        if not answers:
            return None
        if not isinstance(answers[0], dict):
            raise ValueError("no proof")
        return answers[0]

    def proves(self, secret: bytes, answer: Frame) -> bool:
        given = mac(secret, "client", self._nonce)
        return bool(secret) and answer.get("op") == "proof" and same(str(answer.get("mac", "")), given)

    def own_proof(self, secret: bytes, answer: Frame) -> Frame:
        """Raises ValueError."""
        return {"op": "proved", "mac": mac(secret, "server", nonce_of(answer))}
