"""Messages that the client library can not read, or only at a cost, on a real broker: whoever may send anything to a
daemon could take it off the bus with one of them, for good, or hold its loop."""

import struct

import aio_pika
import pamqp.frame
import pytest
from aiormq.abc import ChannelFrame
from pamqp.commands import Basic

from shared.bus.api import Exchange
from shared.bus.topology import inbox_queue
from shared.messages.ads import SendAds
from shared.messages.base import Envelope
from tests.contract.bus_amqp import AmqpPool
from tests.contract.test_bus import Catch, heartbeat
from tests.unit.bus.test_frames import ODD
from tests.waiting import eventually

pytestmark = pytest.mark.servers


@pytest.fixture
async def pool(amqp_url):
    pool = AmqpPool(amqp_url)
    yield pool
    await pool.close()


async def publish(url, exchange, key, header, body):
    """Frames as they are. Returns whether the broker took them."""
    connection = await aio_pika.connect(url)
    try:
        channel = await (await connection.channel()).get_underlay_channel()
        method = pamqp.frame.marshal(Basic.Publish(exchange=exchange, routing_key="k" * len(key)), channel.number)
        method = method.replace(b"k" * len(key), key)
        content = struct.pack(">BHI", 3, channel.number, len(body)) + body + b"\xce"
        header = header[:1] + struct.pack(">H", channel.number) + header[3:]
        await channel.write_queue.put(ChannelFrame(method + header + content, False, None))
        await channel.queue_declare(inbox_queue("schedd.ap"), passive=True)  # behind it, on the same channel
    except (aio_pika.exceptions.AMQPError, ConnectionError, RuntimeError):
        return False
    else:
        return True
    finally:
        await connection.close()


def sized(frame, body):
    """The frame of a message's properties, for a body of another size."""
    return frame[:11] + struct.pack(">Q", len(body)) + frame[19:]


async def test_no_message_takes_a_daemon_off_the_bus(pool, amqp_url):
    bus, taken = await pool.bus("schedd.ap"), Catch()
    await bus.serve("schedd.ap", taken)
    link = bus._publisher.current
    body = Envelope(SendAds(my_type="Machine"), sender="startd.evil").pack()
    passed = [
        what
        for what, frame in ODD.items()
        if await publish(amqp_url, "", inbox_queue("schedd.ap").encode(), sized(frame, body), body)
    ]
    assert "a frame full of nothing" in passed  # RabbitMQ itself refuses some
    assert "a time of the message that is none" in passed
    await (await pool.bus("startd.ep")).send("schedd.ap", SendAds(my_type="Submitter"))
    await eventually(lambda: taken.envelopes, what="the message behind them")
    assert [one.body.my_type for one in taken.envelopes] == ["Submitter"]
    assert bus._publisher.current is link
    letters = await (await pool.bus("gateway.gw")).dead_letters(100)
    assert len(letters) == len(passed)
    assert all(letter.reason.startswith("its headers or properties can not be read: ") for letter in letters)


async def test_nor_does_the_key_of_a_broadcast(pool, amqp_url):
    bus, heard = await pool.bus("collector.cm"), Catch()
    await bus.listen(Exchange.ADS, ["#"], heard)
    await bus.serve("schedd.ap", Catch())
    link = bus._publisher.current
    body = Envelope(heartbeat(7), sender="startd.node1").pack()
    plain = struct.pack(">BHI", 2, 0, 14) + struct.pack(">HHQH", 60, 0, len(body), 0) + b"\xce"
    assert await publish(amqp_url, Exchange.ADS, b"heartbeat.Machine.startd@\xff", plain, body)
    await eventually(lambda: heard.envelopes, what="the heartbeat")
    assert bus._publisher.current is link
