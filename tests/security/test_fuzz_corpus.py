"""Hostile inputs of every family, some hundred of each, with a fixed seed; and all that `bin/fuzz` ever found
(tests/data/fuzz), again."""

import asyncio
import hashlib
from pathlib import Path

import pytest
import structlog

from bench.security import bus, http, texts
from bench.security.cases import CRASH, RIGHTS, SILENCE, Fault, Tally, data_of, dice_of, read, write
from shared.bus.api import BusHealth, Exchange, RemoteFailure
from shared.bus.senders import TABLE, Arrival, Denied, Senders
from shared.bus.statements import Believer, Keys
from shared.bus.topology import inbox_queue
from shared.errors import RoostError
from shared.messages.base import Ack, BadMessage, Envelope, Failure
from tests.integration.inside import InsidePool
from tests.waiting import eventually
from tests.wholepool import WholePool

ENTRIES = [
    entry for file in sorted((Path(__file__).parents[1] / "data" / "fuzz").glob("*.jsonl")) for entry in read(file)
]
SEED = 20
COUNTS = {"messages": 500, "submit": 200, "configuration": 200, "ads": 200, "expressions": 40}


def stories(tally, *kinds):
    return [(fault.kind, fault.story, str(fault.cases)[:500]) for fault in tally.faults if fault.kind in kinds]


@pytest.mark.parametrize("family", COUNTS)
def test_nothing_that_is_read_is_a_crash(family):
    """Silences are for `bin/fuzz`, on a machine that does nothing else: tests share theirs."""
    tally = texts.run(family, SEED, 0, COUNTS[family])
    assert tally.sent == COUNTS[family]
    assert stories(tally, CRASH) == []
    assert len(tally.outcomes) > 1  # some are read, others refused


READ = [(story["story"], cases) for story, cases in ENTRIES if story["family"] in COUNTS]


@pytest.mark.parametrize(("story", "cases"), READ, ids=[story for story, _ in READ])
def test_what_was_found_in_what_is_read_is_mended(story, cases):
    tally = Tally()
    texts.take_all(cases[0]["family"], cases, tally)
    assert tally.sent == len(cases) > 0
    assert stories(tally, CRASH, SILENCE) == []


def test_no_request_is_a_crash_or_widens_rights(tmp_path):
    pool = InsidePool(tmp_path, ROOST_GATEWAY_RATE="0", ROOST_GATEWAY_ANONYMOUS_RATE="0", ROOST_GATEWAY_SUBMIT_RATE="0")
    try:
        with pool.client() as client:
            tokens = {level: client.create_token("mallory@pool", level) for level in ("READ", "WRITE")}
            before = {(one["id"], one["level"]) for one in client.tokens()}
        host, _, port = pool.url.removeprefix("http://").partition(":")
        maker, tally = http.Maker(pool.ask("GET", "/openapi.json")[2]), Tally()
        waiting = [maker.make(dice_of(SEED, "http", number)) for number in range(300)]
        waiting += [case for story, cases in ENTRIES if story["family"] == "http" for case in cases]

        async def work():
            while waiting:
                await http.take(waiting.pop(), http.Target(host, int(port), tokens), tally)

        async def everybody():
            await asyncio.gather(*(work() for _ in range(8)))

        asyncio.run(everybody())
        assert tally.sent >= 300
        assert stories(tally, CRASH, RIGHTS) == []
        assert {"200", "400", "401", "403"} <= set(tally.outcomes)
        with pool.client() as client:
            assert {(one["id"], one["level"]) for one in client.tokens()} == before
    finally:
        pool.close()


class Door:
    """Takes what the broker and the bus would let through to a pool in this process, where gateways have to sign and
    nobody does."""

    def __init__(self, pool):
        self.pool = pool
        believer = Believer(Keys(), pool.hub.now)
        self.senders = Senders(BusHealth(), structlog.stdlib.get_logger("door"), TABLE, believer)
        self.tally = Tally()

    async def take(self, case):
        found = await self._take(case)
        self.tally.sent += 1
        self.tally.outcomes[found] += 1

    async def _take(self, case):
        if not bus.allowed(case):
            return "refused by the broker"
        exchange, key = Exchange(case["exchange"] or Exchange.RPC), case["key"]
        if not case["exchange"]:
            key = key.removeprefix(inbox_queue(""))
        try:
            envelope = Envelope.unpack(data_of(case["data"]))
            arrival = Arrival(exchange, case["user"], inbox=key)
            self.senders.admit(envelope, arrival)
            if self.senders.asks_who(envelope, arrival):
                self.senders.believe(envelope, arrival, hashlib.sha256(envelope.content).digest())
        except (BadMessage, Denied) as refusal:
            return type(refusal).__name__
        line = await self.pool.bus(envelope.sender)
        try:
            if exchange is not Exchange.RPC:
                await line.publish(exchange, key, envelope.body)
                return "published"
            answer = await line.call(key, envelope.body, timeout=1.0)
        except RemoteFailure as failure:
            answer = Failure(code=failure.code, reason=failure.reason)
        except (RoostError, ValueError, OverflowError, TypeError) as error:
            return type(error).__name__
        self.tally.faults += bus.judge(case, Envelope(answer).pack())
        return f"answered {answer.type}"


async def test_no_message_is_a_crash_or_widens_rights(tmp_path):
    async with WholePool(tmp_path) as pool:
        await pool.begin("journal", "cm")
        door, maker = Door(pool), bus.Maker()
        for story, cases in ENTRIES:
            for case in cases if story["family"] == "bus" else ():
                await door.take(case)
                assert not pool.dead(), story
        assert not pool.startd.context.stopping.is_set()  # which one of them ordered
        waiting = [maker.make(dice_of(SEED, "bus", number)) for number in range(400)]

        async def work():
            while waiting:
                case = waiting.pop()
                await door.take(case)
                assert not pool.dead(), case

        await asyncio.gather(*(work() for _ in range(16)))
        letters = await (await pool.bus("gateway.looks")).dead_letters(1000)
        assert [letter.reason for letter in letters if letter.reason.startswith("handler failed")] == []
        assert stories(door.tally, CRASH, RIGHTS) == []
        assert {"Denied", "BadMessage", "published", "refused by the broker"} <= set(door.tally.outcomes)
        assert pool.negotiator.leading()
        await pool.works()
        await eventually(lambda: not pool.consistent(), what="books that add up")


def test_inputs_are_the_same_for_a_seed():
    def made(seed):
        maker = bus.Maker()
        messages = [maker.make(dice_of(seed, "bus", number)) for number in range(20)]
        return messages, [texts.make(family, dice_of(seed, family, 3)) for family in COUNTS]

    assert made(5) == made(5)
    assert made(5) != made(6)


def test_what_is_found_is_written_as_the_corpus_has_it(tmp_path):
    case = {"family": "submit", "text": "queue\n"}
    write(tmp_path, 7, [Fault(CRASH, "submit", "a story", (case, case)), Fault(RIGHTS, "bus", "another", ())])
    entries = [entry for file in sorted(tmp_path.iterdir()) for entry in read(file)]
    assert [(story["story"], story["seed"], cases) for story, cases in entries] == [
        ("another", 7, []),
        ("a story", 7, [case, case]),
    ]


@pytest.mark.parametrize(
    ("case", "answer", "kinds"),
    [
        ({"level": "READ", "needs": "WRITE"}, b"HTTP/1.1 200 OK\r\n\r\n", [RIGHTS]),
        ({"level": "", "needs": "READ"}, b"HTTP/1.1 204 No Content\r\n\r\n", [RIGHTS]),
        ({"level": "WRITE", "needs": "READ"}, b"HTTP/1.1 200 OK\r\n\r\n", []),
        ({"level": ""}, b"HTTP/1.1 500 x\r\n\r\n", [CRASH]),
        ({"level": ""}, b'HTTP/1.1 503 x\r\n\r\n{"error":{"retryable":true}}', []),
        ({"level": "", "answers": 1}, b"HTTP/1.1 400 x\r\n\r\nHTTP/1.1 200 OK\r\n", [RIGHTS]),
    ],
)
def test_answers_are_judged(case, answer, kinds):
    assert [fault.kind for fault in http.judge(case, answer)[1]] == kinds


@pytest.mark.parametrize(
    ("user", "answer", "kinds"),
    [
        ("startd.evil", Failure(code="internal", reason="x"), [CRASH]),
        ("startd.evil", Failure(code="denied", reason="x"), []),
        ("startd.evil", None, [RIGHTS]),
        ("gateway.evil", None, []),
    ],
)
def test_answers_of_daemons_are_judged(user, answer, kinds):
    case = {"family": "bus", "user": user, "type": "queue.describe", "data": ""}
    assert [fault.kind for fault in bus.judge(case, Envelope(answer or Ack()).pack())] == kinds
