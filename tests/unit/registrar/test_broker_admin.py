"""What the registrar asks of RabbitMQ's management API, where that answers as a real one does only now and then."""

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from services.registrar.broker_admin import BrokerAdmin, BrokerUnavailable
from shared.tls import ClientTls


@pytest.fixture
async def api(tmp_path):
    """The statuses to answer with when connections are to be closed; the paths asked for; the administrator."""
    statuses, asked = [], []

    async def answer(request):
        asked.append(request.path)
        closes = request.path.startswith("/api/connections/")
        return web.Response(status=statuses.pop(0) if closes and statuses else 204)

    app = web.Application()
    app.router.add_route("DELETE", "/api/{rest:.*}", answer)
    async with TestServer(app) as server:
        file = tmp_path / "api"
        file.write_text(f"http://admin:secret@127.0.0.1:{server.port}")
        admin = BrokerAdmin(str(file), "/", ClientTls())
        yield statuses, asked, admin
        await admin.close()


async def test_a_connection_that_ends_by_itself_meanwhile_does_not_fail_the_removal(api):
    statuses, asked, admin = api
    statuses += [500, 500]
    await admin.remove("startd.ep1")
    assert asked == ["/api/users/startd.ep1", *["/api/connections/username/startd.ep1"] * 3]


async def test_an_api_that_goes_on_refusing_is_told_of(api):
    statuses, _, admin = api
    statuses += [500] * 100
    with pytest.raises(BrokerUnavailable, match="500"):
        await admin.remove("startd.ep1")
