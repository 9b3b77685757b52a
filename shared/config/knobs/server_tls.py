"""Knobs of TLS on our own servers, the gateway and the access point's file server: those of HTCondor's servers."""

from __future__ import annotations

from shared.config.knobs.base import declared, knob
from shared.config.knobs.common import CommonSettings


@declared
class ServerTlsSettings(CommonSettings):
    """What the servers read besides (shared.server_tls). SUBSYSTEM.NAME sets one for one of them."""

    auth_ssl_server_certfile: str | None = knob(
        "AUTH_SSL_SERVER_CERTFILE",
        meaning="certificate (chain), in PEM, that the gateway and the access point's file server show, which speak "
        "TLS then; of a list the first that is there; read anew when it changes",
    )
    auth_ssl_server_keyfile: str | None = knob(
        "AUTH_SSL_SERVER_KEYFILE",
        meaning="its key, without a password; none: it is in AUTH_SSL_SERVER_CERTFILE too",
    )
    auth_ssl_server_cafile: str | None = knob(
        "AUTH_SSL_SERVER_CAFILE",
        meaning="authorities, in PEM, whose certificates clients may show; unset, and no AUTH_SSL_SERVER_CADIR: "
        "clients are asked for none",
    )
    auth_ssl_server_cadir: str | None = knob(
        "AUTH_SSL_SERVER_CADIR", meaning="directory of them, with the hashed names that `openssl rehash` makes"
    )
    auth_ssl_server_use_default_cas: bool = knob(
        "AUTH_SSL_SERVER_USE_DEFAULT_CAS",
        "false",
        meaning="certificates of the machine's own authorities may be shown by clients too; no, unless this says so, "
        "as these are the authorities of the whole web",
    )
    auth_ssl_require_client_certificate: bool = knob(
        "AUTH_SSL_REQUIRE_CLIENT_CERTIFICATE",
        "false",
        meaning="the servers speak with nobody who shows no certificate of AUTH_SSL_SERVER_CAFILE",
    )
