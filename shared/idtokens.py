"""IDTOKENS, as HTCondor issues them: JWTs that the pool signs with a key of its own (HS256), for a user and perhaps for
some levels only.

A signing key is a file of bytes, scrambled as HTCondor scrambles passwords. HMAC's key is made of it by HKDF (RFC 5869)
with SHA-256, the salt "htcondor" and the information "master jwt", 32 bytes; of the key POOL the bytes are taken twice,
as it may be a pool password. The header names the key (kid); the claims are iss (TRUST_DOMAIN), sub (the user), iat,
jti, perhaps exp, and scope: condor:/READ and the like."""

from __future__ import annotations

import base64
import binascii
import json
import os
import re
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import jwt
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from shared.config.knobs.idtokens import IdTokenSettings

POOL: Final = "POOL"
SCOPE: Final = "condor:/"
#: Authorizations that a token may name.
AUTHORIZATIONS: Final = (
    "READ",
    "WRITE",
    "ADMINISTRATOR",
    "CONFIG",
    "DAEMON",
    "NEGOTIATOR",
    "ADVERTISE_STARTD",
    "ADVERTISE_SCHEDD",
    "ADVERTISE_MASTER",
)
#: Longest token that is looked at; HTCondor's own are some 300 characters.
MOST_TOKEN: Final = 16_384
_MOST_KEY: Final = 65_536
_SCRAMBLE: Final = b"\xde\xad\xbe\xef"
_KEY_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}")


class TokenTrouble(ValueError):
    """A token that is not taken, or a key that can not be used: the text says why, and names no secret."""


@dataclass(frozen=True, slots=True)
class KeyFiles:
    """directory: SEC_PASSWORD_DIRECTORY; pool: SEC_TOKEN_POOL_SIGNING_KEY_FILE, empty: POOL in the directory."""

    directory: str
    pool: str = ""

    @classmethod
    def of(cls, settings: IdTokenSettings) -> KeyFiles:
        """As the configuration says."""
        return cls(settings.sec_password_directory, settings.sec_token_pool_signing_key_file or "")

    def path(self, name: str) -> Path:
        """Raises TokenTrouble for what can be no key's name: it comes out of a token that nobody has checked yet."""
        if not _KEY_NAME.fullmatch(name):
            raise TokenTrouble(f"{name[:40]!r} can be no signing key's name")
        return Path(self.pool) if name == POOL and self.pool else Path(self.directory) / name

    def read(self, name: str) -> bytes:
        """HMAC's key. Raises TokenTrouble, also for a file that others may read."""
        path = self.path(name)
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            with os.fdopen(descriptor, "rb") as file:
                status = os.fstat(file.fileno())
                if not stat.S_ISREG(status.st_mode):
                    raise TokenTrouble(f"{path} is no regular file")
                if status.st_mode & 0o077 or status.st_uid not in (0, os.geteuid()):
                    raise TokenTrouble(f"{path} is not its owner's alone: make it so, or a new key, as others saw it")
                raw = file.read(_MOST_KEY + 1)
        except FileNotFoundError:
            raise TokenTrouble(f"there is no signing key {name} ({path})") from None
        except OSError as error:
            raise TokenTrouble(f"signing key {path}: {error.strerror}") from error
        if not raw or len(raw) > _MOST_KEY:
            raise TokenTrouble(f"signing key {path}: want 1 to {_MOST_KEY} bytes")
        return derive(raw, name)


def derive(scrambled: bytes, name: str) -> bytes:
    """HMAC's key of the bytes of a key file."""
    key = bytes(byte ^ _SCRAMBLE[at % 4] for at, byte in enumerate(scrambled))
    return HKDF(SHA256(), 32, b"htcondor", b"master jwt").derive(key * 2 if name == POOL else key)


def make(
    key: bytes,
    name: str,
    *,
    issuer: str,
    user: str,
    now: float,
    jti: str,
    lifetime_s: float = 0.0,
    authorizations: Sequence[str] = (),
) -> str:
    """A token. now: s since 1970; lifetime_s 0: it does not expire; authorizations none: no limit but the user's."""
    claims: dict[str, Any] = {"iat": int(now), "iss": issuer, "jti": jti, "sub": user}
    if lifetime_s:
        claims["exp"] = int(now + lifetime_s)
    if authorizations:
        claims["scope"] = " ".join(f"{SCOPE}{one}" for one in authorizations)
    return jwt.encode(claims, key, "HS256", {"kid": name})


def parts(token: str) -> tuple[dict[str, Any], dict[str, Any]] | None:
    """Header and claims of what may be a JWT, unchecked; None: it is none."""
    if len(token) > MOST_TOKEN or token.count(".") != 2:
        return None
    try:
        header, claims = (json.loads(_bytes(part)) for part in token.split(".")[:2])
    except (ValueError, binascii.Error, RecursionError):
        return None
    return (header, claims) if isinstance(header, dict) and isinstance(claims, dict) else None


def check(token: str, key: bytes, issuer: str, now: float, max_age_s: float | None = None) -> dict[str, Any]:
    """The claims of a token that this key has signed, and that is good now. Raises TokenTrouble with the reason."""
    try:
        claims: dict[str, Any] = jwt.decode(
            token,
            key,
            algorithms=["HS256"],
            options={"verify_exp": False, "verify_iat": False, "verify_nbf": False, "verify_aud": False},
        )
    except jwt.InvalidTokenError as error:
        raise TokenTrouble(f"its signature is not of this pool's key: {error}") from error
    if claims.get("iss") != issuer:
        raise TokenTrouble(f"it is of {str(claims.get('iss'))[:80]!r}, not of {issuer} (TRUST_DOMAIN)")
    if not isinstance(claims.get("sub"), str) or not claims["sub"]:
        raise TokenTrouble("it names no user (sub)")
    check_times(claims, now)
    if max_age_s is not None and number(claims, "iat") + max_age_s < now:
        raise TokenTrouble("it was made too long ago (SEC_TOKEN_MAX_AGE)")
    return claims


def check_times(claims: Mapping[str, Any], now: float, leeway_s: float = 0.0) -> None:
    """Raises TokenTrouble for a token that is over, or not good yet."""
    if "exp" in claims and number(claims, "exp") + leeway_s <= now:
        raise TokenTrouble("it has expired")
    if "nbf" in claims and number(claims, "nbf") - leeway_s > now:
        raise TokenTrouble("it is not good yet (nbf)")


def number(claims: Mapping[str, Any], name: str) -> float:
    """A time of a token, s since 1970; 0: it has none. Raises TokenTrouble."""
    value = claims.get(name, 0.0)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e12:
        raise TokenTrouble(f"its {name} is no time")
    return float(value)


def authorizations(claims: Mapping[str, Any]) -> tuple[str, ...] | None:
    """What a token is limited to (READ, WRITE, ...); None: to nothing. A scope that says nothing of this pool leaves
    nothing."""
    if "scope" not in claims:
        return None
    scope = claims["scope"]
    words = scope.split() if isinstance(scope, str) else ()
    return tuple(word.removeprefix(SCOPE) for word in words if word.startswith(SCOPE))


def _bytes(part: str) -> bytes:
    return base64.b64decode(part + "=" * (-len(part) % 4), altchars=b"-_", validate=True)


def tokens_in(directory: Path) -> list[tuple[Path, str]]:
    """The tokens that lie in a directory, a line each, with their files, in the order of names. Raises OSError."""
    found = []
    for file in sorted(directory.iterdir()):
        if file.name.startswith(".") or file.name.endswith("~") or not file.is_file():
            continue
        for line in file.read_text(errors="replace").splitlines():
            if line.strip() and not line.lstrip().startswith("#"):
                found.append((file, line.strip()))
    return found
