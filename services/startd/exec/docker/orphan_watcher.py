"""Removes a startd's containers when the leases of their claims have passed (LEA-02), with a startd or without one; and
all of them when it died and no other startd of that name has come for so long as jobs may live on without one
(ROOST_STARTD_ORPHAN_TIMEOUT): python -m services.startd.exec.docker.orphan_watcher STARTD FOLDER SECONDS

FOLDER/docker.leases has the leases: by run, as moments of the machine's own clock (CLOCK_BOOTTIME). The startd writes
it whenever it renews one. It is looked at every AGAIN_S, so a container goes that much later than its lease at most.

One such process goes with a startd that has started a container. Its standard input is a pipe from the startd, which
the kernel closes whatever end the startd comes to; a lock in FOLDER says that a later startd has a watcher of its own.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Container, Mapping
from pathlib import Path
from threading import Lock

#: As `plan` has it, which is more to load than this process needs.
STARTD_LABEL, RUN_LABEL = "roost.startd", "roost.run"
#: Between attempts to reach an engine that does not answer, and between two looks at the leases, seconds.
AGAIN_S = 5.0
_LEASES = "docker.leases"


class OrphanWatcher:
    """The startd's side: `watch` has such a process running, `close` lets it go its way."""

    def __init__(self, startd: str, folder: Path, patience_s: float) -> None:
        self._words = [startd, str(folder), str(patience_s)]
        self._folder = folder
        self._leases: dict[str, float] = {}
        self._process: subprocess.Popen[bytes] | None = None
        self._lock = Lock()

    def watch(self, address: str) -> None:
        """Start it, unless it runs. address: the engine's. Some milliseconds; may be called in threads. Raises
        OSError."""
        with self._lock:
            if self._process is None or self._process.poll() is not None:
                self._let_go()
                self._process = self._start(address)

    def _start(self, address: str) -> subprocess.Popen[bytes]:
        root = str(Path(__file__).parents[4])
        path = os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH"))))
        return subprocess.Popen(
            [sys.executable, "-m", __name__, *self._words],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=os.environ | {"PYTHONPATH": path, "DOCKER_HOST": address},
            start_new_session=True,
        )

    def lease(self, left_s: Mapping[str, float], known: Container[str]) -> None:
        """These runs may live for so many seconds from now. known: all that there are; others are forgotten. Raises
        OSError."""
        if not self._leases:
            self._leases = read_leases(self._folder)
        now = boottime()
        self._leases |= {run: now + left for run, left in left_s.items()}
        self._leases = {run: until for run, until in self._leases.items() if run in known}
        path = self._folder / _LEASES
        draft = path.with_suffix(".new")
        draft.write_text(json.dumps(self._leases))
        draft.replace(path)

    def close(self) -> None:
        """The startd ends. Its containers may go on, and so does the watcher."""
        with self._lock:
            self._let_go()

    def _let_go(self) -> None:
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()
            self._process.returncode = self._process.returncode or 0  # nobody waits for it
            self._process = None


def main(startd: str, folder: str, patience: str) -> None:
    with open(Path(folder, "docker.lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_SH)  # waits while the watcher of an earlier startd removes its containers
        while not ended(AGAIN_S):
            remove_overdue(startd, Path(folder))
        fcntl.flock(lock, fcntl.LOCK_UN)
        deadline = time.monotonic() + float(patience)
        while time.monotonic() < deadline:
            if clear(startd, remove=False) or not may_answer() or not is_alone(lock.fileno()):
                return
            remove_overdue(startd, Path(folder))
            time.sleep(min(AGAIN_S, max(0.0, deadline - time.monotonic())))
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return  # a later startd has a watcher of its own
        while may_answer() and not clear(startd, remove=True):
            time.sleep(AGAIN_S)


def boottime() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def ended(within_s: float) -> bool:
    """Whether the startd ends within so many seconds."""
    readable, _, _ = select.select([0], [], [], within_s)
    return bool(readable) and not os.read(0, 1024)


def read_leases(folder: Path) -> dict[str, float]:
    """When the lease of each run ends; empty where nobody wrote that."""
    try:
        found = json.loads((folder / _LEASES).read_text())
    except (OSError, ValueError):
        return {}
    return {str(run): float(until) for run, until in found.items()} if isinstance(found, dict) else {}


def overdue(leases: Mapping[str, float], now: float) -> list[str]:
    return [run for run, until in leases.items() if until <= now]


def remove_overdue(startd: str, folder: Path) -> None:
    """Remove the containers whose lease has passed. An engine that does not answer is asked again at the next look."""
    if not overdue(read_leases(folder), boottime()) or not may_answer():
        return
    import docker

    from services.startd.exec.docker.connection import connect

    try:
        with contextlib.closing(connect(os.environ["DOCKER_HOST"], 60)) as client:
            for one in client.api.containers(all=True, filters={"label": f"{STARTD_LABEL}={startd}"}):
                # Read anew each time: to list may take long, and the startd may have renewed it.
                if one.get("Labels", {}).get(RUN_LABEL, "") in overdue(read_leases(folder), boottime()):
                    client.api.remove_container(one["Id"], force=True, v=True)
    except (docker.errors.DockerException, OSError):
        return


def is_alone(lock: int) -> bool:
    """Whether no later startd has a watcher."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    fcntl.flock(lock, fcntl.LOCK_UN)
    return True


def may_answer() -> bool:
    """Whether there may be an engine at all."""
    url = os.environ["DOCKER_HOST"]
    return not url.startswith("unix://") or os.path.exists(url.removeprefix("unix://"))


def clear(startd: str, *, remove: bool) -> bool:
    """Whether there are no containers of this startd, perhaps after they were removed."""
    if not may_answer():
        return False
    import docker  # only now: most startds end in peace

    from services.startd.exec.docker.connection import connect

    try:
        with contextlib.closing(connect(os.environ["DOCKER_HOST"], 60)) as client:
            found = client.api.containers(all=True, filters={"label": f"{STARTD_LABEL}={startd}"})
            if remove:
                for one in found:
                    client.api.remove_container(one["Id"], force=True, v=True)
    except (docker.errors.DockerException, OSError):
        return False
    return remove or not found


if __name__ == "__main__":
    main(*sys.argv[1:])
