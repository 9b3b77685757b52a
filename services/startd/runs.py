"""The runs of jobs on this machine: begun, known by their keys, stopped, and forgotten when their end was told."""

from __future__ import annotations

from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import aiohttp
import structlog

from services.startd.book import leaving, records
from services.startd.book.answers import Refused, StopRun, Suspension
from services.startd.book.leases import lease_of
from services.startd.book.records import RunRecord
from services.startd.book.transitions import State
from services.startd.hooks.of_run import RunHooks
from services.startd.launchers.api import Account, Launch, Launcher
from services.startd.launchers.apptainer.plan import Rules
from services.startd.metrics import RunCounts
from services.startd.parts import Inside, Part
from services.startd.sandbox import directories
from services.startd.starter.hands import Intervals
from services.startd.starter.run import Run
from services.startd.walls.warden import disk_of
from shared.classad import ClassAd
from shared.errors import PermanentError
from shared.messages.claims import Activation, JobExit, JobReport, JobReportAck

#: Refusals of a further job that are about the claim, not the job.
_CLAIM_IS_OVER = ("unknown-claim", "busy", "worklife")


class BadAd(PermanentError):
    """An ad that came from outside can not be read."""


def unpack_ad(packed: bytes) -> ClassAd:
    """Raises BadAd."""
    try:
        return ClassAd.unpack(packed).check()
    except ValueError as error:
        raise BadAd(f"the job's ad can not be read: {error}") from error


class Runs:
    """See the module; what runs need of the daemon (`starter.hands.Hands`) they get here."""

    def __init__(self, inside: Inside, parts: list[Part], counts: RunCounts | None = None) -> None:
        self.inside = inside
        self.context = inside.context
        self.by_key: dict[str, Run] = {}  # until their end is acknowledged
        self.counts = counts or RunCounts()
        self._parts = parts
        self._http: aiohttp.ClientSession | None = None

    def of_claim(self, claim_id: str) -> list[Run]:
        return [run for run in self.by_key.values() if run.record.claim_id == claim_id]

    # -- begin

    def activate(self, claim_id: str, activation: Activation, job: ClassAd) -> Refused | None:
        """Start a run; why not, if it can not be."""
        inside = self.inside
        claim = inside.book.claims.get(claim_id)
        key = records.run_key(activation, claim.schedd if claim is not None else "")
        known = self.by_key.get(key)
        if known is not None and known.record.claim_id != claim_id:
            # Its claim ended unheard, and with it the request that it came by: asked again, that is a new one. This
            # claim would wait for ever for the end of a run that is over.
            return Refused("busy", f"run {key} was here before, and its end is not acknowledged yet")
        if known is not None and known.ended:
            return None  # asked again, as the answer was lost: its end tells all. To the claim it would never end.
        answer = inside.book.activate(claim_id, key, activation.job_ad, job, inside.now())
        if isinstance(answer, Refused):
            return answer
        if key not in self.by_key:
            lease = lease_of(job, answer.alive_interval_s, inside.settings.alives_missed)
            if answer.jobs > 1 and lease != answer.lease_s and claim_id in inside.leases:
                answer.lease_s = lease
                inside.leased(answer)
            self.counts.started += 1
            self.take_up(self._record(claim_id, answer.slot, answer.schedd, activation, answer.lease_s))
        return None

    def _record(self, claim_id: str, slot: str, schedd: str, activation: Activation, lease: float) -> RunRecord:
        unique = self.context.new_id()
        record = RunRecord(
            name=f"{self.inside.name}/{activation.job_id}/{activation.attempt}/{unique}",
            claim_id=claim_id,
            slot=slot,
            schedd=schedd,
            job_id=activation.job_id,
            attempt=activation.attempt,
            job_ad=activation.job_ad,
            transfer_url=activation.transfer_url,
            transfer_token=activation.transfer_token,
            scratch=self._scratch(slot, unique),
            began=self.inside.now(),
            lease_s=lease,
        )
        self.save(record, soon=True)  # before the request is answered: with the claim, in `write_down`
        return record

    def _scratch(self, slot_name: str, unique: str) -> str:
        """The name of a scratch directory below EXECUTE; its whole path where the slot's lies elsewhere (SLT-08)."""
        name = directories.name_of(self.inside.name, unique)
        slot = self.inside.book.slots.get(slot_name)
        elsewhere = self.inside.settings.execute.get(slot.slot_id, "") if slot is not None and slot.slot_id else ""
        return str(Path(elsewhere) / name) if elsewhere else name

    def take_up(self, record: RunRecord) -> Run:
        """Begin a run, or go on with one of an earlier life."""
        inside = self.inside
        claim = inside.book.claims.get(record.claim_id)
        slot = inside.book.slots.get(claim.slot) if claim else None
        settings = inside.settings
        intervals = Intervals(settings.initial_job_update, settings.job_update, inside.name)
        cpus, memory = (float(slot.total["Cpus"]), int(slot.total["Memory"])) if slot else (1.0, 1)
        run = Run(record, self, intervals, cpus, memory)
        self.by_key[record.key] = run
        if claim is not None and claim.run == run.key and claim.suspensions:
            run.may_stand(claim.suspended_at > 0)
        inside.spawn(run.live(), f"run:{record.key}")
        for part in self._parts:
            part.run_started(run)
        return run

    # -- end

    def stop(self, order: StopRun) -> None:
        run = self.by_key.get(order.run)
        if run is not None:
            run.stop("evicted", "evict", order.reason, fast=order.fast, vacate_code=order.code, hold=order.hold)

    def suspend(self, order: Suspension) -> None:
        run = self.by_key.get(order.run)
        if run is not None:
            run.suspend(order.suspended)

    def run_measured(self, run: Run) -> None:
        used = run.record.used
        attributes = {
            "MemoryUsage": used.memory_mib,
            "DiskUsage": used.disk_kib,
            "ResidentSetSize": used.resident_set_kib,
            "ImageSize": used.image_size_kib,
            "RemoteUserCpu": used.user_cpu_s,
            "RemoteSysCpu": used.sys_cpu_s,
            "NumPids": used.procs,
        }
        self.inside.book.measured(run.record.claim_id, run.key, attributes)
        self.inside.look()

    def run_ended(self, run: Run) -> None:
        outcome = run.record.outcome
        if outcome is not None:
            code = str(outcome.hold_code) if outcome.reason == "hold" else ""
            self.counts.ended.add(outcome.reason, code)
        self.inside.book.run_gone(run.record.claim_id, run.key, self.inside.now())
        self.inside.write_down()
        for part in self._parts:
            part.run_over(run)

    def run_told(self, run: Run, ack: JobReportAck | None) -> None:
        inside, record = self.inside, run.record
        if self.by_key.get(run.key) is run:
            del self.by_key[run.key]
        inside.ledger.put("runs", run.key, None)
        claim = inside.book.claims.get(record.claim_id)
        if ack is None or not ack.known:
            if claim is not None and not claim.run:
                self._release(record.claim_id, "the schedd does not know its job")
                inside.herald.lost(claim.schedd, claim.slot, claim.claim_id, "its job is not known to you")
        elif ack.next is not None:
            self._take_next(record, ack.next)
        elif ack.release:
            self._release(record.claim_id, "released by the schedd")
        inside.write_down()

    def _release(self, claim_id: str, reason: str) -> None:
        self.inside.book.vacate(claim_id, reason, graceful=True, now=self.inside.now())

    def _take_next(self, record: RunRecord, activation: Activation) -> None:
        """The schedd handed over the next job of the claim; it takes it for started, so a refusal is an end. Where the
        claim went while that was on its way, the job is not to blame."""
        refusal: Refused | None
        try:
            refusal = self.activate(record.claim_id, activation, unpack_ad(activation.job_ad))
        except BadAd as error:
            refusal = Refused("bad-request", str(error))
        key = records.run_key(activation, record.schedd)
        if refusal is None or key in self.by_key:
            return
        refused = self._record(record.claim_id, record.slot, record.schedd, activation, record.lease_s)
        reason: Any = "evicted" if refusal.code in _CLAIM_IS_OVER else "failed"
        refused.exit = JobExit(reason=reason, message=refusal.reason).model_dump()
        self.save(refused, soon=True)
        self.take_up(refused)

    async def close(self) -> None:
        if self._http is not None:
            await self._http.close()

    # -- what runs need (Hands)

    def launcher(self, name: str) -> Launcher:
        return self.inside.launchers[name]

    def hooks(self, job: ClassAd, log: structlog.stdlib.BoundLogger) -> RunHooks:
        return RunHooks(self.inside.settings.hooks.of_job(job), log, self.in_background)

    def session(self) -> aiohttp.ClientSession:
        if self._http is None:
            self._http = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0))
        return self._http

    def machine_ad(self, slot: str) -> ClassAd:
        found = self.inside.book.slots.get(slot)
        return self.inside.showcase.ad_of(found) if found is not None else self.inside.showcase.base

    def containers(self) -> Rules:
        return self.inside.settings.containers

    def account(self, slot: str, job: ClassAd) -> Account | None:
        return self.inside.warden.account(slot, job)

    def noted(self, run: Run, report: JobReport) -> None:
        for part in self._parts:
            part.run_reported(run, report)

    def view(self, scratch: str) -> Path:
        return self.inside.warden.disks.view(scratch)

    async def enclose(self, launch: Launch) -> None:
        disks = self.inside.warden.disks
        if disks.usable and launch.scratch.parent == self.context.execute:
            await disks.make(launch.scratch.name, disk_of(launch.machine_ad))

    async def disclose(self, scratch: str) -> None:
        await self.inside.warden.disks.unmake(scratch)

    def save(self, record: RunRecord, *, soon: bool = False) -> None:
        self.inside.ledger.put("runs", record.key, record.pack())
        if soon:
            self.inside.ledger.write_soon()
        else:
            self.inside.ledger.write()

    async def sync(self) -> None:
        await self.inside.ledger.sync()

    def vacate_time(self, slot: str, job: ClassAd) -> float:
        settings = self.inside.settings
        found = self.inside.book.slots.get(slot)
        if found is not None and found.state is State.PREEMPTING and found.claim is not None:
            # The slot's own clock kills the job, and shows it; this one is for the case that it fails to.
            return found.claim.vacate_s + settings.killing_timeout
        type_id = found.type_id if found is not None else 0
        return leaving.vacate_time_s(settings.policy(type_id), self.machine_ad(slot), job)

    def claim_over(self, claim_id: str) -> bool:
        return claim_id not in self.inside.book.claims

    def in_background(self, work: Coroutine[Any, Any, None], name: str) -> None:
        self.inside.spawn(work, name)
