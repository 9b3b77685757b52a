"""Tokens over one store and several gateways."""

import pytest

from services.gateway.auth import tokens as module
from services.gateway.auth.tokens import BURY_S, TokenStore
from services.gateway.core.authorization import Token, digest
from shared.errors import RetryableError
from shared.operations import Level
from shared.state.embedded import EmbeddedStore


class Counting(EmbeddedStore):
    asked = 0

    async def hget(self, key, field):
        self.asked += 1
        return await super().hget(key, field)


@pytest.fixture
async def store():
    made = Counting()
    await made.start()
    yield made
    await made.stop()


@pytest.fixture
def clock():
    class Clock:
        at = 1_000_000.0

    return Clock


@pytest.fixture
def gateways(store, clock):
    """Two gateways that tell each other of changes."""
    both = []

    async def tell(ids, by):
        for one in both:
            one.forget(ids)

    both += [TokenStore(store, lambda: clock.at, tell) for _ in range(2)]
    return both


async def test_a_revoked_token_is_refused_at_once_by_every_gateway(gateways, store):
    one, two = gateways
    token, ident = await one.create(Token("a@x", Level.READ, "laptop"), by="root@x")
    assert ident == digest(token)[:12]
    for gateway in gateways:
        assert (await gateway.look(token))[0].user == "a@x"
    asked = store.asked
    for gateway in gateways:
        await gateway.look(token)
    assert store.asked == asked  # remembered
    assert await two.revoke(ident) == 1
    for gateway in gateways:
        identity, why = await gateway.look(token)
        assert identity is None
        assert "was revoked at" in why
    assert await one.revoke(ident) == 0


async def test_a_gateway_that_did_not_hear_of_it_forgets_by_itself(store, clock):
    deaf = TokenStore(store, lambda: clock.at)
    other = TokenStore(store, lambda: clock.at)
    token, ident = await deaf.create(Token("a@x", Level.READ))
    assert await deaf.identity(token)
    await other.revoke(ident)
    clock.at += 5.1
    assert await deaf.identity(token) is None


async def test_what_was_read_while_it_changed_is_not_remembered(store, clock):
    tokens = TokenStore(store, lambda: clock.at)
    token, ident = await tokens.create(Token("a@x", Level.READ))
    plain = store.hget

    async def slow(key, field):
        row = await plain(key, field)
        await tokens.revoke(ident)
        return row

    store.hget = slow
    await tokens.look(token)  # may still be let in: it was asked before
    store.hget = plain
    assert await tokens.identity(token) is None


async def test_the_list_tells_of_use_and_makers_but_not_of_tokens(gateways, clock):
    one, two = gateways
    token, ident = await one.create(Token("a@x", Level.READ, "laptop", scopes=("ads",)), by="root@x")
    clock.at += 100
    await two.look(token)
    await two.write_uses()
    (found, used) = (await one.listed())[ident]
    assert (found.by, found.created, found.scopes, used) == ("root@x", 1_000_000.0, ("ads",), 1_000_100.0)
    assert token not in str(await one.listed())
    await one.revoke(ident)
    assert await one.listed() == {}
    assert (await one.listed(all=True))[ident][0].revoked == 1_000_100.0
    # Some day it is forgotten.
    clock.at += BURY_S + 1
    await one.create(Token("b@x", Level.READ))
    assert ident not in await one.listed(all=True)


async def test_an_absent_store_loses_no_use(store, clock):
    tokens = TokenStore(store, lambda: clock.at)
    token, ident = await tokens.create(Token("a@x", Level.READ))
    await tokens.look(token)
    plain = store.hset

    async def away(*_):
        raise RetryableError("away")

    store.hset = away
    await tokens.write_uses()
    store.hset = plain
    await tokens.write_uses()
    assert (await TokenStore(store, lambda: clock.at).listed())[ident][1] == clock.at


async def test_who_guesses_fills_no_memory(store, clock, monkeypatch):
    monkeypatch.setattr(module, "_CACHED", 10)
    tokens = TokenStore(store, lambda: clock.at)
    for number in range(100):
        assert (await tokens.look(f"guess {number}"))[0] is None
    assert len(tokens._seen) <= 10


async def test_a_token_as_an_earlier_release_wrote_it_is_read(store, clock):
    import msgpack

    from shared.state import keys

    row = msgpack.packb({"user": "a@x", "level": 2, "label": "", "expires": 0.0})
    await store.hset(keys.TOKENS, {digest("old"): row})
    assert (await TokenStore(store, lambda: clock.at).identity("old")).level == Level.WRITE
