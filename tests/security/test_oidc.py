"""SCITOKENS: tokens of issuers, as OpenID Connect has them, of a real issuer with real keys: good ones, and
each attack on a token."""

import asyncio
import base64
import hashlib
import hmac
import json

import jwt
import pytest
from aiohttp import web
from cryptography.hazmat.primitives import serialization

from services.gateway.core import scitokens
from services.gateway.core.scitokens import AGAIN_S, LEEWAY_S, Issuer
from shared.idtokens import TokenTrouble, parts
from shared.operations import Level
from tests.security.issuers import AUDIENCE, NOW, OTHER, PRIVATE, REFRESH_S, RSA, Gate, RealIssuer, published


@pytest.mark.parametrize("algorithm", PRIVATE)
async def test_a_good_token_of_each_algorithm_is_taken(issuer, gate, algorithm):
    issuer.keys = [published(PRIVATE[algorithm], "first", algorithm)]
    found = await gate.identity(issuer.token(PRIVATE[algorithm], algorithm))
    assert (found.user, found.level, found.method) == ("alice@pool", Level.WRITE, "SCITOKENS")
    assert found.expires == NOW + 3600
    assert found.token.startswith("scitoken-")
    assert not found.may_config


async def test_keys_are_fetched_once_for_all(issuer, gate):
    token = issuer.token()
    found = await asyncio.gather(*(gate.identity(token) for _ in range(50)))
    assert {one.user for one in found} == {"alice@pool"}
    await gate.identity(issuer.token(sub="bob"))
    assert issuer.asked == ["/.well-known/openid-configuration", "/keys"]


async def test_an_issuer_with_a_path_and_one_of_rfc_8414():
    issuer = await RealIssuer("/realms/lab").start()
    first = Gate(issuer)
    assert (await first.identity(issuer.token())).user == "alice@pool"
    assert issuer.asked[0] == "/realms/lab/.well-known/openid-configuration"

    async def gone(_):
        return web.Response(status=404)

    async def says(_):
        return web.json_response({"issuer": issuer.url, "jwks_uri": f"{issuer.url}/keys"})

    issuer.answers["/realms/lab/.well-known/openid-configuration"] = gone
    issuer.answers["/.well-known/oauth-authorization-server/realms/lab"] = says
    second = Gate(issuer)
    assert (await second.identity(issuer.token())).user == "alice@pool"
    assert "/.well-known/oauth-authorization-server/realms/lab" in issuer.asked
    await first.scitokens.close()
    await second.scitokens.close()
    await issuer.stop()


@pytest.mark.parametrize(
    ("claims", "level"),
    [
        ({"scope": "condor:/READ"}, Level.READ),
        ({"scope": "condor:/READ condor:/WRITE"}, Level.WRITE),
        ({"scope": "condor:/ADMINISTRATOR"}, Level.ADMINISTRATOR),
        ({"scope": "condor://READ"}, Level.READ),
        ({"scope": "condor:/ALLOW"}, Level.NONE),
        ({"scope": "condor:/ADVERTISE_STARTD"}, Level.NONE),
        ({"scope": "compute.read", "wlcg.ver": "1.0"}, Level.READ),
        ({"scope": "compute.create compute.modify compute.cancel", "wlcg.ver": "1.0"}, Level.WRITE),
    ],
)
async def test_scopes_limit_the_level(issuer, gate, claims, level):
    assert (await gate.identity(issuer.token(**claims))).level == level


@pytest.mark.parametrize(
    "claims",
    [
        {"scope": None},
        {"scope": "openid profile"},
        {"scope": "read:/ write:/"},
        {"scope": "condor"},
        {"scope": "compute.read"},
        {"scope": "xcondor:/READ"},
        {"scope": "compute.create compute.modify", "wlcg.ver": "1.0"},
    ],
)
async def test_a_token_whose_scope_is_not_of_us_is_taken_of_named_issuers_only(issuer, gate, claims):
    assert "its scope gives nothing here" in await gate.refused(issuer.token(**claims))
    foreign = Gate(issuer, foreign=True)
    assert (await foreign.identity(issuer.token(**claims))).level == Level.ADMINISTRATOR  # before the lists
    assert (await foreign.identity(issuer.token(scope="condor:/READ"))).level == Level.READ
    await foreign.scitokens.close()


async def test_a_scope_that_is_no_text_is_refused(issuer, gate):
    assert "its scope is no text" in await gate.refused(issuer.token(scope=["condor:/ADMINISTRATOR"]))


# --- attacks on tokens


def raw(header, claims, sign):
    """A token of any header, with any signature."""
    head, body = (base64.urlsafe_b64encode(json.dumps(one).encode()).rstrip(b"=") for one in (header, claims))
    signature = base64.urlsafe_b64encode(sign(head + b"." + body)).rstrip(b"=")
    return b".".join((head, body, signature)).decode()


async def test_no_algorithm_and_no_hmac_with_the_public_key(issuer, gate):
    issuer.keys = [published(RSA, "first", "RS256")]
    await gate.identity(issuer.token(RSA, "RS256"))
    _, claims = parts(issuer.token(RSA, "RS256"))
    pem = RSA.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    der = RSA.public_key().public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    for name in ("none", "None", "NONE", "nOnE", "", None, 7, ["RS256"], "ES256K", "RS1"):
        said = await gate.refused(raw({"alg": name, "kid": "first"}, claims, lambda _: b""))
        assert "its alg is" in said
    for secret in (pem, pem.strip(), der):
        for name in ("HS256", "HS384", "HS512"):
            kind = {"HS256": hashlib.sha256, "HS384": hashlib.sha384, "HS512": hashlib.sha512}[name]
            forged = raw(
                {"alg": name, "kid": "first"}, claims, lambda text, s=secret, k=kind: hmac.new(s, text, k).digest()
            )
            assert "its alg is" in await gate.refused(forged)
    # An algorithm that is taken, and of which the named key is not.
    crossed = jwt.encode(claims, PRIVATE["ES256"], "ES256", {"kid": "first"})
    assert "its key is none that" in await gate.refused(crossed)


async def test_a_key_that_says_for_what_it_is_is_for_nothing_else(issuer, gate):
    issuer.keys = [published(RSA, "first", "RS256", alg="RS256")]
    assert "its key is none that" in await gate.refused(issuer.token(RSA, "PS256"))
    gate.clock.at += AGAIN_S
    assert (await gate.identity(issuer.token(RSA, "RS256"))).user == "alice@pool"


@pytest.mark.parametrize(
    ("claims", "says"),
    [
        ({"aud": "https://other.example"}, "is for 'https://other.example', and not for this pool"),
        ({"aud": ["a", "b"]}, "not for this pool"),
        ({"aud": []}, "not for this pool"),
        ({"aud": None}, "it is not for this pool"),
        ({"aud": AUDIENCE + "/"}, "not for this pool"),
        ({"aud": AUDIENCE.upper()}, "not for this pool"),
        ({"aud": [[AUDIENCE]]}, "not for this pool"),
        ({"aud": {AUDIENCE: 1}}, "not for this pool"),
        ({"aud": "ANY"}, "not for this pool"),
        ({"exp": NOW - LEEWAY_S}, "has expired"),
        ({"exp": None}, "does not say when it ends"),
        ({"exp": str(NOW + 3600)}, "its exp is no time"),
        ({"exp": True}, "its exp is no time"),
        ({"exp": float("inf")}, "its exp is no time"),
        ({"exp": float("nan")}, "its exp is no time"),
        ({"nbf": NOW + LEEWAY_S + 1}, "not good yet"),
        ({"nbf": "soon"}, "its nbf is no time"),
        ({"iat": int(NOW + LEEWAY_S + 1)}, "made in the future"),
        ({"iat": -5}, "its iat is no time"),
        ({"sub": None}, "it names nobody"),
        ({"sub": ""}, "it names nobody"),
        ({"sub": "alice\n"}, "characters that are not printed"),
        ({"sub": "alice\x00root"}, "characters that are not printed"),
        ({"sub": "a" * 256}, "too long"),
        ({"sub": "root1"}, "CERTIFICATE_MAPFILE has no rule for SCITOKENS"),
        ({"sub": "alice,bob"}, "CERTIFICATE_MAPFILE has no rule for SCITOKENS"),
        ({"sub": "ALICE"}, "CERTIFICATE_MAPFILE has no rule for SCITOKENS"),
        ({"cnf": {"jkt": "x"}}, "bound to a key of its holder"),
        ({"events": {}}, "tells of events"),
    ],
)
async def test_what_a_token_says_is_looked_at(issuer, gate, claims, says):
    assert says in await gate.refused(issuer.token(**claims))


async def test_clocks_may_differ_a_little(issuer, gate):
    for claims in ({"exp": int(NOW) - 20}, {"nbf": int(NOW) + 20}, {"iat": int(NOW) + 20}):
        assert (await gate.identity(issuer.token(**claims))).user == "alice@pool"


async def test_a_subject_that_is_no_text_is_nobody(issuer, gate):
    _, claims = parts(issuer.token())
    for subject in (7, ["alice"], {"a": 1}, True):
        token = jwt.PyJWS().encode(
            json.dumps({**claims, "sub": subject}).encode(), PRIVATE["ES256"], "ES256", {"kid": "first"}
        )
        assert "it names nobody" in await gate.refused(token)


async def test_a_token_of_another_key_and_one_that_was_changed(issuer, gate):
    good = issuer.token()
    assert "its signature is not of the key" in await gate.refused(issuer.token(OTHER))
    head, body, signature = good.split(".")
    _, claims = parts(good)
    more = base64.urlsafe_b64encode(json.dumps({**claims, "scope": "condor:/ADMINISTRATOR"}).encode()).rstrip(b"=")
    assert "its signature" in await gate.refused(f"{head}.{more.decode()}.{signature}")
    assert "its signature" in await gate.refused(f"{head}.{body}.")
    assert "its signature" in await gate.refused(f"{head}.{body}.{signature[:-8]}AAAAAAAA")


async def test_keys_that_a_token_brings_along_are_not_looked_at(issuer, gate):
    """jku, jwk, x5u and x5c name keys of whoever sends the token."""
    thief = RealIssuer()
    thief.keys = [published(OTHER, "first"), published(OTHER, "mine")]
    await thief.start()
    brought = {
        "jku": f"{thief.url}/keys",
        "x5u": f"{thief.url}/keys",
        "jwk": published(OTHER, "first"),
        "x5c": ["MIIB"],
    }
    assert "its signature" in await gate.refused(issuer.token(OTHER, headers=brought))
    assert "its key is none that" in await gate.refused(issuer.token(OTHER, headers={**brought, "kid": "mine"}))
    assert (await gate.identity(issuer.token(headers=brought))).user == "alice@pool"
    assert thief.asked == []
    await thief.stop()


@pytest.mark.parametrize(
    "kid", ["../../dev/null", "first\x00", "' OR 1=1 --", "http://127.0.0.1/keys", "", "x" * 4000, "FIRST", "first "]
)
async def test_a_kid_is_a_name_and_nothing_more(issuer, gate, kid):
    await gate.identity(issuer.token())
    before = list(issuer.asked)
    assert "its key is none that" in await gate.refused(issuer.token(OTHER, headers={"kid": kid}))
    assert issuer.asked == before  # it was asked a moment ago


async def test_a_kid_that_is_no_text(issuer, gate):
    _, claims = parts(issuer.token())
    for kid in (7, ["first"], {"a": 1}, True):
        assert "its kid is no text" in await gate.refused(
            raw({"alg": "ES256", "kid": kid}, claims, lambda _: b"x" * 64)
        )


async def test_a_token_without_kid_means_the_only_key_that_fits(issuer, gate):
    issuer.keys = [published(PRIVATE["ES256"], "first"), published(RSA, "second", "RS256")]
    assert (await gate.identity(issuer.token(headers={"kid": None}))).user == "alice@pool"
    issuer.keys.append(published(OTHER, "third"))
    gate.clock.at += 2 * REFRESH_S
    assert "does not tell which one" in await gate.refused(issuer.token(headers={"kid": None}))
    issuer.keys = [published(PRIVATE["ES256"], "first"), published(OTHER, "first")]
    gate.clock.at += 2 * REFRESH_S
    assert "several keys" in await gate.refused(issuer.token())


@pytest.mark.parametrize(
    "headers",
    [
        {"typ": "logout+jwt"},
        {"typ": "secevent+jwt"},
        {"typ": "dpop+jwt"},
        {"typ": 7},
    ],
)
async def test_a_jwt_that_is_for_something_else_opens_nothing(issuer, gate, headers):
    _, claims = parts(issuer.token())
    signs = jwt.get_algorithm_by_name("ES256")
    token = raw({"alg": "ES256", "kid": "first", **headers}, claims, lambda text: signs.sign(text, PRIVATE["ES256"]))
    assert "no token for access" in await gate.refused(token)
    token = raw({"alg": "ES256", "kid": "first", "crit": ["exp"]}, claims, lambda t: signs.sign(t, PRIVATE["ES256"]))
    assert "crit" in await gate.refused(token)
    token = raw({"alg": "ES256", "kid": "first", "typ": "at+jwt"}, claims, lambda t: signs.sign(t, PRIVATE["ES256"]))
    assert (await gate.identity(token)).user == "alice@pool"


async def test_only_issuers_that_are_named_count(issuer, gate):
    thief = RealIssuer()
    thief.keys = [published(OTHER, "first")]
    await thief.start()
    for named in (thief.url, issuer.url + "/", issuer.url.upper(), issuer.url + "@evil.example", None, 7, [issuer.url]):
        _, claims = parts(issuer.token(OTHER))
        assert not gate.scitokens.takes({**claims, "iss": named})
    assert thief.asked == issuer.asked == []
    await thief.stop()


async def test_two_issuers_with_the_same_subject_are_two_people(issuer):
    other = RealIssuer()
    other.keys = [published(OTHER, "first")]
    await other.start()
    rules = [rf"SCITOKENS ^{issuer.url},alice$ alice@pool", rf"SCITOKENS ^{other.url},alice$ alice@other"]
    gate = Gate(issuer, other, rules=rules)
    assert (await gate.identity(issuer.token())).user == "alice@pool"
    assert (await gate.identity(other.token(OTHER))).user == "alice@other"
    # Neither speaks for the other.
    assert "its signature" in await gate.refused(issuer.token(OTHER))
    assert "its signature" in await gate.refused(other.token())
    await gate.scitokens.close()
    await other.stop()


async def test_an_issuer_that_has_anothers_key_too_does_not_speak_for_it(issuer):
    (key,) = scitokens.keys(json.dumps({"keys": issuer.keys}).encode())
    token = issuer.token()
    header, _ = parts(token)
    assert scitokens.check(token, header, key, Issuer(issuer.url, (AUDIENCE,)), NOW)["sub"] == "alice"
    with pytest.raises(TokenTrouble, match=r"it is not of https://other\.example"):
        scitokens.check(token, header, key, Issuer("https://other.example", (AUDIENCE,)), NOW)
