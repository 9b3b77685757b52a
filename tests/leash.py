"""Runs one command and ends all of its processes when whoever started it goes away.

A test session that is interrupted, or killed with SIGKILL, cannot run its clean-up. So every process that
tests start is the child of this small program, whose standard input is a pipe from the test process: the
kernel closes the pipe whatever end the test process comes to.

Usage: python -I -S leash.py DIRECTORY LOG COMMAND [ARGUMENT...]

Prints the command's process id, and when the command has ended and its process group is gone, its exit
status (128 + signal for one that was killed). Processes that left the group, as a daemon's jobs do, may live
on until the pipe closes or says "keep"; then they are killed too. If it closes without "keep", DIRECTORY is
removed, unless it is "-".
"""

import contextlib
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

PR_SET_CHILD_SUBREAPER = 36
PATIENCE_S = 60.0


def become_subreaper() -> None:
    """Orphans among our descendants become our children, not pid 1's: we can end and reap them."""
    import ctypes

    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def reap() -> dict[int, int]:
    """Exit status of every child that has ended, by process id."""
    ended = {}
    with contextlib.suppress(ChildProcessError):
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if not pid:
                break
            code = os.waitstatus_to_exitcode(status)
            ended[pid] = code if code >= 0 else 128 - code
    return ended


def children() -> Iterator[int]:
    """Our children that still run or wait to be reaped."""
    for entry in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            with open(f"/proc/{entry}/stat") as stat:
                fields = stat.read().rpartition(")")[2].split()
            if int(fields[1]) == os.getpid():
                yield int(entry)


def group_alive(leader: int) -> bool:
    try:
        os.killpg(leader, 0)
    except ProcessLookupError:
        return False
    return True


def end_group(leader: int) -> None:
    """Kill the process group and reap all of it, so that its ports and files are free when this returns."""
    deadline = time.monotonic() + PATIENCE_S
    while group_alive(leader) and time.monotonic() < deadline:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(leader, signal.SIGKILL)
        reap()
        time.sleep(0.002)


def end_descendants() -> None:
    """Kill and reap our children until there are none: each one's own children become ours as it dies. A zombie left
    behind would go to process 1, and look alive for as long as that takes to reap it."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        reap()
        left = list(children())
        if not left:
            return
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.002)


def hold(directory: str, log: str, start: Callable[[int], int | None]) -> bool:
    """Start a command and hold it until it and our standard input have ended.

    start: given the descriptor of its output, starts it and returns its pid, None if there is no such thing, and 0 in
    the command's own process, if that is a fork of this one: then this returns True at once.
    """
    become_subreaper()
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
    command = start(output)
    if not command:
        return command == 0
    os.close(output)
    print(command, flush=True)
    poll = select.poll()
    poll.register(0, select.POLLIN)
    poll.register(woken, select.POLLIN)
    while True:
        ready = {descriptor for descriptor, _ in poll.poll()}
        if 0 in ready:
            break
        os.read(woken, 4096)
        status = reap().get(command)
        if status is not None:
            end_group(command)
            with contextlib.suppress(BrokenPipeError):
                print(status, flush=True)
    keep = os.read(0, 16)
    end_group(command)
    end_descendants()
    if directory != "-" and not keep:
        shutil.rmtree(directory, ignore_errors=True)
    return False


def main() -> None:
    directory, log, *command = sys.argv[1:]

    kept: list[subprocess.Popen[bytes]] = []  # one that is forgotten takes its exit status with it

    def start(output: int) -> int | None:
        try:
            kept.append(
                subprocess.Popen(
                    command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
                )
            )
        except OSError as error:
            os.write(output, f"{command[0]}: {error}\n".encode())
            return None
        return kept[0].pid

    hold(directory, log, start)


if __name__ == "__main__":
    main()
