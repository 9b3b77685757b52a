"""Knobs of TLS to servers (RabbitMQ, Redis, file servers): those by which HTCondor's clients know theirs."""

from __future__ import annotations

from shared.config.knobs.base import Settings, declared, knob


@declared
class TlsSettings(Settings):
    """What holds for every amqps://, rediss:// and https:// URL that does not say otherwise (shared.tls)."""

    auth_ssl_client_cafile: str | None = knob(
        "AUTH_SSL_CLIENT_CAFILE",
        meaning="authorities, in PEM, whose certificates RabbitMQ, Redis and file servers may show; read anew when it "
        "changes",
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
        meaning="certificate, in PEM, that daemons show to servers that ask for one; read anew when it changes",
    )
    auth_ssl_client_keyfile: str | None = knob(
        "AUTH_SSL_CLIENT_KEYFILE",
        meaning="its key, without a password; none: it is in AUTH_SSL_CLIENT_CERTFILE too",
    )
    ssl_skip_host_check: bool = knob(
        "SSL_SKIP_HOST_CHECK",
        "false",
        meaning="a server's certificate need not name the host; whoever has any certificate is believed",
    )
    roost_transfer_without_tls: bool = knob(
        "ROOST_TRANSFER_WITHOUT_TLS",
        "false",
        meaning="files of jobs, and the tokens that open them, may pass between machines without TLS, where the "
        "network between them is trusted; within one machine they always may",
    )
    roost_own_authority: bool = knob(
        "ROOST_OWN_AUTHORITY",
        "false",
        meaning="servers without AUTH_SSL_SERVER_CERTFILE have a certificate made by an authority of the pool's own, "
        "which is made too, and made anew before it ends; daemons believe it",
    )
    trust_domain_cafile: str = knob(
        "TRUST_DOMAIN_CAFILE",
        "$(SPOOL)/tls/ca.pem",
        meaning="certificate of the pool's own authority; the servers' own certificates lie beside it",
    )
    trust_domain_cakey: str = knob(
        "TRUST_DOMAIN_CAKEY",
        "$(SPOOL)/tls/ca.key",
        meaning="its key: who has it can play every server of the pool",
    )
    roost_tls_names: tuple[str, ...] = knob(
        "ROOST_TLS_NAMES",
        meaning="names and addresses in certificates of the pool's own authority, besides the host name, localhost and "
        "loopback's addresses",
    )
