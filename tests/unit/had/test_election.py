"""Who leads, decided by tables, and by many HADs on one lease with pauses, crashes and cuts."""

import random

import pytest

from services.had.election import (
    Announce,
    GiveWay,
    Lead,
    Release,
    Rules,
    Seen,
    Standing,
    State,
    StepDown,
    candidate,
    hosts,
    rank,
    step,
)
from services.had.lease import look, release
from shared.state.embedded import EmbeddedStore

ME = Rules("a", "life-a", ("a", "b", "c"))


def seen(owner="", life="", epoch=0, *, now=100.0, present=None):
    return Seen(now, owner, life, epoch, now + 1, epoch, present or {})


def see(rules, standing, what, *, answering=True, asked_at=50.0, now=50.1):
    return step(rules, standing, what, answering=answering, asked_at=asked_at, lease_s=1.2, now=now)


def test_lease_that_is_ours_makes_us_leader():
    standing, effects = see(ME, Standing(State.ELECTION), seen("a", "life-a", 7))
    assert standing.state is State.LEADER
    assert effects == (Lead(7), Announce(State.LEADER, 7))
    # Counted from when it was asked for: the answer may have been long on its way.
    assert standing.lease_ends == pytest.approx(51.2)


def test_renewing_says_nothing_new():
    standing = Standing(State.LEADER, epoch=7, lease_ends=50.5)
    after, effects = see(ME, standing, seen("a", "life-a", 7))
    assert effects == ()
    assert after.lease_ends == pytest.approx(51.2)


def test_new_epoch_is_told_to_the_negotiator():
    _, effects = see(ME, Standing(State.LEADER, epoch=7), seen("a", "life-a", 9))
    assert Lead(9) in effects


def test_leader_without_the_lease_steps_down():
    standing, effects = see(ME, Standing(State.LEADER, epoch=7), seen("b", "x", 8))
    assert standing.state is State.PASSIVE
    assert effects == (StepDown(7, "b has the lease"), Announce(State.PASSIVE, 7))
    assert standing.known == 8


def test_leader_holds_on_while_redis_is_silent_until_the_lease_is_over():
    standing = Standing(State.LEADER, epoch=7, lease_ends=51.0)
    same, effects = see(ME, standing, None, now=50.9)
    assert (same, effects) == (standing, ())
    after, effects = see(ME, standing, None, now=51.0)
    assert after.state is State.PASSIVE
    assert isinstance(effects[0], StepDown)


def test_negotiator_that_does_not_answer_loses_the_lead():
    standing, effects = see(ME, Standing(State.LEADER, epoch=7), seen("a", "life-a", 7), answering=False)
    assert standing.state is State.PRE
    assert [type(e) for e in effects] == [StepDown, Release, Announce]


def test_another_process_of_our_name_ends_us():
    _, effects = see(ME, Standing(State.LEADER, epoch=7), seen("a", "life-other", 8))
    assert effects[-1] == GiveWay("life-other")


def test_followers_states():
    assert see(ME, Standing(), seen(), answering=False)[0].state is State.PRE
    assert see(ME, Standing(), seen("b", "x", 1))[0].state is State.PASSIVE
    assert see(ME, Standing(), seen())[0].state is State.ELECTION


@pytest.mark.parametrize(
    ("name", "present", "expected"),
    [
        ("a", {"b": (100.0, True)}, True),
        ("b", {"a": (100.0, True)}, False),
        ("b", {"a": (100.0, False)}, True),  # its negotiator does not answer
        ("b", {"a": (98.0, True)}, True),  # gone
        ("b", {"b": (100.0, True), "c": (100.0, True)}, True),
        ("z", {"c": (100.0, True)}, False),  # not in HAD_LIST: behind all
        ("z", {"y": (100.0, True)}, True),
    ],
)
def test_earlier_entry_of_had_list_goes_first(name, present, expected):
    """HA-09."""
    rules = Rules(name, "life", ("a", "b", "c"))
    assert candidate(rules, Standing(State.ELECTION), seen(present=present), True) is expected


def test_no_candidate_without_a_negotiator():
    assert candidate(ME, Standing(State.LEADER), seen(), False) is False


def test_leader_stays_though_an_earlier_one_is_back():
    """HA-06: HAD_USE_PRIMARY false."""
    rules = Rules("b", "life-b", ("a", "b"))
    standing = Standing(State.LEADER, epoch=1)
    assert candidate(rules, standing, seen(present={"a": (100.0, True)}), True)
    for now in (100.0, 101.0, 102.0):
        standing, effects = see(rules, standing, seen("b", "life-b", 1, now=now, present={"a": (now, True)}))
        assert effects == ()


def test_returning_primary_gets_the_lead_back():
    """HA-05: HAD_USE_PRIMARY true, once it has been there for a moment."""
    rules = Rules("b", "life-b", ("a", "b"), use_primary=True)
    standing = Standing(State.LEADER, epoch=1)
    standing, effects = see(rules, standing, seen("b", "life-b", 1, now=100.0, present={"a": (100.0, True)}))
    assert effects == ()
    standing, effects = see(rules, standing, seen("b", "life-b", 1, now=100.6, present={"a": (100.6, True)}))
    assert [type(e) for e in effects] == [StepDown, Release, Announce]
    assert standing.state is State.PASSIVE


def test_primary_that_flickers_gets_nothing():
    rules = Rules("b", "life-b", ("a", "b"), use_primary=True)
    standing = Standing(State.LEADER, epoch=1)
    for now, there in ((100.0, True), (100.3, False), (100.6, True), (100.9, True)):
        standing, effects = see(rules, standing, seen("b", "life-b", 1, now=now, present={"a": (now, there)}))
        assert effects == ()


def test_hosts_of_had_list():
    """HA-21: entries as HTCondor writes them."""
    assert hosts("cm1.x.org:51450, cm2.x.org:51450 <10.0.0.1:9618?sock=had>,[::1]:5,cm3") == (
        "cm1.x.org", "cm2.x.org", "10.0.0.1", "::1", "cm3",
    )  # fmt: skip
    assert rank(("cm1.x.org", "cm2.x.org"), "CM2") == 1


class World:
    """HADs on one store and one clock; each acts when it is its turn, unless it is paused or dead."""

    def __init__(self, seed, use_primary):
        self.chance = random.Random(seed)
        self.now = 1000.0
        self.store = EmbeddedStore(now=lambda: self.now)
        self.rules, self.standing, self.last, self.paused_until, self.answers = {}, {}, {}, {}, {}
        self.leads = {}  # epoch -> HAD
        self.cut = set()
        self.use_primary = use_primary
        for name in "abc":
            self.start(name)

    def start(self, name):
        life = f"{name}-{self.chance.random()}"
        self.rules[name] = Rules(name, life, ("a", "b", "c"), self.use_primary)
        self.standing[name], self.last[name], self.paused_until[name] = Standing(), None, 0.0
        self.answers[name] = True

    def leaders(self):
        return [n for n, s in self.standing.items() if s.state is State.LEADER and self.now < s.lease_ends]

    async def turn(self, name):
        if self.paused_until[name] > self.now:
            return
        rules, standing, answering = self.rules[name], self.standing[name], self.answers[name]
        asked_at, what = self.now, None
        if name not in self.cut:
            wants = candidate(rules, standing, self.last[name], answering)
            what = await look(self.store, rules, wants=wants, lease_s=1.2, known=standing.known, answering=answering)
            self.last[name] = what
        self.now += self.chance.choice([0, 0, 0.01, 0.05])
        self.standing[name], effects = step(
            rules, standing, what, answering=answering, asked_at=asked_at, lease_s=1.2, now=self.now
        )
        for effect in effects:
            if isinstance(effect, Release) and name not in self.cut:
                await release(self.store, rules, for_good=False)
            if isinstance(effect, Lead):
                assert self.leads.setdefault(effect.epoch, rules.life) == rules.life, "one epoch, two leaders"
                assert effect.epoch == max(self.leads), "an epoch below one that was given before"

    def mischief(self):
        name = self.chance.choice("abc")
        match self.chance.choice(["pause", "crash", "cut", "heal", "hang", "answer"]):
            case "pause":
                self.paused_until[name] = self.now + self.chance.choice([0.5, 2.0, 5.0])
            case "crash":
                self.start(name)
            case "cut":
                self.cut.add(name)
            case "heal":
                self.cut.clear()
            case "hang":
                self.answers[name] = False
            case "answer":
                self.answers[name] = True


@pytest.mark.parametrize("use_primary", [False, True])
@pytest.mark.parametrize("seed", range(8))
async def test_never_two_leaders_and_one_in_the_end(seed, use_primary):
    world = World(seed, use_primary)
    await world.store.start()
    for _ in range(150):
        for name in world.chance.sample("abc", 3):
            await world.turn(name)
            assert len(world.leaders()) <= 1
        world.now += 0.2
        if world.chance.random() < 0.15:
            world.mischief()
    world.cut.clear()
    world.answers = dict.fromkeys("abc", True)
    world.paused_until = dict.fromkeys("abc", 0.0)
    for _ in range(15):  # 3 s: a lease, a hand-over, and some
        for name in "abc":
            await world.turn(name)
        world.now += 0.2
    assert len(world.leaders()) == 1
    if use_primary:
        assert world.leaders() == ["a"]
    await world.store.stop()


async def test_killed_leader_is_replaced_within_two_seconds():
    world = World(1, False)
    await world.store.start()
    for _ in range(5):
        for name in "abc":
            await world.turn(name)
        world.now += 0.2
    assert world.leaders() == ["a"]
    killed_at = world.now
    while world.leaders() != ["b"]:
        for name in "bc":
            await world.turn(name)
        world.now += 0.2
        assert world.now - killed_at < 2.0
    await world.store.stop()
