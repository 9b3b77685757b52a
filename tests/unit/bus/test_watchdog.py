"""The watchdog of a link: what it takes for trouble, and what it does not."""

import asyncio
from types import SimpleNamespace

import pytest
from aiormq.exceptions import ChannelNotFoundEntity

from shared.bus.amqp import link as link_module
from shared.bus.amqp import watchdog
from shared.bus.amqp.watchdog import DENIALS, Pulse, Watchdog


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
        self.consumers, self.looks, self.signs = list(consumers), 0, 0
        self.control = self

    async def exchange_declare(self, *_, **__):
        self.signs += 1

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


async def test_who_consumes_is_not_asked_for_a_sign_of_life_besides():
    link, dog = Link(1), Watchdog(every_s=0.02)
    assert await dog._look(link, [Listener()]) == ""
    assert (link.looks, link.signs) == (1, 0)
    assert await dog._look(link, []) == ""
    assert (link.looks, link.signs) == (1, 1)


class Queues(link_module.Link):
    """A link whose broker has one queue, and closes the channel of whoever asks for another."""

    def __init__(self):
        super().__init__(None)
        self.opened = 0

    async def channel(self, *_, **__):
        self.opened += 1
        return SimpleNamespace(queue_declare=self._declare, is_closed=False)

    async def _declare(self, queue, *, passive):
        if queue != "here":
            raise ChannelNotFoundEntity(queue)
        return queue


async def test_looks_at_queues_share_a_channel_until_the_broker_closes_it():
    link = Queues()
    assert [await link.state("here") for _ in range(3)] == ["here"] * 3
    assert link.opened == 1
    with pytest.raises(link_module.Refused):
        await link.state("gone")
    assert await link.states(["here", "gone"]) == {"here": "here"}
    assert link.opened == 2


class Broker:
    """A link to a broker that answers after so many seconds each; None: never."""

    def __init__(self, *answers, backlog=0):
        self.answers, self.backlog = list(answers), backlog
        self.trouble = ""
        self.control = self

    @property
    def usable(self):
        return bool(self.answers) and not self.trouble

    async def exchange_declare(self, *_, **__):
        wait = self.answers.pop(0)
        await (asyncio.Event().wait() if wait is None else asyncio.sleep(wait))

    def fail(self, reason):
        self.trouble = reason


@pytest.fixture
def quick(monkeypatch):
    """Tenths of the usual times."""
    monkeypatch.setattr(watchdog, "PULSE_S", 0.01)
    monkeypatch.setattr(watchdog, "QUICK_S", 0.1)


async def test_a_broker_of_several_that_is_silent_is_left(quick):
    broker, pulse = Broker(0, 0, None, 0), Pulse(longest_s=5.0)
    await pulse.watch(broker, [])
    assert broker.trouble == "the broker did not answer within 0.1 s"
    # It may have been a slow one: the next has more time.
    assert pulse.patience_s == pytest.approx(0.4, rel=0.05)


async def test_a_broker_that_was_slow_of_late_is_waited_for_longer(quick):
    broker, pulse = Broker(0.08, 0.2, 0), Pulse(longest_s=5.0)
    await pulse.watch(broker, [])
    assert broker.trouble == ""
    assert pulse.patience_s >= 0.8


async def test_nobody_is_waited_for_longer_than_by_the_watchdog(quick):
    pulse = Pulse(longest_s=0.2)
    await pulse.watch(Broker(None), [])
    assert pulse.patience_s == 0.2


async def test_what_moves_meanwhile_is_a_sign_of_life(quick):
    listener = Listener()

    class Busy(Broker):
        async def exchange_declare(self, *_, **__):
            """Messages come before the answer does."""
            self.answers.pop(0)
            for _ in range(15):
                listener.count += 1
                await asyncio.sleep(0.02)

    broker = Busy(0)
    await Pulse(longest_s=60.0).watch(broker, [listener])
    assert broker.trouble == ""


@pytest.mark.parametrize(("backlog", "left"), [(0, True), (watchdog.BACKLOG_BYTES + 1, False)])
async def test_who_has_much_to_say_waits_for_the_answer_behind_it(quick, backlog, left):
    broker = Broker(0.3, 0, backlog=backlog)
    await Pulse(longest_s=60.0).watch(broker, [])
    assert bool(broker.trouble) is left
