"""Events over HTTP, from the gateway's stream: works with every pool, also one whose bus is inside its process.

The gateway keeps the last few thousand events. A consumer that was away, or too slow, goes on after the last id it
took; where that is too long ago it gets what the journal has recorded since, or a Gap where there is no journal.
Where several gateways serve the pool, it leaves one that hangs or is gone for the next. Each has the events in the
order in which they came to it, so the next is asked for some that were told already, and these are left out.
"""

from __future__ import annotations

import asyncio
import json
import logging
import random
import ssl
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, Final
from urllib.parse import urlencode

import aiohttp

from roost import protocol
from roost.consumer.source import Closed, Delivered, Gap, Item, Received, closed_early
from roost.errors import ClientError
from roost.events import event_of
from roost.locate import PoolLocation, tls_context
from shared.backoff import Backoff
from shared.messages.base import new_id

LOG = logging.getLogger("roost.consumer")
FIRST_PAUSE_S: Final = 0.2
LONGEST_PAUSE_S: Final = 10.0
#: The gateway says at least every 15 s that there is nothing new.
SILENCE_S: Final = 60.0
#: A gateway of several that gives no answer so many times, one after the other, is left.
LOOKS: Final = 2
MAX_EVENT_BYTES: Final = 64 << 20
#: Ids of events that came last: what the journal and the stream both tell is told once.
REMEMBERED: Final = 20_000
#: The ids of different daemons are ordered as well as their clocks are.
SKEW_S: Final = 10.0
#: The journal has an event a moment after the gateway has it.
JOURNAL_LAG_S: Final = 1.5
JOURNAL_PAGE: Final = 1000
#: How long a page may take, before the gap is told as one.
JOURNAL_WAIT_S = 15.0


class HttpSource:
    """find: where the pool is, asked again before every connection. patterns: shell patterns of types, none: all.
    before: ids of the events that were taken last. taken: called with the id of each event that was. began: called
    with a made-up id that stands for the moment when it listened first. ahead: how many
    events are read before they are asked for. patience_s: how long the first connection may take."""

    buries = False

    def __init__(
        self,
        find: Callable[[], PoolLocation],
        patterns: list[str],
        *,
        before: Sequence[str] = (),
        taken: Callable[[str], None] = lambda _: None,
        began: Callable[[str], None] = lambda _: None,
        ahead: int = 100,
        patience_s: float = 30.0,
    ) -> None:
        self._find = find
        self._patterns = patterns
        self._after = before[-1] if before else ""  # of the last event that was read
        self._taken = taken
        self._began = began
        self._patience_s = patience_s
        self._waiting: asyncio.Queue[Item | BaseException] = asyncio.Queue(max(1, ahead))
        self._seen: OrderedDict[str, None] = OrderedDict.fromkeys(before)
        self._opened = asyncio.Event()
        self._reader: asyncio.Task[None] | None = None
        self._session: aiohttp.ClientSession | None = None
        self._trouble = "its start"
        self._url = ""
        self._turn = 0  # which of several gateways
        self._closed = False

    @property
    def connected(self) -> bool:
        return not self._trouble

    @property
    def waiting_for(self) -> str:
        return self._trouble

    async def open(self) -> None:
        # The kernel's buffers should not hold minutes of events of a consumer that does not read.
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=10.0, sock_read=SILENCE_S)
        self._session = aiohttp.ClientSession(timeout=timeout)
        self._reader = asyncio.get_running_loop().create_task(self._read(), name="consumer:http")
        opened = asyncio.ensure_future(self._opened.wait())
        try:
            await asyncio.wait({opened, self._reader}, timeout=self._patience_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            opened.cancel()
        if self._opened.is_set():
            return
        trouble = self._trouble
        failed = self._reader.exception() if self._reader.done() and not self._reader.cancelled() else None
        await self.close()
        raise closed_early(failed) if failed else ClientError(trouble, "unavailable", retryable=True)

    async def next(self) -> Delivered:
        if self._closed:
            raise Closed
        item = await self._waiting.get()
        if isinstance(item, BaseException):
            if not self._closed:
                self._waiting.put_nowait(item)  # for whoever asks again
            raise item
        return Delivered(item, lambda _: self._taken(item.id) if isinstance(item, Received) else None)

    async def close(self) -> None:
        self._closed = True
        reader, self._reader = self._reader, None
        if reader is not None:
            reader.cancel()
            await asyncio.gather(reader, return_exceptions=True)
        session, self._session = self._session, None
        if session is not None:
            await session.close()
        self._trouble = "closed"
        while not self._waiting.empty():
            self._waiting.get_nowait()
        self._waiting.put_nowait(Closed())

    # Reading

    async def _read(self) -> None:
        try:
            await self._follow_for_ever()
        except asyncio.CancelledError:
            raise
        except Exception as error:
            if self._opened.is_set():
                await self._waiting.put(closed_early(error))
            raise

    async def _follow_for_ever(self) -> None:
        backoff = Backoff(FIRST_PAUSE_S, LONGEST_PAUSE_S, jitter=random.uniform)
        while True:
            try:
                if await self._follow():
                    backoff.reset()
                self._trouble = "a new connection: the gateway ended the stream"
            except ClientError as error:
                if not error.retryable:
                    raise
                self._trouble = str(error)
            except (aiohttp.ClientError, OSError, TimeoutError) as error:
                self._trouble = f"the gateway: {protocol.why(self._url, error)}"
            LOG.info("consumer waits for %s", self._trouble)
            self._turn += 1
            await asyncio.sleep(backoff.next_s())

    async def _follow(self) -> bool:
        """One connection, to its end. Returns whether anything came over it. Raises ClientError where the gateway
        refuses it, and what aiohttp raises."""
        assert self._session is not None
        where, several = self._where()
        self._after = self._told_by_all(where.url)
        self._url = where.url
        query = urlencode({"type": self._patterns, "after": self._after}, doseq=True)
        came = False
        async with (
            _watched(self._session, where, several),
            self._session.get(
                f"{where.url}/v1/events?{query}", headers={"Authorization": f"Bearer {where.token}"}, ssl=_way(where)
            ) as response,
        ):
            if response.status != 200:
                raise await _refusal(response)
            async for name, ident, data in _frames(response):
                if not name and not data:  # a comment: we are among the listeners, or nothing has happened
                    if not self._after:
                        # Should the connection be lost before the first event, it is known where to go on.
                        self._after = new_id()
                        self._began(self._after)
                    self._trouble = ""
                    self._opened.set()
                    continue
                came = True
                if ident:
                    await self._offer(_received(name, ident, data))
                elif name == "gap":
                    await self._fill(where, str(json.loads(data)))
                else:  # the stream's last words: too slow (overflow), or a token that is over (ended)
                    LOG.info("the gateway ends the stream after event %s: %s", self._after, data.decode())
        return came

    def _told_by_all(self, url: str) -> str:
        """The event to go on after. With another gateway than the last, one before which it had all that we have."""
        last = time_of(self._after)
        if not self._url or self._url == url or not last:
            return self._after
        return next((one for one in reversed(self._seen) if 0.0 < time_of(one) < last - SKEW_S), self._after)

    def _where(self) -> tuple[PoolLocation, bool]:
        """The gateway to follow now, and whether there are others."""
        try:
            where = self._find()
            urls = (where.url, *where.others)
            return replace(where, url=urls[self._turn % len(urls)]), len(urls) > 1
        except ClientError as error:
            # The personal pool's file is not there while it is down.
            raise ClientError(str(error), error.code, retryable=self._opened.is_set()) from error

    async def _offer(self, got: Received) -> None:
        if got.id in self._seen:
            return
        await self._waiting.put(got)
        self._after = got.id
        self._seen[got.id] = None
        if len(self._seen) > REMEMBERED:
            self._seen.popitem(last=False)

    # What was missed

    async def _fill(self, where: PoolLocation, reason: str) -> None:
        """Events since the last one from the journal; a Gap where it has none to give."""
        after = self._after
        since = time_of(after)
        # What was sent before the first event that we know of was taken long ago, or before we began.
        first = next(iter(self._seen), after)
        try:
            if not since:
                raise ClientError("the id of the last event tells no time", "bad-request")
            start = since - SKEW_S
            for last in (False, True):
                if last:
                    await asyncio.sleep(JOURNAL_LAG_S)
                async for got in self._recorded(where, start):
                    start = max(start, got.at)
                    if got.id > first:
                        await self._offer(got)
                start = max(since - SKEW_S, start - SKEW_S)
        except (ClientError, aiohttp.ClientError, OSError, TimeoutError, ValueError, KeyError) as error:
            LOG.info("no journal filled a gap: %s", error)
            await self._waiting.put(Gap(reason, after))

    async def _recorded(self, where: PoolLocation, start: float) -> AsyncIterator[Received]:
        assert self._session is not None
        query: dict[str, Any] = {"from": start, "limit": JOURNAL_PAGE}
        if len(self._patterns) == 1:
            query["type"] = self._patterns[0]
        while True:
            async with self._session.get(
                f"{where.url}/v1/journal/events?{urlencode(query)}",
                headers={"Authorization": f"Bearer {where.token}"},
                timeout=aiohttp.ClientTimeout(total=JOURNAL_WAIT_S),
                ssl=_way(where),
            ) as response:
                if response.status != 200:
                    raise await _refusal(response)
                page = await response.json()
            for body in page["events"]:
                yield _received(str(body["type"]), str(body["id"]), json.dumps(body).encode(), recorded=True)
            if not page.get("next"):
                return
            query["after"] = page["next"]


def time_of(ident: str) -> float:
    """When an event with this id was sent, seconds since 1970: ids begin with that. 0 for any other text."""
    try:
        return int(ident[:12], 16) / 1000 if len(ident) == 32 else 0.0
    except ValueError:
        return 0.0


def _received(name: str, ident: str, data: bytes, *, recorded: bool = False) -> Received:
    """An event as the gateway and the journal tell it: its fields, and type, sender and maybe version with them. Raises
    ClientError for what is no such thing."""
    try:
        facts: dict[str, Any] = dict(json.loads(data))
        recorded = facts.pop("recorded", False) is True or recorded  # a gateway may have asked the journal itself
    except (TypeError, ValueError) as error:
        raise ClientError(f"the gateway sent no JSON object as event {name!r}: {error}", "bad-answer") from error
    kind, sender, version = str(facts.pop("type", name)), str(facts.pop("sender", "")), facts.pop("tv", None)
    facts.pop("id", None)
    event = event_of(kind, facts, version if isinstance(version, int) else None, data)
    return Received(ident, event, sender, recorded=recorded)


@asynccontextmanager
async def _watched(session: aiohttp.ClientSession, where: PoolLocation, several: bool) -> AsyncIterator[None]:
    """While a stream of one of several gateways is read, the gateway is looked at, as a stream says nothing for long.
    Raises TimeoutError once it does not answer."""

    async def look(limit: asyncio.Timeout) -> None:
        silent = 0
        while silent < LOOKS:
            if not silent:
                await asyncio.sleep(protocol.LOOK_AFTER_S)
            try:
                async with (
                    asyncio.timeout(protocol.LOOK_S),
                    session.request(protocol.LOOK.method, f"{where.url}{protocol.LOOK.path}", ssl=_way(where)),
                ):
                    silent = 0
            except (aiohttp.ClientError, OSError, TimeoutError):
                silent += 1
        limit.reschedule(asyncio.get_running_loop().time())

    async with asyncio.timeout(None) as limit:
        looking = asyncio.create_task(look(limit), name="consumer:look") if several else None
        try:
            yield
        finally:
            if looking is not None:
                looking.cancel()
                await asyncio.gather(looking, return_exceptions=True)


async def _frames(response: aiohttp.ClientResponse) -> AsyncIterator[tuple[str, str, bytes]]:
    """(event, id, data) of a stream of server-sent events; all empty for a comment."""
    rest = b""
    async for chunk in response.content.iter_any():
        rest += chunk
        if len(rest) > MAX_EVENT_BYTES:
            raise ClientError(f"the gateway sent an event of more than {MAX_EVENT_BYTES} bytes", "bad-answer")
        *frames, rest = rest.split(b"\n\n")
        for frame in frames:
            name = ident = ""
            data = b""
            for line in frame.split(b"\n"):
                key, _, value = line.partition(b": ")
                if key == b"event":
                    name = value.decode()
                elif key == b"id":
                    ident = value.decode()
                elif key == b"data":
                    data += value
            yield name, ident, data


def _way(where: PoolLocation) -> ssl.SSLContext | bool:
    """What aiohttp is given as `ssl`: files that were renewed count for the next connection."""
    return tls_context(where.url, where.ca_file) or True


async def _refusal(response: aiohttp.ClientResponse) -> ClientError:
    try:
        error = (await response.json())["error"]
        return ClientError(str(error["message"]), str(error["code"]), bool(error.get("retryable")))
    except (aiohttp.ClientError, ValueError, KeyError, TypeError):
        text = f"the gateway answered {response.status} {response.reason}"
        return ClientError(text, "error", retryable=response.status >= 500)
