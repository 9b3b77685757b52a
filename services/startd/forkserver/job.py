"""The last steps of a process before it is the job: isolation, account, directory, streams, limits, exec."""

import contextlib
import errno
import os
import resource
import signal

from services.startd.forkserver import kernel, seccomp
from services.startd.forkserver.frames import Frame

#: Signals that the C library keeps for itself, and those nobody can change.
_NOT_OURS = frozenset((int(signal.SIGKILL), int(signal.SIGSTOP), 32, 33))
_A_DIRECTORY = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
#: Under pressure of the machine its jobs go before its daemons (-1000 to 1000).
OOM_SCORE = "800"


class StepError(OSError):
    """An error with the step of the start in which it happened."""

    def __init__(self, step: str, number: int | None, message: str) -> None:
        super().__init__(number or 0, message)
        self.step = step
        self.message = message


def text(request: Frame, key: str) -> str:
    value = request.get(key)
    return value if isinstance(value, str) else ""


def clean_signals() -> None:
    """Set signals as a login shell would find them: the daemon may itself have been started with some ignored or
    blocked."""
    signal.set_wakeup_fd(-1)
    for number in range(1, signal.NSIG):
        if number not in _NOT_OURS and signal.getsignal(number) != signal.SIG_DFL:
            signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])


def isolate(request: Frame) -> None:
    """Namespaces and mounts, while this process still has the rights to. Raises StepError."""
    mounts = request.get("mounts")
    if not isinstance(mounts, dict):
        return
    try:
        kernel.unshare(kernel.CLONE_NEWNS | (kernel.CLONE_NEWIPC if mounts.get("ipc") else 0))
        kernel.mount("none", "/", flags=kernel.MS_SLAVE | kernel.MS_REC)
        _arrange(mounts)
        if request.get("pid_namespace"):
            quiet = kernel.MS_NOSUID | kernel.MS_NODEV | kernel.MS_NOEXEC
            kernel.mount("proc", "/proc", "proc", quiet)
    except OSError as error:
        raise StepError("walls", error.errno, str(error.strerror or error)) from error


def _arrange(mounts: dict[str, object]) -> None:
    """`scratch`: the job's own, which stays where it is. `private`: [name in the scratch directory, what it is
    put over]. `hide`: a directory that shows nothing but the scratch directory in it. `shm`: bytes of its own
    /dev/shm, 0: the machine's."""
    scratch, hide = str(mounts.get("scratch", "")), str(mounts.get("hide", ""))
    own = os.open(scratch, os.O_PATH | os.O_CLOEXEC) if scratch else -1
    cover = ""  # a directory that the scratch directory is in, and that is the job's own by now
    private = mounts.get("private")
    for source, target in private if isinstance(private, list) else []:
        # The scratch directory may lie in one that is covered by now.
        kernel.mount(f"/proc/self/fd/{own}/{source}", target, flags=kernel.MS_BIND)
        if (scratch + "/").startswith(target.rstrip("/") + "/"):
            cover = target
    if scratch and hide and not cover:
        kernel.mount("none", hide, "tmpfs", kernel.MS_NOSUID | kernel.MS_NODEV, "mode=755,size=64k")
        cover = hide
    if cover:
        there = _open_below(cover, scratch)
        kernel.mount(f"/proc/self/fd/{own}", f"/proc/self/fd/{there}", flags=kernel.MS_BIND | kernel.MS_REC)
        os.close(there)
    shm = mounts.get("shm")
    if isinstance(shm, int) and shm > 0 and os.path.isdir("/dev/shm"):
        kernel.mount("none", "/dev/shm", "tmpfs", kernel.MS_NOSUID | kernel.MS_NODEV, f"mode=1777,size={shm}")
    if own >= 0:
        os.close(own)


def _open_below(above: str, path: str) -> int:
    """Make what of the path is not there below one of its directories, and open it. The job may have put files there,
    so no link is followed: through one, root would make directories, and put the job's files, anywhere."""
    folder = os.open(above, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    for part in path[len(above) :].split("/"):
        if part:
            with contextlib.suppress(FileExistsError):
                os.mkdir(part, 0o755, dir_fd=folder)
            folder, before = os.open(part, _A_DIRECTORY, dir_fd=folder), folder
            os.close(before)
    return folder


def become_job(request: Frame, parent: int) -> None:
    """In the job's own process: set everything up and exec. Returns or raises only when that failed. `parent`: the
    process without which it must not live; 0: PID 1 of its namespace is."""
    clean_signals()
    os.setsid()
    try:
        with open("/proc/self/oom_score_adj", "w") as file:
            file.write(OOM_SCORE)
    except OSError:
        pass  # a machine that forbids it decides by itself
    if not request.get("pid_namespace"):
        isolate(request)
    _bind(request)
    _set_limits(request)
    _take_account(request)
    # After the account: a change of the user takes this away.
    kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL)
    if parent and os.getppid() != parent:  # it died before the line above took effect
        os._exit(127)
    _enter(request)
    _open_streams(request)
    argv, env = request["argv"], request["env"]
    assert isinstance(argv, list)
    assert isinstance(env, dict)
    executable = text(request, "executable")
    _filter_calls(request)
    try:
        os.execve(executable, argv, env)
    except OSError as error:
        raise StepError("exec", error.errno, f"{executable}: {error.strerror}") from error
    except ValueError as error:
        raise StepError("exec", errno.EINVAL, f"{executable}: {error}") from error


def _bind(request: Frame) -> None:
    """To the cores that are its own. Raises StepError."""
    cores = request.get("cores")
    if isinstance(cores, list):
        try:
            os.sched_setaffinity(0, cores)
        except OSError as error:
            raise StepError("cores", error.errno, f"cores {cores}: {error.strerror}") from error


def _set_limits(request: Frame) -> None:
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


def _take_account(request: Frame) -> None:
    try:
        kept = request.get("capabilities")
        if isinstance(kept, int):
            kernel.bound_capabilities(kept)
        confine(request)
        account = request.get("account")
        if isinstance(account, dict):
            os.setgroups(account["groups"])
            os.setresgid(account["gid"], account["gid"], account["gid"])
            os.setresuid(account["uid"], account["uid"], account["uid"])
        if isinstance(kept, int):
            kernel.keep_capabilities(kept)
    except OSError as error:
        raise StepError("account", error.errno, str(error.strerror or error)) from error


def confine(request: Frame) -> None:
    """By Landlock. Raises OSError."""
    view = request.get("landlock")
    if isinstance(view, dict):
        kernel.landlock(view["grants"])


def _filter_calls(request: Frame) -> None:
    """The last thing of all: what has been done until here may need what is given up. Raises StepError."""
    try:
        if request.get("no_new_privileges"):
            kernel.prctl(kernel.PR_SET_NO_NEW_PRIVS, 1)
        filter_calls(request)
    except OSError as error:
        raise StepError("walls", error.errno, str(error.strerror or error)) from error


def filter_calls(request: Frame) -> None:
    """Raises OSError."""
    wanted = request.get("seccomp")
    if isinstance(wanted, dict):
        program = seccomp.program_here(namespaces=bool(wanted["namespaces"]), others=bool(wanted["others"]))
        if program:
            kernel.filter_calls(program)


def _enter(request: Frame) -> None:
    cwd = text(request, "cwd")
    try:
        os.chdir(cwd)
    except OSError as error:
        raise StepError("cwd", error.errno, f"{cwd}: {error.strerror}") from error
    os.umask(int(str(request.get("umask", 0o022))))


def _open_streams(request: Frame) -> None:
    """Open files as the job's account, which is all that keeps a job from writing to others' files by naming them."""
    flags = os.O_WRONLY | os.O_CREAT
    streams = (
        ("stdin", 0, os.O_RDONLY),
        ("stdout", 1, flags | (os.O_APPEND if request.get("append_stdout") else os.O_TRUNC)),
        ("stderr", 2, flags | (os.O_APPEND if request.get("append_stderr") else os.O_TRUNC)),
    )
    for name, target, how in streams:
        path = text(request, name) or "/dev/null"
        if name == "stderr" and path == text(request, "stdout"):
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
