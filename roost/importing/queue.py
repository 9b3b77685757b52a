"""The queue of an HTCondor access point, out of its job_queue.log: which jobs can come over, as what, and what of them
can not. Pure but for questions about files of jobs (`files_of`).

Keys of ads: `0.0` is the header, `0.N` a user, `012.-1` what the jobs of cluster 12 share, `12.0` its first job;
`12.-2` and `12.-100` are HTCondor's own.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any, Final

from engine.queue.jobs import ACTIVE, STATUS_NAMES, JobStatus
from roost.importing.classad_log import Log, LoggedAd
from roost.submit.ads import RUN, UNIVERSES
from roost.submit.effects import TABLE, WithoutEffect, without_effect
from shared.classad import ClassAd, ParseError
from shared.classad.ad import Table
from shared.classad.expr import fold
from shared.classad.old import parse_line
from shared.config.errors import ConfigError, Problem, Source
from shared.transfer.bundle import Source as FileSource
from shared.transfer.sandbox import EXECUTABLE, NOWHERE, input_names, input_sources

_KEY: Final = re.compile(r"0*([0-9]{1,15})\.(-?[0-9]{1,15})")
_CLUSTER, _OWN = -1, (-2, -100)
_SUBMITTED: Final = "SUBMIT_"
#: What was of a run or of HTCondor's own daemons.
PARALLEL: Final = UNIVERSES["parallel"]
_RUN: Final = """
    ClusterId ProcId JobStatus CurrentHosts LastJobLeaseRenewal PublicClaimId PublicClaimIds StartdPrincipal
    TransferKey TransferSocket ShadowIpAddr GlobalJobId DelegatedProxyExpiration StageInStart StageInFinish
    JobMaterializeLimit JobMaterializeMaxIdle MaterializeDigestFile SpoolOnEvict
"""
_DROPPED: Final = frozenset(map(fold, _RUN.split()))
#: A job whose input was still on its way is held for this.
_SPOOLING: Final = 16
#: What a job on hold says where what it asks for is not done here.
_ASKS_IN_VAIN: Final = 15


@dataclass(slots=True)
class QueuedJob:
    """One job that comes over. ad: what differs from its cluster's, with JobStatus 1 (idle) or 5 (held). spooled: its
    files are in HTCondor's spool."""

    proc: int
    ad: ClassAd
    status: JobStatus  # there
    spooled: bool
    line: int


@dataclass(slots=True)
class QueuedCluster:
    """Jobs that come over. origin: names the cluster for good."""

    number: int
    user: str
    origin: str
    ad: ClassAd
    jobs: list[QueuedJob]
    line: int


@dataclass(slots=True)
class Queue:
    """left: jobs that stay behind, and why."""

    clusters: list[QueuedCluster]
    left: Counter[str]
    warnings: list[Problem] = field(default_factory=list)


def read_queue(log: Log, file: str) -> Queue:
    """Raises ConfigError with everything that is wrong."""
    reader = _Reader(log, file)
    queue = reader.read()
    if reader.problems:
        raise ConfigError(reader.problems)
    return queue


class _Reader:
    def __init__(self, log: Log, file: str) -> None:
        self.problems: list[Problem] = []
        self._log = log
        self._file = file
        self._queue = Queue([], Counter())
        self._vain: dict[str, tuple[WithoutEffect, int, list[int]]] = {}  # attribute: row, first line, clusters
        self._other: dict[Any, tuple[int, list[int]]] = {}  # universe: line, clusters
        header = log.ads.get("0.0")
        domain = header.values.get(fold("UidDomain")) if header is not None else None
        self._domain = domain.text.strip('"') if domain is not None else ""

    def read(self) -> Queue:
        shared: dict[int, LoggedAd] = {}
        jobs: dict[int, dict[int, LoggedAd]] = {}
        for key, ad in self._log.ads.items():
            match = _KEY.fullmatch(key)
            if match is None:
                self.problems.append(
                    Problem(
                        f"{key[:40]!r} is no job", self._at(ad.line), "is this a job_queue.log? name the right file"
                    )
                )
                continue
            cluster, proc = int(match[1]), int(match[2])
            if cluster == 0 or proc in _OWN:
                continue
            if proc == _CLUSTER:
                shared[cluster] = ad
            elif proc < 0:
                self._warn(f"{key} is no job that is known here: it is left out", ad.line)
            else:
                jobs.setdefault(cluster, {})[proc] = ad
        if not self._log.ads and not self.problems:
            self.problems.append(
                Problem("there is nothing in it", Source(self._file), "name the job_queue.log in the schedd's SPOOL")
            )
        for number in sorted(shared.keys() | jobs.keys()):
            self._cluster(number, shared.get(number), jobs.get(number, {}))
        self._tell()
        return self._queue

    def _cluster(self, number: int, shared: LoggedAd | None, procs: dict[int, LoggedAd]) -> None:
        common = self._ad(shared) if shared is not None else ClassAd()
        self._factory(number, shared, common)
        jobs: list[QueuedJob] = []
        whole: list[ClassAd] = []
        for proc in sorted(procs):
            job = self._job(number, proc, procs[proc], common)
            if job is not None:
                jobs.append(job)
                whole.append(job.ad)
        if not jobs:
            return
        line = shared.line if shared is not None else jobs[0].line
        first = jobs[0].ad
        first.chain(common)
        user, universe = self._user(first, line, number), first.eval("JobUniverse")
        access_point, qdate = first.eval("GlobalJobId"), first.eval("QDate")
        first.chain(None)
        if universe not in RUN or (universe == PARALLEL and len(jobs) > 1):
            why = "of a parallel job in several parts" if universe == PARALLEL else f"of universe {universe}"
            self._queue.left[f"{why}, which is not run here"] += len(jobs)
            self._other.setdefault(universe, (line, []))[1].append(number)
            return
        name = access_point.partition("#")[0] if isinstance(access_point, str) else ""
        origin = f"{name}#{number}#{qdate if isinstance(qdate, int) else 0}"
        self._ask(number, common, jobs, shared, procs)
        for one in jobs:
            _clean(one.ad)
        _clean(common)
        self._queue.clusters.append(QueuedCluster(number, user, origin, common, jobs, line))

    def _job(self, number: int, proc: int, logged: LoggedAd, common: ClassAd) -> QueuedJob | None:
        """A job that comes over; None: it stays behind."""
        ad = self._ad(logged)
        ad.chain(common)
        status, code, staged = ad.eval("JobStatus"), ad.eval("HoldReasonCode"), "StageInFinish" in ad
        fetchable = staged or ad.eval("LeaveJobInQueue") not in (False, None)
        spooled = staged or f"{_SUBMITTED}Iwd" in ad
        ad.chain(None)
        if not isinstance(status, int) or status not in STATUS_NAMES:
            value = logged.values.get(fold("JobStatus"))
            told = value.text if value is not None else "nothing"
            line = value.line if value is not None else logged.line
            self.problems.append(
                Problem(f"{number}.{proc}: JobStatus is {told[:40]}", self._at(line), "want 1 (idle) to 7 (suspended)")
            )
            return None
        status = JobStatus(status)
        if status in (JobStatus.REMOVED, JobStatus.COMPLETED):
            self._queue.left[STATUS_NAMES[status].lower()] += 1
            if status == JobStatus.COMPLETED and staged and fetchable:
                self._warn(
                    f"{number}.{proc} is completed and its output waits in HTCondor's spool",
                    logged.line,
                    "fetch it with condor_transfer_data before HTCondor goes",
                )
            return None
        if status == JobStatus.HELD and code == _SPOOLING and not staged:
            self._queue.left["whose input never arrived"] += 1
            self._warn(
                f"{number}.{proc}: its input was never sent whole: it is left out", logged.line, "submit it anew"
            )
            return None
        ad["JobStatus"] = int(JobStatus.HELD if status == JobStatus.HELD else JobStatus.IDLE)
        if status in ACTIVE:
            for name in ("HoldReason", "HoldReasonCode", "HoldReasonSubCode"):
                if name in ad:
                    del ad[name]
        return QueuedJob(proc, ad, status, spooled, logged.line)

    def _ad(self, logged: LoggedAd) -> ClassAd:
        table: Table = {}
        for key, value in logged.values.items():
            try:
                table[key] = parse_line(f"{value.name} = {value.text}")[1]
            except ParseError as error:
                self.problems.append(
                    Problem(f"{logged.key}: {value.name}: {error.message}", self._at(value.line), "mend the expression")
                )
        return ClassAd.from_table(table)

    def _user(self, ad: ClassAd, line: int, number: int) -> str:
        user, owner = ad.eval("User"), ad.eval("Owner")
        if isinstance(user, str) and "@" in user:
            return user
        if isinstance(owner, str) and owner and self._domain:
            return f"{owner}@{self._domain}"
        self.problems.append(
            Problem(
                f"cluster {number} says neither User nor Owner with a domain",
                self._at(line),
                f'add a line: 103 0{number}.-1 User "NAME@DOMAIN"',
            )
        )
        return ""

    def _factory(self, number: int, shared: LoggedAd | None, common: ClassAd) -> None:
        """A cluster some of whose jobs are not in the queue yet."""
        if shared is None or "JobMaterializeLimit" not in common:
            return
        done, wanted = common.eval("JobMaterializeNextProcId"), common.eval("TotalSubmitProcs")
        if isinstance(done, int) and isinstance(wanted, int) and done >= wanted:
            return
        digest = common.eval("JobMaterializeDigestFile")
        self._queue.left["not materialized yet (clusters)"] += 1
        self._warn(
            f"cluster {number} has jobs that are not materialized yet, from {number}.{done} on: these are left out",
            shared.line,
            f"submit the rest anew, as {digest} has it" if isinstance(digest, str) else "submit the rest anew",
        )

    def _ask(
        self,
        number: int,
        common: ClassAd,
        jobs: list[QueuedJob],
        shared: LoggedAd | None,
        procs: dict[int, LoggedAd],
    ) -> None:
        """What the jobs ask for, and no pool of ours does: told, and those that would wait for ever or do the opposite
        go on hold."""
        names = {id(row): name for name, row in TABLE.items()}
        everybody = without_effect(dict(common.exprs()), [dict(job.ad.exprs()) for job in jobs])
        for row in everybody:
            name = names[id(row)]
            ads = [ad for ad in (shared, *procs.values()) if ad is not None and fold(name) in ad.values]
            line = ads[0].values[fold(name)].line if ads else 0
            self._vain.setdefault(name, (row, line, []))[2].append(number)
        refused = [row for row in everybody if row.refused]
        if not refused:
            return
        for job in jobs:
            merged = {**dict(common.exprs()), **dict(job.ad.exprs())}
            why = [f"{row.command} has no effect: {row.told}" for row in without_effect(merged, []) if row.refused]
            if why and job.status != JobStatus.HELD:
                job.ad["JobStatus"] = int(JobStatus.HELD)
                job.ad["HoldReason"] = "; ".join(why)
                job.ad["HoldReasonCode"] = _ASKS_IN_VAIN
                job.ad["HoldReasonSubCode"] = 0

    def _tell(self) -> None:
        for name, (row, line, clusters) in self._vain.items():
            held = ", so they come on hold" if row.refused else ""
            self._warn(f"{row.command} ({name}) has no effect here{held}: {row.told}; {_named(clusters)}", line)
        for universe, (line, clusters) in self._other.items():
            self._warn(
                f"jobs of universe {universe} are not run here and are left out: {_named(clusters)}",
                line,
                "let them end in HTCondor, or submit them anew as vanilla jobs",
            )

    def _warn(self, message: str, line: int, mend: str = "") -> None:
        self._queue.warnings.append(Problem(message, self._at(line), mend))

    def _at(self, line: int) -> Source:
        return Source(self._file, line)


def _named(clusters: list[int]) -> str:
    shown = ", ".join(map(str, clusters[:10]))
    more = f" and {len(clusters) - 10} more" if len(clusters) > 10 else ""
    return f"cluster{'s' if len(clusters) > 1 else ''} {shown}{more}"


def _clean(ad: ClassAd) -> None:
    """What HTCondor's schedd wrote of a job whose files it spooled is as its user had it; what was of a run is gone.
    JobStatus stays where it is a job's."""
    for key, (name, _) in list(ad.table().items()):
        if key.startswith(fold(_SUBMITTED)):
            ad[name[len(_SUBMITTED) :]] = ad[name]
            del ad[name]
    for key, (name, _) in list(ad.table().items()):
        if key in _DROPPED and key != "jobstatus":
            del ad[name]


# --- files


def spool_folder(spool: Path, cluster: int, proc: int) -> Path:
    """Where HTCondor keeps the files of a spooled job."""
    return spool / str(cluster % 10000) / str(proc % 10000) / f"cluster{cluster}.proc{proc}.subproc0"


def spooled_executable(spool: Path, cluster: int) -> Path:
    """Where HTCondor keeps an executable that its jobs share."""
    return spool / str(cluster % 10000) / f"cluster{cluster}.ickpt.subproc0"


def names_files(cluster: QueuedCluster, job: QueuedJob) -> bool:
    """Whether a job takes files along."""
    job.ad.chain(cluster.ad)
    try:
        takes_command = bool(job.ad.eval_string("Cmd")) and job.ad.eval("TransferExecutable") is not False
        takes_input = job.ad.eval_string("In") not in ("", NOWHERE) and job.ad.eval("TransferIn") is not False
        return job.spooled or takes_command or takes_input or bool(input_names(job.ad))
    finally:
        job.ad.chain(None)


def files_of(cluster: QueuedCluster, job: QueuedJob, spool: Path) -> list[FileSource]:
    """What goes along with a job: what is in HTCondor's spool, else what its submit file named. To be called with the
    rights of its owner. Raises ValueError naming what can not be read, and the mend."""
    job.ad.chain(cluster.ad)
    try:
        found = _spooled(cluster.number, job, spool) if job.spooled else input_sources(job.ad)
    except OSError as error:
        raise ValueError(f"{error.filename} can not be read: {error.strerror}") from error
    finally:
        job.ad.chain(None)
    for source in found:
        if not os.path.exists(source.path):
            raise ValueError(f"input file {source.path} does not exist, or its owner can not see it; bring it back")
        if not os.access(source.path, os.R_OK, effective_ids=True):
            raise ValueError(f"input file {source.path} can not be read by its owner")
    return found


def _spooled(number: int, job: QueuedJob, spool: Path) -> list[FileSource]:
    folder = spool_folder(spool, number, job.proc)
    if not folder.is_dir():
        raise ValueError(f"its files should be in {folder}; name HTCondor's spool directory with -spool")
    written = {PurePosixPath(job.ad.eval_string(name)).name for name in ("Out", "Err", "UserLog")}
    names = [name for name in sorted(os.listdir(folder)) if name not in written]
    found = {name: FileSource(folder / name, name, within=folder) for name in names}
    if job.ad.eval("TransferExecutable") is not False:
        command = PurePosixPath(job.ad.eval_string("Cmd"))
        own, common = found.pop(command.name, None), spooled_executable(spool, number)
        path = own.path if own is not None else common if common.exists() else Path(command)
        found[EXECUTABLE] = FileSource(path, EXECUTABLE, follow=own is None)
    return list(found.values())


def in_parts(cluster: QueuedCluster, most: int) -> Iterator[dict[int, ClassAd]]:
    """The jobs of a cluster by number, so many at a time."""
    for start in range(0, len(cluster.jobs), most):
        yield {job.proc: job.ad for job in cluster.jobs[start : start + most]}
