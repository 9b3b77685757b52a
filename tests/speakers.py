"""What tests say to daemons, each message from who may send it (shared/bus/senders.py)."""

from collections.abc import Callable

from shared.bus import Bus, connect
from shared.bus.api import Exchange
from shared.bus.memory import MemoryBus, MemoryHub
from shared.bus.senders import TABLE
from shared.bus.topology import role_of
from shared.messages.base import Message
from tests.gateway_keys import gateway_bus

#: Fields that name who speaks, by role.
_NAMED = {"collector": "collector", "negotiator": "negotiator", "schedd": "schedd", "startd": "startd", "had": "had"}


def sender_of(message: Message, name: str = "test") -> str:
    """A sender who may send it: of the first role that may, with the name that the message says it has."""
    role = next(iter(TABLE[message.type].by), "gateway")
    return f"{role}.{getattr(message, _NAMED.get(role, ''), '') or name}"


class Speakers:
    """Buses of those who speak; made as they are needed. make: of a sender."""

    def __init__(self, make: Callable[[str], Bus]) -> None:
        self._make = make
        self._buses: dict[str, Bus] = {}

    @classmethod
    def on_hub(cls, hub: MemoryHub) -> "Speakers":
        return cls(lambda sender: MemoryBus(hub, sender=sender))

    @classmethod
    def on_broker(cls, url: str) -> "Speakers":
        return cls(lambda sender: gateway_bus(url, sender) if role_of(sender) == "gateway" else connect(url, sender))

    async def bus(self, sender: str) -> Bus:
        if sender not in self._buses:
            self._buses[sender] = self._make(sender)
            await self._buses[sender].start()
        return self._buses[sender]

    async def call(self, inbox: str, message: Message, *, sender: str = "", **options: object) -> Message:
        """sender: where several may send it, and it matters which."""
        return await (await self.bus(sender or sender_of(message))).call(inbox, message, **options)

    async def send(self, inbox: str, message: Message, **options: object) -> None:
        await (await self.bus(sender_of(message))).send(inbox, message, **options)

    async def publish(self, exchange: Exchange, key: str, message: Message) -> None:
        await (await self.bus(sender_of(message))).publish(exchange, key, message)

    async def stop(self) -> None:
        for bus in self._buses.values():
            await bus.stop()
