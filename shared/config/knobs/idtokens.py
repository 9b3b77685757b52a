"""Knobs of IDTOKENS: the pool's signing keys, and where tokens lie."""

from __future__ import annotations

from shared.config.knobs.base import declared, knob
from shared.config.knobs.server_tls import ServerTlsSettings


@declared
class IdTokenSettings(ServerTlsSettings):
    """What makes and checks tokens that HTCondor's condor_token_create makes and checks too."""

    trust_domain: str = knob(
        "TRUST_DOMAIN", "$(UID_DOMAIN)", meaning="issuer of the pool's IDTOKENS, and the only one that is taken"
    )
    sec_password_directory: str = knob(
        "SEC_PASSWORD_DIRECTORY",
        "/etc/condor/passwords.d",
        meaning="directory of the keys that IDTOKENS are signed with, by name; no others may read them",
    )
    sec_token_pool_signing_key_file: str | None = knob(
        "SEC_TOKEN_POOL_SIGNING_KEY_FILE",
        meaning="the key POOL, where it lies elsewhere than in SEC_PASSWORD_DIRECTORY",
    )
    sec_token_issuer_key: str = knob(
        "SEC_TOKEN_ISSUER_KEY", "POOL", meaning="key with which the gateway signs tokens that are fetched from it"
    )
    sec_token_fetch_allowed_signing_keys: tuple[str, ...] = knob(
        "SEC_TOKEN_FETCH_ALLOWED_SIGNING_KEYS", "POOL", meaning="keys that `roost token fetch -key` may ask for"
    )
    sec_issued_token_expiration: int | None = knob(
        "SEC_ISSUED_TOKEN_EXPIRATION", unit="s", least=0, meaning="longest life of a token that is fetched; unset: any"
    )
    sec_token_max_age: int | None = knob(
        "SEC_TOKEN_MAX_AGE", unit="s", least=0, meaning="tokens that were made longer ago are refused; unset: none"
    )
    sec_token_revocation_expr: str | None = knob(
        "SEC_TOKEN_REVOCATION_EXPR",
        meaning="ClassAd expression over the claims of an IDTOKEN, as sub, jti, iat: tokens of which it is true are "
        "refused",
    )
    sec_token_directory: str | None = knob(
        "SEC_TOKEN_DIRECTORY", meaning="directory of the user's own tokens; unset: ~/.condor/tokens.d"
    )
    sec_token_system_directory: str = knob(
        "SEC_TOKEN_SYSTEM_DIRECTORY", "/etc/condor/tokens.d", meaning="directory of root's tokens"
    )
