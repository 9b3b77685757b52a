"""Trees of processes, as /proc tells of them, and how they are killed."""

# ruff: noqa: SIM105  contextlib would be a dozen more modules to load and to carry through every fork

import errno
import os
import signal

#: Rounds of stopping a family before it is killed: a fork bomb that is not in a cgroup must not outrun us for ever.
STOP_ROUNDS = 8
PAGE_KIB = os.sysconf("SC_PAGE_SIZE") // 1024


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
    # For kernels without CONFIG_PROC_CHILDREN.
    return [pid for pid in all_pids() if parent_of(pid) == parent]


def all_pids() -> list[int]:
    return [int(entry) for entry in os.listdir("/proc") if entry.isdigit()]


def descendants_of(pid: int) -> list[int]:
    found: list[int] = []
    todo = [pid]
    while todo:
        children = children_of(todo.pop())
        found += children
        todo += children
    return found


def memory_of_kib(pid: int) -> int:
    """The memory that a process has for itself, with its share of what it has in common with others (PSS), so that a
    sum over processes counts nothing twice; all it has mapped where the kernel does not tell that. 0: it is gone."""
    try:
        with open(f"/proc/{pid}/smaps_rollup", "rb") as file:
            for line in file:
                if line.startswith(b"Pss:"):
                    return int(line.split()[1])
    except (OSError, ValueError, IndexError):
        pass  # of Linux 4.14; and not every process of another account can be looked into
    try:
        with open(f"/proc/{pid}/statm", "rb") as file:
            return int(file.read().split()[1]) * PAGE_KIB
    except (OSError, ValueError, IndexError):
        return 0


def parent_of(pid: int) -> int:
    """0: it is outside of this PID namespace; -1: the process is gone."""
    try:
        with open(f"/proc/{pid}/stat", errors="replace") as file:
            # The name before the last bracket may hold anything.
            return int(file.read().rpartition(")")[2].split()[1])
    except (OSError, ValueError, IndexError):
        return -1


def descends_from(pid: int, ancestor: int) -> bool:
    """Whether a process is a descendant of another, or can not be told from one: gone, or not to be seen from here."""
    if pid <= 0:
        return True
    while pid > 1:
        if pid == ancestor:
            return True
        pid = parent_of(pid)
    return pid < 0


def send_signal(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass  # it ended by itself meanwhile, which is what was wanted


def signal_tree(pid: int, number: int) -> None:
    """Signal a process and all below it, again and again until none is new: what was forked meanwhile, too."""
    seen: set[int] = set()
    for _ in range(STOP_ROUNDS):
        fresh = [one for one in (pid, *descendants_of(pid)) if one not in seen]
        if not fresh:
            return
        seen.update(fresh)
        for one in fresh:
            try:
                send_signal(one, number)
            except PermissionError:
                pass  # one that has become another user of the container


def kill_descendants(pid: int) -> None:
    """One round: what was forked meanwhile is for the next. Stopping them all first leaves few who could."""
    seen: set[int] = set()
    for _ in range(STOP_ROUNDS):
        fresh = [child for child in descendants_of(pid) if child not in seen]
        if not fresh:
            break
        seen.update(fresh)
        for child in fresh:
            send_signal(child, signal.SIGSTOP)
    for child in seen:
        send_signal(child, signal.SIGKILL)


def kill_account(uid: int) -> None:
    """Kill every process of an account that nobody else uses. One call does it, so none can fork its way past."""
    pid = os.fork()
    if pid == 0:
        try:
            os.setgroups([])
            os.setresuid(uid, uid, uid)
            os.kill(-1, signal.SIGKILL)  # everything that this uid may kill, but this process
        finally:
            os._exit(0)
    os.waitpid(pid, 0)


def kill_group(gid: int) -> None:
    """Kill every process that has this supplementary group."""
    word = str(gid).encode()
    for _ in range(STOP_ROUNDS):
        found = [pid for pid in all_pids() if pid != os.getpid() and word in _groups(pid)]
        if not found:
            return
        for pid in found:
            send_signal(pid, signal.SIGKILL)


def _groups(pid: int) -> list[bytes]:
    try:
        with open(f"/proc/{pid}/status", "rb") as file:
            for line in file:
                if line.startswith(b"Groups:"):
                    return line.split()[1:]
                if line.startswith(b"State:") and b"Z" in line:
                    return []  # dead, and only its parent can take it away
    except OSError as error:
        if error.errno not in (errno.ENOENT, errno.ESRCH):
            raise
    return []
