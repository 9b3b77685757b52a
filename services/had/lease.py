"""The lease in Redis: read, renewed, released, or handed to another HAD."""

from __future__ import annotations

from services.had.core.election import Presence, Rules, Seen, Standing, Wish
from shared.accounting_version import NONE, NOTHING, BadVersion, Version, parse
from shared.state import Store, keys


async def look(
    store: Store,
    rules: Rules,
    standing: Standing,
    wish: Wish,
    *,
    lease_s: float,
    answering: bool,
    offer: Version = NOTHING,
    held_back: bool = False,
    asked: bool = False,
) -> Seen:
    """Say that this HAD is there; take or renew the lead if it wants it and may. `offer`: newest version of the books
    that it could restore; `asked`: see Presence. Raises StoreUnavailable."""
    expected = max(standing.books, offer)
    reply = await store.run(
        "had_lease",
        [
            keys.had_lease(rules.shard),
            keys.had_epoch(rules.shard),
            keys.had_present(rules.shard),
            keys.accountant_version(rules.shard),
        ],
        [
            rules.name,
            rules.life,
            int(wish.wants),
            round(lease_s * 1000),
            standing.known,
            int(answering),
            max(wish.least, offer).arg if wish.least is not None else "",
            offer.arg,
            int(held_back),
            int(asked),
            rules.entry,
        ],
    )
    assert isinstance(reply, list)
    now, owner, life, epoch, until, highest, books, *present = reply
    seen = {name.decode(): _presence(value) for name, value in zip(present[::2], present[1::2], strict=True)}
    return Seen(
        now / 1000,
        owner.decode(),
        life.decode(),
        int(epoch),
        until / 1000,
        int(highest),
        seen,
        _books(books),
        expected,
        wish.least is None,
    )


def _books(text: bytes) -> Version:
    """What is no version is as good as no books: they are begun again, or restored."""
    try:
        return parse(text)
    except BadVersion:
        return NONE


def _presence(value: bytes) -> Presence:
    """As a HAD wrote it; one of an earlier version said less."""
    at, answers, *more = value.split()
    offer = Version(int(more[0]), int(more[1])) if len(more) >= 2 else NOTHING
    life = more[4].decode() if len(more) >= 5 else ""
    entry = more[5].decode() if len(more) >= 6 else ""
    return Presence(int(at) / 1000, answers == b"1", offer, more[2:3] == [b"1"], more[3:4] == [b"1"], life, entry)


async def release(store: Store, rules: Rules, *, for_good: bool) -> None:
    """Give the lead up; harmless for who does not have it. Raises StoreUnavailable."""
    await store.run(
        "had_release",
        [keys.had_lease(rules.shard), keys.had_present(rules.shard)],
        [rules.name, rules.life, int(for_good)],
    )


async def hand_over(store: Store, rules: Rules, epoch: int, heir: str, life: str, *, lease_s: float) -> int:
    """Give our lead under `epoch` to another HAD, whose lease begins with it. Returns its epoch; 0 when the lead is not
    ours any more. Raises StoreUnavailable."""
    given = await store.run(
        "had_hand_over",
        [keys.had_lease(rules.shard), keys.had_epoch(rules.shard)],
        [rules.name, rules.life, epoch, heir, life, round(lease_s * 1000)],
    )
    assert isinstance(given, int)
    return given
