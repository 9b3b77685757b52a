"""RabbitMQ's definitions for a deployment, made from the topology: `python -m shared.bus.definitions`.

Every daemon role has a user of its own. Its permissions say what it may declare, write and read; its topic
permissions which routing keys it may publish. What a user may not is refused by the broker, whatever the
daemon's code does.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import json
import os
import re
import secrets
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from shared.bus.api import Exchange
from shared.bus.topology import KINDS, ROLES, WORK_QUEUES, inbox_queue, standing_queues

#: The default exchange, as RabbitMQ names it in permissions. Answers to calls go through it, so whoever
#: serves an inbox may write there, and so into any queue: receivers therefore check the sender against its
#: user as well.
DEFAULT_EXCHANGE: Final = "amq.default"
ADMINISTRATOR: Final = "roost"


@dataclass(frozen=True, slots=True)
class Rights:
    """What a role does on the bus. Patterns are regular expressions for whole routing keys."""

    ads: str = ""  # it publishes on roost.ads
    events: str = ""  # it publishes on roost.events
    private: str = ""  # it publishes on roost.private
    listens: tuple[Exchange, ...] = ()
    inboxes: tuple[str, ...] = ()  # shared inboxes it serves, besides its own
    work_queues: tuple[str, ...] = ()
    mends: bool = False  # it lists, requeues and discards dead letters


def _ads(*types: str) -> str:
    return rf"(update|delta|heartbeat|invalidate)\.({'|'.join(types)})\..*"


#: Who keeps ads asks everybody for theirs when it begins to listen; who publishes ads hears that.
ASK: Final = r"ask\..*"


RIGHTS: Final[Mapping[str, Rights]] = {
    "collector": Rights(
        ads=rf"{_ads('Collector', 'DaemonMaster')}|{ASK}|forward\..*",
        events=r"daemon\..*",
        listens=(Exchange.ADS, Exchange.PRIVATE),
        inboxes=("collector",),
        work_queues=("roost.collector",),
    ),
    "negotiator": Rights(
        ads=f"{_ads('Negotiator', 'Accounting', 'DaemonMaster')}|{ASK}",
        events=r"(daemon|negotiation|accountant|job\.matched).*",
        listens=(Exchange.ADS, Exchange.PRIVATE),
        inboxes=("negotiator",),
    ),
    "schedd": Rights(
        ads=_ads("Scheduler", "Submitter", "DaemonMaster"), events=r"(daemon|job)\..*", listens=(Exchange.EVENTS,)
    ),
    "startd": Rights(
        ads=_ads("Machine", "Slot", "StartDaemon"), events=r"(daemon|slot|claim)\..*", private=r"startd.*"
    ),
    "had": Rights(ads=_ads("HAD", "DaemonMaster"), events=r"(daemon|had)\..*", listens=(Exchange.EVENTS,)),
    "gateway": Rights(
        events=r"daemon\..*",
        listens=(Exchange.ADS, Exchange.EVENTS),
        work_queues=("roost.view",),
        mends=True,
    ),
}


def permissions(role: str) -> dict[str, str]:
    """RabbitMQ's configure, write and read patterns for a role."""
    rights = RIGHTS[role]
    own = [
        rf"{re.escape(inbox_queue(role))}\..*",
        rf"roost\.listen\.{role}\..*",
        *(re.escape(inbox_queue(inbox)) for inbox in rights.inboxes),
        *(re.escape(queue) for queue in rights.work_queues),
    ]
    write = [*own, re.escape(Exchange.RPC), re.escape(Exchange.DEAD), re.escape(DEFAULT_EXCHANGE)]
    for exchange, keys in _published(rights).items():
        if keys:
            write.append(re.escape(exchange))
    read = [*own, re.escape(Exchange.RPC), *(re.escape(exchange) for exchange in rights.listens)]
    read += [re.escape(WORK_QUEUES[queue].exchange) for queue in rights.work_queues]
    if rights.ads:
        read.append(re.escape(Exchange.ADS))
    if rights.mends:
        # Requeueing puts a message back where it came from.
        read.append(re.escape(Exchange.DEAD))
        write += [re.escape(exchange) for exchange in (Exchange.ADS, Exchange.EVENTS, Exchange.PRIVATE)]
    return {"configure": _any(own), "write": _any(write), "read": _any(read)}


def topic_permissions(role: str) -> list[dict[str, str]]:
    """Which keys a role may publish on each topic exchange."""
    rights = RIGHTS[role]
    return [
        {
            "exchange": exchange,
            "write": f"^({keys})$" if keys else ".*" if rights.mends else "^$",
            "read": f"^{ASK}" if exchange == Exchange.ADS and exchange not in rights.listens else ".*",
        }
        for exchange, keys in _published(rights).items()
    ]


def _published(rights: Rights) -> dict[Exchange, str]:
    return {Exchange.ADS: rights.ads, Exchange.EVENTS: rights.events, Exchange.PRIVATE: rights.private}


def _any(patterns: Sequence[str]) -> str:
    return f"^({'|'.join(dict.fromkeys(patterns))})$"


def password_hash(password: str, salt: bytes | None = None) -> str:
    """As RabbitMQ stores it: base64 of four bytes of salt and the SHA-256 of salt and password."""
    salt = secrets.token_bytes(4) if salt is None else salt
    return base64.b64encode(salt + hashlib.sha256(salt + password.encode()).digest()).decode()


def definitions(vhost: str, passwords: Mapping[str, str], *, clustered: bool = False) -> dict[str, Any]:
    """What RabbitMQ loads at its start (`load_definitions`). passwords: by user, for every role and the
    administrator; raises ValueError for one that lacks. clustered: the daemons' URLs name several nodes."""
    users = (*ROLES, ADMINISTRATOR)
    lacking = [user for user in users if not passwords.get(user)]
    if lacking:
        raise ValueError(f"no password for {', '.join(lacking)}: set {', '.join(map(_variable, lacking))}")
    everything = {"configure": ".*", "write": ".*", "read": ".*"}
    queues = standing_queues(clustered=clustered)
    return {
        "vhosts": [{"name": vhost}],
        "users": [
            {
                "name": user,
                "password_hash": password_hash(passwords[user]),
                "hashing_algorithm": "rabbit_password_hashing_sha256",
                "tags": "administrator" if user == ADMINISTRATOR else "",
            }
            for user in users
        ],
        "permissions": [
            *({"user": role, "vhost": vhost, **permissions(role)} for role in ROLES),
            {"user": ADMINISTRATOR, "vhost": vhost, **everything},
        ],
        "topic_permissions": [
            {"user": role, "vhost": vhost, **entry} for role in ROLES for entry in topic_permissions(role)
        ],
        "exchanges": [
            {
                "name": exchange,
                "vhost": vhost,
                "type": kind,
                "durable": True,
                "auto_delete": False,
                "internal": False,
                "arguments": {},
            }
            for exchange, kind in KINDS.items()
        ],
        "queues": [
            {
                "name": queue.name,
                "vhost": vhost,
                "durable": queue.durable,
                "auto_delete": queue.auto_delete,
                "arguments": dict(queue.arguments),
            }
            for queue in queues
        ],
        "bindings": [
            {
                "source": exchange,
                "vhost": vhost,
                "destination": queue.name,
                "destination_type": "queue",
                "routing_key": key,
                "arguments": {},
            }
            for queue in queues
            for exchange, key in queue.bindings
        ],
    }


def _variable(user: str) -> str:
    return f"ROOST_{user.upper()}_PASSWORD"


def _passwords(environment: Mapping[str, str]) -> dict[str, str]:
    """ROOST_<USER>_PASSWORD, or the file that ROOST_<USER>_PASSWORD_FILE names."""
    found = {}
    for user in (*ROLES, ADMINISTRATOR):
        path = environment.get(f"{_variable(user)}_FILE")
        if path:
            with open(path, encoding="utf-8") as file:
                found[user] = file.read().strip()
        else:
            found[user] = environment.get(_variable(user), "")
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the definitions; exit status 1 and the reason on stderr when something lacks."""
    parser = argparse.ArgumentParser(
        prog="python -m shared.bus.definitions",
        description="Print what RabbitMQ must know of the pool. Passwords are read from ROOST_<USER>_PASSWORD, or "
        f"from the files named by ROOST_<USER>_PASSWORD_FILE; users: {', '.join((*ROLES, ADMINISTRATOR))}.",
    )
    parser.add_argument("--vhost", default="/", help="virtual host (default: %(default)s)")
    parser.add_argument("--cluster", action="store_true", help="for a cluster: ROOST_AMQP_URL names several nodes")
    options = parser.parse_args(arguments)
    try:
        result = definitions(options.vhost, _passwords(os.environ), clustered=options.cluster)
    except (OSError, ValueError) as error:
        sys.exit(f"definitions: {error}")
    json.dump(result, sys.stdout, indent=2)
    sys.stdout.write("\n")


if __name__ == "__main__":
    main()
