"""RabbitMQ and Redis of a central manager, as Debian packages them: what they are told. Text only.

RabbitMQ is this machine's one, and listens to other machines with TLS alone. Redis is an instance of its own beside
whatever else there is, for this machine only: of daemons on others none needs it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Final

from roost.setup.layout import File
from shared.bus.definitions import beginning
from shared.state import acl

PACKAGES: Final = ("rabbitmq-server", "redis-server")
BROKER_UNIT: Final = "rabbitmq-server.service"
#: Debian's unit for further instances: /etc/redis/redis-NAME.conf.
STORE_UNIT: Final = "redis-server@roost.service"
BROKER_FILE: Final = PurePosixPath("/etc/rabbitmq/conf.d/50-roost.conf")
BROKER_CERTIFICATE: Final = PurePosixPath("/etc/rabbitmq/roost/server.pem")
BROKER_DEFINITIONS: Final = PurePosixPath("/etc/rabbitmq/roost/definitions.json")
STORE_FILE: Final = PurePosixPath("/etc/redis/redis-roost.conf")
STORE_USERS: Final = PurePosixPath("/etc/redis/redis-roost.acl")
STORE_DATA: Final = PurePosixPath("/var/lib/redis/roost")
VHOST: Final = "/"
#: For daemons here, for those elsewhere (TLS), and RabbitMQ's management API, for the registrar.
PORT, TLS_PORT, API_PORT = 5672, 5671, 15672
#: Not 6379: that is the instance of whoever had a Redis here before.
STORE_PORT: Final = 6380


def broker_url(user: str, password: str) -> str:
    """For a daemon of this machine."""
    return f"amqp://{user}:{password}@127.0.0.1:{PORT}/"


def store_url(user: str, password: str) -> str:
    return f"redis://{user}:{password}@127.0.0.1:{STORE_PORT}/0"


def api_url(user: str, password: str) -> str:
    return f"http://{user}:{password}@127.0.0.1:{API_PORT}"


def files(passwords: Mapping[str, str], certificate: str) -> list[File]:
    """All that is written for both. passwords: by user, the broker's administrator's, the loader's and the backup's
    too;
    certificate: PEM of the broker's certificate and its key."""
    of_broker = {user: password for user, password in passwords.items() if user not in acl.OTHERS}
    # Salts are new each time, so this file says nothing of whether anything has changed.
    definitions = json.dumps(beginning(VHOST, of_broker), indent=1)
    return [
        File(BROKER_FILE, _broker()),
        File(BROKER_CERTIFICATE, certificate, 0o440, owner="root:rabbitmq"),
        File(BROKER_DEFINITIONS, definitions, 0o440, owner="root:rabbitmq"),
        File(STORE_USERS, store_users(passwords), 0o440, owner="root:redis"),
        File(STORE_FILE, _store(), 0o440, owner="root:redis"),
    ]


def store_users(passwords: Mapping[str, str]) -> str:
    """Redis's access list: of these users those that need Redis."""
    return acl.access_list((user, password) for user, password in passwords.items() if uses_store(user))


def uses_store(user: str) -> bool:
    return user.partition(".")[0] in acl.RIGHTS or user in acl.OTHERS


def _broker() -> str:
    return f"""\
# Written by `roost setup central-manager`, each time anew: your own settings go into a file that is read after it.
# Without TLS it listens to this machine only.
listeners.tcp.local = 127.0.0.1:{PORT}
listeners.ssl.default = {TLS_PORT}
ssl_options.certfile = {BROKER_CERTIFICATE}
ssl_options.keyfile = {BROKER_CERTIFICATE}
ssl_options.versions.1 = tlsv1.3
ssl_options.versions.2 = tlsv1.2
# Clients show a password, and no certificate.
ssl_options.verify = verify_none
ssl_options.fail_if_no_peer_cert = false
management.tcp.ip = 127.0.0.1
management.tcp.port = {API_PORT}
# A daemon that stops answering loses its connection, and its unacknowledged messages go to others.
heartbeat = 10
disk_free_limit.absolute = 500MB
"""


def _store() -> str:
    return f"""\
# Written by `roost setup central-manager`, each time anew.
# The pool's state: who owes what, who leads, what was advertised. Each write is on disk before it is answered.
bind 127.0.0.1
port {STORE_PORT}
dir {STORE_DATA}
appendonly yes
appendfsync always
save ""
# Full memory refuses writes, with an error that daemons show, and never forgets what they rely on.
maxmemory-policy noeviction
# Users and what each may touch. There is no default user.
aclfile {STORE_USERS}
tcp-keepalive 30
logfile ""
"""
