"""Finds the pool's daemons and asks them: the collector, schedds, negotiators, the journal."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from shared.backoff import Backoff
from shared.bus.api import Bus, BusUnavailable, CallTimeout, NobodyThere, RemoteFailure
from shared.bus.topology import negotiator_inbox
from shared.classad import ClassAd
from shared.classad.column_page import Sheet, reader
from shared.daemon.clock import Clock
from shared.daemon.readable_ads import checked, of_each
from shared.delays import Delay
from shared.errors import PermanentError, RetryableError, RoostError
from shared.messages.ads import AdPage, QueryAds
from shared.messages.analysis import Analyze
from shared.messages.base import Ack, Message, Person
from shared.messages.journal import INBOX, AskLeaders, JournalAnswer
from shared.messages.negotiation import GetPriorities, Priorities, Reschedule
from shared.messages.queue import Acted, ActOnJobs, JobPage, QueryJobs

#: The inbox that all collectors share.
COLLECTOR: Final = "collector"
#: Seconds without an answer until a question for the collectors, or for the accountant, is asked again, at least.
AGAIN_S: Final = 0.8
#: The same of an analysis, which takes longer where there are many slots.
ANALYZE_AGAIN_S: Final = 3.0
#: Seconds until a negotiator is asked again that does not lead (any more, or not yet), doubled up to the longest.
NOT_LEADER_S, NOT_LEADER_LONGEST_S = 0.1, 0.5
_SCHEDDS_FOR_S = 2.0
_NEGOTIATORS_FOR_S = 2.0
#: Collectors whose own inboxes are remembered.
_MOST_COLLECTORS = 8
#: Ads in one page between the daemons and the gateway.
PAGE = 2000
#: The same of a few attributes, in columns.
PAGE_IN_COLUMNS = 10_000
#: Jobs in columns, of which the next are listed while these are read.
JOBS_IN_COLUMNS = 5000
#: Answered with the totals of a queue, and no job is looked at: there is none of this number.
JOB_TOTALS: Final = QueryJobs(ids=["0.0"], limit=1)
#: Jobs that one message to a schedd acts on.
ACT_PAGE = 10_000


Answer = TypeVar("Answer", bound=Message)
Page = TypeVar("Page", AdPage, JobPage)


class NoSuchDaemon(PermanentError):
    """Nobody of that name is in the pool."""


@contextmanager
def unavailable(nobody: str, silent: str) -> Iterator[None]:
    """Turns what a question raises where nobody takes it, or nobody answers in time, into RemoteFailure "unavailable"
    with these words."""
    try:
        yield
    except NobodyThere as error:
        raise RemoteFailure("unavailable", nobody, True) from error
    except (CallTimeout, BusUnavailable) as error:
        raise RemoteFailure("unavailable", f"{silent}: {error}", True) from error


async def _one_answered(asked: Sequence[asyncio.Future[Message]], wait_s: float | None) -> bool:
    """Whether one has an answer, or all have failed, within that time (None: without end)."""
    loop = asyncio.get_running_loop()
    end = None if wait_s is None else loop.time() + wait_s
    while True:
        waiting = [one for one in asked if not one.done()]
        if not waiting or any(one.exception() is None for one in asked if one.done()):
            return True
        left = None if end is None else max(0.0, end - loop.time())
        if not (await asyncio.wait(waiting, timeout=left, return_when=asyncio.FIRST_COMPLETED))[0]:
            return False


@dataclass(frozen=True, slots=True)
class Schedd:
    name: str
    inbox: str


class AmbiguousDaemon(PermanentError):
    """There are several of them: a name is needed."""


@dataclass(frozen=True, slots=True)
class Negotiator:
    """Those who may lead in one shard; one of them does. names: of their ads, by which people call them."""

    shard: str
    names: frozenset[str]

    @property
    def name(self) -> str:
        """The one to show."""
        return self.shard or min(self.names, default="")

    @property
    def inbox(self) -> str:
        """Served by the one that leads."""
        return negotiator_inbox(self.shard)


class PoolClient:
    """Asks the collector and the daemons, page by page. person: gives whom a question is for."""

    def __init__(
        self,
        bus: Bus,
        clock: Clock,
        default_schedd: str = "",
        person: Callable[[], Person | None] = lambda: None,
    ) -> None:
        self._bus = bus
        self._person = person
        self._clock = clock
        self._default = default_schedd
        self._schedds: list[Schedd] = []
        self._until = float("-inf")
        self._negotiators: list[Negotiator] = []
        self._negotiators_until = float("-inf")
        self._delays: dict[str, Delay] = {}  # of answers, by what was asked
        self._collectors: dict[str, None] = {}  # own inboxes of those that answered, the last one last

    async def schedds(self) -> list[Schedd]:
        """All schedds, by name."""
        if self._clock.monotonic() >= self._until or not self._schedds:
            found = []
            for ad in await self.read_ads(["Scheduler"], projection=["Name", "MyAddress"]):
                name, inbox = ad.plain_string("Name"), ad.plain_string("MyAddress")
                if name and inbox:
                    found.append(Schedd(name, inbox))
            self._schedds = sorted(found, key=lambda s: s.name)
            self._until = self._clock.monotonic() + _SCHEDDS_FOR_S
        return self._schedds

    async def who_knows(self, ids: Sequence[str], schedd: str = "") -> list[Schedd]:
        """The schedds to ask for these jobs (none: for whatever jobs there are): the one of that name, or all. Raises
        NoSuchDaemon; RemoteFailure unavailable where jobs are named and no schedd is known, as in a pool that is
        just starting: nobody can tell whether there are such jobs."""
        if schedd:
            return [await self.schedd(schedd)]
        known = await self.schedds()
        if ids and not known:
            raise RemoteFailure("unavailable", "the pool shows no access point, so nobody can be asked for jobs", True)
        return known

    async def schedd(self, name: str = "") -> Schedd:
        """The schedd of that name, else the configured default, else the first. Raises NoSuchDaemon."""
        known = await self.schedds()
        wanted = name or self._default
        for schedd in known:
            if not wanted or schedd.name == wanted:
                return schedd
        if not name and known:
            return known[0]
        names = ", ".join(s.name for s in known) or "none"
        raise NoSuchDaemon(f"there is no schedd {wanted or 'at all'} in the pool; known: {names}")

    async def negotiators(self) -> list[Negotiator]:
        """All negotiators, by name; those of one shard are one. While the collector is silent, those of the last time:
        their accounting can be asked for without it."""
        if self._clock.monotonic() >= self._negotiators_until:
            try:
                self._negotiators = await self._find_negotiators()
            except RoostError:
                if not self._negotiators:
                    raise
            self._negotiators_until = self._clock.monotonic() + _NEGOTIATORS_FOR_S
        return self._negotiators

    async def _find_negotiators(self) -> list[Negotiator]:
        found: dict[str, set[str]] = {}
        for ad in await self.read_ads(["Negotiator"], projection=["Name", "Shard"]):
            if name := ad.plain_string("Name"):
                found.setdefault(ad.plain_string("Shard"), set()).add(name)
        return sorted((Negotiator(shard, frozenset(names)) for shard, names in found.items()), key=lambda n: n.name)

    async def negotiator(self, name: str = "") -> Negotiator:
        """The negotiator of that name; without one the only one there is (MUL-04). Raises NoSuchDaemon, Ambiguous."""
        known = await self.negotiators()
        listed = ", ".join(n.name for n in known) or "none"
        for negotiator in known:
            if name in negotiator.names:
                return negotiator
        if name:
            raise NoSuchDaemon(f"there is no negotiator {name[:80]} in the pool; known: {listed}")
        if len(known) > 1:
            raise AmbiguousDaemon(f"the pool has several negotiators, each with books of its own: name one ({listed})")
        return known[0] if known else Negotiator("", frozenset())

    async def reschedule(self, name: str, by: str) -> None:
        """A cycle soon, of the negotiator of that name; without one of all of them. All that can be reached have it,
        also where one can not. Raises NoSuchDaemon, and what the first of those said."""
        known = [await self.negotiator(name)] if name else await self.negotiators() or [Negotiator("", frozenset())]
        told = await asyncio.gather(
            *(self.ask_negotiator(one, Reschedule(by=by), Ack) for one in known), return_exceptions=True
        )
        for one, answer in zip(known, told, strict=True):
            if isinstance(answer, BaseException):
                if isinstance(answer, RetryableError) and one.name:
                    raise RetryableError(f"negotiator {one.name} can not be reached: {answer}") from answer
                raise answer

    async def ads(
        self,
        types: Sequence[str],
        *,
        constraint: str = "",
        projection: Sequence[str] = (),
        limit: int = 0,
        absent: bool = False,
    ) -> AsyncIterator[list[bytes]]:
        """Pages of packed ads from the collector."""
        question = QueryAds(
            my_types=list(types), constraint=constraint, projection=list(projection), limit=limit, absent=absent
        )
        async for page in self.pages(question):
            yield page.ads

    async def read_ads(
        self, types: Sequence[str], *, constraint: str = "", projection: Sequence[str] = (), limit: int = 0
    ) -> list[ClassAd]:
        """All of these ads that can be read, in turns of the loop (shared.daemon.readable_ads)."""
        found: list[ClassAd] = []
        async for page in self.ads(types, constraint=constraint, projection=projection, limit=limit):
            found += await of_each(page, checked)
        return found

    def pages(self, question: QueryAds) -> AsyncIterator[AdPage]:
        """The collector's answers, until `question.limit` (0: all)."""
        return self._pages(COLLECTOR, question, AdPage, PAGE_IN_COLUMNS if question.columns else PAGE, 10.0)

    def jobs(self, schedd: Schedd, question: QueryJobs) -> AsyncIterator[JobPage]:
        """Pages of job ads from one schedd, until `question.limit` (0: all)."""
        return self._pages(schedd.inbox, question, JobPage, JOBS_IN_COLUMNS if question.columns else PAGE, 30.0)

    async def job_sheets(
        self,
        schedd: Schedd,
        constraint: str,
        names: Sequence[str],
        *,
        newest: bool = False,
        by: Sequence[str] = (),
    ) -> AsyncIterator[tuple[Sheet, list[ClassAd]]]:
        """What all jobs that fit have under a few names, page by page: in columns, and as ads of a schedd that has no
        columns for them. newest: the newest first; by: counted, see QueryJobs.by."""
        question = QueryJobs(constraint=constraint, projection=list(names), columns=True, newest=newest, by=list(by))
        async for page in self.jobs(schedd, question):
            yield _sheet(page.columns), await of_each(page.ads, checked)
            await asyncio.sleep(0)

    async def ad_sheets(
        self, my_type: str, constraint: str, names: Sequence[str]
    ) -> AsyncIterator[tuple[Sheet, list[bytes]]]:
        """What all ads of a type that fit have under a few names, page by page: in columns, and as packed ads of a
        collector that has no columns."""
        question = QueryAds(my_types=[my_type], constraint=constraint, projection=list(names), columns=True)
        async for page in self.pages(question):
            yield _sheet(page.columns), page.ads
            await asyncio.sleep(0)

    async def _pages(
        self, inbox: str, question: QueryAds | QueryJobs, kind: type[Page], most: int, timeout: float
    ) -> AsyncIterator[Page]:
        after, left = question.after, question.limit
        while True:
            limit = min(left, most) if question.limit else most
            page = await self.ask(inbox, question.model_copy(update={"after": after, "limit": limit}), kind, timeout)
            yield page
            left -= len(page.ads) + page.rows
            if not page.next or (question.limit and left <= 0):
                return
            after = page.next

    async def accounting_ads(
        self, negotiator: Negotiator, submitters: Sequence[str] = (), active_since: float = 0.0
    ) -> AsyncIterator[list[bytes]]:
        """Pages of packed accounting ads of groups and submitters. submitters: only these; active_since: only who used
        something since then (s since 1970)."""
        question = GetPriorities(
            negotiator=negotiator.shard, submitters=list(submitters), active_since=active_since, limit=PAGE
        )
        while True:
            page = await self.ask_negotiator(negotiator, question, Priorities)
            yield page.ads
            if not page.next:
                return
            question = question.model_copy(update={"after": page.next})

    async def ask(self, inbox: str, question: Message, kind: type[Answer], timeout: float = 10.0) -> Answer:
        """One question, and the answer, which is of this kind. Raises what Bus.call raises."""
        if inbox == COLLECTOR:  # they take the questions in turns, and one of them may hang
            known = tuple(self._collectors) if len(self._collectors) > 1 else ()
            answer = await self._ask_again(COLLECTOR, question, timeout, AGAIN_S, COLLECTOR, 3, known)
            if isinstance(answer, AdPage) and answer.collector:
                self._remember(f"{COLLECTOR}.{answer.collector}")
        else:
            answer = await self._bus.call(inbox, question, timeout=timeout, person=self._person())
        assert isinstance(answer, kind)
        return answer

    def _remember(self, inbox: str) -> None:
        self._collectors.pop(inbox, None)
        self._collectors[inbox] = None
        if len(self._collectors) > _MOST_COLLECTORS:
            del self._collectors[next(iter(self._collectors))]

    async def ask_negotiator(
        self, negotiator: Negotiator, question: Message, kind: type[Answer], timeout: float = 10.0
    ) -> Answer:
        """One question for whoever leads, and the answer, which is of this kind. Who has lost the lead refuses it, and
        who takes over does until it has read its books: they are asked again, as whoever refuses has changed nothing.
        What changes nothing is asked again also where nobody answers, since one that hangs may have it.
        Raises what Bus.call raises."""
        loop = asyncio.get_running_loop()
        end = loop.time() + timeout
        backoff = Backoff(NOT_LEADER_S, NOT_LEADER_LONGEST_S)
        while True:
            left = end - loop.time()
            try:
                if isinstance(question, GetPriorities | Analyze):
                    least_s = AGAIN_S if isinstance(question, GetPriorities) else ANALYZE_AGAIN_S
                    answer = await self._ask_again(negotiator.inbox, question, left, least_s, question.type, 6)
                else:
                    answer = await self._bus.call(negotiator.inbox, question, timeout=left, person=self._person())
            except RemoteFailure as error:
                wait_s = backoff.next_s()
                if error.code != "not-leader" or loop.time() + wait_s >= end:
                    raise
                await asyncio.sleep(wait_s)
            else:
                assert isinstance(answer, kind)
                return answer

    async def _ask_again(
        self,
        inbox: str,
        question: Message,
        timeout: float,
        least_s: float,
        what: str,
        most: int,
        second: Sequence[str] = (),
    ) -> Message:
        """What is not answered soon is asked again, up to `most` times in all, which another one of those who serve the
        inbox gets. least_s: how long to wait first, at least; longer where answers to `what` came late. second: who is
        asked the second time, all at once, in place of the inbox: where its servers take turns the hung one might have
        that, too. Raises what Bus.call raises."""
        loop = asyncio.get_running_loop()
        begun = loop.time()
        delay = self._delays.get(what, Delay())
        again_s = min(max(least_s, 3 * delay.left(begun)), timeout)
        asked: list[asyncio.Future[Message]] = []
        try:
            for number in range(most):
                wait_s = None if number == most - 1 else again_s * min(number + 1, 2)
                left = timeout - (loop.time() - begun)
                if asked and left <= again_s:
                    wait_s = None
                else:
                    for one in second if second and number == 1 else (inbox,):
                        asked.append(
                            asyncio.ensure_future(self._bus.call(one, question, timeout=left, person=self._person()))
                        )
                if await _one_answered(asked, wait_s):
                    break
            # Where all have failed, what the first was told.
            answer = next((call for call in asked if call.done() and call.exception() is None), asked[0]).result()
            if len(asked) == 1:  # else it says how long one hung, not how long they need
                self._delays[what] = delay.seen(loop.time() - begun, loop.time())
            return answer
        finally:
            for call_ in asked:
                call_.cancel()
            await asyncio.gather(*asked, return_exceptions=True)

    async def ask_journal(self, question: Message, timeout_s: float) -> dict[str, Any]:
        """The journal's answer; a question may look at a month of a large pool. What is sent to a journal that is off
        or down waits for it on the broker: that is found out within twice JOURNAL_PROBE_S. Raises what Bus.call
        raises."""
        asked = asyncio.ensure_future(self.ask(INBOX, question, JournalAnswer, timeout_s))
        try:
            if not (await asyncio.wait((asked,), timeout=JOURNAL_PROBE_S))[0]:
                try:
                    await self._bus.call(INBOX, AskLeaders(limit=1), timeout=JOURNAL_PROBE_S)
                except CallTimeout:
                    if not asked.done():
                        raise
            return (await asked).data
        finally:
            asked.cancel()

    async def act(
        self, schedds: Sequence[Schedd], order: ActOnJobs, *, ranges: bool = False
    ) -> AsyncIterator[dict[str, str]]:
        """What became of each job, part by part and schedd by schedd; in the end the ids that no schedd knows. At least
        one part comes. ranges: jobs that follow each other may have one key ("12.0-12.4999")."""
        known: set[str] = set()
        unknown: dict[str, str] = {}
        for schedd in schedds:
            after = ""
            while True:
                part = order.model_copy(update={"after": after, "limit": ACT_PAGE, "ranges": True})
                answer = await self.ask(schedd.inbox, part, Acted, timeout=60.0)
                results = dict(answer.results)
                for outcome, rows in answer.ranges.items():
                    for cluster, first, last in rows:
                        if ranges and last > first:
                            results[f"{cluster}.{first}-{cluster}.{last}"] = outcome
                        else:
                            results.update((f"{cluster}.{proc}", outcome) for proc in range(first, last + 1))
                unknown.update((job, text) for job, text in results.items() if text == "not-found")
                told = {job: text for job, text in results.items() if text != "not-found" and job not in known}
                known.update(told)
                yield told
                if not answer.next:
                    break
                after = answer.next
        yield {job: text for job, text in unknown.items() if job not in known}


#: Seconds after which a journal that says nothing is asked whether it answers anything at all.
JOURNAL_PROBE_S: Final = 5.0


def _sheet(columns: bytes) -> Sheet:
    sheet, pages = Sheet(), reader()
    pages.feed(columns)
    for part in pages:
        sheet.add(part)
    return sheet
