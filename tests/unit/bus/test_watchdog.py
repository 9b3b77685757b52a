"""The watchdog of a link: what it takes for trouble, and what it does not."""

from types import SimpleNamespace

import pytest

from shared.bus.amqp.watchdog import DENIALS, Watchdog


class Listener:
    """Hashed by identity, as a consumer is."""

    def __init__(self):
        self.queue = SimpleNamespace(name="roost.inbox.schedd.ap")
        self.count, self.in_hand, self.prefetch = 0, 0, 10

    def consumes(self):
        return True


class Link:
    """To a broker that answers each look at a queue with the next of these numbers of consumers, the last for ever."""

    def __init__(self, *consumers):
        self.consumers, self.looks = list(consumers), 0
        self.control = self

    async def exchange_declare(self, *_, **__):
        pass

    async def state(self, _):
        self.looks += 1
        count = self.consumers.pop(0) if len(self.consumers) > 1 else self.consumers[0]
        return SimpleNamespace(consumer_count=count, message_count=0)


@pytest.mark.parametrize(
    ("said", "trouble", "looks"),
    [
        ([1], "", 1),
        ([0, 0, 1], "", 3),  # a replicated queue says so while it has no leader
        ([0], "queue roost.inbox.schedd.ap has no consumer, though we asked for its messages", DENIALS),
    ],
    ids=["fine", "leaderless", "forgotten"],
)
async def test_a_queue_must_deny_its_consumer_for_some_time(said, trouble, looks):
    link = Link(*said)
    dog = Watchdog(every_s=0.02)
    assert await dog._look(link, [Listener()]) == trouble
    assert link.looks == looks
