"""The server itself: takes requests from the startd, keeps nannies, and what they say of the ends of jobs."""

# ruff: noqa: SIM105  contextlib would be a dozen more modules to load and to carry through every fork

import fcntl
import gc
import json
import os
import resource
import select
import signal
import socket
import sys
import time

from services.startd.forkserver import WALLS, kernel, native, seccomp
from services.startd.forkserver.cgroup import Cgroup
from services.startd.forkserver.frames import Frame, Frames, pack
from services.startd.forkserver.nanny import KILL_ROUND_S, ChildSignals, Nanny
from services.startd.forkserver.native import NoSpawner, Spawner
from services.startd.forkserver.processes import (
    children_of,
    descendants_of,
    descends_from,
    kill_account,
    kill_descendants,
    kill_group,
    send_signal,
)
from services.startd.forkserver.proof import SECRET_FILE, Caller, make_secret, peer_of

#: How long a server without jobs waits for its startd to come back, seconds.
IDLE_S = 60.0
#: An end that the client has not acknowledged by then is written to the disk, seconds. It nearly always has.
KEEP_AFTER_S = 0.1
#: How often to look at leases at least, while there are any, seconds: the wait for a descriptor does not count the time
#: that the machine sleeps, leases do.
LEASE_LOOK_S = 10.0
#: A run is killed so much later than its lease, seconds: a startd that is there does it by then, and says more of it.
AFTER_LEASE_S = 1.0
#: A nanny whose job is to be killed, and which says nothing for so long, is killed itself, seconds. The startd's own
#: time (KILLING_TIMEOUT) comes with its order.
STUCK_S = 30.0
#: Callers that have not proved who they are: so many at a time, and for so long, seconds. The oldest goes first.
MOST_CALLERS, CALLER_S = 16, 10.0


def boottime() -> float:
    """Seconds since the machine was started, with those that it slept."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


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
        self.uid = -1  # of its account, -1: ours
        self.dedicated = False
        self.tracking_gid = 0
        self.group = ""  # the name of its cgroup, for whoever asks later
        self.lease = 0.0  # when it is killed for its lease, by `boottime`; 0: it has none
        self.lease_over = False  # it was killed for that
        self.stuck_at = 0.0  # when its nanny is killed, by `boottime`; 0: nobody told it to end its job

    def state(self) -> Frame:
        found: Frame = {"run": self.name, "pid": self.pid, "nanny": self.nanny, "at": self.started_at}
        return found | {"uid": self.uid, "tracking_gid": self.tracking_gid, "group": self.group}


class Server:
    """The fork server.

    spawn {run, executable, argv, env, cwd, stdin, stdout, stderr, append_stdout, append_stderr, umask, nice, limits,
      account {uid, gid, groups}, dedicated, tracking_gid, group, cgroup (`cgroup`), mounts (`job._arrange`),
      pid_namespace, landlock {grants (`kernel.landlock`)}, capabilities (bits of those it keeps), no_new_privileges,
      seccomp {namespaces, others} (`seccomp.program`), lease}
      -> spawned {run, pid, nanny, at, uid, tracking_gid, group} or failed {run, errno, what, message}; what: cwd,
      stdin, stdout, stderr, exec, fork, start, cgroup, walls, account
    signal {run, signal, tree}: to the main process, or to all of the job's processes. To all, SIGSTOP and SIGCONT
      freeze and thaw the cgroup where there is one
    kill {run, stuck_s}: SIGKILL to all of them; to the nanny too, if it has not ended its job after so many seconds
    lease {leases {run: when it ends, by CLOCK_BOOTTIME}}: of runs that have a lease, or get one now
    ack {run}: its result need not be kept any longer
    mount {id, source, target, fstype, options}, unmount {id, target} -> mounted {id, errno, message}: in a namespace of
      its own and its jobs'
    list -> state {walls, pid, native (nannies are in C), why_not, running: [...], ended: [...]}; also sent when a
      client is let in
    exit: end now, with all jobs
    Unasked: ended {run, status (as waitpid gives it), at, user_cpu_s, sys_cpu_s, max_rss_kib,
      out_of_memory {killed, own, peak_bytes}, cgroup_used_up (no other job may be put into it), lease_over (it was
      killed because its lease had passed)}; a status of null: the nanny was killed and how the job would have ended is
      not known.

    The startd that starts the server holds the other end of its first channel. Later ones come by the socket in the
    server's directory and prove that they are a startd (`proof`): until then nothing of theirs is obeyed, and whoever
    is the client stays it.
    """

    def __init__(self, directory: str, orphan_s: float, program: str) -> None:
        self.directory = directory
        self.orphan_s = orphan_s
        self.program = program  # of the spawner; empty: it is not to be used
        self.spawner: Spawner | None = None
        self.why_not = ""  # why there is no spawner
        self.runs: dict[str, Run] = {}
        self.by_fd: dict[int, Run] = {}
        self.ended: dict[str, Frame] = {}
        self.unkept: dict[str, float] = {}  # ends that are not on disk -> when they are due there, oldest first
        self.client: socket.socket | None = None
        self.callers: dict[int, Caller] = {}  # by descriptor, oldest first
        self.secret = b""
        self.frames = Frames()
        self.out = bytearray()
        self.alone_since = time.monotonic()
        self.poll = select.poll()
        self.cgroups: set[str] = set()  # of all jobs, to be removed at the end when no startd does
        self.spare: Run | None = None
        self.apart = False  # in a mount namespace of its own
        self.nannies: set[int] = set()  # pids, until they are collected
        self.look_at = 0.0  # no lease ends and no nanny is stuck before, by `boottime`; 0: there is nothing to look at

    def run(self, ready: int, channel: int) -> None:
        if os.geteuid():
            # Jobs have our account: they must not read here what other jobs were given.
            kernel.prctl(kernel.PR_SET_DUMPABLE, 0)
        os.chdir(self.directory)  # so that the socket's path is short, whatever the directory's is
        lock = os.open("lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return  # another one serves this directory
        os.makedirs("results", mode=0o700, exist_ok=True)
        self.load()
        self.secret = make_secret(SECRET_FILE)
        kernel.prctl(kernel.PR_SET_CHILD_SUBREAPER, 1)
        self.signals = ChildSignals()
        self.start_spawner()
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        if os.path.lexists("socket"):
            os.unlink("socket")
        old_mask = os.umask(0o177)
        self.listener.bind("socket")
        os.umask(old_mask)
        self.listener.listen(128)
        self.poll.register(self.listener.fileno(), select.POLLIN)
        self.poll.register(self.signals.reader, select.POLLIN)
        self.admit(socket.socket(fileno=channel), Frames())
        os.write(ready, b"1")
        os.close(ready)
        for others in (True, False):
            seccomp.program_here(namespaces=False, others=others)  # made once, not in every fork
        gc.collect()
        gc.freeze()
        gc.disable()  # no cycles are made, and a collection in every fork would copy all pages
        self.make_spare()
        while self.turn():
            pass
        os.unlink("socket")
        self.listener.close()
        self.drop()
        for caller in list(self.callers.values()):
            self.turn_away(caller)
        for run in (*self.runs.values(), *filter(None, [self.spare])):
            run.channel.close()  # nannies end their jobs when they see that
        if self.spawner is not None:
            self.spawner.close()
            self.spawner = None
        while children_of(os.getpid()):
            self.signals.drain()
            self.reap()
            select.select([self.signals.reader], [], [], KILL_ROUND_S)
        for folder in self.cgroups:
            try:
                os.rmdir(folder)
            except OSError:
                pass  # the startd was quicker

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
        if self.callers:
            due = (next(iter(self.callers.values())).due - time.monotonic()) * 1000 + 1
            timeout = max(0.0, due if timeout is None else min(timeout, due))
        if self.look_at:
            due = min(LEASE_LOOK_S, self.look_at - boottime()) * 1000 + 1
            timeout = max(0.0, due if timeout is None else min(timeout, due))
        for fd, event in self.poll.poll(timeout):
            if fd == self.listener.fileno():
                self.accept()
            elif fd in self.callers:
                self.question(self.callers[fd])
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
        for caller in list(self.callers.values()):
            if caller.due > time.monotonic():
                break
            self.turn_away(caller)
        self.end_overdue()
        self.keep()
        return True

    # -- the client

    def accept(self) -> None:
        """Somebody calls. Every job of a startd that is not root could."""
        try:
            connection, _ = self.listener.accept()
        except OSError:
            return
        connection.setblocking(False)
        pid, uid = peer_of(connection)
        if uid not in (0, os.geteuid()) or descends_from(pid, os.getpid()):
            connection.close()
            return
        while len(self.callers) >= MOST_CALLERS:
            self.turn_away(next(iter(self.callers.values())))
        caller = Caller(connection, pid, time.monotonic() + CALLER_S)
        self.callers[connection.fileno()] = caller
        self.poll.register(connection.fileno(), select.POLLIN)
        try:
            connection.send(pack(caller.challenge()))
        except OSError:
            self.turn_away(caller)

    def question(self, caller: Caller) -> None:
        """Hear what a caller says to its challenge: it becomes the client, in the place of an older one, or it goes."""
        try:
            answer = caller.hear()
            if answer is None:
                return
            # The caller may have been another process when it called, and have ended: so it is looked at again.
            good = caller.proves(self.secret, answer) and not descends_from(caller.pid, os.getpid())
            if good:
                caller.connection.send(pack(caller.own_proof(self.secret, answer)))
        except (OSError, ValueError):
            good = False
        if not good:
            self.turn_away(caller)
            return
        self.callers.pop(caller.connection.fileno())
        self.poll.unregister(caller.connection.fileno())
        self.drop()
        self.admit(caller.connection, caller.frames)

    def turn_away(self, caller: Caller) -> None:
        if self.callers.pop(caller.connection.fileno(), None) is not None:
            self.poll.unregister(caller.connection.fileno())
        caller.connection.close()

    def admit(self, client: socket.socket, frames: Frames) -> None:
        client.setblocking(False)
        self.client, self.frames, self.out = client, frames, bytearray()
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
            elif op == "kill" and run is not None:
                self.kill(run, float(str(frame.get("stuck_s", STUCK_S))))
            elif op == "signal" and run is not None:
                self.tell(run, {"signal": int(str(frame["signal"])), "tree": bool(frame.get("tree"))})
            elif op == "lease":
                leases = frame.get("leases")
                for one, until in leases.items() if isinstance(leases, dict) else ():
                    if one in self.runs:
                        self.lend(self.runs[one], float(str(until)))
            elif op == "ack" and name in self.ended:
                del self.ended[name]
                if self.unkept.pop(name, None) is None:
                    os.unlink(self.result_path(name))
            elif op in ("mount", "unmount"):
                self.mount(frame)
            elif op == "list":
                self.say(self.state())
            elif op == "exit":
                return False
        return True

    def state(self) -> Frame:
        # Those too whose start nobody has told of yet (pid 0): they are there, and may begin at any moment.
        running = [run.state() for run in self.runs.values()]
        ended = list(self.ended.values())
        about: Frame = {"walls": WALLS, "leases": True, "pid": os.getpid()}
        about |= {"native": self.spawner is not None, "why_not": self.why_not}
        return {"op": "state", **about, "running": running, "ended": ended}

    def mount(self, frame: Frame) -> None:
        """Mount or unmount something where all jobs that are started later see it, and nobody else."""
        answer: Frame = {"op": "mounted", "id": frame.get("id"), "errno": 0, "message": ""}
        target = str(frame.get("target", ""))
        try:
            if not self.apart:
                self.go_apart()
            if frame["op"] == "unmount":
                kernel.unmount(target)
            else:
                flags = kernel.MS_NOSUID | kernel.MS_NODEV | kernel.MS_NOATIME
                fstype, options = str(frame.get("fstype", "")), str(frame.get("options", ""))
                kernel.mount(str(frame.get("source", "")), target, fstype, flags, options)
        except OSError as error:
            answer.update(errno=error.errno or 0, message=str(error.strerror or error))
        self.say(answer)

    def go_apart(self) -> None:
        """Into a mount namespace that the machine does not look into, but hears from. What is unmounted in it is
        unmounted in those of its jobs, too."""
        kernel.unshare(kernel.CLONE_NEWNS)
        kernel.mount("none", "/", flags=kernel.MS_SLAVE | kernel.MS_REC)
        kernel.mount("none", "/", flags=kernel.MS_SHARED | kernel.MS_REC)
        self.apart = True
        if self.spare is not None:  # it is not in it
            self.spare.channel.close()
            self.spare = None
        if self.spawner is not None:  # nor is it
            self.spawner.close()
            self.start_spawner()

    # -- jobs

    def spawn(self, name: str, request: Frame) -> None:
        try:
            run = self.spare or self.nanny()
        except OSError as error:
            self.say({"op": "failed", "run": name, "errno": error.errno, "what": "fork", "message": str(error)})
            return
        self.spare = None
        run.name = name
        account = request.get("account")
        run.uid = int(account["uid"]) if isinstance(account, dict) else -1
        run.dedicated = bool(request.get("dedicated"))
        run.tracking_gid = int(str(request.get("tracking_gid", 0)))
        run.group = str(request.get("group", ""))
        self.cgroups |= Cgroup(request.get("cgroup")).folders()
        self.runs[name] = run
        self.lend(run, float(str(request.get("lease", 0.0))))
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
            pid = self.spawner.nanny(theirs) if self.spawner is not None else self.fork_nanny(theirs)
        except NoSpawner as error:
            # Not with this channel: a nanny of the spawner's may listen to it.
            ours.close()
            theirs.close()
            if self.spawner is not None:
                self.spawner.close()
            self.lose_spawner(str(error))
            return self.nanny()
        except OSError:
            ours.close()
            theirs.close()
            raise
        theirs.close()
        self.nannies.add(pid)
        return Run("", pid, ours)

    @staticmethod
    def fork_nanny(theirs: socket.socket) -> int:
        """One in Python. Raises OSError."""
        pid = os.fork()
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
        return pid

    def start_spawner(self) -> None:
        self.spawner = None
        if not self.program:
            return
        try:
            self.spawner, self.why_not = native.start(self.program), ""
        except NoSpawner as error:
            self.why_not = str(error)

    def lose_spawner(self, why: str) -> None:
        """It is no more, or as good as that: nannies are forks of ours from now on. Those that it made go on."""
        sys.stderr.write(f"the spawner is not used any more: {why}\n")
        self.spawner, self.why_not = None, why

    def make_spare(self) -> None:
        """Have a nanny ready: it takes a fork out of the time from request to start."""
        if self.spare is None:
            try:
                self.spare = self.nanny()
            except OSError:
                self.spare = None  # the next spawn tries again, and tells

    def lend(self, run: Run, until: float) -> None:
        """The run's lease ends then; 0: it has none. One that has passed stays so: the run is being killed."""
        if not run.lease_over and until:
            run.lease = until + AFTER_LEASE_S
            self.look_by(run.lease)

    def look_by(self, moment: float) -> None:
        if moment and (not self.look_at or moment < self.look_at):
            self.look_at = moment

    def end_overdue(self) -> None:
        """Kill runs whose lease has passed, and nannies that do not do it."""
        now = boottime()
        if not self.look_at or now < self.look_at:
            return
        for run in self.runs.values():
            if run.lease and run.lease <= now:
                run.lease, run.lease_over = 0.0, True
                self.kill(run, STUCK_S)
            if run.stuck_at and run.stuck_at <= now:
                run.stuck_at = now + STUCK_S  # one in the midst of a system call dies later
                family = descendants_of(run.nanny)
                send_signal(run.nanny, signal.SIGKILL)
                for pid in family:
                    send_signal(pid, signal.SIGKILL)
        self.look_at = 0.0
        for run in self.runs.values():
            self.look_by(run.lease)
            self.look_by(run.stuck_at)

    def kill(self, run: Run, stuck_s: float) -> None:
        if not run.stuck_at:
            run.stuck_at = boottime() + stuck_s
            self.look_by(run.stuck_at)
        self.tell(run, {"signal": int(signal.SIGKILL), "tree": True})

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
        self.sweep_up_after(run)
        if run.failure is not None:
            self.say(run.failure)
            return
        result = run.result
        if result is None:
            result = {"op": "ended", "run": run.name, "status": None, "at": time.time()}
            result.update(pid=run.pid, started_at=run.started_at)
        if run.lease_over:
            result["lease_over"] = True
        self.ended[run.name] = result
        self.unkept[run.name] = time.monotonic() + KEEP_AFTER_S
        self.say(result)
        if self.client is None:
            self.keep()

    def sweep_up_after(self, run: Run) -> None:
        """Kill what is not a descendant of the job and yet the job's: what it left with cron, say. It is known by the
        account, if nobody else has it now, or by the group that only this job had."""
        try:
            if run.dedicated and run.uid > 0 and all(other.uid != run.uid for other in self.runs.values()):
                kill_account(run.uid)
            if run.tracking_gid:
                kill_group(run.tracking_gid)
        except OSError as error:
            sys.stderr.write(f"{run.name}: {error}\n")

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
            if self.spawner is not None and pid == self.spawner.pid:
                self.spawner.link.close()
                self.lose_spawner(f"it ended with status {status}")
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


def main(directory: str, orphan_s: str, ready: str, channel: str, program: str) -> None:
    """program: the spawner's; empty: it is not to be used."""
    Server(directory, float(orphan_s), program).run(int(ready), int(channel))
