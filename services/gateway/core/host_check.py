"""Which names a gateway answers to. A page of the web can have a name of its own point at this machine (DNS
rebinding); a browser then sends that name as Host, and takes the page for one of the gateway's. So a Host that is a
name must be one that the gateway is known by. An address stands in no page's name, and passes: whoever sends it has
connected to it.

A request that changes something, or opens a WebSocket, and tells from which page it comes (Origin), must come from a
page of this gateway: what a browser adds by itself, such as a client certificate, is no sign that a person wanted it.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from services.gateway.core.http_framing import Head, Refusal

ANY: Final = "*"
_HOST: Final = re.compile(rb"(\[[0-9A-Fa-f:.]+\]|[0-9A-Za-z._-]+)(?::([0-9]{1,5}))?")
_SAFE: Final = frozenset((b"GET", b"HEAD", b"OPTIONS"))


@dataclass(frozen=True, slots=True)
class HostNames:
    """names: in lower case; one that begins with "*." stands for all below it, "*" for every one."""

    names: frozenset[str]

    @classmethod
    def of(cls, names: Iterable[str]) -> HostNames:
        return cls(frozenset(name.lower().rstrip(".") for name in names if name))

    def knows(self, host: str) -> bool:
        """Whether this is an address, or one of the names. host: without a port."""
        name = host.lower().rstrip(".")
        if ANY in self.names or name in self.names or _is_address(name):
            return True
        if name == "localhost" or name.endswith(".localhost"):  # RFC 6761: no name server is asked for these
            return True
        _, _, above = name.partition(".")
        return bool(above) and f"*.{above}" in self.names

    def check(self, head: Head) -> Refusal | None:
        """What is wrong with where a request is for, and where it comes from."""
        if not head.target.startswith(b"/") and not (head.target == b"*" and head.method == b"OPTIONS"):
            return Refusal(400, "bad-request", "the address of a request begins with /: this is no proxy")
        given = head.seen.get(b"host")
        if given is None:  # of HTTP/1.0
            return None
        found = _HOST.fullmatch(given)
        if found is None:
            return Refusal(400, "bad-request", "Host is no host name or address, with or without a port")
        host = found[1].decode()
        if not self.knows(host):
            return Refusal(
                421,
                "wrong-host",
                f"this gateway is not known as {host[:100]}: ask for it by a name that it has, or name this one in its "
                "ROOST_GATEWAY_HOSTS",
            )
        origin = head.seen.get(b"origin")
        changes = head.method not in _SAFE or b"upgrade" in head.seen
        if origin is not None and changes and not self._ours(origin, given):
            return Refusal(403, "wrong-origin", "a page of another host asks for this: only this gateway's pages may")
        return None

    def _ours(self, origin: bytes, host: bytes) -> bool:
        scheme, _, rest = origin.partition(b"://")
        if scheme not in (b"http", b"https"):
            return False
        if rest.lower() == host.lower():
            return True
        # A proxy in front may have another port, and pass on another Host: only names that somebody wrote down count.
        found = _HOST.fullmatch(rest)
        name = found[1].decode().lower() if found is not None else ""
        return bool(name) and not _is_address(name) and name in self.names


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return False
    return True
