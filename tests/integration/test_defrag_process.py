"""Defrag as processes on RabbitMQ and Redis, with the rights it has in a compose pool: killed amid its orders."""

import asyncio
import os
import sys

import pytest
import redis

from shared import bus as transport
from shared.bus.api import Exchange
from shared.classad import ClassAd, evaluate, is_true, parse_expr
from shared.messages.ads import AdPage
from shared.messages.base import Ack, Failure
from shared.messages.orders import OrderTaken
from shared.state import keys
from tests.integration.pools import ROOT
from tests.place import place_of
from tests.servers import Leashed
from tests.unit.defrag.pools import slot_ad
from tests.waiting import eventually


@pytest.fixture
async def place(rabbit_server, amqp_url, redis_url):
    async with place_of("defrag", rabbit_server, amqp_url, redis_url) as made:
        yield made


class Rest:
    """What else there is of a pool: a collector, and two machines of which one is slow to answer."""

    def __init__(self, url_of):
        self.url_of = url_of
        self.ads = {f"startd.{name}": slot_ad(name) for name in ("quick", "slow")}
        self.began, self.rounds, self.told = [], [], set()
        self.may_answer = asyncio.Event()
        self.buses = []

    async def __aenter__(self):
        collector, gateway = await self.bus("collector.cm"), await self.bus("gateway.web")
        await collector.serve("collector", self.collector)
        await collector.listen(Exchange.ADS, ["*.Defrag.#"], self.hear_ad)
        await gateway.listen(Exchange.EVENTS, ["defrag.round"], self.hear_round)
        for inbox in self.ads:
            await (await self.bus(inbox)).serve(inbox, lambda envelope, inbox=inbox: self.startd(inbox, envelope))
        return self

    async def __aexit__(self, *_):
        self.may_answer.set()
        for bus in self.buses:
            await bus.stop()

    async def bus(self, sender):
        made = transport.connect(self.url_of(sender.partition(".")[0]), sender)
        self.buses.append(made)
        await made.start()
        return made

    async def collector(self, envelope):
        asked = parse_expr(envelope.body.constraint)
        return AdPage(ads=[ad.pack() for ad in self.ads.values() if is_true(evaluate(asked, ad))])

    async def hear_ad(self, envelope):
        self.told.add(envelope.sender)

    async def hear_round(self, envelope):
        self.rounds.append(envelope.body)
        return Ack()

    async def startd(self, inbox, envelope):
        order, ad = envelope.body, self.ads[inbox]
        if ad.eval("DrainingRequestId") != order.request_id:
            if ad.eval("Draining") is True or not is_true(evaluate(parse_expr(order.check), ad)):
                return Failure(code="refused", reason="no")
            self.began.append((inbox, order.request_id))
            told = {"Draining": True, "DrainingRequestId": order.request_id, "LastDrainStartTime": len(self.began)}
            self.ads[inbox] = ClassAd({**{name: ad.lookup(name) for name in ad}, **told})
        if inbox == "startd.slow":
            await self.may_answer.wait()
        return OrderTaken()


async def test_another_one_goes_on_when_it_is_killed_amid_its_orders(place, redis_url, tmp_path):
    """No machine drains twice, and none is forgotten; what it may not do, the broker and Redis would refuse."""
    url_of, redis_of_defrag = place
    processes = []

    def start(name):
        knobs = {
            "ROOST_AMQP_URL": url_of("defrag"),
            "ROOST_REDIS_URL": redis_of_defrag,
            "SPOOL": str(tmp_path / name),
            "LOG": str(tmp_path / name),
            "ROOST_HEALTH_PORT": "0",
            "ROOST_DEFRAG_LEASE": "3",
            "DEFRAG_DRAINING_MACHINES_PER_HOUR": "2",
            "DEFRAG_INTERVAL": "3600",
        }
        kept = {name: text for name, text in os.environ.items() if not name.startswith(("ROOST_", "_CONDOR_"))}
        env = {**kept, **{f"_CONDOR_{knob}": text for knob, text in knobs.items()}, "PYTHONPATH": str(ROOT)}
        command = [sys.executable, "-m", "services.defrag", "-name", name]
        processes.append(Leashed(command, log=tmp_path / f"{name}.log", env=env, cwd=ROOT))
        return processes[-1]

    try:
        async with Rest(url_of) as rest:
            first = start("one")
            await eventually(lambda: len(rest.began) == 2, what="both orders")
            await asyncio.to_thread(first.kill)
            start("two")
            rest.may_answer.set()
            server = redis.Redis.from_url(redis_url)

            def book():
                note = server.hget(keys.lead("DEFRAG"), "note") or b""
                return b'"successes": 2' in note

            await eventually(book, what="the answers in the book of the other one")
            server.close()
            await eventually(lambda: "defrag.two" in rest.told, what="its ad")
            assert len(rest.began) == 2
            assert rest.rounds == []  # the next one is due in an hour
    finally:
        for process in processes:
            process.close()
