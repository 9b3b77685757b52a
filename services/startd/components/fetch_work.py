"""Fetches work for slots, by hooks (FHK-01 to FHK-14).

A fetched job runs on a claim like any other, but one of no access point: nobody's lease keeps it, its runs are
reported to its own log, and when it has ended the hook is asked for more.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Coroutine, Mapping
from typing import Any, Final

from engine.slots.carving import SlotKind
from services.startd.context import Component, StartdContext
from services.startd.core.fetched_work import LEAST_S, NOBODY, BadWork, accept, delay_s, log_event, log_path, read_work
from services.startd.core.run.job_hooks import Hook, Hooks
from services.startd.core.slots.effects import SlotEffects
from services.startd.core.slots.model import Claim, Slot
from services.startd.core.slots.policy import rank_of, start_is_false
from services.startd.core.slots.requests import Accepted, ClaimRequest, Refused
from services.startd.core.slots.transitions import State
from services.startd.run.hook_runner import HookRefused, append_to_log, call_hook
from shared.classad import ClassAd, Expr, unparse_old
from shared.config.knobs import StartdSettings
from shared.messages.claims import Activation, JobReport

#: Whose epoch claims of fetched work have: no negotiator's.
_SHARD: Final = "fetched work"
#: The interpreter of java jobs.
_JAVA: Final = "/usr/bin/java"


class FetchWork(Component):
    """Fetches work for the slots of this machine."""

    def __init__(self, startd: StartdContext) -> None:
        super().__init__(startd)
        self._changed = asyncio.Event()
        self._ended: dict[str, float] = {}  # by slot: when its last fetch ended, monotonic
        self._empty: set[str] = set()  # slots whose last fetch brought nothing that ran
        self._fetching: set[str] = set()
        self._begun: set[str] = set()  # runs whose log says so
        self._attempt = 0
        self._logs = asyncio.Lock()
        self._delay = self._read()

    def _read(self) -> Expr:
        knobs = StartdSettings.from_config(self.startd.context.config)
        return knobs.fetchworkdelay

    def tasks(self) -> Mapping[str, Coroutine[Any, Any, None]]:
        for claim in self._claims():
            self.startd.leases.drop(claim.claim_id)  # which a claim of an earlier life was given
        return {"fetch-work": self._run()}

    def reread(self) -> None:
        self._delay = self._read()
        self._changed.set()

    def on_changes(self, changes: SlotEffects) -> None:
        for claim in changes.ready:
            if claim.schedd == NOBODY:
                self.startd.leases.drop(claim.claim_id)
                _, effects = self._begin(claim, ClassAd.unpack(claim.job_ad))
                self.startd.effects.carry_out(effects)
        for ended in changes.ended:
            if ended.claim.schedd == NOBODY:
                self._evicted(ended.claim)
        for name in changes.gone:
            self._ended.pop(name, None)
            self._empty.discard(name)
        if self._configured():
            self._changed.set()

    def _configured(self) -> bool:
        hooks = self.startd.settings.hooks
        return bool(hooks.startd or hooks.slots)

    def _claims(self) -> list[Claim]:
        return [claim for claim in self.startd.slot_manager.claims.values() if claim.schedd == NOBODY]

    # -- when to fetch

    async def _run(self) -> None:
        """Fetch for every slot whose time has come, and wait for the next."""
        clock = self.startd.context.clock
        while True:
            self._changed.clear()
            due = self._look(clock.monotonic()) if self._configured() else None
            try:
                async with asyncio.timeout(None if due is None else max(0.0, due - clock.monotonic())):
                    await self._changed.wait()
            except TimeoutError:
                continue

    def _look(self, now: float) -> float | None:
        """Begin the fetches that are due; when the next one is."""
        manager, settings, found = self.startd.slot_manager, self.startd.settings, []
        for slot in list(manager.slots.values()):
            hooks = settings.hooks.of_slot(slot.slot_id)
            if hooks is None or slot.name in self._fetching or not _may_fetch(slot):
                continue
            at = self._due(slot)
            if at <= now and start_is_false(settings.policy(slot.type_id), self.startd.ads.ad_of(slot)):
                found.append(now + settings.polling_interval)  # FHK-03: nothing that came could run
            elif at <= now:
                self._fetching.add(slot.name)
                self.startd.background.spawn(self._fetch(slot.name, hooks), f"fetch-work:{slot.name}")
            else:
                found.append(at)
        return min(found, default=None)

    def _due(self, slot: Slot) -> float:
        """FHK-09: the delay counts from the end of the last fetch, and may go by the slot's state and its job."""
        last = self._ended.get(slot.name)
        if last is None:
            return 0.0
        job = ClassAd.unpack(slot.claim.job_ad) if slot.claim is not None and slot.claim.run else None
        delay = delay_s(self._delay, self.startd.ads.ad_of(slot), job)
        return last + (max(LEAST_S, delay) if slot.name in self._empty else delay)

    # -- a fetch

    async def _fetch(self, name: str, hooks: Hooks) -> None:
        startd = self.startd
        ran = False
        try:
            ad = startd.ads.ad_of(startd.slot_manager.slots[name])
            ended = await call_hook(hooks, Hook.FETCH_WORK, startd.context.log, stdin=unparse_old(ad.public()))
            work = read_work(ended.stdout)
            ran = self._take(name, hooks, work)
        except HookRefused:
            pass  # in the log
        except BadWork as error:
            startd.context.log.error("fetched_work_unreadable", hook=hooks.knob(Hook.FETCH_WORK), reason=str(error))
            self._take(name, hooks, None)
        finally:
            self._fetching.discard(name)
            self._ended[name] = startd.context.clock.monotonic()
            (self._empty.discard if ran else self._empty.add)(name)
            self._changed.set()

    def _take(self, name: str, hooks: Hooks, work: ClassAd | None) -> bool:
        """Decide about what was fetched, and do it. Whether it is run now, or will be."""
        startd = self.startd
        slot = startd.slot_manager.slots.get(name)
        if slot is None:
            if work is not None:
                self._reply(hooks, "reject", work, ClassAd({"Name": name}))
            return False
        idle = slot.claim if slot.claim is not None and slot.claim.schedd == NOBODY and not slot.claim.run else None
        if work is None:
            if idle is not None:  # FHK-07
                _, effects = startd.slot_manager.vacate(
                    idle.claim_id, "there is no more work to fetch", graceful=True, now=startd.now()
                )
                startd.effects.carry_out(effects)
            return False
        ad, effects = startd.ads.ad_of(slot), SlotEffects()
        try:
            job = accept(
                work,
                keyword=hooks.keyword,
                root=os.geteuid() == 0,
                partitionable=slot.kind is SlotKind.PARTITIONABLE,
                uid_domain=startd.settings.uid_domain,
                java=startd.settings.launchers["java"].program or _JAVA,
            )
            refusal, effects = self._run_it(slot, idle, job)
        except BadWork as error:
            job, refusal = work, str(error)
        if refusal:
            startd.context.log.info("fetched_work_refused", slot=name, reason=refusal)
        self._reply(hooks, "reject" if refusal else "accept", job, ad)
        if refusal and idle is not None and startd.slot_manager.claims.get(idle.claim_id) is idle and not idle.run:
            why = f"fetched work was refused: {refusal}"
            effects.add(startd.slot_manager.vacate(idle.claim_id, why, graceful=True, now=startd.now())[1])
        startd.effects.carry_out(effects)
        return not refusal

    def _run_it(self, slot: Slot, idle: Claim | None, job: ClassAd) -> tuple[str, SlotEffects]:
        """Claim the slot for the job and start it (FHK-04), or start it on the claim that is there (FHK-07). Why not;
        empty: it is done."""
        startd = self.startd
        if idle is not None:
            return self._begin(idle, job)
        if slot.claim is not None:
            rank = rank_of(startd.settings.policy(slot.type_id), startd.ads.ad_of(slot), job)
            if rank <= slot.claim.rank:
                reason = f"RANK does not like it more than the job that runs ({rank:g}, {slot.claim.rank:g})"
                return reason, SlotEffects()
        request = ClaimRequest(
            request_id=startd.context.new_id(),
            claim_id=slot.offer,
            slot=slot.name,
            schedd=NOBODY,
            submitter=job.eval_string("User"),
            job_ad=job.pack(),
            lease_s=0.0,
            alive_interval_s=0,
            epoch=0,
            shard=_SHARD,
        )
        answer, effects = startd.slot_manager.request(request, job, startd.now())
        if isinstance(answer, Refused):
            return answer.reason, effects
        if isinstance(answer, Accepted):
            return "", effects  # `on_changes` hears when it is ready
        self._ended[answer.slot.name] = startd.context.clock.monotonic()
        startd.publisher.claim_made(answer.claim)
        refusal, begun = self._begin(answer.claim, job)
        effects.add(begun)
        return refusal, effects

    def _begin(self, claim: Claim, job: ClassAd) -> tuple[str, SlotEffects]:
        """Start a job on its claim. Why not; empty: it is started."""
        self._attempt = max(self._attempt + 1, int(self.startd.now() * 1000))
        number = f"{job.eval('ClusterId')}.{job.eval('ProcId')}"
        activation = Activation(job_id=number, attempt=self._attempt, job_ad=job.pack())
        refused, effects = self.startd.runs.activate(claim.claim_id, activation, job)
        if refused is None:
            return "", effects
        now = self.startd.now()
        effects.add(self.startd.slot_manager.vacate(claim.claim_id, refused.reason, graceful=True, now=now)[1])
        return refused.reason, effects

    # -- telling

    def _reply(self, hooks: Hooks, word: str, job: ClassAd, slot: ClassAd) -> None:
        """FHK-05: not waited for."""
        if Hook.REPLY_FETCH in hooks.paths:
            self.startd.background.spawn(self._tell(hooks, Hook.REPLY_FETCH, job, slot, word), "hook:reply-fetch")

    def _evicted(self, claim: Claim) -> None:
        """FHK-06: not waited for."""
        job = ClassAd.unpack(claim.job_ad)
        hooks = self.startd.settings.hooks.hooks.get(job.eval_string("HookKeyword").lower())
        if hooks is None or Hook.EVICT_CLAIM not in hooks.paths:
            return
        slot = self.startd.slot_manager.slots.get(claim.slot)
        ad = self.startd.ads.ad_of(slot) if slot is not None else ClassAd({"Name": claim.slot})
        self.startd.background.spawn(self._tell(hooks, Hook.EVICT_CLAIM, job, ad), "hook:evict-claim")

    async def _tell(self, hooks: Hooks, hook: Hook, job: ClassAd, slot: ClassAd, *words: str) -> None:
        stdin = f"{unparse_old(job.public())}-----\n{unparse_old(slot.public())}"
        try:
            await call_hook(hooks, hook, self.startd.context.log, *words, stdin=stdin)
        except HookRefused:
            return  # in the log

    def run_reported(self, run: Any, report: JobReport) -> None:
        """What an access point would hear goes into the job's own log (FHK-12)."""
        job: ClassAd = run.job
        first = run.key not in self._begun
        (self._begun.discard if report.phase == "ended" else self._begun.add)(run.key)
        path = log_path(job, str(run.scratch))
        if not path:
            return
        slot = self.startd.slot_manager.slots.get(report.slot)
        ad = self.startd.ads.ad_of(slot) if slot is not None else ClassAd()
        text = log_event(job, ad, report, self.startd.name, first=first)
        if first and report.phase == "ended" and report.started_at:  # of a brief run nothing was reported before
            began = report.model_copy(update={"phase": "running", "exit": None, "at": report.started_at})
            text = log_event(job, ad, began, self.startd.name, first=True) + text
        if text:
            self.startd.background.spawn(self._log(run, path, text), "starter-user-log")

    async def _log(self, run: Any, path: str, text: bytes) -> None:
        async with self._logs:  # in their order
            problem = await append_to_log(run.account(), path, text)
        if problem:
            self.startd.context.log.warning("starter_user_log", path=path, reason=problem)


def _may_fetch(slot: Slot) -> bool:
    """A slot asks for work while it is Unclaimed or Claimed, and nobody waits for it. A dynamic slot only goes on with
    work that was fetched; its parent fetches what makes new ones."""
    if slot.waiting or slot.state not in (State.UNCLAIMED, State.CLAIMED):
        return False
    if slot.kind is SlotKind.DYNAMIC:
        return slot.claim is not None and slot.claim.schedd == NOBODY and not slot.claim.run
    if slot.kind is SlotKind.PARTITIONABLE:
        return float(slot.free["Cpus"]) > 0
    return True
