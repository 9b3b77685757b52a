"""Follows the runs of parallel jobs: what nodes do becomes what the whole job does (core.parallel_universe decides).

The runs on nodes are followed as any others (`runs`), which tells here how they go. What is known of the run of the
whole job is written with what happens to its nodes, in one transaction.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from engine.queue.jobs import ACTIVE, Job, JobId, JobStatus, Shadow
from services.schedd.core import job_end
from services.schedd.core import parallel_universe as decisions
from services.schedd.core.claim import Claim
from services.schedd.core.job_states import JobEvent
from services.schedd.core.parallel_universe import Ending, NodeEnd, ParallelRun
from services.schedd.io.job_updates import JobUpdates
from shared import job_log
from shared.classad import ClassAd
from shared.messages.claims import JobExit, JobReport, Usage
from shared.messages.events import JobStarted

#: In the database: `parallel_run CLUSTER.PROC`.
_KEY: Final = "parallel_run "


class ParallelRuns:
    """The runs of parallel jobs, by the job."""

    def __init__(self, updates: JobUpdates) -> None:
        self.updates = updates
        self.table = updates.table
        self.claims = updates.claims
        self.log = updates.context.log
        self.runs: dict[JobId, ParallelRun] = {}
        updates.stop_nodes, updates.abandon_nodes, updates.let_nodes_go = self.stop, self.abandon, self.let_go

    # An earlier life

    def recover(self, stored: Mapping[str, Any], claims: Iterable[Claim]) -> None:
        """Find the runs of an earlier life. Jobs and the runs on nodes are in the table. stored: the database's small
        things; claims: all that are known."""
        taken = {claim.id for claim in claims if claim.has_taken_run}
        for key, packed in stored.items():
            if not key.startswith(_KEY):
                continue
            run = ParallelRun.unpack(packed)
            job = self.table.get(run.job)
            if job is None or len(job.nodes) != run.size:
                self.updates.queue.drop_meta(key)
                continue
            self.runs[run.job] = run
            job.shadow = _shadow(run)
            for node in job.nodes:
                node.ad["NumShadowStarts"] = run.attempt
                if node.shadow is not None and node.shadow.claim in taken:
                    self.table.set_status(node, JobStatus.RUNNING, self.updates.now())
            self.table.refresh(job)

    def follow_recovered(self) -> None:
        """Go on with what `recover` found, as claims are known now."""
        for run in list(self.runs.values()):
            job = self.table.get(run.job)
            if job is None:
                continue
            for node in job.nodes:
                if node.shadow is None and node.node not in run.over:
                    lost = JobExit(reason="evicted", message="its run was not found again")
                    decisions.on_node_end(run, node.node, NodeEnd(lost, at=self.updates.now()))
            if run.began:
                self.updates.watch_duration(job)
            self._go_on(job, run)

    # The beginning

    def begin(self, job: Job, claims: list[Claim], now: float) -> None:
        """The run of the whole job begins, before those on its nodes. claims: of each node."""
        run = ParallelRun(job.id, job.count("NumShadowStarts"), now, [claim.slot for claim in claims])
        self.runs[job.id] = run
        job.shadow = _shadow(run)
        self.table.withdraw(job)
        self.table.renew_nodes(job)
        for node in job.nodes:
            # The runs on nodes have the number of the whole job's; their beginning counts it.
            node.ad.update({"NumShadowStarts": run.attempt - 1, "CurrentHosts": run.size})
            node.ad["AllRemoteHosts"] = ",".join(run.hosts)
        self._save(job, run)

    def taken(self, node: Job, claim: Claim) -> None:
        """The execution point has a node. The job runs when all are had."""
        if (found := self._of(node)) is None:
            return
        job, run = found
        run.taken.add(node.node)
        run.hosts[node.node] = claim.slot
        if run.has_begun and job.status == JobStatus.IDLE and not run.ending:
            self.updates.happen(job, JobEvent.TAKEN)
            decisions.on_begin(job, self.updates.now(), run.hosts)
            job.refusals = 0
        self._go_on(job, run)

    def executing(self, node: Job, claim: Claim, at: float, host: str) -> None:
        """The program of a node runs."""
        if (found := self._of(node)) is None:
            return
        job, run = found
        if job.status in ACTIVE or job.status == JobStatus.IDLE:
            self.updates.record(job, lambda: job_log.node_executing(job.id, at, node.node, host))
        run.executing.add(node.node)
        if len(run.executing) == run.size and not run.began:
            run.began = max(at, run.started)
            self._all_executing(job, run)
        self._save(job, run)

    def _all_executing(self, job: Job, run: ParallelRun) -> None:
        if job.shadow is None or job.status not in ACTIVE:
            return
        now = self.updates.now()
        job.shadow.executing = run.began
        job_end.on_executing(job, job.shadow, now)
        self.updates.record(job, lambda: job_log.parallel_executing(job.id, run.began))
        self.updates.publish(
            JobStarted(
                **self.updates.about(job, run.began),
                slot=run.hosts[0],
                attempt=run.attempt,
                waited_s=max(0.0, run.started - job.idle_since()),
                began=run.started,
            )
        )
        self.updates.watch_duration(job)

    def progress(self, node: Job, report: JobReport) -> None:
        """A node tells how it stands: what the whole job says of itself follows."""
        if (found := self._of(node)) is None:
            return
        job, _ = found
        job_end.on_usage(job, report.usage.model_copy(update={"user_cpu_s": 0.0, "sys_cpu_s": 0.0}))
        if node.node == 0:
            job_end.on_updates(job, report.updates)
        self.updates.queue.put(job)

    # Ends

    def over(self, node: Job, claim: Claim, shadow: Shadow, exit_: JobExit, usage: Usage, ended: job_end.Ended) -> None:
        """A node has no run any more. shadow: the one it had."""
        if (found := self._of(node)) is None:
            return
        job, run = found
        self.table.set_status(node, JobStatus.IDLE, self.updates.now())
        end = NodeEnd(exit_, usage, ended.at, ended.ran_s)
        slot_s = ended.had_s * claim.weight() if claim.granted else 0.0
        job.ad["CumulativeSlotTime"] = float(job.number("CumulativeSlotTime")) + slot_s
        if shadow.executing and job.status in ACTIVE:
            self._record_end(job, node, claim, end)
        decisions.on_node_end(run, node.node, end, counts=not job_end.failed(shadow, exit_))
        self._go_on(job, run)

    def _record_end(self, job: Job, node: Job, claim: Claim, end: NodeEnd) -> None:
        slot, usage = claim.slot_classad(), end.usage
        self.updates.record(
            job,
            lambda: job_log.node_terminated(
                job.id,
                end.at,
                node.node,
                exit_code=end.exit.exit_code,
                exit_signal=end.exit.exit_signal,
                run=usage,
                resources=job_log.resources(node.ad, slot, usage, end.ran_s),
            ),
        )

    def not_taken(self, node: Job, reason: str) -> None:
        """The machine of a node did not take its run."""
        if (found := self._of(node)) is None:
            return
        job, run = found
        end = NodeEnd(JobExit(reason="failed", message=reason[:1000]), at=self.updates.now())
        decisions.on_not_taken(run, node.node, end)
        self._go_on(job, run)

    def stop(self, job: Job, why: str, how: str) -> None:
        """End the run of the whole job, as job_changes wants it."""
        run, shadow = self.runs.get(job.id), job.shadow
        if run is None or shadow is None:
            return
        shadow.stop, shadow.how = run.stop, run.how = why, how
        if not run.ending:
            run.ending = Ending.STOPPED
        self._stop_nodes(job, why, how)
        self._go_on(job, run)

    def abandon(self, job: Job) -> None:
        """The job leaves the queue now, whatever its nodes do."""
        for node in job.nodes:
            claim, shadow = self.claims.claim_of(node), node.shadow
            if claim is not None and shadow is not None:
                self.updates.run_lost(claim, node, shadow)
                self.table.set_status(node, JobStatus.IDLE, self.updates.now())
                self.claims.give_back(claim, "its job was removed by force")
        run = self.runs.pop(job.id, None)
        if run is not None:
            self.updates.queue.drop_meta(f"{_KEY}{job.id}")
            decisions.on_run_end(job, run, self.updates.now())
        job.shadow = None
        self.let_go(job)

    def let_go(self, job: Job) -> None:
        """Give back the claims that wait for the other nodes of the job: it asks for none now."""
        for node in job.nodes:
            claim = self.claims.claims.get(node.waits_for) if node.waits_for else None
            node.waits_for = ""
            if claim is None:
                continue
            if claim.granted:
                claim.waits = None
                self.claims.give_back(claim, f"parallel job {job.id} does not wait for its other machines any more")
            else:
                self.claims.wake(claim.id)  # another node of its kind may have it
        if job.number("CurrentHosts"):
            job.ad["CurrentHosts"] = 0
            self.updates.queue.put(job)
        self.table.refresh(job)

    # Inside

    def _of(self, node: Job) -> tuple[Job, ParallelRun] | None:
        job = node.whole
        run = self.runs.get(job.id) if job is not None else None
        return (job, run) if job is not None and run is not None else None

    def _stop_nodes(self, job: Job, why: str, how: str) -> None:
        for node in job.nodes:
            if node.shadow is not None:
                self.claims.stop_run(node, why, how)

    def _go_on(self, job: Job, run: ParallelRun) -> None:
        """What follows from how the nodes stand."""
        before = run.ending
        decisions.settle(run, wait_for_all=decisions.waits_for_all(job.ad))
        if run.is_over:
            self._finish(job, run)
            return
        if run.ending and any(node.shadow is not None and not node.shadow.stop for node in job.nodes):
            self._stop_nodes(job, *decisions.stop_of(run))
        if run.ending is not before:
            self.log.info("parallel_run_ends", job_id=str(job.id), reason=str(run.ending), node=run.by)
        self._save(job, run)

    def _finish(self, job: Job, run: ParallelRun) -> None:
        updates, now, shadow = self.updates, self.updates.now(), job.shadow
        assert shadow is not None, job.id
        del self.runs[job.id]
        updates.queue.drop_meta(f"{_KEY}{job.id}")
        updates.forget_timer(job)
        job.shadow = None
        at = max(end.at for end in run.over.values())
        decisions.on_run_end(job, run, at)
        self.table.renew_nodes(job)
        updates.queue.put(job)
        if job.status == JobStatus.IDLE:  # it never began on all
            reason = decisions.exit_of(run, wait_for_all=False).message
            job.ad.update({"LastRejMatchTime": int(now), "LastRejMatchReason": f"not started: {reason}"[:1000]})
            self.log.info("parallel_job_not_started", job_id=str(job.id), reason=reason)
            job.refusals += 1
            updates.cool(job, updates.cool_down.refused_s(job.refusals))
            updates.put_back(job)
            return
        exit_ = decisions.exit_of(run, wait_for_all=decisions.waits_for_all(job.ad))
        usage = decisions.usage_of(run)
        ended = job_end.Ended(at, max(0.0, at - run.started), max(0.0, at - (run.began or at)))
        job_end.on_usage(job, usage)
        result = job_end.Result(usage, exit_, run.hosts[0], ClassAd(), shadow, now, ended)
        updates.carry_out(job_end.conclude(updates.name, self.table, job, result, updates.cool_down))
        updates.record_run(job)

    def _save(self, job: Job, run: ParallelRun) -> None:
        self.updates.queue.put_meta(f"{_KEY}{job.id}", run.pack())
        self.updates.queue.put(job)


def _shadow(run: ParallelRun) -> Shadow:
    return Shadow(
        job=run.job,
        attempt=run.attempt,
        token="",
        transfer=False,
        started=run.started,
        executing=run.began,
        stop=run.stop,
        how=run.how,
    )
