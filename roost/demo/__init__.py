"""The demo of `roost demo`: a pool starts, some forty real jobs run over files that this machine really has, their
results are collected, checked against a computation without the pool, and printed.

The work: survey Python's own standard library, a map of forty lists of source files (survey.py, survey.sub) and a
reduce of the answers.
"""

from __future__ import annotations

import json
import shutil
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from roost.demo.survey import merge, survey

JOBS = 40
HERE = Path(__file__).parent


@dataclass(frozen=True, slots=True)
class Work:
    """The demo's own directory: lists/ in, found/ out."""

    directory: Path
    lists: list[Path]

    @property
    def submit_file(self) -> Path:
        return self.directory / "survey.sub"

    def results(self) -> list[dict[str, Any]]:
        """What the jobs found. Raises FileNotFoundError or ValueError when an answer is missing or broken."""
        return [json.loads((self.directory / "found" / f"{path.name}.json").read_text()) for path in self.lists]


def sources() -> list[str]:
    """Source files of the standard library, without its tests: some 600 on most machines."""
    library = Path(sysconfig.get_paths()["stdlib"])
    leave_out = {"site-packages", "dist-packages", "test", "tests", "idle_test"}
    return sorted(str(path) for path in library.rglob("*.py") if not leave_out & set(path.relative_to(library).parts))


def prepare(directory: Path, jobs: int = JOBS) -> Work:
    """Write the lists and copy the job's files. Lists are dealt out round robin, so that they take about equal time;
    fewer jobs than JOBS do less between them, more of them have shorter lists."""
    files = sources()
    (directory / "lists").mkdir(parents=True, exist_ok=True)
    (directory / "found").mkdir(exist_ok=True)
    lists = []
    for number in range(min(jobs, len(files))):
        path = directory / "lists" / f"{number:02}.txt"
        path.write_text("\n".join(files[number :: max(jobs, JOBS)]) + "\n")
        lists.append(path)
    shutil.copy(HERE / "survey.py", directory / "survey.py")
    submit = (HERE / "survey.sub").read_text()
    (directory / "survey.sub").write_text(f"python = {sys.executable}\n{submit}")
    return Work(directory, lists)


def collect(work: Work) -> dict[str, Any]:
    """The reduce step, and the check: the pool's answers, added up, equal one survey of all files without the pool."""
    whole: dict[str, Any] = merge(work.results())
    files = [line for path in work.lists for line in path.read_text().splitlines()]
    alone = survey(files)
    for name in ("files", "lines", "functions", "classes", "imports"):
        if whole[name] != alone[name]:
            raise ValueError(f"{name}: the jobs found {whole[name]}, a run without the pool {alone[name]}")
    return whole
