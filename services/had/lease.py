"""The lease in Redis: one look at it, and giving it up."""

from __future__ import annotations

from services.had.election import Rules, Seen
from shared.state import Store, keys


async def look(store: Store, rules: Rules, *, wants: bool, lease_s: float, known: int, answering: bool) -> Seen:
    """Say that this HAD is there; take or renew the lead if it wants it and may. Raises StoreUnavailable."""
    reply = await store.run(
        "had_lease",
        [keys.had_lease(rules.shard), keys.had_epoch(rules.shard), keys.had_present(rules.shard)],
        [rules.name, rules.life, int(wants), round(lease_s * 1000), known, int(answering)],
    )
    assert isinstance(reply, list)
    now, owner, life, epoch, until, highest, *present = reply
    seen: dict[str, tuple[float, bool]] = {}
    for name, value in zip(present[::2], present[1::2], strict=True):
        at, answers = value.split()
        seen[name.decode()] = (int(at) / 1000, answers == b"1")
    return Seen(now / 1000, owner.decode(), life.decode(), int(epoch), until / 1000, int(highest), seen)


async def release(store: Store, rules: Rules, *, for_good: bool) -> None:
    """Give the lead up; harmless for who does not have it. Raises StoreUnavailable."""
    await store.run(
        "had_release",
        [keys.had_lease(rules.shard), keys.had_present(rules.shard)],
        [rules.name, rules.life, int(for_good)],
    )
