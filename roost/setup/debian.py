"""The servers of a central manager on Debian: the packages, and how RabbitMQ and Redis are started and told. Blocks."""

from __future__ import annotations

import os
import pwd
import shutil
from pathlib import Path
from typing import Final

from roost.errors import ClientError
from roost.setup import servers
from roost.setup.machine import run, systemctl

_PLUGIN: Final = "rabbitmq_management"
_BROKER_ETC: Final = Path("/etc/rabbitmq")
_CONFIGURATIONS: Final = ("rabbitmq.conf", "rabbitmq.config", "advanced.config")
#: Seconds that the packages may take, and the start of a server.
_INSTALL_S, _START_S = 1800.0, 600.0


def check_broker() -> None:
    """Raises ClientError where RabbitMQ is there for something else: what is set up here would change that."""
    if Path(servers.BROKER_FILE).exists() or not _installed("rabbitmq-server"):
        return
    theirs = [path for path in map(_BROKER_ETC.joinpath, _CONFIGURATIONS) if path.exists()]
    theirs += sorted((_BROKER_ETC / "conf.d").glob("*.conf"))
    if theirs:
        raise ClientError(
            f"this machine has a RabbitMQ that is set up for something already ({theirs[0]}): give it to the pool with "
            "-amqp and -broker-api-file, or set the central manager up on another machine",
            "failed",
        )


def missing() -> list[str]:
    """Packages that are not installed."""
    return [name for name in servers.PACKAGES if not _installed(name)]


def install(names: list[str]) -> None:
    """Raises ClientError."""
    if shutil.which("apt-get") is None:
        raise ClientError(
            f"{' and '.join(names)} are not installed, and there is no apt-get here: install RabbitMQ and Redis 7, or "
            "name servers elsewhere with -amqp, -broker-api-file and -redis-file",
            "failed",
        )
    command = ["apt-get", "install", "--yes", "--no-install-recommends", *names]
    quiet = {"DEBIAN_FRONTEND": "noninteractive"}
    try:
        run(command, _INSTALL_S, **quiet)
    except ClientError:  # a new machine has no lists, or old ones
        run(["apt-get", "update"], _INSTALL_S)
        run(command, _INSTALL_S, **quiet)
    if "redis-server" in names:  # the pool has an instance of its own, and nobody else asked for one
        systemctl("disable", "--quiet", "--now", "redis-server.service")


def _installed(name: str) -> bool:
    try:
        return "installed" in run(["dpkg-query", "--show", "--showformat=${db:Status-Status}", name]).split()
    except ClientError:
        return False


def start_broker(*, changed: bool) -> str:
    """Have RabbitMQ run with what was written, and know the pool. changed: it reads its configuration anew. What was
    done. Raises ClientError."""
    plugins = _BROKER_ETC / "enabled_plugins"
    if not plugins.exists() or _PLUGIN not in plugins.read_text():
        run(["rabbitmq-plugins", "enable", "--offline", _PLUGIN], _START_S)
        changed = True
    systemctl("enable", "--quiet", servers.BROKER_UNIT)
    run(["systemctl", "restart" if changed else "start", servers.BROKER_UNIT], _START_S)
    run(["rabbitmqctl", "import_definitions", str(servers.BROKER_DEFINITIONS)], _START_S)
    return f"RabbitMQ knows the pool, and listens to other machines with TLS (port {servers.TLS_PORT})"


def start_store(*, changed: bool) -> str:
    """The same of Redis. Raises ClientError, OSError."""
    data = Path(servers.STORE_DATA)
    if not data.exists():
        data.mkdir(mode=0o750)
        account = pwd.getpwnam("redis")
        os.chown(data, account.pw_uid, account.pw_gid)
    systemctl("enable", "--quiet", servers.STORE_UNIT)
    run(["systemctl", "restart" if changed else "start", servers.STORE_UNIT], _START_S)
    return f"Redis runs for the pool ({servers.STORE_UNIT}, port {servers.STORE_PORT}, this machine only)"
