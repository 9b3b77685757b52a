"""Schedd: the queue and the history of an access point."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

from roost import submission
from roost.protocol import Cluster
from roost.submit import DescribedCluster
from roost_htcondor.class_ad import ClassAd, ExprTree
from roost_htcondor.constants import JobAction, QueryOpt, TransactionFlag
from roost_htcondor.gateway import HTCondorException, Remote, constraint_of, refuse, refused
from roost_htcondor.submit import Submit
from shared.classad import ClassAd as PoolAd
from shared.classad import ParseError, evaluate, is_true, parse_expr, references, unparse
from shared.transfer.bundle import Source

_ID = re.compile(r"\d+(\.\d+)?")
#: Job action -> (what the gateway calls it, the reason that jobs keep by default).
_ACTIONS = {
    JobAction.Hold: "hold",
    JobAction.Release: "release",
    JobAction.Remove: "remove",
    JobAction.RemoveX: "remove-force",
    JobAction.Vacate: "vacate",
    JobAction.VacateFast: "vacate-fast",
    JobAction.Suspend: "suspend",
    JobAction.Continue: "continue",
}
_TOTALS = {
    "done": "TotalSuccess",
    "already": "TotalAlreadyDone",
    "not-found": "TotalNotFound",
    "denied": "TotalPermissionDenied",
    "wrong-state": "TotalBadStatus",
}
_DEFAULT = object()

JobSpec = list[str] | str | ExprTree | int


class SubmitResult:
    """What was queued."""

    def __init__(self, queued: Cluster, cluster_ad: ClassAd, files: list[list[Source]]) -> None:
        self._queued = queued
        self._ad = cluster_ad
        self._files = files

    def cluster(self) -> int:
        return self._queued.cluster

    def clusterad(self) -> ClassAd:
        """What the jobs have in common."""
        return self._ad

    def first_proc(self) -> int:
        return 0

    def num_procs(self) -> int:
        return self._queued.count

    def __int__(self) -> int:
        return self._queued.cluster

    def __repr__(self) -> str:
        return f"SubmitResult(cluster={self._queued.cluster}, num_procs={self._queued.count})"

    def __str__(self) -> str:
        return f"{self._queued.count} jobs of cluster {self._queued.cluster}"


class Schedd(Remote):
    """An access point, over the pool's gateway. Raises HTCondorException."""

    _submit: ClassVar[type[Submit]] = Submit

    # Questions

    def query(
        self,
        constraint: str | ExprTree = "True",
        projection: Sequence[str] = (),
        callback: Callable[[ClassAd], Any] | None = None,
        limit: int = -1,
        opts: QueryOpt = QueryOpt.Default,
    ) -> list[ClassAd]:
        """Jobs in the queue. projection: only these attributes; callback: is given each ad, and what it returns is in
        the list, unless that is None."""
        options = QueryOpt(opts)
        odd = options & ~(QueryOpt.DefaultMyJobsOnly | QueryOpt.SummaryOnly | QueryOpt.IncludeClusterAd)
        if odd:
            refuse(f"query with {odd!r}", "ask for the jobs, and group these")
        text = constraint_of(constraint)
        with self._gateway() as client:
            if QueryOpt.SummaryOnly in options:
                return [self._ad({f"{name}Jobs": number for name, number in client.job_totals(self._name).items()})]
            if QueryOpt.DefaultMyJobsOnly in options:
                text = f"({text or 'true'}) && User =?= {unparse(str(client.whoami()['user']))}"
            most = max(limit, 0)
            found: Iterator[PoolAd] = client.jobs(
                constraint=text, projection=tuple(projection), schedd=self._name, limit=most
            )
            ads = [self._ad._of(ad) for ad in found]
            if QueryOpt.IncludeClusterAd in options:
                some = client.factories(constraint=text, projection=tuple(projection), schedd=self._name, limit=most)
                ads += [self._ad._of(ad) for ad in some]
        if callback is None:
            return ads
        told = [callback(ad) for ad in ads]
        return [one for one in told if one is not None]

    def history(
        self,
        constraint: str | ExprTree | None = None,
        projection: Sequence[str] = (),
        match: int = -1,
        since: int | str | ExprTree | None = None,
    ) -> list[ClassAd]:
        """Jobs that left the queue, newest first, at most `match`. since: the search ends before this job ("12.3"; a
        number: this cluster), or the first for which this expression is true."""
        return self._past(constraint, projection, match, since, epochs=False)

    def jobEpochHistory(
        self,
        constraint: str | ExprTree | None = None,
        projection: Sequence[str] = (),
        match: int = -1,
        since: int | str | ExprTree | None = None,
        **kwargs: Any,
    ) -> list[ClassAd]:
        """As `history`, but an ad for each run that is over, of jobs in the queue too: the job's as the run left it,
        with RunInstanceId (which of the job's runs) and EpochWriteDate (its end, s since 1970). ad_type: kinds of
        records, of which there is EPOCH; raises HTCondorException for others."""
        kinds = kwargs.pop("ad_type", None) or ()
        if kwargs:
            raise TypeError(f"jobEpochHistory takes no {', '.join(kwargs)}")
        for kind in kinds.split(",") if isinstance(kinds, str) else kinds:
            if kind.strip().upper() not in ("EPOCH", "ALL"):
                raise HTCondorException(f"ad_type {kind!r}: of a run one record is kept, EPOCH")
        return self._past(constraint, projection, match, since, epochs=True)

    def _past(
        self,
        constraint: str | ExprTree | None,
        projection: Sequence[str],
        match: int,
        since: int | str | ExprTree | None,
        *,
        epochs: bool,
    ) -> list[ClassAd]:
        stop = _stop(since)
        asked = tuple(projection)
        if asked and stop is not None:
            asked = (*asked, *sorted(references(stop).missing | references(stop).unscoped))
        shown = {name.lower() for name in projection}
        found: list[ClassAd] = []
        if match == 0:
            return found
        with self._gateway() as client:
            for ad in client.jobs(
                constraint=constraint_of(constraint),
                projection=asked,
                schedd=self._name,
                limit=max(match, 0),
                history=not epochs,
                epochs=epochs,
            ):
                if stop is not None and is_true(evaluate(stop, ad)):
                    break
                for name in [name for name in ad if shown and name.lower() not in shown]:
                    del ad[name]
                found.append(self._ad._of(ad))
        return found

    # Deeds

    def submit(
        self,
        description: Submit,
        count: int = 0,
        spool: bool = False,
        itemdata: Any = _DEFAULT,
        queue: str | None = None,
    ) -> SubmitResult:
        """Queue the jobs of a description. count: jobs, for each item where there are items; spool: `spool` sends their
        files then, and `retrieve` fetches their output. Warns (SubmitWarning) of what is asked for in vain."""
        if not isinstance(description, Submit):
            raise TypeError("submit takes a Submit: Submit(commands)")
        read = description.description(count, None if itemdata is _DEFAULT else itemdata, queue)
        cluster = description.cluster(read)
        with self._gateway() as client:
            about = client.schedd(self._name)
            if not spool and not submission.shares_files(about):
                raise HTCondorException(
                    f"{about['name']} can not use the files of this account on this machine where they lie: submit "
                    "with spool=True, then call spool(result), and retrieve when the jobs have ended"
                )
            if not spool:
                _make_logs(cluster)
            queued, each = client._do(submission.queue(read, cluster, spool, about["name"]))
        ad = PoolAd({**cluster.attributes, "ClusterId": queued.cluster})
        return SubmitResult(queued, self._ad._of(ad), each)

    def spool(self, result: SubmitResult) -> None:
        """Send the files of jobs that were submitted with spool=True; they can run then."""
        if not result._files:
            raise HTCondorException(f"cluster {int(result)} was not submitted with spool=True: it has no files to send")
        with self._gateway() as client:
            client._do(submission.send_files(result._queued, result._files))

    def retrieve(self, job_spec: JobSpec) -> None:
        """Fetch the output of spooled jobs that have ended, to where their descriptions said."""
        ids, constraint = _jobs(job_spec)
        needs = ("ClusterId", "ProcId", "JobStatus", "Iwd", "Out", "Err", "UserLog", "TransferOutputRemaps")
        ended = 0
        with self._gateway() as client:
            jobs = list(client.jobs(*ids, constraint=constraint, projection=needs, schedd=self._name))
            for job in jobs:
                if job.eval("JobStatus") == 4:
                    name = f"{job.eval('ClusterId')}.{job.eval('ProcId')}"
                    submission.unpack_output(client.download(name, self._name), job)
                    ended += 1
        if not ended:
            raise HTCondorException(
                "no spooled job has ended" if jobs else "no spooled job in the queue is meant by that"
            )

    def act(self, action: JobAction, job_spec: JobSpec, reason: str | None = None) -> ClassAd:
        """Hold, release, remove, ... jobs: how many of what outcome (TotalSuccess, TotalNotFound, ...)."""
        ids, constraint = _jobs(job_spec)
        kept = "" if action in (JobAction.Suspend, JobAction.Continue) else reason or "Python-initiated action"
        name = _ACTIONS[JobAction(action)]
        with self._gateway() as client:
            outcome = client.act(name, ids, constraint=constraint, reason=kept, schedd=self._name)
        totals = dict.fromkeys((*_TOTALS.values(), "TotalError"), 0)
        for result in outcome.values():
            totals[_TOTALS.get(result, "TotalError")] += 1
        return self._ad({"TotalChangedAds": totals["TotalSuccess"], **totals})

    def edit(
        self,
        job_spec: JobSpec,
        attr: str,
        value: str | ExprTree,
        flags: TransactionFlag = TransactionFlag.Default,
    ) -> int:
        """Change an attribute of jobs: to an expression, or to what a text stands for, strings with their quotes.
        Returns how many were changed."""
        if flags:
            refuse(f"edit with {TransactionFlag(flags)!r}", "every change is durable and is logged: leave flags out")
        ids, constraint = _jobs(job_spec)
        text = unparse(value._expr, "old") if isinstance(value, ExprTree) else str(value)
        with self._gateway() as client:
            outcome = client.edit(ids, {attr: text}, constraint=constraint, schedd=self._name)
        done = sum(result in ("done", "already") for result in outcome.values())
        if outcome and not done:
            job, why = next(iter(outcome.items()))
            raise HTCondorException(f"job {job} was not changed: {why}")
        return done

    def reschedule(self) -> None:
        """Have the negotiator look for machines soon."""
        with self._gateway() as client:
            client.reschedule()

    # What Roost does not have

    daemonHistory = refused("daemonHistory", "`roost history` and the journal have what happened")
    refreshGSIProxy = refused("refreshGSIProxy", "there are no X.509 proxies: store tokens with Credd")
    export_jobs = refused("export_jobs", "`roost import-pool` moves jobs to another access point")
    import_exported_job_results = refused("import_exported_job_results", "see export_jobs")
    unexport_jobs = refused("unexport_jobs", "see export_jobs")
    get_claims = refused("get_claims", "query the pool's slots: Collector().query(AdType.Slot)")
    queryUserAds = refused("queryUserAds", "Negotiator().getPriorities has the users")
    queryProjectAds = refused("queryProjectAds", "accounting groups take their place")
    addUserRec = refused("addUserRec", "an access point keeps no records of users")
    enableUserRec = disableUserRec = removeUserRec = updateUserRec = addUserRec
    addProjectRec = refused("addProjectRec", "accounting groups take the place of projects")
    enableProjectRec = disableProjectRec = removeProjectRec = updateProjectRec = addProjectRec
    create_ocu = refused("create_ocu", "give the users an accounting group with a quota")
    query_ocu = remove_ocu = create_ocu


def _make_logs(cluster: DescribedCluster) -> None:
    """Have the logs of jobs there when submit returns, as HTCondor does: programs open them then. Raises OSError."""
    common = cluster.attributes
    for ad in (common, *cluster.procs):
        name = ad.get("UserLog")
        if isinstance(name, str) and name:
            path = Path(str(ad.get("Iwd", common.get("Iwd", ""))), name)
            if not os.path.lexists(path):
                path.touch(0o644)


def _jobs(job_spec: JobSpec) -> tuple[list[str], str]:
    """(ids, constraint) of a job specification."""
    if isinstance(job_spec, bool):
        raise TypeError("jobs are a list of ids, an id, a cluster's number, or a constraint")
    if isinstance(job_spec, int):
        return [str(job_spec)], ""
    if isinstance(job_spec, str) and _ID.fullmatch(job_spec.strip()):
        return [job_spec.strip()], ""
    if isinstance(job_spec, str | ExprTree):
        text = constraint_of(job_spec)
        if not text:
            raise ValueError("an empty constraint would mean all jobs: write true")
        return [], text
    ids = [str(one) for one in job_spec] if isinstance(job_spec, Iterable) else []
    wrong = next((one for one in ids if not _ID.fullmatch(one)), None)
    if wrong is not None or not ids:
        raise ValueError(f"{wrong!r} is no id of a job: 12 or 12.3" if ids else "no job is named")
    return ids, ""


def _stop(since: int | str | ExprTree | None) -> Any:
    """The expression that ends a search in the history."""
    if since is None:
        return None
    if isinstance(since, ExprTree):
        return since._expr
    text = str(since)
    if _ID.fullmatch(text):
        cluster, _, proc = text.partition(".")
        text = f"ClusterId == {cluster}" + (f" && ProcId == {proc}" if proc else "")
    try:
        return parse_expr(text, "old")
    except ParseError as error:
        raise ValueError(f"since {text!r} is neither a job nor an expression: {error}") from None
