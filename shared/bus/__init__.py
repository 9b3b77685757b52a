"""The bus: shared.bus.api is what daemons see; connect() gives one of the transports."""

from __future__ import annotations

from typing import Any

from shared.bus.api import Bus
from shared.tls import ClientTls


def connect(url: str, sender: str, **options: Any) -> Bus:
    """A bus for one daemon, not started yet.

    url: "amqp://user:password@host:port/vhost" (or amqps://; several with commas in between), or "memory:"
    for a hub inside this process, given as `hub=` when several buses share it. sender: "<subsystem>.<name>",
    the daemon's inbox. options: as the transport takes them (AmqpBus, MemoryBus). Raises ValueError for any
    other URL.
    """
    # Imported here, so that a personal pool need not load the AMQP client nor a daemon the in-process hub.
    scheme = url.partition(":")[0].lower()
    if scheme in ("amqp", "amqps"):
        from shared.bus.amqp import AmqpBus

        return AmqpBus(url, sender=sender, **options)
    if scheme == "memory":
        from shared.bus.memory import MemoryBus, MemoryHub

        hub = options.pop("hub", None) or MemoryHub()
        options.pop("spool", None)  # a hub does not outlive its process, nor go away before
        options.pop("tls", None)
        return MemoryBus(hub, sender=sender, **options)
    raise ValueError(f"bus URL scheme {scheme!r}: want amqp://, amqps:// or memory:")


async def try_broker(urls: str, tls: ClientTls) -> str:
    """Why none of these brokers lets us in, in words without passwords; empty: one does."""
    from shared.bus.amqp.trial import try_broker as attempt

    return await attempt(urls, tls)


__all__ = ["Bus", "connect", "try_broker"]
