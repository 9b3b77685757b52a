"""What a personal pool goes by, and its tools with it.

    config = personal_config(directory, "SCHEDD")    # as `roost up` in this directory reads it
    config = tool_config("SUBMIT")                   # of the pool that a command on this machine speaks of

A personal pool reads the file `config` in its directory, or what ROOST_CONFIG or CONDOR_CONFIG name in its place. The
places of its own files, and what the command line of `roost up` said, win over what is written there.
"""

from __future__ import annotations

import getpass
import os
import pwd
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from roost.pool_directory import CONFIG_FILE, SOCKET_FILE, TOKEN_FILE, described, pool_dir
from shared.config import Config, load_config
from shared.config.dynamic import Dynamic
from shared.config.load import FIRST_FILES, TOOL
from shared.user_names import user_of

#: What names the first file of a configuration in place of the pool's own.
_NAMED_FILES: Final = ("ROOST_CONFIG", "CONDOR_CONFIG")
OWN_USERS, JOBS_AS_ROOT = "ROOST_OWN_USERS", "ROOST_JOBS_AS_ROOT"
#: Where its collector keeps the pool's history, unless the configuration says otherwise.
HISTORY_DIR: Final = "pool-history"
KEEP_HISTORY, HISTORY_PLACE = "KEEP_POOL_HISTORY", "POOL_HISTORY_DIR"
#: The gateway's key, where there is a broker.
KEY_FILE = "gateway.key"


def personal_config(
    directory: Path,
    subsystem: str,
    *,
    file: str | Path | None = None,
    knobs: Mapping[str, str] | None = None,
    broker: bool = False,
    local_name: str | None = None,
    instance: str | None = None,
    dynamic: Dynamic | None = None,
) -> Config:
    """file: read in place of the pool's own; "": none. knobs: what wins over it. broker: whether messages go over
    RabbitMQ. instance, dynamic: as load_config has them. Raises ConfigError."""
    overrides = {
        "ROOST_POOL_DIR": str(directory),
        "SPOOL": str(directory / "spool"),
        "EXECUTE": str(directory / "execute"),
        "LOG": str(directory / "log"),
        "ROOST_TOKEN_FILE": str(directory / TOKEN_FILE),
        "ROOST_GATEWAY_SOCKET": str(directory / SOCKET_FILE),
        "SEC_PASSWORD_DIRECTORY": str(directory / "passwords.d"),
        **(knobs or {}),
    }
    files = [directory / CONFIG_FILE] if file is None else [file] if file else []
    paths = None if any(map(os.environ.get, _NAMED_FILES)) else files
    config = load_config(
        paths, subsystem=subsystem, local_name=local_name, overrides=overrides, instance=instance, dynamic=dynamic
    )
    if local_name is None:  # a second collector, which has a name of its own, would need a directory of its own
        usual = {KEEP_HISTORY: "true", HISTORY_PLACE: str(directory / HISTORY_DIR)}
        config.override({name: text for name, text in usual.items() if not config.is_written(name)})
    if broker:
        from shared.bus.statements import GATEWAY_KEY, GATEWAY_KEYS, public_file  # most commands do without

        if not config.get(GATEWAY_KEY) and not config.get(GATEWAY_KEYS):
            # Daemons elsewhere that belong to this pool believe its gateway by the public half.
            key = directory / KEY_FILE
            config.override({GATEWAY_KEY: str(key), GATEWAY_KEYS: str(public_file(key))})
    if not config.is_written(OWN_USERS) and not config.is_written(JOBS_AS_ROOT):
        # Who runs a pool of his own needs no walls against his own jobs. They are not root's by another's name.
        config.override({OWN_USERS: _owners(config)})
    return config


def tool_config(
    subsystem: str = TOOL, *, local_name: str | None = None, overrides: Mapping[str, str] | None = None
) -> Config:
    """The configuration that a command goes by: the personal pool's where that is the one it speaks of, else this
    machine's. overrides win over everything. Raises ConfigError, ClientError."""
    personal = described()
    if _is_spoken_of(personal):
        knobs = {**personal.get("knobs", {}), **(overrides or {})}
        broker = personal.get("bus") == "RabbitMQ"
        file = personal.get("config")
        return personal_config(pool_dir(), subsystem, file=file, knobs=knobs, broker=broker, local_name=local_name)
    return load_config(subsystem=subsystem, local_name=local_name, overrides=overrides)


def is_meant() -> bool:
    """Whether commands on this machine speak of a personal pool. Raises ClientError."""
    return _is_spoken_of(described())


def _is_spoken_of(personal: Mapping[str, object]) -> bool:
    """Whether commands ask the personal pool, which said `personal` of itself; one that is down is meant where there is
    its file, and none of another pool."""
    url = (os.environ.get("ROOST_URL") or "").rstrip("/")
    if personal:
        own = not url or url == str(personal.get("url", "")).rstrip("/")
        return own and ("config" in personal or (pool_dir() / CONFIG_FILE).is_file())
    if url or any(map(os.environ.get, _NAMED_FILES)):
        return False
    if not (pool_dir() / CONFIG_FILE).is_file():
        return False
    return bool(os.environ.get("ROOST_POOL_DIR")) or not any(map(os.path.isfile, FIRST_FILES))


def _owners(config: Config) -> str:
    """The users, as name@domain, whose pool it is: of the account that it runs as, whatever the environment calls it,
    and whom the gateway's own token stands for. In root's pool nobody but root."""
    domain = config.get("UID_DOMAIN") or ""
    try:
        account = pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        account = getpass.getuser()  # of a plain account without a name; root has one
    names = [account]
    if os.geteuid():
        names.append(config.get("ROOST_TOKEN_USER") or getpass.getuser())
    return ", ".join(dict.fromkeys(user_of(name, domain) for name in names))
