"""Which logs an event of a job goes into, and what it says there: the log of its user (UserLog), the one of all jobs
(EVENT_LOG), and the one of all nodes of its DAG (DAGManNodesLog). Nothing is written here: see `user_log`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from engine.queue.jobs import Cluster, Job
from services.schedd.io.user_log import is_for_dag
from services.schedd.settings import Settings
from shared import job_log
from shared.classad import ClassAd
from shared.classad.expr import fold
from shared.config.knobs.base import to_list


@dataclass(frozen=True, slots=True)
class LogEntries:
    """By settings. spool: where jobs have their logs whose files are spooled."""

    settings: Settings
    spool: Path

    def may_be_logged(self, cluster: Cluster, names: Collection[str]) -> bool:
        """Whether events of any of the cluster's jobs go into a log. names: folded, of attributes that some of them
        have of their own."""
        logs = ("userlog", "dagmannodeslog")
        shared = cluster.ad.table()
        return bool(self.settings.event_log.path) or any(name in shared or name in names for name in logs)

    def is_logged(self, job: Job) -> bool:
        """Whether the job's events go into any log."""
        return bool(self.path(job) or self.settings.event_log.path or self.nodes_path(job))

    def of_job(self, job: Job, event: Callable[[], job_log.Event]) -> list[tuple[str, bytes]]:
        """What an event makes of the logs that it goes into: (path, text). event: is asked only if there are any."""
        if job.whole is not None:
            return []  # the whole job tells
        own, of_all, of_dag = self.path(job), self.settings.event_log.path, self.nodes_path(job)
        if not own and not of_all and not of_dag:
            return []
        told, ad = event(), job.ad
        entries = [self._own(told, ad, own)] if own else []
        if of_dag and of_dag != own and is_for_dag(told.number, ad.eval_string("DAGManNodesMask")):
            entries.append((of_dag, job_log.written(told, self.settings.user_log_form)))
        return [*entries, self._of_all(told, ad)] if of_all else entries

    def _text(self, event: job_log.Event, ad: ClassAd, also: Sequence[str], form: job_log.Form) -> bytes:
        """An event in a log, and after it what the log tells of the job besides. also: names of attributes."""
        text = job_log.written(event, form)
        names = [name for name in also if fold(name) not in self.settings.rights.private]
        if not names or event.number == job_log.JobEventType.REMOTE_ERROR:  # HTCondor's tells nothing after it either
            return text
        chosen = {name: value for name in names if isinstance(value := ad.eval(name), bool | int | float | str)}
        return text + job_log.written(job_log.job_ad_information(event, chosen), form)

    def of_cluster(self, cluster: Cluster, event: job_log.Event, ad: ClassAd | None = None) -> list[tuple[str, bytes]]:
        """The same of an event of the cluster as a whole. ad: what the log wants told besides; None: the cluster's."""
        own, ad = self.cluster_path(cluster), cluster.ad if ad is None else ad
        entries = [self._own(event, ad, own)] if own else []
        return [*entries, self._of_all(event, ad)] if self.settings.event_log.path else entries

    def _own(self, told: job_log.Event, ad: ClassAd, path: str) -> tuple[str, bytes]:
        """An event in the log of the job's user."""
        form = self.settings.user_log_form
        if ad.eval("UserLogUseXML") is True:
            form = replace(form, kind="xml")
        return path, self._text(told, ad, to_list(ad.eval_string("JobAdInformationAttrs")), form)

    def _of_all(self, told: job_log.Event, ad: ClassAd) -> tuple[str, bytes]:
        """An event in the log of all jobs."""
        log = self.settings.event_log
        return log.path, self._text(told, ad, log.also, log.form)

    def path(self, job: Job) -> str:
        """Where the job's events are logged; empty: nowhere."""
        path = job.text("UserLog")
        if not path or path == "/dev/null":
            return ""
        if job.cluster.spool:
            return str(self.spool / str(job.cluster.id) / f"proc{job.proc}" / "out" / Path(path).name)
        return str(Path(job.text("Iwd") or "/") / path)

    def nodes_path(self, job: Job) -> str:
        """Where the events of all nodes of the job's DAG are logged (DAGManNodesLog); empty: nowhere."""
        path = job.text("DAGManNodesLog")
        return "" if not path or job.cluster.spool else str(Path(job.text("Iwd") or "/") / path)

    def cluster_path(self, cluster: Cluster) -> str:
        """Where events of a whole cluster are logged; empty: nowhere. Spooled jobs have a log each, clusters none."""
        path = cluster.ad.eval_string("UserLog")
        if not path or path == "/dev/null" or cluster.spool:
            return ""
        return str(Path(cluster.ad.eval_string("Iwd") or "/") / path)
