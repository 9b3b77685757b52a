"""How the negotiator speaks to schedds: request lists come in, matches and rejections go out.

All schedds are spoken to at once. One that does not answer in NEGOTIATOR_TIMEOUT is left out of this cycle; others do
not wait for it that long, neither for what it wants nor for what it says to its matches, and as for one that says much
and slowly, what it has said by then counts. A dead schedd's ads live on for a while, so each cycle would wait for it.

A cycle over 100,000 slots gives one schedd more than one message may carry (`chunks`). The parts go one after the
other, each answered by MatchesTaken for its own matches: their order is the order in which the jobs start.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Collection, Coroutine, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from engine.match.model import Request
from services.negotiator.settings import RequestListSettings
from shared.bus.api import CallTimeout, RemoteFailure
from shared.classad import ClassAd
from shared.daemon.context import Context
from shared.delays import Delay
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

#: Once schedds are done, or one that was not asked makes itself heard, the others have so many seconds for their next
#: words: so many times as long as those needed who are done, for a busy machine makes all of them slow.
LEAST_GRACE_S, GRACE_S, GRACE_FACTOR = 1.0, 5.0, 10.0
#: And so many seconds for all that they have to say.
LAST_WORD_S = 10.0
#: What one that was silent has, until its ads show that it lives, seconds.
SILENT_S = 1.0
#: Of one submitter at one schedd in a cycle: more requests, bytes of their ads, and jobs of one request, wait for the
#: next.
MAX_REQUESTS, MAX_BYTES, MAX_COUNT = 100_000, 64 << 20, 1_000_000


_Said = TypeVar("_Said")


@dataclass(frozen=True, slots=True)
class RequestLists:
    """Request lists by submitter, of all who ask for something; `silent`: inboxes of schedds that did not answer, or
    not to the end."""

    requests: dict[str, list[Request]]
    silent: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class CycleIdentity:
    """The negotiator that speaks, and the cycle in which it does."""

    negotiator: str
    shard: str
    epoch: int
    cycle: int


def grace_s(needed_s: float | None) -> float:
    """For how long the others may be silent. needed_s: what those needed who are done, or where nobody is, what they
    needed of late; None: nobody ever was."""
    return GRACE_S if needed_s is None else min(GRACE_S, max(LEAST_GRACE_S, GRACE_FACTOR * needed_s))


class ScheddClient:
    """Speaks to the schedds of the pool for the active negotiator."""

    def __init__(self, context: Context, settings: RequestListSettings) -> None:
        self.context = context
        self.settings = settings
        self._silent: set[str] = set()  # inboxes
        self._answers = 0  # answers, of whomever
        self._asked: Collection[str] = ()  # inboxes, last
        self._others = 0  # ads of schedds that were not
        self._usual: Delay | None = None  # how long those needed who were done, of late

    def heard(self, inbox: str) -> None:
        """Note that a schedd's ads came: it lives, and is waited for."""
        self._silent.discard(inbox)
        self._others += inbox not in self._asked

    async def fetch_requests(
        self, wanted: Mapping[str, Sequence[str]], identity: CycleIdentity, significant: Sequence[str] = ()
    ) -> RequestLists:
        """What everybody asks for. `wanted`: submitters with idle jobs, by the inbox of their schedd; `significant`:
        attributes of jobs that slots and policies look at. Raises StaleEpoch."""
        lists: dict[str, dict[str, list[Request]]] = {inbox: {} for inbox in wanted}
        whole = await self._in_time(
            {
                inbox: self._ask(inbox, list(names), identity, list(significant), lists[inbox])
                for inbox, names in wanted.items()
            },
            False,
        )
        requests: dict[str, list[Request]] = {}
        for found in lists.values():
            for name, listed in found.items():
                if listed:
                    requests.setdefault(name, []).extend(listed)
        return RequestLists(requests, frozenset(inbox for inbox, all_said in whole.items() if not all_said))

    async def send_all(self, telling: Mapping[str, Coroutine[Any, Any, None]]) -> None:
        """Several `send_decisions`, by inbox. What one that keeps silent does with its matches is not waited for: they
        are given up when nothing is heard of them for a while. Raises StaleEpoch."""
        await self._in_time(telling, None)

    async def _in_time(self, asking: Mapping[str, Coroutine[Any, Any, _Said]], nothing: _Said) -> dict[str, _Said]:
        """What they say, by inbox; `nothing` of those who keep silent while others have answered, or others may wait
        for the next cycle. Raises StaleEpoch."""
        tasks = {asyncio.ensure_future(work): inbox for inbox, work in asking.items()}
        self._asked = asking.keys()
        waiting, heard_before = set(tasks), self._answers + self._others
        now = asyncio.get_running_loop().time
        began, needed, last = now(), None, math.inf  # needed: seconds, of the slowest who is done; last: when that was
        try:
            while waiting:
                answers = self._answers
                usual_s = self._usual.left(now()) if self._usual is not None else None
                patience = grace_s(needed if needed is not None else usual_s)
                done, waiting = await asyncio.wait(waiting, timeout=patience, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    task.result()
                if done:
                    last = now()
                    needed = last - began
                    if self._answers != answers:  # else they only gave up
                        self._usual = (self._usual or Delay()).seen(needed, last)
                silent = self._answers == answers and self._answers + self._others > heard_before
                if not done and (silent or now() - last > LAST_WORD_S):
                    break
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)  # two may say that we lead no more
        for task in waiting:
            self.context.log.warning("schedd_silent", schedd=tasks[task], error="all others were done long before")
            self._silent.add(tasks[task])
        return {inbox: nothing if task in waiting else task.result() for task, inbox in tasks.items()}

    async def _ask(
        self,
        inbox: str,
        names: list[str],
        identity: CycleIdentity,
        significant: list[str],
        found: dict[str, list[Request]],
    ) -> bool:
        """Gather what one schedd's submitters ask for, as far as it answers; whether it did to the end."""
        fetched: dict[str, int] = {}
        sizes: dict[str, int] = {}
        skip: dict[str, int] = {}
        while names:
            question = GetRequests(
                negotiator=identity.negotiator,
                shard=identity.shard,
                epoch=identity.epoch,
                cycle=identity.cycle,
                submitters=names,
                job_constraint=self.settings.job_constraint,
                limit=self.settings.limit,
                counts=self.settings.counts,
                significant=significant,
                skip=skip,
            )
            patience = min(SILENT_S, self.settings.timeout_s) if inbox in self._silent else self.settings.timeout_s
            try:
                answer = await self.context.bus.call(inbox, question, timeout=patience, epoch=identity.epoch)
            except RoostError as error:
                if isinstance(error, CallTimeout):
                    self._silent.add(inbox)
                self.context.log.warning("schedd_silent", schedd=inbox, error=str(error))
                await self._check_lead(error, identity)
                return False
            self._answers += 1
            self._silent.discard(inbox)
            if not isinstance(answer, RequestList):
                self.context.log.warning("schedd_silent", schedd=inbox, error=f"it answered {answer.type}")
                return False
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
        return True

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

    async def send_decisions(
        self,
        inbox: str,
        matches: Sequence[Match],
        rejections: Sequence[Rejection],
        identity: CycleIdentity,
        taken: Callable[[int, int], None],
    ) -> None:
        """Hand a schedd its decisions, in as many messages as they need. `taken(i, n)` is called for each match of
        which it uses `n` jobs; 0 for all that it does not answer for. Raises StaleEpoch."""
        for chunk in chunks(matches, rejections):
            decisions = Matches(
                negotiator=identity.negotiator,
                shard=identity.shard,
                epoch=identity.epoch,
                cycle=identity.cycle,
                matches=list(chunk.matches),
                rejections=list(chunk.rejections),
            )
            try:
                answer = await self.context.bus.call(
                    inbox, decisions, timeout=self.settings.timeout_s, epoch=identity.epoch
                )
            except RoostError as error:
                if isinstance(error, CallTimeout):
                    self._silent.add(inbox)
                left = len(matches) - chunk.first
                self.context.log.warning("matches_not_taken", schedd=inbox, matches=left, error=str(error))
                for index in range(chunk.first, len(matches)):
                    taken(index, 0)
                await self._check_lead(error, identity)
                return
            self._answers += 1
            begun = answer.begun if isinstance(answer, MatchesTaken) else []
            for index, match in enumerate(chunk.matches):
                jobs = begun[index] if index < len(begun) else 0
                taken(chunk.first + index, min(max(0, jobs), match.count))

    async def _check_lead(self, error: RoostError, identity: CycleIdentity) -> None:
        """A schedd says that a newer negotiator is active. Raises StaleEpoch if the store knows of one; else only the
        jobs of that schedd wait, as one that is wrong must not stop the whole pool."""
        if isinstance(error, RemoteFailure) and error.code == "stale-epoch":
            highest = await self.context.store.get(keys.had_epoch(identity.shard))
            if highest is not None and int(highest) > identity.epoch:
                raise StaleEpoch(error.reason) from error


#: Of one message. A slot's ad has some 5 KB, so it is the bytes that count first; brokers take four times as many.
CHUNK_ITEMS: Final = 1_000
CHUNK_BYTES: Final = 4 << 20
#: What an item needs besides its texts: names of fields, lengths, numbers.
_OVERHEAD: Final = 200


@dataclass(frozen=True, slots=True)
class Chunk:
    """first: the index of the first of these matches in all of them."""

    first: int
    matches: tuple[Match, ...]
    rejections: tuple[Rejection, ...] = ()


def chunks(matches: Sequence[Match], rejections: Sequence[Rejection]) -> Iterator[Chunk]:
    """All matches in their order, then all rejections, in as few messages as the bounds allow. An item that is larger
    than a message goes alone. Nothing gives no message. Time O(items)."""
    first = size = 0
    given: list[Match] = []
    refused: list[Rejection] = []
    items: list[Match | Rejection] = [*matches, *rejections]
    for item in items:
        weight = _size(item)
        count = len(given) + len(refused)
        if count and (count == CHUNK_ITEMS or size + weight > CHUNK_BYTES):
            yield Chunk(first, tuple(given), tuple(refused))
            first += len(given)
            given, refused, size = [], [], 0
        if isinstance(item, Match):
            given.append(item)
        else:
            refused.append(item)
        size += weight
    if given or refused:
        yield Chunk(first, tuple(given), tuple(refused))


def _size(item: Match | Rejection) -> int:
    """About how many bytes an item takes in a message, rather too many than too few."""
    size = _OVERHEAD
    for _, value in item:
        if isinstance(value, bytes):
            size += len(value)
        elif isinstance(value, str):
            size += 4 * len(value)
        elif isinstance(value, list):
            size += sum(4 * len(part) + 5 for part in value)
    return size
