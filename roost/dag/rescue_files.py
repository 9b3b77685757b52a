"""The rescue files, save points and halt file of a DAG: where they are, and how they are written."""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from engine.dag.files import rescue_lines
from engine.dag.run import DagRun
from shared.files import replace_on_disk

#: Rescue files have three digits; the last one is written again and again.
MOST_RESCUES: Final = 999


def rescue_path(file: Path, number: int) -> Path:
    """file: the DAG's first."""
    return Path(f"{file}.rescue{number:03}")


def halt_path(file: Path) -> Path:
    """While this is there, no node begins. file: the DAG's first."""
    return Path(f"{file}.halt")


def rescue_numbers(file: Path) -> list[int]:
    """Of the rescue files that are there, ascending."""
    names = (path.name.removeprefix(f"{file.name}.rescue") for path in file.parent.glob(f"{file.name}.rescue*"))
    return sorted(int(name) for name in names if len(name) == 3 and name.isdigit())


def save_point_path(file: Path, name: str) -> Path:
    """A name without a directory is in save_files beside the DAG; one that begins with ./ is where it says."""
    path = Path(name)
    return file.parent / "save_files" / name if path.parent == Path() and not name.startswith("./") else path


def write_rescue(run: DagRun, file: Path, *, most: int = MOST_RESCUES, anew: bool = True) -> Path | None:
    """The next rescue file of a DAG; of `most` the last is written again; None: there may be none. anew: retries count
    anew."""
    if not most:
        return None
    path = rescue_path(file, min(max(rescue_numbers(file), default=0) + 1, most))
    write_lines(path, rescue_lines(run, time.time(), anew=anew))
    return path


def write_save_point(run: DagRun, path: Path) -> None:
    """One that is there becomes NAME.old."""
    path.parent.mkdir(exist_ok=True)
    if path.exists():
        path.replace(f"{path}.old")
    write_lines(path, rescue_lines(run, time.time(), save_point=True))


def write_lines(path: Path, lines: Iterable[str]) -> None:
    """Write a file as a whole, for everybody to read."""
    text = "".join(f"{line}\n" for line in lines)
    replace_on_disk(path, text.encode(errors="surrogateescape"), 0o644)
