"""What a manager of a DAG has learned, a line of JSON each: written before anything is done about it, so that the next
manager knows what this one was about when it was killed. A line that was not written whole is as if it had not been."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
from dataclasses import astuple, dataclass, field
from pathlib import Path
from typing import Any, Final

from engine.dag.language import finished, reading
from engine.dag.model import Dag, When
from engine.dag.run import (
    Begin,
    DagRun,
    Fact,
    Halt,
    JobEnded,
    JobIs,
    Limits,
    ProvisionerReady,
    Remove,
    Resume,
    ScriptEnded,
    SubmitFailed,
    Submitted,
    TimePassed,
)
from roost.errors import ClientError
from shared.files import sync_directory

_KINDS: Final = {
    kind.__name__: kind
    for kind in (Begin, Submitted, SubmitFailed, JobIs, JobEnded, ScriptEnded, ProvisionerReady, Halt, Resume, Remove,
                 TimePassed)
}  # fmt: skip

_JOB: Final = "Job"
_FINISHED: Final = "Finished"


@dataclass(slots=True)
class Header:
    """The first line. dag: names this run of the DAG, for good; began: s since 1970; nodes: a digest of what the DAG's
    files said; rescue: the rescue or save point file that was read, and number its number."""

    dag: str
    directory: str  # that the names of its files start from
    began: float
    files: list[str]
    rescue: str
    number: int
    nodes: str
    limits: dict[str, Any]
    options: dict[str, Any] = field(default_factory=dict)  # settings.Options


def read_dag(files: list[str], rescue: str = "", directory: str = "") -> Dag:
    """Raises ConfigError."""
    here = Path(directory)
    return finished(reading(files, lambda path: (here / path).read_text(errors="surrogateescape"), rescue=rescue))


def digest(dag: Dag) -> str:
    """Changes with whatever decides which node a fact is about, and what follows from it."""
    hashed = hashlib.sha256()
    for node in dag.nodes:
        told = (node.name, node.kind, node.done, node.children, node.retries, sorted(node.scripts), node.noop)
        hashed.update(repr(told).encode(errors="surrogateescape"))
    return hashed.hexdigest()


class Journal:
    """The journal of one DAG, held by one process at a time. To be closed."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = path.open("a+b")
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._file.close()
            raise ClientError(f"{path}: this DAG is managed already; see `roost dag status`", "usage") from None

    def begin(self, header: Header) -> None:
        """Forget whatever was written before."""
        self._file.truncate(0)
        self._write([0.0, "Header", list(astuple(header))])
        self.sync()
        sync_directory(self.path.parent)

    def cut(self) -> None:
        """Take away the end of a line that was not written whole."""
        whole = self.path.read_bytes()
        if whole and not whole.endswith(b"\n"):
            self._file.truncate(whole.rfind(b"\n") + 1)

    def note_job(self, job: int, schedd: str) -> None:
        self._write([0.0, _JOB, [job, schedd]])

    def finish(self, code: int) -> None:
        """code: the exit code of the DAG."""
        self._write([0.0, _FINISHED, [code]])
        self.sync()

    def write(self, fact: Fact, now: float) -> None:
        self._write([now, type(fact).__name__, list(astuple(fact))])

    def _write(self, line: list[Any]) -> None:
        self._file.write(json.dumps(line).encode() + b"\n")
        self._file.flush()

    def sync(self) -> None:
        """Have all that was written on the disk. Blocking."""
        os.fdatasync(self._file.fileno())

    def close(self) -> None:
        self._file.close()


def is_managed(path: Path) -> bool:
    """Whether a process holds the journal."""
    try:
        with path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except FileNotFoundError:
        return False
    return False


@dataclass(slots=True)
class Record:
    """What a journal says. job, schedd: the DAG's line in the queue; finished: everything about the DAG is done, and
    code is its exit code."""

    header: Header
    facts: list[tuple[Fact, float]] = field(default_factory=list)
    job: int = 0
    schedd: str = ""
    finished: bool = False
    code: int = 0


def read_journal(path: Path) -> Record | None:
    """None where there is none."""
    try:
        lines = path.read_bytes().split(b"\n")[:-1]
    except FileNotFoundError:
        return None
    if not lines:
        return None
    record = Record(Header(*json.loads(lines[0])[2]))
    for line in lines[1:]:
        at, kind, values = json.loads(line)
        if kind == _JOB:
            record.job, record.schedd = values
        elif kind == _FINISHED:
            record.finished = True
            record.code = values[0] if values else 0
        else:
            record.facts.append((_fact(kind, values), at))
    return record


def _fact(kind: str, values: list[Any]) -> Fact:
    if kind == ScriptEnded.__name__:
        values[2] = When(values[2])
    fact: Fact = _KINDS[kind](*values)
    return fact


def replayed(record: Record) -> DagRun:
    """The run of a DAG as its journal has it. Raises ClientError, ConfigError."""
    header = record.header
    dag = read_dag(header.files, header.rescue, header.directory)
    if digest(dag) != header.nodes:
        raise ClientError(
            f"{', '.join(header.files)} changed since the DAG began: put back what it was to go on, or begin anew with "
            "-force",
            "usage",
        )
    run = DagRun(dag, Limits(**header.limits))
    for fact, at in record.facts:
        run.apply(fact, at)
    return run


def new_name() -> str:
    return os.urandom(12).hex()
