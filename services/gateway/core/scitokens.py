"""SCITOKENS: bearer tokens, which are JWTs, of issuers that the configuration names, as OpenID Connect providers make
them, with the profiles of SciTokens and WLCG. Who the issuers are, what their documents say, whether a token is good,
and when keys are fetched again. Pure.

An issuer publishes where its keys are (OpenID Connect Discovery 1.0, RFC 8414) and the keys (RFC 7517). Of a token only
`iss` is used before its signature is checked, to choose among the issuers; what its header says of keys elsewhere (jku,
jwk, x5u, x5c) is never looked at."""

from __future__ import annotations

import ipaddress
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import SplitResult, urlsplit

import jwt
from cryptography.hazmat.primitives.asymmetric import rsa

from shared import idtokens
from shared.idtokens import TokenTrouble

#: Algorithm -> kind of key, with its curve. Signatures of public keys only: with HMAC who checks could also sign.
ALGORITHMS: Final[Mapping[str, tuple[str, tuple[str, ...]]]] = {
    "RS256": ("RSA", ()),
    "RS384": ("RSA", ()),
    "RS512": ("RSA", ()),
    "PS256": ("RSA", ()),
    "PS384": ("RSA", ()),
    "PS512": ("RSA", ()),
    "ES256": ("EC", ("P-256",)),
    "ES384": ("EC", ("P-384",)),
    "ES512": ("EC", ("P-521",)),
    "EdDSA": ("OKP", ("Ed25519", "Ed448")),
}
#: Clocks of two machines may differ by this much, seconds.
LEEWAY_S: Final = 30.0
#: A document of an issuer has no more keys; a key's parts no more characters (RSA of 8192 bits).
MOST_KEYS: Final = 100
_MOST_PART: Final = 1_400
#: Bits of RSA that are neither too few to be safe nor so many that checking is work.
_RSA_BITS: Final = range(2048, 8193)
_MOST_SUBJECT: Final = 255  # characters, as OpenID Connect has it
#: An issuer whose keys are wanted is not asked sooner after it was asked, seconds, whatever tokens name.
AGAIN_S: Final = 60.0
#: What a JWT may be: those of other kinds, as logout tokens, are signed with the same keys.
_KINDS: Final = ("JWT", "AT+JWT", "APPLICATION/AT+JWT")
#: Scopes of the WLCG profile that are condor:/READ, and condor:/WRITE where all three are there.
_WLCG_READ: Final = "compute.read"
_WLCG_WRITE: Final = {"compute.modify", "compute.create", "compute.cancel"}


@dataclass(frozen=True, slots=True)
class Issuer:
    """url: as `iss` says it; audiences: one of them must stand in `aud`; foreign: also its tokens without a scope of
    levels are taken, which limit nothing."""

    url: str
    audiences: tuple[str, ...]
    foreign: bool = False

    @property
    def is_plain(self) -> bool:
        """Whether it is asked without TLS, on this machine."""
        return self.url.startswith("http:")


@dataclass(frozen=True, slots=True)
class Key:
    """One that an issuer publishes. kid: its name, empty for none; algorithms: with which it may have signed."""

    kid: str
    algorithms: tuple[str, ...]
    public: Any


def issuers(
    named: Mapping[str, Sequence[str]],
    audiences: Sequence[str],
    foreign_types: bool,
    foreign: Sequence[str],
    trust_domain: str = "",
) -> tuple[dict[str, Issuer], list[str]]:
    """The issuers of a configuration by their URL, and what a person should hear. named: what stands behind
    ROOST_SCITOKENS_ISSUER_, with a URL and audiences; audiences: of those that name none. Raises ValueError with the
    knob and the mend."""
    found: dict[str, Issuer] = {}
    for name, words in sorted(named.items()):
        knob = f"ROOST_SCITOKENS_ISSUER_{name.upper()}"
        url, own = words[0], tuple(words[1:])
        try:
            check_url(url, plain_too=True)
        except ValueError as error:
            raise ValueError(f"{knob} = {' '.join(words)}: {error}") from error
        if "?" in url or "#" in url:
            raise ValueError(f"{knob} = {' '.join(words)}: an issuer's URL has neither ? nor #")
        if url == trust_domain:
            raise ValueError(f"{knob} = {url}: TRUST_DOMAIN is the same, so nobody could tell IDTOKENS from its tokens")
        if url in found:
            raise ValueError(f"{knob} = {url}: another knob names it too; give all audiences in one")
        if not (own or audiences):
            raise ValueError(
                f"{knob} = {url}: for which audience are its tokens? Name it behind the URL, or in "
                "SCITOKENS_SERVER_AUDIENCE, or tokens that it made for others would count here"
            )
        found[url] = Issuer(url, own or tuple(audiences), foreign_types and url in foreign)
    told = [
        f"SEC_SCITOKENS_FOREIGN_TOKEN_ISSUERS: {url} is no issuer of ROOST_SCITOKENS_ISSUER_<name>: its tokens are not "
        "taken"
        for url in foreign
        if url not in found
    ]
    if found and foreign_types and not foreign:
        told.append(
            "SEC_SCITOKENS_ALLOW_FOREIGN_TOKEN_TYPES has no effect: name the issuers in "
            "SEC_SCITOKENS_FOREIGN_TOKEN_ISSUERS"
        )
    if foreign and not foreign_types:
        told.append(
            "SEC_SCITOKENS_FOREIGN_TOKEN_ISSUERS has no effect: SEC_SCITOKENS_ALLOW_FOREIGN_TOKEN_TYPES is false"
        )
    if not found and audiences:
        told.append("SCITOKENS_SERVER_AUDIENCE has no effect: name an issuer in ROOST_SCITOKENS_ISSUER_<name>")
    return found, told


# --- documents of issuers


def check_url(url: str, *, plain_too: bool) -> SplitResult:
    """Raises ValueError for a URL of which nobody is asked. plain_too: http is good within this machine."""
    if not url.isascii() or not url.isprintable() or " " in url or "\\" in url or len(url) > 1000:
        raise ValueError("it is no URL")
    parts = urlsplit(url)
    if parts.username is not None or not parts.hostname:
        raise ValueError("want https://HOST/PATH")
    if parts.port == 0:
        raise ValueError("want a port that there is")
    if parts.scheme == "http" and plain_too and _is_here(parts.hostname):
        return parts
    if parts.scheme != "https":
        raise ValueError("want https, as whoever is on the way could give other keys; http within this machine only")
    return parts


def _is_here(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def discovery(issuer: Issuer) -> tuple[str, str]:
    """Where an issuer says of itself: as OpenID Connect has it, and as RFC 8414 has it for those that lack the
    first."""
    parts = urlsplit(issuer.url)
    path = parts.path.rstrip("/")
    return (
        parts._replace(path=f"{path}/.well-known/openid-configuration").geturl(),
        parts._replace(path=f"/.well-known/oauth-authorization-server{path}").geturl(),
    )


def keys_url(document: bytes, issuer: Issuer) -> str:
    """Where an issuer's keys are, by what it says of itself. Raises ValueError."""
    said = _object(document, "what it says of itself")
    if said.get("issuer") != issuer.url:
        raise ValueError(f"it says to be {str(said.get('issuer'))[:200]!r}: name it so, to the letter")
    url = said.get("jwks_uri")
    if not isinstance(url, str):
        raise ValueError("it does not say where its keys are (jwks_uri)")
    try:
        check_url(url, plain_too=issuer.is_plain)
    except ValueError as error:
        raise ValueError(f"jwks_uri = {url[:200]!r}: {error}") from error
    return url


def keys(document: bytes) -> tuple[Key, ...]:
    """The keys of a set that can sign tokens for us; what is of another kind is left out. Raises ValueError where there
    are none."""
    listed = _object(document, "its key set").get("keys")
    if not isinstance(listed, list):
        raise ValueError("its key set has no keys")
    if len(listed) > MOST_KEYS:
        raise ValueError(f"its key set has more than {MOST_KEYS} keys")
    found = tuple(key for key in map(_key, listed) if key is not None)
    if not found:
        raise ValueError(f"its key set has no key of {', '.join(ALGORITHMS)}")
    return found


def _object(document: bytes, what: str) -> dict[str, Any]:
    try:
        found = json.loads(document)
    except (ValueError, RecursionError):
        raise ValueError(f"{what} is no JSON") from None
    if not isinstance(found, dict):
        raise ValueError(f"{what} is no JSON object")
    return found


def _key(entry: Any) -> Key | None:
    if not isinstance(entry, dict) or "d" in entry or entry.get("use", "sig") != "sig":
        return None
    operations = entry.get("key_ops", ["verify"])
    if not isinstance(operations, list) or "verify" not in operations:
        return None
    kid, kind, curve = entry.get("kid", ""), entry.get("kty"), entry.get("crv")
    fits = tuple(
        name
        for name, (wanted, curves) in ALGORITHMS.items()
        if wanted == kind and (not curves or curve in curves) and entry.get("alg", name) == name
    )
    parts = {name: entry.get(name) for name in ("kty", "crv", "n", "e", "x", "y") if name in entry}
    if (
        not fits
        or not isinstance(kid, str)
        or not all(isinstance(p, str) and len(p) <= _MOST_PART for p in parts.values())
    ):
        return None
    try:
        public = jwt.PyJWK.from_dict(parts, fits[0]).key
    except (jwt.PyJWTError, ValueError, TypeError, KeyError):
        return None
    if isinstance(public, rsa.RSAPublicKey) and (
        public.key_size not in _RSA_BITS or public.public_numbers().e.bit_length() > 32
    ):
        return None
    return Key(kid, fits, public)


# --- tokens


def algorithm(header: Mapping[str, Any]) -> str:
    """With which a token says that it is signed. Raises TokenTrouble for one that is not taken."""
    name = header.get("alg")
    if not isinstance(name, str) or name not in ALGORITHMS:
        raise TokenTrouble(f"its alg is {str(name)[:20]!r}, and of issuers only {', '.join(ALGORITHMS)} are taken")
    if "crit" in header or "b64" in header:
        raise TokenTrouble("it asks for what is not known here (crit)")
    kind = header.get("typ", "JWT")
    if not isinstance(kind, str) or kind.upper() not in _KINDS:
        raise TokenTrouble(f"it is no token for access: its typ is {str(kind)[:40]!r}")
    if not isinstance(header.get("kid", ""), str):
        raise TokenTrouble("its kid is no text")
    return name


def find(published: Iterable[Key], header: Mapping[str, Any]) -> Key | None:
    """The key that a token names, or the only one that it can mean; None: there is none. Raises TokenTrouble."""
    name = algorithm(header)
    fits = [key for key in published if name in key.algorithms and ("kid" not in header or key.kid == header["kid"])]
    if len(fits) > 1:
        raise TokenTrouble("its issuer has several keys, and it does not tell which one (kid)")
    return fits[0] if fits else None


def check(token: str, header: Mapping[str, Any], key: Key, issuer: Issuer, now: float) -> dict[str, Any]:
    """The claims of a token that this key has signed, that is for us, and that is good now (s since 1970). Raises
    TokenTrouble with the reason."""
    try:
        claims: dict[str, Any] = jwt.decode(
            token,
            key.public,
            algorithms=[algorithm(header)],
            options={
                "verify_exp": False,
                "verify_iat": False,
                "verify_nbf": False,
                "verify_aud": False,
                "verify_sub": False,
                "verify_jti": False,
            },
        )
    except (jwt.PyJWTError, ValueError, TypeError) as error:
        raise TokenTrouble(f"its signature is not of the key that {issuer.url} publishes") from error
    if claims.get("iss") != issuer.url:
        raise TokenTrouble(f"it is not of {issuer.url}")
    audience = claims.get("aud")
    audiences = [audience] if isinstance(audience, str) else audience if isinstance(audience, list) else []
    if not any(one in issuer.audiences for one in audiences):
        what = f"for {str(audience)[:200]!r}, and not" if "aud" in claims else "not"
        raise TokenTrouble(
            f"it is {what} for this pool (aud; ROOST_SCITOKENS_ISSUER_<name>, SCITOKENS_SERVER_AUDIENCE)"
        )
    if "exp" not in claims:
        raise TokenTrouble("it does not say when it ends (exp)")
    idtokens.check_times(claims, now, LEEWAY_S)
    if idtokens.number(claims, "iat") - LEEWAY_S > now:
        raise TokenTrouble("it was made in the future (iat): its issuer's clock is wrong, or ours")
    if "cnf" in claims:
        raise TokenTrouble("it is bound to a key of its holder (cnf), which nobody asks for here")
    if "events" in claims:
        raise TokenTrouble("it tells of events, and opens nothing")
    subject = claims.get("sub")
    if not isinstance(subject, str) or not subject:
        raise TokenTrouble("it names nobody (sub)")
    if len(subject) > _MOST_SUBJECT or not subject.isprintable():
        # A line's end behind a name would fit a rule that ends in $.
        raise TokenTrouble("its sub is too long, or has characters that are not printed")
    return claims


def authorizations(claims: Mapping[str, Any], issuer: Issuer) -> tuple[str, ...] | None:
    """What a token is limited to (READ, WRITE, ...): its condor:/ scopes, and compute.* of the WLCG profile, as
    HTCondor reads them; read:/ and write:/ are of files in storage. None: it limits nothing, and is of an issuer of
    which that is taken. Raises TokenTrouble."""
    scope = claims.get("scope", "")
    if not isinstance(scope, str):
        raise TokenTrouble("its scope is no text")
    words = set(scope.split())
    found = [word.removeprefix(idtokens.SCOPE).lstrip("/") for word in scope.split() if word.startswith(idtokens.SCOPE)]
    if "wlcg.ver" in claims:
        found += ["READ"] * (_WLCG_READ in words) + ["WRITE"] * (words >= _WLCG_WRITE)
    if found:
        return tuple(found)
    if issuer.foreign:
        return None
    raise TokenTrouble(
        "its scope gives nothing here: want condor:/READ, condor:/WRITE or condor:/ADMINISTRATOR in it, or its issuer "
        "in SEC_SCITOKENS_FOREIGN_TOKEN_ISSUERS"
    )


# --- when keys are fetched


@dataclass(frozen=True, slots=True)
class Fetched:
    """What is had of an issuer's keys. got: when they came; tried: when they were asked for last; both monotonic s,
    None: never. trouble: why the last try failed, empty: it did not."""

    keys: tuple[Key, ...] = ()
    got: float | None = None
    tried: float | None = None
    trouble: str = ""

    def good(self, now: float, keep_s: float) -> tuple[Key, ...]:
        """The keys that still count: of an issuer that has not been heard of for so long, none."""
        return self.keys if self.got is not None and now - self.got < keep_s else ()


def step(had: Fetched, known: bool, now: float, refresh_s: float, keep_s: float) -> tuple[bool, bool]:
    """Whether keys are to be fetched, and whether a token must wait for it. known: its key is had.

    A key that is had counts on while they are fetched, but not where nobody has asked for a whole round more: the
    issuer may have withdrawn it long ago."""
    if not had.good(now, keep_s) or had.got is None:
        known = False
    due = not known or had.got is None or now - had.got >= refresh_s
    if not due or (had.tried is not None and now - had.tried < AGAIN_S):
        return False, not known
    idle = had.got is not None and now - had.got >= 2 * refresh_s and not had.trouble
    return True, not known or idle
