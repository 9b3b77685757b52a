"""Locates the pool: its directory, the gateway's address, the token. Shared by the command and the client library.

Order: what the caller says; ROOST_URL and ROOST_TOKEN (or ROOST_TOKEN_FILE) in the environment; the personal pool in
ROOST_POOL_DIR, else ~/.roost, which `roost up` describes in `pool.json`; the gateway of this machine at LOCAL_SOCKET.

Several addresses with commas between them are gateways of one pool: the first that answers is used, and the next one
when it dies or hangs.

Where nobody names an address or a token, a gateway of this machine is asked over its Unix socket: the kernel tells it
who asks, and no token is needed. The token "" is that of who has none, whatever the environment and files have: it is
the socket then, or the address without a token.

Whose certificate a gateway with https may show: an authority's in ROOST_CA_FILE; else that of the personal pool's own
authority, where the gateway is one's own; else those of AUTH_SSL_CLIENT_CAFILE and the other knobs of the machine's
configuration, and the machine's own. ROOST_CERT_FILE and ROOST_KEY_FILE are a certificate to show and its key.
"""

from __future__ import annotations

import os
import ssl
import stat
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from roost.errors import ClientError
from roost.pool_directory import TOKEN_FILE, described, pool_dir

if TYPE_CHECKING:
    from shared.tls import ClientTls

#: Where the gateway of an access point listens to users of the machine (ROOST_GATEWAY_SOCKET).
LOCAL_SOCKET = Path("/run/roost/gateway.socket")


@dataclass(frozen=True, slots=True)
class PoolLocation:
    """socket: path of a Unix socket that is asked in place of the url's address; empty: none. token: empty where the
    socket tells who asks. ca_file: the authority that vouches for a personal pool's gateway; empty: as the environment
    says. others: further gateways of the same pool."""

    url: str
    token: str
    socket: str = ""
    ca_file: str = ""
    others: tuple[str, ...] = ()


def locate(url: str | None = None, token: str | None = None) -> PoolLocation:
    """token: "" for who has none, and asks for nothing that needs one. Raises ClientError telling how to name or start
    a pool."""
    named = (url or os.environ.get("ROOST_URL") or "").split(",")
    url, *others = [one.strip().rstrip("/") for one in named if one.strip()] or [""]
    own_ca = ""
    if not url or url.startswith("https:"):
        personal = described()
        own = str(personal.get("url", "")).rstrip("/")
        url = url or own
        own_ca = str(personal.get("ca_file", "")) if url == own else ""
    if not url:
        raise ClientError(
            f"no pool found: start one with `roost up`, or set ROOST_URL (looked in {pool_dir()})", code="no-pool"
        )
    if token is None:
        token = os.environ.get("ROOST_TOKEN") or _token()
    return PoolLocation(_whole(url), token, ca_file=own_ca, others=tuple(map(_whole, others)))


def _whole(url: str) -> str:
    if "://" in url:
        return url
    return f"http://{url}" if ":" in url else f"http://{url}:9680"


def locate_gateway(url: str | None = None, token: str | None = None) -> PoolLocation:
    """The same, over the Unix socket of this machine's gateway where nobody names another way. token: "" names none, so
    one that the environment names leads nowhere else."""
    ways = ("ROOST_URL",) if token == "" else ("ROOST_URL", "ROOST_TOKEN", "ROOST_TOKEN_FILE")
    if not (url or token or any(os.environ.get(name) for name in ways)):
        personal = described()
        named = str(personal.get("socket", "")) if personal else str(LOCAL_SOCKET)
        if named and _usable(named):
            return PoolLocation(str(personal.get("url", "")) or "http://localhost", "", named)
    return locate(url, token)


#: What was read of the configuration, by what the environment names: its contexts follow their files.
_KNOWN: dict[tuple[str, str, str], ClientTls] = {}


def tls_context(url: str, ca_file: str = "") -> ssl.SSLContext | None:
    """For connections to this gateway that are opened now; None where it speaks no TLS. ca_file: as `PoolLocation`
    has it. Raises ClientError for files that can not be used."""
    if not url.startswith("https:"):
        return None
    from roost.personal_config import tool_config  # what a command without TLS does without
    from shared.config.errors import ConfigError
    from shared.config.knobs.tls import TlsSettings
    from shared.tls import ClientTls, TlsTrouble

    environment = os.environ.get
    named = environment("ROOST_CA_FILE") or ca_file
    cert, key = environment("ROOST_CERT_FILE") or "", environment("ROOST_KEY_FILE") or ""
    try:
        tls = _KNOWN.get((named, cert, key))
        if tls is None:
            tls = ClientTls.of(TlsSettings.from_config(tool_config()))
            if named:  # this authority, and no other
                tls = replace(tls, ca_file=named, ca_dir="", own_ca_file="", default_cas=False, _made={})
            if cert:
                tls = replace(tls, cert_file=cert, key_file=key, _made={})
            _KNOWN[named, cert, key] = tls
        return tls.context()
    except (TlsTrouble, ConfigError) as error:
        raise ClientError(f"certificates for {url}: {error}", "no-certificate") from error


def _usable(path: str) -> bool:
    """Whether there is a socket that will know us: a gateway believes no process with no-new-privileges, as of jobs."""
    try:
        if not stat.S_ISSOCK(os.stat(path).st_mode) or not os.access(path, os.R_OK | os.W_OK):
            return False
        with open("/proc/self/status") as status:
            return any(line.split() == ["NoNewPrivs:", "0"] for line in status)
    except OSError:
        return False


def token_directories() -> list[Path]:
    """Where IDTOKENS lie: the user's own directory, and for root the system's (SEC_TOKEN_DIRECTORY,
    SEC_TOKEN_SYSTEM_DIRECTORY)."""
    from roost.personal_config import tool_config  # most commands do without

    config = tool_config()
    own = config.get("SEC_TOKEN_DIRECTORY")
    found = [Path(own).expanduser() if own else Path("~/.condor/tokens.d").expanduser()]
    if os.geteuid() == 0:
        found.append(Path(config.get("SEC_TOKEN_SYSTEM_DIRECTORY") or "/etc/condor/tokens.d"))
    return found


def _signed_token() -> str:
    """The first IDTOKEN of this user that is not over; empty: there is none."""
    from shared import idtokens

    for directory in token_directories():
        try:
            found = idtokens.tokens_in(directory)
        except OSError:
            continue
        for _, token in found:
            said = idtokens.parts(token)
            expires = said[1].get("exp", 0) if said is not None else 0
            if said is not None and (not expires or (isinstance(expires, int | float) and expires > time.time())):
                return token
    return ""


def _token() -> str:
    path = Path(os.environ.get("ROOST_TOKEN_FILE") or pool_dir() / TOKEN_FILE)
    try:
        return path.read_text().strip()
    except FileNotFoundError:
        if "ROOST_TOKEN_FILE" not in os.environ and (token := _signed_token()):
            return token
        raise ClientError(
            f"no token: set ROOST_TOKEN or ROOST_TOKEN_FILE (looked in {path})", code="unauthenticated"
        ) from None
    except OSError as error:
        raise ClientError(f"token file {path} can not be read: {error}", code="unauthenticated") from error
