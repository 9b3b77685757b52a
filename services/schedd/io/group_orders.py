"""Carries out orders on groups of packed jobs (core.orders_on_many): jobs that are alike change together, in memory, in
the database, in logs and in what is published."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from engine.queue.jobs import Cluster, JobStatus
from engine.queue.packed_jobs import PackedJobs
from services.schedd.core.job_states import JobEvent, Verdict, transition
from services.schedd.core.orders_on_many import (
    REMOVALS,
    HistoryRows,
    Ordered,
    are_alike,
    log_texts,
    logged_alike,
    order_all,
    own_ads,
    ranges,
)
from services.schedd.io.job_updates import JobUpdates

#: Fewer jobs are ordered one by one: each group of a cluster is looked through for a job.
LEAST: Final = 50
#: Jobs whose events are one piece of a log: written with one write, and found again in the end of the log.
LOGGED: Final = 200


def order_group(
    updates: JobUpdates,
    cluster: Cluster,
    packed: PackedJobs,
    procs: Sequence[int],
    event: JobEvent,
    *,
    reason: str,
    code: int,
    now: float,
) -> Verdict | None:
    """Order packed jobs of one group. procs: ascending. None: nothing has happened, they are to be ordered one by one.
    The caller commits."""
    change = transition(JobStatus(packed.status), event)
    if change.verdict is not Verdict.DONE:
        return change.verdict
    if len(procs) < LEAST or not are_alike(cluster, packed, event) or not _log_is_simple(updates, cluster, packed):
        return None
    if event in REMOVALS and (updates.log.history.path or updates.log.per_job):
        return None
    ordered = order_all(updates.name, cluster, packed, procs[0], event, now, reason, code)
    if ordered is None or not _change(updates, cluster, packed, procs, ordered, now):
        return None
    _log(updates, cluster, procs, event, reason, code, now)
    first = f"{cluster.id}.{procs[0]}"
    updates.publish(ordered.told.model_copy(update={"job_id": first, "jobs": ranges(procs)}))
    if ordered.status == JobStatus.IDLE:
        updates.claims.offer_jobs()
    updates.counts_changed.set()
    return Verdict.DONE


def _change(
    updates: JobUpdates, cluster: Cluster, packed: PackedJobs, procs: Sequence[int], ordered: Ordered, now: float
) -> bool:
    """False: nothing has happened."""
    table, queue = updates.table, updates.queue
    ads = {proc: packed.ads[proc] for proc in procs}
    if ordered.status != JobStatus.REMOVED:
        if not table.restate(cluster, packed, procs, ordered.status, ordered.state, now):
            return False
        queue.put_states(cluster.id, ranges(procs), ordered.status, own_ads(ads, ordered.state))
        return True
    queue.leave_many(
        cluster.id,
        ranges(procs),
        HistoryRows(
            schedd=updates.name,
            cluster=cluster.id,
            owner=cluster.owner,
            qdate=cluster.qdate,
            now=now,
            shared=cluster.packed_cells(),
            ads=ads,
            state=ordered.state,
            autocluster=packed.autocluster if packed.generation >= 0 else 0,
            hidden=updates.settings.not_in_history,
        ),
    )
    if table.forget_packed(cluster, packed, procs):
        updates.drop(cluster)
    return True


def _log_is_simple(updates: JobUpdates, cluster: Cluster, packed: PackedJobs) -> bool:
    if not updates.entries.may_be_logged(cluster, packed.names):
        return True
    if updates.settings.event_log.path or not logged_alike(cluster, packed):
        return False
    table = cluster.ad.table()
    return (
        updates.settings.user_log_form.kind == "text"
        and "dagmannodeslog" not in table
        and cluster.ad.eval("UserLogUseXML") is not True
    )


def _log(
    updates: JobUpdates, cluster: Cluster, procs: Sequence[int], event: JobEvent, reason: str, code: int, now: float
) -> None:
    path = updates.entries.cluster_path(cluster) if updates.entries.may_be_logged(cluster, ()) else ""
    if not path:
        return
    texts = list(log_texts(cluster.id, procs, event, now, reason, code, updates.settings.user_log_form))
    updates.record_all([(path, b"".join(texts[at : at + LOGGED])) for at in range(0, len(texts), LOGGED)])
