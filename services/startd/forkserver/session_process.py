"""A visitor's program in the surroundings of a running job: its namespaces, cgroups, account, limits, capabilities,
variables and directory, and no right more. Runs in a process of its own, `python -I -S`, which the startd starts.

All that the program gets is read from the job's own process in /proc, so it is what the job really has, whoever put up
its walls. What can not be taken over ends the visit: nobody is let in with less isolation than the job has.

The channel, with the frames of the fork server:

    first     plan {target, began, mode, argv, tty, cwd, env, tail,
                     landlock, seccomp}    see `Visit`
    then      signal {signal}; leave {}; the channel's end is the same
    answers   ready; ended {status, job_over}, the status as waitpid gives it; failed {message}

Longer than most modules: it is read by a bare interpreter, and every step from root to the job's rights is in sight.

The visit ends with the job, whatever the startd does: this process watches the job's (pidfd), and kills all that the
visitor left, of which it is the reaper.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import resource
import select
import signal
import stat
import sys
import termios
import time

# ruff: noqa: SIM105  contextlib would be more modules to load
from services.startd.forkserver import kernel
from services.startd.forkserver.frames import Frame, Frames, pack
from services.startd.forkserver.job import clean_signals, confine, filter_calls
from services.startd.forkserver.processes import children_of, kill_descendants, send_signal

#: The longest environment that is taken over, bytes.
MAX_ENVIRONMENT = 4 << 20
#: In this order: the one that gives rights comes first, that of the mounts last, for /proc is looked at before.
NAMESPACES = ("user", "ipc", "uts", "net", "cgroup", "pid", "mnt")
#: How often a followed file is looked at, and how much of it is read at a time: seconds, bytes.
LOOK_S, CHUNK = 0.2, 65536
NOT_FOUND, NOT_EXECUTED = 127, 126
_CAPABILITIES = 64

_libc = ctypes.CDLL(None, use_errno=True)


class NoWayIn(Exception):
    """The visitor can not be let in: why."""


def _checked(result: int, call: str) -> None:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{call}: {os.strerror(number)}")


class Surroundings:
    """What the job's process has, read before anything is given up. Raises OSError, NoWayIn."""

    over = -1  # closing it says that the job is over
    base = -1  # the scratch directory, where files of it are to be shown

    def __init__(self, pid: int, began: int) -> None:
        self.pid = pid
        self.watch = os.pidfd_open(pid)
        if began and start_of(pid) != began:
            raise NoWayIn("the job has ended")
        status = dict(line.split(":\t", 1) for line in _text(f"/proc/{pid}/status").splitlines() if ":\t" in line)
        self.uid, self.gid = (int(status[name].split()[1]) for name in ("Uid", "Gid"))
        self.groups = [int(word) for word in status.get("Groups", "").split()]
        self.capabilities = tuple(int(status[name], 16) for name in ("CapEff", "CapPrm", "CapInh", "CapBnd"))
        self.no_new_privileges = status.get("NoNewPrivs", "0").strip() == "1"
        self.limits = _limits(_text(f"/proc/{pid}/limits"))
        self.nice = os.getpriority(os.PRIO_PROCESS, pid)
        with open(f"/proc/{pid}/environ", "rb") as file:
            text = file.read(MAX_ENVIRONMENT)
        pairs = [pair.split(b"=", 1) for pair in text.split(b"\0") if b"=" in pair]
        self.environment = {os.fsdecode(name): os.fsdecode(value) for name, value in pairs if name}
        self.cgroups = _text(f"/proc/{pid}/cgroup").splitlines()
        self.uid_map = _text(f"/proc/{pid}/uid_map")
        self.gid_map = _text(f"/proc/{pid}/gid_map")
        self.namespaces: dict[str, int] = {}
        for name in NAMESPACES:
            try:
                if not os.path.samestat(os.stat(f"/proc/{pid}/ns/{name}"), os.stat(f"/proc/self/ns/{name}")):
                    self.namespaces[name] = os.open(f"/proc/{pid}/ns/{name}", os.O_RDONLY | os.O_CLOEXEC)
            except FileNotFoundError:
                continue  # a kernel without this kind
        self.root = os.open(f"/proc/{pid}/root", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)


class Outside(Surroundings):
    """For files of a job that is no process of this machine's: an account alone. That the job is over, `over` tells."""

    def __init__(self, uid: int, gid: int) -> None:
        self.pid = 0
        self.uid, self.gid, self.groups = uid, gid, []
        self.watch, self.over = os.pipe2(os.O_CLOEXEC)


def start_of(pid: int) -> int:
    """When a process began, clock ticks since the machine did: with it, its number names it for ever. 0: it is gone."""
    try:
        return int(_text(f"/proc/{pid}/stat").rpartition(")")[2].split()[19])
    except (OSError, ValueError, IndexError):
        return 0


#: As /proc/<pid>/limits calls them. prlimit() would take a capability that a container's root may lack.
_LIMITS = {
    "Max cpu time": resource.RLIMIT_CPU,
    "Max file size": resource.RLIMIT_FSIZE,
    "Max data size": resource.RLIMIT_DATA,
    "Max stack size": resource.RLIMIT_STACK,
    "Max core file size": resource.RLIMIT_CORE,
    "Max resident set": resource.RLIMIT_RSS,
    "Max processes": resource.RLIMIT_NPROC,
    "Max open files": resource.RLIMIT_NOFILE,
    "Max locked memory": resource.RLIMIT_MEMLOCK,
    "Max address space": resource.RLIMIT_AS,
    "Max pending signals": resource.RLIMIT_SIGPENDING,
    "Max msgqueue size": resource.RLIMIT_MSGQUEUE,
    "Max nice priority": resource.RLIMIT_NICE,
    "Max realtime priority": resource.RLIMIT_RTPRIO,
    "Max realtime timeout": resource.RLIMIT_RTTIME,
}


def _limits(text: str) -> dict[int, tuple[int, int]]:
    """Soft and hard limit, by RLIMIT_*."""
    found = {}
    for line in text.splitlines():
        kind = _LIMITS.get(line[:26].strip())
        if kind is not None:
            soft, hard = line[26:].split()[:2]
            found[kind] = (_limit(soft), _limit(hard))
    return found


def _limit(word: str) -> int:
    return resource.RLIM_INFINITY if word == "unlimited" else int(word)


def join_cgroups(lines: list[str]) -> None:
    """Move this process into the cgroups of another one, as /proc names them."""
    own = set(_text("/proc/self/cgroup").splitlines())
    mounts = _cgroup_mounts()
    for line in lines:
        if line in own:
            continue
        _, controllers, path = line.split(":", 2)
        place = mounts.get(controllers)
        if place is None:
            raise NoWayIn(f"the job's cgroup {line} is not mounted here")
        with open(f"{place}{path}/cgroup.procs", "w") as file:
            file.write("0")


def _cgroup_mounts() -> dict[str, str]:
    """The mount point of each hierarchy of cgroups, by its controllers as /proc/<pid>/cgroup lists them."""
    found: dict[str, str] = {}
    named = [line.split(":", 2)[1] for line in _text("/proc/self/cgroup").splitlines()]
    for line in _text("/proc/self/mountinfo").splitlines():
        left, _, right = line.partition(" - ")
        kind, _, options = right.split(" ", 2)
        root, place = left.split(" ")[3:5]
        if root != "/":
            continue
        if kind == "cgroup2":
            found.setdefault("", place)
        elif kind == "cgroup":
            has = set(options.split(","))
            for controllers in named:
                if controllers and set(controllers.split(",")) <= has:
                    found.setdefault(controllers, place)
    return found


def _take_identity(here: Surroundings, *, inside: bool) -> None:
    """The job's groups and account. inside: in its user namespace, where they go by other numbers."""
    uid, gid, groups = here.uid, here.gid, here.groups
    if inside:
        uid, gid = _inside(here.uid_map, uid), _inside(here.gid_map, gid)
    elif os.geteuid() == 0:
        os.setgroups(groups)
    if os.getresgid() != (gid, gid, gid):
        os.setresgid(gid, gid, gid)
    if os.getresuid() != (uid, uid, uid):
        os.setresuid(uid, uid, uid)


def _inside(mapping: str, number: int) -> int:
    for line in mapping.splitlines():
        first, outside, count = map(int, line.split())
        if outside <= number < outside + count:
            return first + number - outside
    raise NoWayIn(f"account {number} has no number in the job's user namespace")


def enter(here: Surroundings) -> None:
    """Join what the job is in, but for its PID namespace, which is for children, and its account where that is taken
    later. Raises OSError, NoWayIn."""
    join_cgroups(here.cgroups)
    if "user" in here.namespaces:
        # Its owner has all rights in it, once there; so has nobody who is root outside and nobody inside.
        _take_identity(here, inside=False)
    for name in NAMESPACES:
        if name in here.namespaces:
            _checked(_libc.setns(here.namespaces[name], 0), f"setns({name})")
    os.fchdir(here.root)
    if not os.path.samestat(os.fstat(here.root), os.stat("/")):
        os.chroot(".")
    os.chdir("/")


def read_as(here: Surroundings) -> None:
    """From here on this program of ours opens what the job's account may open, and nobody of that account can kill
    it."""
    if os.geteuid() == 0:
        os.setgroups(here.groups)
        os.setegid(here.gid)
        os.seteuid(here.uid)


def give_up_rights(plan: Frame, here: Surroundings, *, inside: bool) -> None:
    """From here on this process may what the job may, not more. inside: it is in the job's user namespace."""
    confine(plan)  # Landlock and the filter of system calls can not be read from the job's process
    effective, permitted, inheritable, bounding = here.capabilities
    for kind, (soft, hard) in here.limits.items():
        own = resource.getrlimit(kind)
        new_hard = _least(hard, own[1])
        resource.setrlimit(kind, (_least(soft, new_hard), new_hard))
    if here.nice > os.getpriority(os.PRIO_PROCESS, 0):
        os.setpriority(os.PRIO_PROCESS, 0, here.nice)
    for number in range(_CAPABILITIES):
        if not bounding >> number & 1:
            # Refused to who is not allowed to, who has none to lose; and for numbers that the kernel does not know.
            _libc.prctl(kernel.PR_CAPBSET_DROP, number, 0, 0, 0)
    _libc.prctl(kernel.PR_CAP_AMBIENT, kernel.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0)
    _take_identity(here, inside=inside and "user" in here.namespaces)
    _set_capabilities(effective, permitted, inheritable)
    if here.no_new_privileges:
        kernel.prctl(kernel.PR_SET_NO_NEW_PRIVS, 1)
    filter_calls(plan)


def _least(one: int, other: int) -> int:
    if one == resource.RLIM_INFINITY:
        return other
    return one if other == resource.RLIM_INFINITY else min(one, other)


def _set_capabilities(effective: int, permitted: int, inheritable: int) -> None:
    """At most these. What this process has not, it does not get."""
    header = (ctypes.c_uint32 * 2)(kernel.CAPABILITY_VERSION_3, 0)
    now = (ctypes.c_uint32 * 6)()
    _checked(_libc.capget(header, now), "capget")
    wanted = (effective, permitted, inheritable)
    for word in range(2):
        for which in range(3):
            now[3 * word + which] &= wanted[which] >> 32 * word & 0xFFFFFFFF
    _checked(_libc.capset(header, now), "capset")


def _text(path: str) -> str:
    with open(path, errors="surrogateescape") as file:
        return file.read()


# ---------------------------------------------------------------- what a visitor runs


def run_program(plan: Frame, here: Surroundings) -> None:
    """Never returns: the program, or words on standard error."""
    environment = here.environment | _strings(plan.get("env"))
    if plan.get("tty"):
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    for place in (str(plan.get("cwd") or ""), environment.get("_CONDOR_JOB_IWD", ""), "/"):
        try:
            os.chdir(place)
            break
        except OSError:
            continue
    words = plan.get("argv")
    argv = [str(word) for word in words] if isinstance(words, list) else []
    os.umask(0o022)
    if not argv:
        shells = (environment.get("SHELL", ""), "/bin/bash", "/bin/sh")
        argv = [next((shell for shell in shells if os.access(shell, os.X_OK)), "/bin/sh")]
    try:
        os.execvpe(argv[0], argv, environment)
    except OSError as error:
        _complain(f"{argv[0]}: {error.strerror}")
        os._exit(NOT_FOUND if error.errno == errno.ENOENT else NOT_EXECUTED)
    except ValueError as error:
        _complain(f"{argv[0]!r}: {error}")
        os._exit(NOT_EXECUTED)


def show_file(plan: Frame, here: Surroundings) -> None:
    """Never returns: the end of a file, and what is added while the job runs."""
    tail = plan.get("tail")
    assert isinstance(tail, dict)
    path = str(tail["path"])
    try:
        base = here.base if here.base >= 0 else _directory(str(tail["base"]))
        code = follow(base, path, int(tail["max_bytes"]), bool(tail["follow"]), here.watch)
    except OSError as error:
        _complain(f"{path}: {error.strerror or error}")
        code = 1
    os._exit(code)


def follow(base: int, path: str, max_bytes: int, go_on: bool, watch: int) -> int:
    """Write the file to standard output. A file that is replaced, or made shorter, is shown from its beginning. Raises
    OSError, also where the path leads out of the base directory."""
    file, place, last = -1, 0, False
    while True:
        try:
            fresh = _open_below(base, path)
        except OSError as error:
            if not go_on or (last and file < 0) or error.errno != errno.ENOENT:
                raise
            fresh = -1  # not there yet, or no longer
        if fresh >= 0:
            seen = os.fstat(fresh)
            if file < 0:
                file, place = fresh, max(0, seen.st_size - max_bytes) if max_bytes >= 0 else 0
            elif os.path.samestat(seen, os.fstat(file)):
                os.close(fresh)
            else:
                _copy(file, place)
                os.close(file)
                file, place = fresh, 0
        if file >= 0:
            place = _copy(file, 0 if os.fstat(file).st_size < place else place)
        if last or not go_on:
            return 0
        # The job's end makes this readable, and is followed by one last look.
        last = bool(select.select([watch], [], [], LOOK_S)[0])


def _copy(file: int, place: int) -> int:
    """What there is from a place on; where it ends."""
    while data := os.pread(file, CHUNK, place):
        place += len(data)
        while data:
            data = data[os.write(1, data) :]
    return place


def _directory(path: str) -> int:
    return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)


def _open_below(base: int, path: str) -> int:
    """A plain file under an open directory, with no link on the way. Raises OSError."""
    parts = [part for part in path.split("/") if part not in ("", ".")]
    if path.startswith("/") or ".." in parts or not parts:
        raise OSError(errno.EACCES, "it does not lie in the job's directory")
    folder = os.dup(base)
    try:
        for part in parts[:-1]:
            inner = os.open(part, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
            os.close(folder)
            folder = inner
        # Not to wait for a pipe's other end.
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        file = os.open(parts[-1], flags, dir_fd=folder)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENOTDIR):
            raise OSError(error.errno, "links are not followed") from error
        raise
    finally:
        os.close(folder)
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        raise OSError(errno.EINVAL, "it is no plain file")
    return file


def _complain(message: str) -> None:
    os.write(2, f"roost: {message}\n".encode(errors="replace"))


def _strings(value: object) -> dict[str, str]:
    return {str(name): str(one) for name, one in value.items()} if isinstance(value, dict) else {}


# ---------------------------------------------------------------- the visit


class Visit:
    """One visit: the process that the startd started, which stays outside. Standard streams are the visitor's.

    Under it is the *entrant*, which joins what the job is in and is the parent of the visitor's program: only children
    of who joins a PID namespace are in it.
    """

    def __init__(self, channel: int) -> None:
        self.channel = channel
        self.frames = Frames()
        self.entrant = 0
        self.over = -1

    def run(self) -> None:
        clean_signals()
        kernel.prctl(kernel.PR_SET_CHILD_SUBREAPER, 1)
        plan = self.first()
        if plan is None:
            return
        tail = plan.get("mode") == "tail"
        try:
            here = _surroundings(plan)
            self.over = here.over
            self.start(plan, here, tail=tail)
        except (NoWayIn, OSError) as error:
            self.say({"op": "failed", "message": "the job has ended" if _is_gone(error) else str(error)})
            return
        self.say({"op": "ready"})
        self.wait(here, tail=tail)

    def first(self) -> Frame | None:
        while data := os.read(self.channel, 1 << 20):
            for frame in self.frames.feed(data):
                return frame
        return None

    def start(self, plan: Frame, here: Surroundings, *, tail: bool) -> None:
        """Nothing of the visitor's runs before all rights are given up. Raises NoWayIn."""
        reader, writer = os.pipe2(os.O_CLOEXEC)
        outside = os.getpid()
        self.entrant = os.fork()
        if self.entrant == 0:
            code = NOT_EXECUTED
            try:
                os.close(self.channel)
                if self.over >= 0:
                    os.close(self.over)
                code = _let_in(plan, here, writer, outside, tail=tail)
            except BaseException as error:  # noqa: BLE001  this process must never go on as what it was
                os.write(writer, f"{error}".encode(errors="replace")[:1000] or b"?")
            finally:
                os._exit(code)
        os.close(writer)
        trouble = os.read(reader, 4096)
        os.close(reader)
        if trouble:
            self.finish()
            raise NoWayIn(trouble.decode(errors="replace"))
        null = os.open("/dev/null", os.O_RDWR | os.O_CLOEXEC)
        for stream in (0, 1, 2):  # only the visitor's own processes keep them open
            os.dup2(null, stream)

    def wait(self, here: Surroundings, *, tail: bool) -> None:
        """Wait until the visitor's program ends, the visitor leaves, or the job ends; a file is read to its end
        then."""
        ended = os.pidfd_open(self.entrant)
        poll = select.poll()
        for descriptor in (self.channel, ended) if tail else (self.channel, ended, here.watch):
            poll.register(descriptor, select.POLLIN)
        while True:
            ready = {descriptor for descriptor, _ in poll.poll()}
            if ended in ready or here.watch in ready or (self.channel in ready and not self.obey()):
                break
        self.say({"op": "ended", "status": self.finish(), "job_over": _readable(here.watch)})

    def obey(self) -> bool:
        """False: the visitor leaves."""
        try:
            data = os.read(self.channel, 65536)
        except OSError:
            data = b""
        if not data:
            return False
        for frame in self.frames.feed(data):
            if frame["op"] == "leave":
                return False
            if frame["op"] == "over":
                if self.over >= 0:
                    os.close(self.over)
                    self.over = -1
                continue
            for program in children_of(self.entrant):
                try:
                    os.killpg(program, int(str(frame["signal"])))
                except OSError:
                    send_signal(program, int(str(frame["signal"])))
        return True

    def finish(self) -> int:
        """Kill what is left; the entrant's wait status. In a PID namespace that is the job's, what a visitor leaves
        behind goes to the job's first process and ends with the job."""
        found = 0
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return found
            if pid == self.entrant:
                found = status
            if pid == 0:
                kill_descendants(os.getpid())
                time.sleep(0.005)

    def say(self, frame: Frame) -> None:
        try:
            os.write(self.channel, pack(frame))
        except OSError:
            pass  # the startd is gone, and the visitor with it


def _surroundings(plan: Frame) -> Surroundings:
    target = int(str(plan["target"]))
    if target:
        return Surroundings(target, int(str(plan.get("began", 0))))
    return Outside(int(str(plan["uid"])), int(str(plan["gid"])))


def _let_in(plan: Frame, here: Surroundings, trouble: int, outside: int, *, tail: bool) -> int:
    """In the entrant: join the job, start the program, wait for it. The exit code to end with; a program that a signal
    ended ends this process by the same. Raises OSError, NoWayIn."""
    kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != outside:
        return NOT_EXECUTED
    if tail:
        # Not in the job's cgroup, and not as its account in every respect: what ends the job would end this program
        # too, before it has read what the job wrote last.
        wanted = plan["tail"]
        if isinstance(wanted, dict) and wanted.get("own"):
            # The way to the job's own directory may be closed to its account, as that of a container's is.
            here.base = _directory(str(wanted["base"]))
    else:
        enter(here)
    # A change of the account took it away.
    kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL)
    program = os.fork()
    if program == 0:
        try:
            os.setsid()
            if tail:
                read_as(here)
            else:
                give_up_rights(plan, here, inside=True)
            kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL)
        except BaseException as error:  # noqa: BLE001
            os.write(trouble, f"{error}".encode(errors="replace")[:1000] or b"?")
            os._exit(NOT_EXECUTED)
        os.close(trouble)
        try:
            (show_file if tail else run_program)(plan, here)
        except BaseException as error:  # noqa: BLE001
            _complain(f"{type(error).__name__}: {error}")
        os._exit(NOT_EXECUTED)
    os.close(trouble)
    for stream in (0, 1, 2):
        os.close(stream)
    status = os.waitstatus_to_exitcode(os.waitpid(program, 0)[1])
    if status >= 0:
        return status
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.kill(os.getpid(), -status)
    return 128 - status


def _readable(descriptor: int) -> bool:
    return bool(select.select([descriptor], [], [], 0)[0])


def _is_gone(error: Exception) -> bool:
    return isinstance(error, OSError) and error.errno in (errno.ESRCH, errno.ENOENT)


def main(channel: str) -> None:
    Visit(int(channel)).run()


if __name__ == "__main__":
    main(*sys.argv[1:])
