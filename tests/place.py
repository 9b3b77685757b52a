"""A broker and a Redis with the rights that daemons have in the compose pool."""

import asyncio
from contextlib import asynccontextmanager

import redis

from shared.bus.definitions import ROLES, definitions
from shared.state.acl import user_line
from shared.state.functions import library

SECRETS = {user: f"secret-of-{user}" for user in (*ROLES, "roost")}


@asynccontextmanager
async def place_of(role, rabbit_server, amqp_url, redis_url):
    """A virtual host and a Redis as in the compose pool: gives a function from a role to its URL of the broker, and the
    URL of Redis for this role's daemon, which needs one."""
    vhost = amqp_url.rpartition("/")[2]
    await asyncio.to_thread(rabbit_server.api, "POST", "/api/definitions", definitions(vhost, SECRETS))
    server = redis.Redis.from_url(redis_url)
    server.execute_command("FUNCTION", "LOAD", library().text)
    server.execute_command("ACL", "SETUSER", *user_line(role, SECRETS[role]).split()[1:])
    try:
        yield (
            lambda user: rabbit_server.url_of(vhost, user, SECRETS[user]),
            redis_url.replace("://", f"://{role}:{SECRETS[role]}@"),
        )
    finally:
        server.execute_command("ACL", "DELUSER", role)
        server.close()
        for user in SECRETS:
            await asyncio.to_thread(rabbit_server.api, "DELETE", f"/api/users/{user}")
