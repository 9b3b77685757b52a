"""Makes what the daemons and servers of a compose pool need before they start; safe to run again.

Every role gets a password of its own, which only its daemons, and by its hash the broker and Redis, ever see. So
does the broker's administrator, for the management page. Passwords that exist are kept.

Environment: ROOST_CONSUMERS, names of consumers of events (docs/consumers.md) that get a user of the broker;
DOCKER_GID, the group that the startds get, to tell when it is the wrong one. ROOST_HA: "true" for the highly
available pool (compose.ha.yaml), whose brokers are a cluster and whose Redis is behind sentinels; then there are also
the brokers' common cookie, users for Redis's replication and for sentinels, and the sentinels' configuration.
ROOST_NET: the first three numbers of that pool's addresses.
"""

import json
import os
import secrets
import stat
import sys
from pathlib import Path
from urllib.parse import urlsplit

from shared.bus.definitions import ADMINISTRATOR, consumer_user, definitions
from shared.bus.topology import OPTIONAL_ROLES, ROLES
from shared.state import acl
from shared.state.acl import digest

KEYS = Path("/run/roost/keys")
EXECUTE = Path("/run/roost/execute")
DOCKER_SOCKET = Path("/var/run/docker.sock")
VHOST = "/"
HA = os.environ.get("ROOST_HA", "").lower() == "true"
BROKERS = ("rabbitmq", "rabbitmq2", "rabbitmq3") if HA else ("rabbitmq",)
SENTINELS = ("sentinel1", "sentinel2", "sentinel3")
#: Where Redis's first primary is: its address, since a sentinel stops while it looks up a name that is gone.
PRIMARY = f"{os.environ.get('ROOST_NET', '172.30.77')}.11"
SERVICE = "roost"  # what the sentinels call the primary
#: Users that are no role of the pool: Redis's servers among themselves, sentinels at Redis, daemons at sentinels, and
#: sentinels among themselves.
REPLICATION, WATCHING, ASKING, TALKING = "replication", "sentinel", "pool", "sentinels"
ROOST_UID = ROOST_GID = 10001
#: Directories of the execution points; those of `startd`, of which there may be many, lie in `more`.
STARTDS = ("startd1", "startd2", "startd3", "more") if HA else ("startd1", "startd2", "more")


def password_of(user: str, asking: str = "") -> str:
    """The user's password: the one it has, else a new one, written where its daemons read it. asking: the password by
    which daemons ask the sentinels, where there are any."""
    directory = KEYS / user
    written = directory / "amqp_url"
    password = urlsplit(written.read_text()).password if written.exists() else None
    password = password or secrets.token_urlsafe(32)
    if uses_redis(user):
        keep(directory / "redis_url", redis_url(user, password, asking))
    else:
        (directory / "redis_url").unlink(missing_ok=True)  # of an older release
    # What tells that all is there comes last.
    keep(written, ",".join(f"amqp://{user}:{password}@{name}:5672/" for name in BROKERS))
    return password


def redis_url(user: str, password: str, asking: str) -> str:
    """Where this user finds Redis."""
    if not HA:
        return f"redis://{user}:{password}@redis:6379/0"
    hosts = ",".join(f"{name}:26379" for name in SENTINELS)
    return f"redis+sentinel://{user}:{password}@{hosts}/{SERVICE}/0?sentinel_user={ASKING}&sentinel_password={asking}"


def keep(path: Path, url: str) -> None:
    """Have this URL there, for daemons."""
    if not path.exists() or path.read_text() != url:
        write(path, url, 0o400, ROOST_UID)


def consumer_passwords() -> dict[str, str]:
    """Of each consumer of events that ROOST_CONSUMERS names; its URL of the broker is a file of that name."""
    found = {}
    for name in os.environ.get("ROOST_CONSUMERS", "").replace(",", " ").split():
        try:
            user = consumer_user(name)
        except ValueError as error:
            sys.exit(f"prepare: ROOST_CONSUMERS: {error}")
        written = KEYS / "consumers" / name
        password = urlsplit(written.read_text().partition(",")[0]).password if written.exists() else None
        found[name] = password or secrets.token_urlsafe(32)
        url = ",".join(f"amqp://{user}:{found[name]}@{broker}:5672/" for broker in BROKERS)
        if not written.exists() or written.read_text() != url:
            write(written, url, 0o400, ROOST_UID)
    return found


def secret(path: Path) -> str:
    """What is in this file; made once."""
    if not path.exists():
        write(path, secrets.token_urlsafe(32), 0o400)
    return path.read_text()


def write(path: Path, text: str, mode: int, owner: int = 0) -> None:
    """Replace a file as a whole: its readers never see half of it."""
    new = path.with_name(path.name + ".new")
    new.unlink(missing_ok=True)
    with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "w") as file:
        os.fchmod(file.fileno(), mode)
        os.fchown(file.fileno(), owner, owner)
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    new.rename(path)


def redis_users(passwords: dict[str, str]) -> str:
    """Redis's access list: of these users those that need Redis (shared/state/acl.py)."""
    return acl.access_list((user, password) for user, password in passwords.items() if uses_redis(user))


def uses_redis(user: str) -> bool:
    return user in acl.RIGHTS or user == acl.LOADER


def loader_password(asking: str = "") -> str:
    """Of the user that loads the functions; it has no user of the broker."""
    written = KEYS / acl.LOADER / "redis_url"
    password = urlsplit(written.read_text()).password if written.exists() else None
    password = password or secrets.token_urlsafe(32)
    keep(written, redis_url(acl.LOADER, password, asking))
    return password


def server_users(replication: str, watching: str) -> str:
    """Redis's users beside the roles: replicas, and sentinels."""
    return f"{acl.replication_line(REPLICATION, replication)}\n{acl.sentinel_line(WATCHING, watching)}\n"


def sentinel_configuration(watching: str, asking: str, talking: str) -> str:
    """A sentinel's, to begin with: it adds what it learns to a copy of its own. Two of three must agree that the
    primary is down, after two seconds of silence: fewer would take a busy machine for a dead one."""
    return (
        "port 26379\nprotected-mode no\n"
        f"sentinel monitor {SERVICE} {PRIMARY} 6379 2\nsentinel down-after-milliseconds {SERVICE} 2000\n"
        f"sentinel failover-timeout {SERVICE} 10000\nsentinel parallel-syncs {SERVICE} 1\n"
        f"sentinel auth-user {SERVICE} {WATCHING}\nsentinel auth-pass {SERVICE} {watching}\n"
        f"sentinel sentinel-user {TALKING}\nsentinel sentinel-pass {talking}\n"
        "user default off\nuser health on nopass resetchannels -@all +ping\n"
        f"user {TALKING} on #{digest(talking)} allchannels +@all\n"
        f"user {ASKING} on #{digest(asking)} resetchannels -@all +ping +hello +auth +client|setinfo "
        "+sentinel|masters +sentinel|master +sentinel|replicas +sentinel|slaves +sentinel|get-master-addr-by-name\n"
    )


def prepare_servers() -> tuple[str, str]:
    """Writes what the servers of the highly available pool need. Returns lines for Redis's access list, and the
    password for asking sentinels."""
    watching, asking, talking = (secret(KEYS / "sentinel" / name) for name in (WATCHING, ASKING, TALKING))
    replication = secret(KEYS / "redis" / REPLICATION)
    write(KEYS / "sentinel" / "sentinel.conf", sentinel_configuration(watching, asking, talking), 0o444)
    write(KEYS / "redis" / "replication.conf", f"masteruser {REPLICATION}\nmasterauth {replication}\n", 0o444)
    # Readable to whoever runs the brokers; only they have this volume.
    write(KEYS / "rabbitmq" / "cookie", secret(KEYS / "rabbitmq" / "cookie.made"), 0o444)
    return server_users(replication, watching), asking


def share_execute_directory() -> None:
    """The startds, which are not root, make the jobs' scratch directories in here."""
    EXECUTE.chmod(0o755)
    for name in STARTDS:
        directory = EXECUTE / name
        directory.mkdir(exist_ok=True)
        os.chown(directory, ROOST_UID, ROOST_GID)
        directory.chmod(0o755)


def check_docker_group() -> None:
    """Say it now, rather than let the startds find no engine."""
    if not DOCKER_SOCKET.is_socket():
        sys.exit("prepare: DOCKER_SOCKET names no socket of a Docker engine; startds need one for container jobs")
    state = DOCKER_SOCKET.stat()
    given = os.environ.get("DOCKER_GID", "0")
    if not state.st_mode & stat.S_IWOTH and str(state.st_gid) != given:
        sys.exit(f"prepare: the Docker socket belongs to group {state.st_gid}; set DOCKER_GID={state.st_gid} in .env")


def main() -> None:
    check_docker_group()
    share_execute_directory()
    more, asking = prepare_servers() if HA else ("", "")
    roles = [role for role in ROLES if role not in OPTIONAL_ROLES]
    passwords = {user: password_of(user, asking) for user in (*roles, ADMINISTRATOR)}
    users = redis_users(passwords | {acl.LOADER: loader_password(asking)})
    write(KEYS / "redis" / "users.acl", users + more, 0o444)
    declared = definitions(VHOST, passwords, clustered=HA, consumers=consumer_passwords())
    write(KEYS / "rabbitmq" / "definitions.json", json.dumps(declared, indent=1), 0o444)


if __name__ == "__main__":
    main()
