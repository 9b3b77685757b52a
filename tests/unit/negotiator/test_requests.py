"""The negotiator's talk with schedds that answer oddly."""

from types import SimpleNamespace

import pytest

from services.negotiator.requests import Bearings, Lists, Schedds
from shared.messages.base import Ack
from shared.messages.negotiation import MatchesTaken
from tests.unit.negotiator.test_chunks import match


class Bus:
    """Every call is answered with the same message."""

    def __init__(self, answer):
        self.answer = answer

    async def call(self, inbox, body, *, timeout, epoch):
        return self.answer


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (MatchesTaken(begun=[1, 0]), [1, 0]),
        (MatchesTaken(begun=[1]), [1, 0]),
        (MatchesTaken(begun=[7, -7, 9]), [1, 0]),
        (MatchesTaken(begun=[]), [0, 0]),
        (Ack(), [0, 0]),
    ],
    ids=["both", "one", "too much", "none", "no answer to this"],
)
async def test_what_a_schedd_does_not_answer_for_is_not_taken(answer, said):
    schedds = Schedds(SimpleNamespace(bus=Bus(answer)), Lists())
    taken = {}
    matches = [match(number, count=1) for number in range(2)]
    await schedds.tell("schedd.s", matches, [], Bearings("n", "", 1, 1), taken.__setitem__)
    assert [taken[index] for index in range(2)] == said
