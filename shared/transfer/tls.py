"""Whether a transfer may go to where a URL points, and over what: between machines over TLS alone, unless the
configuration says that it may be read on the way. Whoever reads a transfer has its token, and so the job's files."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import ssl
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import urlsplit

from shared.config.knobs.tls import TlsSettings
from shared.errors import RetryableError
from shared.tls import ClientTls, certificate_failed, explained
from shared.transfer.errors import CertificateTrouble, InTheClear, TransferUnavailable

IN_THE_CLEAR: Final = "ROOST_TRANSFER_WITHOUT_TLS"


@dataclass(frozen=True, slots=True)
class TransferTls:
    """tls: whom to believe. in_the_clear: files may pass between machines without TLS."""

    tls: ClientTls = field(default_factory=ClientTls)
    in_the_clear: bool = False

    @classmethod
    def of(cls, settings: TlsSettings) -> TransferTls:
        """As the configuration says."""
        return cls(ClientTls.of(settings), settings.roost_transfer_without_tls)

    async def way(self, url: str) -> ssl.SSLContext | bool:
        """What aiohttp is given as `ssl` for this URL. Raises InTheClear, and CertificateTrouble for certificates of
        ours that can not be used."""
        parts = urlsplit(url)
        if parts.scheme == "https":
            try:
                return self.tls.context()
            except RetryableError as error:
                raise CertificateTrouble(f"file transfer: {error}") from error
        host = parts.hostname or ""
        if not self.in_the_clear and not await is_this_machine(host):
            raise InTheClear(
                f"{host} offers files without TLS, so whoever listens between the two machines could read them and "
                "their token: have its access point speak TLS (AUTH_SSL_SERVER_CERTFILE or ROOST_OWN_AUTHORITY "
                f"there), or accept this with {IN_THE_CLEAR} = true here"
            )
        return True


def broken_off(error: BaseException) -> TransferUnavailable:
    """What a transfer that broke off raises, with the mend where TLS is what failed."""
    kind = CertificateTrouble if certificate_failed(error) else TransferUnavailable
    return kind(f"file transfer broke off: {explained(error) or f'{type(error).__name__}: {error}'}")


async def is_this_machine(host: str) -> bool:
    """Whether all addresses of a host are this machine's own."""
    try:
        literal = ipaddress.ip_address(host)
    except ValueError:
        return await asyncio.to_thread(_is_here, host)
    return literal.is_loopback or _is_here(host)


def _is_here(host: str) -> bool:
    try:
        found = socket.getaddrinfo(host, 0, type=socket.SOCK_DGRAM)
    except OSError:
        return False
    return bool(found) and all(_can_bind(family, address) for family, _, _, _, address in found)


def _can_bind(family: int, address: tuple[object, ...]) -> bool:
    # Only an address of this machine can be bound to.
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as one:
            one.bind(address)
    except OSError:
        return False
    return True
