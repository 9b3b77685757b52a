"""The negotiator's talk with schedds: request lists in, matches and rejections out.

All schedds are spoken to at once. One that does not answer in NEGOTIATOR_TIMEOUT is left out of this cycle; others do
not wait for it that long, neither for what it wants nor for what it says to its matches. A dead schedd's ads live on
for a while, so each cycle would wait for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Coroutine, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from services.negotiator.chunks import chunks
from services.negotiator.pool import Request
from shared.bus.api import CallTimeout, RemoteFailure
from shared.classad import ClassAd
from shared.daemon.context import Context
from shared.errors import RoostError
from shared.messages.negotiation import (
    GetRequests,
    Match,
    Matches,
    MatchesTaken,
    Rejection,
    RequestList,
    ResourceRequest,
)
from shared.state import keys
from shared.state.api import StaleEpoch

#: Once one schedd has answered, or one that was not asked makes itself heard, the others have this time for their next
#: words, seconds.
GRACE_S = 5.0
#: What one that was silent has, until its ads show that it lives, seconds.
SILENT_S = 1.0
#: Of one submitter at one schedd in a cycle: more requests, bytes of their ads, and jobs of one request, wait for the
#: next.
MAX_REQUESTS, MAX_BYTES, MAX_COUNT = 100_000, 64 << 20, 1_000_000


#: Request lists by submitter, and whether that is all.
_Lists = tuple[dict[str, list[Request]], bool]
_Said = TypeVar("_Said")


@dataclass(frozen=True, slots=True)
class Lists:
    """What every request list is asked with (spec rows NEG-29 to NEG-31)."""

    job_constraint: str = ""  # NEGOTIATOR_JOB_CONSTRAINT
    limit: int = 200  # NEGOTIATOR_RESOURCE_REQUEST_LIST_SIZE
    counts: bool = True  # USE_RESOURCE_REQUEST_COUNTS
    timeout_s: float = 30.0  # NEGOTIATOR_TIMEOUT


@dataclass(frozen=True, slots=True)
class Answers:
    """Request lists by submitter, of all who ask for something; `silent`: inboxes of schedds that did not answer, or
    not to the end."""

    requests: dict[str, list[Request]]
    silent: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Bearings:
    """Who speaks, and in which cycle."""

    negotiator: str
    shard: str
    epoch: int
    cycle: int


class Schedds:
    """The schedds of the pool, as the active negotiator speaks to them."""

    def __init__(self, context: Context, lists: Lists) -> None:
        self.context = context
        self.lists = lists
        self._silent: set[str] = set()  # inboxes
        self._words = 0  # answers, of whomever
        self._asked: Collection[str] = ()  # inboxes, last
        self._others = 0  # ads of schedds that were not

    def heard(self, inbox: str) -> None:
        """A schedd's ads came: it lives, and is waited for."""
        self._silent.discard(inbox)
        self._others += inbox not in self._asked

    async def requests(
        self, wanted: Mapping[str, Sequence[str]], bearings: Bearings, significant: Sequence[str] = ()
    ) -> Answers:
        """What everybody asks for. `wanted`: submitters with idle jobs, by the inbox of their schedd; `significant`:
        attributes of jobs that slots and policies look at. Raises StaleEpoch."""
        answers = await self._in_time(
            {inbox: self._ask(inbox, list(names), bearings, list(significant)) for inbox, names in wanted.items()},
            ({}, False),
        )
        requests: dict[str, list[Request]] = {}
        for found, _ in answers.values():
            for name, listed in found.items():
                if listed:
                    requests.setdefault(name, []).extend(listed)
        return Answers(requests, frozenset(inbox for inbox, (_, whole) in answers.items() if not whole))

    async def tell_all(self, telling: Mapping[str, Coroutine[Any, Any, None]]) -> None:
        """Several `tell`, by inbox. What one that keeps silent does with its matches is not waited for: they are given
        up when nothing is heard of them for a while. Raises StaleEpoch."""
        await self._in_time(telling, None)

    async def _in_time(self, asking: Mapping[str, Coroutine[Any, Any, _Said]], nothing: _Said) -> dict[str, _Said]:
        """What they say, by inbox; `nothing` of those who keep silent while others have answered, or others may wait
        for the next cycle. Raises StaleEpoch."""
        tasks = {asyncio.ensure_future(work): inbox for inbox, work in asking.items()}
        self._asked = asking.keys()
        waiting, began = set(tasks), self._words + self._others
        try:
            while waiting:
                before = self._words
                done, waiting = await asyncio.wait(waiting, timeout=GRACE_S, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    task.result()
                if not done and self._words == before and self._words + self._others > began:
                    break
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)  # two may say that we lead no more
        for task in waiting:
            self.context.log.warning("schedd_silent", schedd=tasks[task], error=f"no word for {GRACE_S:g} s")
            self._silent.add(tasks[task])
        return {inbox: nothing if task in waiting else task.result() for task, inbox in tasks.items()}

    async def _ask(self, inbox: str, names: list[str], bearings: Bearings, significant: list[str]) -> _Lists:
        """What one schedd's submitters ask for, as far as it answers, and whether it did to the end."""
        found: dict[str, list[Request]] = {}
        fetched: dict[str, int] = {}
        sizes: dict[str, int] = {}
        skip: dict[str, int] = {}
        while names:
            question = GetRequests(
                negotiator=bearings.negotiator,
                shard=bearings.shard,
                epoch=bearings.epoch,
                cycle=bearings.cycle,
                submitters=names,
                job_constraint=self.lists.job_constraint,
                limit=self.lists.limit,
                counts=self.lists.counts,
                significant=significant,
                skip=skip,
            )
            patience = min(SILENT_S, self.lists.timeout_s) if inbox in self._silent else self.lists.timeout_s
            try:
                answer = await self.context.bus.call(inbox, question, timeout=patience, epoch=bearings.epoch)
            except RoostError as error:
                if isinstance(error, CallTimeout):
                    self._silent.add(inbox)
                self.context.log.warning("schedd_silent", schedd=inbox, error=str(error))
                await self._check_lead(error, bearings)
                return found, False
            self._words += 1
            self._silent.discard(inbox)
            if not isinstance(answer, RequestList):
                self.context.log.warning("schedd_silent", schedd=inbox, error=f"it answered {answer.type}")
                return found, False
            came = any(answer.requests.values())
            asked, names = names, []
            for name in asked:
                listed = answer.requests.get(name, ())
                fetched[name] = fetched.get(name, 0) + len(listed)
                sizes[name] = sizes.get(name, 0) + sum(len(one.ad) for one in listed)
                found.setdefault(name, []).extend(self._readable(inbox, listed))
                # Lists of which nothing came may have more when others leave room; if nothing came at all, never.
                if came and name in answer.more and fetched[name] < MAX_REQUESTS and sizes[name] < MAX_BYTES:
                    names.append(name)
            skip = {name: fetched[name] for name in names}
        return found, True

    def _readable(self, inbox: str, listed: Iterable[ResourceRequest]) -> Iterator[Request]:
        """Requests of a schedd that can be read."""
        for one in listed:
            try:
                ad = ClassAd.unpack(one.ad).check()
            except (ValueError, RecursionError) as error:
                job = one.first_job[:40]
                self.context.log.warning("request_unreadable", schedd=inbox, job_id=job, error=str(error))
                continue
            if one.count > 0:
                yield Request(inbox, one.autocluster, min(one.count, MAX_COUNT), ad)

    async def tell(
        self,
        inbox: str,
        matches: Sequence[Match],
        rejections: Sequence[Rejection],
        bearings: Bearings,
        taken: Callable[[int, int], None],
    ) -> None:
        """Hand a schedd its decisions, in as many messages as they need. `taken(i, n)` is called for each match of
        which it uses `n` jobs; 0 for all that it does not answer for. Raises StaleEpoch."""
        for chunk in chunks(matches, rejections):
            decisions = Matches(
                negotiator=bearings.negotiator,
                shard=bearings.shard,
                epoch=bearings.epoch,
                cycle=bearings.cycle,
                matches=list(chunk.matches),
                rejections=list(chunk.rejections),
            )
            try:
                answer = await self.context.bus.call(
                    inbox, decisions, timeout=self.lists.timeout_s, epoch=bearings.epoch
                )
            except RoostError as error:
                if isinstance(error, CallTimeout):
                    self._silent.add(inbox)
                left = len(matches) - chunk.first
                self.context.log.warning("matches_not_taken", schedd=inbox, matches=left, error=str(error))
                for index in range(chunk.first, len(matches)):
                    taken(index, 0)
                await self._check_lead(error, bearings)
                return
            self._words += 1
            begun = answer.begun if isinstance(answer, MatchesTaken) else []
            for index, match in enumerate(chunk.matches):
                jobs = begun[index] if index < len(begun) else 0
                taken(chunk.first + index, min(max(0, jobs), match.count))

    async def _check_lead(self, error: RoostError, bearings: Bearings) -> None:
        """A schedd says that a newer negotiator is active. Raises StaleEpoch if the store knows of one; else only the
        jobs of that schedd wait, as one that is wrong must not stop the whole pool."""
        if isinstance(error, RemoteFailure) and error.code == "stale-epoch":
            highest = await self.context.store.get(keys.had_epoch(bearings.shard))
            if highest is not None and int(highest) > bearings.epoch:
                raise StaleEpoch(error.reason) from error
