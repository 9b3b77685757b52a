"""How a DAG begins: its journal, with what it is and how it is to be run, and its line in the queue, which is the job
that manages it."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from engine.dag.model import Dag
from roost.dag.journal import Header, Journal, Record, digest, new_name, read_dag, read_journal, replayed
from roost.dag.rescue_files import rescue_numbers, rescue_path, save_point_path, write_rescue
from roost.dag.settings import settings_of
from roost.errors import UsageError
from roost.submission import described
from roost.submit import Description, here
from shared.classad import ClassAd
from shared.classad.expr import fold
from shared.config.errors import Problem
from shared.config.knobs import SubmitSettings
from shared.job_text import join_v2

#: Of the submitter's environment, what a manager gets: names, and beginnings of names with a star. The rest comes by
#: -include_env, and by ENV GET in the DAG.
_KEPT: Final = (
    *("PATH", "PYTHONPATH", "VIRTUAL_ENV", "PERL*", "PEGASUS_*", "TZ", "HOME", "USER", "LOGNAME", "LANG", "LC_*"),
    *("ROOST_*", "CONDOR_CONFIG", "_CONDOR_*", "BEARER_TOKEN", "BEARER_TOKEN_FILE", "XDG_*", "TMPDIR"),
)


#: What nobody may change of a DAG's line in the queue, folded.
_OF_THE_MANAGER: Final = frozenset(
    ["cmd", "arguments", "args", "iwd", "in", "out", "err", "jobuniverse", "environment", "env", "userlog"]
)


@dataclass(slots=True)
class Wishes:
    """How a DAG is to be run, as its user says it."""

    limits: Mapping[str, Any] = field(default_factory=dict)  # fields of Limits that win over the knobs
    force: bool = False
    auto_rescue: bool | None = None  # None: as DAGMAN_AUTO_RESCUE says
    rescue_from: int | None = None
    load_save: str = ""
    batch: str = ""
    include_env: tuple[str, ...] = ()
    insert_env: Mapping[str, str] = field(default_factory=dict)
    commands: tuple[str, ...] = ()  # lines of the submit language for the DAG's own line in the queue
    options: Mapping[str, Any] = field(default_factory=dict)  # fields of Options that win over the knobs
    config: str = ""  # a file as of the DAG's CONFIG


@dataclass(slots=True)
class Beginning:
    """A DAG whose journal is written, and the ad of its line in the queue. name: of the submit, by which a second one
    is known. in_vain: what its CONFIG file says, and nothing goes by."""

    dag: Dag
    name: str
    ad: ClassAd
    in_vain: Sequence[Problem] = ()


def begin(
    files: list[str], directory: Path, wishes: Wishes, in_queue: Callable[[Record], bool], dag: Dag | None = None
) -> Beginning:
    """Write the journal of a DAG that is to run. in_queue: whether the line of a run that did not come to its end is in
    the queue yet; dag: what its files say, where they were read already. Raises ClientError, ConfigError."""
    file = directory / files[0]
    path = Path(f"{file}.journal")
    record = read_journal(path)
    if record is not None and record.job and not record.finished and not wishes.force and in_queue(record):
        raise UsageError(
            f"{file} is job {record.job}.0 already: `roost q {record.job}` tells how it stands; if it is held, "
            f"`roost release {record.job}` goes on with it"
        )
    dag = dag or read_dag(files, "", str(directory))
    if dag.config and wishes.config:
        raise UsageError(
            f"-config {wishes.config}: the DAG has a CONFIG of its own, {dag.config}: leave one of them out"
        )
    settings = settings_of(wishes.config or dag.config, directory)
    options = replace(settings.options(file.absolute()), **wishes.options)
    line = line_ad(file, directory, dag, wishes, settings.knobs)
    journal = Journal(path)
    try:
        journal.cut()
        if record is not None and record.facts and not record.finished and not wishes.force:
            # Its line is gone, by a removal: what was done is not done again.
            write_rescue(replayed(record), file, most=options.max_rescue, anew=options.reset_retries)
        auto = settings.knobs.dagman_auto_rescue if wishes.auto_rescue is None else wishes.auto_rescue
        rescue, number = _rescue(file, wishes, auto=auto)
        limits = replace(settings.limits(), **wishes.limits)
        header = Header(
            new_name(), str(directory), time.time(), list(files), rescue, number, "", asdict(limits), asdict(options)
        )
        if header.rescue:
            dag = read_dag(files, header.rescue, str(directory))
        header.nodes = digest(dag)
        journal.begin(header)
        if options.node_log:
            Path(options.node_log).unlink(missing_ok=True)
    finally:
        journal.close()
    return Beginning(dag, header.dag, line, settings.in_vain)


def _rescue(file: Path, wishes: Wishes, *, auto: bool) -> tuple[str, int]:
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
        number, later = (numbers[-1] if numbers and auto else 0), []
    for one in later:
        path = rescue_path(file, one)
        path.replace(f"{path}.old")
    return (str(rescue_path(file, number)) if number else ""), number


def line_ad(file: Path, directory: Path, dag: Dag, wishes: Wishes, knobs: SubmitSettings) -> ClassAd:
    """The line of a DAG in the queue: a job of the scheduler universe, which manages it."""
    names = (*_KEPT, *knobs.dagman_manager_job_append_getenv, *dag.env_get, *wishes.include_env)
    environment = chosen_environment(os.environ, names)
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
    ad["OnExitRemove"] = knobs.dagman_on_exit_remove
    ad.set_text("OtherJobRemoveRequirements", 'strcat("DAGManJobId == ", ClusterId)')
    if wishes.batch:
        ad["JobBatchName"] = wishes.batch
    for name, text in dag.attributes.items():
        ad.set_text(name, text)
    if wishes.commands:
        ad.update(_asked(wishes.commands))
    return ad


def _asked(lines: Sequence[str]) -> ClassAd:
    """What these commands make of a job of the scheduler universe. Raises UsageError, ConfigError."""
    head = ("universe = scheduler", "executable = /bin/true", "queue")
    plain, asked = (
        described(Description("\n".join((*head[:2], *more, head[2], "")), here("<-append>"))).ad for more in ((), lines)
    )
    changed = ClassAd({name: expr for name, expr in asked.exprs() if str(plain.lookup(name)) != str(expr)})
    for name in changed:
        if fold(name) in _OF_THE_MANAGER:
            raise UsageError(f"-append, -insert_sub_file: {name} says how the DAG is managed: leave it out")
    return changed


def chosen_environment(environment: Mapping[str, str], names: tuple[str, ...]) -> dict[str, str]:
    """The variables of these names; one with a star at its end stands for all that begin so."""
    exact = {name for name in names if not name.endswith("*")}
    begins = tuple(name[:-1] for name in names if name.endswith("*"))
    return {
        name: value
        for name, value in environment.items()
        if (name in exact or (begins and name.startswith(begins))) and "\n" not in value
    }
