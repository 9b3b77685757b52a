"""Carries out what follows from changes of jobs: the database, users' logs, events, startds, timers, the history.

What follows is decided in `services.schedd.core` (job_changes, job_end, policies) and comes here as effects. Only this
room carries them out, so that none is forgotten, and commits: what was changed is on disk before anybody is told of it.
"""

from __future__ import annotations

import asyncio
import heapq
import os
import shutil
import socket
from collections.abc import Callable, Coroutine, Iterable, Sequence
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import Any, assert_never

from engine.queue.crontab import WallClock
from engine.queue.job_columns import projected
from engine.queue.job_table import JobTable
from engine.queue.jobs import Cluster, Job, JobId, JobStatus, Shadow, full_ad, full_packed
from engine.queue.late_materialization import Mode, describe
from services.schedd.core import dataflow, job_changes, job_end
from services.schedd.core.claim import Claim
from services.schedd.core.invariants import check_invariants
from services.schedd.core.job_changes import (
    AbandonRun,
    Advertise,
    JobEffect,
    LeaveQueue,
    LetNodesGo,
    LogEvent,
    LookAgain,
    LookAtFiles,
    Notify,
    PublishEvent,
    SaveJob,
    StartCoolDown,
    StopRun,
    TraceStatus,
    WakeClaim,
    WriteLogs,
    apply_event,
)
from services.schedd.core.job_states import Change, JobEvent
from services.schedd.core.notification import mail_of, wants_mail
from services.schedd.core.policies import CoolDown, Hold, next_duration, periodic, stays_in_queue, stop_how
from services.schedd.core.run_statistics import LOST, RunStatistics
from services.schedd.core.start_rules import offer, start_or_not
from services.schedd.io import checkpoints, job_trace
from services.schedd.io.claim_table import ClaimTable
from services.schedd.io.log_entries import LogEntries
from services.schedd.io.mailer import Mailer, MailRoute
from services.schedd.io.queue_db import QueueDamaged, QueueDatabase
from services.schedd.io.user_log import UserLog
from services.schedd.settings import Settings
from shared import job_log
from shared.bus.api import BusUnavailable, Exchange, Outgoing
from shared.classad import UNDEFINED, unparse_old
from shared.counters import LONG_S, WORK_S, CountsBy, Durations
from shared.daemon.clock import wait_for_event
from shared.daemon.context import Context
from shared.daemon.invariants import Invariants, InvariantViolation
from shared.history_file import as_text
from shared.messages.claims import JobExit
from shared.messages.events import Event, JobEnded, JobHeld, JobsSorted, JobsSubmitted, JobStarted

#: While the bus is slow to take them (it keeps its own for a broker that is away), so many events wait here; of more
#: the oldest are dropped, as events repair nothing.
MAX_EVENTS = 10_000
#: Seconds between two times of telling of which autoclusters all jobs are, and jobs in one go.
RESTATE_S = 3600.0
RESTATED = 2000
#: A check looks at all jobs: a queue of so many is checked at every commit, one of twice as many at every second, and
#: one of more than MOST_CHECKED never, as everybody would wait for a tenth of a second and longer.
COMMITS_PER_CHECK = 100
MOST_CHECKED = 20_000
#: Jobs that are looked at before they are offered, in one go: a tenth of a millisecond each.
LOOKED_AT = 100
#: Jobs whose files are looked at, at a time: a file system that hangs holds up no other work in threads.
MOST_LOOKING = 4
#: Such a job is looked at again after so long at least, seconds: clocks on the wall are set.
LOOK_WITHIN_S = 3600.0
#: The access point's own time zone.
HERE = WallClock(datetime.fromtimestamp, datetime.timestamp)
#: The states of jobs that stay in the queue only for their LeaveJobInQueue, or until their run has ended.
OVER = frozenset((JobStatus.COMPLETED, JobStatus.REMOVED))
#: Hold codes that a user, or his own job's policy, brings about: by request, by policy, submitted on hold, input files.
USERS_HOLDS = frozenset({1, 3, 15, 16})


class JobUpdates:
    """All changes of jobs go through here. Methods that change something leave the commit to their caller."""

    def __init__(
        self,
        context: Context,
        settings: Settings,
        queue: QueueDatabase,
        table: JobTable,
        claims: ClaimTable,
        spool: Path,
        invariants: Invariants,
    ) -> None:
        self.context = context
        self.settings = settings  # of the whole schedd: what it is configured to do now
        self.queue = queue
        self.table = table
        self.claims = claims
        self.spool = spool
        self.violation: InvariantViolation | None = None  # found where checks are strict: the daemon ends then
        self._invariants = invariants
        self._recovered = False
        self._unchecked = 0  # commits since the last check
        self.name = context.name
        # What is written is deleted with the next transaction: until then a restart finds it at the end of its log.
        self.log = UserLog(queue.drop_log_events, self._log_failed, self.now, context.name)
        self.log.of_all, self.log.history = settings.event_log, settings.history
        self.log.per_job = settings.per_job_history
        self.entries = LogEntries(settings, spool)
        self.mailer = Mailer(context, _mail_route(settings))
        self.next_log = 1
        self.broken = asyncio.Event()  # the database cannot be written
        self.demand_grew = claims.job_offered  # tell the negotiator at once
        self.counts_changed = asyncio.Event()  # tell it soon
        self.checkpoints_due = asyncio.Event()  # some are to be removed where they lie
        # Of jobs of the scheduler universe, set by who runs them: end a run (why, how); kill it.
        self.stop_here: Callable[[Job, str, str], None]
        self.abandon_here: Callable[[Job], None]
        self.removed: Callable[[Job], None]  # a job that was removed leaves the queue
        # Of parallel jobs, set by who follows their runs: end a run (why, how); forget it; give back what nodes have.
        self.stop_nodes: Callable[[Job, str, str], None]
        self.abandon_nodes: Callable[[Job], None]
        self.let_nodes_go: Callable[[Job], None]
        self.due_here = asyncio.Event()  # a job of the scheduler universe may start
        self.factories_due = asyncio.Event()  # a factory may have room for a job
        self.cool_down = CoolDown()
        self.published = CountsBy()  # events by type
        self.held = CountsBy()  # by "user" or "system"
        self.ended = CountsBy()  # "succeeded" or "failed", of jobs that ran to their end
        self.submitted = 0
        self.runs = RunStatistics()
        self.waits, self.ran = Durations(LONG_S), Durations(LONG_S)
        self.grants = Durations(WORK_S)  # from asking for a slot until it is ours
        self.launches = Durations(WORK_S)  # from having it until the job's program runs
        self.events_lost = 0
        self._log_pending: list[tuple[int, str, bytes]] = []
        self._events: list[Outgoing] = []
        self._publisher: asyncio.Task[None] | None = None
        self._gap = asyncio.Event()  # there was no broker for a while
        context.bus.on_gap(self._on_gap)
        self._cleaners: set[asyncio.Task[None]] = set()
        self._timers: dict[JobId, asyncio.TimerHandle] = {}  # of jobs whose duration is limited
        self._looking = asyncio.Semaphore(MOST_LOOKING)
        self._looks: list[tuple[float, JobId]] = []  # when to look at idle jobs again: a heap, by the loop's time
        self._look: asyncio.TimerHandle | None = None  # for the first of them

    def reconfigure(self, settings: Settings) -> None:
        """Go by other settings from now on."""
        self.settings = settings
        self.entries = LogEntries(settings, self.spool)
        self.log.of_all, self.log.history = settings.event_log, settings.history
        self.log.per_job = settings.per_job_history
        self.mailer.route = _mail_route(settings)
        self.factories_may_go_on()

    async def _on_gap(self) -> None:
        self._gap.set()

    def now(self) -> float:
        return self.context.clock.now()

    # Writing

    def commit(self) -> asyncio.Future[None]:
        """All changes so far, on disk when the future is done; users' logs and events follow by themselves.

        Every operation ends so, and nothing may contradict anything else then."""
        self._decide_starts()
        self._check_invariants()
        pending, self._log_pending = self._log_pending, []
        done = self.queue.commit()

        def after(future: asyncio.Future[None]) -> None:
            if future.cancelled():
                return
            if future.exception() is not None:
                self.broken.set()
            else:
                self.log.write(pending)

        done.add_done_callback(after)
        self.publish_autoclusters()
        if self.table.due_here:
            self.due_here.set()
        if self.table.due:
            self.factories_due.set()
        return done

    def recovered(self) -> None:
        """Jobs, claims and runs of an earlier life are known: from now on none may contradict another."""
        self._recovered = True

    def _check_invariants(self) -> None:
        self._unchecked += 1
        total = self.table.total
        if not self._recovered or total > MOST_CHECKED or self._unchecked * COMMITS_PER_CHECK < total:
            return
        self._unchecked = 0
        try:
            self._invariants.check(self.check_invariants)
        except InvariantViolation as violation:
            self.violation = violation
            self.broken.set()
            raise

    def check_invariants(self) -> list[str]:
        """Every contradiction between jobs, counts, idle queues, claims, runs and the database, in words."""
        claims = self.claims
        return check_invariants(self.table, claims.claims, claims.by_claim_id) + self.queue.check_invariants()

    @property
    def events_waiting(self) -> int:
        """Events that are not published yet."""
        return len(self._events)

    def publish(self, event: Event) -> None:
        """Publish an event, after the next commit was asked for."""
        self._count(event)
        self._events.append(Outgoing(Exchange.EVENTS, event.type, event))
        if len(self._events) > MAX_EVENTS:
            self.events_lost += MAX_EVENTS // 2
            del self._events[: MAX_EVENTS // 2]

    def _count(self, event: Event) -> None:
        self.published.add(event.type)
        if isinstance(event, JobsSubmitted):
            self.submitted += event.count
        elif isinstance(event, JobStarted):
            self.waits.add(event.waited_s)
        elif isinstance(event, JobEnded):
            self.ran.add(event.ran_s)
            self.ended.add("failed" if event.failed else "succeeded")
        elif isinstance(event, JobHeld):
            self.held.add("user" if event.code in USERS_HOLDS else "system", count=event.job_count)
            self.runs.missed_time += event.code == Hold.MISSED_DEFERRED_EXECUTION_TIME

    def about(self, job: Job, now: float) -> dict[str, Any]:
        """What every event about a job says."""
        return job_changes.about(self.name, job, now)

    def record(self, job: Job, event: Callable[[], job_log.Event]) -> None:
        """Write an event into the user's log, if the job has one, and for that of all jobs, if there is one."""
        self.record_all(self.entries.of_job(job, event))

    def record_all(self, entries: Sequence[tuple[str, bytes]]) -> None:
        """Write events into logs: (path, text)."""
        for path, text in entries:
            number = self.next_log
            self.next_log += 1
            self.queue.put_log_event(number, path, text)
            self._log_pending.append((number, path, text))

    # Changing jobs

    def happen(
        self,
        job: Job,
        event: JobEvent,
        *,
        reason: str = "",
        code: int = 0,
        subcode: int = 0,
        how: str = "graceful",
        by_policy: bool = False,
    ) -> Change:
        """Something happens to a job: its new state, and all that follows. Says whether it could happen."""
        claim = self.claims.claim_of(job)
        outcome = apply_event(
            self.name,
            self.table,
            job,
            event,
            self.now(),
            reason=reason,
            code=code,
            subcode=subcode,
            how=how,
            slot=claim.slot_classad() if claim is not None else None,
            by_policy=by_policy,
        )
        self.carry_out(outcome.effects)
        return outcome.change

    def carry_out(self, effects: Iterable[JobEffect]) -> None:
        """Do what a decision wants done, in its order."""
        for effect in effects:
            match effect:
                case SaveJob(job):
                    self.queue.put(job)
                case LogEvent(job, told):
                    self.record(job, told)
                case WriteLogs(entries):
                    self.record_all(entries)
                case PublishEvent(event):
                    self.publish(event)
                case TraceStatus(job, old, at):
                    job_trace.on_status(self.name, job, old, at)
                case StopRun(job, why, how) if job.cluster.here:
                    self.stop_here(job, why, how)
                case StopRun(job, why, how) if job.nodes:
                    self.stop_nodes(job, why, how)
                case StopRun(job, why, how):
                    self.claims.stop_run(job, why, how)
                case AbandonRun(job):
                    self._abandon_run(job)
                case LeaveQueue(job, forced):
                    self.leave(job, forced=forced)
                case WakeClaim(claim):
                    self.claims.wake(claim)
                case LetNodesGo(job):
                    self.let_nodes_go(job)
                case StartCoolDown(job, wait_s):
                    asyncio.get_running_loop().call_later(wait_s, self._cooled, job)
                case LookAgain(job, at):
                    self._look_again(job, at)
                case LookAtFiles(job):
                    self.claims.spawn(self._look_at_files(job), "dataflow")
                case Notify(job, hold_code):
                    self._mail(job, hold_code)
                case Advertise(at_once):
                    if at_once:
                        self.claims.offer_jobs()
                    self.counts_changed.set()
                case _:
                    assert_never(effect)

    def _mail(self, job: Job, hold_code: int | None) -> None:
        """Send mail about the job, if its owner wants to hear of this."""
        if not wants_mail(job.ad, hold_code):
            return
        now, settings = self.now(), self.settings
        try:
            mail = mail_of(
                full_ad(self.name, job, now),
                hold_code,
                now,
                host=socket.gethostname(),
                domain=settings.mail_domain,
                hidden=settings.rights.private,
            )
        except ValueError as error:
            self.context.log.warning("mail_not_sent", job_id=str(job.id), reason=str(error))
        else:
            self.mailer.put(mail)

    # Runs

    def end_run(
        self,
        claim: Claim,
        job: Job,
        run: Shadow,
        exit_: JobExit | None = None,
        ended: job_end.Ended | None = None,
    ) -> None:
        """A run is no more, however it ended. exit_, ended: what its last report says; None: there was none."""
        ended = ended or job_end.heard_of_end(run, self.now())
        job_trace.on_over(self.name, job, claim, run, exit_, ended.at)
        self.forget_timer(job)
        job_end.end_run(self.table, job, claim, run, ended)
        self.queue.put(job)

    def forget_timer(self, job: Job) -> None:
        """Its run is over: no limit on its duration counts any more."""
        timer = self._timers.pop(job.id, None)
        if timer is not None:
            timer.cancel()

    def run_lost(self, claim: Claim, job: Job, run: Shadow) -> None:
        """A run is over of which nobody tells how it ended."""
        self.end_run(claim, job, run)
        self.count_run(LOST, claim, job, run, job_end.heard_of_end(run, self.now()))

    def count_run(
        self,
        how: str,
        claim: Claim,
        job: Job,
        run: Shadow,
        ended: job_end.Ended,
        *,
        core: bool = False,
        closing: bool = False,
    ) -> None:
        """Count a run that is over, by how it ended (core.run_statistics). Whose slot was not to be had was none."""
        if claim.has_taken_run:
            self.runs.over(how, run, ended, job.number("ImageSize"), core_dumped=core, closing=closing)
            if job.whole is None:
                self.record_run(job)
        else:
            self.runs.not_started += 1

    def record_run(self, job: Job) -> None:
        """Record a run that is over, with the job's ad as it is now. Of one that left, the history has it."""
        now, is_there = self.now(), self.table.get(job.id) is job
        ad = full_packed(self.name, job, now, self.settings.not_in_history) if is_there else None
        self.queue.end_run(job.id, int(job.number("NumShadowStarts")), ad, now)

    def _abandon_run(self, job: Job) -> None:
        if job.cluster.here:
            self.abandon_here(job)
            return
        if job.nodes:
            self.abandon_nodes(job)
            return
        claim = self.claims.claim_of(job)
        run = job.shadow
        if claim is not None and run is not None:
            self.run_lost(claim, job, run)
            self.claims.give_back(claim, "its job was removed by force")

    def requeue(self, job: Job, reason: str, *, failed: bool, code: int = 0, ran: bool = False) -> None:
        """The job's run ended without success: it waits for another (job_changes.requeue)."""
        self.carry_out(
            job_changes.requeue(
                self.name, self.table, job, reason, self.now(), self.cool_down, failed=failed, code=code, ran=ran
            )
        )

    def put_back(self, job: Job) -> None:
        """Make the job idle again; or do what its hold or removal asks for, if one came meanwhile."""
        self.carry_out(job_changes.put_back(self.name, self.table, job, self.now()))

    def cool(self, job: Job, wait_s: float) -> None:
        """Keep a job from being offered for a while."""
        self.carry_out([job_changes.begin_cool_down(self.table, job, wait_s)])

    def _cooled(self, job: Job) -> None:
        job.cooling = False
        if self.table.get(job.id) is job:
            self.table.refresh(job)
            self.claims.offer_jobs()
            if job.cluster.here:
                self.due_here.set()

    def _decide_starts(self) -> None:
        """Look at the idle jobs that more than a slot is needed for, or less (core.start_rules). Of very many the rest
        comes with further commits, so that others get their turn."""
        undecided = self.table.undecided
        for job_id in list(islice(undecided, LOOKED_AT)):
            del undecided[job_id]
            job = self.table.get(job_id)
            if job is not None and job.status == JobStatus.IDLE and job.shadow is None and not job.due:
                self.carry_out(start_or_not(self.name, self.table, job, self.now(), HERE))
        if undecided:
            asyncio.get_running_loop().call_soon(self._decide_more)

    def _look_again(self, job: Job, at: float) -> None:
        loop = asyncio.get_running_loop()
        # A little later rather than too early: the two clocks need not agree to the millisecond.
        heapq.heappush(self._looks, (loop.time() + min(max(0.01, at - self.now() + 0.01), LOOK_WITHIN_S), job.id))
        self._set_look()

    def _set_look(self) -> None:
        if self._look is not None:
            self._look.cancel()
            self._look = None
        if self._looks:
            self._look = asyncio.get_running_loop().call_at(self._looks[0][0], self._look_now)

    def _look_now(self) -> None:
        now = asyncio.get_running_loop().time()
        while self._looks and self._looks[0][0] <= now:
            job = self.table.get(heapq.heappop(self._looks)[1])
            if job is not None:
                self.table.look_again(job)
        self._look = None
        self._set_look()
        self._decide_more()

    async def _look_at_files(self, job: Job) -> None:
        """Whether the job's output is there already; its file system may be slow to say."""
        files = dataflow.DataflowFiles.of(full_ad(self.name, job, self.now()))
        async with self._looking:
            done = await asyncio.to_thread(files.are_done, _changed_at)
        if self.table.get(job.id) is not job or job.status != JobStatus.IDLE or job.shadow is not None or job.due:
            return  # something else became of it meanwhile
        now = self.now()
        if done:
            self.carry_out(dataflow.skip(self.name, self.table, job, now))
        else:
            job.ad["DataflowJobSkipped"] = False
            self.queue.put(job)
            self.carry_out(offer(self.table, job))
        await self.commit()

    def _decide_more(self) -> None:
        if self.table.undecided and not self.broken.is_set():
            self.commit()

    # Policies

    def apply_policies(self, job: Job) -> None:
        """Evaluate the periodic policies of a job and do what they say."""
        if self.table.get(job.id) is not job:
            return
        now = self.now()
        ad = full_ad(self.name, job, now)
        if job.status in OVER and job.shadow is None and not stays_in_queue(ad, now):
            self.leave(job)
            return
        decision = periodic(ad, job.status, now, self.settings.system)
        if decision is None:
            return
        event = job_changes.EVENT_OF_POLICY[decision.action]
        if event == JobEvent.VACATE and job.shadow is not None and job.shadow.stop:
            return
        how = self.stop_how(job) if event in (JobEvent.REMOVE, JobEvent.HOLD) else "graceful"
        if event == JobEvent.REMOVE and job.shadow is not None:
            job.shadow.removed_by_policy = True
        self.happen(
            job, event, reason=decision.reason, code=decision.code, subcode=decision.subcode, how=how, by_policy=True
        )

    def has_policy_due(self, job: Job) -> bool:
        """Whether the periodic policies want anything done with a job that waits. It is only looked at."""
        now = self.now()
        return periodic(full_ad(self.name, job, now), job.status, now, self.settings.system) is not None

    def stop_how(self, job: Job) -> str:
        """How the run of a job that is removed or held is ended: GRACEFULLY_REMOVE_JOBS, unless it says itself."""
        return stop_how(job.ad, self.now(), graceful=self.settings.graceful)

    def watch_duration(self, job: Job) -> None:
        """Look at the job when a limit on its duration is reached, not at the next periodic look."""
        wait = next_duration(job.ad, self.now())
        if wait is not None:
            old = self._timers.pop(job.id, None)
            if old is not None:
                old.cancel()
            self._timers[job.id] = asyncio.get_running_loop().call_later(wait + 0.01, self._duration_reached, job)

    def _duration_reached(self, job: Job) -> None:
        self.apply_policies(job)
        self.commit()

    def cancel_timers(self) -> None:
        self._looks.clear()
        self._set_look()
        for timer in self._timers.values():
            timer.cancel()

    # Leaving the queue

    def leave(self, job: Job, *, forced: bool = False) -> None:
        """Move a job into the history, unless LeaveJobInQueue keeps it."""
        now = self.now()
        if not forced and stays_in_queue(full_ad(self.name, job, now), now):
            return
        if job.status == JobStatus.REMOVED:
            self.removed(job)
        self.queue.leave(job, full_packed(self.name, job, now, self.settings.not_in_history), now)
        path, folder = self.log.history.path, self.log.per_job
        if path or folder:
            # People copy these files about, and read them with other rights than the queue's.
            shown = full_ad(self.name, job, now, self.settings.rights.private | self.settings.not_in_history)
            texts = [(path, as_text(shown))] if path else []
            if folder:
                texts.append((f"{folder}/history.{job.id}", unparse_old(shown.public())))
            self.record_all([(where, text.encode(errors="surrogateescape")) for where, text in texts])
        cluster = job.cluster
        if job.ad.eval(checkpoints.NUMBER) is not UNDEFINED:
            self._drop_checkpoints(job.id)
        last = self.table.forget(job)
        if last:
            self.drop(cluster)
        elif cluster.spool:
            self._clean(self.spool / str(cluster.id) / f"proc{job.proc}")
        self.counts_changed.set()

    def drop_empty(self, cluster: Cluster) -> None:
        """Delete a cluster that has no jobs and whose factory gives no more."""
        if cluster.over and self.table.clusters.pop(cluster.id, None) is not None:
            self.drop(cluster)

    # Factories (late materialization)

    def factories_may_go_on(self) -> None:
        """There may be room for further jobs of all factories: a limit has grown, or the disk has room again."""
        self.table.all_due()
        if self.table.due:
            self.factories_due.set()

    def save_factory(self, cluster: Cluster) -> None:
        """Write down where a factory stands, with the next commit."""
        assert cluster.factory is not None
        describe(cluster.ad, cluster.factory, cluster.next_proc)
        cluster.raw = None  # the ad as it was packed last; no job's autocluster hangs on these attributes
        self.queue.put_factory(cluster)

    def pause_factory(self, cluster: Cluster, mode: Mode, reason: str) -> None:
        """Stop a factory: for as long as the mode is HELD or ERROR, or for good. The caller commits."""
        assert cluster.factory is not None
        cluster.factory.mode, cluster.factory.reason = mode, reason[:2000]
        self.save_factory(cluster)
        if mode is Mode.REMOVED:
            self.queue.drop_items(cluster.id)
            self.drop_empty(cluster)

    def resume_factory(self, cluster: Cluster) -> None:
        """Let a factory go on. The caller commits."""
        assert cluster.factory is not None
        cluster.factory.mode, cluster.factory.reason = Mode.RUNNING, ""
        self.save_factory(cluster)
        self.table.note_due(cluster)

    def drop(self, cluster: Cluster) -> None:
        """Delete a cluster whose last job has left, which is out of the table."""
        factory = cluster.factory
        if factory is not None:
            told = job_log.cluster_removed(cluster.id, self.now(), cluster.next_proc, factory.total, factory.reason)
            self.record_all(self.entries.of_cluster(cluster, told))
        self.queue.drop_cluster(cluster.id)
        if cluster.spool:
            self._clean(self.spool / str(cluster.id))

    def _drop_checkpoints(self, job: JobId) -> None:
        async def drop() -> None:
            await self.queue.commit()  # the job must be gone before its files are
            try:
                if await asyncio.to_thread(checkpoints.drop, self.spool, job):
                    self.checkpoints_due.set()
            except OSError as error:  # the next schedd finds them again
                self.context.log.warning("checkpoints_not_dropped", job_id=str(job), reason=str(error))

        self._beside(drop())

    def _clean(self, folder: Path) -> None:
        async def clean() -> None:
            await self.queue.commit()  # the job must be gone before its files are
            await asyncio.to_thread(shutil.rmtree, folder, True)

        self._beside(clean())

    def _beside(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work, name="schedd:clean")
        self._cleaners.add(task)
        task.add_done_callback(self._cleaners.discard)

    async def close(self) -> None:
        """Finish what is under way."""
        await asyncio.gather(*self._cleaners, return_exceptions=True)
        if not self.broken.is_set():
            try:
                await self.commit()
            except QueueDamaged as error:
                self.context.log.error("queue_not_written", reason=str(error))
        await self.log.close()
        while self._publisher is not None:
            await self._publisher

    # Inside

    def publish_autoclusters(self) -> None:
        """Publish which jobs have come to which autocluster."""
        now = self.now()
        private = self.settings.rights.private

        def public(job: Job, names: list[str]) -> bytes:
            return projected(self.name, job, now, [name for name in names if name not in private])

        for kinds in self.table.sorting.take(public):
            self.publish(JobsSorted(at=now, schedd=self.name, kinds=kinds))
        self._publish_soon()

    async def repeat_autoclusters(self) -> None:
        """Publish it of all jobs again, until cancelled: once in a while, for a history that was begun later than the
        jobs; and with what autoclusters look like after a time without a broker, as then something may be lost."""
        while True:
            await wait_for_event(self._gap, self.context.clock, RESTATE_S)
            if self._gap.is_set():
                self._gap.clear()
                self.table.sorting.forget_ads()
            some: list[Job] = []
            for job in self.table.made():
                some.append(job)
                if len(some) >= RESTATED:
                    self._repeat(some)
                    some = []
                    await asyncio.sleep(0)  # a large queue holds up nobody
            self._repeat(some)
            for cluster in list(self.table.clusters.values()):
                for packed in cluster.jobs.groups:
                    self.table.note_packed(cluster, packed)
                    self.publish_autoclusters()
                    await asyncio.sleep(0)

    def _repeat(self, jobs: list[Job]) -> None:
        self.table.sorting.repeat(jobs)
        self.publish_autoclusters()

    def _publish_soon(self) -> None:
        if self._events and self._publisher is None:
            self._publisher = asyncio.get_running_loop().create_task(self._publish(), name="schedd:events")

    async def _publish(self) -> None:
        try:
            while self._events:
                batch, self._events = self._events, []
                try:
                    await self.context.bus.publish_many(batch)
                except BusUnavailable as error:
                    self.events_lost += len(batch)
                    self.context.log.warning("events_not_sent", count=len(batch), reason=str(error))
        finally:
            self._publisher = None

    def _log_failed(self, path: str, reason: str) -> None:
        self.context.log.warning("job_log_not_written", path=path, reason=reason)


def _mail_route(settings: Settings) -> MailRoute:
    return MailRoute(settings.smtp_server, settings.mail, settings.mail_from, settings.mail_domain)


def _changed_at(path: str) -> float | None:
    """When a file was changed last, seconds since 1970; None: it can not be seen."""
    try:
        return os.stat(path).st_mtime
    except (OSError, ValueError):  # ValueError: a zero byte in it
        return None
