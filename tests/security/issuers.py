"""A real issuer of tokens, with real keys, and the part of a gateway that believes it."""

import tempfile
from pathlib import Path

import jwt
import pytest
import structlog
from aiohttp import web
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

from services.gateway.auth.scitokens import SciTokens
from services.gateway.core import scitokens
from shared import map_file
from shared.idtokens import parts
from shared.map_file import MapFile
from shared.tls import ClientTls

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
