"""Tokens widen nobody's rights: users are names that can be one, a token makes, sees and revokes what opens no more
than itself, and what was stored by other hands is looked at as what comes in over HTTP is."""

import time
from fnmatch import fnmatchcase

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.queue.submitters import USER_NAME
from services.gateway.auth.tokens import TokenStore
from services.gateway.core.authorization import Identity, Token, beyond, digest, refusal
from shared.operations import NEEDS, Level
from shared.state import keys
from shared.state.embedded import EmbeddedStore
from shared.user_names import MOST, user_of
from tests.integration.inside import InsidePool

#: Names that nobody may have: paths, pages, terminals, other people's lines in a log.
BAD_USERS = [
    "a/../b@x",
    "../../etc/passwd@x",
    "<script>@x",
    "a@<script>alert(1)</script>",
    "a\x1b[2Jb@x",
    "a\nb@x",
    "a@x\nroot@x",
    "a b@x",
    "a@b@c",
    "@x",
    "a@",
    "@",
    "..@x",
    ".a@x",
    "-rf@x",
    "a..b@x",
    "a@x..y",
    "a@-x",
    "a@.",
    "a,b@x",
    "a@x/*",
    "*@x",
    "a%2fb@x",
    "a\u202eb@x",
    "a\u200bb@x",
    "nobody@unmapped",
    "x" * (MOST - 1) + "@y",
    "a@" + "y" * MOST,
]
_SCOPES = st.lists(
    st.one_of(st.sampled_from(sorted(NEEDS)), st.from_regex(r"\A[a-z.*-]{1,8}\Z"), st.sampled_from(["jobs.*", "*"])),
    max_size=4,
).map(tuple)


@pytest.fixture(scope="module")
def pool(tmp_path_factory):
    inside = InsidePool(tmp_path_factory.mktemp("pool"), ROOST_GATEWAY_RATE="0", UID_DOMAIN="pool.example")
    yield inside
    inside.close()


def made(pool, token=None, **order):
    """(status, answer) of an order for a token."""
    status, _, answer = pool.ask("POST", "/v1/tokens", body=order, **({"token": token} if token else {}))
    return status, answer


@pytest.mark.parametrize("user", BAD_USERS)
def test_no_token_is_made_for_a_user_that_can_be_none(pool, user):
    status, answer = made(pool, user=user, level="READ")
    assert status == 400
    assert answer["error"]["code"] == "bad-request"
    assert "\x1b" not in answer["error"]["message"]


@pytest.mark.parametrize("user", BAD_USERS)
def test_the_pure_check_says_the_same(user):
    with pytest.raises(ValueError, match="can not be a user"):
        user_of(user, "x")


@given(st.text(max_size=40), st.text(max_size=20))
def test_whatever_text_becomes_a_user_is_harmless(name, domain):
    try:
        user = user_of(f"{name}@{domain}", "x")
    except ValueError:
        return
    assert user == f"{name}@{domain}"
    assert not set(user) & set("/\\<>&'\"`$*?;|,:= \t\r\n%(){}[]#")
    assert user.isprintable()
    assert ".." not in user
    # What the door takes the queue takes too.
    assert USER_NAME.fullmatch(name)
    assert USER_NAME.fullmatch(domain)


def test_a_bare_name_is_one_of_the_pools_domain(pool):
    status, answer = made(pool, user="alice", level="READ")
    assert status == 200
    assert pool.ask("GET", "/v1/whoami", token=answer["token"])[2]["user"] == "alice@pool.example"


@pytest.fixture
async def store():
    made = EmbeddedStore()
    await made.start()
    yield made
    await made.stop()


@pytest.mark.parametrize("user", BAD_USERS)
async def test_a_stored_token_of_such_a_user_opens_nothing(store, user):
    row = {"user": user, "level": 3, "label": "", "expires": 0.0, "scopes": [], "created": 0.0, "by": "", "revoked": 0}
    await store.hset(keys.TOKENS, {digest("planted"): msgpack.packb(row)})
    tokens = TokenStore(store, lambda: 1000.0, uid_domain="x")
    identity, why = await tokens.look("planted")
    assert identity is None
    assert "stands for a user that is none" in why


async def test_a_bare_name_that_was_stored_before_is_completed(store):
    tokens = TokenStore(store, lambda: 1000.0, uid_domain="pool.example")
    await tokens.add("old", Token("alice", Level.WRITE))
    assert (await tokens.identity("old")).user == "alice@pool.example"


# --- what a narrow token makes, sees and revokes


def test_a_tokens_administrator_sees_and_revokes_no_more_than_its_own(pool):
    with pool.client() as client:
        narrow = client.create_token("service@x", "ADMINISTRATOR", scopes=["tokens", "jobs.query"], label="narrow")
        wide = client.make_token("root@x", "ADMINISTRATOR", label="wide")
        jobs = client.make_token("bob@x", "WRITE", scopes=["jobs.*"], label="jobs")
        query = client.make_token("carol@x", "READ", scopes=["jobs.query"], label="query")
        whole = {one["label"] for one in client.tokens()}
    assert {"narrow", "wide", "jobs", "query", "bootstrap"} <= whole
    _, _, listed = pool.ask("GET", "/v1/tokens?all=true", token=narrow)
    seen = {one["id"] for one in listed}
    assert query.id in seen
    assert not seen & {wide.id, jobs.id}
    assert all(set(one["scopes"]) <= {"tokens", "jobs.query"} and one["scopes"] for one in listed)
    for hidden in (wide, jobs):
        assert pool.ask("DELETE", f"/v1/tokens/{hidden.id}", token=narrow)[2] == {"revoked": 0}
        assert pool.ask("GET", "/v1/whoami", token=hidden.token)[0] == (200 if hidden is wide else 403)
    assert pool.ask("DELETE", f"/v1/tokens/{query.id}", token=narrow)[2] == {"revoked": 1}


@pytest.mark.parametrize(
    ("scopes", "says"),
    [
        ([], "every operation"),
        (["*"], "jobs.submit"),
        (["jobs.*"], "jobs.submit"),
        (["token*"], "tokens.fetch"),
        (["jobs.quer*"], "all of jobs.quer*"),  # today it is jobs.query alone, tomorrow it may be more
    ],
)
def test_a_tokens_administrator_makes_nothing_wider(pool, scopes, says):
    with pool.client() as client:
        narrow = client.create_token("service@x", "ADMINISTRATOR", scopes=["tokens", "jobs.query"])
    status, answer = made(pool, narrow, user="evil@x", level="ADMINISTRATOR", scopes=scopes)
    assert status == 403
    assert says in answer["error"]["message"]


def test_a_token_that_ends_makes_none_that_does_not(pool):
    with pool.client() as client:
        short = client.create_token("root@x", "ADMINISTRATOR", lifetime_s=1000)
    for lifetime in (0, 2000):
        status, answer = made(pool, short, user="evil@x", level="READ", lifetime_s=lifetime)
        assert (status, "so it makes none that is good longer" in answer["error"]["message"]) == (403, True)
    status, answer = made(pool, short, user="evil@x", level="READ", lifetime_s=10)
    assert status == 200
    assert pool.ask("GET", "/v1/whoami", token=answer["token"])[2]["expires"] < time.time() + 11


def test_who_is_no_administrator_neither_lists_nor_makes(pool):
    with pool.client() as client:
        tokens = [client.create_token("bob@x", level) for level in ("READ", "WRITE")]
    for token in tokens:
        assert pool.ask("GET", "/v1/tokens", token=token)[0] == 403
        assert made(pool, token, user="bob@x", level="READ")[0] == 403


@given(_SCOPES, _SCOPES, st.sampled_from(Level), st.sampled_from(Level))
def test_no_chain_of_tokens_opens_what_the_first_does_not(first, second, high, low):
    maker = Identity("a@x", high, scopes=first)
    if beyond(maker, low, second):
        return
    got = Identity("b@x", low, scopes=second)
    # Also operations that do not exist yet.
    assert all(refusal(got, operation) for operation in NEEDS if refusal(maker, operation))
    if first:
        assert second
        assert all(opens(first, one.replace("*", filling)) for one in second for filling in ("", "x", "new.one-*"))


def opens(scopes, operation):
    return any(fnmatchcase(operation, scope) for scope in scopes)
