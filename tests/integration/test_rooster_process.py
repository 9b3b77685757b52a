"""The rooster as a process on RabbitMQ and Redis, with the rights it has in a compose pool: killed amid a command."""

import asyncio
import os
import sys

import pytest

from shared import bus as transport
from shared.bus.api import Exchange
from shared.classad import ClassAd, evaluate, is_true, parse_expr
from shared.messages.ads import AdDelta, AdPage, AdUpdate
from shared.messages.events import OfflineMatched
from tests.integration.pools import ROOT
from tests.place import place_of
from tests.servers import Leashed
from tests.spec import spec
from tests.unit.rooster.test_policy import sleeper
from tests.waiting import eventually


@pytest.fixture
async def place(rabbit_server, amqp_url, redis_url):
    async with place_of("rooster", rabbit_server, amqp_url, redis_url) as made:
        yield made


@spec("PWR-06", "ABS-07")
async def test_killed_amid_a_command_it_wakes_nobody_twice_in_an_interval(place, tmp_path):
    """And what the negotiator tells of sleeping machines a collector may hear."""
    url_of, redis_of_rooster = place
    woken, go = tmp_path / "woken", tmp_path / "go"
    command = tmp_path / "wake"
    command.write_text(
        f"#!/bin/sh\ngrep '^Machine ' >> {woken}\nn=0\n"
        f"while [ ! -e {go} ] && [ $n -lt 200 ]; do sleep 0.1; n=$((n+1)); done\n"
    )
    command.chmod(0o755)
    ads = [sleeper("a"), sleeper("b")]
    told, heard, buses, processes = {}, [], [], []

    async def bus(sender):
        buses.append(transport.connect(url_of(sender.partition(".")[0]), sender))
        await buses[-1].start()
        return buses[-1]

    async def answer(envelope):
        asked = parse_expr(envelope.body.constraint)
        return AdPage(ads=[ad.pack() for ad in ads if is_true(evaluate(asked, ad))])

    async def hear_ad(envelope):
        body = envelope.body
        packed = body.ads if isinstance(body, AdUpdate) else body.changes if isinstance(body, AdDelta) else []
        for one in packed:
            told.update(ClassAd.unpack(one))

    async def hear_match(envelope):
        heard.append(envelope.body)

    def start():
        knobs = {
            "ROOST_AMQP_URL": url_of("rooster"),
            "ROOST_REDIS_URL": redis_of_rooster,
            "SPOOL": str(tmp_path / "spool"),
            "LOG": str(tmp_path / "spool"),
            "ROOST_HEALTH_PORT": "0",
            "ROOSTER_INTERVAL": "3600",
            "ROOSTER_MAX_UNHIBERNATE": "1",
            "ROOSTER_WAKEUP_CMD": str(command),
        }
        kept = {name: text for name, text in os.environ.items() if not name.startswith(("ROOST_", "_CONDOR_"))}
        env = {**kept, **{f"_CONDOR_{knob}": text for knob, text in knobs.items()}, "PYTHONPATH": str(ROOT)}
        words = [sys.executable, "-m", "services.rooster", "-name", "one"]
        processes.append(Leashed(words, log=tmp_path / f"{len(processes)}.log", env=env, cwd=ROOT))
        return processes[-1]

    try:
        collector, negotiator = await bus("collector.cm"), await bus("negotiator.cm")
        await collector.serve("collector", answer)
        await collector.listen(Exchange.ADS, ["*.Rooster.#"], hear_ad)
        await collector.listen(Exchange.EVENTS, [OfflineMatched.type], hear_match)
        match = OfflineMatched(at=1.0, negotiator="cm", epoch=1, cycle=1, slots=["slot1@a"])
        await negotiator.publish(Exchange.EVENTS, match.type, match)
        await eventually(lambda: heard, what="the match to be heard")

        first = start()
        await eventually(lambda: woken.exists() and woken.read_text(), timeout_s=60, what="the first to be woken")
        await asyncio.to_thread(first.kill)
        go.touch()
        told.clear()
        start()
        await eventually(lambda: told.get("RoosterIsActive") is True, timeout_s=90, what="its next life to act")
        assert told["RoosterLastRound"] > 0
        assert told["MachinesWoken"] == 0
        assert woken.read_text() == 'Machine = "a"\n'
    finally:
        for process in processes:
            process.close()
        for one in buses:
            await one.stop()
