"""A bus that was given several brokers (one cluster's nodes): the loss of one is not the loss of the bus."""

import asyncio

import pytest

from shared.bus import connect
from shared.bus.api import Exchange
from shared.messages.ads import SendAds
from shared.messages.base import Ack
from shared.messages.events import PriorityChanged
from tests.servers import free_port
from tests.waiting import eventually

pytestmark = pytest.mark.servers


async def _ack(envelope):
    return Ack()


@pytest.mark.parametrize("dead_first", [True, False])
async def test_node_that_is_away_is_passed_over(amqp_url, dead_first):
    """Both ways round, so whoever begins while a node is away finds the other."""
    dead = f"amqp://guest:guest@127.0.0.1:{free_port()}/"
    urls = [dead, amqp_url] if dead_first else [amqp_url, dead]
    server, client = connect(",".join(urls), "collector.cm"), connect(",".join(urls), "negotiator.cm")
    try:
        await asyncio.gather(server.start(), client.start())
        await server.serve("collector.cm", _ack)
        assert isinstance(await client.call("collector.cm", SendAds(my_type="")), Ack)
    finally:
        await client.stop()
        await server.stop()


async def test_the_loss_of_the_node_in_use_is_made_up_for_by_another(amqp_url):
    """A node is stood for by a port that leads to the broker; it closes with all its connections."""
    host, port = amqp_url.rpartition("@")[2].partition("/")[0].split(":")
    doors = []

    async def pump(reader, writer):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
        writer.close()

    async def node():
        open_now = set()

        async def through(reader, writer):
            far_reader, far_writer = await asyncio.open_connection(host, int(port))
            open_now.update((writer, far_writer))
            await asyncio.gather(pump(reader, far_writer), pump(far_reader, writer), return_exceptions=True)

        server = await asyncio.start_server(through, "127.0.0.1", 0)
        doors.append((server, open_now))
        return server.sockets[0].getsockname()[1]

    async def lose(server, open_now):
        server.close()
        for writer in open_now:
            writer.transport.abort()

    ports = [await node(), await node()]
    credentials, vhost = amqp_url.partition("@")[0], amqp_url.rpartition("/")[2]
    urls = ",".join(f"{credentials}@127.0.0.1:{one}/{vhost}" for one in ports)
    server, client = connect(urls, "collector.cm"), connect(urls, "negotiator.cm")
    gaps, heard = [], []

    async def hear(envelope):
        heard.append(envelope.body)

    async def gap():
        gaps.append(True)

    try:
        await asyncio.gather(server.start(), client.start())
        server.on_gap(gap)
        await server.serve("collector.cm", _ack)
        assert isinstance(await client.call("collector.cm", SendAds(my_type="")), Ack)
        listener = await server.listen(Exchange.EVENTS, ["accountant.#"], hear)
        private = listener.queue.name
        await lose(*doors[0])

        async def answered():
            try:
                return isinstance(await client.call("collector.cm", SendAds(my_type=""), timeout=5.0), Ack)
            except Exception:
                return False

        await eventually(lambda: gaps, what="the bus to notice and come back")
        await eventually(answered, what="an answer by way of the other node")
        # Real nodes remove what a lost one's connections had to themselves, seconds later and by name.
        assert listener.queue.name != private
        assert listener.queue.name.startswith(f"{private}.")
        started = PriorityChanged(at=1.0, submitter="alice@x", what="factor", value=2.0, by="root")

        async def told():
            await client.publish(Exchange.EVENTS, started.type, started)
            return heard

        await eventually(told, what="an event by way of the new queue")
    finally:
        await client.stop()
        await server.stop()
        for door in doors:
            await lose(*door)
