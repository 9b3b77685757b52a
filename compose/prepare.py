"""Makes what the daemons and servers of a compose pool need before they start; safe to run again.

Every role gets a password of its own, which only its daemons, and by its hash the broker and Redis, ever see. So
does the broker's administrator, for the management page. Passwords that exist are kept.

Environment: DOCKER_GID, the group that the startds get, to tell when it is the wrong one.
"""

import hashlib
import json
import os
import secrets
import stat
import sys
from pathlib import Path
from urllib.parse import urlsplit

from shared.bus.definitions import ADMINISTRATOR, definitions
from shared.bus.topology import ROLES

KEYS = Path("/run/roost/keys")
EXECUTE = Path("/run/roost/execute")
DOCKER_SOCKET = Path("/var/run/docker.sock")
VHOST = "/"
AMQP = "amqp://{user}:{password}@rabbitmq:5672/"
REDIS = "redis://{user}:{password}@redis:6379/0"
ROOST_UID = ROOST_GID = 10001
STARTDS = ("startd1", "startd2")

# What each role's daemons touch in Redis (shared/state/keys.py). %R: read only. A key that a script only reads must
# be open for writing all the same, as Redis can not tell: so the epoch, which the accountant's script checks.
REDIS_KEYS = {
    "collector": ("~roost:ads:*", "~roost:claims", "~roost:absent"),
    "negotiator": (
        "~roost:accountant*",
        "~roost:had:epoch*",
        "%R~roost:ads:*",
        "%R~roost:claims",
    ),
    "schedd": (),
    "startd": (),
    "had": ("~roost:had:*", "~roost:accountant*"),  # it restores books that Redis lost
    "gateway": ("~roost:tokens",),
}
# No role may see or change the server itself, or other clients; INFO, ROLE and WAIT tell of replicas.
REDIS_COMMANDS = "+@all -@admin -@dangerous +info +role +wait"


def password_of(user: str) -> str:
    """The user's password: the one it has, else a new one, written where its daemons read it."""
    directory = KEYS / user
    written = directory / "amqp_url"
    if written.exists():
        password = urlsplit(written.read_text()).password
        if password:
            return password
    password = secrets.token_urlsafe(32)
    for name, template in (("redis_url", REDIS), ("amqp_url", AMQP)):  # what tells that all is there comes last
        write(directory / name, template.format(user=user, password=password), 0o400, ROOST_UID)
    return password


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
    """Redis's access list: the default user is off; "health" may ping, and needs no password for it."""
    lines = ["user default off", "user health on nopass resetkeys resetchannels -@all +ping"]
    for role in ROLES:
        digest = hashlib.sha256(passwords[role].encode()).hexdigest()
        keys = " ".join(REDIS_KEYS[role])
        lines.append(f"user {role} on #{digest} resetkeys {keys} resetchannels {REDIS_COMMANDS}")
    return "\n".join(lines) + "\n"


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
    passwords = {user: password_of(user) for user in (*ROLES, ADMINISTRATOR)}
    write(KEYS / "redis" / "users.acl", redis_users(passwords), 0o444)
    write(KEYS / "rabbitmq" / "definitions.json", json.dumps(definitions(VHOST, passwords), indent=1), 0o444)


if __name__ == "__main__":
    main()
