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
from types import MappingProxyType
from typing import Any, Final

from shared.bus.api import Exchange
from shared.bus.topology import (
    CONSUMER,
    CONSUMER_EXPIRES_S,
    CONSUMER_MAX_BYTES,
    CONSUMER_MAX_LENGTH,
    CONSUMER_READS,
    CONSUMER_TTL_S,
    KINDS,
    ROLES,
    WORK_QUEUES,
    inbox_queue,
    standing_queues,
)

#: The default exchange, as RabbitMQ names it in permissions. Answers to calls go through it, so whoever
#: serves an inbox may write there, and so into any queue: receivers therefore check the sender against its
#: user as well.
DEFAULT_EXCHANGE: Final = "amq.default"
ADMINISTRATOR: Final = "roost"
#: Where the password of a consumer is read from; with _FILE behind it the file that has it.
CONSUMER_PASSWORD: Final = "ROOST_CONSUMER_PASSWORD"
#: A consumer that reconnects for ever without closing must not use up the broker's connections.
CONSUMER_LIMITS: Final = {"max-connections": 20, "max-channels": 400}


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
        listens=(Exchange.ADS, Exchange.PRIVATE, Exchange.EVENTS),
        inboxes=("collector", "poolhistory"),
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
        events=r"(daemon|gateway)\..*",
        listens=(Exchange.ADS, Exchange.EVENTS),
        mends=True,
    ),
    "journal": Rights(
        ads=_ads("Journal", "DaemonMaster"),
        events=r"daemon\..*",
        inboxes=("journal",),
        work_queues=("roost.view",),
    ),
    "rooster": Rights(ads=_ads("Rooster", "DaemonMaster"), events=r"(daemon|rooster)\..*"),
    "defrag": Rights(ads=_ads("Defrag", "DaemonMaster"), events=r"(daemon|defrag)\..*"),
    "gangliad": Rights(ads=_ads("Gangliad", "DaemonMaster"), events=r"daemon\..*"),
    "adstash": Rights(ads=_ads("Adstash", "DaemonMaster"), events=r"daemon\..*"),
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


def consumer_user(name: str) -> str:
    """The broker's user for a consumer of events. Raises ValueError for a name that could be mistaken for another."""
    if not re.fullmatch(r"[a-z0-9][a-z0-9_-]{0,40}", name):
        raise ValueError(f"consumer {name[:60]!r}: want a name of small letters, digits, - and _, 41 at most")
    return f"{CONSUMER}.{name}"


def consumer_permissions(name: str) -> dict[str, str]:
    """A consumer reads events, by queues of its own, and buries what it can not take. Nothing else: it can publish
    nothing, ask nobody, and see no queue but its own."""
    own = rf"{re.escape(consumer_user(name))}(\..*)?"
    return {
        "configure": _any([own]),
        "write": _any([own, re.escape(Exchange.DEAD)]),
        "read": _any([own, re.escape(Exchange.EVENTS)]),
    }


def consumers_of(vhost: str, passwords: Mapping[str, str]) -> dict[str, Any]:
    """Definitions of consumers alone, by name: to be added to a broker that runs (`rabbitmqctl import_definitions`)."""
    lacking = [name for name in passwords if not passwords[name]]
    if lacking:
        raise ValueError(f"no password for consumer {', '.join(lacking)}: set {CONSUMER_PASSWORD}")
    return {
        "users": [
            {**_user(consumer_user(name), password), "limits": CONSUMER_LIMITS} for name, password in passwords.items()
        ],
        "permissions": [
            {"user": consumer_user(name), "vhost": vhost, **consumer_permissions(name)} for name in passwords
        ],
        # Publishing is refused as a whole; should an administrator grant it, then still no key. What a queue is bound
        # with must begin with a word of those that are for everybody, so it can take nothing else.
        "topic_permissions": [
            {
                "user": consumer_user(name),
                "vhost": vhost,
                "exchange": Exchange.EVENTS,
                "write": "^$",
                "read": rf"^({'|'.join(CONSUMER_READS)})\.",
            }
            for name in passwords
        ],
        "policies": [_consumers_policy(vhost)],
    }


def _consumers_policy(vhost: str) -> dict[str, Any]:
    """Whatever a consumer's queue asks for, it gets no more than this: nobody who only reads may fill the broker."""
    return {
        "vhost": vhost,
        "name": "consumers",
        "pattern": rf"^{CONSUMER}\.",
        "apply-to": "queues",
        "priority": 0,
        "definition": {
            "max-length": CONSUMER_MAX_LENGTH,
            "max-length-bytes": CONSUMER_MAX_BYTES,
            "message-ttl": round(CONSUMER_TTL_S * 1000),
            "expires": round(CONSUMER_EXPIRES_S * 1000),
        },
    }


def _published(rights: Rights) -> dict[Exchange, str]:
    return {Exchange.ADS: rights.ads, Exchange.EVENTS: rights.events, Exchange.PRIVATE: rights.private}


def _any(patterns: Sequence[str]) -> str:
    return f"^({'|'.join(dict.fromkeys(patterns))})$"


def password_hash(password: str, salt: bytes | None = None) -> str:
    """As RabbitMQ stores it: base64 of four bytes of salt and the SHA-256 of salt and password."""
    salt = secrets.token_bytes(4) if salt is None else salt
    return base64.b64encode(salt + hashlib.sha256(salt + password.encode()).digest()).decode()


def _user(name: str, password: str, tags: str = "") -> dict[str, Any]:
    return {
        "name": name,
        "password_hash": password_hash(password),
        "hashing_algorithm": "rabbit_password_hashing_sha256",
        "tags": tags,
    }


def definitions(
    vhost: str,
    passwords: Mapping[str, str],
    *,
    clustered: bool = False,
    consumers: Mapping[str, str] = MappingProxyType({}),
) -> dict[str, Any]:
    """What RabbitMQ loads at its start (`load_definitions`). passwords: by user, for every role and the
    administrator; raises ValueError for one that lacks. clustered: the daemons' URLs name several nodes. consumers:
    passwords of those who read events, by name."""
    users = (*ROLES, ADMINISTRATOR)
    lacking = [user for user in users if not passwords.get(user)]
    if lacking:
        raise ValueError(f"no password for {', '.join(lacking)}: set {', '.join(map(_variable, lacking))}")
    everything = {"configure": ".*", "write": ".*", "read": ".*"}
    queues = standing_queues(clustered=clustered)
    readers = consumers_of(vhost, consumers)
    return {
        "vhosts": [{"name": vhost}],
        "users": [
            *(_user(user, passwords[user], "administrator" if user == ADMINISTRATOR else "") for user in users),
            *readers["users"],
        ],
        "permissions": [
            *({"user": role, "vhost": vhost, **permissions(role)} for role in ROLES),
            {"user": ADMINISTRATOR, "vhost": vhost, **everything},
            *readers["permissions"],
        ],
        "topic_permissions": [
            *({"user": role, "vhost": vhost, **entry} for role in ROLES for entry in topic_permissions(role)),
            *readers["topic_permissions"],
        ],
        "policies": readers["policies"],
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
    return {user: _password(environment, _variable(user)) for user in (*ROLES, ADMINISTRATOR)}


def _password(environment: Mapping[str, str], variable: str) -> str:
    path = environment.get(f"{variable}_FILE")
    if not path:
        return environment.get(variable, "")
    with open(path, encoding="utf-8") as file:
        return file.read().strip()


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the definitions; exit status 1 and the reason on stderr when something lacks."""
    parser = argparse.ArgumentParser(
        prog="python -m shared.bus.definitions",
        description="Print what RabbitMQ must know of the pool. Passwords are read from ROOST_<USER>_PASSWORD, or "
        f"from the files named by ROOST_<USER>_PASSWORD_FILE; users: {', '.join((*ROLES, ADMINISTRATOR))}.",
    )
    parser.add_argument("--vhost", default="/", help="virtual host (default: %(default)s)")
    parser.add_argument("--cluster", action="store_true", help="for a cluster: ROOST_AMQP_URL names several nodes")
    parser.add_argument(
        "--consumer",
        metavar="NAME",
        default="",
        help="only what a broker that runs must learn of this new consumer of events; its password is read from "
        f"{CONSUMER_PASSWORD} or {CONSUMER_PASSWORD}_FILE. Give the output to `rabbitmqctl import_definitions`",
    )
    options = parser.parse_args(arguments)
    try:
        if options.consumer:
            result = consumers_of(options.vhost, {options.consumer: _password(os.environ, CONSUMER_PASSWORD)})
        else:
            result = definitions(options.vhost, _passwords(os.environ), clustered=options.cluster)
    except (OSError, ValueError) as error:
        sys.exit(f"definitions: {error}")
    json.dump(result, sys.stdout, indent=2)
    sys.stdout.write("\n")


if __name__ == "__main__":
    main()
