"""Answers to Analyze: gathers what the analyst needs, and lets it work in a thread, one question at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence

from services.negotiator.analysis import Analyst, Around, NoSuchSlot, Question, TooSlow
from services.negotiator.pool import Rejected, Request
from shared.classad import ClassAd, PackedError
from shared.classad.expr import Expr
from shared.daemon.ad_rows import BadAd
from shared.daemon.ad_table import AdTable
from shared.daemon.clock import Clock
from shared.messages.analysis import Analysis, Analyze
from shared.messages.base import Failure, Message

#: Questions that wait for their turn; more are sent away.
MOST_WAITING = 8
#: Ads looked through at once on the event loop.
_STEP = 500


class Questions:
    """`ads`: the table of all ads; `owner`: whose a slot of that name is, given the daemon that says so (an ad of
    another does not count)."""

    def __init__(self, clock: Clock, ads: AdTable, owner: Callable[[str, str], str]) -> None:
        self.analyst = Analyst(clock.monotonic)
        self._clock = clock
        self._ads = ads
        self._owner = owner
        self._turn = asyncio.Lock()
        self._waiting = 0

    def remember(self, rejections: Sequence[Rejected]) -> None:
        """What the cycle that just ended said."""
        self.analyst.remember(rejections, self._clock.now())

    async def answer(
        self,
        asked: Analyze,
        *,
        claims: Mapping[str, str],
        pending: Collection[str],
        waking: Collection[str] = (),
        constraint: Expr | None,
        requests: Callable[[], Awaitable[Mapping[str, Sequence[Request]]]],
    ) -> Message:
        """An Analysis, or a Failure. `requests` gives what waits now, and is asked only about slots."""
        try:
            questions = [Question(ClassAd.unpack(job.ad).check(), job.schedd, job.also) for job in asked.jobs]
        except (PackedError, RecursionError) as error:
            return Failure(code="bad-request", reason=f"a job's ad can not be read: {error}")
        if not questions and not asked.machine:
            return Failure(code="bad-request", reason="name jobs, or a slot by `machine`")
        if self._waiting >= MOST_WAITING:
            return Failure(code="busy", reason=f"{MOST_WAITING} others wait for an analysis", retryable=True)
        self._waiting += 1
        try:
            async with self._turn:
                around = Around(self._clock.now(), dict(claims), list(pending), constraint, list(waking))
                ads = await self._slots()
                if questions:
                    work = asyncio.to_thread(self.analyst.jobs, ads, around, questions, asked.machine)
                    return Analysis(jobs=await work)
                waiting = await requests()
                return Analysis(slots=await asyncio.to_thread(self.analyst.slots, ads, around, waiting, asked.machine))
        except NoSuchSlot as error:
            return Failure(code="not-found", reason=str(error))
        except TooSlow as error:
            return Failure(code="too-slow", reason=str(error))
        finally:
            self._waiting -= 1

    async def _slots(self) -> dict[str, bytes]:
        """Packed ads of all slots by name, each as its own startd tells it."""
        found: dict[str, bytes] = {}
        step = 0
        for group in list(self._ads.groups("Machine")):
            for name, row in list(group.rows.items()):
                step += 1
                if step % _STEP == 0:
                    await asyncio.sleep(0)
                try:
                    if self._owner(name, group.daemon) == group.daemon:
                        found[name] = row.packed()
                except BadAd:
                    continue  # the cycle has said so
        return found
