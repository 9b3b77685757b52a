"""The parent of one job: starts it isolated, waits for it, and leaves nothing of it behind.

`spawner.c` does the same in C, and is used where it was compiled. Whoever changes one changes the other; the tests of
the fork server and of walls hold both.
"""

# ruff: noqa: SIM105  contextlib would be a dozen more modules to load and to carry through every fork

import json
import os
import resource
import select
import signal
import socket
import struct
import time

from services.startd.forkserver import kernel
from services.startd.forkserver.cgroup import UNEASY_MS, Cgroup
from services.startd.forkserver.frames import Frame, Frames, pack
from services.startd.forkserver.job import StepError, become_job, clean_signals, isolate
from services.startd.forkserver.processes import descendants_of, kill_descendants, memory_of_kib, send_signal

#: How long to wait between two rounds of killing when processes do not die at once (uninterruptible sleep), seconds.
KILL_ROUND_S = 0.01
#: Where no cgroup tells the peak: seconds until the first look at it, how much longer until each next one, at most how
#: long; and how many times as much as a look takes of a processor, at least.
FIRST_LOOK_S, LOOK_GROWTH, MOST_LOOK_S, LOOK_SHARE = 0.1, 1.25, 30.0, 100.0
_CREDENTIALS = struct.Struct("3i")  # pid, uid, gid


class ChildSignals:
    """Makes SIGCHLD readable: a pipe that `select.poll` can watch."""

    def __init__(self) -> None:
        self.reader, self.writer = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        signal.set_wakeup_fd(self.writer, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda number, frame: None)

    def drain(self) -> None:
        try:
            while os.read(self.reader, 512):
                pass
        except BlockingIOError:
            pass


class MemoryLooks:
    """Looks at the memory of all processes of a job whose peak no cgroup tells: soon after its start, and then ever
    less often, so that little can be missed and the looks cost next to nothing."""

    def __init__(self, now: float) -> None:
        self.peak_kib = 0
        self.wait = FIRST_LOOK_S
        self.next = now + FIRST_LOOK_S

    def left_ms(self, now: float) -> int:
        return max(0, int((self.next - now) * 1000) + 1)

    def look(self, now: float) -> None:
        if now < self.next:
            return
        began = time.thread_time()
        self.peak_kib = max(self.peak_kib, sum(memory_of_kib(pid) for pid in descendants_of(os.getpid())))
        took = time.thread_time() - began
        self.wait = min(self.wait * LOOK_GROWTH, MOST_LOOK_S)
        self.next = now + max(self.wait, took * LOOK_SHARE)


class Nanny:
    """Runs in a fork of the server and never returns. With a PID namespace there is an *init* between it and the job:
    PID 1 of the namespace, at whose end the kernel kills all of the job.

    What the init (or the job's process, before it is the job) has to say comes by the socket `below`: `pid` from the
    job's process itself, which the kernel translates into our numbers; `failed`; `status` of the job's end.
    """

    def __init__(self, channel: int) -> None:
        self.channel = channel
        self.request: Frame = {}
        self.main = 0  # the job's main process
        self.child = 0  # our own child: the same, or the init
        self.status: int | None = None
        self.silent = False  # nothing more comes from below
        self.said: int | None = None  # the job's status, as the init tells it
        self.frames = Frames()
        self.cgroup = Cgroup(None)
        self.poll = select.poll()
        self.out_of_memory: Frame | None = None

    def run(self) -> None:
        kernel.prctl(kernel.PR_SET_CHILD_SUBREAPER, 1)
        self.signals = ChildSignals()
        orders: list[Frame] = []  # that came with the request
        while not self.request:
            data = os.read(self.channel, 1 << 20)
            if not data:  # never needed
                return
            for frame in self.frames.feed(data):
                if self.request:
                    orders.append(frame)
                else:
                    self.request = frame
        self.cgroup = Cgroup(self.request.get("cgroup"))
        self.cgroup.watch(self.poll)
        trouble = self.start()
        if trouble is not None:
            self.finish()
            os.write(self.channel, pack(trouble))
            return
        os.write(self.channel, pack({"op": "spawned", "pid": self.main, "at": time.time()}))
        for fd in (self.channel, self.signals.reader, self.below.fileno()):
            self.poll.register(fd, select.POLLIN)
        looks = None if self.cgroup.tells_peak() else MemoryLooks(time.monotonic())
        self.obey(orders)
        self.reap()
        while self.status is None:
            uneasy = self.cgroup.uneasy
            patience = UNEASY_MS if uneasy else None
            if looks is not None and patience is None:
                patience = looks.left_ms(time.monotonic())
            for fd, _ in self.poll.poll(patience):
                if fd == self.channel:
                    self.listen()
                elif fd == self.below.fileno():
                    self.hear()
                elif fd != self.signals.reader:
                    self.look_at_memory()
            if uneasy:
                self.look_at_memory()
            if looks is not None:
                looks.look(time.monotonic())
            self.signals.drain()
            self.reap()
        ended_at = time.time()
        self.look_at_memory()
        peak_kib = max(self.cgroup.resident_peak_kib(), looks.peak_kib if looks is not None else 0)
        self.finish()
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        result: Frame = {
            "op": "ended",
            "status": self.status,
            "at": ended_at,
            "user_cpu_s": used.ru_utime,
            "sys_cpu_s": used.ru_stime,
            "max_rss_kib": max(used.ru_maxrss, peak_kib),  # the first is of the largest process alone
        }
        if self.cgroup.used_up:
            result["cgroup_used_up"] = True
        if self.out_of_memory is not None:
            result["out_of_memory"] = self.out_of_memory
        os.write(self.channel, pack(result))

    # -- starting

    def start(self) -> Frame | None:
        """Fork the job; None, or why it could not be started."""
        self.below, ours = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.below.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        inside = bool(self.request.get("pid_namespace"))
        nanny = os.getpid()
        try:
            if inside:
                kernel.unshare(kernel.CLONE_NEWPID)  # for the children of this process
            self.child = self.cgroup.fork()
        except OSError as error:
            return {"op": "failed", "errno": error.errno or 0, "what": "start", "message": str(error)}
        if self.child == 0:
            try:
                self.enter_cgroup()
                if inside:
                    be_init(self.request, ours)
                else:
                    become_job(self.request, nanny)
            except BaseException as error:  # noqa: BLE001  this process must never go on as a nanny
                _tell_failure(ours, error)
            os._exit(127)
        ours.close()
        self.main = 0 if inside else self.child
        while True:
            data, ancillary, _, _ = self.below.recvmsg(8192, socket.CMSG_SPACE(_CREDENTIALS.size))
            if not data and not inside:
                break  # it has begun (or was killed before)
            frame = json.loads(data) if data else {"op": "failed", "errno": 0, "what": "start", "message": _gone()}
            if frame["op"] == "pid":
                self.main = _CREDENTIALS.unpack(ancillary[0][2])[0]
            elif frame["op"] == "begun":
                break
            else:
                os.waitpid(self.child, 0)
                return frame
        return None

    def enter_cgroup(self) -> None:
        try:
            self.cgroup.enter()
        except OSError as error:
            raise StepError("cgroup", error.errno, f"the job's cgroup: {error}") from error

    # -- watching

    def hear(self) -> None:
        """What the init says: how the job ended. It ends itself then, and takes the others with it."""
        data = self.below.recv(8192)
        if data:
            self.said = int(json.loads(data)["status"])
        elif not self.silent:
            self.silent = True
            self.poll.unregister(self.below.fileno())

    def look_at_memory(self) -> None:
        """A job that has lost one of its processes for lack of memory is over, whatever the others do."""
        found = self.cgroup.out_of_memory()
        if found is not None:
            self.out_of_memory = found
            if self.status is None:
                self.cgroup.kill()
                kill_descendants(os.getpid())

    def listen(self) -> None:
        data = os.read(self.channel, 65536)
        if not data:  # the server is gone: so is the job
            self.finish()
            os._exit(0)
        self.obey(self.frames.feed(data))

    def obey(self, orders: list[Frame]) -> None:
        for frame in orders:
            number = int(str(frame["signal"]))
            if not frame.get("tree"):
                send_signal(self.main, number)
            elif number == signal.SIGKILL:
                self.cgroup.kill()
                kill_descendants(os.getpid())
            elif number not in (signal.SIGSTOP, signal.SIGCONT) or not self.cgroup.freeze(number == signal.SIGSTOP):
                self.signal_tree(number)

    def signal_tree(self, number: int) -> None:
        """Signal all of them; again those that were forked meanwhile."""
        told: set[int] = set()
        while fresh := [pid for pid in descendants_of(os.getpid()) if pid not in told]:
            for pid in fresh:
                told.add(pid)
                send_signal(pid, number)

    def reap(self) -> None:
        """Collect what ended; remember the status of the job's main process (or of the init, if that was killed)."""
        while True:
            try:
                pid, status, _ = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if pid == self.child and self.status is None:
                self.status = self._last_word(status)

    def _last_word(self, status: int) -> int:
        """The job's status, when our own child ended with this one."""
        if self.said is None and self.request.get("pid_namespace"):
            self.below.setblocking(False)
            try:
                self.hear()
            except BlockingIOError:
                pass  # the init was killed, and the job with it
        return status if self.said is None else self.said

    def finish(self) -> None:
        """Kill everything below until nothing is left. Ends at once when nothing is."""
        first = True
        while True:
            try:
                pid, _ = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                if not (first and self.cgroup.kill()):
                    kill_descendants(os.getpid())
                first = False
                # A signal wakes the poll early; else another round is due for what was forked meanwhile.
                select.select([], [], [], KILL_ROUND_S)


# ---------------------------------------------------------------- PID 1


def be_init(request: Frame, above: socket.socket) -> None:
    """PID 1 of the job's namespace: isolates it, starts the job, collects what ends, and ends with the job.
    Never returns."""
    kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL)
    clean_signals()  # PID 1 gets no signal from its children that it does not handle
    os.setsid()
    isolate(request)
    reader, writer = os.pipe2(os.O_CLOEXEC)
    job = os.fork()
    if job == 0:
        try:
            above.send(json.dumps({"op": "pid"}).encode())
            become_job(request, 0)
        except BaseException as error:  # noqa: BLE001
            _tell_failure(above, error)
        os._exit(127)
    os.close(writer)
    if os.read(reader, 1) == b"":
        above.send(json.dumps({"op": "begun"}).encode())
    while True:
        pid, status = os.waitpid(-1, 0)
        if pid == job:
            above.send(json.dumps({"op": "ended", "status": status}).encode())
            os._exit(0)


def _tell_failure(above: socket.socket, error: BaseException) -> None:
    number = error.errno if isinstance(error, OSError) else None
    message = getattr(error, "message", None) or str(error) or type(error).__name__
    frame = {"op": "failed", "errno": number or 0, "what": getattr(error, "step", "start"), "message": message[:1000]}
    above.send(json.dumps(frame).encode())


def _gone() -> str:
    return "its first process was killed before it could start the job"
