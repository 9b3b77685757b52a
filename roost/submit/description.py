"""Reads a submit file into clusters of job ads (manual: condor_submit).

place = here("job.sub")
description = Description(read_file("job.sub", place), place, now=time.time())
for cluster in description.clusters():
    cluster.ad, cluster.procs          # what is common, and what differs in each job

make_factory and materialize_at_once choose whether the jobs of a cluster are materialized late; KNOWN_COMMANDS are all
commands of the language, for the hint on a misspelt one.
"""

from __future__ import annotations

import getpass
import os
import platform
import re
import socket
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from roost.personal_config import tool_config
from roost.submit import node_groups
from roost.submit.ads import BESIDE, RULES, RUN, SIMPLE, UNIVERSES, WRITES
from roost.submit.commands import Attributes, Commands, Rule, SubmitContext
from roost.submit.effects import WithoutEffect, command_in_vain, read_in_vain, without_effect
from roost.submit.procs import Procs
from roost.submit.queue_statement import QueueItems, parse
from shared.classad import ClassAd, Expr, ParseError
from shared.config import Config
from shared.config.errors import Problem, Source, config_error
from shared.config.evaluate import parse_whole
from shared.config.knobs import SubmitSettings
from shared.config.macros import MacroTable
from shared.config.reader import Dialect, Reader
from shared.linux_release import linux_release

SUBMIT = Dialect(keywords=frozenset({"queue"}), attributes=True)
#: Macros that DAGs give to every node, whether it uses them or not.
_OF_DAGS: Final = frozenset(("dag_status", "failed_count"))
#: Live names that every job has of its own.
EVERY_JOB = ("process", "procid", "step", "row", "itemindex", "item", "jobid")
#: Stands for the number that a cluster gets when it is queued.
CLUSTER_UNKNOWN = 1


@dataclass(slots=True)
class DescribedCluster:
    """One cluster: the attributes that its jobs share, and for each job those that differ (at least ProcId and
    JobStatus)."""

    attributes: Attributes
    procs: Procs = field(default_factory=Procs)
    #: Of a parallel job with several queue statements: as HTCondor has it, a proc for each.
    written: DescribedCluster | None = None

    @property
    def ad(self) -> ClassAd:
        """What the schedd gets of it: with the JobStatus of its jobs, by which it knows `hold = true`."""
        status = {"JobStatus": self.procs[0]["JobStatus"]} if self.procs and "JobStatus" in self.procs[0] else {}
        return ClassAd({**self.attributes, **status})

    @property
    def not_run(self) -> str:
        """Why no pool of ours runs such jobs as they are meant; empty where it does."""
        number = self.attributes["JobUniverse"]
        if number not in RUN and number not in BESIDE:
            known = "vanilla, docker, container, java, parallel, vm, scheduler or local"
            return f"universe {number} is not run by this pool; use {known}"
        parallel = number == UNIVERSES["parallel"] and len(self.procs) > 1
        if parallel and (problem := node_groups.problem(self.attributes, self.procs)):
            return problem
        told = (f"{row.command} has no effect: {row.told}" for row in self.without_effect() if row.refused)
        return "; ".join(dict.fromkeys(told))

    def queued(self) -> DescribedCluster:
        """As it goes into the queue: the procs of a parallel cluster are one job there."""
        if self.attributes["JobUniverse"] != UNIVERSES["parallel"] or len(self.procs) < 2 or self.not_run:
            return self
        common, own = node_groups.together(self.attributes, self.procs)
        made = DescribedCluster(common, written=self)
        made.procs.append(own)
        return made

    def without_effect(self) -> list[WithoutEffect]:
        """What the jobs ask for, and no pool of ours does."""
        return without_effect(self.attributes, self.procs, self.procs.names)

    def jobs(self, common: Attributes | None = None) -> Iterator[ClassAd]:
        """What differs in each job from the cluster's ad, or from `common` where that was queued in its place."""
        base: Attributes = {}
        if common is not None:
            base = {n: v for n, v in self.attributes.items() if n not in common or not same(common[n], v)}
        for ad in self.procs.ads():
            yield ClassAd({**base, **dict(ad.cells())}) if base else ad


@dataclass(slots=True)
class Description:
    """What a submit file asks for. `clusters` reads it; `warnings` and `unused` are complete afterwards."""

    text: str
    place: SubmitContext
    queue_override: str | None = None  # `-queue` of the command line, instead of the file's own
    prelude: Sequence[str] = ()  # `name = value` lines read first
    append: Sequence[str] = ()  # `-append` lines, read before each queue statement
    cluster: int = CLUSTER_UNKNOWN  # what $(Cluster) gives
    now: float = 0.0
    stdin: Callable[[], str] = str  # what `queue ... from -` reads
    warnings: list[Problem] = field(default_factory=list)
    tell_unused: bool = True  # whether lines that nothing looked at are among the warnings
    needs_cluster: bool = False  # some text depends on $(Cluster)
    _variables: dict[str, Source] = field(default_factory=dict)  # of queue statements, and which

    def clusters(self) -> Iterator[DescribedCluster]:
        """Raises ConfigError naming file, line and mend. A changed executable begins a new cluster."""
        if "\0" in self.text:  # no name of a file, argument or variable can have one
            line = self.text.count("\n", 0, self.text.index("\0")) + 1
            raise config_error("there is a zero byte", Source(self.place.file, line), "remove it")
        table = _table(self.place, self.now)
        reader = Reader(table, SUBMIT)
        for number, row in enumerate(self.prelude, 1):
            reader.read_text(row, f"<command line, setting {number}>")
        commands = Commands(table, self.place, self.warnings)
        cluster: DescribedCluster | None = None
        executable: str | None = None
        queued = 0
        for statement in reader.statements(self.text, self.place.file):
            if self.queue_override is not None:
                raise config_error(
                    "-queue of the command line conflicts with this queue statement", statement.source, "remove one"
                )
            if queued == 1:
                self.warnings.append(
                    Problem("Use of multiple queue statements in one submit file is deprecated", statement.source)
                )
            self._append(reader)
            queued += 1
            inside_if = reader.open_ifs
            if cluster is not None and executable != table.raw("executable"):
                yield cluster.queued()
                cluster = None
            executable = table.raw("executable")
            cluster = self._queue(reader, commands, statement.rest, statement.source, cluster)
            if inside_if:
                reader.forget_ifs()  # as the reference, which then takes the endif for one too many
        if self.queue_override is not None:
            self._append(reader)
            queued += 1
            source = Source("<command line>")
            cluster = self._queue(reader, commands, self.queue_override, source, None)
        if not queued:
            last = self.text.rstrip().count("\n") + 1
            raise config_error("no queue statement", Source(self.place.file, last), "end with a line: queue")
        self.warnings += reader.warnings
        self.needs_cluster = bool(commands.varying(("cluster", "clusterid", "joblistid")) & commands.used)
        if cluster is not None:
            self._tell_idle_commands(table)
            if self.tell_unused:
                self._tell_unused(table, commands)
            if cluster.procs:
                yield cluster.queued()

    def _append(self, reader: Reader) -> None:
        for number, line in enumerate(self.append, 1):
            reader.read_text(line, f"<-append {number}>")

    def _queue(
        self, reader: Reader, commands: Commands, rest: str, source: Source, cluster: DescribedCluster | None
    ) -> DescribedCluster | None:
        table = commands.table
        items = parse(
            table.expand(rest, source=source),
            source,
            directory=self.place.directory,
            take_line=reader.take_line,
            stdin=self.stdin,
        )
        for pattern in items.unmatched:
            self.warnings.append(Problem(f"'{pattern}' does not match any files", source))
        for name in items.variables:
            self._variables.setdefault(name, source)
        if items.count == 0 or (items.rows is not None and not items.rows):
            self.warnings.append(Problem("this queue statement queues no jobs", source))
            return cluster
        cluster = _Builder(commands, items, self.cluster, self.warnings, source).build(cluster)
        for name in (*EVERY_JOB, *map(str.lower, items.variables)):
            table.live.pop(name, None)
        return cluster

    def _tell_idle_commands(self, table: MacroTable) -> None:
        """Commands that ask for something and are written into no job."""
        for macro in table:
            key = macro.name.lower()
            if macro.source.name.startswith("<") or key in table.consulted or not (why := command_in_vain(key)):
                continue
            if macro.text.strip().lower() not in ("", "false", "no", "0"):
                self.warnings.append(Problem(f"{macro.name} has no effect: {why}", macro.source))

    def _tell_unused(self, table: MacroTable, commands: Commands) -> None:
        """Lines that nothing looked at are likely misspelt."""
        used = commands.used | table.consulted | _OF_DAGS
        for name, source in self._variables.items():
            if name.lower() not in used:
                self.warnings.append(Problem(f"the queue variable '{name}' was unused. Is it a typo?", source))
        for macro in table:
            key = macro.name.lower()
            if key in used or macro.source.name.startswith("<") or command_in_vain(key):
                continue
            self.warnings.append(
                Problem(f"the line '{macro.name} = {macro.text}' was unused. Is it a typo?", macro.source, _near(key))
            )


def _near(name: str) -> str:
    import difflib

    found = difflib.get_close_matches(name, KNOWN_COMMANDS, 1, 0.75)
    return f"did you mean {found[0]}?" if found else ""


class _Builder:
    """The jobs of one queue statement: of a new cluster, or further ones of `cluster`, whose attributes they share."""

    def __init__(
        self, commands: Commands, items: QueueItems, number: int, warnings: list[Problem], source: Source
    ) -> None:
        self._commands = commands
        self._items = items
        self._warnings = warnings
        self._source = source
        self._live = commands.table.live
        self._number = number

    def build(self, cluster: DescribedCluster | None) -> DescribedCluster:
        commands = self._commands
        commands.variables = self._items.variables
        live = frozenset(map(str.lower, (*EVERY_JOB, *self._items.variables)))
        changing = commands.varying(live)
        each: list[Rule] | None = None
        common: Attributes = {}  # of the jobs of this statement
        base: Attributes = {}  # what it has in place of the cluster's
        try:
            for proc in self._jobs(len(cluster.procs) if cluster is not None else 0):
                if each is None:
                    common, each = self._first(changing, cluster.attributes if cluster is not None else {})
                    status = common.pop("JobStatus")
                    if cluster is None:
                        cluster = DescribedCluster(common)
                    else:
                        base = _different(common, cluster.attributes)
                        common = {**cluster.attributes, **common}
                    cluster.procs.append({"ProcId": proc, "JobStatus": status, **base})
                    if each:
                        commands.repeat(live, changing)
                elif each:
                    assert cluster is not None  # made with the first job
                    out = _Overlay(common)
                    for rule in each:
                        rule(commands, out)
                    made: Attributes = {"ProcId": proc, "JobStatus": status, **base}
                    attributes = cluster.attributes
                    for name, value in out.items():
                        if name not in attributes or not same(attributes[name], value) or name == "JobStatus":
                            made[name] = value
                        elif base:
                            made.pop(name, None)
                    cluster.procs.append(made)
                else:
                    assert cluster is not None  # made with the first job
                    cluster.procs.append({"ProcId": proc, "JobStatus": status, **base})
        finally:
            commands.restart()
        assert cluster is not None  # the caller has seen that there are jobs
        return cluster

    def _jobs(self, proc: int) -> Iterator[int]:
        """Set the live names for one job after the other; `proc` is the number of the first."""
        live, items = self._live, self._items
        live["cluster"] = live["clusterid"] = live["joblistid"] = str(self._number)
        names = [name.lower() for name in items.variables]
        own_number = not {"process", "procid"} & set(names)
        rows = items.rows if items.rows is not None else ((0, ()),)
        for index, values in rows:
            live["row"] = live["itemindex"] = str(index)
            for name, value in zip(names, values, strict=False):
                if value is not None:
                    live[name] = value
                if value == "":
                    self._warnings.append(Problem(f"Empty value(s) for {name} at ItemIndex={index}", self._source))
            for step in range(items.count):
                live["step"] = str(step)
                if own_number:
                    live["process"] = live["procid"] = str(proc)
                    live["jobid"] = f"{self._number}.{proc}"
                yield proc
                proc += 1

    def _first(self, changing: set[str], below: Attributes) -> tuple[Attributes, list[Rule]]:
        """All rules for the first job, and which of them must run again for the others: those that read a command or
        another rule's attribute that changes."""
        out = _Watched(below)
        again: list[Rule] = []
        unsteady: set[str] = set()  # attributes that rules write again
        for rule in RULES:
            self._commands.read.clear()
            out.read.clear()
            out.written.clear()
            rule(self._commands, out)
            if self._commands.read & changing or out.read & unsteady:
                again.append(rule)
                unsteady |= out.written | set(WRITES.get(rule, ()))
        return dict(out), again


def _different(left: Attributes, right: Attributes) -> Attributes:
    return {n: v for n, v in left.items() if n not in right or not same(right[n], v)}


class _Overlay(dict[str, Any]):
    """What a job's rules write, over what it shares with others: reading falls through, writing stays here."""

    def __init__(self, below: Attributes) -> None:
        super().__init__()
        self._below = below

    def __missing__(self, name: str) -> Any:
        return self._below[name]

    def get(self, name: str, default: Any = None) -> Any:
        return dict.get(self, name, self._below.get(name, default))

    def __contains__(self, name: object) -> bool:
        return super().__contains__(name) or name in self._below


class _Watched(_Overlay):
    """Notes which attributes a rule reads and writes."""

    def __init__(self, below: Attributes) -> None:
        super().__init__(below)
        self.read: set[str] = set()
        self.written: set[str] = set()

    def __getitem__(self, name: str) -> Any:
        self.read.add(name)
        return super().__getitem__(name)

    def __contains__(self, name: object) -> bool:
        self.read.add(str(name))
        return super().__contains__(name)

    def get(self, name: str, default: Any = None) -> Any:
        self.read.add(name)
        return super().get(name, default)

    def __setitem__(self, name: str, value: Any) -> None:
        self.written.add(name)
        super().__setitem__(name, value)


def same(left: Any, right: Any) -> bool:
    return type(left) is type(right) and bool(left == right)


def _table(place: SubmitContext, now: float) -> MacroTable:
    local = time.localtime(now)
    defaults = {
        "arch": place.arch,
        "opsys": place.opsys,
        "year": time.strftime("%Y", local),
        "month": time.strftime("%m", local),
        "day": time.strftime("%d", local),
        "submit_time": str(int(now)),
        "submit_file": place.file,
        "node": "",
        "islinux": str(int(place.opsys == "LINUX")),
        "iswindows": str(int(place.opsys == "WINDOWS")),
        **_release(),
    }
    return MacroTable(defaults=defaults, environment=place.environment)


def _release() -> dict[str, str]:
    """OPSYSANDVER and the like, as the reference tells them of a Linux."""
    found = linux_release()
    return {"opsysandver": found.versioned, "opsysmajorver": str(found.major), "opsysver": str(found.version)}


def here(file: str, directory: Path | None = None, **settings: Any) -> SubmitContext:
    """The place of a submit on this machine, by this user."""
    config = tool_config("SUBMIT")
    settings_of_machine = SubmitSettings.from_config(config)
    knobs = {
        "filesystem_domain": "FILESYSTEM_DOMAIN",
        "nice_group": "NICE_USER_ACCOUNTING_GROUP_NAME",
        "arch": "ARCH",
        "opsys": "OPSYS",
    }
    chosen = {field: text for field, knob in knobs.items() if (text := config.get(knob)) and config.is_written(knob)}
    machine = platform.machine().upper()
    place = SubmitContext(
        directory=(directory or Path.cwd()).absolute(),
        file=file,
        user=getpass.getuser(),
        environment=dict(os.environ),
        filesystem_domain=config.get("FILESYSTEM_DOMAIN") or socket.getfqdn(),
        arch={"AMD64": "X86_64"}.get(machine, machine),
        opsys=platform.system().upper(),
        knobs=settings_of_machine,
        site_attributes=site_attributes(config, settings_of_machine),
    )
    return replace(place, **{**chosen, **settings})


def site_attributes(config: Config, knobs: SubmitSettings) -> dict[str, Expr]:
    """What SUBMIT_ATTRS and its sisters name, by the macros of these names; one that is not set is left out. Raises
    ConfigError."""
    found: dict[str, Expr] = {}
    lists = {
        "SYSTEM_SUBMIT_ATTRS": knobs.system_submit_attrs,
        "SUBMIT_ATTRS": knobs.submit_attrs,
        "SUBMIT_EXPRS": knobs.submit_exprs,
    }
    for knob, names in lists.items():
        for name in names:
            if re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name) is None:
                raise config_error(f"{knob}: {name} is no name of an attribute", config.origin(knob), "correct it")
            text = config.get(name)
            if text is None:
                continue
            try:
                found[name] = parse_whole(text)
            except ParseError as error:
                raise config_error(
                    f"{name} = {text} is no ClassAd expression, and {knob} puts it into every job: {error}",
                    config.origin(name),
                    "put quotes around a text",
                ) from None
    return found


def told_of(clusters: Iterable[DescribedCluster]) -> list[str]:
    """What is said of jobs that are queued all the same: each thing that they ask for in vain, once."""
    told: dict[str, None] = {}
    for cluster in clusters:
        rows = (row for row in cluster.without_effect() if not row.refused)
        told |= dict.fromkeys(f"{row.command} has no effect: {row.told}" for row in rows)
        told |= dict.fromkeys(read_in_vain(cluster.attributes))
    return list(told)


def read_file(file: str | Path, place: SubmitContext) -> str:
    """The text of a submit file. Raises ConfigError when it can not be read."""
    try:
        return (place.directory / file).read_text(errors="surrogateescape")
    except OSError as error:
        raise config_error(f"can not read submit file {file}: {error.strerror}", None, "correct the path") from None


LIMIT: Final = "JobMaterializeLimit"
MAX_IDLE: Final = "JobMaterializeMaxIdle"


def make_factory(cluster: DescribedCluster) -> None:
    """As -factory asks: a cluster without a limit gets one of all its jobs, so that only the schedd's own count."""
    if LIMIT not in cluster.attributes and MAX_IDLE not in cluster.attributes:
        cluster.attributes[LIMIT] = len(cluster.procs)


def materialize_at_once(cluster: DescribedCluster) -> str:
    """Queue all jobs of a spooled cluster at once, as each takes files of its own along, which go to jobs that are
    there. Returns what to tell the user; empty: nothing was changed."""
    asked = [name for name in (LIMIT, MAX_IDLE) if name in cluster.attributes]
    for name in asked:
        del cluster.attributes[name]
    if not asked:
        return ""
    return (
        "max_materialize and max_idle have no effect: the jobs are spooled, and their input files differ from job to "
        "job. All are queued at once"
    )


KNOWN_COMMANDS: tuple[str, ...] = (
    *(name for names, _, _ in SIMPLE for name in names),
    "accounting_group",
    "accounting_group_user",
    "arguments",
    "concurrency_limits",
    "concurrency_limits_expr",
    "container_image",
    "container_target_dir",
    "deferral_time",
    "docker_image",
    "environment",
    "error",
    "executable",
    "getenv",
    "hold",
    "initialdir",
    "input",
    "job_lease_duration",
    "kill_sig",
    "log",
    "max_retries",
    "nice_user",
    "notification",
    "on_exit_hold",
    "on_exit_hold_reason",
    "on_exit_remove",
    "output",
    "output_destination",
    "periodic_hold_reason",
    "preserve_relative_paths",
    "priority",
    "rank",
    "remove_kill_sig",
    "request_cpus",
    "request_disk",
    "request_gpus",
    "request_memory",
    "require_gpus",
    "requirements",
    "retry_until",
    "should_transfer_files",
    "stream_error",
    "stream_output",
    "success_exit_code",
    "transfer_executable",
    "transfer_input_files",
    "transfer_output_files",
    "transfer_output_remaps",
    "universe",
    "when_to_transfer_output",
)
