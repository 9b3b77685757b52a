"""Buses on a real broker, for the bus suites."""

import aio_pika

from shared.bus.amqp import AmqpBus
from tests.contract.bus_pool import RETRY


class AmqpPool:
    """Buses on one virtual host."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.buses: list[AmqpBus] = []

    async def bus(self, sender: str, **options: object) -> AmqpBus:
        options = {"retry": RETRY, "publish_wait_s": 20.0, "watch_s": 1.0, **options}
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
        """Lose the connection of this bus; it comes back by itself."""
        if bus._link is not None:  # else it is lost already
            bus._link.connection.abort()

    async def close(self) -> None:
        for bus in self.buses:
            await bus.stop()
