"""Knobs of TLS to RabbitMQ and Redis: those by which HTCondor's clients know their servers."""

from __future__ import annotations

from dataclasses import dataclass

from shared.config.knobs.base import Settings, knob


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsSettings(Settings):
    """What holds for every amqps:// and rediss:// URL that does not say otherwise (shared.tls)."""

    auth_ssl_client_cafile: str | None = knob(
        "AUTH_SSL_CLIENT_CAFILE",
        meaning="authorities, in PEM, whose certificates RabbitMQ and Redis may show; read anew when it changes",
    )
    auth_ssl_client_cadir: str | None = knob(
        "AUTH_SSL_CLIENT_CADIR", meaning="directory of authorities, with the hashed names that `openssl rehash` makes"
    )
    auth_ssl_client_use_default_cas: bool = knob(
        "AUTH_SSL_CLIENT_USE_DEFAULT_CAS",
        "true",
        meaning="the machine's own authorities are believed besides AUTH_SSL_CLIENT_CAFILE and _CADIR",
    )
    auth_ssl_client_certfile: str | None = knob(
        "AUTH_SSL_CLIENT_CERTFILE",
        meaning="certificate, in PEM, that daemons show to RabbitMQ and Redis; read anew when it changes",
    )
    auth_ssl_client_keyfile: str | None = knob(
        "AUTH_SSL_CLIENT_KEYFILE",
        meaning="its key, without a password; none: it is in AUTH_SSL_CLIENT_CERTFILE too",
    )
    ssl_skip_host_check: bool = knob(
        "SSL_SKIP_HOST_CHECK",
        "false",
        meaning="a certificate of RabbitMQ or Redis need not name the host; whoever has any certificate is believed",
    )
