"""Where cgroups are on this machine, of which version, and whether this startd may make some."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

#: What a job's cgroup is for, beside keeping its processes together.
CONTROLLERS = ("memory", "cpu", "pids")
#: Of version 1 only: freezing, which version 2 always can, and the time used.
_ONLY_1 = ("freezer", "cpuacct")
#: Where processes go that are in the way of handing controllers on to jobs.
LEAF = "roost.daemons"


@dataclass(frozen=True, slots=True)
class Hierarchies:
    """Directories under which this startd makes the cgroups of its jobs: BASE_CGROUP in each hierarchy.

    `unified`: of version 2, None if there is none that can be used; `controllers`: what is enabled for jobs there.
    `old`: of version 1, by controller. A machine may have both (hybrid).
    """

    unified: Path | None = None
    controllers: frozenset[str] = frozenset()
    old: Mapping[str, Path] = field(default_factory=dict)
    trouble: str = ""  # why there are none, or fewer than the machine has

    def __bool__(self) -> bool:
        return self.unified is not None or bool(self.old)


def mounted(mountinfo: str) -> tuple[Path | None, dict[str, Path]]:
    """Where cgroups are mounted, from the text of /proc/self/mountinfo: of version 2, and of version 1 by
    controller."""
    unified: Path | None = None
    old: dict[str, Path] = {}
    for line in mountinfo.splitlines():
        left, _, right = line.partition(" - ")
        fields, kind = left.split(), right.split()
        if len(fields) < 5 or not kind:
            continue
        where = Path(fields[4].replace("\\040", " "))
        if kind[0] == "cgroup2":
            unified = unified or where
        elif kind[0] == "cgroup":
            for word in kind[-1].split(","):
                if word in (*CONTROLLERS, *_ONLY_1):
                    old.setdefault(word, where)
    return unified, old


def prepare(base: str, mountinfo: str) -> Hierarchies:
    """Make BASE_CGROUP wherever it may be made. Blocking; done once."""
    if not base:
        return Hierarchies(trouble="BASE_CGROUP is empty")
    unified, old = mounted(mountinfo)
    troubles = []
    mine: dict[str, Path] = {}
    for controller, where in old.items():
        try:
            os.makedirs(where / base, exist_ok=True)
            if not os.access(where / base, os.W_OK):
                raise PermissionError(errno.EACCES, "not writable")
        except OSError as error:
            troubles.append(f"{where / base}: {error.strerror}")
        else:
            mine[controller] = where / base
    enabled: frozenset[str] = frozenset()
    if unified is not None:
        try:
            os.makedirs(unified / base, exist_ok=True)
            enabled = _hand_on(unified, base)
            if not os.access(unified / base / "cgroup.procs", os.W_OK):
                raise PermissionError(errno.EACCES, "not writable")
        except OSError as error:
            troubles.append(f"{unified / base}: {error.strerror}")
            unified = None
    if unified is None and not old:
        troubles.append("no cgroups are mounted")
    return Hierarchies(unified / base if unified else None, enabled, mine, "; ".join(troubles))


def _hand_on(root: Path, base: str) -> frozenset[str]:
    """Enable the controllers for what is below BASE_CGROUP; those that are. A cgroup with processes can not hand
    controllers on, but for the machine's root: in a container ours is such a one, and they go to a leaf of it."""
    parts = base.split("/")
    for depth in range(len(parts) + 1):
        folder = root.joinpath(*parts[:depth])
        for controller in CONTROLLERS:
            if controller not in _words(folder / "cgroup.controllers"):
                continue
            if controller in _words(folder / "cgroup.subtree_control"):
                continue
            try:
                _write(folder / "cgroup.subtree_control", f"+{controller}")
            except OSError as error:
                if error.errno != errno.EBUSY or depth or not (folder / "cgroup.type").exists():
                    continue
                _make_way(folder)
                with contextlib.suppress(OSError):
                    _write(folder / "cgroup.subtree_control", f"+{controller}")
    return frozenset(_words(root / base / "cgroup.subtree_control")) & set(CONTROLLERS)


def _make_way(folder: Path) -> None:
    leaf = folder / LEAF
    leaf.mkdir(exist_ok=True)
    for pid in _words(folder / "cgroup.procs"):
        with contextlib.suppress(OSError):  # ended meanwhile
            _write(leaf / "cgroup.procs", pid)


def _words(path: Path) -> list[str]:
    try:
        return path.read_text().split()
    except OSError:
        return []


def _write(path: Path, text: str) -> None:
    with open(path, "w") as file:
        file.write(text)
