"""The runs of jobs on this machine: begun, known by their keys, stopped, and forgotten when their end was told."""

from __future__ import annotations

from pathlib import Path

import aiohttp

from services.startd.core import journal_records
from services.startd.core.job_ads import job_ad
from services.startd.core.journal_records import RunRecord
from services.startd.core.run import run_times
from services.startd.core.run.failures import Fault
from services.startd.core.slots import retirement
from services.startd.core.slots.effects import SlotEffects
from services.startd.core.slots.leases import lease_of
from services.startd.core.slots.model import VacateReason
from services.startd.core.slots.requests import Refused
from services.startd.core.slots.transitions import State
from services.startd.isolation import scratch_dirs
from services.startd.metrics import RunCounts
from services.startd.run.chirp_server import ChirpServer
from services.startd.run.context import RunContext
from services.startd.run.end_reports import EndReports
from services.startd.run.reports import BRIEF_S
from services.startd.run.run import Run
from services.startd.slot_services import SlotServices
from shared.classad import ClassAd
from shared.config.knobs.tls import TlsSettings
from shared.errors import PermanentError
from shared.host import boot_id
from shared.messages.claims import Activation, JobReport, JobReportAck
from shared.transfer.connections import KeptConnections
from shared.transfer.tls import TransferTls

#: Refusals of a further job that are about the claim, not the job.
_CLAIM_IS_OVER = ("unknown-claim", "busy", "worklife")
#: Why runs had to leave that others, or the machine's policy, put out, as statistics tell it.
_PREEMPTED: dict[int, str] = {
    VacateReason.PREEMPT: "policy",
    VacateReason.RANK: "rank",
    VacateReason.PRIORITY: "priority",
}


class BadAd(PermanentError):
    """An ad that came from outside can not be read."""


def unpack_ad(packed: bytes) -> ClassAd:
    """Raises BadAd."""
    try:
        return job_ad(packed)
    except ValueError as error:
        raise BadAd(f"the job's ad can not be read: {error}") from error


class Runs:
    """Begins runs, goes on with those of an earlier life, and does what their ends mean. Runs get here what they need
    of the daemon."""

    def __init__(self, startd: SlotServices, counts: RunCounts) -> None:
        self.startd = startd
        self.context = startd.context
        self.by_key = startd.run_table.by_key
        self.counts = counts
        self._http: aiohttp.ClientSession | None = None
        self._brief: set[str] = set()  # claims whose last job was soon over
        self._chirp = ChirpServer(self.context.log, startd.background.spawn)
        self._context = self._run_context()

    # -- begin

    def activate(self, claim_id: str, activation: Activation, job: ClassAd) -> tuple[Refused | None, SlotEffects]:
        """Start a run; why not, if it can not be."""
        startd = self.startd
        self.counts.asked += 1
        claim = startd.slot_manager.claims.get(claim_id)
        key = journal_records.run_key(activation, claim.schedd if claim is not None else "")
        known = self.by_key.get(key)
        if known is not None and known.record.claim_id != claim_id:
            # Its claim ended unheard, and with it the request that it came by: asked again, that is a new one. This
            # claim would wait for ever for the end of a run that is over.
            refusal = Refused("busy", f"run {key} was here before, and its end is not acknowledged yet")
            return refusal, SlotEffects()
        if startd.run_table.is_over(key, self.context.clock.monotonic()) or (known is not None and known.ended):
            # Asked again, as the answer was lost: its end tells all, or has told it. To the claim it would never end.
            return None, SlotEffects()
        answer, effects = startd.slot_manager.activate(claim_id, key, activation.job_ad, job, startd.now())
        if isinstance(answer, Refused):
            return answer, effects
        if key not in self.by_key:
            lease = lease_of(job, answer.alive_interval_s, startd.settings.alives_missed)
            if answer.jobs > 1 and lease != answer.lease_s and claim_id in startd.leases:
                answer.lease_s = lease
                startd.effects.leased(answer)
            self.counts.started += 1
            record = self._record(claim_id, answer.slot, answer.schedd, activation, answer.lease_s)
            self.adopt(record, after_brief=claim_id in self._brief)
        return None, effects

    def _record(self, claim_id: str, slot: str, schedd: str, activation: Activation, lease: float) -> RunRecord:
        unique = self.context.new_id()
        record = RunRecord(
            name=f"{self.startd.name}/{activation.job_id}/{activation.attempt}/{unique}",
            claim_id=claim_id,
            slot=slot,
            schedd=schedd,
            job_id=activation.job_id,
            attempt=activation.attempt,
            job_ad=activation.job_ad,
            transfer_url=activation.transfer_url,
            transfer_token=activation.transfer_token,
            chirp_url=activation.chirp_url,
            scratch=self._scratch(slot, unique),
            began=self.startd.now(),
            lease_s=lease,
        )
        run_times.begin(record, self._context.moment())
        # Written before the request is answered: with the claim, when its effects are carried out.
        self._context.save(record, soon=True)
        return record

    def _scratch(self, slot_name: str, unique: str) -> str:
        """The name of a scratch directory below EXECUTE; its whole path where the slot's lies elsewhere (SLT-08)."""
        name = scratch_dirs.name_of(self.startd.name, unique)
        slot = self.startd.slot_manager.slots.get(slot_name)
        elsewhere = self.startd.settings.execute.get(slot.slot_id, "") if slot is not None and slot.slot_id else ""
        return str(Path(elsewhere) / name) if elsewhere else name

    def adopt(self, record: RunRecord, *, after_brief: bool = False) -> Run:
        """Begin a run, or go on with one of an earlier life."""
        startd = self.startd
        claim = startd.slot_manager.claims.get(record.claim_id)
        slot = startd.slot_manager.slots.get(claim.slot) if claim else None
        cpus, memory = (float(slot.total["Cpus"]), int(slot.total["Memory"])) if slot else (1.0, 1)
        run = Run(
            record,
            self._context,
            cpus,
            memory,
            after_brief=after_brief,
            reported=self._reported,
            measured=self._run_measured,
        )
        self.by_key[record.key] = run
        if claim is not None and claim.run == run.key and claim.suspensions:
            run.restore_suspension(claim.suspended_at > 0)
        startd.background.spawn(self._live(run), f"run:{record.key}")
        for observer in startd.observers:
            observer.run_started(run)
        return run

    async def _live(self, run: Run) -> None:
        """The life of a run, until its end is acknowledged. Cancelling leaves everything as it is, for a later life."""
        try:
            await run.perform()
            self._run_ended(run)
            self.startd.background.spawn(run.clean_up(), f"clean-up:{run.key}")
            ack = await run.report_end()
        finally:
            run.close()
        self._run_acknowledged(run, ack)

    # -- end

    def _run_measured(self, run: Run) -> None:
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
        self.startd.slot_manager.measured(run.record.claim_id, run.key, attributes)
        self.startd.look()

    def _run_ended(self, run: Run) -> None:
        outcome = run.record.outcome
        if outcome is not None:
            code = str(outcome.hold_code) if outcome.reason == "hold" else ""
            self.counts.ended.add(outcome.reason, code)
        ran_s, claims = run_times.ran_s(run.record), self.startd.slot_manager.claims
        self.counts.over(run_times.had_s(run.record), ran_s)
        if run.record.started_at and ran_s < BRIEF_S:
            self._brief.add(run.record.claim_id)
            if len(self._brief) > len(claims):  # some are gone
                self._brief &= claims.keys()
        else:
            self._brief.discard(run.record.claim_id)
        claim = claims.get(run.record.claim_id)
        if claim is not None and claim.run == run.key and (why := _PREEMPTED.get(claim.vacate_code)):
            self.counts.preempted.add(why)
        self.startd.effects.carry_out(
            self.startd.slot_manager.run_gone(run.record.claim_id, run.key, self.startd.now())
        )
        for observer in self.startd.observers:
            observer.run_over(run)

    def _run_acknowledged(self, run: Run, ack: JobReportAck | None) -> None:
        startd, record = self.startd, run.record
        startd.run_table.forget(run, self.context.clock.monotonic())
        startd.journal_writer.put("runs", run.key, None)
        claim, effects = startd.slot_manager.claims.get(record.claim_id), SlotEffects()
        if ack is None or not ack.known:
            if claim is not None and not claim.run:
                effects = self._release(record.claim_id, "the schedd does not know its job")
                startd.publisher.lost(claim.schedd, claim.slot, claim.claim_id, "its job is not known to you")
        elif ack.next is not None:
            effects = self._take_next(record, ack.next)
        elif ack.release:
            effects = self._release(record.claim_id, "released by the schedd")
        startd.effects.carry_out(effects)

    def _release(self, claim_id: str, reason: str) -> SlotEffects:
        _, effects = self.startd.slot_manager.vacate(claim_id, reason, graceful=True, now=self.startd.now())
        return effects

    def _take_next(self, record: RunRecord, activation: Activation) -> SlotEffects:
        """The schedd handed over the next job of the claim; it takes it for started, so a refusal is an end. Where the
        claim went while that was on its way, the job is not to blame."""
        effects = SlotEffects()
        refusal: Refused | None
        try:
            job = unpack_ad(activation.job_ad)
            refusal, effects = self.activate(record.claim_id, activation, job)
        except BadAd as error:
            refusal = Refused("bad-request", str(error))
        key = journal_records.run_key(activation, record.schedd)
        if refusal is None or key in self.by_key:
            return effects
        refused = self._record(record.claim_id, record.slot, record.schedd, activation, record.lease_s)
        if refusal.code in _CLAIM_IS_OVER:
            refused.exit = Fault.NEXT_TOO_LATE.exit("evicted", refusal.reason).model_dump()
        else:
            refused.exit = Fault.NEXT_DOES_NOT_FIT.exit("failed", refusal.reason).model_dump()
        run_times.end(refused, self._context.moment())
        self._context.save(refused, soon=True)
        self.adopt(refused)
        return effects

    async def close(self) -> None:
        await self._chirp.close()
        if self._http is not None:
            await self._http.close()

    # -- what runs need of the startd

    def _run_context(self) -> RunContext:
        startd = self.startd
        return RunContext(
            daemon=self.context,
            startd=startd.name,
            boot=boot_id(),
            launchers=startd.launchers,
            plugins=startd.plugins,
            reuse=startd.reuse,
            isolation=startd.isolation,
            journal=startd.journal_writer,
            counts=self.counts,
            settings=lambda: startd.settings,
            session=self._session,
            chirp=self._chirp,
            ends=EndReports(self.context.bus, startd.name, startd.background.spawn),
            transfer_tls=TransferTls.of(TlsSettings.from_config(self.context.config)),
            machine_ad=self.machine_ad,
            cores=self._cores,
            vacate_time=self._vacate_time,
            claim_over=lambda claim_id: claim_id not in startd.slot_manager.claims,
            lease_left=startd.leases.left_s,
            lease_is_first=startd.leases.is_first,
            lease_confirmed=startd.leases.confirmed,
            in_background=startd.background.spawn,
        )

    def _session(self) -> aiohttp.ClientSession:
        if self._http is None:
            self._http = aiohttp.ClientSession(connector=KeptConnections())
        return self._http

    def _cores(self, record: RunRecord, job: ClassAd) -> tuple[int, ...]:
        slot = self.startd.slot_manager.slots.get(record.slot)
        if slot is None:
            return ()
        others = [run.record.cores for run in self.by_key.values() if run.key != record.key and not run.ended]
        affinity, machine = self.startd.settings.affinity, self.startd.detected.core_ids
        return affinity.cores(job, slot.slot_id, float(slot.total["Cpus"]), machine, others)

    def machine_ad(self, slot: str) -> ClassAd:
        found = self.startd.slot_manager.slots.get(slot)
        return self.startd.ads.ad_of(found) if found is not None else self.startd.ads.base

    def _reported(self, run: Run, report: JobReport) -> None:
        for observer in self.startd.observers:
            observer.run_reported(run, report)

    def _vacate_time(self, slot: str, job: ClassAd) -> float:
        settings = self.startd.settings
        found = self.startd.slot_manager.slots.get(slot)
        if found is not None and found.state is State.PREEMPTING and found.claim is not None:
            # The slot's own clock kills the job, and shows it; this one is for the case that it fails to.
            return found.claim.vacate_s + settings.killing_timeout
        type_id = found.type_id if found is not None else 0
        return retirement.vacate_time_s(settings.policy(type_id), self.machine_ad(slot), job)
