"""What a machine needs to be a central manager: configuration, secrets and units of collector, negotiator, HAD,
journal, registrar and gateway. Text only; roost.setup.machine writes it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Final

from roost.setup import layout, servers
from roost.setup.layout import AUTHORITY, ETC, File
from shared.bus.definitions import user_of
from shared.state import acl

KIND: Final = "central-manager"
ACCOUNT: Final = "condor"
#: The one daemon that speaks to everybody: it reads nothing of the others, above all not the registrar's password.
GATEWAY_ACCOUNT: Final = "condor-gateway"
STATE: Final = PurePosixPath("/var/lib/roost")
GATEWAY_STATE: Final = PurePosixPath("/var/lib/roost-gateway")
GATEWAY_DIRECTORY: Final = ETC / "gateway"
CERTIFICATE: Final = GATEWAY_DIRECTORY / "server.pem"
#: By which the gateway signs what it says of people; its public half is for every daemon.
KEY: Final = GATEWAY_DIRECTORY / "statements.key"
PUBLIC_KEY: Final = GATEWAY_DIRECTORY / "statements.key.pub"
KEYS: Final = ETC / "gateway-keys"
BROKER_API: Final = ETC / "registrar" / "broker_api"
#: The authority, with its key: root's alone.
CA_DIRECTORY: Final = ETC / "pool-ca"
SOCKET: Final = PurePosixPath("/run/roost/gateway.socket")
PORT: Final = 9680
#: In the order in which they are started: who listens comes before who speaks.
ROLES: Final[Mapping[str, str]] = {
    "collector": "directory of the pool",
    "negotiator": "matchmaker",
    "had": "election of the negotiator",
    "journal": "journal of the pool",
    "registrar": "registrar of daemons",
    "gateway": "gateway to the pool",
}


@dataclass(frozen=True, slots=True)
class CentralManager:
    """name: of its daemons, by which other machines reach this one. python: the interpreter that Roost is installed
    for. amqp: URL of the broker without user and password, as other machines are told. names: further names and
    addresses of this machine. broker, store: whether RabbitMQ and Redis are its own."""

    name: str
    python: str
    uid_domain: str
    amqp: str
    names: tuple[str, ...] = ()
    broker: bool = True
    store: bool = True

    def user(self, role: str) -> str:
        return user_of(role, self.name)


@dataclass(frozen=True, slots=True)
class Secrets:
    """urls, stores: of broker and Redis, by role, with the passwords of their users; of Redis those of
    acl.OTHERS too. api: of RabbitMQ's management, with an administrator's. authority: the certificate of the pool's
    authority; certificate: PEM of the gateway's certificate and key; key, public_key: by which it signs."""

    urls: Mapping[str, str]
    stores: Mapping[str, str]
    api: str
    authority: str
    certificate: str
    key: str
    public_key: str


def files(machine: CentralManager, secrets: Secrets) -> list[File]:
    """All that is written for its daemons, in order. What RabbitMQ and Redis read is in roost.setup.servers."""
    return [
        layout.first_configuration(),
        _local(machine),
        File(AUTHORITY, secrets.authority),
        File(CERTIFICATE, secrets.certificate, 0o400, owner=f"{GATEWAY_ACCOUNT}:{GATEWAY_ACCOUNT}"),
        File(KEY, secrets.key, 0o400, owner=f"{GATEWAY_ACCOUNT}:{GATEWAY_ACCOUNT}"),
        *(File(path, secrets.public_key) for path in (PUBLIC_KEY, KEYS / f"{machine.name}.pub")),
        File(BROKER_API, secrets.api + "\n", 0o400, owner=f"{ACCOUNT}:{ACCOUNT}"),
        *(File(by_hand(user), f"ROOST_REDIS_URL={secrets.stores[user]}\n", 0o600) for user in acl.OTHERS),
        *(
            layout.environment_file(role, machine.name, secrets.urls[role], secrets.stores.get(role, ""))
            for role in ROLES
        ),
        *(layout.unit_file(role, unit(machine, role)) for role in ROLES),
    ]


def by_hand(user: str) -> PurePosixPath:
    """The environment of commands that speak to Redis as this user (shared.state.acl.OTHERS)."""
    return layout.IDENTITIES / user / "environment"


def _local(machine: CentralManager) -> File:
    knobs: list[tuple[str, object]] = [
        ("CONDOR_HOST", machine.name),
        ("UID_DOMAIN", machine.uid_domain),
        ("AUTH_SSL_CLIENT_CAFILE", AUTHORITY),
    ]
    for role in ROLES:
        place = GATEWAY_STATE if role == "gateway" else STATE
        knobs += [(f"{role.upper()}.SPOOL", place / "spool"), (f"{role.upper()}.ROOST_GATEWAY_KEYS", KEYS)]
    knobs += [
        ("HAD.HAD_USE_REPLICATION", "true"),
        ("REGISTRAR.REGISTRAR_BROKER_API_FILE", BROKER_API),
        ("REGISTRAR.REGISTRAR_DAEMONS_AMQP", machine.amqp),
        ("GATEWAY.ROOST_GATEWAY_BIND", "0.0.0.0"),
        ("GATEWAY.ROOST_GATEWAY_PORT", PORT),
        ("GATEWAY.ROOST_GATEWAY_HOSTS", ", ".join((machine.name, *machine.names))),
        ("GATEWAY.ROOST_GATEWAY_SOCKET", SOCKET),
        ("GATEWAY.ROOST_GATEWAY_KEY", KEY),
        ("GATEWAY.AUTH_SSL_SERVER_CERTFILE", CERTIFICATE),
        ("GATEWAY.ROOST_TOKEN_FILE", GATEWAY_STATE / "token"),
        ("GATEWAY.GATEWAY_AUDIT_LOG", GATEWAY_STATE / "audit" / "gateway.log"),
    ]
    return layout.local_configuration(KIND, knobs)


def unit(machine: CentralManager, role: str) -> str:
    after = [
        *([servers.BROKER_UNIT] if machine.broker else []),
        *([servers.STORE_UNIT] if machine.store else []),
    ]
    lines = layout.walls(ACCOUNT, STATE.name)
    if role == "gateway":
        # Users of the machine come over a socket here; whose process it is, the gateway reads in /proc.
        lines = [*layout.walls(GATEWAY_ACCOUNT, GATEWAY_STATE.name), f"RuntimeDirectory={SOCKET.parent.name}"]
    start = f"{machine.python} -m services.{role} -name {machine.name}"
    return layout.unit(role, ROLES[role], start, layout.environment(role, machine.name), after, lines)
