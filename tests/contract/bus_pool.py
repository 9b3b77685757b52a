"""What the bus suites share: a pool of buses on one transport."""

import asyncio

from shared.bus.api import Bus, Exchange
from shared.bus.handling import RetryPolicy
from shared.bus.memory import MemoryBus, MemoryHub
from shared.bus.senders import TABLE, Row
from shared.bus.topology import ROLES

#: Quick enough for tests: 5 deliveries within 0.15 s.
RETRY = RetryPolicy(limit=5, first_s=0.01, cap_s=0.1)
#: These suites are about transport: any daemon says anything, anywhere. Who may is told in test_senders.py.
ANYBODY = dict.fromkeys(TABLE, Row(ROLES, ROLES, tuple(Exchange)))


class MemoryPool:
    """Buses on one in-process hub."""

    def __init__(self) -> None:
        self.hub = MemoryHub()
        self.buses: list[MemoryBus] = []

    async def bus(self, sender: str) -> Bus:
        bus = MemoryBus(self.hub, sender=sender, retry=RETRY, publish_wait_s=5.0, rows=ANYBODY)
        self.buses.append(bus)
        await bus.start()
        return bus

    async def inject(self, exchange: str, key: str, data: bytes) -> None:
        """Publish bytes as they are."""
        self.hub.inject(exchange, key, data)

    async def cut(self, bus: Bus) -> None:
        """Lose the connection of this bus; it comes back by itself."""
        bus.disconnect()
        asyncio.get_running_loop().call_later(0.05, bus.reconnect)

    async def close(self) -> None:
        for bus in self.buses:
            await bus.stop()
