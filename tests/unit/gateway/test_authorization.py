import pytest

from services.gateway.auth.tokens import TokenStore
from services.gateway.core.authorization import Identity, Token, beyond, digest, identify, may_hear, refusal, why_not
from shared.operations import NEEDS, Level
from shared.state.embedded import EmbeddedStore

TABLE = {
    "pool": "READ",
    "ads": "READ",
    "jobs.query": "READ",
    "jobs.submit": "WRITE",
    "jobs.import": "ADMINISTRATOR",
    "jobs.act": "WRITE",
    "jobs.edit": "WRITE",
    "jobs.files": "WRITE",
    "jobs.visit": "WRITE",
    "credentials": "WRITE",
    "events": "READ",
    "priorities": "READ",
    "priorities.set": "ADMINISTRATOR",
    "quotas.set": "ADMINISTRATOR",
    "dead-letters": "ADMINISTRATOR",
    "tokens": "ADMINISTRATOR",
    "tokens.fetch": "READ",
    "audit": "ADMINISTRATOR",
    "identities": "ADMINISTRATOR",
    "enroll": "NONE",  # a join token is looked at instead
    "health": "READ",
    "config": "READ",
    "config.set": "WRITE",
    "reconfig": "ADMINISTRATOR",
    "restart": "ADMINISTRATOR",
    "off": "ADMINISTRATOR",
    "on": "ADMINISTRATOR",
    "drain": "ADMINISTRATOR",
    "vacate": "ADMINISTRATOR",
    "update-machine-ad": "ADMINISTRATOR",
}


def test_the_table_is_whole():
    assert {name: level.name for name, level in NEEDS.items()} == TABLE


@pytest.mark.parametrize("operation", TABLE)
@pytest.mark.parametrize("level", Level)
def test_each_cell(operation, level):
    refused = refusal(Identity("alice@x", level), operation)
    assert bool(refused) == (level < Level[TABLE[operation]])
    if refused:
        assert TABLE[operation] in refused
        assert level.name in refused


def test_nobody_may_nothing_and_unlisted_doors_do_not_open():
    assert all(refusal(None, operation) for operation in TABLE)
    with pytest.raises(KeyError):
        refusal(Identity("root@x", Level.ADMINISTRATOR), "no.such.door")


def test_tokens_end():
    assert identify(None, 5.0) is None
    assert identify(Token("a@x", Level.READ, expires=10.0), 9.9) == Identity("a@x", Level.READ, expires=10.0)
    assert identify(Token("a@x", Level.READ, expires=10.0), 10.0) is None
    assert identify(Token("a@x", Level.READ), 1e12) == Identity("a@x", Level.READ)
    assert identify(Token("a@x", Level.READ, revoked=3.0), 5.0) is None
    assert identify(Token("a@x", Level.READ, expires=10.0, scopes=("ads",)), 5.0, "0123") == Identity(
        "a@x", Level.READ, "0123", ("ads",), 10.0
    )


def test_a_token_that_does_not_open_says_why():
    assert why_not(Token("a@x", Level.READ), 5.0) == ""
    assert "does not know" in why_not(None, 5.0)
    assert "expired at 1970-01-01 00:00:10 UTC" in why_not(Token("a@x", Level.READ, expires=10.0), 10.0)
    assert "revoked at 1970-01-01 00:00:03 UTC" in why_not(Token("a@x", Level.READ, expires=10.0, revoked=3.0), 20.0)


def test_scopes_leave_less_than_the_level():
    narrow = Identity("a@x", Level.ADMINISTRATOR, scopes=("jobs.*", "events"))
    assert refusal(narrow, "jobs.submit") == refusal(narrow, "events") == ""
    assert "for jobs.*, events only, not for tokens" in refusal(narrow, "tokens")
    assert "needs WRITE" in refusal(Identity("a@x", Level.READ, scopes=("jobs.*",)), "jobs.submit")


def test_only_administrators_hear_of_what_people_did():
    assert may_hear(Level.READ, "job.started")
    assert not may_hear(Level.WRITE, "gateway.audit")
    assert may_hear(Level.ADMINISTRATOR, "gateway.audit")


async def test_the_first_token_is_in_a_file_for_its_owner_only(tmp_path):
    store = EmbeddedStore()
    await store.start()
    path = tmp_path / "deep" / "token"
    tokens = TokenStore(store, lambda: 1000.0)
    await tokens.bootstrap(path, "me@here")
    assert path.stat().st_mode & 0o777 == 0o600
    token = path.read_text().strip()
    assert await tokens.identity(token) == Identity("me@here", Level.ADMINISTRATOR, digest(token)[:12])
    again = TokenStore(store, lambda: 1000.0)
    await again.bootstrap(path, "me@here")
    assert path.read_text().strip() == token
    assert await again.identity(token + "x") is None
    assert token not in str(await store.hgetall("roost:tokens"))
    assert [*await again.listed()] == [digest(token)[:12]]
    await store.stop()


def test_nobody_hands_on_more_than_they_have():
    whole = Identity("root@x", Level.ADMINISTRATOR, "t")
    assert all(beyond(whole, level, scopes) == [] for level in Level for scopes in ((), ("jobs.*",)))
    narrow = Identity("service@x", Level.ADMINISTRATOR, "t", scopes=("tokens", "jobs.*"))
    assert beyond(narrow, Level.WRITE, ("jobs.*",)) == []
    assert beyond(narrow, Level.ADMINISTRATOR, ("tokens", "jobs.query")) == []
    assert beyond(narrow, Level.READ, ("j*", "ads")) == ["ads"]
    assert beyond(narrow, Level.READ, ())[0] == "every operation"
    assert "drain" in beyond(narrow, Level.ADMINISTRATOR, ("*",))
    assert "priorities" in beyond(narrow, Level.READ, ("*",))


@pytest.mark.parametrize("level", Level)
def test_administrators_alone_act_for_others(level):
    assert Identity("alice@x", level).admin is (level == Level.ADMINISTRATOR)
