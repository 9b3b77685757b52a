"""Buses on a real broker, for the bus suites."""

import aio_pika

from shared.bus.amqp import AmqpBus
from tests.contract.bus_pool import ANYBODY, RETRY
from tests.waiting import PATIENCE_S, eventually

#: Seconds between the watchdog's looks: a broker that is only slow, on a busy machine, is not taken for a dead one.
#: Tests of the watchdog itself set their own.
CALM_S = 15.0


class AmqpPool:
    """Buses on one virtual host."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.buses: list[AmqpBus] = []

    async def bus(self, sender: str, **options: object) -> AmqpBus:
        options = {"retry": RETRY, "publish_wait_s": PATIENCE_S, "watch_s": CALM_S, "rows": ANYBODY, **options}
        bus = AmqpBus(self.url, sender=sender, **options)
        self.buses.append(bus)
        await bus.start()
        return bus

    async def inject(self, exchange: str, key: str, data: bytes) -> None:
        """Publish bytes as they are."""
        connection = await aio_pika.connect(self.url)
        channel = await connection.channel()
        target = await channel.get_exchange(exchange)
        await target.publish(aio_pika.Message(data), key)
        await connection.close()

    async def cut(self, bus: AmqpBus) -> None:
        """Lose the connection of this bus, once it has one; it comes back by itself."""
        # Messages come as soon as their consumer is on a new link, a moment before the bus has that link: to cut only
        # what the bus has would now and then cut nothing.
        await eventually(lambda: bus._publisher.link is not None, what="a connection to cut")
        bus._publisher.current.connection.abort()

    async def close(self) -> None:
        for bus in self.buses:
            await bus.stop()
