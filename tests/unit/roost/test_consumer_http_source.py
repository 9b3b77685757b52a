"""The HTTP source against a gateway that says what each test wants it to say."""

import asyncio
import json
import time

import pytest
from aiohttp import web

from roost.consumer.http import HttpSource
from roost.consumer.source import Gap, Received
from roost.errors import ClientError
from roost.events import JobRemoved, UnknownEvent
from roost.locate import PoolLocation
from shared.messages.base import new_id

CUT = object()  # the connection breaks


class Gateway:
    """Each connection gets the next script: texts, CUT, or a status to answer with; after the last it stays open."""

    def __init__(self, *scripts, recorded=None):
        self.scripts = list(scripts)
        self.recorded = recorded
        self.asked, self.journal = [], []
        self.hangs, self.looks = False, 0
        self._over = asyncio.Event()

    async def __aenter__(self):
        app = web.Application()
        app.add_routes(
            [
                web.head("/", self._look),
                web.get("/v1/events", self._events),
                web.get("/v1/journal/events", self._journal),
            ]
        )
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.where = PoolLocation(f"http://127.0.0.1:{self._runner.addresses[0][1]}", "secret")
        return self

    async def __aexit__(self, *_):
        self._over.set()
        await self._runner.cleanup()

    async def _events(self, request):
        self.asked.append(dict(request.query))
        assert request.headers["Authorization"] == "Bearer secret"
        script = self.scripts.pop(0) if self.scripts else []
        if isinstance(script, int):
            error = {"code": "x", "message": f"it is {script}", "retryable": script == 503}
            return web.json_response({"error": error}, status=script)
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b": following\n\n")
        for part in script:
            if part is CUT:
                request.transport.abort()
                return response
            await response.write(part if isinstance(part, bytes) else part.encode())
        if self.scripts:
            return response
        await self._over.wait()
        return response

    async def _look(self, _):
        self.looks += 1
        if self.hangs:
            await self._over.wait()
        return web.Response()

    async def _journal(self, request):
        self.journal.append(dict(request.query))
        if self.recorded is None:
            return web.json_response(
                {"error": {"code": "unavailable", "message": "none", "retryable": True}}, status=503
            )
        pages = self.recorded
        position = int(request.query.get("after", 0))
        following = str(position + 1) if position + 1 < len(pages) else None
        return web.json_response({"events": pages[position] if pages else [], "next": following})


def frame(ident, **fields):
    body = {"at": 1.0, "schedd": "ap", "job_id": "1.0", "owner": "a", "reason": "r", **fields}
    return f"id: {ident}\nevent: job.removed\ndata: {json.dumps({'type': 'job.removed', 'sender': 's', **body})}\n\n"


async def take(source, count):
    found = []
    async with asyncio.timeout(60):
        for _ in range(count):
            delivered = await source.next()
            delivered.done("")
            found.append(delivered.item)
    return found


def source_of(gateway, **more):
    return HttpSource(lambda: gateway.where, [], patience_s=30, **more)


async def test_a_connection_that_breaks_is_resumed_after_the_last_event_that_was_read():
    a, b, c = (new_id() for _ in range(3))
    whole = frame(b)
    taken, began = [], []
    async with Gateway([frame(a), whole[:40], CUT], 503, [frame(a), whole, frame(c)]) as gateway:
        source = source_of(gateway, taken=taken.append, began=began.append)
        await source.open()
        found = await take(source, 3)
        await source.close()
    assert [one.id for one in found] == taken == [a, b, c]
    assert [one["after"] for one in gateway.asked] == ["", a, a]
    assert len(began) == 1
    assert began[0] < new_id()


async def test_a_connection_that_breaks_before_the_first_event_goes_on_from_when_it_began():
    a, began = new_id(), []
    async with Gateway([CUT], [frame(a)]) as gateway:
        source = source_of(gateway, began=began.append)
        await source.open()
        assert [one.id for one in await take(source, 1)] == [a]
        await source.close()
    assert [one["after"] for one in gateway.asked] == ["", *began]


async def test_what_is_said_of_the_stream_is_no_event():
    a, b = new_id(), new_id()
    slow = 'event: overflow\ndata: "more than 2000 events were waiting"\n\n'
    over = 'event: ended\ndata: "the token of this stream was changed"\n\n'
    async with Gateway([": quiet\n\n", frame(a), slow], [over], [frame(b)]) as gateway:
        source = source_of(gateway)
        await source.open()
        assert [one.id for one in await take(source, 2)] == [a, b]
        await source.close()
    assert [one["after"] for one in gateway.asked] == ["", a, a]


async def test_a_gap_is_filled_from_a_journal_page_by_page_and_nothing_comes_twice():
    ids = sorted(new_id() for _ in range(6))
    before, last, x, y, live, later = ids
    lost = 'event: gap\ndata: "event is not kept any more"\n\n'

    def told(ident):
        return {
            "id": ident,
            "type": "job.removed",
            "sender": "s",
            "at": 2.0,
            "schedd": "ap",
            "job_id": "1.0",
            "owner": "a",
            "reason": "r",
        }

    pages = [[told(ids[0]), told(last)], [told(x), told(y)], [told(live)]]
    async with Gateway([lost, frame(live), frame(later)], recorded=pages) as gateway:
        source = source_of(gateway, before=[before, last])
        await source.open()
        found = await take(source, 4)
        await source.close()
    assert [(one.id, one.recorded) for one in found] == [(x, True), (y, True), (live, True), (later, False)]
    assert all(isinstance(one.event, JobRemoved) for one in found)
    assert float(gateway.journal[0]["from"]) > 1e9
    assert [one.get("after") for one in gateway.journal[:3]] == [None, "1", "2"]


@pytest.mark.parametrize("pages", [None, [[{"no": "id"}]]])
async def test_a_gap_that_nobody_fills_is_told(pages):
    last, live = new_id(), new_id()
    lost = 'event: gap\ndata: "event is not kept any more"\n\n'
    async with Gateway([lost, frame(live)], recorded=pages) as gateway:
        source = source_of(gateway, before=[last])
        await source.open()
        gap, got = await take(source, 2)
        await source.close()
    assert gap == Gap("event is not kept any more", last)
    assert isinstance(got, Received)


async def test_a_refusal_ends_it_and_garbage_is_told():
    async with Gateway(401) as gateway:
        with pytest.raises(ClientError, match="it is 401"):
            await source_of(gateway).open()
    async with Gateway([frame(new_id())], 403) as gateway:
        source = source_of(gateway)
        await source.open()
        await take(source, 1)
        for _ in range(2):
            with pytest.raises(ClientError, match="it is 403"):
                await source.next()
        await source.close()
    unknown = f'id: {new_id()}\nevent: new.thing\ndata: {{"type": "new.thing", "tv": 3, "x": 1}}\n\n'
    async with Gateway([unknown, f"id: {new_id()}\nevent: x\ndata: [1]\n\n"]) as gateway:
        source = source_of(gateway)
        await source.open()
        (got,) = await take(source, 1)
        assert got.event == UnknownEvent("new.thing", 3, {"x": 1})
        with pytest.raises(ClientError, match="no JSON object"):
            await source.next()
        await source.close()


def both(one, other):
    return PoolLocation(one.where.url, "secret", others=(other.where.url,))


async def test_a_gateway_that_breaks_off_is_left_for_another_and_nothing_is_missed_or_told_twice():
    """The other one had the events in another order."""
    a, b, c = (f"{int((time.time() - 60 + 20 * number) * 1000):012x}{new_id()[12:]}" for number in range(3))
    between = f"{int((time.time() - 21) * 1000):012x}{new_id()[12:]}"
    async with Gateway([frame(a), frame(b), frame(c), CUT]) as one, Gateway([frame(between), frame(c)]) as other:
        source = HttpSource(lambda: both(one, other), [], patience_s=30)
        await source.open()
        found = await take(source, 4)
        await source.close()
    assert [event.id for event in found] == [a, b, c, between]
    assert [asked["after"] for asked in other.asked] == [b]  # which came long before the last


async def test_a_gateway_that_hangs_is_left_for_another():
    a, b = new_id(), new_id()
    async with Gateway([frame(a)]) as one, Gateway([frame(b)]) as other:
        source = HttpSource(lambda: both(one, other), [], patience_s=30)
        await source.open()
        first = await take(source, 1)
        one.hangs = True
        second = await take(source, 1)
        assert source.connected
        await source.close()
    assert [event.id for event in first + second] == [a, b]


async def test_the_only_gateway_is_not_looked_at():
    a = new_id()
    async with Gateway([frame(a)]) as gateway:
        gateway.hangs = True
        source = source_of(gateway)
        await source.open()
        assert [event.id for event in await take(source, 1)] == [a]
        await source.close()
        assert gateway.looks == 0
