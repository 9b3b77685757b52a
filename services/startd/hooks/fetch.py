"""Fetches work for slots, by hooks (FHK-01 to FHK-14).

A fetched job runs on a claim like any other, but one of no access point: nobody's lease keeps it, its runs are
reported to its own log, and when it has ended the hook is asked for more.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Coroutine, Mapping
from typing import Any, Final

from services.startd.book.answers import Accepted, Changes, ClaimRequest, Refused
from services.startd.book.partition import SlotKind
from services.startd.book.policy import rank_of
from services.startd.book.slots import Claim, Slot
from services.startd.book.transitions import State
from services.startd.hooks.calling import HookRefused, append, call
from services.startd.hooks.keywords import Hook, Hooks
from services.startd.hooks.starter_log import tell
from services.startd.hooks.work import LEAST_S, NOBODY, BadWork, accept, delay_s, log_path, read_work
from services.startd.parts import Inside, Part
from shared.classad import ClassAd, Expr, unparse_old
from shared.config.knobs import StartdSettings
from shared.messages.claims import Activation, JobReport

#: Whose epoch claims of fetched work have: no negotiator's.
_SHARD: Final = "fetched work"
#: The interpreter of java jobs.
_JAVA: Final = "/usr/bin/java"


class FetchWork(Part):
    """See the module."""

    def __init__(self, inside: Inside) -> None:
        super().__init__(inside)
        self._changed = asyncio.Event()
        self._ended: dict[str, float] = {}  # by slot: when its last fetch ended, monotonic
        self._empty: set[str] = set()  # slots whose last fetch brought nothing that ran
        self._fetching: set[str] = set()
        self._begun: set[str] = set()  # runs whose log says so
        self._attempt = 0
        self._logs = asyncio.Lock()
        self._delay = self._read()

    def _read(self) -> Expr:
        knobs = StartdSettings.from_config(self.inside.context.config)
        return knobs.fetchworkdelay

    def tasks(self) -> Mapping[str, Coroutine[Any, Any, None]]:
        for claim in self._claims():
            self.inside.leases.drop(claim.claim_id)  # which a claim of an earlier life was given
        return {"fetch-work": self._run()}

    def reread(self) -> None:
        self._delay = self._read()
        self._changed.set()

    def on_changes(self, changes: Changes) -> None:
        for claim in changes.ready:
            if claim.schedd == NOBODY:
                self.inside.leases.drop(claim.claim_id)
                self._begin(claim, ClassAd.unpack(claim.job_ad))
        for ended in changes.ended:
            if ended.claim.schedd == NOBODY:
                self._evicted(ended.claim)
        for name in changes.gone:
            self._ended.pop(name, None)
            self._empty.discard(name)
        if self._configured():
            self._changed.set()

    def _configured(self) -> bool:
        hooks = self.inside.settings.hooks
        return bool(hooks.startd or hooks.slots)

    def _claims(self) -> list[Claim]:
        return [claim for claim in self.inside.book.claims.values() if claim.schedd == NOBODY]

    # -- when to fetch

    async def _run(self) -> None:
        """Fetch for every slot whose time has come, and wait for the next."""
        clock = self.inside.context.clock
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
        book, found = self.inside.book, []
        for slot in list(book.slots.values()):
            hooks = self.inside.settings.hooks.of_slot(slot.slot_id)
            if hooks is None or slot.name in self._fetching or not _may_fetch(slot):
                continue
            at = self._due(slot)
            if at <= now:
                self._fetching.add(slot.name)
                self.inside.spawn(self._fetch(slot.name, hooks), f"fetch-work:{slot.name}")
            else:
                found.append(at)
        return min(found, default=None)

    def _due(self, slot: Slot) -> float:
        """FHK-09: the delay counts from the end of the last fetch, and may go by the slot's state and its job."""
        last = self._ended.get(slot.name)
        if last is None:
            return 0.0
        job = ClassAd.unpack(slot.claim.job_ad) if slot.claim is not None and slot.claim.run else None
        delay = delay_s(self._delay, self.inside.showcase.ad_of(slot), job)
        return last + (max(LEAST_S, delay) if slot.name in self._empty else delay)

    # -- a fetch

    async def _fetch(self, name: str, hooks: Hooks) -> None:
        inside = self.inside
        ran = False
        try:
            ad = inside.showcase.ad_of(inside.book.slots[name])
            ended = await call(hooks, Hook.FETCH_WORK, inside.context.log, stdin=unparse_old(ad.public()))
            work = read_work(ended.stdout)
            ran = self._take(name, hooks, work)
        except HookRefused:
            pass  # in the log
        except BadWork as error:
            inside.context.log.error("fetched_work_unreadable", hook=hooks.knob(Hook.FETCH_WORK), reason=str(error))
            self._take(name, hooks, None)
        finally:
            self._fetching.discard(name)
            self._ended[name] = inside.context.clock.monotonic()
            (self._empty.discard if ran else self._empty.add)(name)
            self._changed.set()

    def _take(self, name: str, hooks: Hooks, work: ClassAd | None) -> bool:
        """Decide about what was fetched, and do it. Whether it is run now, or will be."""
        inside = self.inside
        slot = inside.book.slots.get(name)
        if slot is None:
            if work is not None:
                self._reply(hooks, "reject", work, ClassAd({"Name": name}))
            return False
        idle = slot.claim if slot.claim is not None and slot.claim.schedd == NOBODY and not slot.claim.run else None
        if work is None:
            if idle is not None:  # FHK-07
                inside.book.vacate(idle.claim_id, "there is no more work to fetch", graceful=True, now=inside.now())
                inside.write_down()
            return False
        ad = inside.showcase.ad_of(slot)
        try:
            job = accept(
                work,
                keyword=hooks.keyword,
                root=os.geteuid() == 0,
                partitionable=slot.kind is SlotKind.PARTITIONABLE,
                uid_domain=inside.settings.uid_domain,
                java=_JAVA,
            )
            refusal = self._run_it(slot, idle, job)
        except BadWork as error:
            job, refusal = work, str(error)
        if refusal:
            inside.context.log.info("fetched_work_refused", slot=name, reason=refusal)
        self._reply(hooks, "reject" if refusal else "accept", job, ad)
        if refusal and idle is not None and inside.book.claims.get(idle.claim_id) is idle and not idle.run:
            inside.book.vacate(idle.claim_id, f"fetched work was refused: {refusal}", graceful=True, now=inside.now())
        inside.write_down()
        return not refusal

    def _run_it(self, slot: Slot, idle: Claim | None, job: ClassAd) -> str:
        """Claim the slot for the job and start it (FHK-04), or start it on the claim that is there (FHK-07). Why not;
        empty: it is done."""
        inside = self.inside
        if idle is not None:
            return self._begin(idle, job)
        if slot.claim is not None:
            rank = rank_of(inside.settings.policy(slot.type_id), inside.showcase.ad_of(slot), job)
            if rank <= slot.claim.rank:
                return f"RANK does not like it more than the job that runs ({rank:g}, {slot.claim.rank:g})"
        request = ClaimRequest(
            request_id=inside.context.new_id(),
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
        answer = inside.book.request(request, job, inside.now())
        if isinstance(answer, Refused):
            return answer.reason
        if isinstance(answer, Accepted):
            return ""  # `on_changes` hears when it is ready
        self._ended[answer.slot.name] = inside.context.clock.monotonic()
        inside.herald.claim_made(answer.claim)
        return self._begin(answer.claim, job)

    def _begin(self, claim: Claim, job: ClassAd) -> str:
        """Start a job on its claim. Why not; empty: it is started."""
        self._attempt = max(self._attempt + 1, int(self.inside.now() * 1000))
        number = f"{job.eval('ClusterId')}.{job.eval('ProcId')}"
        activation = Activation(job_id=number, attempt=self._attempt, job_ad=job.pack())
        refused = self.inside.runs.activate(claim.claim_id, activation, job)
        if refused is None:
            return ""
        self.inside.book.vacate(claim.claim_id, refused.reason, graceful=True, now=self.inside.now())
        return refused.reason

    # -- telling

    def _reply(self, hooks: Hooks, word: str, job: ClassAd, slot: ClassAd) -> None:
        """FHK-05: not waited for."""
        if Hook.REPLY_FETCH in hooks.paths:
            self.inside.spawn(self._tell(hooks, Hook.REPLY_FETCH, job, slot, word), "hook:reply-fetch")

    def _evicted(self, claim: Claim) -> None:
        """FHK-06: not waited for."""
        job = ClassAd.unpack(claim.job_ad)
        hooks = self.inside.settings.hooks.hooks.get(job.eval_string("HookKeyword").lower())
        if hooks is None or Hook.EVICT_CLAIM not in hooks.paths:
            return
        slot = self.inside.book.slots.get(claim.slot)
        ad = self.inside.showcase.ad_of(slot) if slot is not None else ClassAd({"Name": claim.slot})
        self.inside.spawn(self._tell(hooks, Hook.EVICT_CLAIM, job, ad), "hook:evict-claim")

    async def _tell(self, hooks: Hooks, hook: Hook, job: ClassAd, slot: ClassAd, *words: str) -> None:
        stdin = f"{unparse_old(job.public())}-----\n{unparse_old(slot.public())}"
        try:
            await call(hooks, hook, self.inside.context.log, *words, stdin=stdin)
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
        slot = self.inside.book.slots.get(report.slot)
        ad = self.inside.showcase.ad_of(slot) if slot is not None else ClassAd()
        text = tell(job, ad, report, self.inside.name, first=first)
        if text:
            self.inside.spawn(self._log(run, path, text), "starter-user-log")

    async def _log(self, run: Any, path: str, text: bytes) -> None:
        async with self._logs:  # in their order
            problem = await append(run.account(), path, text)
        if problem:
            self.inside.context.log.warning("starter_user_log", path=path, reason=problem)


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
