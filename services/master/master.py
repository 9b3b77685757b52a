"""The master as a process: forks daemons from one that has read what all of them stand on, and looks after them."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import os
import runpy
import selectors
import shutil
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Final, NoReturn

import structlog

from services.master.core.daemon_words import Listed, Program
from services.master.core.supervision import Kill, State, Supervision, Watched
from shared.daemon.systemd import Systemd

#: Seconds between two signs of life to systemd, and the longest that the master sleeps.
LOOK_S: Final = 5.0
#: Bytes of what a daemon says of itself at once.
_SAID: Final = 4096
_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT, signal.SIGHUP, signal.SIGCHLD)
_PR_SET_PDEATHSIG: Final = 1


class Master:
    """read: what is to run, as the configuration says now; raises ValueError. What a daemon says comes to a socket of
    its own, in a directory that only this account enters."""

    def __init__(self, read: Callable[[], Listed], supervision: Supervision, systemd: Systemd) -> None:
        self._read = read
        self._supervision = supervision
        self._systemd = systemd
        self._log = structlog.stdlib.get_logger().bind(daemon="master")
        self._selector = selectors.DefaultSelector()
        self._sockets: dict[str, socket.socket] = {}
        self._directory = Path(tempfile.mkdtemp(prefix="roost-master-"))
        self._woken, self._wakes = socket.socketpair()
        self._told_at = float("-inf")
        self._was_ready = False

    def run(self, listed: Listed) -> None:
        """Until it is told to stop, and all daemons have ended."""
        self._preload(listed.programs)
        self._woken.setblocking(False)
        self._wakes.setblocking(False)
        self._selector.register(self._woken, selectors.EVENT_READ, None)
        for number in _SIGNALS:
            signal.signal(number, lambda *_: None)  # its number comes to the socket
        before = signal.set_wakeup_fd(self._wakes.fileno(), warn_on_full_buffer=False)
        try:
            self._want(listed)
            while not (self._supervision.stopping and self._supervision.empty):
                self._turn()
        finally:
            signal.set_wakeup_fd(before)
            shutil.rmtree(self._directory, ignore_errors=True)

    def _turn(self) -> None:
        now = time.monotonic()
        for one in self._supervision.due(now):
            self._start(one)
        self._kill(self._supervision.overdue(now))
        self._tell(now)
        due = self._supervision.next_due()
        wait = LOOK_S if due is None else min(LOOK_S, max(0.0, due - time.monotonic()))
        for key, _ in self._selector.select(wait):
            if key.data is None:
                self._signals()
            else:
                self._hear(key.data)

    def _signals(self) -> None:
        try:
            numbers = set(self._woken.recv(_SAID))
        except BlockingIOError:
            return
        self._reap()
        if numbers & {signal.SIGTERM, signal.SIGINT, signal.SIGQUIT}:
            self._systemd.stopping()
            self._kill(self._supervision.stop(time.monotonic()))
        elif signal.SIGHUP in numbers:
            self._reconfigure()

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if not pid:
                return
            code = os.waitstatus_to_exitcode(status)
            ended = self._supervision.ended(pid, code, time.monotonic())
            if ended is None:
                continue
            log = self._log.bind(word=ended.program.word, pid=pid, ended=ended.last)
            if ended.state is State.OVER:
                log.error("daemon_over", again="when the configuration is read again (SIGHUP)")
            elif ended.gone or self._supervision.stopping:
                log.info("daemon_ended")
            else:
                log.warning("daemon_died", again_in_s=round(max(0.0, ended.due - time.monotonic()), 3))

    def _hear(self, word: str) -> None:
        with contextlib.suppress(BlockingIOError):
            text = self._sockets[word].recv(_SAID).decode(errors="replace")
            lines = dict(line.partition("=")[::2] for line in text.splitlines())
            self._supervision.told(word, lines, time.monotonic())

    def _reconfigure(self) -> None:
        """What is listed now runs, and reads its configuration again; a broken one changes nothing."""
        try:
            listed = self._read()
        except ValueError as error:
            self._log.error("configuration_kept", reason=str(error))
            return
        running = [
            one.pid for one in self._supervision.watched.values() if one.state in (State.STARTING, State.RUNNING)
        ]
        self._want(listed)
        for one in self._supervision.watched.values():
            if one.pid in running and one.state is not State.STOPPING:
                _signal(one.pid, signal.SIGHUP)

    def _want(self, listed: Listed) -> None:
        for problem in listed.warnings:
            self._log.warning("configuration", problem=problem)
        self._kill(self._supervision.want(listed.programs, time.monotonic()))

    def _kill(self, kills: Iterable[Kill]) -> None:
        for kill in kills:
            if kill.signal is signal.SIGKILL:
                self._log.error("daemon_killed", pid=kill.pid, reason=kill.why)
            _signal(kill.pid, kill.signal)

    def _tell(self, now: float) -> None:
        """systemd, of all of them."""
        ready = self._supervision.ready
        if ready and not self._was_ready:
            self._systemd.ready()
            self._log.info("daemons_ready", words=[*self._supervision.watched])
            self._told_at = float("-inf")
        self._was_ready = ready
        if now >= self._told_at + LOOK_S:
            self._told_at = now
            self._systemd.tell_alive(self._supervision.status())

    def _preload(self, programs: Sequence[Program]) -> None:
        """Read once what each daemon would read for itself: a start is then a fork, and all share the memory. Without
        a thread, as only the one that forks lives on in a child."""
        for program in programs:
            importlib.import_module(f"{program.module}.daemon")
        gc.collect()
        gc.freeze()

    def _start(self, one: Watched) -> None:
        program = one.program
        address = self._listen(program.word)
        sys.stdout.flush()
        sys.stderr.flush()
        parent = os.getpid()
        pid = os.fork()
        if not pid:
            self._become(program, address, parent)
        self._supervision.started(program.word, pid, time.monotonic())
        self._log.info("daemon_starts", word=program.word, pid=pid)

    def _listen(self, word: str) -> str:
        """The address of the word's socket. What an earlier life said is not heard any more."""
        path = self._directory / word
        if known := self._sockets.pop(word, None):
            self._selector.unregister(known)
            known.close()
            path.unlink()
        made = self._sockets[word] = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        made.bind(str(path))
        made.setblocking(False)
        self._selector.register(made, selectors.EVENT_READ, word)
        return str(path)

    def _become(self, program: Program, address: str, parent: int) -> NoReturn:
        """In the child: what `python -m MODULE ARGUMENTS` would be."""
        status = 1
        try:
            signal.set_wakeup_fd(-1)
            for number in _SIGNALS:
                signal.signal(number, signal.SIG_DFL)
            self._selector.close()
            for one in (*self._sockets.values(), self._woken, self._wakes):
                one.close()
            os.setpgid(0, 0)  # Ctrl-C in a terminal is for the master
            _die_with(parent)
            with contextlib.suppress(OSError):
                Path("/proc/self/comm").write_text(f"roost_{program.word.lower()}"[:15])
            os.environ.update(program.environment)
            os.environ["NOTIFY_SOCKET"] = address
            if self._supervision.not_responding_s:
                os.environ["WATCHDOG_USEC"] = str(int(self._supervision.not_responding_s * 1e6))
            sys.argv = [program.module, *program.arguments]
            runpy.run_module(program.module, run_name="__main__", alter_sys=True)
            status = 0
        except SystemExit as ended:
            status = ended.code if isinstance(ended.code, int) else 0 if ended.code is None else 1
        except BaseException:  # noqa: BLE001  its end is told as an interpreter tells it
            sys.excepthook(*sys.exc_info())
        finally:
            with contextlib.suppress(Exception):
                sys.stdout.flush()
                sys.stderr.flush()
            os._exit(status)


def _signal(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def _die_with(parent: int) -> None:
    """The daemon is killed when its master is: the next master starts it anew, and two of a name would be in each
    other's way."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)  # it died before it could be said
