"""A run's cgroup, as its nanny uses it: the job enters it, is stopped and killed by it, and what happened is read.

The startd has made it (`isolation.cgroups`) and names its directories; each may be missing:

- `unified`: of version 2, with `kill`, `freeze` and, where they are enabled there, the controllers;
- `freezer`, `memory`: of version 1, where they have a hierarchy each;
- `join`: every directory of version 1 that the job has to enter.

`with_files`: what the kernel keeps of files counts as the job's memory.
"""

import errno
import os
import select
import signal

from services.startd.forkserver import kernel
from services.startd.forkserver.frames import Frame
from services.startd.forkserver.processes import send_signal

#: How often to look whether a frozen cgroup of version 1 has come to rest, and for how long, before killing anyway.
FREEZE_ROUNDS, FREEZE_ROUND_S = 50, 0.002
#: How often the counters are looked at again after a job has hit its limit, and how long after each other, ms.
UNEASY_LOOKS, UNEASY_MS = 40, 50
#: The kernel charges memory in portions, and stops at a limit when the next one does not fit.
FULL = 0.95


class Cgroup:
    def __init__(self, described: object) -> None:
        given = described if isinstance(described, dict) else {}
        self.unified = str(given.get("unified", ""))
        self.freezer = str(given.get("freezer", ""))
        self.memory = str(given.get("memory", ""))
        self.join = [str(folder) for folder in given.get("join", [])]
        self.with_files = bool(given.get("with_files"))
        self.counter = -1  # eventfd of version 1: how often the job hit its own limit
        self.events = -1  # memory.events of version 2
        self.before: dict[str, int] = {}
        self.former_peak = 0  # of version 2: bytes, by jobs that were in it before this one
        self.born = False
        self.used_up = False
        self.own = False
        self.uneasy = 0  # so many more looks at the counters are due: the limit was hit, and nobody killed yet

    def folders(self) -> set[str]:
        """All of its directories."""
        return {folder for folder in (self.unified, self.freezer, self.memory, *self.join) if folder}

    # -- entering

    def fork(self) -> int:
        """fork(); where the kernel can, of a process that is born in the cgroup, so that nothing has to be moved.
        The child calls `enter` before anything else. Raises OSError."""
        if self.unified:
            try:
                pid = kernel.fork_into(self.unified)
            except OSError as error:
                if error.errno in (errno.ENOENT, errno.EAGAIN, errno.ENOMEM):
                    raise
            else:
                self.born = True
                return pid
        return os.fork()

    def enter(self) -> None:
        """Called in the child. Raises OSError: it must not go on outside."""
        for folder in self.join:
            _write(f"{folder}/cgroup.procs", "0")
        if self.unified and not self.born:
            _write(f"{self.unified}/cgroup.procs", "0")

    # -- memory

    def watch(self, poll: select.poll) -> None:
        """Before the job begins: remember the counters, and have the poll wake when its memory runs out."""
        if self.memory:
            self._watch_1(poll)
        elif self.unified:
            self.former_peak = self._peak()
            try:
                self.events = os.open(f"{self.unified}/memory.events", os.O_RDONLY | os.O_CLOEXEC)
            except OSError:
                return  # no memory controller there
            self.before = self._counters()
            poll.register(self.events, select.POLLPRI)

    def _watch_1(self, poll: select.poll) -> None:
        self.before = self._counters()
        try:
            _write(f"{self.memory}/memory.max_usage_in_bytes", "0")
            control = os.open(f"{self.memory}/memory.oom_control", os.O_RDONLY | os.O_CLOEXEC)
            counter = kernel.event_counter()
            _write(f"{self.memory}/cgroup.event_control", f"{counter} {control}")
            os.close(control)
        except OSError:
            return  # without it an end for lack of memory counts as the machine's
        self.counter = counter
        poll.register(counter, select.POLLIN)

    def _counters(self) -> dict[str, int]:
        try:
            if self.events >= 0:
                os.lseek(self.events, 0, os.SEEK_SET)
                return _fields(os.read(self.events, 4096).decode())
            if self.memory:
                return _fields(_read(f"{self.memory}/memory.oom_control"))
        except OSError:
            pass
        return {}

    def out_of_memory(self) -> Frame | None:
        """Whether processes of this job were killed for lack of memory; `own`: of the job's own limit, rather than
        the machine's."""
        now = self._counters()
        killed = now.get("oom_kill", 0) - self.before.get("oom_kill", 0)
        self.own |= now.get("oom", 0) > self.before.get("oom", 0)
        self.uneasy = max(0, self.uneasy - 1)
        if self.counter >= 0:
            try:
                os.read(self.counter, 8)
                self.own, self.uneasy = True, UNEASY_LOOKS  # version 1 tells before it kills
            except BlockingIOError:
                pass
        if killed <= 0:
            return None
        self.uneasy = 0
        return {"killed": killed, "own": self.own and self._was_full(), "peak_bytes": self._peak()}

    def _was_full(self) -> bool:
        """Version 1 tells a cgroup, too, that one above it has no memory left."""
        if not self.memory:
            return True
        try:
            return self._peak() >= int(_read(f"{self.memory}/memory.limit_in_bytes")) * FULL
        except (OSError, ValueError):
            return True

    def tells_peak(self) -> bool:
        """Whether the most that this job held at a time will be known in the end. Asked after `watch`."""
        return not self.former_peak and os.path.exists(self._peak_file())

    def resident_peak_kib(self) -> int:
        """The most memory that all processes of this job held at a time: the cgroup's peak, less the files it holds now
        where these do not count. Files that came later than the peak make it less, never more than the peak.
        0: not known, as where jobs before it in the same cgroup had more."""
        peak = self._peak()
        if peak <= self.former_peak:
            return 0
        try:
            stat = _fields(_read(f"{self.memory or self.unified}/memory.stat"))
        except OSError:
            return 0
        files = stat.get("total_cache", stat.get("file", 0)) - stat.get("total_shmem", stat.get("shmem", 0))
        return max(0, peak - (0 if self.with_files else max(0, files))) // 1024

    def _peak(self) -> int:
        try:
            return int(_read(self._peak_file()))
        except (OSError, ValueError):
            return 0  # memory.peak is of Linux 5.19

    def _peak_file(self) -> str:
        return f"{self.memory}/memory.max_usage_in_bytes" if self.memory else f"{self.unified}/memory.peak"

    # -- stopping and killing

    def freeze(self, frozen: bool) -> bool:
        """Stop or continue everything in it; False when it can not."""
        try:
            if self.unified:
                _write(f"{self.unified}/cgroup.freeze", "1" if frozen else "0")
                return True
            if self.freezer:
                _write(f"{self.freezer}/freezer.state", "FROZEN" if frozen else "THAWED")
                return True
        except OSError:
            pass
        return False

    def kill(self) -> bool:
        """SIGKILL to everything in it, and nothing can fork its way out; False when it can not."""
        if self.unified:
            try:
                # Linux 6.18, for one, kills at once whatever is born into a cgroup that was killed ever before, so it
                # must not be used again.
                self.used_up = True
                _write(f"{self.unified}/cgroup.kill", "1")
                return True
            except OSError:  # cgroup.kill is of Linux 5.14
                return self._kill_frozen(self.unified)
        if self.freezer:
            return self._kill_frozen(self.freezer)
        return False

    def _kill_frozen(self, folder: str) -> bool:
        if not self.freeze(True):
            return False
        try:
            for _ in range(FREEZE_ROUNDS):
                if self._at_rest():
                    break
                select.select([], [], [], FREEZE_ROUND_S)
            for word in _read(f"{folder}/cgroup.procs").split():
                send_signal(int(word), signal.SIGKILL)
        except OSError:
            return False
        finally:
            self.freeze(False)
        return True

    def _at_rest(self) -> bool:
        if self.unified:
            return _fields(_read(f"{self.unified}/cgroup.events")).get("frozen") == 1
        return _read(f"{self.freezer}/freezer.state").strip() == "FROZEN"


def _read(path: str) -> str:
    with open(path) as file:
        return file.read()


def _write(path: str, text: str) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(fd, text.encode())
    finally:
        os.close(fd)


def _fields(text: str) -> dict[str, int]:
    """`name number` lines."""
    found = {}
    for line in text.splitlines():
        name, _, number = line.partition(" ")
        if number.strip().isdigit():
            found[name] = int(number)
    return found
