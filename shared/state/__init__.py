"""State: shared.state.api is what daemons see; open_store gives one of the variants."""

from __future__ import annotations

from pathlib import Path

from shared.state.api import ScriptError, StaleEpoch, Store, StoreHealth, StoreInUse, StoreUnavailable, Unconfirmed
from shared.state.none import NoStore
from shared.state.urls import BadUrl, parse
from shared.tls import ClientTls, TlsTrouble

__all__ = [
    "BadUrl",
    "NoStore",
    "ScriptError",
    "StaleEpoch",
    "Store",
    "StoreHealth",
    "StoreInUse",
    "StoreUnavailable",
    "Unconfirmed",
    "open_store",
    "try_store",
]


def open_store(url: str = "auto", pool_dir: Path | None = None, *, tls: ClientTls | None = None) -> Store:
    """The store a URL names (see shared.state.urls), not yet started. Raises BadUrl.

    pool_dir: where private and embedded stores keep their data; without it an embedded one keeps nothing. tls: for
    servers that are reached with TLS, unless their URL says otherwise."""
    from shared.state.embedded import EmbeddedStore
    from shared.state.private import PrivateRedis, is_recent, program
    from shared.state.redis_store import RedisStore

    kind = url.strip().rstrip(":").lower()
    if kind in ("", "auto"):
        exe = program()
        kind = _kind_of(pool_dir, installed=exe is not None and is_recent(exe))
    if kind == "embedded":
        return EmbeddedStore(pool_dir)
    if kind == "private":
        if pool_dir is None:
            raise BadUrl("a private redis-server needs a directory for its data")
        return PrivateRedis(pool_dir)
    tls, url = (tls or ClientTls()).for_url(url)
    return RedisStore(parse(url), tls=tls)


async def try_store(url: str, tls: ClientTls) -> tuple[str, str]:
    """Why the Redis of this URL can not be used, in words without a password, and its release; both may be empty: it
    can be used, and the release is not told to this user."""
    from shared.state.redis_store import RedisStore

    try:
        tls, plain = tls.for_url(url)
        store = RedisStore(parse(plain), timeout_s=5.0, tls=tls)
    except (BadUrl, TlsTrouble, ValueError) as error:
        return str(error), ""
    try:
        return "", await store.release()
    except (StoreUnavailable, TlsTrouble) as error:
        return str(error), ""
    finally:
        await store.stop()


def _kind_of(pool_dir: Path | None, *, installed: bool) -> str:
    """What "auto" means. A pool stays with the variant that has its data, whether or not redis-server was installed or
    removed since: the other one would begin with nothing."""
    from shared.state.embedded import JOURNAL
    from shared.state.private import APPEND_ONLY

    if pool_dir is None:
        return "embedded"
    kept = [
        (path.stat().st_mtime, kind)
        for kind, patterns in (("embedded", (JOURNAL,)), ("private", APPEND_ONLY))
        for pattern in patterns
        for path in pool_dir.glob(pattern)
    ]
    if kept:
        return max(kept)[1]  # of two, the one that was written last
    return "private" if installed else "embedded"
