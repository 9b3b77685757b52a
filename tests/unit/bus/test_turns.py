"""Turns of the loop that others have while messages come and go: counted."""

import asyncio
import threading
from types import SimpleNamespace

import structlog

from shared import cooperative
from shared.bus import handling
from shared.bus.amqp.consumer import Consumer, _Session
from shared.bus.api import BusHealth
from shared.bus.handling import COMPRESSED_AT_ONCE, TAKEN, packed_in_turns
from shared.bus.topology import Queue
from shared.messages.ads import AdPage
from shared.messages.base import Envelope


async def turns_while(work):
    """Turns that others had, and what came of it."""
    task, turns = asyncio.ensure_future(work), 0
    while not task.done():
        await asyncio.sleep(0)
        turns += 1
    return turns, task.result()


async def test_others_have_their_turn_between_messages_that_had_to_wait(monkeypatch):
    """While one took long others came: they are not handled in one turn, and stay in their order."""
    monkeypatch.setattr(cooperative, "SLICE_S", -1.0)
    handled = []

    async def handle(delivery):
        handled.append(delivery.tag)
        return TAKEN

    publisher = SimpleNamespace(health=BusHealth())
    consumer = Consumer(
        publisher, Queue("q", (), {}), handle, None, prefetch=500, in_order=True, priority=0, tag="t",
        log=structlog.get_logger(), ended=lambda _: None,
    )  # fmt: skip
    session = consumer._session = _Session(SimpleNamespace(usable=True), None)
    session.waiting.extend(
        SimpleNamespace(tag=tag, again=False, uncounted=False, seal="", odd="") for tag in range(100)
    )
    turns, _ = await turns_while(consumer._work_in_order(session))
    assert handled == list(range(100))
    assert turns >= 100


async def test_a_large_message_is_compressed_in_a_thread(monkeypatch):
    compressed_in, compress = [], handling.compress

    def noted(data):
        compressed_in.append((len(data) > COMPRESSED_AT_ONCE, threading.current_thread()))
        return compress(data)

    monkeypatch.setattr(handling, "compress", noted)
    for size in (100, 100_000, 1_000_000):
        envelope = Envelope(AdPage(ads=[b"x" * size]))
        assert await packed_in_turns(envelope) == envelope.pack()
    (small, here), (large, elsewhere) = compressed_in  # the smallest travels as it is
    assert (small, large) == (False, True)
    assert here is threading.current_thread() is not elsewhere
