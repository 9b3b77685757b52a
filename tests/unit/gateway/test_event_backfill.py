"""A listener who was away for longer than the gateway keeps events, with a journal and without one."""

import pytest

from services.gateway.events import EventStream, JournalBackfill, published
from services.gateway.told_events import KEPT
from shared.bus.api import NobodyThere
from shared.messages.base import Envelope
from shared.messages.events import PriorityChanged
from shared.messages.journal import JournalAnswer
from shared.operations import Level


def ident(number):
    return f"{1_763_820_000_000 + number:012x}" + "7" + "0" * 19


def event(number):
    return Envelope(
        PriorityChanged(at=number, submitter=f"u{number}", what="factor", value=1.0, by="x"), id=ident(number)
    )


class Journal:
    """Keeps events from number `first` on."""

    def __init__(self, count, first=0, kind="accountant.changed"):
        self.events = [
            {"id": ident(n), "type": kind, "sender": "s", "at": 1_763_820_000 + n / 1000, "submitter": f"u{n}"}
            for n in range(first, count)
        ]
        self.asked = 0

    async def call(self, inbox, question, *, timeout):
        assert inbox == "journal"
        self.asked += 1
        start = int(question.after or 0)
        page = self.events[start : start + question.limit]
        more = start + question.limit < len(self.events)
        assert question.end == 0 or question.start < question.end
        return JournalAnswer(data={"events": page, "next": str(start + question.limit) if more else None})


class Nobody:
    async def call(self, inbox, question, *, timeout):
        raise NobodyThere("no journal")


async def resumed(journal, after, *, level=Level.ADMINISTRATOR, patterns=(), live=KEPT + 2500):
    """The ids that a listener gets who saw `after` last, of so many events."""
    events = EventStream(JournalBackfill(journal))
    for number in range(live):
        await events.on_event(event(number))
    following = events.follow(list(patterns), ident(after), level=level)
    first = [one for one, _, _ in await events.before(following, ident(after))]
    return first, following


async def test_what_is_not_kept_comes_from_the_journal():
    journal = Journal(KEPT + 2500)
    first, following = await resumed(journal, 100)
    assert following.gap == ""
    assert first == [ident(n) for n in range(101, 2500)]
    assert (await anext(following)).id == ident(2500)  # and from there on from here: nothing twice, nothing missing
    assert journal.asked > 1  # in pages


async def test_what_was_published_in_one_millisecond_is_in_the_journals_order():
    """The rest of an id is random."""
    journal = Journal(3)
    base = journal.events[0]["id"][:13]
    for row, tail in zip(journal.events, ("b", "c", "a"), strict=True):
        row["id"] = base + tail * 19
    found = await JournalBackfill(journal)(journal.events[0]["id"], "")
    assert [one for one, _ in found] == [base + "c" * 19, base + "a" * 19]


async def test_what_happens_meanwhile_is_told_once():
    """A gateway that has just started keeps nothing; the journal may know what comes in live too."""
    journal = Journal(30)
    events = EventStream(JournalBackfill(journal))
    following = events.follow([], ident(10))
    plain = journal.call

    async def slow(*arguments, **more):
        for number in range(25, 32):
            await events.on_event(event(number))
        return await plain(*arguments, **more)

    journal.call = slow
    first = [one for one, _, _ in await events.before(following, ident(10))]
    live = [(await anext(following)).id for _ in range(7)]
    assert [*first, *live] == [ident(n) for n in range(11, 32)]


async def test_filters_and_levels_hold_for_older_events_too():
    first, _ = await resumed(Journal(KEPT + 2500), 2000, patterns=["job.*"])
    assert first == []
    secret = Journal(KEPT + 2500, kind="gateway.audit")
    assert (await resumed(secret, 2000, level=Level.WRITE))[0] == []
    assert len((await resumed(secret, 2000))[0]) == 499


@pytest.mark.parametrize("journal", [Nobody(), Journal(KEPT + 2500, first=200)], ids=["no journal", "it begins later"])
async def test_without_them_the_gap_is_told(journal):
    first, following = await resumed(journal, 100)
    assert first == []
    assert "not kept any more" in following.gap


async def test_too_many_are_not_sent(monkeypatch):
    monkeypatch.setattr("services.gateway.events.MOST_BACKFILLED", 1000)
    first, following = await resumed(Journal(KEPT + 2500), 100)
    assert first == []
    assert following.gap


async def test_who_saw_a_kept_event_needs_no_journal():
    journal = Journal(KEPT + 2500)
    first, following = await resumed(journal, 7000)
    assert (first, following.gap, journal.asked) == ([], "", 0)


@pytest.mark.parametrize("text", ["", "x", "z" * 32, "0" * 32, "é" * 32, "1" * 31])
def test_what_is_no_id_is_no_time(text):
    assert published(text) is None
