"""Reads a submit description that a remote user sent: `python -m roost.submit.remote DIRECTORY
SECONDS`, of processor time.

A gateway starts it for `POST /v1/jobs/description`, in a process of its own, because a description is a small program:
it may include files, run commands, look at the environment, and queue a billion jobs. Here it gets the files of its
request and nothing else. Once the fence is up, this process opens no file outside of that directory, lists no other
one, starts no program and opens no connection; time, memory and what it may write are limited.

In: JSON on standard input, {"description": text, "file": name, "user": name, "directory": where the user's files are
said to be, "index", "cluster": which cluster's jobs are wanted, and the number it got}. Out: msgpack, {"clusters":
[{"ad", "procs", "inputs"}], "warnings", "needs_cluster"} or {"error": text}. inputs: for each job, or once where all
are alike, the files that it takes along, as [path, name].
"""

from __future__ import annotations

import difflib
import glob
import json
import os
import re
import resource
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import msgpack

from roost.submit import Description, here
from roost.submit import description as _known
from roost.submit.description import DescribedCluster, materialize_at_once, told_of
from shared.config.errors import ConfigError, Problem
from shared.linux_release import linux_release
from shared.transfer.errors import TransferError
from shared.transfer.sandbox import input_sources

#: Bytes of memory.
MEMORY: Final = 1 << 30
_READY: Final = (difflib, glob, _known)  # what the language imports when it needs it, which it can not any more then
_REFUSED: Final = (
    "subprocess.",
    "socket.",
    "os.system",
    "os.exec",
    "os.posix_spawn",
    "os.spawn",
    "os.fork",
    "os.remove",
    "os.rename",
    "os.rmdir",
    "os.mkdir",
    "os.link",
    "os.symlink",
    "os.chmod",
    "os.chown",
    "os.truncate",
    "os.putenv",
    "os.kill",
    "shutil.",
    "ctypes.",
    "urllib.",
)
_LOOKS: Final = ("open", "os.listdir", "os.scandir", "glob.glob", "glob.glob/2", "os.walk", "os.chdir")


class OutOfReach(PermissionError):
    """The description wants what is not in its request."""


def fence(root: str) -> Callable[[str, tuple[Any, ...]], None]:
    """An audit hook that lets nothing out of `root`."""

    def look(event: str, arguments: tuple[Any, ...]) -> None:
        if event.startswith(_REFUSED):
            raise OutOfReach(1, "programs, connections and changes of files are out of reach for this description")
        if event in _LOOKS:
            path = arguments[0]
            if event.startswith("glob.") and len(arguments) > 2 and arguments[2]:
                path = os.path.join(arguments[2], path)
            if isinstance(path, bytes | str | os.PathLike) and not within(root, os.fsdecode(path)):
                raise OutOfReach(1, "it is not among the files of this request")

    return look


def within(root: str, path: str) -> bool:
    """Whether a path leads into `root`. There are no links in it."""
    place = os.path.normpath(os.path.join(root, path or "."))
    return place == root or place.startswith(root + os.sep)


def read(root: Path, asked: dict[str, Any]) -> dict[str, Any]:
    """What the description queues. Raises ConfigError, OutOfReach and others."""
    # Configuration is the pool's own: it is read before anything of the user's is.
    place = replace(here(str(asked["file"]), root), user=str(asked["user"]), environment={})
    linux_release()  # it is remembered
    sys.addaudithook(fence(str(root)))
    description = Description(str(asked["description"]), place, now=time.time(), stdin=_no_stdin)
    try:
        clusters = list(description.clusters())
        index, number = asked.get("index"), asked.get("cluster")
        procs = None
        if index is not None and number is not None:
            description.cluster = int(number)
            procs = list(description.clusters())[int(index)]
    except ConfigError as error:
        for problem in error.problems:
            if missing := re.match(r"Executable file (.*) does not exist", problem.message):
                raise _not_sent(missing[1]) from error
        raise
    directory = str(asked.get("directory") or "/")
    told = []
    for position, cluster in enumerate(clusters):
        if cluster.not_run:
            raise ValueError(cluster.not_run)
        inputs = _inputs(root, procs if procs is not None and position == index else cluster)
        if len(inputs) > 1 and (warning := materialize_at_once(cluster)):
            description.warnings.append(Problem(warning, None))
        base = cluster.attributes
        common = DescribedCluster({name: _moved(value, root, directory) for name, value in base.items()}, cluster.procs)
        jobs = cluster.jobs() if procs is None or position != index else procs.jobs(base)
        told.append(
            {
                "ad": common.ad.pack(),
                "procs": [_moved_ad(ad, root, directory).pack() for ad in jobs],
                "inputs": inputs,
            }
        )
    warnings = [*map(str, description.warnings), *told_of(clusters)]
    return {"clusters": told, "warnings": warnings[:100], "needs_cluster": description.needs_cluster}


def _not_sent(path: str) -> ValueError:
    """One refusal, whether such a file is there on this machine or not: that is nobody's business."""
    return ValueError(f"file {os.path.basename(path)} is not among the files of this request: send it too")


def _no_stdin() -> str:
    raise OutOfReach(1, "there is no standard input here: send the items as a file of the request")


def _inputs(root: Path, cluster: DescribedCluster) -> list[list[list[str]]]:
    """The files of each job, or once those that all of them take along."""
    common = cluster.ad
    each: list[list[list[str]]] = []
    for ad in cluster.jobs():
        ad.chain(common)
        files = []
        for source in input_sources(ad):
            path = os.path.normpath(source.path)
            if not within(str(root), path) or not os.path.lexists(path):
                raise _not_sent(path)
            files.append([path, source.name])
        each.append(files)
    return each[:1] if all(job == each[0] for job in each) else each


def _moved(value: Any, root: Path, directory: str) -> Any:
    """A text with the user's directory in place of ours."""
    if isinstance(value, str) and str(root) in value:
        return value.replace(f"{root}/", directory.rstrip("/") + "/").replace(str(root), directory.rstrip("/") or "/")
    return value


def _moved_ad(ad: Any, root: Path, directory: str) -> Any:
    for name in list(ad):
        value = ad.eval(name)
        if isinstance(value, str) and str(root) in value:
            ad[name] = _moved(value, root, directory)
    return ad


def main() -> int:
    """The answer goes to standard output; 0 also for a refusal."""
    root, seconds = Path(os.path.realpath(sys.argv[1])), int(sys.argv[2])
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    asked = json.loads(sys.stdin.buffer.read())
    try:
        answer = read(root, asked)
    except MemoryError:
        answer = {"error": "the description takes more memory than it may have: queue fewer jobs at a time"}
    except RecursionError:
        answer = {"error": "the description nests too deeply"}
    except (ConfigError, TransferError, OSError, ValueError) as error:
        text = error.strerror if isinstance(error, OutOfReach) else str(error)
        answer = {"error": str(text).replace(f"{root}/", "").replace(str(root), ".")}
    sys.stdout.buffer.write(msgpack.packb(answer))
    return 0


if __name__ == "__main__":
    sys.exit(main())
