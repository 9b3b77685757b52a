"""How a DAG begins: its journal, with what it is and how it is to be run, and its line in the queue, which is the job
that manages it."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final

from engine.dag.model import Dag
from engine.dag.run import Limits
from roost.dag.journal import Header, Journal, Record, digest, new_name, read_dag, read_journal, replayed
from roost.dag.rescue_files import nodes_log_path, rescue_numbers, rescue_path, save_point_path, write_rescue
from roost.errors import UsageError
from shared.classad import ClassAd
from shared.job_text import join_v2

#: Exit codes with which a manager is done; after any other it is started again (DAGMAN_ON_EXIT_REMOVE).
DONE: Final = "ExitSignal =?= 11 || (ExitCode =!= UNDEFINED && ExitCode >= 0 && ExitCode <= 2)"
#: Of the submitter's environment, what a manager gets: names, and beginnings of names with a star. The rest comes by
#: -include_env, and by ENV GET in the DAG.
_KEPT: Final = (
    *("PATH", "PYTHONPATH", "VIRTUAL_ENV", "PERL*", "PEGASUS_*", "TZ", "HOME", "USER", "LOGNAME", "LANG", "LC_*"),
    *("ROOST_*", "CONDOR_CONFIG", "_CONDOR_*", "BEARER_TOKEN", "BEARER_TOKEN_FILE", "XDG_*", "TMPDIR"),
)


@dataclass(slots=True)
class Wishes:
    """How a DAG is to be run, as its user says it."""

    limits: Limits = field(default_factory=Limits)
    force: bool = False
    auto_rescue: bool = True
    rescue_from: int | None = None
    load_save: str = ""
    batch: str = ""
    include_env: tuple[str, ...] = ()
    insert_env: Mapping[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class Beginning:
    """A DAG whose journal is written, and the ad of its line in the queue. name: of the submit, by which a second one
    is known."""

    dag: Dag
    name: str
    ad: ClassAd


def begin(files: list[str], directory: Path, wishes: Wishes, in_queue: Callable[[Record], bool]) -> Beginning:
    """Write the journal of a DAG that is to run. in_queue: whether the line of a run that did not come to its end is in
    the queue yet. Raises ClientError, ConfigError."""
    file = directory / files[0]
    path = Path(f"{file}.journal")
    record = read_journal(path)
    if record is not None and record.job and not record.finished and not wishes.force and in_queue(record):
        raise UsageError(
            f"{file} is job {record.job}.0 already: `roost q {record.job}` tells how it stands; if it is held, "
            f"`roost release {record.job}` goes on with it"
        )
    journal = Journal(path)
    try:
        journal.cut()
        if record is not None and record.facts and not record.finished and not wishes.force:
            write_rescue(replayed(record), file)  # its line is gone, by a removal: what was done is not done again
        header = _header(files, file, directory, wishes)
        dag = read_dag(files, header.rescue, str(directory))
        header.nodes = digest(dag)
        journal.begin(header)
        nodes_log_path(file).unlink(missing_ok=True)
    finally:
        journal.close()
    return Beginning(dag, header.dag, line_ad(file, directory, dag, wishes))


def _header(files: list[str], file: Path, directory: Path, wishes: Wishes) -> Header:
    rescue, number = _rescue(file, wishes)
    return Header(new_name(), str(directory), time.time(), list(files), rescue, number, "", asdict(wishes.limits))


def _rescue(file: Path, wishes: Wishes) -> tuple[str, int]:
    """The rescue or save point file that a DAG begins with, and its number."""
    numbers = rescue_numbers(file)
    if wishes.load_save:
        return str(save_point_path(file, wishes.load_save)), 0
    if wishes.rescue_from is not None:
        number = wishes.rescue_from
        if number not in numbers:
            raise UsageError(f"there is no {rescue_path(file, number)}")
        later = [one for one in numbers if one > number]
    elif wishes.force:
        number, later = 0, numbers
    else:
        number, later = (numbers[-1] if numbers and wishes.auto_rescue else 0), []
    for one in later:
        path = rescue_path(file, one)
        path.replace(f"{path}.old")
    return (str(rescue_path(file, number)) if number else ""), number


def line_ad(file: Path, directory: Path, dag: Dag, wishes: Wishes) -> ClassAd:
    """The line of a DAG in the queue: a job of the scheduler universe, which manages it."""
    environment = chosen_environment(os.environ, (*_KEPT, *dag.env_get, *wishes.include_env))
    environment |= {**dag.env_set, **wishes.insert_env}
    pairs = [f"{name}={value}" for name, value in environment.items()]
    ad = ClassAd(
        {
            "MyType": "Job", "TargetType": "Machine", "JobUniverse": 7, "Requirements": True, "Rank": 0.0,
            "Cmd": sys.executable, "Arguments": join_v2(["-m", "roost.dag", str(file)]), "Iwd": str(directory),
            "In": "/dev/null", "Out": f"{file}.lib.out", "Err": f"{file}.lib.err", "UserLog": f"{file}.dagman.log",
            "RemoveKillSig": "SIGUSR1", "HoldKillSig": "SIGTERM", "KillSig": "SIGTERM", "RequestCpus": 1,
            "Environment": join_v2(pairs), "LeaveJobInQueue": False,
        }
    )  # fmt: skip
    ad.set_text("OnExitRemove", DONE)
    ad.set_text("OtherJobRemoveRequirements", 'strcat("DAGManJobId == ", ClusterId)')
    if wishes.batch:
        ad["JobBatchName"] = wishes.batch
    for name, text in dag.attributes.items():
        ad.set_text(name, text)
    return ad


def chosen_environment(environment: Mapping[str, str], names: tuple[str, ...]) -> dict[str, str]:
    """The variables of these names; one with a star at its end stands for all that begin so."""
    exact = {name for name in names if not name.endswith("*")}
    begins = tuple(name[:-1] for name in names if name.endswith("*"))
    return {
        name: value
        for name, value in environment.items()
        if (name in exact or (begins and name.startswith(begins))) and "\n" not in value
    }
