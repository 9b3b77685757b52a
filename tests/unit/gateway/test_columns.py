"""Pages in columns pass through the gateway as they are; a collector without them, and clients that did not ask, are
answered with packed ads (COL-05)."""

import asyncio

import msgpack
import pytest
from fastapi import Request

from services.gateway.pool_client import PAGE_IN_COLUMNS, PoolClient
from services.gateway.serialization import column_response, wants_columns
from shared.bus.api import RemoteFailure
from shared.bus.memory import MemoryBus, MemoryHub
from shared.classad import ClassAd
from shared.classad.column_page import Sheet, page, reader
from shared.daemon.clock import SystemClock
from shared.messages.ads import AdPage, QueryAds
from shared.messages.base import Failure

ADS = [ClassAd({"Name": f"slot{number}", "SlotID": number}) for number in range(10)]


class Collector:
    """Gives at most four ads a page, in columns if it knows these and is asked for them."""

    def __init__(self, *, columns):
        self.columns = columns
        self.asked = []
        self.refused = False
        self.twice = asyncio.Event()

    async def answer(self, envelope):
        body = envelope.body
        self.asked.append(body)
        if len(self.asked) == 2:
            self.twice.set()
        if self.refused:
            return Failure(code="bad-request", reason="constraint: no")
        start = int(body.after or 0)
        ads = ADS[start : start + min(body.limit, 4)]
        end = start + len(ads)
        following = str(end) if end < len(ADS) else ""
        if not (self.columns and body.columns):
            return AdPage(ads=[ad.pack() for ad in ads], next=following)
        cells = [("Name", [ad["Name"] for ad in ads]), ("SlotID", [ad["SlotID"] for ad in ads])]
        return AdPage(ads=[], next=following, columns=page(len(ads), cells), rows=len(ads))


@pytest.fixture
async def pool():
    hub = MemoryHub()
    served, asking = MemoryBus(hub, sender="collector.cm"), MemoryBus(hub, sender="gateway.g")
    await served.start()
    await asking.start()

    async def with_collector(collector):
        await served.serve("collector", collector.answer)
        return PoolClient(asking, SystemClock())

    yield with_collector
    await asking.stop()
    await served.stop()


def question(limit=0):
    return QueryAds(my_types=["Machine"], projection=["Name", "SlotID"], limit=limit, columns=True)


@pytest.mark.parametrize("knows", [True, False])
@pytest.mark.parametrize("limit", [0, 1, 4, 6])
async def test_all_pages_come_whatever_their_form(pool, knows, limit):
    collector = Collector(columns=knows)
    view = await pool(collector)
    response = await column_response(view.pages(question(limit)))
    assert response.media_type == "application/x-msgpack"
    sheet, found = Sheet(), reader()
    forms = set()
    async for data in response.body_iterator:
        found.feed(data)
        for one in found:
            forms.add(type(one))
            sheet.add(one)
    assert list(sheet) == (ADS[:limit] if limit else ADS)
    assert forms == {dict if knows else list}
    assert collector.asked[0].limit == (limit or PAGE_IN_COLUMNS)


async def test_the_next_page_is_asked_for_while_one_is_sent(pool):
    collector = Collector(columns=True)
    view = await pool(collector)
    response = await column_response(view.pages(question()))
    pages = response.body_iterator
    await anext(pages)
    async with asyncio.timeout(30):
        await collector.twice.wait()
    await pages.aclose()  # the client has gone: nobody is left who asks (the fixture's bus would tell)
    assert len(collector.asked) == 2


async def test_a_refused_question_is_refused_before_the_answer_begins(pool):
    collector = Collector(columns=True)
    collector.refused = True
    view = await pool(collector)
    with pytest.raises(RemoteFailure, match="constraint: no"):
        await column_response(view.pages(question()))


async def test_packed_ads_are_what_others_get(pool):
    view = await pool(Collector(columns=True))
    found = [ad async for ads in view.ads(["Machine"], projection=["Name"]) for ad in ads]
    assert [msgpack.unpackb(ad)["Name"] for ad in found] == [ad["Name"] for ad in ADS]


@pytest.mark.parametrize(
    ("accept", "wants"),
    [
        ("application/x-msgpack; columns=1", True),
        ("application/x-msgpack;columns=1", True),
        ("application/x-msgpack", False),
        ("application/json; columns=1", False),
        ("application/x-msgpack; columns=2", False),
        ("", False),
    ],
)
def test_who_wants_columns_says_so(accept, wants):
    headers = [(b"accept", accept.encode())] if accept else []
    assert wants_columns(Request({"type": "http", "headers": headers})) is wants
