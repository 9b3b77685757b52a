"""Callers whose node of the broker is gone: RabbitMQ 3.10 crashes the connection of whoever answers them."""

from types import SimpleNamespace

import pytest

from shared.bus.amqp.callers import Callers, node_of

#: As RabbitMQ 3.10 writes them: two channels of a node, one of another.
FIRST = "amq.rabbitmq.reply-to.g1h2AA5yZXBseUA4MTE4MTIyMAAACHcAAAAAawjXsA==.xInOflii4TxSmWgn7vR15A=="
SISTER = "amq.rabbitmq.reply-to.g1h2AA5yZXBseUA4MTE4MTIyMAAACHgAAAAAawjXsA==.aaaaaaaaaaaaaaaaaaaaaa=="
OTHER = "amq.rabbitmq.reply-to.g1h2AA5yZXBseUA0NTE4MTIyMAAACHcAAAAAawjXsA==.xInOflii4TxSmWgn7vR15A=="


def request(reply_to, *, again):
    return SimpleNamespace(reply_to=reply_to, again=again, tells_end=False, waits_s=5.0)


def test_the_node_of_a_caller_is_in_its_address():
    assert node_of(FIRST) == node_of(SISTER) == "reply@81181220"
    assert node_of(OTHER) == "reply@45181220"


@pytest.mark.parametrize("address", ["", "amq.rabbitmq.reply-to.AAAA.x", "amq.rabbitmq.reply-to.!.x", "reply"])
def test_an_address_that_can_not_be_read_is_a_node_of_its_own(address):
    assert node_of(address) == address


@pytest.mark.parametrize(
    ("reason", "address", "again", "gone"),
    [
        ("connection closed: ConnectionInternalError: INTERNAL_ERROR", SISTER, True, True),
        ("connection closed: ConnectionInternalError: INTERNAL_ERROR", SISTER, False, False),  # a new one: it is back
        ("connection closed: ConnectionInternalError: INTERNAL_ERROR", OTHER, True, False),
        ("connection closed: ConnectionResetError", SISTER, True, False),
    ],
)
async def test_a_request_whose_answer_crashed_the_connection_is_not_answered_again(reason, address, again, gone):
    callers = Callers(SimpleNamespace())
    with callers.answering(request(FIRST, again=False)):
        pass
    callers.broke(reason)
    assert callers.gone(request(address, again=again)) is gone
