"""The schedd: recovers the queue, serves its inbox, advertises, and runs its timers.

`core` decides, `io` carries out: `submission`, `actions` and `queries` answer messages, `queue_ads` tells of them,
`claims` turns matches into claims and keeps them alive, `runs` follows jobs on their slots, and `job_updates` carries
out every change of a job.
"""

from __future__ import annotations

import asyncio
import json
import os
import sqlite3
import ssl
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar, Final

from engine.queue import late_materialization
from engine.queue.autoclusters import Autoclusters
from engine.queue.job_table import JobTable
from engine.queue.jobs import BadSubmit, Cluster, JobId, JobStatus, make_job, priority_of
from engine.queue.packed_jobs import merged
from services.schedd.core.acceptance import owner_of
from services.schedd.core.claim import Claim
from services.schedd.core.rights import may_act
from services.schedd.io import history
from services.schedd.io.actions import Actions
from services.schedd.io.checkpoint_cleanup import CheckpointCleanup
from services.schedd.io.claim_table import ClaimTable
from services.schedd.io.claims import Claims, Keepalive
from services.schedd.io.credentials import CredentialStore
from services.schedd.io.cron import ScheddCron
from services.schedd.io.file_server import FileServer
from services.schedd.io.flocking import Pools
from services.schedd.io.imports import Imports
from services.schedd.io.job_updates import JobUpdates
from services.schedd.io.late_materialization import LateMaterialization
from services.schedd.io.parallel_runs import ParallelRuns
from services.schedd.io.pools_bus import as_bus, with_pools
from services.schedd.io.queries import Queries, parse_ids
from services.schedd.io.queue_ads import QueueAds
from services.schedd.io.queue_db import SCHEMA, QueueDamaged, QueueDatabase, rows
from services.schedd.io.resource_requests import ResourceRequests
from services.schedd.io.runs import Runs
from services.schedd.io.scheduler_universe import SchedulerUniverse
from services.schedd.io.ssh_to_job import SshToJob
from services.schedd.io.stored_jobs import read_jobs
from services.schedd.io.submission import Submission
from services.schedd.metrics import Metrics, ScheddStatistics
from services.schedd.settings import Settings
from shared.bus.api import RemoteFailure
from shared.classad import ClassAd
from shared.classad.budget import TooExpensive
from shared.config import Config
from shared.config.knobs import ScheddSettings
from shared.cooperative import Yielder
from shared.daemon import closed_files
from shared.daemon.base import Daemon
from shared.daemon.context import Context
from shared.daemon.epochs import check_possible
from shared.daemon.invariants import Invariants
from shared.daemon.orders import handle_order
from shared.host import host_id
from shared.messages.ads import SendAds
from shared.messages.base import Ack, Envelope, Message
from shared.messages.claims import ClaimLost, ClaimReady, JobReport, JobReports
from shared.messages.negotiation import GetRequests, Matches, MatchesTaken
from shared.messages.queue import (
    ActOnJobs,
    DescribeSchedd,
    FetchFiles,
    FileAccess,
    ImportJobs,
    QueryJobs,
    ScheddDescription,
    SubmitJobs,
    Submitted,
)
from shared.messages.visits import VisitJob
from shared.server_tls import ServerCertificate
from shared.users import whole
from shared.version import VERSION

#: Autocluster numbers are set aside in blocks, so that a restarted schedd never gives one out twice.
BLOCK: Final = 100_000
TIDY_EVERY_S: Final = 600.0
#: Clusters whose jobs are read from the database in one go.
LOADED: Final = 100

Answer = Callable[[Any], Awaitable[Message]]


class Schedd(Daemon):
    """An access point."""

    subsystem: ClassVar[str] = "SCHEDD"
    uses_store: ClassVar[bool] = False
    keeps: ClassVar[Mapping[str, int]] = MappingProxyType({"job queue": SCHEMA})
    at_start: ClassVar[tuple[str, ...]] = (
        *("SIGNIFICANT_ATTRIBUTES", "ROOST_SCHEDD_TRANSFER_*", "SCHEDD_CRON_*", "SEC_CREDENTIAL_DIRECTORY_OAUTH"),
        *("FLOCK_TO", "ROOST_SCHEDD_FLOCK_DIRECTORY"),
    )

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self.settings = Settings.from_config(context.config)
        rules, buses = self.settings.flocking, with_pools(context.bus)
        if rules.pools:
            context.bus = as_bus(buses)
        folder = Path(context.spool) / "schedd" / context.name
        self.queue = QueueDatabase(folder / "job_queue.db", self._on_full)
        self.table = JobTable(Autoclusters(significant=self.settings.significant))
        self.claim_table = ClaimTable(context, self.queue, self.table)
        self.updates = JobUpdates(
            context,
            self.settings,
            self.queue,
            self.table,
            self.claim_table,
            folder / "sandboxes",
            Invariants("schedd", context),
        )
        demand_grew = self.updates.demand_grew
        self.pools = Pools(context, buses, rules, self._on_request, demand_grew) if rules.pools else None
        self.parallel = ParallelRuns(self.updates)
        self.runs = Runs(self.updates, self.parallel)
        self.claims = Claims(self.updates, self.runs)
        self.keepalive = Keepalive(self.updates, self.runs)
        credentials = Path(self.settings.credentials) if self.settings.credentials else folder / "credentials"
        self.file_server = FileServer(self.updates, CredentialStore(credentials, self.settings.uid_domain))
        self.certificate = ServerCertificate(
            ScheddSettings.from_config(context.config),
            "schedd",
            [self.settings.transfer_host],
            context.clock.now,
            context.log,
        )
        self.late_materialization = LateMaterialization(self.updates)
        self.submission = Submission(self.updates, self.late_materialization)
        self.actions = Actions(self.updates)
        self.scheduler_universe = SchedulerUniverse(self.updates, folder / "scheduler_universe", self.actions.act)
        self.queries = Queries(self.updates)
        self.requests = ResourceRequests(self.updates)
        self.checkpoint_cleanup = CheckpointCleanup(self.updates)
        self.cron = ScheddCron(context, self.updates.counts_changed.set)
        self.epochs: dict[str, int] = {}  # by shard: the highest seen
        self._answers: dict[type[Message], Answer] = {
            SubmitJobs: self._submit,
            ImportJobs: Imports(self.updates, self.submission).take,
            QueryJobs: self.queries.query,
            ActOnJobs: self.actions.act,
            FetchFiles: self._fetch_files,
            VisitJob: SshToJob(self.updates).visit,
            DescribeSchedd: self._describe,
            GetRequests: self._get_requests,
            Matches: self._matches,
            JobReport: self.runs.report,
            JobReports: self.runs.reports,
            ClaimLost: self._claim_lost,
            ClaimReady: self._claim_ready,
            SendAds: self._send_ads,
        }
        context.metrics.register(Metrics(self.updates, self.file_server.counts))
        self.statistics = ScheddStatistics(
            context, self.updates, self.file_server, self.settings.statistics_window_s, self.claims.delayed_starts
        )
        self.ads = QueueAds(self.updates, self.pools, self.file_server, self.statistics.attributes, self.cron)
        self._stored_claims: list[Claim] = []
        self._meta: dict[str, Any] = {}
        self._recovered = asyncio.Event()  # claims of an earlier life are known: till then no question is answered
        self._ready = False

    # Life

    async def setup(self) -> None:
        await self.queue.open()
        events = await self._load()
        await self.file_server.recover()
        tls = await self.certificate.load()
        port = await self._listen(tls)
        scheme = "http" if tls is None else "https"
        self.file_server.url = self.runs.transfer_url = f"{scheme}://{_bracketed(self.settings.transfer_host)}:{port}"
        closed_files.tell(await self.updates.log.close_files(), self.context.log)
        await self.updates.log.recover(events)
        await self.context.bus.serve(self.ads.inbox, self._on_request, prefetch=500)
        for claim in self._stored_claims:
            self.claims.recover(claim)
        self._stored_claims = []
        self.parallel.follow_recovered()
        self.updates.recovered()
        self._recovered.set()
        self.scheduler_universe.follow_recovered()
        await self.updates.commit()
        self._ready = True
        self.claim_table.offer_jobs()
        self.context.log.info("queue_loaded", jobs=self.table.total, running=len(self.claim_table.claims))

    def tasks(self) -> dict[str, Coroutine[Any, Any, None]]:
        return {
            **({"flocking": self.pools.run()} if self.pools is not None else {}),
            "queue": self._watch_queue(),
            "advertise": self.ads.run(),
            "leases": self._keep_alive(),
            "scheduler-universe": self.scheduler_universe.run(),
            "idle-claims": self.claims.idle.run(),
            "parallel-claims": self.claims.parallel.run(),
            "policies": self._look(),
            "factories": self.late_materialization.run(),
            "tidy": self._tidy(),
            "cron": self.cron.run(),
            "checkpoint-cleanup": self.checkpoint_cleanup.run(),
            "mail": self.updates.mailer.run(),
            "sorted": self.updates.repeat_autoclusters(),
            "certificate": self.certificate.run(),
        }

    def check(self, config: Config) -> None:
        Settings.from_config(config)

    async def reconfigure(self) -> None:
        """Where files are served, and what makes autoclusters, stays until the next start. Raises ConfigError."""
        now, new = self.settings, Settings.from_config(self.context.config)
        self.settings = replace(
            new, significant=now.significant, transfer_host=now.transfer_host, transfer_port=now.transfer_port
        )
        self.updates.reconfigure(self.settings)
        if self.pools is not None:
            self.pools.reconfigure(self.settings.flocking)
        self.cron.reread()

    async def drain(self) -> None:
        # Jobs run on, but nobody should negotiate with us or look for us meanwhile.
        await self.ads.drain()

    def _on_full(self, reason: str) -> None:
        log = self.context.log
        if reason:
            log.error("spool_full", reason=reason, mend="make room: what happens to jobs is written down then")
        else:
            log.info("spool_has_room")
            self.updates.factories_may_go_on()

    async def close(self) -> None:
        await self.cron.close()
        self.queue.last_try()
        self.updates.cancel_timers()
        await self.scheduler_universe.close()
        await self.claim_table.close()
        await self.file_server.close()
        await self.updates.close()
        if not self.updates.broken.is_set():
            await self.queue.close()

    def ready(self) -> str:
        return "" if self._ready else "the job queue to be read"

    def troubles(self) -> list[str]:
        return [] if self.pools is None else self.pools.troubles()

    # Recovery

    async def _load(self) -> list[tuple[int, str, bytes]]:
        """Read the database; returns the events that may not be in users' logs yet."""
        now = self.updates.now()

        def read(database: sqlite3.Connection) -> dict[str, list[tuple[Any, ...]]]:
            self.submission.load(database, now)
            return {
                "meta": list(rows(database, "SELECT key, value FROM meta")),
                "clusters": list(
                    rows(
                        database,
                        "SELECT id, user, submitter, qdate, spool, submit_id, next_proc, ad FROM clusters ORDER BY id",
                    )
                ),
                "claims": list(rows(database, "SELECT id, body FROM claims")),
                "events": list(rows(database, "SELECT seq, path, text FROM log_events ORDER BY seq")),
                "last_event": list(rows(database, "SELECT seq FROM sqlite_sequence WHERE name = 'log_events'")),
            }

        found = await self.queue.read(read)
        self._meta = dict(found["meta"])
        self.epochs = json.loads(self._meta.get("epochs", "{}"))
        self._reserve(int(self._meta.get("autoclusters", 1)))
        clusters = [_stored_cluster(self.settings.uid_domain, *row) for row in found["clusters"]]
        for stored in clusters:
            if stored.factory is not None:
                self.table.clusters[stored.id] = stored
                self.table.note_due(stored)
        await self._load_jobs(clusters)
        self._stored_claims = [Claim.unpack(key, body) for key, body in found["claims"]]
        for claim in self._stored_claims:
            run = claim.shadow
            running = self.table.get(run.job) if run is not None else None
            waits = self.table.get(claim.waits) if claim.waits is not None else None
            if waits is not None:
                waits.waits_for = claim.id
                self.table.refresh(waits)
            if run is not None and running is not None:
                run.claim = claim.id
                running.shadow = run
                self.table.refresh(running)
        self.scheduler_universe.recover(str(self._meta.get("remove_with", "")))
        self.parallel.recover(self._meta, self._stored_claims)
        await self._mend(now)
        last = found["last_event"][0][0] if found["last_event"] else 0
        self.updates.next_log = int(last) + 1
        return [(seq, os.fsdecode(path), text) for seq, path, text in found["events"]]

    async def _load_jobs(self, clusters: list[Cluster]) -> None:
        """Put the stored jobs of these clusters into the table."""
        yielder = Yielder()
        for start in range(0, len(clusters), LOADED):
            some = clusters[start : start + LOADED]
            for stored in await self.queue.read(
                lambda database, some=some: [read_jobs(database, cluster) for cluster in some]  # type: ignore[misc]
            ):
                owner = stored.cluster
                for group in stored.groups:
                    if self.table.add_packed(owner, group.ads, group.names, 0.0, group.status, group.state):
                        continue
                    for proc, ad in group.ads.items():
                        own = merged(ad, group.state)
                        job = make_job(owner, proc, own, group.status, priority_of(owner.ad), owner.submitter)
                        self.table.add(owner, [job])
                        await yielder.yield_if_due()
                for proc, ad, status, priority, submitter in stored.others:
                    self.table.add(owner, [make_job(owner, proc, ad, JobStatus(status), priority, submitter)])
                    await yielder.yield_if_due()

    async def _mend(self, now: float) -> None:
        """Mend jobs that would wait for ever: those that run or are removed, but have no run, and those that cool
        down."""
        yielder = Yielder()
        for job in list(self.table.made()):  # a packed one waits, and for nothing but a slot
            await yielder.yield_if_due()
            if job.shadow is None and job.status in (
                JobStatus.RUNNING,
                JobStatus.TRANSFERRING_OUTPUT,
                JobStatus.SUSPENDED,
            ):
                self.table.set_status(job, JobStatus.IDLE, now)
                self.updates.queue.put(job)
            elif job.shadow is None and job.status in (JobStatus.REMOVED, JobStatus.COMPLETED):
                self.updates.leave(job)
            if job.status == JobStatus.IDLE and "jobcooldownexpiration" in job.ad.table():
                until = job.number("JobCoolDownExpiration")
                if until > now:
                    self.updates.cool(job, until - now)

    def _reserve(self, first: int) -> None:
        """Take a block of autocluster numbers."""
        self.table.autoclusters.next_id = first
        self._set_meta("autoclusters", first + BLOCK)

    def _set_meta(self, key: str, value: Any) -> None:
        self._meta[key] = value
        self.queue.put_meta(key, value)

    async def _listen(self, tls: ssl.SSLContext | None) -> int:
        """Start the transfer endpoint, on the port it had before: runs under way have its address."""
        wanted = self.settings.transfer_port or int(self._meta.get("transfer_port", 0))
        port = await self.file_server.start(self.settings.transfer_host, wanted, tls)
        if port != self._meta.get("transfer_port"):
            self._set_meta("transfer_port", port)
        return port

    # Requests

    async def _on_request(self, envelope: Envelope) -> Message:
        # Claims ask startds as soon as they are recovered, so the inbox must be there before; but who reports a run's
        # end at that moment would hear that it is not known, and the job would run again.
        await self._recovered.wait()
        answer = self._answers.get(type(envelope.body))
        if answer is None:
            return await handle_order(self, envelope)
        if self.queue.full and _changes_the_queue(envelope.body):
            # At once, for who waits would keep a place that questions need; whoever asked asks again.
            raise RemoteFailure("unavailable", f"the spool of this schedd is full: {self.queue.full}", retryable=True)
        try:
            return await answer(envelope.body)
        except TooExpensive as error:
            raise RemoteFailure(error.code, str(error)) from error
        except QueueDamaged as error:
            raise RemoteFailure("unavailable", str(error), retryable=True) from error

    async def _submit(self, asked: SubmitJobs) -> Message:
        answer = await self.submission.submit(asked)
        if asked.spool and not asked.more:
            url, token = self.file_server.grant(JobId(answer.cluster, -1))
            return Submitted(
                cluster=answer.cluster,
                first_proc=answer.first_proc,
                count=answer.count,
                upload_url=url,
                upload_token=token,
            )
        return answer

    async def _fetch_files(self, asked: FetchFiles) -> Message:
        if asked.credentials:
            try:
                owner_of(asked.user)
            except BadSubmit as error:
                raise RemoteFailure("bad-request", str(error)) from error
            url, token = self.file_server.grant_credentials(asked.user)
            return FileAccess(url=url, token=token)
        job_id = parse_ids([asked.job_id])[0]
        cluster = self.table.clusters.get(job_id.cluster)
        if cluster is None or (job_id.proc >= 0 and job_id.proc not in cluster.jobs):
            raise RemoteFailure("not-found", f"job {asked.job_id} is not in the queue")
        if not may_act(asked.user, asked.admin, cluster.user, self.settings.rights):
            raise RemoteFailure("denied", f"job {asked.job_id} belongs to {cluster.user}")
        if not (cluster.spool or asked.log):
            raise RemoteFailure(
                "bad-request", f"job {asked.job_id} was not spooled: its files are in its own directory"
            )
        url, token = self.file_server.grant(job_id)
        return FileAccess(url=url, token=token)

    async def _describe(self, asked: DescribeSchedd) -> Message:
        where, problem = await asyncio.to_thread(lambda: (host_id(), self.updates.mailer.route.problem()))
        return ScheddDescription(
            name=self.context.name, host_id=where, uid=os.getuid(), release=VERSION, mail_problem=problem
        )

    async def _get_requests(self, asked: GetRequests) -> Message:
        await self._check_epoch(asked.shard, asked.epoch)
        answer = await self.requests.get(asked)
        clusters = self.table.autoclusters
        if clusters.next_id >= int(self._meta["autoclusters"]):
            # Before anybody hears of these numbers, they must be set aside.
            self._set_meta("autoclusters", clusters.next_id + BLOCK)
            await self.updates.commit()
        return answer

    async def _matches(self, asked: Matches) -> Message:
        await self._check_epoch(asked.shard, asked.epoch)
        for rejection in asked.rejections:
            self._rejected(rejection.submitter, rejection.autocluster, rejection.reason)
        if self.pools is not None:
            self.pools.rejected(asked)
        begun = await self.claims.match(asked)
        self.context.log.info(
            "matches", cycle=asked.cycle, epoch=asked.epoch, matches=len(asked.matches), begun=sum(begun)
        )
        return MatchesTaken(begun=begun)

    async def _check_epoch(self, shard: str, epoch: int) -> None:
        """Obey no negotiator that was replaced: the highest epoch seen of its shard counts, over restarts too."""
        check_possible(shard, epoch, self.epochs)
        highest = self.epochs.get(shard, 0)
        if epoch < highest:
            raise RemoteFailure("stale-epoch", f"epoch {epoch} is over: a negotiator with epoch {highest} is active")
        if epoch > highest:
            self.epochs[shard] = epoch
            self._set_meta("epochs", json.dumps(self.epochs))
            await self.updates.commit()

    def _rejected(self, submitter: str, autocluster: int, reason: str) -> None:
        """The first job of the request remembers why it did not get a slot."""
        idle = self.table.idle.get(submitter)
        key = idle.first(autocluster) if idle is not None else None
        if key is not None:
            job = self.table.at(key)
            job.ad["LastRejMatchTime"] = int(self.updates.now())
            job.ad["LastRejMatchReason"] = reason[:1000]

    async def _claim_lost(self, message: ClaimLost) -> Message:
        await self.runs.claim_lost(message)
        return Ack()

    async def _claim_ready(self, message: ClaimReady) -> Message:
        await self.claims.ready(message)
        return Ack()

    async def _send_ads(self, asked: SendAds) -> Message:
        self.ads.resend(asked)
        return Ack()

    # Tasks

    async def _watch_queue(self) -> None:
        """A schedd that can not write its queue must not go on promising."""
        await self.updates.broken.wait()
        if self.updates.violation is not None:
            raise self.updates.violation
        raise QueueDamaged(f"{self.queue.path}: {self.queue.failed}")

    async def _keep_alive(self) -> None:
        await self.keepalive.tell_all()
        await self.keepalive.run()

    async def _look(self) -> None:
        """Periodic policies, every PERIODIC_EXPR_INTERVAL."""
        while True:
            await self.context.clock.sleep(self.settings.periodic_interval_s or 3600.0)
            if self.settings.periodic_interval_s:
                await self.actions.look()

    async def _tidy(self) -> None:
        """Forget what is too old to matter."""
        while True:
            await self.submission.tidy()
            bounds = ((history.JOBS, self.settings.history_max_bytes), (history.RUNS, self.settings.epoch_max_bytes))
            for records, most in bounds:
                await self.queue.read(partial(history.prune, max_bytes=most, records=records))
            await self.context.clock.sleep(TIDY_EVERY_S)


def _stored_cluster(
    uid_domain: str,
    number: int,
    user: str,
    submitter: str,
    qdate: int,
    spool: int,
    submit_id: str,
    next_proc: int,
    ad: bytes,
) -> Cluster:
    """A cluster as the database has it."""
    # A version before this one took bare names too.
    user = whole(user, uid_domain)
    cluster = Cluster(
        id=number,
        owner=user.partition("@")[0],
        user=user,
        submitter=submitter,
        qdate=qdate,
        ad=ClassAd.unpack(ad),
        spool=bool(spool),
        submit_id=submit_id,
        next_proc=next_proc,
    )
    if cluster.ad.eval("User") != user:
        cluster.ad["User"] = user
    cluster.factory = late_materialization.restored(cluster.ad, next_proc)
    return cluster


def _changes_the_queue(message: Message) -> bool:
    """Whether the answer promises that something was written down."""
    if isinstance(message, JobReport):
        return message.phase == "ended"
    if isinstance(message, JobReports):
        return any(report.phase == "ended" for report in message.reports)
    return isinstance(message, SubmitJobs | ImportJobs | ActOnJobs | Matches | GetRequests)


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host
