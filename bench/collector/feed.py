"""The startds of a pool, as one process: `python -m bench.collector.feed URL KIND ADS SEQUENCE BASE`.

Packs all messages first, says "ready", publishes when it reads a line, and says the seconds and the processor seconds
that took. KIND: whole, delta, beat.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator

import structlog
import uvloop

from bench.collector.ads import SLOTS, delta, heartbeat, updates
from shared.bus.amqp import AmqpBus
from shared.bus.api import Exchange
from shared.bus.handling import packed
from shared.messages.ads import AdDelta, AdHeartbeat, AdUpdate
from shared.messages.base import Envelope

VERBS = {AdUpdate: "update", AdDelta: "delta", AdHeartbeat: "heartbeat"}


def messages(kind: str, ads: int, sequence: int, base: int) -> Iterator[AdUpdate | AdDelta | AdHeartbeat]:
    if kind == "whole":
        return updates(ads, sequence)
    numbers = range(ads // SLOTS)
    if kind == "delta":
        return (delta(number, base, sequence) for number in numbers)
    return (heartbeat(number, base, sequence) for number in numbers)


async def feed(url: str, kind: str, ads: int, sequence: int, base: int) -> None:
    bus = AmqpBus(url, sender="startd.bench")
    await bus.start()
    ready = []
    for body in messages(kind, ads, sequence, base):
        envelope = Envelope(body, f"startd.{body.daemon.partition('@')[2]}", bus._publisher.new_id(), time.time())
        key = f"{VERBS[type(body)]}.{body.my_type}.{body.daemon}"
        ready.append((key, packed(envelope), bus._publisher.properties(envelope.id, body.type, durable=False)))
    print("ready", flush=True)
    sys.stdin.readline()
    link = bus._publisher.current
    assert link is not None
    began, used = time.perf_counter(), time.process_time()
    for key, data, properties in ready:
        await link.publish_plain(Exchange.ADS, key, data, properties)
    # What was written before a call's answer came is with the broker.
    await bus._with_link(lambda link: link.plain.basic_qos())  # type: ignore[arg-type, return-value]
    print(time.perf_counter() - began, time.process_time() - used, flush=True)
    await bus.stop()


if __name__ == "__main__":
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))
    uvloop.run(feed(sys.argv[1], sys.argv[2], *map(int, sys.argv[3:6])))
