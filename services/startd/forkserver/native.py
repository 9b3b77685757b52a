"""The spawner (`spawner.c`), as the fork server uses it: nannies in C, which take a tenth of the processor time.

It is used when it was compiled from the source that lies beside it, puts up the walls of this version, and has passed a
test: one job, which looks whether the walls stand around it. Else, and as soon as it does not answer, nannies are forks
of the server (`nanny`), which do the same.
"""

import _blake2
import os
import select
import signal
import socket
import struct
import time

from services.startd.forkserver import WALLS, seccomp
from services.startd.forkserver.frames import Frame, Frames, pack

#: How long it may take to answer, seconds. It takes a tenth of a millisecond.
PATIENCE_S = 10.0
#: What the test's job ends with when all is well, and what the spawner's source is called.
PROBED, SOURCE = 42, "spawner.c"
_NUMBER = struct.Struct("=i")


class NoSpawner(Exception):
    """There is none that can be used; the text says why."""


class Spawner:
    """A running one. `pid`: its process, a child of the server."""

    def __init__(self, program: str) -> None:
        """Raises NoSpawner."""
        wanted = f"{WALLS} {_digest(os.path.join(os.path.dirname(program), SOURCE))}"
        self.program = program
        self.link, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            # The program sees no descriptor of ours but the standard ones, and its own.
            actions = [(os.POSIX_SPAWN_DUP2, theirs.fileno(), 3)]
            self.pid = os.posix_spawn(program, [program, "serve"], {}, file_actions=actions)
        except OSError as error:
            self.link.close()
            raise NoSpawner(str(error)) from error
        finally:
            theirs.close()
        try:
            self.link.settimeout(PATIENCE_S)
            greeting = self.link.recv(128).decode("ascii", "replace")
            if greeting != wanted:
                raise NoSpawner(f"it was made from another source: {greeting!r} rather than {wanted!r}")
            for number in range(4):
                program_here = seccomp.program_here(namespaces=bool(number & 1), others=bool(number & 2))
                self.link.send(bytes((ord("F"), number)) + program_here)
        except OSError as error:
            self.close()
            raise NoSpawner(f"it does not answer: {error}") from error
        except NoSpawner:
            self.close()
            raise

    def nanny(self, channel: socket.socket) -> int:
        """Have a nanny at the other end of a channel: its process, a child of ours. Raises OSError where the kernel has
        none, NoSpawner where there is no answer."""
        try:
            rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, _NUMBER.pack(channel.fileno()))]
            self.link.sendmsg([b"N"], rights)
            answer = self.link.recv(_NUMBER.size)
        except OSError as error:
            raise NoSpawner(f"it does not answer: {error}") from error
        if len(answer) != _NUMBER.size:
            raise NoSpawner("it has ended")
        (pid,) = _NUMBER.unpack(answer)
        if pid < 0:
            raise OSError(-pid, os.strerror(-pid))
        return int(pid)

    def close(self) -> None:
        """It ends, and its nannies go on. Not after it was waited for: its number may be another's then."""
        self.link.close()
        os.kill(self.pid, signal.SIGKILL)  # one that hangs does not see the link's end

    def test(self) -> None:
        """Start a job that looks whether it was started as it was asked, before any other. Raises NoSpawner."""
        ours, theirs = socket.socketpair()
        try:
            pid = self.nanny(theirs)
            theirs.close()
            ours.sendall(pack(self._probe()))
            told = _hear(ours)
            os.waitpid(pid, 0)
        except OSError as error:
            raise NoSpawner(f"its test failed: {error}") from error
        finally:
            ours.close()
            theirs.close()
        last = told[-1] if told else {}
        if last.get("op") != "ended" or last.get("status") != PROBED << 8:
            raise NoSpawner(f"its test failed: {last}")

    def _probe(self) -> Frame:
        filtered = seccomp.program_here(namespaces=False, others=False)
        walls: Frame = {
            "no_new_privileges": True,
            "capabilities": 0,
            "landlock": {"grants": None},
            "seccomp": {"namespaces": False, "others": False},
            "limits": {"RLIMIT_CORE": 0},
        }
        argv = [self.program, "probe", "0", "1" if filtered else "0"]
        return {"op": "spawn", "run": "test", "executable": self.program, "argv": argv, "env": {}, "cwd": "/"} | walls


def _hear(channel: socket.socket) -> list[Frame]:
    """All that a nanny says until it closes the channel. Raises OSError."""
    frames = Frames()
    told: list[Frame] = []
    until = time.monotonic() + PATIENCE_S
    while True:
        if not select.select([channel], [], [], max(0.0, until - time.monotonic()))[0]:
            raise TimeoutError("it does not end")
        data = channel.recv(1 << 16)
        if not data:
            return told
        told += frames.feed(data)


def _digest(source: str) -> str:
    """As build.py makes it. Raises NoSpawner."""
    try:
        with open(source, "rb") as file:
            return _blake2.blake2b(file.read(), digest_size=16).hexdigest()
    except OSError as error:
        raise NoSpawner(str(error)) from error


def start(program: str) -> Spawner:
    """A spawner that works. Raises NoSpawner."""
    spawner = Spawner(program)
    try:
        spawner.test()
    except NoSpawner:
        spawner.close()
        raise
    return spawner
