"""SCITOKENS: what a configuration leaves open or has no effect is told, and a whole gateway takes the tokens of a real
issuer."""

import asyncio
import os
import sys
import threading
import time
from types import SimpleNamespace

import pytest
import structlog

from services.gateway.auth.login_settings import make_logins
from services.gateway.core.scitokens import Issuer
from shared.config import load_config
from shared.config.knobs import GatewaySettings
from shared.errors import PermanentError
from shared.operations import Level
from tests import warm
from tests.integration.inside import InsidePool
from tests.security.issuers import AUDIENCE, OTHER, Clock, RealIssuer


def settled(tmp_path, text, rules="SCITOKENS .* \\0@pool\n", **more):
    (tmp_path / "map").write_text(rules)
    file = tmp_path / "config"
    file.write_text(f"UID_DOMAIN = pool\nCERTIFICATE_MAPFILE = {tmp_path}/map\n{text}\n")
    clock = Clock()
    context = SimpleNamespace(
        config=load_config([file], subsystem="GATEWAY", env={}), clock=clock, log=structlog.stdlib.get_logger()
    )
    return make_logins(GatewaySettings.from_config(context.config), context, None, "owner@pool", **more)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("ROOST_SCITOKENS_ISSUER_LAB = https://lab.example", "for which audience are its tokens"),
        ("ROOST_SCITOKENS_ISSUER_LAB = http://lab.example x", "want https"),
        ("ROOST_SCITOKENS_ISSUER_LAB = lab.example x", "want https"),
        ("ROOST_SCITOKENS_ISSUER_LAB = https://a@lab.example x", "want https://HOST/PATH"),
        ("ROOST_SCITOKENS_ISSUER_LAB = https://lab.example/?a=b x", "neither"),
        (
            "ROOST_SCITOKENS_ISSUER_A = https://x.example x\nROOST_SCITOKENS_ISSUER_B = https://x.example y",
            "another knob",
        ),
        (
            "ROOST_SCITOKENS_ISSUER_A = https://x.example x\nTRUST_DOMAIN = https://x.example",
            "TRUST_DOMAIN is the same",
        ),
    ],
)
def test_a_configuration_that_leaves_it_open_who_is_believed_lets_no_gateway_start(tmp_path, text, says):
    with pytest.raises(PermanentError, match=says):
        settled(tmp_path, text)


ONE = "ROOST_SCITOKENS_ISSUER_LAB = https://lab.example roost"


@pytest.mark.parametrize(
    ("text", "rules", "says"),
    [
        (ONE, "SSL .* a@b\n", "CERTIFICATE_MAPFILE has no rule for SCITOKENS"),
        (f"{ONE}\nSEC_SCITOKENS_ALLOW_FOREIGN_TOKEN_TYPES = true", "", "has no effect: name the issuers"),
        (f"{ONE}\nSEC_SCITOKENS_FOREIGN_TOKEN_ISSUERS = https://lab.example", "", "_TYPES is false"),
        (f"{ONE}\nSEC_SCITOKENS_FOREIGN_TOKEN_ISSUERS = https://x.example", "", "https://x.example is no issuer"),
        ("SCITOKENS_SERVER_AUDIENCE = roost", "", "has no effect: name an issuer"),
    ],
)
def test_what_has_no_effect_is_told(tmp_path, text, rules, says):
    _, told = settled(tmp_path, text, rules)
    assert any(says in one for one in told), told


def test_a_whole_configuration_is_silent(tmp_path):
    logins, told = settled(
        tmp_path,
        f"{ONE}\nROOST_SCITOKENS_ISSUER_GRID = https://grid.example\nSCITOKENS_SERVER_AUDIENCE = a, b\n"
        "SEC_SCITOKENS_ALLOW_FOREIGN_TOKEN_TYPES = true\nSEC_SCITOKENS_FOREIGN_TOKEN_ISSUERS = https://lab.example\n"
        "ROOST_SCITOKENS_REFRESH = 120\nROOST_SCITOKENS_KEEP = 3600",
    )
    assert told == []
    assert logins._scitokens._issuers == {
        "https://lab.example": Issuer("https://lab.example", ("roost",), True),
        "https://grid.example": Issuer("https://grid.example", ("a", "b"), False),
    }
    assert (logins._scitokens._refresh_s, logins._scitokens._keep_s) == (120, 3600)


async def test_a_method_that_is_not_taken_asks_no_issuer(tmp_path, issuer):
    logins, _ = settled(
        tmp_path,
        f"ROOST_SCITOKENS_ISSUER_LAB = {issuer.url} {AUDIENCE}\nSEC_DEFAULT_AUTHENTICATION_METHODS = FS, TOKEN",
    )
    identity, why = await logins.look(issuer.token(), {}, "192.0.2.7")
    assert identity is None
    assert "SCITOKENS is not taken here" in why
    assert issuer.asked == []


async def test_lists_and_levels_of_methods_hold_for_issuers_users_too(tmp_path, issuer):
    rules = rf"SCITOKENS ^{issuer.url},([a-z]+)$ \1" + "\n"
    text = f"ROOST_SCITOKENS_ISSUER_LAB = {issuer.url} {AUDIENCE}\n"
    everything = issuer.token(scope="condor:/ADMINISTRATOR")
    for more, level in (
        ("", Level.WRITE),  # an administrator is whom ALLOW_ADMINISTRATOR lists, whatever an issuer says
        ("ALLOW_ADMINISTRATOR = alice@pool", Level.ADMINISTRATOR),
        ("DENY_WRITE = alice@pool", Level.READ),
        ("SEC_WRITE_AUTHENTICATION_METHODS = FS", Level.READ),
    ):
        logins, _ = settled(tmp_path, text + more, rules)
        identity, why = await logins.look(everything, {}, "192.0.2.7")
        assert (identity.user, identity.level, why) == ("alice@pool", level, ""), more
        await logins.close()


@pytest.mark.parametrize(("with_tls", "told"), [(True, 0), (False, 1)])
def test_a_gateway_with_tls_is_not_told_that_it_speaks_plain_http(tmp_path, with_tls, told):
    _, said = settled(tmp_path, "ROOST_GATEWAY_BIND = 0.0.0.0\nSEC_DEFAULT_ENCRYPTION = REQUIRED", with_tls=with_tls)
    assert len([one for one in said if "speaks plain HTTP" in one]) == told


# --- a whole gateway


@pytest.fixture(scope="module")
def pool(tmp_path_factory):
    """A personal pool that takes tokens of an issuer (pool.issuer)."""
    place = tmp_path_factory.mktemp("oidc")
    loop = asyncio.new_event_loop()
    issuer = RealIssuer()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()

    def run(work):
        return asyncio.run_coroutine_threadsafe(work, loop).result(30)

    run(issuer.start())
    (place / "map").write_text(rf"SCITOKENS ^{issuer.url},(alice|bob)$ \1" + "\n")
    inside = InsidePool(
        place / "pool",
        UID_DOMAIN="pool.example",
        CERTIFICATE_MAPFILE=str(place / "map"),
        ROOST_SCITOKENS_ISSUER_LAB=f"{issuer.url} {AUDIENCE}",
        ROOST_SCITOKENS_ISSUER_AWAY="http://127.0.0.1:9",  # discard: nothing answers there
        SCITOKENS_SERVER_AUDIENCE=AUDIENCE,
    )
    inside.issuer = issuer
    yield inside
    inside.close()
    run(issuer.stop())
    loop.call_soon_threadsafe(loop.stop)
    thread.join(10)
    loop.close()


def now_token(pool, **claims):
    now = int(time.time())
    return pool.issuer.token(**{"iat": now, "exp": now + 600, **claims})


def test_somebody_logs_in_by_an_issuer_and_the_command_and_the_audit_tell(pool):
    token = now_token(pool)
    status, _, me = pool.ask("GET", "/v1/whoami", token=token)
    assert (status, me["user"], me["level"], me["method"]) == (200, "alice@pool.example", "WRITE", "SCITOKENS")
    assert me["expires"] > time.time()
    said = warm.run(
        [sys.executable, "-m", "roost", "ping"],
        env={**pool.environment(), "ROOST_URL": pool.url, "ROOST_TOKEN": token, "PATH": os.environ["PATH"]},
        timeout=100,
        check=True,
    ).stdout
    assert said == "alice@pool.example with level WRITE, by SCITOKENS\n"
    # What she asked for is told with how she was known.
    with pool.client(token) as client:
        client.act("hold", ["99999"])
    with pool.client() as owner:
        records = [one for one in owner.audit() if one["user"] == "alice@pool.example"]
    assert records
    assert records[0]["token"] == me["token"]


def test_failures_say_what_is_wrong_and_count(pool):
    status, headers, refused = pool.ask("GET", "/v1/whoami", token=now_token(pool, sub="carol"))
    assert status == 401
    assert {name.lower(): value for name, value in headers.items()}["www-authenticate"] == "Bearer"
    assert f"no rule for SCITOKENS {pool.issuer.url},carol" in refused["error"]["message"]
    status, _, refused = pool.ask("GET", "/v1/whoami", token=now_token(pool, private=OTHER))
    assert status == 401
    assert "its signature is not of the key" in refused["error"]["message"]
    status, _, refused = pool.ask("GET", "/v1/pool", token=now_token(pool, scope="condor:/ALLOW"))
    assert status == 403
    assert "pool needs READ, you have, by SCITOKENS, NONE" in refused["error"]["message"]
    status, _, refused = pool.ask("GET", "/v1/tokens", token=now_token(pool, scope="condor:/ADMINISTRATOR"))
    assert status == 403
    # One that is too long is no JWT at all, and nobody's.
    long = now_token(pool, filler="x" * 14_000)
    status, _, refused = pool.ask("GET", "/v1/whoami", token=long)
    assert status in (401, 431)


def test_an_issuer_that_is_away_is_no_failed_login(pool):
    """More often than failed logins are looked at."""
    for at in range(40):
        token = now_token(pool, iss="http://127.0.0.1:9", sub=f"alice{at}")
        status, _, refused = pool.ask("GET", "/v1/whoami", token=token)
        assert (status, refused["error"]["retryable"]) == (503, True)
        assert "the keys of http://127.0.0.1:9 can not be had now" in refused["error"]["message"]
        assert "refused" not in refused["error"]["message"].lower()
    assert pool.ask("GET", "/v1/whoami", token=now_token(pool, sub="bob"))[0] == 200


def test_a_token_of_an_issuer_makes_none_that_opens_more_or_ends_later(pool):
    status, _, _ = pool.ask(
        "POST", "/v1/tokens", body={"user": "root@pool.example", "level": "ADMINISTRATOR"}, token=now_token(pool)
    )
    assert status == 403
