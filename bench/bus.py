"""Messages a second and call latency of both transports: `python -m bench.bus`.

Without --amqp a private RabbitMQ is started (rabbitmq-server must be installed) and everything, client and server side,
runs in this one process and the broker; so the figures are for two cores shared by three parties.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib
import importlib.metadata
import platform
import statistics
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager

import uvloop

from shared.bus.amqp import AmqpBus
from shared.bus.api import Bus, Exchange, Outgoing
from shared.bus.memory import MemoryBus, MemoryHub
from shared.messages import Envelope, Message
from shared.messages.ads import AdHeartbeat, AdInvalidate, AdUpdate
from shared.messages.claims import Alive, AliveReply

CALL = Alive(schedd="bench", sequence=1, claim_ids=["<node1>#1#secret"])
HEARTBEAT = AdHeartbeat(my_type="Machine", daemon="startd@bench", start_time=1, base=1, sequence=2)
ADS = AdUpdate(
    my_type="Machine",
    daemon="startd@bench",
    start_time=1,
    sequence=1,
    names=[f"slot1_{n}@node1" for n in range(50)],
    ads=[bytes(1000)] * 50,
)
Row = tuple[str, str]


class Counter:
    """A handler that counts, and tells when a number is reached."""

    def __init__(self) -> None:
        self.count = 0
        self.goal = 0
        self.reached = asyncio.Event()

    async def __call__(self, _: Envelope) -> None:
        self.count += 1
        if self.count >= self.goal:
            self.reached.set()

    async def after(self, number: int, publish: Callable[[], Awaitable[None]]) -> float:
        """Seconds from the start of publish() until `number` more messages have arrived."""
        self.goal = self.count + number
        self.reached.clear()
        begun = time.perf_counter()
        await publish()
        await self.reached.wait()
        return time.perf_counter() - begun


async def measure(client: Bus, server: Bus, scale: float) -> list[Row]:
    """All figures of one transport. scale: how many messages, relative to what RabbitMQ does in some seconds."""
    rows: list[Row] = []

    async def answer(_: Envelope) -> Message:
        return AliveReply()

    await server.serve("startd.bench", answer)
    for _ in range(50):
        await client.call("startd.bench", CALL)
    rows.append(("call, one at a time", latencies(await calls(client, round(2000 * scale), 1))))
    for callers in (16, 100):
        begun = time.perf_counter()
        taken = await calls(client, round(4000 * scale), callers)
        rate = len(taken) / (time.perf_counter() - begun)
        rows.append((f"calls, {callers} callers", f"{rate:,.0f}/s, {latencies(taken)}"))

    heard = Counter()
    listening = await client.listen(Exchange.ADS, ["#"], heard)
    number = round(20_000 * scale)
    rows.append(
        ("transient, heard by one", per_second(number, await heard.after(number, many(server, HEARTBEAT, number))))
    )
    number = round(1000 * scale)
    seconds = await heard.after(number, many(server, ADS, number))
    rows.append(("50 ads of 1 KB in a message", f"{50 * number / seconds:,.0f} ads/s"))
    await listening.cancel()

    taken_up = Counter()
    await client.consume("roost.collector", taken_up, prefetch=500)
    number = round(10_000 * scale)
    durable = [Outgoing(Exchange.ADS, "invalidate.Machine.startd@bench", invalidate(n)) for n in range(number)]
    seconds = await taken_up.after(number, lambda: server.publish_many(durable))
    rows.append(("durable, many in flight, consumed", per_second(number, seconds)))
    number = round(1000 * scale)
    begun = time.perf_counter()
    for entry in durable[:number]:
        await server.publish(entry.exchange, entry.key, entry.body)
    rows.append(("durable, one confirm at a time", per_second(number, time.perf_counter() - begun)))
    return rows


def invalidate(sequence: int) -> Message:
    return AdInvalidate(my_type="Machine", daemon="startd@bench", start_time=1, sequence=sequence)


def many(bus: Bus, body: Message, number: int) -> Callable[[], Awaitable[None]]:
    async def publish() -> None:
        for n in range(number):
            await bus.publish(Exchange.ADS, "heartbeat.Machine.startd@bench", body)
            if n % 100 == 99:
                await asyncio.sleep(0)

    return publish


async def calls(bus: Bus, number: int, callers: int) -> list[float]:
    """Seconds each call took."""
    taken: list[float] = []

    async def caller() -> None:
        while len(taken) < number:
            begun = time.perf_counter()
            await bus.call("startd.bench", CALL, timeout=60)
            taken.append(time.perf_counter() - begun)

    await asyncio.gather(*(caller() for _ in range(callers)))
    return taken


def latencies(taken: list[float]) -> str:
    cuts = statistics.quantiles(taken, n=100)
    return f"p50 {cuts[49] * 1e3:.2f} ms, p99 {cuts[98] * 1e3:.2f} ms"


def per_second(number: int, seconds: float) -> str:
    return f"{number / seconds:,.0f}/s"


@asynccontextmanager
async def started(*buses: Bus) -> AsyncIterator[None]:
    for bus in buses:
        await bus.start()
    try:
        yield
    finally:
        for bus in buses:
            await bus.stop()


async def in_process() -> list[Row]:
    hub = MemoryHub()
    client, server = MemoryBus(hub, sender="schedd.bench"), MemoryBus(hub, sender="startd.bench")
    async with started(client, server):
        return await measure(client, server, 5.0)


async def on_amqp(url: str) -> list[Row]:
    client, server = AmqpBus(url, sender="schedd.bench"), AmqpBus(url, sender="startd.bench")
    async with started(client, server):
        return await measure(client, server, 1.0)


@contextmanager
def broker(url: str | None) -> Iterator[str]:
    if url is not None:
        yield url
        return
    server = importlib.import_module("tests.servers").Rabbit()
    try:
        server.start()
        yield server.url
    finally:
        server.close()


def run(work: Awaitable[list[Row]]) -> list[Row]:
    async def main() -> list[Row]:
        return await work

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(main())


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.bus", description=__doc__)
    parser.add_argument("--amqp", help="URL of a broker to use (an empty virtual host)")
    options = parser.parse_args()
    memory = run(in_process())
    with broker(options.amqp) as url:
        amqp = run(on_amqp(url))
    print(f"Python {platform.python_version()}, uvloop {importlib.metadata.version('uvloop')}, {platform.machine()}\n")
    print("| | in-process | RabbitMQ |\n| --- | --- | --- |")
    for (what, one), (_, other) in zip(memory, amqp, strict=True):
        print(f"| {what} | {one} | {other} |")


if __name__ == "__main__":
    main()
