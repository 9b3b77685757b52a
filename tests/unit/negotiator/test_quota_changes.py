"""Quotas that administrators set while the pool runs (GRP-02, GRP-04): in the accounting records, and so with whoever
leads."""

import math

import pytest

from engine.fairshare.priorities import Record, decode_record, encode_record
from engine.fairshare.quotas import QUOTA_SOURCE, QuotaSetting, check_quota, read_quota_change, with_quotas
from engine.policy import read_policy, told_knobs
from services.negotiator.daemon import Negotiator
from shared.bus.api import RemoteFailure
from shared.config import load_config
from shared.daemon.orders import reconfigure
from shared.messages.had import Lead
from shared.state import keys
from shared.state.api import StoreUnavailable
from tests.daemons import make_context
from tests.spec import spec
from tests.unit.negotiator.test_accountant_rpc import Books
from tests.waiting import eventually

FILES = {
    "GROUP_NAMES": "physics, physics.hep, Bio",
    "GROUP_QUOTA_physics": "20",
    "GROUP_QUOTA_DYNAMIC_physics.hep": "0.5",
    "GROUP_QUOTA_bio": "5",
    "NEGOTIATOR_NAME": "gpus",
}


def config(**changes):
    env = {f"_CONDOR_{name}": text for name, text in (FILES | changes).items()}
    return load_config([], subsystem="NEGOTIATOR", env=env)


def quotas_of(tree):
    return {group.name: (group.config_quota, group.static) for group in tree.groups[1:]}


USUAL = {"physics": (20.0, True), "physics.hep": (0.5, False), "Bio": (5.0, True)}


@pytest.mark.parametrize("scope", ["", "NEGOTIATOR."])
def test_what_is_set_counts_in_place_of_what_files_say(scope):
    files = config(**{f"{scope}GROUP_QUOTA_physics": "20"})
    found = with_quotas(
        files, {"physics": QuotaSetting(0.25, True), "physics.hep": QuotaSetting(7.5), "bio": QuotaSetting(0.0)}
    )
    policy = read_policy(found, lambda: 0.0)
    assert quotas_of(policy.tree) == {"physics": (0.25, False), "physics.hep": (7.5, True), "Bio": (0.0, True)}
    assert not policy.problems
    assert found.origin("GROUP_QUOTA_DYNAMIC_physics") == QUOTA_SOURCE
    assert quotas_of(read_policy(files, lambda: 0.0).tree) == USUAL
    # And so the journal has it, which replays cycles by it.
    assert {name: text for name, text in told_knobs(found).items() if "PHYSICS" in name} == {
        "GROUP_QUOTA_DYNAMIC_PHYSICS": "0.25",
        "GROUP_QUOTA_PHYSICS.HEP": "7.5",
    }


def test_what_is_set_for_a_group_that_is_not_configured_any_more_changes_nothing():
    assert with_quotas(config(), {"gone": QuotaSetting(7.0)}).get("GROUP_QUOTA_gone") is None


def test_records_without_a_quota_are_as_long_as_they_were():
    assert b"quota" not in encode_record(Record(factor=2.0))
    for record in (Record(), Record(quota=0.0), Record(dynamic_quota=0.5, factor=3.0)):
        assert decode_record(encode_record(record)) == record


@pytest.mark.parametrize(
    "quota",
    [QuotaSetting(-1.0), QuotaSetting(math.nan), QuotaSetting(math.inf), QuotaSetting(1.5, True), QuotaSetting(1e13)],
)
def test_what_can_be_no_quota_is_refused(quota):
    with pytest.raises(ValueError, match="a quota of"):
        check_quota(quota)


def test_what_a_change_means():
    assert read_quota_change("quota", 3.0) == QuotaSetting(3.0)
    assert read_quota_change("dynamic-quota", 0.3) == QuotaSetting(0.3, dynamic=True)
    assert read_quota_change("no-quota", None) is None
    for what, value in (("quota", None), ("no-quota", 1.0)):
        with pytest.raises(ValueError, match="quota"):
            read_quota_change(what, value)


@pytest.fixture
async def books():
    made = Books()
    await made.start(**FILES)
    yield made
    await made.stop()


def in_force(daemon):
    return quotas_of(daemon.policy.tree)


async def test_a_quota_is_in_force_once_it_is_answered(books):
    books.daemon.context.reread = config
    await books.set("Physics", "quota", 33.0)
    await books.set("physics.hep", "quota", 12.0)
    assert in_force(books.daemon) == USUAL | {"physics": (33.0, True), "physics.hep": (12.0, True)}
    assert books.daemon.cycle_runner.policy is books.daemon.policy
    assert books.daemon.accountant.records.tree == books.daemon.policy.tree
    assert books.daemon.context.config.get("GROUP_QUOTA_physics") == "33"

    async def told():  # by the next cycle; one that is under way ends with the quotas that it began with
        ads = await books.ask()
        quotas = {name: (ads[name].eval("ConfigQuota"), ads[name].get("QuotaIsSet")) for name in ("physics", "Bio")}
        return quotas == {"physics": (33.0, True), "Bio": (5.0, None)}

    await eventually(told)
    await eventually(lambda: len(books.events) == 2)
    assert (books.events[0].submitter, books.events[0].what, books.events[0].value) == ("Physics", "quota", 33.0)
    # Another configuration in the files leaves it as it is; taken back, the files count as they are now.
    books.daemon.context.reread = lambda: config(GROUP_QUOTA_physics="21", GROUP_QUOTA_bio="6")
    changed = (await reconfigure(books.daemon)).changed
    assert "GROUP_QUOTA_bio" in changed
    assert "GROUP_QUOTA_physics" not in changed
    assert in_force(books.daemon)["physics"] == (33.0, True)
    await books.set("physics", "no-quota", None)
    await books.set("physics.hep", "no-quota", None)
    assert in_force(books.daemon) == USUAL | {"physics": (21.0, True), "Bio": (6.0, True)}
    assert books.daemon.context.config.origin("GROUP_QUOTA_physics") != QUOTA_SOURCE


@spec("NEG-40")
async def test_of_files_read_before_a_cycle_the_group_tree_is_not_taken_with_a_quota(books):
    """It waits for the reconfig, whatever else changes."""
    books.daemon.context.reread = lambda: config(GROUP_QUOTA_physics="99", GROUP_QUOTA_bio="99", XSW_LIMIT="7")
    await books.daemon._reread_config()
    await books.set("physics", "quota", 33.0)
    assert in_force(books.daemon) == USUAL | {"physics": (33.0, True)}
    assert books.daemon.policy.cycle.limits.limits == {"xsw": 7.0}
    await reconfigure(books.daemon)
    assert in_force(books.daemon) == USUAL | {"physics": (33.0, True), "Bio": (99.0, True)}


async def test_whoever_leads_next_has_it(books):
    """The one that led is gone, and with it all that it had in memory."""
    await books.set("bio", "dynamic-quota", 0.25)
    context = make_context("NEGOTIATOR", "cm2", hub=books.hub, store=books.store, clock=books.clock, config=FILES)
    await context.bus.start()
    other = Negotiator(context)
    await other.setup()
    assert in_force(other) == USUAL
    await books.store.set(keys.had_epoch("gpus"), 2)
    await books.speakers.call("negotiator.cm2", Lead(had="cm2", epoch=2, lease_s=60.0))
    assert in_force(other) == USUAL | {"Bio": (0.25, False)}
    await other.close()
    await context.bus.stop()


async def test_one_that_leads_again_has_what_was_set_meanwhile(books):
    await books.set("bio", "quota", 8.0)
    await books.store.set(keys.had_epoch("gpus"), 3)
    row = await books.store.hgetall(keys.accountant_groups("gpus"))
    other = decode_record(row[b"bio"])
    assert other.quota == 8.0
    await books.store.hset(
        keys.accountant_groups("gpus"), {b"bio": encode_record(Record(factor=other.factor, quota=9.0))}
    )
    await books.speakers.call("negotiator.cm", Lead(had="cm", epoch=3, lease_s=60.0))
    assert in_force(books.daemon)["Bio"] == (9.0, True)


@pytest.mark.parametrize(
    ("group", "what", "value", "says"),
    [
        ("chemistry", "quota", 3.0, "there is no accounting group 'chemistry' in GROUP_NAMES; known: Bio, physics"),
        ("alice@p", "quota", 3.0, "there is no accounting group 'alice@p'"),
        ("<none>", "quota", 3.0, "all of the pool"),
        ("chemistry", "no-quota", None, "there is no accounting group"),
        ("physics", "quota", -3.0, "a quota of -3: give slot weight"),
        ("physics", "dynamic-quota", 1.01, "a quota of 1.01: give a part of the parent's, from 0 to 1"),
        ("physics", "quota", None, "quota wants a number"),
        ("physics", "no-quota", 3.0, "takes no value"),
        ("physics", "factor", 3.0, "which has a quota only (roost userprio -setquota)"),
    ],
)
async def test_what_makes_no_sense_is_refused_and_changes_nothing(books, group, what, value, says):
    before = books.daemon.policy
    with pytest.raises(RemoteFailure) as refused:
        await books.set(group, what, value)
    assert says in refused.value.reason
    assert refused.value.code == "bad-request"
    assert books.daemon.policy is before
    assert not books.events


async def test_a_quota_is_not_for_a_while(books):
    with pytest.raises(RemoteFailure, match="leave the duration out"):
        await books.set("physics", "quota", 3.0, duration_s=5.0)


async def test_what_redis_does_not_take_is_not_in_force(books, monkeypatch):
    async def away(*_args, **_more):
        raise StoreUnavailable("Redis is away")

    with monkeypatch.context() as patched:
        patched.setattr(books.daemon.accountant, "commit", away)
        with pytest.raises(RemoteFailure):
            await books.set("physics", "quota", 3.0)
    assert in_force(books.daemon) == USUAL
    await books.daemon.accountant.commit(1)
    assert decode_record((await books.store.hgetall(keys.accountant_groups("gpus")))[b"physics"]).quota == -1.0
    await books.set("physics", "quota", 4.0)
    assert in_force(books.daemon)["physics"] == (4.0, True)


async def test_a_reset_of_all_use_leaves_quotas(books):
    await books.set("physics", "quota", 4.0)
    await books.set("", "reset-all", None)
    assert in_force(books.daemon)["physics"] == (4.0, True)
