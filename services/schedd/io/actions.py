"""What people and policies do to jobs that are queued: remove, hold, release, vacate, edit (spec row TLS-05)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from engine.queue.jobs import BadSubmit, Cluster, Job, JobId, JobStatus, priority_of
from engine.queue.late_materialization import LIMIT, MAX_IDLE, UNLIMITED, BadLimit, Factory, Mode, limits_of
from engine.queue.packed_jobs import PackedJobs
from engine.queue.submitters import submitter_of
from services.schedd.core.acceptance import check_edits, check_size
from services.schedd.core.job_states import JobEvent, Verdict, suspension
from services.schedd.core.orders_on_many import ranges
from services.schedd.core.policies import Hold, needs_watching
from services.schedd.core.rights import Viewer, may_act
from services.schedd.io.group_orders import order_group
from services.schedd.io.job_updates import OVER, JobUpdates
from services.schedd.io.queries import CHOSEN, Chosen, chosen, chosen_factories
from shared import job_log
from shared.bus.api import RemoteFailure
from shared.classad import ClassAd, unparse
from shared.classad.budget import Budget
from shared.classad.expr import fold
from shared.classad.question import Question
from shared.cooperative import Yielder, reading
from shared.messages.queue import Acted, ActOnJobs

#: Jobs in one transaction that are ordered one by one: all that one holds is packed in one go.
SLICE: Final = 500
#: Jobs in one transaction that are alike, which others wait for.
TRANSACTION: Final = 5 * CHOSEN
_EVENTS: Final = {
    "remove": (JobEvent.REMOVE, "graceful"),
    "remove-force": (JobEvent.FORCE, "fast"),
    "hold": (JobEvent.HOLD, "graceful"),
    "release": (JobEvent.RELEASE, "graceful"),
    "vacate": (JobEvent.VACATE, "graceful"),
    "vacate-fast": (JobEvent.VACATE, "fast"),
}
_SUSPENSIONS: Final = {"suspend": JobEvent.SUSPEND, "continue": JobEvent.CONTINUE}


class Outcomes:
    """What became of jobs, for an answer. in_ranges: told by ranges, but for what is in results already."""

    def __init__(self, results: dict[str, str], *, in_ranges: bool) -> None:
        self.results = results
        self.ranges: dict[str, list[list[int]]] = {}
        self._in_ranges = in_ranges

    def add(self, cluster: int, procs: Sequence[int], outcome: str) -> None:
        """procs: ascending."""
        if not self._in_ranges:
            self.results.update((f"{cluster}.{proc}", outcome) for proc in procs)
            return
        known = self.ranges.setdefault(outcome, [])
        for first, last in ranges(procs):
            if known and known[-1][0] == cluster and known[-1][2] == first - 1:
                known[-1][2] = last
            else:
                known.append([cluster, first, last])


def _grouped(cluster: Cluster, procs: list[int]) -> tuple[list[tuple[PackedJobs, list[int]]], list[int]]:
    """The packed ones of these jobs by group, and the others. procs: ascending, as all that is given."""
    found: dict[int, tuple[PackedJobs, list[int]]] = {}
    others: list[int] = []
    at = 0
    while at < len(procs):
        group = cluster.jobs.group_of(procs[at])
        if group is None:
            others.append(procs[at])
            at += 1
        else:
            row = group.row(procs, at)
            found.setdefault(id(group), (group, []))[1].extend(row)
            at += len(row)
    return list(found.values()), others


#: What people type, where it is another word.
_COMMANDS: Final = {
    "remove": "rm",
    "remove-force": "rm -forcex",
    "vacate": "vacate-job",
    "vacate-fast": "vacate-job -fast",
    "edit": "qedit",
}


def _reason(asked: ActOnJobs) -> str:
    what = _COMMANDS.get(asked.action, asked.action)
    return f"{asked.reason[:2000] or f'via roost {what}'} (by user {asked.user})"


class Actions:
    """Carries out ActOnJobs, and the periodic policies."""

    def __init__(self, updates: JobUpdates) -> None:
        self.updates = updates

    async def act(self, asked: ActOnJobs) -> Acted:
        """Each job's outcome: done, not-found, denied, already, wrong-state. Raises RemoteFailure bad-request."""
        if not asked.ids and not asked.constraint:
            raise RemoteFailure("bad-request", "name jobs by ids, or by a constraint (true means all)")
        edits: ClassAd | None = None
        if asked.action == "edit":
            try:
                edits = await reading(
                    len(asked.edits),
                    check_edits,
                    asked.edits,
                    admin=asked.admin,
                    immutable=self.updates.settings.rules.immutable,
                )
            except BadSubmit as error:
                raise RemoteFailure("bad-request", str(error)) from error
            if not edits:
                raise RemoteFailure("bad-request", "edits: name at least one attribute to change")
        viewer = Viewer(asked.user, asked.admin, self.updates.settings.rights)
        told: dict[str, str] = {}
        async with Question(Budget("this constraint")) as question:
            factories: list[Cluster] = []
            if not asked.after:
                factories = await chosen_factories(question, self.updates, viewer, asked.ids, asked.constraint)
            # First, so that no job comes besides those that are chosen.
            for cluster in factories:
                empty = not cluster.jobs
                outcome = self._on_factory(cluster, asked, edits)
                if outcome and empty:
                    told[str(cluster.id)] = outcome
            jobs, missing, more = await chosen(
                question, self.updates, viewer, asked.ids, asked.constraint, after=asked.after,
                limit=max(0, asked.limit),
            )  # fmt: skip
        told = {**dict.fromkeys(() if asked.after else missing, "not-found"), **told}
        outcomes = Outcomes(told, in_ranges=asked.ranges)
        await self._order(jobs, asked, edits, outcomes)
        after = f"{jobs[-1].cluster}.{jobs[-1].procs[-1]}" if more else ""
        return Acted(results=outcomes.results, ranges=outcomes.ranges, next=after)

    async def _order(self, jobs: Sequence[Chosen], asked: ActOnJobs, edits: ClassAd | None, outcomes: Outcomes) -> None:
        """Do it, with all jobs at once that are alike. On disk when it returns."""
        yielder = Yielder()
        writing = None
        now = self.updates.now()
        begun = single = 0  # jobs of this transaction; jobs that were ordered one by one
        for number, procs in jobs:
            if begun + len(procs) > TRANSACTION:
                # The disk is at work meanwhile, but never so far behind that much waits for it.
                if writing is not None:
                    await writing
                writing = self.updates.commit()
                begun = 0
            begun += len(procs)
            cluster = self.updates.table.clusters.get(number)
            alone = procs
            if cluster is not None:
                groups, alone = _grouped(cluster, procs)
                for packed, some in groups:
                    outcome = self._order_group(cluster, packed, some, asked, now)
                    if outcome is None:
                        alone += some
                    else:
                        outcomes.add(number, some, outcome)
            await yielder.yield_if_due()
            for proc in sorted(alone):
                single += 1
                if single % SLICE == 0:
                    if writing is not None:
                        await writing
                    writing = self.updates.commit()
                await yielder.yield_if_due()
                outcomes.add(number, (proc,), self._order_one(JobId(number, proc), asked, edits))
        await self.updates.commit()

    def _order_one(self, job_id: JobId, asked: ActOnJobs, edits: ClassAd | None) -> str:
        job = self.updates.table.get(job_id)
        if job is None:
            return "not-found"
        if not may_act(asked.user, asked.admin, job.cluster.user, self.updates.settings.rights):
            return "denied"
        if edits is not None:
            return self.edit(job, edits)
        if asked.action in _SUSPENSIONS:
            return self._suspend_or_continue(job, _SUSPENSIONS[asked.action])
        return self._happen(job, asked)

    def _order_group(
        self, cluster: Cluster, packed: PackedJobs, procs: Sequence[int], asked: ActOnJobs, now: float
    ) -> str | None:
        """None: they are to be ordered one by one."""
        if asked.action not in _EVENTS:
            return None
        if not may_act(asked.user, asked.admin, cluster.user, self.updates.settings.rights):
            return "denied"
        event, _ = _EVENTS[asked.action]
        code = Hold.USER_REQUEST if event == JobEvent.HOLD else 0
        verdict = order_group(self.updates, cluster, packed, procs, event, reason=_reason(asked), code=code, now=now)
        return verdict.value if verdict is not None else None

    def _on_factory(self, cluster: Cluster, asked: ActOnJobs, edits: ClassAd | None) -> str:
        """What an action on a whole cluster means for its jobs that are not materialized yet. Empty: nothing."""
        updates, factory = self.updates, cluster.factory
        assert factory is not None
        if not may_act(asked.user, asked.admin, cluster.user, self.updates.settings.rights):
            return "denied"
        reason = _reason(asked)
        if edits is not None:
            self._edit_factory(cluster, factory, edits)
        elif asked.action in ("remove", "remove-force"):
            updates.pause_factory(cluster, Mode.REMOVED, reason)
        elif asked.action == "hold":
            if factory.mode is Mode.HELD:
                return "already"
            updates.pause_factory(cluster, Mode.HELD, reason)
        elif asked.action == "release":
            if factory.mode is Mode.RUNNING:
                return "already"
            updates.resume_factory(cluster)
        else:
            return ""
        return "done"

    def _edit_factory(self, cluster: Cluster, factory: Factory, edits: ClassAd) -> None:
        """Edits of a whole cluster count for its later jobs too. Raises RemoteFailure."""
        trial = cluster.ad.copy()
        trial.update(edits)
        try:
            check_size(cluster.ad, trial)
            priority_of(trial)
            submitter_of(trial, cluster.user, self.updates.settings.nice_group)
            limits = limits_of(trial, least=0)
        except (BadSubmit, BadLimit) as error:
            raise RemoteFailure("bad-request", f"cluster {cluster.id}: {error}") from error
        cluster.ad.update(edits)
        own = {fold(LIMIT), fold(MAX_IDLE)}
        factory.limit, factory.max_idle = limits or (UNLIMITED, UNLIMITED)
        factory.edited |= frozenset(edits.table()) - own
        cluster.changed()
        self.updates.save_factory(cluster)
        self.updates.table.note_due(cluster)

    def _suspend_or_continue(self, job: Job, event: JobEvent) -> str:
        run = job.shadow
        if run is None or job.cluster.here or job.nodes:
            return Verdict.WRONG_STATE.value
        verdict = suspension(job.status, event, suspended=run.suspended_by_user, stopping=bool(run.stop))
        if verdict is Verdict.DONE:
            self.updates.claims.suspend_run(job, suspended=event is JobEvent.SUSPEND)
        return verdict.value

    def _happen(self, job: Job, asked: ActOnJobs) -> str:
        event, how = _EVENTS[asked.action]
        if event in (JobEvent.REMOVE, JobEvent.HOLD) and job.shadow is not None:
            how = self.updates.stop_how(job)
        if (
            event == JobEvent.RELEASE
            and job.status == JobStatus.HELD
            and job.ad.eval("HoldReasonCode") == Hold.SPOOLING_INPUT
        ):
            return "wrong-state"  # its files are not there yet
        reason = _reason(asked)
        return self.updates.happen(
            job, event, reason=reason, code=Hold.USER_REQUEST if event == JobEvent.HOLD else 0, how=how
        ).verdict.value

    def edit(self, job: Job, edits: ClassAd) -> str:
        """Change a job: done, or wrong-state. edits: checked (acceptance.check_edits). Raises RemoteFailure."""
        # A manager of a DAG that is removed tells how that ends.
        ends = job.cluster.here and job.shadow is not None
        if job.status in (JobStatus.REMOVED, JobStatus.COMPLETED) and not ends:
            return "wrong-state"
        trial = job.ad.copy()
        trial.chain(job.cluster.ad)
        trial.update(edits)
        try:
            check_size(job.ad, trial)
            priority = priority_of(trial)
            submitter = submitter_of(trial, job.cluster.user, self.updates.settings.nice_group)
        except BadSubmit as error:
            raise RemoteFailure("bad-request", f"job {job.id}: {error}") from error
        self._tell_of_edits(job, edits)
        job.ad.update(edits)
        self.updates.table.changed(job, priority=priority, submitter=submitter)
        self.updates.queue.put(job)
        if job.idle_key is not None or job.nodes:
            self.updates.claims.offer_jobs()
        self.updates.counts_changed.set()
        return "done"

    def _tell_of_edits(self, job: Job, edits: ClassAd) -> None:
        """In the job's log, before they are made: its priority, as in HTCondor's logs, and nothing else."""
        name = "JobPrio"
        if name not in edits or not self.updates.entries.is_logged(job):
            return  # an edit may be of 100,000 jobs
        now = self.updates.now()
        before = unparse(job.ad[name]) if name in job.ad else None
        after = unparse(edits[name])
        self.updates.record(job, lambda: job_log.attribute_changed(job.id, now, name, before, after))

    # Periodic policies

    async def look(self) -> None:
        """Evaluate the periodic policies of all jobs once."""
        updates, system = self.updates, bool(self.updates.settings.system)
        yielder = Yielder()
        looked = 0
        for cluster in list(updates.table.clusters.values()):
            watched = needs_watching(cluster.ad) or system
            for job in cluster.jobs.made():
                # By time, not by number: one job's expressions may take a second.
                await yielder.yield_if_due()
                if (job.idle_key is not None or job.nodes) and job.has_start_rule:
                    updates.table.look_again(job)  # with the next commit
                if watched or job.status in OVER or needs_watching(job.ad):
                    updates.apply_policies(job)
                    looked += 1
                    if looked % SLICE == 0:
                        await updates.commit()
                job.settle()
            # Packed jobs have no policies of their own.
            for proc in [proc for group in cluster.jobs.groups for proc in group.ads] if watched else ():
                await yielder.yield_if_due()
                seen = cluster.jobs.peek(proc)
                if seen is not None and updates.has_policy_due(seen):
                    updates.apply_policies(cluster.jobs[proc])
                    looked += 1
                    if looked % SLICE == 0:
                        await updates.commit()
        await updates.commit()
