"""How the lease follows delays: what counts as one, and for how much."""

import pytest

from services.had.core.timing import MARGIN, QUICK_S, Slowness, lease_length, timing
from services.had.daemon import Had
from shared.daemon.clock import SystemClock
from shared.messages.had import Following, StepDown
from tests.daemons import make_context
from tests.spec import spec


def lease(slowness, now):
    return lease_length(None, 5.0, slowness.delay.left(now))


def answered(slowness, sent, at):
    for one in sent:
        slowness = slowness.seen(one, at)
    return slowness


@spec("HA-11")
def test_a_stall_is_one_observation_and_at_most_doubles_the_lease():
    """Whatever its length, and however many orders waited in it."""
    waited = [100.0 + 0.15 * number for number in range(33)]
    slowness = answered(Slowness(), waited, 105.0)
    assert lease(slowness, 105.0) == pytest.approx(2 * QUICK_S)
    assert answered(slowness, reversed(waited), 105.1) is slowness  # also in another order, and a little later


@spec("HA-11")
def test_five_hangs_in_a_row_are_each_found_within_two_seconds():
    """Two central managers, of which the one that leads hangs for 5 s: each HAD sees every other hang."""
    now, seen_by = 100.0, [Slowness(), Slowness()]
    for number in range(5):
        slowness = seen_by[number % 2]
        terms = timing(lease(slowness, now), alone=False)
        assert terms.patience_s + terms.lead_s + 2 * terms.poll_s < 2.0
        seen_by[number % 2] = answered(slowness, [now + terms.lead_s * order for order in range(8)], now + 5.0)
        now += 10.0


@spec("HA-11")
def test_a_machine_that_is_slow_has_a_long_lease_within_that_of_before():
    """Answers take 0.6 s each from now on; orders go out as the lease has it. The first waits for less than the lease
    that is too short."""
    slowness, now, sent = Slowness(), 100.0, [100.0]
    while lease(slowness, now) < MARGIN * 0.6 * 0.99:
        now = sent[0] + 0.6
        slowness = slowness.seen(sent.pop(0), now)
        sent.append(now)
        assert now < 102.0
    assert lease(slowness, now) == pytest.approx(2.4)


@spec("HA-11")
def test_what_waited_while_a_negotiator_started_or_loaded_does_not_count():
    slowness = Slowness().anew(101.0)
    assert answered(slowness, [99.0, 99.2, 100.9], 101.0) is slowness
    assert lease(slowness.seen(101.0, 101.2), 101.2) == pytest.approx(MARGIN * 0.2)
    assert Slowness(since=105.0).anew(101.0).since == 105.0


@spec("HA-11")
def test_what_is_early_or_was_never_due_is_no_delay():
    assert lease(Slowness().seen(100.5, 100.0).seen(float("inf"), 100.0), 100.0) == QUICK_S


class Clock(SystemClock):
    """Stands still until a test moves it."""

    def __init__(self):
        self.at = 100.0

    def monotonic(self):
        return self.at


class Talk:
    """A HAD that orders, and a negotiator that answers when the test says so."""

    def __init__(self):
        self.clock = Clock()
        self.had = Had(make_context("HAD", "cm1", clock=self.clock, config={"HAD_LIST": "cm1, cm2"}))
        self.had.context.bus.call = self._call
        self.took, self.life = 0.0, "first"

    async def _call(self, inbox, order, **_):
        self.clock.at += self.took
        return Following(negotiator="cm1", active=False, epoch=0, cycle=0, life=self.life, stamp=self.clock.at)

    async def order(self, took):
        self.took = took
        await self.had._tell(StepDown(had="cm1", epoch=0, reason="nobody leads"))
        return self.had.timing.lease_s


@spec("HA-11")
async def test_only_answers_of_a_life_that_was_heard_before_make_the_lease_longer():
    """Orders wait at the broker for a negotiator that starts: that is no delay of one that runs."""
    talk = Talk()
    assert await talk.order(took=3.0) == QUICK_S
    assert await talk.order(took=0.01) == QUICK_S
    talk.life = "second"
    assert await talk.order(took=4.0) == QUICK_S
    assert await talk.order(took=0.25) == pytest.approx(1.0)
    assert await talk.order(took=4.0) == pytest.approx(2.0, rel=0.1)  # it hung
