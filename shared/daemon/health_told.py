"""How a daemon does, for who checks the pool: told with its configuration, when that is asked for (AskConfig.health),
so that a daemon of an earlier release answers too, and leaves it out.

    release      its version
    protocol     digest of the messages that it knows: alike in daemons that speak alike
    messages     their types, "type/version"
    keeps        versions of what it keeps on disk, by name, and in Redis where it is not the first
    now          its clock, seconds since 1970
    role         `leader`, `passive`, or empty
    waiting_for  what keeps it from its work; none: it does it
    troubles     what it does its work without, with the mend
    loop         how often its event loop was held (shared.daemon.health); empty where nobody measures that
    disks        {"spool": [free, size]}, bytes; of a directory that is not there nothing
    certificates {path: when it ends, seconds since 1970}; of what can not be read 0
    bus, store   whether they are connected, and the last error
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from cryptography import x509

from shared.config import Config
from shared.config.errors import ConfigError
from shared.daemon.base import Daemon
from shared.daemon.health import disk_sizes, loop_report, waiting_for
from shared.messages.base import known_types, protocol
from shared.stored_versions import VERSIONS
from shared.version import VERSION

#: Knobs that name certificates, one or several in a list.
_CERTIFICATES: Final = (
    "AUTH_SSL_SERVER_CERTFILE",
    "AUTH_SSL_SERVER_CAFILE",
    "AUTH_SSL_CLIENT_CERTFILE",
    "AUTH_SSL_CLIENT_CAFILE",
    "TRUST_DOMAIN_CAFILE",
)


async def tell_health(daemon: Daemon) -> dict[str, Any]:
    """See above."""
    context = daemon.context
    bus, store = context.bus.health, context.store.health
    folders = {"spool": context.spool, "execute": context.execute}
    if log := context.config.get("LOG"):
        folders["log"] = Path(log)
    disks, certificates = await asyncio.to_thread(lambda: (disk_sizes(folders), certificate_ends(context.config)))
    return {
        "release": VERSION,
        "protocol": protocol(),
        "messages": known_types(),
        "keeps": {**daemon.keeps, **_beyond_first(daemon.writes)},
        "now": context.clock.now(),
        "role": daemon.role(),
        "waiting_for": waiting_for(daemon),
        "troubles": daemon.troubles(),
        "loop": loop_report(context.lag) if context.lag is not None else {},
        "disks": {name: list(sizes) for name, sizes in disks.items()},
        "certificates": certificates,
        "bus": {
            "connected": bus.connected,
            "reconnects": bus.reconnects,
            "dead_lettered": bus.dead_lettered,
            "denied": {"/".join(names): count for names, count in bus.denied.by_name.items()},
            "last_error": bus.last_error,
        },
        "store": {"connected": store.connected, "variant": store.variant, "last_error": store.last_error},
    }


def _beyond_first(kinds: Iterable[str]) -> dict[str, int]:
    """Releases that know no versions of these read the first one, so it is no news to them."""
    return {kind: VERSIONS[kind] for kind in kinds if VERSIONS[kind] > 1}


def certificate_ends(config: Config) -> dict[str, float]:
    """When the certificates end that this configuration names and that are there: the first of each file. Blocks."""
    found: dict[str, float] = {}
    for knob in _CERTIFICATES:
        try:
            named = (config.get(knob) or "").replace(",", " ").split()
        except ConfigError:
            continue
        for path in named:
            try:
                certificate = x509.load_pem_x509_certificate(Path(path).read_bytes())
            except FileNotFoundError:
                continue  # TRUST_DOMAIN_CAFILE has a default
            except (OSError, ValueError):
                found[path] = 0.0
            else:
                found[path] = certificate.not_valid_after_utc.timestamp()
    return found
