"""The fork server: the parent of all jobs of one startd, a small process that outlives it.

Started as a plain script (`python -I -S forkserver.py DIRECTORY ...`) so that it imports nothing but a few modules of
the standard library: forking a small process takes a fraction of a millisecond, and nothing of ours can break it. It
stays in the directory that it is given:

- `lock`: held as long as it lives, so there is one server for a directory;
- `socket`: where the startd connects. One client at a time; the newest wins (a restarted startd);
- `results/<run>`: how a run ended, if the client has not acknowledged that a moment later.

Under it every run has a *nanny*, a fork of the server that is the job's parent and a "child subreaper": whatever a
job leaves behind, also after double forks and new sessions, becomes a child of its nanny, so nothing escapes and no
marker or scan over all processes is needed. When the job's main process ends, the nanny kills what is left, adds up
what all of them used (wait4), and reports. Should the server die, the nannies see their channel close, kill their
jobs and end; should a nanny be killed, the kernel kills the job's main process (PR_SET_PDEATHSIG) and the server kills
the orphans, which come to it.

Frames on all sockets: 4 bytes length (big endian), then JSON.

Client to server: spawn, signal, kill, ack, list, exit. Server to client: spawned, failed, ended, state. See `Server`.
"""

# ruff: noqa: SIM105  contextlib would be a dozen more modules to load and to carry through every fork

import ctypes
import errno
import fcntl
import gc
import json
import os
import resource
import select
import signal
import socket
import struct
import sys
import time

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
LENGTH = struct.Struct(">I")
MAX_FRAME = 64 * 1024 * 1024
#: How long to wait between two rounds of killing when processes do not die at once (uninterruptible sleep), seconds.
KILL_ROUND_S = 0.01
#: How long a server without jobs waits for its startd to come back, seconds.
IDLE_S = 60.0
#: An end that the client has not acknowledged by then is written to the disk, seconds. It nearly always has.
KEEP_AFTER_S = 0.1

Frame = dict[str, object]

_libc = ctypes.CDLL(None, use_errno=True)


def pack(frame: Frame) -> bytes:
    data = json.dumps(frame, separators=(",", ":")).encode()
    return LENGTH.pack(len(data)) + data


class Frames:
    """Cuts a stream of bytes into frames."""

    def __init__(self) -> None:
        self.buffer = bytearray()

    def feed(self, data: bytes) -> list[Frame]:
        """Raises ValueError when the stream is not made of frames."""
        self.buffer += data
        frames: list[Frame] = []
        while len(self.buffer) >= LENGTH.size:
            (length,) = LENGTH.unpack_from(self.buffer)
            if length > MAX_FRAME:
                raise ValueError(f"a frame of {length} bytes")
            end = LENGTH.size + length
            if len(self.buffer) < end:
                break
            frames.append(json.loads(bytes(self.buffer[LENGTH.size : end])))
            del self.buffer[:end]
        return frames


def prctl(option: int, value: int) -> None:
    if _libc.prctl(option, value, 0, 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), f"prctl({option})")


def children_of(pid: int) -> list[int]:
    """Pids of the direct children of a process; empty when it is gone."""
    try:
        pids: list[int] = []
        for task in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{task}/children") as file:
                pids += [int(word) for word in file.read().split()]
        return pids
    except FileNotFoundError:
        return _children_by_scan(pid) if os.path.isdir(f"/proc/{pid}") else []
    except ProcessLookupError:
        return []


def _children_by_scan(parent: int) -> list[int]:
    # For kernels without CONFIG_PROC_CHILDREN: field 4 of stat is the parent; the name before it may hold anything.
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                with open(f"/proc/{entry}/stat") as file:
                    fields = file.read().rpartition(")")[2].split()
            except (FileNotFoundError, ProcessLookupError):
                continue
            if int(fields[1]) == parent:
                found.append(int(entry))
    return found


def descendants_of(pid: int) -> list[int]:
    found: list[int] = []
    todo = [pid]
    while todo:
        children = children_of(todo.pop())
        found += children
        todo += children
    return found


def send_signal(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass  # it ended by itself meanwhile, which is what was wanted


def kill_descendants(pid: int) -> None:
    for child in descendants_of(pid):
        send_signal(child, signal.SIGKILL)


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


# ---------------------------------------------------------------- the nanny


class Nanny:
    """Parent of one job; runs in a fork of the server and never returns."""

    def __init__(self, channel: int) -> None:
        self.channel = channel
        self.request: Frame = {}
        self.main = 0
        self.frames = Frames()

    def run(self) -> None:
        prctl(PR_SET_CHILD_SUBREAPER, 1)
        signals = ChildSignals()
        while not self.request:
            data = os.read(self.channel, 1 << 20)
            if not data:  # never needed
                return
            for frame in self.frames.feed(data):
                self.request = frame
        trouble = self.start()
        if trouble is not None:
            os.write(self.channel, pack(trouble))
            return
        os.write(self.channel, pack({"op": "spawned", "pid": self.main, "at": time.time()}))
        poll = select.poll()
        poll.register(self.channel, select.POLLIN)
        poll.register(signals.reader, select.POLLIN)
        status = self.reap()
        while status is None:
            for fd, _ in poll.poll():
                if fd == self.channel:
                    self.obey()
            signals.drain()
            status = self.reap()
        ended_at = time.time()
        self.finish()
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        result: Frame = {
            "op": "ended",
            "status": status,
            "at": ended_at,
            "user_cpu_s": used.ru_utime,
            "sys_cpu_s": used.ru_stime,
            "max_rss_kib": used.ru_maxrss,
        }
        os.write(self.channel, pack(result))

    def start(self) -> Frame | None:
        """Fork the job; None, or why it could not be started."""
        reader, writer = os.pipe2(os.O_CLOEXEC)
        nanny = os.getpid()
        self.main = os.fork()
        if self.main == 0:
            try:
                become_job(self.request, nanny)
            except BaseException as error:  # noqa: BLE001  this process must never go on as a nanny
                number = error.errno if isinstance(error, OSError) else None
                what = getattr(error, "step", "start")
                message = getattr(error, "message", None) or str(error)
                os.write(writer, json.dumps([number or 0, what, message[:1000]]).encode())
            os._exit(127)
        os.close(writer)
        trouble = b""
        while chunk := os.read(reader, 4096):
            trouble += chunk
        os.close(reader)
        if not trouble:
            return None
        os.waitpid(self.main, 0)
        number, what, message = json.loads(trouble)
        return {"op": "failed", "errno": number, "what": what, "message": message}

    def obey(self) -> None:
        data = os.read(self.channel, 65536)
        if not data:  # the server is gone: so is the job
            self.finish()
            os._exit(0)
        for frame in self.frames.feed(data):
            number = int(str(frame["signal"]))
            if frame.get("tree"):
                for pid in descendants_of(os.getpid()):
                    send_signal(pid, number)
            else:
                send_signal(self.main, number)

    def reap(self) -> int | None:
        """Collect what ended; the wait status of the job's main process if it is among them."""
        found = None
        while True:
            try:
                pid, status, _ = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                return found
            if pid == 0:
                return found
            if pid == self.main:
                found = status

    def finish(self) -> None:
        """Kill everything below until nothing is left. Ends at once when nothing is."""
        while True:
            try:
                pid, _ = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                kill_descendants(os.getpid())
                # A signal wakes the poll early; else another round is due for what was forked meanwhile.
                select.select([], [], [], KILL_ROUND_S)


class StepError(OSError):
    """An error with the step of the start in which it happened."""

    def __init__(self, step: str, number: int | None, message: str) -> None:
        super().__init__(number or 0, message)
        self.step = step
        self.message = message


def become_job(request: Frame, nanny: int) -> None:
    """In the job's own process: set everything up and exec. Returns or raises only when that failed."""

    def text(key: str) -> str:
        value = request.get(key)
        return value if isinstance(value, str) else ""

    signal.set_wakeup_fd(-1)
    for number in (
        signal.SIGCHLD,
        signal.SIGINT,
        signal.SIGPIPE,
        signal.SIGTERM,
        signal.SIGHUP,
        signal.SIGXFSZ,
    ):
        signal.signal(number, signal.SIG_DFL)
    os.setsid()
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != nanny:  # it died before the line above took effect
        os._exit(127)
    try:
        os.chdir(text("cwd"))
    except OSError as error:
        raise StepError("cwd", error.errno, f"{text('cwd')}: {error.strerror}") from error
    os.umask(int(str(request.get("umask", 0o022))))
    flags = os.O_WRONLY | os.O_CREAT
    streams = (
        ("stdin", 0, os.O_RDONLY),
        ("stdout", 1, flags | (os.O_APPEND if request.get("append_stdout") else os.O_TRUNC)),
        ("stderr", 2, flags | (os.O_APPEND if request.get("append_stderr") else os.O_TRUNC)),
    )
    for name, target, how in streams:
        path = text(name) or "/dev/null"
        if name == "stderr" and path == text("stdout"):
            os.dup2(1, 2)
            continue
        try:
            # A pipe without anybody at its other end must not keep the server, and so all other jobs, waiting: one to
            # write to is refused (ENXIO), one to read from is the job's to wait for.
            fd = os.open(path, how | os.O_NONBLOCK, 0o666)
            os.set_blocking(fd, True)
        except OSError as error:
            raise StepError(name, error.errno, f"{path}: {error.strerror}") from error
        os.dup2(fd, target)
        if fd != target:
            os.close(fd)
    limits = request.get("limits")
    if isinstance(limits, dict):
        for name, value in limits.items():
            kind = getattr(resource, name)
            hard = resource.getrlimit(kind)[1]
            wanted = int(value) if hard == resource.RLIM_INFINITY or value < hard else hard
            resource.setrlimit(kind, (wanted, wanted))
    nice = int(str(request.get("nice", 0)))
    if nice:
        os.nice(nice)
    argv, env = request["argv"], request["env"]
    assert isinstance(argv, list)
    assert isinstance(env, dict)
    try:
        os.execve(text("executable"), argv, env)
    except OSError as error:
        raise StepError("exec", error.errno, f"{text('executable')}: {error.strerror}") from error
    except ValueError as error:
        raise StepError("exec", errno.EINVAL, f"{text('executable')}: {error}") from error


# ---------------------------------------------------------------- the server


class Run:
    """One job under way."""

    def __init__(self, name: str, nanny: int, channel: socket.socket) -> None:
        self.name = name
        self.nanny = nanny
        self.channel = channel
        self.frames = Frames()
        self.pid = 0
        self.started_at = 0.0
        self.failure: Frame | None = None
        self.result: Frame | None = None

    def state(self) -> Frame:
        return {"run": self.name, "pid": self.pid, "nanny": self.nanny, "at": self.started_at}


class Server:
    """See the module.

    spawn {run, executable, argv, env, cwd, stdin, stdout, stderr, append_stdout, append_stderr, umask, nice, limits}
      -> spawned {run, pid, nanny, at} or failed {run, errno, what, message}; what: cwd, stdin, stdout,
      stderr, exec, fork, start
    signal {run, signal, tree}: to the main process, or to all of the job's processes
    kill {run}: SIGKILL to all of them
    ack {run}: its result need not be kept any longer
    list -> state {running: [...], ended: [...]}; also sent when a client connects
    exit: end now, with all jobs
    Unasked: ended {run, status (as waitpid gives it), at, user_cpu_s, sys_cpu_s, max_rss_kib}; a status of null: the
    nanny was killed and how the job would have ended is not known.
    """

    def __init__(self, directory: str, orphan_s: float) -> None:
        self.directory = directory
        self.orphan_s = orphan_s
        self.runs: dict[str, Run] = {}
        self.by_fd: dict[int, Run] = {}
        self.ended: dict[str, Frame] = {}
        self.unkept: dict[str, float] = {}  # ends that are not on disk -> when they are due there, oldest first
        self.client: socket.socket | None = None
        self.frames = Frames()
        self.out = bytearray()
        self.alone_since = time.monotonic()
        self.poll = select.poll()
        self.spare: Run | None = None
        self.nannies: set[int] = set()  # pids, until they are collected

    def run(self, ready: int) -> None:
        os.chdir(self.directory)  # so that the socket's path is short, whatever the directory's is
        lock = os.open("lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return  # another one serves this directory
        os.makedirs("results", mode=0o700, exist_ok=True)
        self.load()
        prctl(PR_SET_CHILD_SUBREAPER, 1)
        self.signals = ChildSignals()
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        if os.path.lexists("socket"):
            os.unlink("socket")
        old_mask = os.umask(0o177)
        self.listener.bind("socket")
        os.umask(old_mask)
        self.listener.listen(8)
        self.poll.register(self.listener.fileno(), select.POLLIN)
        self.poll.register(self.signals.reader, select.POLLIN)
        os.write(ready, b"1")
        os.close(ready)
        gc.collect()
        gc.freeze()
        gc.disable()  # no cycles are made, and a collection in every fork would copy all pages
        self.make_spare()
        while self.turn():
            pass
        os.unlink("socket")
        self.listener.close()
        self.drop()
        for run in (*self.runs.values(), *filter(None, [self.spare])):
            run.channel.close()  # nannies end their jobs when they see that
        while children_of(os.getpid()):
            self.signals.drain()
            self.reap()
            select.select([self.signals.reader], [], [], KILL_ROUND_S)

    def load(self) -> None:
        for name in os.listdir("results"):
            with open(os.path.join("results", name)) as file:
                text = file.read()
            try:
                frame = json.loads(text)
            except ValueError:
                os.unlink(os.path.join("results", name))  # half written when the server was killed
                continue
            self.ended[frame["run"]] = frame

    def turn(self) -> bool:
        """One round of the loop; False when it is time to end."""
        timeout = None
        if self.client is None:
            # Results are on disk: without jobs there is little to stay for.
            patience = self.orphan_s if self.runs else min(self.orphan_s, IDLE_S)
            left = self.alone_since + patience - time.monotonic()
            if left <= 0:
                return False
            timeout = left * 1000 + 1
        if self.unkept:
            due = (next(iter(self.unkept.values())) - time.monotonic()) * 1000 + 1
            timeout = max(0.0, due if timeout is None else min(timeout, due))
        for fd, event in self.poll.poll(timeout):
            if fd == self.listener.fileno():
                self.accept()
            elif fd == self.signals.reader:
                self.signals.drain()
                self.reap()
            elif fd in self.by_fd:
                self.hear(self.by_fd[fd])
            elif self.client is not None and fd == self.client.fileno():
                if event & select.POLLOUT:
                    self.flush()
                if event & ~select.POLLOUT and not self.serve():
                    return False
        self.keep()
        return True

    # -- the client

    def accept(self) -> None:
        try:
            client, _ = self.listener.accept()
        except BlockingIOError:
            return
        self.drop()
        client.setblocking(False)
        self.client, self.frames, self.out = client, Frames(), bytearray()
        self.poll.register(client.fileno(), select.POLLIN)
        self.say(self.state())

    def drop(self) -> None:
        if self.client is not None:
            self.poll.unregister(self.client.fileno())
            self.client.close()
            self.client = None
            self.alone_since = time.monotonic()
            self.keep()

    def say(self, frame: Frame) -> None:
        if self.client is not None:
            self.out += pack(frame)
            self.flush()

    def flush(self) -> None:
        if self.client is None:
            return
        try:
            while self.out:
                del self.out[: self.client.send(self.out)]
        except BlockingIOError:
            pass
        except OSError:
            self.drop()
            return
        wanted = select.POLLIN | (select.POLLOUT if self.out else 0)
        self.poll.modify(self.client.fileno(), wanted)

    def serve(self) -> bool:
        """Do what the client says; False when it said exit."""
        assert self.client is not None
        try:
            data = self.client.recv(1 << 20)
        except BlockingIOError:
            return True
        except OSError:
            data = b""
        if not data:
            self.drop()
            return True
        try:
            frames = self.frames.feed(data)
        except ValueError:
            self.drop()
            return True
        for frame in frames:
            op, name = frame.get("op"), str(frame.get("run", ""))
            run = self.runs.get(name)
            if op == "spawn" and run is None and name not in self.ended:
                self.spawn(name, frame)
            elif op in ("signal", "kill") and run is not None:
                number = signal.SIGKILL if op == "kill" else frame["signal"]
                self.tell(run, {"signal": int(str(number)), "tree": op == "kill" or bool(frame.get("tree"))})
            elif op == "ack" and name in self.ended:
                del self.ended[name]
                if self.unkept.pop(name, None) is None:
                    os.unlink(self.result_path(name))
            elif op == "list":
                self.say(self.state())
            elif op == "exit":
                return False
        return True

    def state(self) -> Frame:
        # Those too whose start nobody has told of yet (pid 0): they are there, and may begin at any moment.
        running = [run.state() for run in self.runs.values()]
        return {"op": "state", "running": running, "ended": list(self.ended.values())}

    # -- jobs

    def spawn(self, name: str, request: Frame) -> None:
        try:
            run = self.spare or self.nanny()
        except OSError as error:
            self.say({"op": "failed", "run": name, "errno": error.errno, "what": "fork", "message": str(error)})
            return
        self.spare = None
        run.name = name
        self.runs[name] = run
        self.by_fd[run.channel.fileno()] = run
        self.poll.register(run.channel.fileno(), select.POLLIN)
        try:
            run.channel.sendall(pack(request))
        except OSError:
            pass  # the nanny was killed: the closed channel tells, and this run is lost

    def nanny(self) -> Run:
        """A nanny that waits for its job. Raises OSError when there is no process to be had."""
        ours, theirs = socket.socketpair()
        try:
            pid = os.fork()
        except OSError:
            ours.close()
            theirs.close()
            raise
        if pid == 0:
            try:
                # Copies of the other channels would keep their nannies from seeing the server's end.
                signal.set_wakeup_fd(-1)
                if theirs.fileno() != 3:
                    os.dup2(theirs.fileno(), 3, inheritable=False)
                os.closerange(4, resource.getrlimit(resource.RLIMIT_NOFILE)[0])
                Nanny(3).run()
            finally:
                os._exit(0)
        theirs.close()
        self.nannies.add(pid)
        return Run("", pid, ours)

    def make_spare(self) -> None:
        """Have a nanny ready: it takes a fork out of the time from request to start."""
        if self.spare is None:
            try:
                self.spare = self.nanny()
            except OSError:
                self.spare = None  # the next spawn tries again, and tells

    def tell(self, run: Run, frame: Frame) -> None:
        try:
            run.channel.send(pack(frame))
        except OSError:
            pass  # it ended a moment ago: its result is on the way

    def hear(self, run: Run) -> None:
        try:
            data = run.channel.recv(1 << 16)
        except OSError:
            data = b""
        if not data:
            self.close(run)
            return
        for frame in run.frames.feed(data):
            frame["run"] = run.name
            if frame["op"] == "spawned":
                run.pid, run.started_at = int(str(frame["pid"])), float(str(frame["at"]))
                self.say({"op": "spawned", **run.state()})
                self.make_spare()
            elif frame["op"] == "failed":
                run.failure = frame
                self.close(run)
            else:
                frame.update(pid=run.pid, started_at=run.started_at)
                run.result = frame
                self.close(run)

    def close(self, run: Run) -> None:
        """The nanny is done, one way or the other."""
        fd = run.channel.fileno()
        if self.by_fd.pop(fd, None) is None:
            return
        self.poll.unregister(fd)
        run.channel.close()
        del self.runs[run.name]
        if run.failure is not None:
            self.say(run.failure)
            return
        result = run.result
        if result is None:
            result = {"op": "ended", "run": run.name, "status": None, "at": time.time()}
            result.update(pid=run.pid, started_at=run.started_at)
        self.ended[run.name] = result
        self.unkept[run.name] = time.monotonic() + KEEP_AFTER_S
        self.say(result)
        if self.client is None:
            self.keep()

    def keep(self) -> None:
        """Write to the disk what is due there; without a client everything is."""
        now = time.monotonic()
        for name, due in list(self.unkept.items()):
            if due > now and self.client is not None:
                return
            path = self.result_path(name)
            with open(path + ".new", "w") as file:
                json.dump(self.ended[name], file)
            os.rename(path + ".new", path)
            del self.unkept[name]

    def reap(self) -> None:
        """Collect nannies, and kill what came to us because its nanny was killed."""
        strange = False
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                break
            strange |= status != 0 or pid not in self.nannies
            self.nannies.discard(pid)
            if self.spare is not None and pid == self.spare.nanny:
                self.spare.channel.close()
                self.spare = None
        if not strange:
            return  # nannies that ended by themselves leave nothing behind
        nannies = {run.nanny for run in self.runs.values()}
        if self.spare is not None:
            nannies.add(self.spare.nanny)
        for child in children_of(os.getpid()):
            if child not in nannies and not self.is_nanny(child):
                kill_descendants(child)
                send_signal(child, signal.SIGKILL)

    def is_nanny(self, pid: int) -> bool:
        """Whether a child is a nanny on its way out: it still stands in our session, which no job's process does."""
        try:
            return os.getsid(pid) == os.getsid(0)
        except ProcessLookupError:
            return True

    def result_path(self, name: str) -> str:
        return os.path.join("results", name.encode().hex())


def main(directory: str, orphan_s: str, ready: str) -> None:
    Server(directory, float(orphan_s)).run(int(ready))


if __name__ == "__main__":
    main(*sys.argv[1:])
