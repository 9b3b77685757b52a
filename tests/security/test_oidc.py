"""SCITOKENS: tokens of issuers, as OpenID Connect has them. A real issuer with real keys; each attack on its tokens,
its keys and its documents, and its absence."""

import asyncio
import base64
import contextlib
import hashlib
import hmac
import json
import os
import ssl
import sys
import tempfile
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import jwt
import pytest
import structlog
from aiohttp import web
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

from services.gateway.auth import scitokens as gateway_scitokens
from services.gateway.auth.login_settings import make_logins
from services.gateway.auth.scitokens import SciTokens
from services.gateway.core import scitokens
from services.gateway.core.scitokens import AGAIN_S, LEEWAY_S, MOST_DOCUMENT, MOST_KEYS, Fetched, Issuer, step
from shared import map_file
from shared.config import load_config
from shared.config.knobs import GatewaySettings
from shared.errors import PermanentError, RetryableError
from shared.idtokens import TokenTrouble, parts
from shared.map_file import MapFile
from shared.operations import Level
from shared.tls import ClientTls
from tests import warm
from tests.certificates import Authority
from tests.integration.inside import InsidePool

AUDIENCE = "https://roost.example"
NOW = 1_800_000_000.0
REFRESH_S, KEEP_S = 600.0, 86_400.0
RSA = rsa.generate_private_key(65537, 2048)
PRIVATE = {
    "RS256": RSA,
    "RS384": RSA,
    "RS512": RSA,
    "PS256": RSA,
    "PS384": RSA,
    "PS512": RSA,
    "ES256": ec.generate_private_key(ec.SECP256R1()),
    "ES384": ec.generate_private_key(ec.SECP384R1()),
    "ES512": ec.generate_private_key(ec.SECP521R1()),
    "EdDSA": ed25519.Ed25519PrivateKey.generate(),
}
OTHER = ec.generate_private_key(ec.SECP256R1())


def published(private, kid, algorithm="ES256", **more):
    """A key as an issuer publishes it."""
    entry = jwt.get_algorithm_by_name(algorithm).to_jwk(private.public_key(), as_dict=True)
    entry.pop("key_ops", None)
    return {**entry, "kid": kid, "use": "sig", **more}


class RealIssuer:
    """Serves its documents over HTTP (or TLS), and notes what it is asked. Whatever a test changes counts from the next
    request on."""

    def __init__(self, path=""):
        self.path = path
        self.keys = [published(PRIVATE["ES256"], "first")]
        self.asked = []
        self.says = {}  # of its own document, in place of what is right
        self.answers = {}  # path -> handler, in place of the right one
        self.hold = None  # an event: its answers wait for it
        self._runner = None
        self.url = ""

    async def start(self, tls=None, port=0):
        app = web.Application()
        app.router.add_get("/{rest:.*}", self._answer)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", port, ssl_context=tls)
        await site.start()
        self.port = self._runner.addresses[0][1]
        self.url = f"{'https' if tls else 'http'}://{'localhost' if tls else '127.0.0.1'}:{self.port}{self.path}"
        return self

    async def stop(self):
        await self._runner.cleanup()

    async def _answer(self, request):
        self.asked.append(request.path)
        if self.hold is not None:
            await self.hold.wait()
        if request.path in self.answers:
            return await self.answers[request.path](request)
        if request.path == f"{self.path}/.well-known/openid-configuration":
            return web.json_response({"issuer": self.url, "jwks_uri": f"{self.url}/keys", **self.says})
        if request.path == f"{self.path}/keys":
            return web.json_response({"keys": self.keys})
        return web.Response(status=404)

    def token(self, private=PRIVATE["ES256"], algorithm="ES256", headers=None, **claims):
        """A good one, but for what is given; a claim that is None is left out."""
        whole = {
            "iss": self.url,
            "sub": "alice",
            "aud": AUDIENCE,
            "iat": int(NOW),
            "exp": int(NOW) + 3600,
            "scope": "openid condor:/WRITE",
            **claims,
        }
        head = {"kid": "first", **(headers or {})}
        return jwt.encode(
            {name: value for name, value in whole.items() if value is not None},
            private,
            algorithm,
            {name: value for name, value in head.items() if value is not None},
        )


class Clock:
    """Goes when a test says so."""

    def __init__(self):
        self.at = 1000.0

    def monotonic(self):
        return self.at

    def now(self):
        return NOW + self.at - 1000.0


class Gate:
    """The gateway's half, for some issuers, without a gateway around it."""

    def __init__(self, *issuers, foreign=False, rules=None, tls=None, clock=None):
        self.clock = clock or Clock()
        found, _ = scitokens.issuers(
            {str(at): [one.url] for at, one in enumerate(issuers)},
            [AUDIENCE],
            foreign,
            [one.url for one in issuers] if foreign else [],
        )
        rules = rules or [rf"SCITOKENS ^{one.url},([a-z]+)$ \1@pool" for one in issuers]
        self.scitokens = SciTokens(
            found,
            rules if isinstance(rules, MapFile) else self._map(rules),
            "pool",
            tls or ClientTls(),
            self.clock.now,
            self.clock.monotonic,
            structlog.stdlib.get_logger(),
            refresh_s=REFRESH_S,
            keep_s=KEEP_S,
        )

    @staticmethod
    def _map(lines):
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "map").write_text("\n".join(lines))
            return map_file.read(Path(folder) / "map", hash_keys=False)

    async def identity(self, token):
        header, claims = parts(token)
        assert self.scitokens.takes(claims)
        return await self.scitokens.identity(token, header, claims)

    async def refused(self, token):
        with pytest.raises(ValueError, match=r".") as caught:
            await self.identity(token)
        return str(caught.value)


@pytest.fixture
async def issuer():
    made = await RealIssuer().start()
    yield made
    await made.stop()


@pytest.fixture
async def gate(issuer):
    made = Gate(issuer)
    yield made
    await made.scitokens.close()


# --- good tokens


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


# --- the issuer's documents


async def broken(issuer, gate):
    """The login can not be decided; what is wrong stands in the log, and not in the answer."""
    with pytest.raises(RetryableError) as caught:
        await gate.identity(issuer.token())
    assert str(caught.value) == f"the keys of {issuer.url} can not be had now; the gateway's log says why"
    return gate.scitokens._had[issuer.url].trouble


async def test_a_document_that_never_ends_is_not_read(issuer, gate):
    sent = []

    async def endless(request):
        answer = web.StreamResponse()
        await answer.prepare(request)
        with contextlib.suppress(ConnectionError):
            while len(sent) < 10_000:
                await answer.write(b" " * 65_536)
                sent.append(65_536)
        return answer

    issuer.answers["/keys"] = endless
    assert f"more than {MOST_DOCUMENT} bytes" in await broken(issuer, gate)
    assert sum(sent) < 64 * MOST_DOCUMENT


async def test_a_set_of_too_many_keys_is_not_taken(issuer, gate):
    issuer.keys = [published(OTHER, str(at)) for at in range(MOST_KEYS + 1)]
    assert f"more than {MOST_KEYS} keys" in await broken(issuer, gate)


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b"", "is no JSON"),
        (b"<html>", "is no JSON"),
        (b"[" * 100_000, "is no JSON"),
        (b"\xff\xfe\x00", "is no JSON"),
        (b"[]", "is no JSON object"),
        (b"{}", "has no keys"),
        (b'{"keys": {}}', "has no keys"),
        (b'{"keys": []}', "has no key of"),
        (b'{"keys": [null, 7, {}, {"kty": "RSA"}, {"kty": "oct", "k": "AAAA", "alg": "HS256"}]}', "has no key of"),
    ],
)
async def test_a_key_set_that_is_none(issuer, gate, body, says):
    async def answer(_):
        return web.Response(body=body)

    issuer.answers["/keys"] = answer
    assert says in await broken(issuer, gate)


async def test_redirects_are_not_followed(issuer, gate):
    elsewhere = await RealIssuer().start()

    async def moved(_):
        return web.Response(status=302, headers={"Location": f"{elsewhere.url}/keys"})

    for path in ("/keys", "/.well-known/openid-configuration"):
        issuer.answers = {path: moved}
        assert "a redirect, which is not followed" in await broken(issuer, gate)
        gate.clock.at += AGAIN_S
    assert elsewhere.asked == []
    await elsewhere.stop()


@pytest.mark.parametrize(
    ("says", "reason"),
    [
        ({"issuer": "https://other.example"}, "name it so, to the letter"),
        ({"issuer": None}, "name it so, to the letter"),
        ({"jwks_uri": None}, "does not say where its keys are"),
        ({"jwks_uri": "http://192.0.2.1/keys"}, "want https"),
        ({"jwks_uri": "file:///etc/passwd"}, "want https"),
        ({"jwks_uri": "ftp://127.0.0.1/keys"}, "want https"),
        ({"jwks_uri": "https://user:word@127.0.0.1/"}, "want https://HOST/PATH"),
        ({"jwks_uri": "https://127.0.0.1:99999/"}, "jwks_uri"),
        ({"jwks_uri": "https://127.0.0.1/\r\nHost: x"}, "it is no URL"),
    ],
)
async def test_an_issuer_that_is_another_or_sends_us_elsewhere(issuer, gate, says, reason):
    issuer.says = says
    assert reason in await broken(issuer, gate)


def test_an_issuer_of_the_network_sends_nobody_to_this_machine():
    said = json.dumps({"issuer": "https://issuer.example", "jwks_uri": "http://127.0.0.1:8080/admin"}).encode()
    with pytest.raises(ValueError, match="want https"):
        scitokens.keys_url(said, Issuer("https://issuer.example", (AUDIENCE,)))


async def test_weak_keys_and_keys_for_other_things_are_left_out():
    small = rsa.generate_private_key(65537, 1024)
    good = published(PRIVATE["ES256"], "good")
    entries = [
        published(small, "small", "RS256"),
        {**published(RSA, "slow", "RS256"), "e": base64.urlsafe_b64encode(b"\x01" * 8).decode()},
        {**published(RSA, "long", "RS256"), "n": "A" * 100_000},
        published(OTHER, "encryption") | {"use": "enc"},
        published(OTHER, "signs") | {"key_ops": ["sign"]},
        published(OTHER, "ops") | {"key_ops": "verify"},
        published(OTHER, "curve") | {"crv": "P-384"},
        published(OTHER, "off", x="AAAA"),
        published(OTHER, "private") | {"d": "AAAA"},
        published(OTHER, "named") | {"kid": 7},
        published(OTHER, "hmac") | {"alg": "HS256"},
        {"kty": "oct", "kid": "secret", "k": "AAAA"},
        good,
    ]
    found = scitokens.keys(json.dumps({"keys": entries}).encode())
    assert [key.kid for key in found] == ["good"]
    assert found[0].algorithms == ("ES256",)


# --- away, rotation, how often


async def test_an_issuer_that_is_away_takes_nobodys_key_away(issuer, gate):
    token = issuer.token(exp=int(NOW + 10 * KEEP_S))
    await gate.identity(token)
    await issuer.stop()
    for _ in range(5):
        gate.clock.at += REFRESH_S
        assert (await gate.identity(token)).user == "alice@pool"
        await gate.scitokens._tasks.finish()
    # A key that is not had may be a new one: nobody can tell now.
    with pytest.raises(RetryableError, match="can not be had now"):
        await gate.identity(issuer.token(OTHER, headers={"kid": "new"}))
    # Not for ever: what was withdrawn in the meantime is not known.
    gate.clock.at += KEEP_S
    with pytest.raises(RetryableError, match="can not be had now"):
        await gate.identity(token)
    # And once it is there again.
    await issuer.start(port=issuer.port)
    gate.clock.at += AGAIN_S
    assert (await gate.identity(token)).user == "alice@pool"


async def test_an_issuer_that_was_never_there_is_asked_seldom(issuer, gate):
    await issuer.stop()
    for _ in range(10):
        with pytest.raises(RetryableError):
            await gate.identity(issuer.token())
    await issuer.start(port=issuer.port)
    with pytest.raises(RetryableError):
        await gate.identity(issuer.token())
    assert issuer.asked == []
    gate.clock.at += AGAIN_S
    assert (await gate.identity(issuer.token())).user == "alice@pool"


async def test_an_issuer_that_does_not_answer_holds_up_nobody_whose_key_is_had(issuer, gate):
    token = issuer.token()
    await gate.identity(token)
    issuer.hold = asyncio.Event()
    gate.clock.at += REFRESH_S
    waiting = asyncio.create_task(gate.identity(issuer.token(headers={"kid": "new"})))
    await asyncio.sleep(0)
    began = time.monotonic()
    assert (await gate.identity(token)).user == "alice@pool"
    assert time.monotonic() - began < 5
    assert not waiting.done()
    issuer.hold.set()
    with pytest.raises(TokenTrouble, match="its key is none that"):
        await waiting


async def test_an_issuer_is_waited_for_a_while_only(issuer, gate, monkeypatch):
    monkeypatch.setattr(gateway_scitokens, "WAIT_S", 0.2)
    issuer.hold = asyncio.Event()
    assert "no answer within 0.2 s" in await broken(issuer, gate)
    issuer.hold.set()


async def test_a_new_key_counts_at_once_and_an_old_one_no_more(issuer, gate):
    old, new = issuer.token(), issuer.token(OTHER, headers={"kid": "new"})
    await gate.identity(old)
    gate.clock.at += AGAIN_S
    issuer.keys = [published(OTHER, "new")]
    assert (await gate.identity(new)).user == "alice@pool"
    assert "its key is none that" in await gate.refused(old)
    # The same name, another key: taken with the next round.
    gate.clock.at += 2 * REFRESH_S
    issuer.keys = [published(PRIVATE["ES256"], "new")]
    assert "its signature" in await gate.refused(new)


async def test_a_withdrawn_key_does_not_count_after_a_quiet_time(issuer, gate):
    """Without anybody who asks, nothing is fetched: the first who does waits for it."""
    token = issuer.token(exp=int(NOW) + 90_000)
    await gate.identity(token)
    issuer.keys = [published(OTHER, "new")]
    gate.clock.at += 10 * REFRESH_S
    assert "its key is none that" in await gate.refused(token)


async def test_strange_kids_do_not_make_us_ask_without_an_end(issuer, gate):
    await gate.identity(issuer.token())
    for at in range(100):
        gate.clock.at += 1
        await gate.refused(issuer.token(OTHER, headers={"kid": f"guess-{at}"}))
    assert issuer.asked.count("/keys") == 2
    # And hold up nobody else.
    assert (await gate.identity(issuer.token())).user == "alice@pool"


KEYS = ("one",)


@pytest.mark.parametrize(
    ("had", "known", "now", "wanted"),
    [
        (Fetched(), False, 0.0, (True, True)),
        (Fetched(tried=0.0, trouble="x"), False, AGAIN_S - 1, (False, True)),
        (Fetched(tried=0.0, trouble="x"), False, AGAIN_S, (True, True)),
        (Fetched(KEYS, 0.0, 0.0), True, REFRESH_S - 1, (False, False)),
        (Fetched(KEYS, 0.0, 0.0), True, REFRESH_S, (True, False)),
        (Fetched(KEYS, 0.0, 0.0), True, 2 * REFRESH_S, (True, True)),
        (Fetched(KEYS, 0.0, 2 * REFRESH_S - 100, "away"), True, 2 * REFRESH_S, (True, False)),
        (Fetched(KEYS, 0.0, 2 * REFRESH_S - 1, "away"), True, 2 * REFRESH_S, (False, False)),
        (Fetched(KEYS, 0.0, 0.0), False, AGAIN_S - 1, (False, True)),
        (Fetched(KEYS, 0.0, 0.0), False, AGAIN_S, (True, True)),
        (Fetched(KEYS, 0.0, KEEP_S - 100, "away"), True, KEEP_S, (True, True)),
    ],
)
def test_when_keys_are_fetched_and_who_waits(had, known, now, wanted):
    assert step(had, known, now, REFRESH_S, KEEP_S) == wanted
    assert had.good(KEEP_S, KEEP_S) == ()


# --- TLS


async def test_an_issuer_is_known_by_its_certificate(tmp_path):
    (tmp_path / "ours").mkdir()
    (tmp_path / "others").mkdir()
    ours, others = Authority(tmp_path / "ours"), Authority(tmp_path / "others", "Another")
    pair = ours.issue("issuer", "DNS:localhost")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(pair.cert, pair.key)
    issuer = await RealIssuer().start(context)
    good = Gate(issuer, tls=ClientTls(ca_file=str(ours.ca), default_cas=False))
    assert (await good.identity(issuer.token())).user == "alice@pool"
    stranger = Gate(issuer, tls=ClientTls(ca_file=str(others.ca), default_cas=False))
    assert "no authority that is known here" in await broken(issuer, stranger)
    # A knob that lets the broker's certificate name another host lets nobody play an issuer.
    wrong = await RealIssuer().start(context)
    wrong.url = wrong.url.replace("localhost", "127.0.0.1")
    unchecked = Gate(wrong, tls=ClientTls(ca_file=str(ours.ca), default_cas=False, check_host=False))
    assert "not valid for" in await broken(wrong, unchecked)
    for one in (good, stranger, unchecked):
        await one.scitokens.close()
    await issuer.stop()
    await wrong.stop()


# --- configurations


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
        (f"{ONE}\nSEC_SCITOKENS_PLUGIN_NAMES = lcmaps", "", "no program is asked"),
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
