"""Where the state lies, as a URL.

redis://[user:password@]host[:port][/db][?prefix=poolA:]     also rediss:// (TLS) and unix:///path
redis+sentinel://[user:password@]host[:port],host[:port]/service[/db][?prefix=poolA:]
    the sentinels' own password: ?sentinel_user=name&sentinel_password=text
    rediss+sentinel://: sentinels and servers are reached with TLS
With TLS, files of its own: ?cafile=ca.pem&certfile=client.pem&keyfile=client.key (shared.tls)
private:            a redis-server of the pool's own, with its data in the pool's directory
embedded:           inside the process, kept in a file in the pool's directory
auto                private where redis-server (7 or newer) is installed, else embedded
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit, urlunsplit

from shared.errors import PermanentError

SENTINEL_PORT = 26379


class BadUrl(PermanentError):
    """A URL that names no store: the text says what is wrong and what is understood."""


@dataclass(frozen=True, slots=True)
class StoreUrl:
    variant: str  # redis, sentinel
    url: str = ""  # for the client library
    shown: str = ""  # without a password
    prefix: str = ""
    sentinels: tuple[tuple[str, int], ...] = ()
    service: str = ""
    db: int = 0
    username: str | None = None
    password: str | None = None
    sentinel_username: str | None = None
    sentinel_password: str | None = None
    tls: bool = False


def parse(text: str) -> StoreUrl:
    """The URL of a Redis server or of its sentinels. Raises BadUrl."""
    parts = urlsplit(text)
    query = dict(parse_qsl(parts.query))
    prefix = query.pop("prefix", "")
    if parts.scheme in ("redis", "rediss", "unix"):
        url = urlunsplit(parts._replace(query=urlencode(query)))
        return StoreUrl("redis", url=url, shown=_without_password(text), prefix=prefix, tls=parts.scheme == "rediss")
    if parts.scheme in ("redis+sentinel", "rediss+sentinel"):
        return _sentinel(text, prefix, query)
    raise BadUrl(
        f"{_without_password(text)!r} is no URL of a store: use redis://host:port/db, rediss://, unix:///path, "
        "redis+sentinel://host:port,host:port/service, rediss+sentinel://, private:, embedded: or auto"
    )


def _sentinel(text: str, prefix: str, query: dict[str, str]) -> StoreUrl:
    parts = urlsplit(text)
    credentials, _, hosts = parts.netloc.rpartition("@")
    user, _, password = credentials.partition(":")
    service, _, db = parts.path.strip("/").partition("/")
    sentinels: list[tuple[str, int]] = []
    for host in filter(None, hosts.split(",")):
        name, colon, port = host.rpartition(":")
        if colon and not port.isdigit():
            raise BadUrl(f"{_without_password(text)!r}: {port!r} is no port")
        sentinels.append((name, int(port)) if colon else (host, SENTINEL_PORT))
    if not sentinels or not service or (db and not db.isdigit()):
        raise BadUrl(
            f"{_without_password(text)!r}: want redis+sentinel://host:port,host:port/service/db "
            "(the service is the name the sentinels know the primary by)"
        )
    return StoreUrl(
        "sentinel",
        shown=_without_password(text),
        prefix=prefix,
        sentinels=tuple(sentinels),
        service=service,
        db=int(db or 0),
        username=unquote(user) or None,
        password=unquote(password) or None,
        sentinel_username=query.get("sentinel_user"),
        sentinel_password=query.get("sentinel_password"),
        tls=parts.scheme == "rediss+sentinel",
    )


def _without_password(text: str) -> str:
    text = re.sub(r"(?<=[?&]sentinel_password=)[^&]*", "...", text)
    scheme, mark, rest = text.partition("://")
    credentials, at, address = rest.rpartition("@")
    if not mark or not at:
        return text
    user = credentials.partition(":")[0]
    return f"{scheme}://{user}:...@{address}" if user else f"{scheme}://...@{address}"
