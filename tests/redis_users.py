"""A Redis with the access list of a pool, as whoever sets a pool up makes it."""

import subprocess
import sys
from pathlib import Path

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from shared.state import acl
from tests import warm
from tests.servers import Redis, answers

ROOT = Path(__file__).parents[1]
USERS = (*acl.RIGHTS, *acl.OTHERS)
#: May everything, and is in no pool: what the tests look and put things right with.
TESTER = "tester"


def secret(user: str) -> str:
    return f"secret of {user}".replace(" ", "-")


class RedisWithUsers(Redis):
    """users: besides those of all roles, each `<role>.<name>`."""

    def __init__(self, *extra: str, users: tuple[str, ...] = ()) -> None:
        super().__init__(*extra)
        listed = acl.access_list(
            [(user, secret(user)) for user in (*USERS, *users)], [f"user {TESTER} on nopass ~* &* +@all"]
        )
        (self.directory / "users.acl").write_text(listed)
        self.extra = (*extra, "--aclfile", str(self.directory / "users.acl"), "--protected-mode", "no")
        # Else Redis refuses these two to everybody, whatever the access list says.
        self.extra += ("--enable-debug-command", "yes", "--enable-module-command", "yes")

    def ready(self) -> bool:
        return answers(self.port, b"PING\r\n", b"-NOAUTH")  # from whoever has not logged in

    def url_of(self, user: str) -> str:
        return self.url.replace("://", f"://{user}:{secret(user)}@")

    def client(self, user: str | None = TESTER) -> redis.Redis:
        """None: without a login."""
        login = {"username": user, "password": secret(user)} if user else {}
        return redis.Redis(
            port=self.port, socket_timeout=20, retry=Retry(NoBackoff(), 0), **login
        )  # else a refusal is tried for 3 s

    def load_functions(self, *options: str, user: str = acl.LOADER) -> subprocess.CompletedProcess[str]:
        """As the pool's own program does it."""
        environment = {"ROOST_REDIS_URL": self.url_of(user), "CONDOR_CONFIG": "ONLY_ENV", "PYTHONPATH": str(ROOT)}
        command = [sys.executable, "-m", "shared.daemon.load_functions", *options]
        return warm.run(command, env=environment, timeout=120)
