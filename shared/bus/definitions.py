"""RabbitMQ's definitions for a deployment, made from the topology: `python -m shared.bus.definitions`.

Every daemon has a user of its own, "<role>.<name>", or all of a role share one, "<role>". Its permissions say what it
may declare, write and read; its topic permissions which routing keys it may publish, and which it may bind its queues
with: nobody can have a copy of what goes to another's inbox. What a user may not is refused by the broker, whatever the
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
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final
from urllib.parse import quote, unquote, urlsplit, urlunsplit

from shared.bus.api import Exchange
from shared.bus.topology import (
    CONSUMER,
    CONSUMER_EXPIRES_S,
    CONSUMER_MAX_BYTES,
    CONSUMER_MAX_LENGTH,
    CONSUMER_READS,
    CONSUMER_TTL_S,
    KINDS,
    OPTIONAL_ROLES,
    ROLES,
    inbox_queue,
    standing_queues,
)

#: The default exchange, as RabbitMQ names it in permissions. Answers to calls go through it, so whoever
#: serves an inbox may write there, and so into any queue, since RabbitMQ does not check its keys: receivers therefore
#: check the sender against its user as well. So does what an inbox is told to do with what expires in it
#: (x-dead-letter-exchange).
DEFAULT_EXCHANGE: Final = "amq.default"
ADMINISTRATOR: Final = "roost"
#: Where the password of a consumer is read from; with _FILE behind it the file that has it.
CONSUMER_PASSWORD: Final = "ROOST_CONSUMER_PASSWORD"
#: The same for one daemon.
IDENTITY_PASSWORD: Final = "ROOST_IDENTITY_PASSWORD"
#: Names of daemons that have a user of their own, and how none may begin: so begin inboxes that are not named after a
#: daemon alone.
NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9@._+-]{0,199}")
RESERVED_NAMES: Final = ("off.", "active.")
#: A consumer that reconnects for ever without closing must not use up the broker's connections.
CONSUMER_LIMITS: Final = {"max-connections": 20, "max-channels": 400}


@dataclass(frozen=True, slots=True)
class Rights:
    """What a role does on the bus. Patterns are regular expressions for whole routing keys, inboxes or queues."""

    ads: tuple[str, ...] = ()  # types of the ads it publishes of itself on roost.ads
    asks: str = ""  # what else it publishes there
    events: str = ""  # it publishes on roost.events
    private: bool = False  # it publishes its claim ids on roost.private
    listens: Mapping[Exchange, str] = field(default_factory=dict)  # what it binds queues of its own with, by exchange
    talks: tuple[str, ...] = ()  # inboxes it sends to
    inboxes: tuple[str, ...] = ()  # inboxes it serves with all others of its role, besides its own
    work_queues: tuple[str, ...] = ()
    mends: bool = False  # it lists, requeues and discards dead letters


#: Who keeps ads asks everybody for theirs when it begins to listen; who publishes ads hears that.
ASK: Final = r"ask\..*"
_ALL: Final = ".*"
_NOTHING: Final = "^$"
_COLLECTOR: Final = "collector"
_NEGOTIATOR: Final = r"negotiator(\.active\..+)?"
_SCHEDDS: Final = r"schedd\.[^/]+"
_STARTDS: Final = r"startd\.[^/]+"
#: Who keeps ads asks a daemon for the ads it missed.
_DAEMONS: Final = rf"({'|'.join(ROLES)})\.[^/]+"

RIGHTS: Final[Mapping[str, Rights]] = {
    "collector": Rights(
        ads=("Collector", "DaemonMaster"),
        asks=rf"{ASK}|forward\..*",
        events=r"daemon\..*",
        listens={Exchange.ADS: _ALL, Exchange.PRIVATE: _ALL, Exchange.EVENTS: r"negotiation\.offline"},
        talks=(_DAEMONS,),
        inboxes=("collector", "poolhistory"),
        work_queues=("roost.collector",),
    ),
    "negotiator": Rights(
        ads=("Negotiator", "Accounting", "DaemonMaster"),
        asks=ASK,
        events=r"(daemon|negotiation|accountant)\..*",
        listens={Exchange.ADS: _ALL, Exchange.PRIVATE: _ALL, Exchange.EVENTS: r"daemon\.gone"},
        talks=(_COLLECTOR, _DAEMONS),
        inboxes=(_NEGOTIATOR,),
    ),
    "schedd": Rights(
        ads=("Scheduler", "Submitter", "DaemonMaster"), events=r"(daemon|job)\..*", talks=(_NEGOTIATOR, _STARTDS)
    ),
    "startd": Rights(
        ads=("Machine", "Slot", "StartDaemon", "DaemonMaster"),
        events=r"(daemon|slot|claim)\..*",
        private=True,
        talks=(_COLLECTOR, _NEGOTIATOR, _SCHEDDS),
    ),
    "had": Rights(
        ads=("HAD", "DaemonMaster"),
        events=r"(daemon|had)\..*",
        listens={Exchange.EVENTS: r"had\.leader|accountant\.(changed|restored)"},
        # HAD_CONTROLLEE names what it leads, and another HAD is told what it hands over.
        talks=(_DAEMONS,),
    ),
    "gateway": Rights(
        ads=("DaemonMaster",),
        events=r"(daemon|gateway)\..*",
        listens={Exchange.EVENTS: _ALL},
        talks=(_ALL,),
        mends=True,
    ),
    "journal": Rights(
        ads=("Journal", "DaemonMaster"),
        events=r"daemon\..*",
        listens={Exchange.EVENTS: _ALL},
        talks=(_COLLECTOR,),
        inboxes=("journal",),
        work_queues=("roost.view",),
    ),
    "rooster": Rights(ads=("Rooster", "DaemonMaster"), events=r"(daemon|rooster)\..*", talks=(_COLLECTOR,)),
    "defrag": Rights(ads=("Defrag", "DaemonMaster"), events=r"(daemon|defrag)\..*", talks=(_COLLECTOR, _STARTDS)),
    "gangliad": Rights(ads=("Gangliad", "DaemonMaster"), events=r"daemon\..*", talks=(_COLLECTOR,)),
    "registrar": Rights(ads=("Registrar", "DaemonMaster"), events=r"daemon\..*", inboxes=("registrar",)),
    "adstash": Rights(ads=("Adstash", "DaemonMaster"), events=r"daemon\..*", talks=(_COLLECTOR, _SCHEDDS)),
}


def user_of(role: str, name: str) -> str:
    """The broker's user of one daemon. Raises ValueError for a role there is not, and for a name that could be taken
    for something else."""
    if role not in ROLES:
        raise ValueError(f"{role[:60]!r} is no role: there are {', '.join(ROLES)}")
    if not NAME.fullmatch(name) or name.startswith(RESERVED_NAMES):
        raise ValueError(
            f"{name[:60]!r} can not be the name of a daemon with a user of its own: want letters, digits, '.', '-', "
            f"'_', '+' and '@', 200 at most, that do not begin with {' or '.join(map(repr, RESERVED_NAMES))}"
        )
    return f"{role}.{name}"


def split_user(user: str) -> tuple[str, str]:
    """Role and name of a daemon's user; the name is "" for the user of a whole role. Raises ValueError."""
    role, dot, name = user.partition(".")
    if dot:
        user_of(role, name)
    elif role not in ROLES:
        raise ValueError(f"{role[:60]!r} is no role: there are {', '.join(ROLES)}")
    return role, name


def vhost_of(urls: str) -> str:
    """The virtual host that AMQP URLs, with commas between them, speak of: / where they name none, and where they write
    it as %2F, as they have to."""
    return unquote(urlsplit(urls.partition(",")[0]).path.removeprefix("/")) or "/"


def with_login(url: str, user: str, password: str) -> str:
    """The URL of a server for this user."""
    parts = urlsplit(url)
    place = parts.netloc.rpartition("@")[2]
    return urlunsplit(parts._replace(netloc=f"{quote(user, safe='')}:{quote(password, safe='')}@{place}"))


def permissions(role: str, name: str = "") -> dict[str, str]:
    """RabbitMQ's configure, write and read patterns for one daemon, or (name "") for all of a role."""
    rights = RIGHTS[role]
    listener = re.escape(name) if name else ".+"
    own = [
        rf"{re.escape(inbox_queue(''))}({_any_of(_own_inboxes(role, name))})",
        # The end is of this length and form, so that no other daemon's name can end so (see AmqpBus.listen).
        rf"roost\.listen\.{role}\.{listener}\.[^.]{{12}}(\.[0-9]{{1,9}})?",
        *(re.escape(queue) for queue in rights.work_queues),
    ]
    write = [*own, re.escape(Exchange.RPC), re.escape(Exchange.DEAD), re.escape(DEFAULT_EXCHANGE)]
    write += [re.escape(exchange) for exchange, keys in _published(role, name).items() if keys or rights.mends]
    read = [*own, re.escape(Exchange.RPC), *(re.escape(exchange) for exchange in _heard(role))]
    if rights.mends:
        read.append(re.escape(Exchange.DEAD))
    return {"configure": _any(own), "write": _any(write), "read": _any(read)}


def topic_permissions(role: str, name: str = "") -> list[dict[str, str]]:
    """Which keys a daemon may publish on each topic exchange, and which it may bind its queues with."""
    rights = RIGHTS[role]
    own = _any_of(_own_inboxes(role, name))
    entries = [{"exchange": str(Exchange.RPC), "write": f"^({_any_of((*rights.talks, own))})$", "read": f"^({own})$"}]
    heard = _heard(role)
    for exchange, keys in _published(role, name).items():
        # Requeueing puts a message back where it came from.
        write = _ALL if rights.mends else f"^({keys})$" if keys else _NOTHING
        read = f"^({heard[exchange]})$" if exchange in heard else _NOTHING
        entries.append({"exchange": str(exchange), "write": write, "read": read})
    return entries


def _own_inboxes(role: str, name: str) -> tuple[str, ...]:
    """Patterns of the inboxes that a daemon serves: its own, the one of its OffDaemon, those it shares, and a startd's
    for ssh_to_job. What binds a queue with a wildcard of topics is in none of them."""
    one = re.escape(name) if name else "[^*#]+"
    visits = "(/visits)?" if role == "startd" else ""
    return (rf"{role}\.{one}{visits}", rf"{role}\.off\.{one}", *RIGHTS[role].inboxes)


def _heard(role: str) -> Mapping[Exchange, str]:
    """Patterns of what a role binds its queues with, by exchange."""
    rights = RIGHTS[role]
    return rights.listens if not rights.ads or Exchange.ADS in rights.listens else {**rights.listens, Exchange.ADS: ASK}


def _published(role: str, name: str) -> dict[Exchange, str]:
    """Patterns of the keys that a daemon publishes on each exchange of broadcasts; "": none."""
    rights = RIGHTS[role]
    daemon = rf"{role}@{re.escape(name) if name else '.*'}"
    ads = [rf"(update|delta|heartbeat|invalidate)\.({'|'.join(rights.ads)})\.{daemon}"] if rights.ads else []
    return {
        Exchange.ADS: "|".join([*ads, *([rights.asks] if rights.asks else [])]),
        Exchange.EVENTS: rights.events,
        Exchange.PRIVATE: daemon if rights.private else "",
    }


def _any_of(patterns: Sequence[str]) -> str:
    return "|".join(dict.fromkeys(patterns))


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


def daemons_of(vhost: str, passwords: Mapping[str, str]) -> dict[str, Any]:
    """Definitions of daemons' users alone, by user: to be added to a broker that runs (`rabbitmqctl
    import_definitions`). Raises ValueError for a user that is none of a daemon, and for one without a password."""
    lacking = [user for user in passwords if not passwords[user]]
    if lacking:
        raise ValueError(f"no password for {', '.join(lacking)}: set {IDENTITY_PASSWORD}")
    return _daemons(vhost, passwords)


def _daemons(vhost: str, passwords: Mapping[str, str]) -> dict[str, Any]:
    rights = {user: split_user(user) for user in passwords}
    return {
        "users": [_user(user, password) for user, password in passwords.items()],
        "permissions": [{"user": user, "vhost": vhost, **permissions(*rights[user])} for user in passwords],
        "topic_permissions": [
            {"user": user, "vhost": vhost, **entry} for user in passwords for entry in topic_permissions(*rights[user])
        ],
    }


def _retired(vhost: str, users: Sequence[str]) -> dict[str, Any]:
    """Nobody can log in as these, and they may do nothing. A broker that has them from before keeps users that its
    definitions do not name."""
    nothing = {"configure": _NOTHING, "write": _NOTHING, "read": _NOTHING}
    return {
        "users": [{"name": user, "password_hash": "", "tags": ""} for user in users],
        "permissions": [{"user": user, "vhost": vhost, **nothing} for user in users],
    }


def definitions(
    vhost: str,
    passwords: Mapping[str, str],
    *,
    clustered: bool = False,
    consumers: Mapping[str, str] = MappingProxyType({}),
    enrolling: Collection[str] = (),
) -> dict[str, Any]:
    """What RabbitMQ loads at its start (`load_definitions`). passwords: by user, of the administrator and for every
    role: of the role, for all of its daemons, or of its daemons (`user_of`); where there are some of daemons and none
    of the role, nobody can log in as the role. Raises ValueError for one that lacks. clustered: the daemons' URLs name
    several nodes. consumers: passwords of those who read events, by name. enrolling: roles whose daemons may all come
    in by the registrar."""
    daemons = {user: password for user, password in passwords.items() if user != ADMINISTRATOR and password}
    has = {split_user(user)[0] for user in daemons}
    users = (*ROLES, ADMINISTRATOR)
    lacking = [user for user in users if not passwords.get(user) and user not in (*has, *OPTIONAL_ROLES, *enrolling)]
    if lacking:
        raise ValueError(f"no password for {', '.join(lacking)}: set {', '.join(map(_variable, lacking))}")
    made = _daemons(vhost, daemons)
    retired = _retired(vhost, [role for role in ROLES if role not in daemons])
    readers = consumers_of(vhost, consumers)
    administrator = _administrator(vhost, passwords[ADMINISTRATOR])
    parts = (made, retired, administrator, readers)
    return {
        "vhosts": [{"name": vhost}],
        **{kind: [one for part in parts for one in part.get(kind, ())] for kind in ("users", "permissions")},
        "topic_permissions": [*made["topic_permissions"], *readers["topic_permissions"]],
        "policies": readers["policies"],
        **_topology(vhost, clustered=clustered),
    }


def beginning(vhost: str, passwords: Mapping[str, str]) -> dict[str, Any]:
    """What a broker that runs must learn of a pool whose other daemons come in by its registrar (`rabbitmqctl
    import_definitions`). passwords: by user, of its first daemons (`user_of`), and of the administrator where that is
    to be made. Raises ValueError as `daemons_of` does."""
    made = daemons_of(vhost, {user: password for user, password in passwords.items() if user != ADMINISTRATOR})
    if password := passwords.get(ADMINISTRATOR):
        administrator = _administrator(vhost, password)
        made = {kind: [*made[kind], *administrator.get(kind, ())] for kind in made}
    policies = [_consumers_policy(vhost)]
    return {"vhosts": [{"name": vhost}], **made, "policies": policies, **_topology(vhost, clustered=False)}


def _administrator(vhost: str, password: str) -> dict[str, Any]:
    everything = {"configure": ".*", "write": ".*", "read": ".*"}
    return {
        "users": [_user(ADMINISTRATOR, password, "administrator")],
        "permissions": [{"user": ADMINISTRATOR, "vhost": vhost, **everything}],
    }


def _topology(vhost: str, *, clustered: bool) -> dict[str, Any]:
    """Exchanges and queues that exist whether or not somebody uses them."""
    queues = standing_queues(clustered=clustered)
    return {
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
    parser.add_argument(
        "--identity",
        metavar="ROLE.NAME",
        default="",
        help="only what a broker that runs must learn of this one daemon, e.g. startd.node1.example.org; its password "
        f"is read from {IDENTITY_PASSWORD} or {IDENTITY_PASSWORD}_FILE. Give the output to `rabbitmqctl "
        "import_definitions`",
    )
    options = parser.parse_args(arguments)
    try:
        if options.identity:
            result = daemons_of(options.vhost, {options.identity: _password(os.environ, IDENTITY_PASSWORD)})
        elif options.consumer:
            result = consumers_of(options.vhost, {options.consumer: _password(os.environ, CONSUMER_PASSWORD)})
        else:
            result = definitions(options.vhost, _passwords(os.environ), clustered=options.cluster)
    except (OSError, ValueError) as error:
        sys.exit(f"definitions: {error}")
    json.dump(result, sys.stdout, indent=2)
    sys.stdout.write("\n")


if __name__ == "__main__":
    main()
