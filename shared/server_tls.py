"""TLS of our own servers, the gateway and the access point's file server: which certificate they show, whether they ask
for one of their clients, and files that are renewed while they run.

The knobs are those by which HTCondor's servers are set up: AUTH_SSL_SERVER_CERTFILE, _KEYFILE, _CAFILE, _CADIR,
_USE_DEFAULT_CAS, and AUTH_SSL_REQUIRE_CLIENT_CERTIFICATE. With ROOST_OWN_AUTHORITY a server that is given no
certificate has one made by the pool's own authority (shared.own_authority)."""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import structlog
from cryptography import x509

from shared.config.knobs.server_tls import ServerTlsSettings
from shared.config.knobs.tls import TlsSettings
from shared.errors import PermanentError
from shared.own_authority import OwnAuthority
from shared.tls import TlsTrouble, load_authorities, no_password, stamp, words

CERT_FILE, KEY_FILE = "AUTH_SSL_SERVER_CERTFILE", "AUTH_SSL_SERVER_KEYFILE"
CA_FILE, CA_DIR = "AUTH_SSL_SERVER_CAFILE", "AUTH_SSL_SERVER_CADIR"
REQUIRE: Final = "AUTH_SSL_REQUIRE_CLIENT_CERTIFICATE"
#: What TLS 1.2 may be spoken with: fresh keys for each connection, and encryption that is authenticated. All of TLS
#: 1.3's are like that.
CIPHERS: Final = "ECDHE+AESGCM:ECDHE+CHACHA20"
#: How often the files are looked at, besides at each connection; and how long before its end a certificate that others
#: gave is warned of, seconds.
LOOK_S: Final = 3600.0
WARN_S: Final = 14 * 86400.0


@dataclass(frozen=True, slots=True)
class ServerTls:
    """Paths, empty where there is none. Where an authority is named, clients are asked for a certificate, and one that
    is shown must be of that authority; require_client: one must be shown."""

    cert_file: str
    key_file: str = ""
    ca_file: str = ""
    ca_dir: str = ""
    default_cas: bool = False
    require_client: bool = False

    @classmethod
    def of(cls, settings: ServerTlsSettings, own_file: Path | None = None) -> ServerTls | None:
        """As the configuration says; None: this server speaks no TLS. own_file: certificate and key of our own
        making. Raises PermanentError for what contradicts itself."""
        certs = (settings.auth_ssl_server_certfile or "").replace(",", " ").split()
        keys = (settings.auth_ssl_server_keyfile or "").replace(",", " ").split()
        if keys and not certs:
            raise PermanentError(f"{KEY_FILE} is set without {CERT_FILE}: name the certificate of that key")
        if len(keys) not in (0, len(certs)):
            raise PermanentError(
                f"{CERT_FILE} names {len(certs)} files and {KEY_FILE} {len(keys)}: want a key for each one"
            )
        pairs = [(cert, keys[at] if keys else "") for at, cert in enumerate(certs)]
        if not pairs and own_file is not None:
            pairs = [(str(own_file), "")]
        if not pairs:
            if settings.auth_ssl_require_client_certificate:
                raise PermanentError(f"{REQUIRE} is set, and this server speaks no TLS: set {CERT_FILE}")
            return None
        cert, key = next((pair for pair in pairs if all(os.access(one, os.R_OK) for one in pair if one)), pairs[0])
        found = cls(
            cert_file=cert,
            key_file=key,
            ca_file=settings.auth_ssl_server_cafile or "",
            ca_dir=settings.auth_ssl_server_cadir or "",
            default_cas=settings.auth_ssl_server_use_default_cas,
            require_client=settings.auth_ssl_require_client_certificate,
        )
        if found.require_client and not found.asks_clients:
            raise PermanentError(f"{REQUIRE} is set without {CA_FILE}: name the authority of the clients' certificates")
        return found

    @property
    def asks_clients(self) -> bool:
        """Whether clients are asked for a certificate."""
        return bool(self.ca_file or self.ca_dir or self.default_cas)

    def stamps(self) -> tuple[object, ...]:
        """What changes when one of the files does. Raises TlsTrouble."""
        return tuple(stamp(name, path) for name, path in self._files())

    def _files(self) -> Iterator[tuple[str, str]]:
        named = ((CERT_FILE, self.cert_file), (KEY_FILE, self.key_file), (CA_FILE, self.ca_file), (CA_DIR, self.ca_dir))
        return ((name, path) for name, path in named if path)

    def context(self) -> ssl.SSLContext:
        """Made of the files as they are now. Raises TlsTrouble."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.set_ciphers(CIPHERS)
        context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION | ssl.OP_CIPHER_SERVER_PREFERENCE
        context.set_alpn_protocols(["http/1.1"])
        try:
            context.load_cert_chain(self.cert_file, self.key_file or None, lambda: no_password(KEY_FILE))
        except OSError as error:
            where = f"{self.cert_file} and {self.key_file}" if self.key_file else self.cert_file
            raise TlsTrouble(
                f"{CERT_FILE}, {KEY_FILE}: {where}: {words(error)}; want a certificate (chain) and its key in PEM"
            ) from error
        if self.asks_clients:
            load_authorities(context, (CA_FILE, self.ca_file), (CA_DIR, self.ca_dir))
            if self.default_cas:
                context.load_default_certs(ssl.Purpose.CLIENT_AUTH)
            context.verify_mode = ssl.CERT_REQUIRED if self.require_client else ssl.CERT_OPTIONAL
            # A session that is resumed shows no certificate anew: an authority that was taken away would count on.
            context.options |= ssl.OP_NO_TICKET
            context.num_tickets = 0
        return context

    def certificate(self) -> x509.Certificate:
        """The one that is shown now. Raises TlsTrouble."""
        try:
            return x509.load_pem_x509_certificate(Path(self.cert_file).read_bytes())
        except (OSError, ValueError) as error:
            raise TlsTrouble(f"{CERT_FILE}: {self.cert_file}: {error}") from error


class LiveContext:
    """What a server is set up with: each connection is answered with the files as they are then. Files that can not be
    used are told of once, and those of before count on."""

    def __init__(self, tls: ServerTls, log: structlog.stdlib.BoundLogger) -> None:
        self.tls = tls
        self._log = log
        self._stamps = tls.stamps()
        self._newest = self.context = tls.context()
        self._trouble = ""
        # Called in every handshake, also of clients that name no server.
        self.context.sni_callback = self._begin

    def _begin(self, connection: ssl.SSLObject | ssl.SSLSocket, _: str | None, __: ssl.SSLContext) -> None:
        connection.context = self.current()

    def current(self) -> ssl.SSLContext:
        try:
            stamps = self.tls.stamps()
            if stamps != self._stamps:
                self._newest, self._stamps = self.tls.context(), stamps
                self._log.info("certificate_read", file=self.tls.cert_file)
            self._trouble = ""
        except TlsTrouble as error:
            if str(error) != self._trouble:
                self._log.warning("certificate_not_read", reason=str(error), mend="the one of before is shown on")
            self._trouble = str(error)
        return self._newest


class ServerCertificate:
    """A server's certificate over its life: given by the administrator, or made here and made anew in time.

    server: what the file is called; hosts: names and addresses that it must name, of which the first is its subject."""

    def __init__(
        self,
        settings: ServerTlsSettings,
        server: str,
        hosts: Sequence[str],
        now: Callable[[], float],
        log: structlog.stdlib.BoundLogger,
    ) -> None:
        self._server = server
        self._hosts = list(dict.fromkeys([*hosts, *own_names(settings)]))
        self._now = now
        self._log = log
        own = settings.roost_own_authority and not settings.auth_ssl_server_certfile
        self.authority = own_authority(settings) if own else None
        self._tls = ServerTls.of(settings, self.authority.server_file(server) if self.authority else None)
        self.live: LiveContext | None = None

    @property
    def is_wanted(self) -> bool:
        """Whether this server speaks TLS once it has loaded."""
        return self._tls is not None

    async def load(self) -> ssl.SSLContext | None:
        """For a server that starts now; None: without TLS. Raises PermanentError."""
        if self._tls is None:
            return None
        try:
            await self._renew()
            self.live = await asyncio.to_thread(LiveContext, self._tls, self._log)
            self._warn(self._tls)
        except (TlsTrouble, OSError, ValueError) as error:
            raise PermanentError(f"TLS of the {self._server}: {error}") from error
        return self.live.context

    def names(self) -> list[str]:
        """Host names in the certificate; none without TLS. Raises TlsTrouble."""
        if self._tls is None:
            return []
        try:
            found = self._tls.certificate().extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        except x509.ExtensionNotFound:
            return []
        return list(found.get_values_for_type(x509.DNSName))

    async def run(self) -> None:
        """Have the certificate made anew before it ends, or tell who must, until cancelled."""
        while True:
            await asyncio.sleep(LOOK_S)
            if self._tls is None:
                continue
            try:
                await self._renew()
                self._warn(self._tls)
            except (TlsTrouble, OSError, ValueError) as error:
                self._log.error("certificate_not_renewed", server=self._server, reason=str(error))

    async def _renew(self) -> None:
        authority = self.authority
        if authority is not None and await asyncio.to_thread(
            authority.ensure_server, self._server, self._hosts, self._now()
        ):
            self._log.info("certificate_made", file=str(authority.server_file(self._server)), names=self._hosts)

    def _warn(self, tls: ServerTls) -> None:
        left = tls.certificate().not_valid_after_utc.timestamp() - self._now()
        if left < WARN_S:
            days = round(left / 86400, 1)
            self._log.warning("certificate_ends", file=tls.cert_file, days=days, mend="put a new one in its place")


def own_authority(settings: TlsSettings) -> OwnAuthority:
    """The pool's own authority, as the configuration names its files."""
    return OwnAuthority(Path(settings.trust_domain_cafile), Path(settings.trust_domain_cakey))


def own_names(settings: TlsSettings) -> list[str]:
    """What this machine is called by those who connect to it: ROOST_TLS_NAMES, its host name, and loopback's."""
    named = [*settings.roost_tls_names, socket.gethostname(), "localhost", "127.0.0.1", "::1"]
    return [name for name in dict.fromkeys(named) if name]
