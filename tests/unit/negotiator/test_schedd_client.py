"""The negotiator's talk with schedds that answer oddly."""

import asyncio
from types import SimpleNamespace

import pytest
import structlog

from services.negotiator import schedd_client
from services.negotiator.schedd_client import CycleIdentity, ScheddClient
from services.negotiator.settings import RequestListSettings
from shared.bus.api import CallTimeout
from shared.classad import ClassAd
from shared.messages.base import Ack
from shared.messages.negotiation import MatchesTaken, RequestList, ResourceRequest
from tests.unit.negotiator.test_chunks import match


class Bus:
    """Every call is answered with the same message."""

    def __init__(self, answer):
        self.answer = answer

    async def call(self, inbox, body, *, timeout, epoch):
        return self.answer


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (MatchesTaken(begun=[1, 0]), [1, 0]),
        (MatchesTaken(begun=[1]), [1, 0]),
        (MatchesTaken(begun=[7, -7, 9]), [1, 0]),
        (MatchesTaken(begun=[]), [0, 0]),
        (Ack(), [0, 0]),
    ],
    ids=["both", "one", "too much", "none", "no answer to this"],
)
async def test_what_a_schedd_does_not_answer_for_is_not_taken(answer, said):
    schedds = ScheddClient(SimpleNamespace(bus=Bus(answer)), RequestListSettings())
    taken = {}
    matches = [match(number, count=1) for number in range(2)]
    await schedds.send_decisions("schedd.s", matches, [], CycleIdentity("n", "", 1, 1), taken.__setitem__)
    assert [taken[index] for index in range(2)] == said


class Silence:
    """A bus on which one schedd answers and another one does not, until its call's time is over."""

    def __init__(self):
        self.patience = []

    async def call(self, inbox, message, *, timeout, epoch):
        if inbox == "schedd.lives":
            return RequestList(requests={"alice@x": []}, more=[])
        self.patience.append(timeout)
        try:
            async with asyncio.timeout(timeout):
                await asyncio.Event().wait()
        except TimeoutError:
            raise CallTimeout("no answer") from None


async def test_a_dead_schedd_keeps_the_others_waiting_once_and_shortly(monkeypatch):
    monkeypatch.setattr(schedd_client, "GRACE_S", 0.05)
    monkeypatch.setattr(schedd_client, "LEAST_GRACE_S", 0.05)
    monkeypatch.setattr(schedd_client, "SILENT_S", 0.01)
    bus, log = Silence(), structlog.get_logger()
    schedds = ScheddClient(SimpleNamespace(bus=bus, log=log), RequestListSettings())
    wanted = {"schedd.lives": ["alice@x"], "schedd.dead": ["bob@x"]}
    for _ in range(3):
        answers = await schedds.fetch_requests(wanted, CycleIdentity("n", "", 1, 1))
        assert answers.silent == {"schedd.dead"}
    schedds.heard("schedd.dead")
    await schedds.fetch_requests(wanted, CycleIdentity("n", "", 1, 1))
    assert bus.patience == [30.0, 0.01, 0.01, 30.0]


async def test_a_dead_schedd_that_is_asked_alone_keeps_newcomers_waiting_only_shortly(monkeypatch):
    """Else whoever submits meanwhile, to another schedd, waits for as long as NEGOTIATOR_TIMEOUT."""
    monkeypatch.setattr(schedd_client, "GRACE_S", 0.05)
    monkeypatch.setattr(schedd_client, "LEAST_GRACE_S", 0.05)
    bus, log = Silence(), structlog.get_logger()
    schedds = ScheddClient(SimpleNamespace(bus=bus, log=log), RequestListSettings())
    asking = asyncio.ensure_future(schedds.fetch_requests({"schedd.dead": ["bob@x"]}, CycleIdentity("n", "", 1, 1)))
    for _ in range(3):  # nobody else has anything to say: it may be slow
        assert not (await asyncio.wait({asking}, timeout=0.06))[0]
        schedds.heard("schedd.dead")
    schedds.heard("schedd.lives")
    answers = await asyncio.wait_for(asking, 20)
    assert (answers.requests, answers.silent, bus.patience) == ({}, {"schedd.dead"}, [30.0])


async def test_where_answers_were_quick_of_late_a_dead_schedd_that_is_asked_alone_is_left_soon(monkeypatch):
    """Not after the time that one has of which nobody knows how slow the pool is."""
    monkeypatch.setattr(schedd_client, "GRACE_S", 3600.0)
    monkeypatch.setattr(schedd_client, "LEAST_GRACE_S", 0.05)
    schedds = ScheddClient(SimpleNamespace(bus=Silence(), log=structlog.get_logger()), RequestListSettings())
    identity = CycleIdentity("n", "", 1, 1)
    await schedds.fetch_requests({"schedd.lives": ["alice@x"]}, identity)
    asking = asyncio.ensure_future(schedds.fetch_requests({"schedd.dead": ["bob@x"]}, identity))
    assert not (await asyncio.wait({asking}, timeout=0.06))[0]
    schedds.heard("schedd.lives")
    assert (await asyncio.wait_for(asking, 25)).silent == {"schedd.dead"}  # by itself it had NEGOTIATOR_TIMEOUT, 30 s


async def test_a_schedd_that_dies_before_it_hears_of_its_matches_keeps_nobody_waiting(monkeypatch):
    """Nobody's jobs started for NEGOTIATOR_TIMEOUT, for each schedd that died between its requests and its matches."""
    monkeypatch.setattr(schedd_client, "GRACE_S", 0.05)
    monkeypatch.setattr(schedd_client, "LEAST_GRACE_S", 0.05)
    bus, log = Silence(), structlog.get_logger()
    schedds = ScheddClient(SimpleNamespace(bus=bus, log=log), RequestListSettings())
    taken, identity = {}, CycleIdentity("n", "", 1, 1)

    def telling(inbox):
        return schedds.send_decisions(
            inbox, [match(1, count=1)], [], identity, lambda index, begun: taken.update({inbox: begun})
        )

    await schedds.send_all({inbox: telling(inbox) for inbox in ("schedd.dead", "schedd.lives")})
    assert taken == {"schedd.lives": 0}, "what the other one does with its match may still be heard of"
    alone = asyncio.ensure_future(schedds.send_all({"schedd.dead": telling("schedd.dead")}))
    for _ in range(3):  # nobody else has anything to say: it may be slow
        assert not (await asyncio.wait({alone}, timeout=0.06))[0]
    schedds.heard("schedd.lives")
    await asyncio.wait_for(alone, 20)
    # It is known for what it is in the next cycle.
    await schedds.fetch_requests({"schedd.dead": ["bob@x"]}, identity)
    assert bus.patience == [30.0, 30.0, schedd_client.SILENT_S]


@pytest.mark.parametrize(("needed", "grace"), [(None, 5.0), (0.0, 1.0), (0.02, 1.0), (0.3, 3.0), (60.0, 5.0)])
def test_the_slower_those_were_who_are_done_the_longer_the_others_are_waited_for(needed, grace):
    assert schedd_client.grace_s(needed) == grace


class Drip:
    """One schedd says all at once, the other one request with each answer, and never that this was the last."""

    def __init__(self):
        self.said = 0

    async def call(self, inbox, message, *, timeout, epoch):
        request = ResourceRequest(autocluster=1, count=1, first_job="1.0", ad=ClassAd({"JobUniverse": 5}).pack())
        if inbox == "schedd.quick":
            return RequestList(requests={"alice@x": [request]}, more=[])
        await asyncio.sleep(0.001)
        self.said += 1
        return RequestList(requests={"bob@x": [request]}, more=["bob@x"])


async def test_who_says_much_and_slowly_holds_nobody_up_and_what_he_said_counts(monkeypatch):
    monkeypatch.setattr(schedd_client, "GRACE_S", 0.05)
    monkeypatch.setattr(schedd_client, "LAST_WORD_S", 0.2)
    bus, log = Drip(), structlog.get_logger()
    schedds = ScheddClient(SimpleNamespace(bus=bus, log=log), RequestListSettings())
    wanted = {"schedd.quick": ["alice@x"], "schedd.drip": ["bob@x"]}
    answers = await asyncio.wait_for(schedds.fetch_requests(wanted, CycleIdentity("n", "", 1, 1)), 60)
    assert answers.silent == {"schedd.drip"}
    assert len(answers.requests["alice@x"]) == 1
    assert 0 < len(answers.requests["bob@x"]) == bus.said
