"""Who leads, decided by tables, and by many HADs on one lease with pauses, crashes and cuts."""

import itertools
import random

import pytest

from services.had.core.election import (
    ABSENT_S,
    PRESENT_S,
    RETURNED_S,
    SILENT_S,
    Announce,
    GiveWay,
    HandOver,
    Lead,
    Presence,
    Release,
    Restore,
    Rules,
    Seen,
    Standing,
    State,
    StepDown,
    Wish,
    candidate,
    hosts,
    misfits,
    own_entry,
    own_place,
    rank,
    restores,
    step,
    stop,
    to_resolve,
    wish,
)
from services.had.core.timing import (
    MOST_FOLLOW_S,
    MOST_LEAD_S,
    MOST_POLL_S,
    QUICK_S,
    HeldBack,
    Limits,
    Timing,
    lease_length,
    timing,
)
from services.had.lease import hand_over, look, release
from shared.accounting_version import NONE, NOTHING, Version
from shared.delays import HALF_LIFE_S, Delay
from shared.state import StaleEpoch, keys
from shared.state.accounting import (
    StoredRecords,
    begin_records,
    read_records,
    read_version,
    restore_records,
    write_records,
)
from shared.state.embedded import EmbeddedStore
from tests.spec import spec

ME = Rules("a", "life-a", ("a", "b", "c"))


def seen(owner="", life="", epoch=0, *, now=100.0, present=None, books=NOTHING, expected=NOTHING, whatever=False):
    there = {name: Presence(*one) for name, one in (present or {}).items()}
    return Seen(now, owner, life, epoch, now + 1, epoch, there, books, expected, whatever)


def there_since(at, life="life-a"):
    """A HAD whose negotiator answers."""
    return (at, True, NOTHING, False, False, life)


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


def test_leader_that_loses_the_lease_while_it_restores_the_books_restores_them_no_more():
    standing = Standing(State.LEADER, epoch=7, lease_ends=51.0, mending=True)
    assert not see(ME, standing, None, now=51.0)[0].mending


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


@spec("HA-09")
@pytest.mark.parametrize(
    ("name", "present", "expected"),
    [
        ("a", {"b": (100.0, True)}, True),
        ("b", {"a": (100.0, True)}, False),
        ("b", {"a": (100.0, False)}, True),  # its negotiator does not answer
        ("b", {"a": (98.0, True)}, True),  # gone
        ("b", {"a": (100.0 - PRESENT_S, True)}, False),  # just not
        ("b", {"b": (100.0, True), "c": (100.0, True)}, True),
        ("z", {"c": (100.0, True)}, False),  # not in HAD_LIST: behind all
        ("z", {"y": (100.0, True)}, True),
    ],
)
def test_earlier_entry_of_had_list_goes_first(name, present, expected):
    rules = Rules(name, "life", ("a", "b", "c"))
    assert candidate(rules, Standing(State.ELECTION), seen(present=present), True) is expected


def test_no_candidate_without_a_negotiator():
    assert candidate(ME, Standing(State.LEADER), seen(), False) is False


@spec("HA-06")
def test_leader_stays_though_an_earlier_one_is_back():
    """HAD_USE_PRIMARY false."""
    rules = Rules("b", "life-b", ("a", "b"))
    standing = Standing(State.LEADER, epoch=1)
    assert candidate(rules, standing, seen(present={"a": (100.0, True)}), True)
    for now in (100.0, 101.0, 102.0):
        standing, effects = see(rules, standing, seen("b", "life-b", 1, now=now, present={"a": (now, True)}))
        assert effects == ()


@spec("HA-05")
def test_returning_primary_gets_the_lead_back():
    """HAD_USE_PRIMARY true, once it has been there for a moment."""
    rules = Rules("b", "life-b", ("a", "b"), use_primary=True)
    standing = Standing(State.LEADER, epoch=1)
    standing, effects = see(rules, standing, seen("b", "life-b", 1, now=100.0, present={"a": there_since(100.0)}))
    assert effects == ()
    standing, effects = see(rules, standing, seen("b", "life-b", 1, now=100.6, present={"a": there_since(100.6)}))
    why = "a is the primary and is back"
    assert effects == (HandOver(1, "a", "life-a", why), Announce(State.PASSIVE, 1, why))
    assert (standing.state, standing.leader) == (State.PASSIVE, "a")


def test_returning_primary_gets_the_lead_at_the_very_moment():
    rules = Rules("b", "life-b", ("a", "b"), use_primary=True)
    there = {"a": there_since(100.0 + RETURNED_S)}
    what = seen("b", "life-b", 1, now=100.0 + RETURNED_S, present=there)
    _, effects = see(rules, Standing(State.LEADER, epoch=1, primary_since=100.0), what)
    assert isinstance(effects[0], HandOver)


def test_returning_primary_of_an_earlier_version_finds_a_free_lease():
    """It does not say which life it is, so that the lease can not be written in its name."""
    rules = Rules("b", "life-b", ("a", "b"), use_primary=True)
    standing = Standing(State.LEADER, epoch=1, primary_since=100.0)
    standing, effects = see(rules, standing, seen("b", "life-b", 1, now=100.6, present={"a": (100.6, True)}))
    assert [type(e) for e in effects] == [StepDown, Release, Announce]


def test_returning_primary_waits_while_the_books_are_restored():
    rules = Rules("b", "life-b", ("a", "b"), use_primary=True)
    standing = Standing(State.LEADER, epoch=7, primary_since=100.0, mending=True, books=LATER, behind_since=90.0)
    what = seen("b", "life-b", 7, now=101.0, present={"a": there_since(101.0)}, books=EARLIER, expected=LATER)
    standing, effects = see(rules, standing, what)
    assert (standing.state, effects) == (State.LEADER, ())


def test_leader_that_is_stopped_hands_the_lead_to_the_next_that_is_ready():
    leader = Standing(State.LEADER, epoch=4)
    silent = (100.0, False, NOTHING, False, False, "life-b")
    present = {"a": there_since(100.0), "b": silent, "c": there_since(100.0, "life-c")}
    effects = stop(ME, leader, seen("a", "life-a", 4, present=present))
    assert effects == (HandOver(4, "c", "life-c", "the HAD stops"), Announce(State.PRE, 4, "the HAD stops"))
    alone = stop(ME, leader, seen("a", "life-a", 4, present={"a": there_since(100.0), "c": (98.0, True)}))
    assert [type(e) for e in alone] == [StepDown, Release, Announce]
    assert [type(e) for e in stop(ME, leader, None)] == [StepDown, Release, Announce]
    assert stop(ME, Standing(State.PASSIVE), seen("c", "x", 4, present=present)) == ()


def test_primary_that_flickers_gets_nothing():
    rules = Rules("b", "life-b", ("a", "b"), use_primary=True)
    standing = Standing(State.LEADER, epoch=1)
    for now, there in ((100.0, True), (100.3, False), (100.6, True), (100.9, True)):
        present = {"a": (now, there, NOTHING, False, False, "life-a")}
        standing, effects = see(rules, standing, seen("b", "life-b", 1, now=now, present=present))
        assert effects == ()


@spec("HA-21")
def test_hosts_of_had_list():
    """Entries as HTCondor writes them."""
    assert hosts("cm1.x.org:51450, cm2.x.org:51450 <10.0.0.1:9618?sock=had>,[::1]:5,cm3") == (
        "cm1.x.org", "cm2.x.org", "10.0.0.1", "::1", "cm3",
    )  # fmt: skip
    assert hosts("fd00::2 [fd00::3] <[fd00::4]:9618?addrs=fd00--4-9618&noUDP> cm.a.org:had") == (
        "fd00::2", "fd00::3", "fd00::4", "cm.a.org:had",
    )  # fmt: skip
    assert rank(("cm1.x.org", "cm2.x.org"), "CM2") == 1


#: Names that share their first labels, addresses that share their first numbers, and ways to write the same host.
ALIKE = ("cm.a.org", "cm.b.org", "cm.a.org.example", "10.0.0.1", "10.0.0.2", "fd00::1", "cm2.a.org")
MANAGERS = [
    list(order)
    for count in range(1, 6)
    for some in itertools.combinations(ALIKE, count)
    for order in (some, some[::-1])
]


@spec("HA-09", "HA-21")
def test_managers_whose_names_are_alike_are_several():
    """Every list of one to five of them: each has its own place, and each absent one is missed."""
    for order in MANAGERS:
        assert [rank(order, name) for name in order] == list(range(len(order)))
        assert [rank(order, name.upper()) for name in order] == list(range(len(order)))
        assert {rank(order, name) for name in ALIKE if name not in order} <= {len(order)}


@spec("HA-09")
def test_of_managers_that_are_ready_the_first_of_had_list_alone_is_candidate():
    for order in MANAGERS:
        for ready in range(1, 2 ** len(order)):
            there = [name for place, name in enumerate(order) if ready >> place & 1]
            present = dict.fromkeys(there, (100.0, True))
            candidates = [
                name
                for name in there
                if candidate(Rules(name, "life", tuple(order)), Standing(State.ELECTION), seen(present=present), True)
            ]
            assert candidates == there[:1]


@spec("HA-05")
def test_the_primary_among_managers_whose_names_are_alike_gets_the_lead_back():
    for order in MANAGERS:
        for leader in order[1:]:
            rules = Rules(leader, "life", tuple(order), use_primary=True)
            standing = Standing(State.LEADER, epoch=1)
            for now in (100.0, 100.6):
                present = {name: there_since(now, f"life-{name}") for name in order if name != leader}
                standing, effects = see(rules, standing, seen(leader, "life", 1, now=now, present=present))
            assert isinstance(effects[0], HandOver)
            assert effects[0].heir == order[0]


@spec("HA-09")
def test_a_new_had_waits_for_each_of_had_list():
    for order in MANAGERS:
        for missing in order:
            present = {name: (100.0, True) for name in order if name != missing}
            standing, _ = see(Rules(order[0], "life", tuple(order)), Standing(), seen(present=present))
            assert not standing.settled
        everybody = dict.fromkeys(order, (100.0 - PRESENT_S, True))
        assert see(Rules(order[0], "life", tuple(order)), Standing(), seen(present=everybody))[0].settled


@spec("HA-09")
def test_a_new_had_that_is_alone_wants_the_lead_after_some_seconds():
    rules = Rules("a", "life", ("a", "b"), started=100.0)
    alone = seen(present={"a": (100.0, True)})
    for now, wants in ((100.0, False), (99.9 + ABSENT_S, False), (100.0 + ABSENT_S, True)):
        assert wish(rules, Standing(), alone, answering=True, now=now) == Wish(wants, NOTHING)
    assert wish(rules, Standing(settled=True), alone, answering=True, now=100.0).wants


@spec("HA-05", "HA-09", "HA-21")
@pytest.mark.parametrize("sinful", ["{}:9618", "<{}:9618?sock=had>"])
def test_managers_that_had_list_names_by_address_are_elected_alike(sinful):
    """Every list of one to five addresses, each HAD with a name that is nowhere in it and shares labels with others."""
    names = ("cm.a.org", "cm.b.org", "cm.a.org.example", "cm2.a.org", "cm")
    addresses = {name: frozenset({f"10.0.0.{number}"}) for number, name in enumerate(names, 1)}
    for count in range(1, 6):
        for managers in itertools.permutations(names, count):
            order = hosts(", ".join(sinful.format(*addresses[name]) for name in managers))
            rules = {}
            for place, name in enumerate(managers):
                entry = own_entry(order, name, addresses)
                rules[name] = Rules(name, f"life-{name}", order, True, entry=entry)
                assert own_place(rules[name]) == place
                assert misfits(rules[name], managers, addresses) == []
            there = {name: (*there_since(100.0, f"life-{name}"), rules[name].entry) for name in managers}
            election = [
                name for name in managers if candidate(rules[name], Standing(State.ELECTION), seen(present=there), True)
            ]
            assert election == list(managers[:1])
            assert see(rules[managers[-1]], Standing(), seen(present=there))[0].settled
            if count > 1:
                alone = {name: one for name, one in there.items() if name != managers[0]}
                assert not see(rules[managers[-1]], Standing(), seen(present=alone))[0].settled
                leading = Standing(State.LEADER, epoch=1)
                for now in (100.0, 100.6):
                    there = {name: (now, *one[1:]) for name, one in there.items()}
                    what = seen(managers[-1], f"life-{managers[-1]}", 1, now=now, present=there)
                    leading, effects = see(rules[managers[-1]], leading, what)
                assert isinstance(effects[0], HandOver)
                assert effects[0].heir == managers[0]


@spec("HA-21")
def test_addresses_are_asked_for_only_where_names_do_not_tell():
    assert to_resolve(Rules("cm1.x.org", "l", ("cm1", "cm2")), ("cm1", "cm2")) == ()
    assert to_resolve(Rules("cm1", "l", ("10.0.0.1",)), ()) == ()
    assert to_resolve(Rules("cm1", "l", ("10.0.0.1", "10.0.0.2")), ("cm1", "cm2")) == ("cm1", "cm2")
    assert to_resolve(Rules("cm1", "l", ("a.x.org", "10.0.0.2")), ()) == ("a.x.org", "cm1")
    assert to_resolve(Rules("cm1", "l", ("cm1", "cm2")), ("other",)) == ()  # one central manager is compared with none
    assert to_resolve(Rules("cm1", "l", ("cm1", "cm2")), ("cm1", "other")) == ("cm1", "cm2", "other")
    assert misfits(Rules("cm1", "l", ("cm1", "cm2")), ("other",)) == []
    assert misfits(Rules("cm1", "l", ("cm1",)), ("cm1", "other")) == []


@spec("HA-21")
def test_an_address_that_several_entries_share_tells_nothing():
    addresses = {"cm1": frozenset({"10.0.0.1"}), "a": frozenset({"10.0.0.1"}), "b": frozenset({"10.0.0.1"})}
    assert own_entry(("a", "b"), "cm1", addresses) == ""
    assert own_entry(("a", "c"), "cm1", addresses) == "a"
    assert own_entry(("10.0.0.1", "10.0.0.2"), "cm1") == ""
    (lacking,) = misfits(Rules("cm1", "l", ("10.0.0.1", "10.0.0.2")), ())
    assert "lacks this HAD, cm1" in lacking


@spec("HA-09")
def test_the_entry_that_another_had_says_it_is_counts_where_our_list_has_it():
    me = Rules("b", "life-b", ("10.0.0.1", "b"))
    for entry, mine in (("10.0.0.1", False), ("10.0.0.9", True), ("", True)):
        present = {"odd": (*there_since(100.0, "life-odd"), entry)}
        assert candidate(me, Standing(State.ELECTION), seen(present=present), True) is mine


@spec("HA-11")
def test_the_lease_follows_delays_up_to_the_connection_timeout():
    assert lease_length(None, 5.0, 0.0) == QUICK_S
    assert lease_length(None, 5.0, 0.5) == 2.0
    assert lease_length(None, 5.0, 60.0) == 5.0
    assert lease_length(None, 0.0, 60.0) == QUICK_S
    assert lease_length(2.5, 5.0, 60.0) == 2.5  # ROOST_HAD_LEASE
    delay = Delay().seen(0.8, 100.0).seen(0.1, 101.0)
    assert delay.left(100.0) == 0.8
    assert delay.left(100.0 + HALF_LIFE_S) == pytest.approx(0.4)
    assert delay.seen(0.5, 100.0 + HALF_LIFE_S).left(100.0 + HALF_LIFE_S) == 0.5
    for lease_s in (0.3, QUICK_S, 5.0, 60.0):
        several = timing(lease_s, alone=False)
        assert several.poll_s <= PRESENT_S / 3  # so that a HAD is always seen by the others
        assert several.lead_s < several.patience_s < several.lease_s


@pytest.mark.parametrize(
    ("lease_s", "alone", "expected"),
    [
        (0.75, False, Timing(0.75, 0.125, 0.1875, 0.625, 0.625, 10.0)),
        (6.0, False, Timing(6.0, MOST_POLL_S, MOST_LEAD_S, MOST_FOLLOW_S, 5.0, 10.0)),
        (0.75, True, Timing(6.0, 1.0, 1.5, 5.0, 5.0, 10.0)),
        (3.0, True, Timing(15.0, 2.5, 3.75, 12.5, 12.5, 15.0)),
    ],
)
def test_all_times_follow_from_the_lease(lease_s, alone, expected):
    assert timing(lease_s, alone=alone) == expected


@spec("HA-21")
@pytest.mark.parametrize(
    ("order", "name", "place"),
    [
        (("cm1", "cm2"), "cm2.x.org", 1),  # HAD_LIST has names without a domain
        (("cm1.x.org", "cm2.x.org."), "cm2.X.org", 1),
        (("cm.a.org", "cm.b.org"), "cm", 2),  # which of them?
        (("cm.a.org", "cm"), "cm", 1),
        (("10.0.0.1", "10.0.0.2"), "10", 2),
        (("::1", "fd00:0:0::2"), "FD00::2", 1),
        (("cm1.x.org",), "cm1.y.org", 1),
        (("cm0", "cm1", "cm1"), "cm1.x.org", 1),  # it is there twice
    ],
)
def test_hosts_are_known_by_whole_names_and_addresses(order, name, place):
    assert rank(order, name) == place


class World:
    """HADs on one store and one clock; each acts when it is its turn, unless it is paused or dead."""

    def __init__(self, seed, use_primary):
        self.chance = random.Random(seed)
        self.now = 1000.0
        self.store = EmbeddedStore(now=lambda: self.now)
        self.rules, self.standing, self.last, self.paused_until, self.answers = {}, {}, {}, {}, {}
        self.memory = dict.fromkeys("abc", StoredRecords(NOTHING))  # the negotiators'
        self.copies = dict.fromkeys("abc", StoredRecords(NOTHING))  # on the HADs' disks
        self.committed = 0
        self.handed_over = 0
        self.leads = {}  # epoch -> HAD
        self.cut = set()
        self.use_primary = use_primary
        for name in "abc":
            self.start(name)

    def start(self, name):
        life = f"{name}-{self.chance.random()}"
        self.rules[name] = Rules(name, life, ("a", "b", "c"), self.use_primary, started=self.now)
        self.standing[name], self.last[name], self.paused_until[name] = Standing(), None, 0.0
        self.answers[name] = True
        self.memory[name] = StoredRecords(NOTHING)

    def leaders(self):
        return [n for n, s in self.standing.items() if s.state is State.LEADER and self.now < s.lease_ends]

    async def turn(self, name):
        if self.paused_until[name] > self.now:
            return
        rules, standing, answering = self.rules[name], self.standing[name], self.answers[name]
        asked_at, what = self.now, None
        if name not in self.cut:
            asked = wish(rules, standing, self.last[name], answering=answering, now=self.now)
            offer = max(self.memory[name].version, self.copies[name].version)
            what = await look(
                self.store,
                rules,
                standing,
                asked,
                lease_s=1.2,
                answering=answering,
                offer=offer,
                asked=standing.behind_since is not None,
            )
            self.last[name] = what
        self.now += self.chance.choice([0, 0, 0.01, 0.05])
        self.standing[name], effects = step(
            rules, standing, what, answering=answering, asked_at=asked_at, lease_s=1.2, now=self.now
        )
        for effect in effects:
            if isinstance(effect, Release) and name not in self.cut:
                await release(self.store, rules, for_good=False)
            if isinstance(effect, HandOver) and name not in self.cut:
                given = await hand_over(self.store, rules, effect.epoch, effect.heir, effect.life, lease_s=1.2)
                self.handed_over += given > 0
            if isinstance(effect, Restore):
                await self.restore(name, effect.epoch, what.books)
            if isinstance(effect, Lead | Restore):
                await self.take_over(name, effect.epoch)
                assert self.leads.setdefault(effect.epoch, rules.life) == rules.life, "one epoch, two leaders"
                assert effect.epoch == max(self.leads), "an epoch below one that was given before"

    async def restore(self, name, epoch, in_redis):
        """As services.had.replication does."""
        copy, memory = self.copies[name], self.memory[name].version
        if copy.version > max(in_redis, memory):
            await restore_records(self.store, "", epoch, copy)
        elif memory <= max(NOTHING, in_redis):
            await begin_records(self.store, "", epoch, self.standing[name].books)

    async def take_over(self, name, epoch):
        """As services.negotiator.accountant does."""
        if self.memory[name].version > await read_version(self.store, ""):
            await restore_records(self.store, "", epoch, self.memory[name])
        self.memory[name] = await read_records(self.store, "")

    async def commit(self, name):
        """The leader writes one more record; whoever believes to lead may try."""
        record, mine = f"{self.committed + 1}".encode(), self.memory[name]
        epoch = self.standing[name].epoch
        try:
            version = await write_records(self.store, "", epoch, mine.version, submitters=[(record, record)])
        except StaleEpoch:
            return
        self.committed += 1
        self.memory[name] = StoredRecords(version, {**mine.submitters, record: record}, mine.groups)

    async def copy(self, name):
        self.copies[name] = max(self.copies[name], await read_records(self.store, ""), key=lambda books: books.version)

    async def lose(self, *, earlier=None):
        """Redis comes back empty, or with books of some time ago."""
        names = [keys.had_lease(), keys.had_epoch(), keys.had_present(), keys.accountant_version("")]
        await self.store.delete(*names, keys.accountant(""), keys.accountant_groups(""))
        if earlier is not None:
            await self.store.set(keys.accountant_version(""), earlier.version.arg)
            await self.store.hset(keys.accountant(""), {k.decode(): v for k, v in earlier.submitters.items()})

    async def settle(self, seconds):
        for _ in range(int(seconds / 0.2)):
            for name in "abc":
                await self.turn(name)
            self.now += 0.2

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
@pytest.mark.parametrize("seed", range(4))
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


@spec("HA-05")
async def test_primary_gets_the_lease_with_no_moment_in_which_it_is_free():
    """Nobody else can take it meanwhile."""
    world = World(5, True)
    await world.store.start()
    world.paused_until["a"] = 1008.0
    while world.now < 1016.0:
        for name in world.chance.sample("abc", 3):
            await world.turn(name)
            lease = await world.store.hgetall(keys.had_lease())
            led = bool(lease) and float(lease[b"until"]) / 1000 > world.now
            assert led or world.now < 1007.0  # at first all of HAD_LIST are waited for
        world.now += 0.2
    assert (world.leaders(), world.handed_over) == (["a"], 1)
    assert world.leads[2] == world.rules["a"].life
    await world.store.stop()


async def test_who_has_the_lead_no_more_can_not_hand_it_over():
    world = World(6, False)
    await world.store.start()
    await world.settle(2.0)
    b = world.rules["b"]
    for giver, epoch in ((b, 1), (world.rules["a"], 0), (Rules("a", "another life", ()), 1)):
        assert await hand_over(world.store, giver, epoch, "b", b.life, lease_s=1.2) == 0
    assert await hand_over(world.store, world.rules["a"], 1, "b", b.life, lease_s=1.2) == 2
    assert await hand_over(world.store, world.rules["a"], 1, "c", "x", lease_s=1.2) == 0
    await world.turn("a")
    await world.turn("b")
    assert world.leaders() == ["b"]
    await world.store.stop()


@spec("W-36")
async def test_killed_leader_is_replaced_within_one_and_a_half_seconds():
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
        assert world.now - killed_at <= 1.5
    await world.store.stop()


@pytest.mark.parametrize("jump", [-7200.0, -5.0, 5.0, 7200.0])
async def test_clock_of_redis_that_jumps_keeps_nobody_from_leading(jump):
    """A lease and a presence that lie in the future after it are nobody's; what two of them do meanwhile, epochs tell
    apart."""
    world = World(2, False)
    await world.store.start()
    await world.settle(2.0)
    assert world.leaders() == ["a"]
    offset = 0.0
    world.store._now = lambda: world.now + offset
    world.paused_until["a"] = float("inf")  # it dies
    offset = jump
    await world.settle(8.0)
    assert world.leaders() == ["b"]
    await world.commit("b")
    await world.commit("a")  # a frozen one that thaws
    assert world.committed == 1
    await world.store.stop()


# --- books that Redis lost


@spec("HA-13", "HA-16")
@pytest.mark.parametrize("seed", range(2))
async def test_books_survive_the_loss_of_redis_and_of_central_managers(seed):
    """Nothing is lost that a negotiator's memory or a copy on disk has; no epoch comes twice."""
    world = World(seed, False)
    await world.store.start()
    kept = []
    for round_ in range(7):
        await world.settle(2.0)
        (leader,) = world.leaders()
        for _ in range(world.chance.randint(1, 4)):
            await world.commit(leader)
            kept.append(await read_records(world.store, ""))
        assert len(kept[-1].submitters) == world.committed
        if world.chance.random() < 0.7:
            await world.copy(world.chance.choice("abc"))
        newest = max(world.copies.values(), key=lambda books: books.version)
        crashed = world.chance.choice(["", "", leader, "abc"])
        if crashed == leader or crashed == "abc":
            # Only copies remain; so at least one is as new as the books.
            await world.copy(world.chance.choice("abc"))
            newest = kept[-1]
        for name in crashed:
            world.start(name)
            world.standing[name] = Standing(known=newest.version.epoch)  # from its disk
        await world.lose(earlier=world.chance.choice([None, kept[len(kept) // 2]]) if round_ % 3 else None)
        await world.settle(12.0)
        assert len(world.leaders()) == 1, round_
        after = await read_records(world.store, "")
        assert len(after.submitters) == world.committed, (round_, crashed, leader)
        assert after.version >= kept[-1].version
    await world.store.stop()


async def test_a_thawed_leader_can_not_write_to_a_redis_that_was_emptied():
    """Its epoch is unknown there, and its books are missing: both are reason enough."""
    world = World(3, False)
    await world.store.start()
    await world.settle(2.0)
    (leader,) = world.leaders()
    await world.commit(leader)
    await world.lose()
    before = world.committed
    await world.commit(leader)
    assert world.committed == before
    assert await world.store.hgetall(keys.accountant("")) == {}
    await world.store.stop()


LATER, EARLIER = Version(7, 50), Version(7, 48)


def there(offer, *, answers=True, asked=True):
    return (100.0, answers, offer, False, asked)


def behind(rules, present, *, since=100.0, now=100.0, books=NONE):
    standing = Standing(State.ELECTION, books=LATER, behind_since=since)
    return restores(rules, standing, seen(present=present, books=books, expected=LATER), now)


@spec("HA-16")
def test_the_newest_books_are_the_ones_restored():
    """Whoever has them goes first, whatever HAD_LIST says."""
    present = {"a": there(EARLIER), "b": there(LATER), "c": there(NOTHING)}
    rules = {name: Rules(name, "life", ("a", "b", "c")) for name in "abc"}
    assert [name for name in "abc" if behind(rules[name], present)] == ["b"]
    alike = dict.fromkeys("abc", there(LATER))
    assert [name for name in "abc" if behind(rules[name], alike)] == ["a"]


def test_nobody_restores_before_it_sees_itself_nor_waits_for_books_no_newer_than_its_own():
    assert not behind(ME, {"b": there(EARLIER), "c": there(NOTHING)}, now=100.0 + SILENT_S)
    assert behind(ME, {"a": there(LATER), "b": there(LATER, answers=False), "c": there(NOTHING)})


def test_absent_and_silent_ones_are_waited_for_but_not_for_ever():
    some = {"a": there(EARLIER), "c": there(NOTHING)}
    assert not behind(ME, some, now=100.0 + ABSENT_S - 0.1)
    assert behind(ME, some, now=100.0 + ABSENT_S)
    silent = {"a": there(EARLIER), "b": there(LATER, answers=False), "c": there(NOTHING)}
    assert not behind(ME, silent, now=100.0 + ABSENT_S)
    assert behind(ME, silent, now=100.0 + SILENT_S)


def test_nobody_restores_before_all_have_asked_their_negotiators():
    """What a HAD knows of its negotiator's memory is as old as the last answer: half a second of charges."""
    present = {"a": there(EARLIER), "b": there(EARLIER, asked=False), "c": there(NOTHING)}
    assert not behind(ME, present)
    assert behind(ME, present, now=100.0 + SILENT_S)
    assert behind(ME, present | {"b": there(EARLIER)})
    assert not behind(ME, present | {"b": there(LATER)})


def test_nobody_takes_the_lead_with_older_books_than_are_known():
    standing, effects = see(ME, Standing(State.ELECTION, books=LATER), seen(books=EARLIER, expected=LATER), now=50.0)
    assert (standing.behind_since, effects) == (50.0, ())
    what = seen(present=dict.fromkeys("abc", there(EARLIER)), books=EARLIER, expected=LATER)
    assert wish(ME, standing, what, answering=True, now=50.1) == Wish(True, None)
    assert wish(ME, standing, what, answering=False, now=50.1) == Wish(False, LATER)
    won, effects = see(ME, standing, seen("a", "life-a", 8, books=EARLIER, expected=LATER, whatever=True), now=50.2)
    assert effects == (Restore(8),)
    assert won.mending
    assert wish(ME, won, what, answering=True, now=50.3).least is None
    mended, effects = see(ME, won, seen("a", "life-a", 8, books=Version(8, 51), expected=LATER), now=50.4)
    assert (mended.mending, mended.behind_since, mended.books, effects) == (False, None, Version(8, 51), ())


def test_leader_whose_redis_went_back_in_time_gives_up_and_has_the_books_restored():
    leader = Standing(State.LEADER, epoch=7, books=LATER, lease_ends=60.0)
    standing, effects = see(ME, leader, seen("a", "life-a", 7, books=EARLIER, expected=LATER))
    assert [type(e) for e in effects] == [StepDown, Release, Announce]
    assert "7.48, not 7.50" in effects[0].reason
    assert standing.behind_since is not None


def test_lead_that_was_won_unaware_of_newer_books_is_given_back():
    """The others' offers come with the answer that grants the lease."""
    asked = seen("a", "life-a", 8, books=EARLIER, expected=EARLIER, present={"b": there(LATER)})
    standing, effects = see(ME, Standing(State.ELECTION, books=EARLIER), asked)
    assert [type(e) for e in effects] == [Release]
    assert (standing.state, standing.books, standing.mending) == (State.ELECTION, LATER, False)


# --- held back


@spec("HA-12")
def test_had_whose_negotiator_keeps_dying_goes_after_all_others():
    rules = Rules("a", "life", ("a", "b"))
    there = seen(present={"a": (100.0, True, NOTHING, True), "b": (100.0, True)})
    assert not candidate(rules, Standing(State.ELECTION), there, True, held_back=True)
    assert candidate(Rules("b", "life", ("a", "b")), Standing(State.ELECTION), there, True)
    alone = seen(present={"a": (100.0, True, NOTHING, True), "b": (100.0, False)})
    assert candidate(rules, Standing(State.ELECTION), alone, True, held_back=True)


@spec("HA-05", "HA-12")
def test_primary_that_is_held_back_does_not_get_the_lead_back():
    rules = Rules("b", "life-b", ("a", "b"), use_primary=True)
    standing = Standing(State.LEADER, epoch=1)
    for now in (100.0, 101.0):
        what = seen("b", "life-b", 1, now=now, present={"a": (now, True, NOTHING, True)})
        standing, effects = see(rules, standing, what)
        assert effects == ()


@spec("HA-12")
def test_each_death_holds_back_longer_and_good_times_are_remembered():
    """MASTER_HAD_BACKOFF_CONSTANT, MASTER_BACKOFF_FACTOR, MASTER_BACKOFF_CEILING."""
    limits = Limits(360.0, 2.0, 1000.0)
    backoff, now, lengths = HeldBack(), 0.0, []
    assert not backoff.holds(now)
    for _ in range(4):
        backoff = backoff.failed(now, limits)
        lengths.append(backoff.until - now)
        assert backoff.holds(now)
        assert not backoff.holds(backoff.until)
        now = backoff.until + 1.0
        assert not backoff.holds(now)
    assert lengths == [360.0, 720.0, 1000.0, 1000.0]
    assert backoff.failed(backoff.until + backoff.length_s, limits).length_s == 360.0


@spec("HA-21")
def test_had_list_that_does_not_fit_is_told():
    """The same hosts in the same order as the central managers."""
    assert misfits(Rules("a", "l", ("a", "b")), ("a.x.org", "b.x.org")) == []
    assert misfits(Rules("a", "l", ()), ("a", "b")) == []
    (wrong,) = misfits(Rules("a", "l", ("a", "b")), ("b", "a"))
    assert "same order" in wrong
    (lacking,) = misfits(Rules("c", "l", ("a", "b")), ())
    assert "lacks this HAD, c" in lacking
    (twice,) = misfits(Rules("a", "l", ("a", "A")), ())
    assert "twice" in twice
    (nobody,) = misfits(Rules("a", "l", (), use_primary=True), ())
    assert "no primary" in nobody


@spec("HA-08")
def test_states_go_from_pre_by_way_of_election_to_leader():
    """The same states; a step takes one look at the lease, not an interval of (2 * timeout * HADs + 1) * 2 s."""
    standing = Standing()
    states = [standing.state]
    for answering, what in (
        (False, seen()),
        (True, seen("b", "x", 1)),
        (True, seen()),
        (True, seen("a", "life-a", 2)),
    ):
        standing, _ = see(ME, standing, what, answering=answering)
        states.append(standing.state)
    assert states == [State.PRE, State.PRE, State.PASSIVE, State.ELECTION, State.LEADER]
