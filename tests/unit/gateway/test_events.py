import asyncio
import json
from itertools import chain

import pytest

from services.gateway import told_events
from services.gateway.events import BUFFER, BUFFER_BYTES, EventStream, Listener, Overflow, Quiet, sse
from services.gateway.routes.events import told_before
from services.gateway.told_events import KEPT, KEPT_BYTES, MOST_BYTES, MOST_TEXT
from shared.messages.base import Envelope
from shared.messages.events import PriorityChanged
from tests.loop_meter import measured


def event(number: int) -> Envelope:
    body = PriorityChanged(at=number, submitter=f"u{number}", what="factor", value=1.0, by="x")
    return Envelope(body, id=f"{number:032x}")  # in order of time, as ids are


async def fill(events: EventStream, count: int) -> list[Envelope]:
    newest = next(events._kept.newest_first(), None)
    first = newest.envelope.body.at + 1 if newest else 0
    made = [event(int(first) + n) for n in range(count)]
    for envelope in made:
        await events.on_event(envelope)
    return made


async def read(following, count: int) -> list[str]:
    return [(await anext(following)).id for _ in range(count)]


async def test_every_listener_gets_every_event_from_now_on():
    events = EventStream()
    await fill(events, 3)
    one, two = events.follow([]), events.follow(["accountant.*"])
    other = events.follow(["job.*"])
    made = await fill(events, 4)
    assert await read(one, 4) == await read(two, 4) == [e.id for e in made]
    assert other._queue.empty()
    for following in (one, two, other):
        following.close()
    assert events.listeners == 0


async def test_an_event_that_its_sender_repeats_is_told_once():
    """A daemon says again what a broker that died may not have passed on, under the same id."""
    events = EventStream()
    following = events.follow([])
    for envelope in [event(1), event(2), event(1), event(2), event(3)]:
        await events.on_event(envelope)
    assert await read(following, 3) == [event(number).id for number in (1, 2, 3)]
    assert following._queue.empty()
    for number in range(4, KEPT + 10):
        await events.on_event(event(number))
    again = events.follow([])
    await events.on_event(event(1))  # forgotten by now: it is told
    await events.on_event(event(KEPT + 9))
    assert await read(again, 1) == [event(1).id]
    assert again._queue.empty()
    following.close()
    again.close()


async def test_a_full_buffer_is_sent_without_silencing_the_gateway():
    events = EventStream()
    following = events.follow([])
    await fill(events, BUFFER)
    await check_sending(events, following, BUFFER)


async def test_large_events_are_sent_without_silencing_the_gateway():
    """A megabyte of JSON takes a millisecond or two to write: fewer are sent together."""
    events, count = EventStream(), 60
    following = events.follow([])
    for number in range(count):
        body = PriorityChanged(at=number, submitter="u", what="factor", value=1.0, by="\u00e9" * 200_000)
        await events.on_event(Envelope(body, id=f"{number:032x}"))
    await check_sending(events, following, count)


def large(number: int, text: str) -> Envelope:
    """One that came in so many bytes, or more."""
    body = PriorityChanged(at=number, submitter="u", what="factor", value=1.0, by=text)
    return Envelope(body, "negotiator.a", id=f"{number:032x}", size=len(text.encode()))


@pytest.mark.parametrize("text", ["x" * (MOST_BYTES + 1), "\0" * (MOST_TEXT // 6 + 1)], ids=["bytes", "json"])
async def test_a_large_event_is_told_with_its_long_parts_cut(text):
    """To write all of it would hold the loop; the next listener, and who comes back, gets as little."""
    events = EventStream()
    following = events.follow([])
    await events.on_event(large(1, text))
    told = await anext(following)
    assert json.loads(events.text(told)) == {
        "type": "accountant.changed",
        "sender": "negotiator.a",
        "at": 1.0,
        "submitter": "u",
        "what": "factor",
        "value": 1.0,
        "until": 0.0,
        "by": text[:1000],
        "cut": ["by"],
    }
    assert len(events.line(told)) < 7000
    (again,) = events.latest([], 5)
    assert again == (told.id, events.text(told))
    following.close()


async def test_the_largest_that_is_told_whole_is():
    events = EventStream()
    following = events.follow([])
    await events.on_event(large(1, "x" * MOST_BYTES))
    assert json.loads(events.text(await anext(following)))["by"] == "x" * MOST_BYTES
    following.close()


async def test_what_is_kept_and_waits_is_bounded_in_bytes():
    events = EventStream()
    following = events.follow([])
    many = 2 * KEPT_BYTES // MOST_BYTES
    text = "x" * (MOST_BYTES - 1000)
    for number in range(many):
        await events.on_event(large(number, text))
    kept = list(events._kept.newest_first())
    assert kept[0].id == f"{many - 1:032x}"
    assert KEPT_BYTES - MOST_BYTES < sum(told.size for told in kept) <= KEPT_BYTES
    assert len(events._kept._ids) == len(kept)
    got = [(await anext(following)).size for _ in range(following._queue.qsize())]
    assert BUFFER_BYTES - MOST_BYTES < sum(got) <= BUFFER_BYTES
    with pytest.raises(Overflow, match="16 MiB"):
        await anext(following)
    following.close()
    again = events.follow([], f"{many - 3:032x}")
    assert await read(again, 2) == [f"{many - 2:032x}", f"{many - 1:032x}"]
    again.close()


async def test_what_is_written_once_for_all_is_bounded(monkeypatch):
    monkeypatch.setattr(told_events, "WRITTEN", 5000)
    events = EventStream()
    await fill(events, 100)
    for told in events._kept.newest_first():
        events.text(told)
    assert sum(map(len, events._texts._texts.values())) == events._texts._characters <= 5000
    assert len(events._texts._texts) > 10


async def check_sending(events: EventStream, following: Listener, count: int) -> None:
    async def send() -> int:
        sent = 0
        async for one in following:
            sent += b"".join(map(events.line, chain((one,), following.more()))).count(b"\n\n")
            if sent == count:
                return sent
        return 0

    with measured() as held:
        assert await asyncio.create_task(send()) == count
    assert held.callbacks > 2
    assert held.longest_s < 0.05, held.worst
    following.close()


async def test_thousands_of_events_of_the_journal_are_sent_without_silencing_the_gateway():
    found = [(f"{number:032x}", {"type": "job.started", "words": ["x"] * 50}) for number in range(20_000)]

    async def backfill(after: str, until: str):
        return found

    events = EventStream(backfill)
    following = events.follow([], "an event that nobody keeps")

    async def send() -> int:
        return sum([len(sse(*told)) > 0 async for told in told_before(events, following, "it")])

    with measured() as held:
        assert await asyncio.create_task(send()) == len(found)
    assert held.longest_s < 0.05, held.worst
    following.close()


async def test_a_listener_goes_on_after_the_event_it_saw_last():
    events = EventStream()
    made = await fill(events, 10)
    following = events.follow([], made[6].id)
    more = await fill(events, 1)
    assert await read(following, 4) == [e.id for e in (*made[7:], *more)]
    assert following.gap == ""


async def test_who_asks_for_what_is_not_kept_is_told_of_the_gap():
    events = EventStream()
    made = await fill(events, KEPT + 5)
    following = events.follow([], made[2].id)
    assert made[2].id in following.gap
    assert await read(following, 3) == [e.id for e in made[5:8]]


async def test_a_slow_listener_overflows_without_a_gap_before_it():
    events = EventStream()
    following = events.follow([])
    made = await fill(events, BUFFER + 10)
    assert await read(following, 5) == [e.id for e in made[:5]]
    made += await fill(events, 5)  # there is room again, but these would come after a gap
    assert await read(following, BUFFER - 5) == [e.id for e in made[5:BUFFER]]
    with pytest.raises(Overflow):
        await anext(following)
    again = events.follow([], made[BUFFER - 1].id)
    assert await read(again, 15) == [e.id for e in made[BUFFER:]]
    assert again.gap == ""


async def test_a_long_way_back_is_read_in_several_turns():
    events = EventStream()
    made = await fill(events, KEPT)
    seen = [made[0].id]
    for _ in range(KEPT // BUFFER + 1):
        following = events.follow([], seen[-1])
        try:
            while len(seen) < KEPT:
                seen.append((await anext(following)).id)
        except Overflow:
            pass
        following.close()
    assert seen == [e.id for e in made]


async def test_silence_is_told(monkeypatch):
    monkeypatch.setattr("services.gateway.events.QUIET_S", 0.01)
    events = EventStream()
    following = events.follow([])
    assert isinstance(await anext(following), Quiet)
    (made,) = await fill(events, 1)
    assert (await asyncio.wait_for(anext(following), 5)).envelope == made
