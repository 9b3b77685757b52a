"""A Redis that others run, as `roost setup central-manager` tells it of a pool: a real one."""

import asyncio

import pytest

from roost.setup import given_servers
from shared.bus.definitions import with_login
from shared.state import acl, try_store
from shared.tls import ClientTls
from tests.redis_users import RedisWithUsers

pytestmark = pytest.mark.servers

USER = "collector.cm.example.org"


async def test_a_redis_elsewhere_gets_users_and_functions_and_keeps_them():
    server = RedisWithUsers()
    server.start()
    url = server.url.replace("://", "://tester:any@") + "?prefix=one:"
    passwords = {USER: "its-own", acl.LOADER: "loads", "schedd.ap": "none-there"}
    try:
        done = await run(given_servers.prepare_store, url, passwords, ClientTls())
        assert [line.split()[-1] for line in done] == ["loaded"]  # and no warning that it forgets them
        again = await run(given_servers.prepare_store, url, passwords, ClientTls())
        assert [line.split()[-2:] for line in again] == [["there", "already"]]
        assert await try_store(with_login(server.url, USER, "its-own"), ClientTls()) == ("", "")
        trouble, _ = await try_store(with_login(server.url, "schedd.ap", "none-there"), ClientTls())
        assert "invalid username-password pair" in trouble
        with server.client() as tester:
            assert set(tester.acl_users()) >= {USER, acl.LOADER}
            assert "~one:roost:ads:*" in str(tester.acl_getuser(USER))
        assert USER in (server.directory / "users.acl").read_text()
    finally:
        server.close()


async def run(work, *arguments):
    """It has an event loop of its own."""
    return await asyncio.to_thread(work, *arguments)
