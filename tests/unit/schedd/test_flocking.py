"""Who flocks how far, and names of what is in other pools."""

import pytest

from services.schedd.core.flocking import Flocking, Level, as_there, named, next_level, pool_of, rejected_level, there
from services.schedd.settings import Settings
from shared.bus.topology import negotiator_inbox
from shared.classad import ClassAd
from shared.config import ConfigError
from shared.messages.claims import ReleaseClaim
from shared.messages.negotiation import GetRequests
from tests.daemons import make_context

THREE = Flocking(pools=("a", "b", "c"), after_s=10.0)


def played(rules, *moments):
    """The level after each (now, waits)."""
    level, found = None, []
    for now, waits in moments:
        level = next_level(level, waits=waits, now=now, rules=rules)
        found.append(level.pools)
    return found


def test_who_waits_too_long_asks_one_pool_more_and_then_the_next():
    moments = [(0, True), (9, True), (10, True), (15, True), (20, True), (30, True), (40, True)]
    assert played(THREE, *moments) == [0, 0, 1, 1, 2, 3, 3]


def test_who_waits_no_more_for_as_long_flocks_no_more():
    moments = [(0, True), (10, True), (11, False), (20, False), (21, False)]
    assert played(THREE, *moments) == [0, 1, 1, 1, 0]


def test_a_moment_without_waiting_jobs_begins_the_time_anew():
    assert played(THREE, (0, True), (9, True), (9.5, False), (10, True), (19, True), (20, True)) == [0, 0, 0, 0, 0, 1]


def test_min_flock_level_and_flock_increment():
    rules = Flocking(pools=("a", "b", "c"), least=1, step=5, after_s=10.0)
    assert played(rules, (0, True), (10, True), (20, False), (30, False)) == [1, 3, 3, 1]


@pytest.mark.parametrize(("asked", "by", "then"), [(0, 0, 1), (1, 1, 2), (1, 0, 1), (3, 3, 3), (2, 1, 2)])
def test_a_negotiator_without_a_slot_counts_only_where_it_was_the_last_that_is_asked(asked, by, then):
    level = rejected_level(Level(asked, waits=True, since=0.0), by=by, now=5.0, rules=THREE)
    assert level.pools == then


def test_a_submitter_nobody_knew_flocks_at_the_first_rejection():
    assert rejected_level(None, by=0, now=5.0, rules=THREE) == Level(1, waits=True, since=5.0)


@pytest.mark.parametrize("inbox", ["startd.node1", "startd.slot@x.example.org", "negotiator"])
def test_names_of_other_pools_lead_back(inbox):
    assert (pool_of(named(inbox, "b.org")), there(named(inbox, "b.org"))) == ("b.org", inbox)
    assert (pool_of(inbox), there(inbox)) == ("", inbox)


@pytest.mark.parametrize("shard", ["", "north"])
def test_a_negotiator_is_told_in_its_pool_by_its_own_name(shard):
    assert there(negotiator_inbox(named(shard, "b.org"))) == negotiator_inbox(shard)


def test_a_pool_that_calls_its_own_daemons_by_names_of_others_stays_where_it_is():
    assert pool_of(named("startd.x%c.org", "b.org")) == "b.org"


def test_what_leaves_has_the_shard_as_it_is_called_there():
    asked = GetRequests(negotiator="n", epoch=1, cycle=1, submitters=[], shard="north%b.org")
    assert as_there(asked).shard == "north"
    other = ReleaseClaim(claim_id="x")
    assert as_there(other) is other


@pytest.mark.parametrize(
    ("by_default", "said", "flocks"),
    [(True, None, True), (True, False, False), (False, None, False), (False, True, True), (False, False, False)],
)
def test_flock_by_default_and_want_flocking(by_default, said, flocks):
    rules = Flocking(pools=("a",), by_default=by_default)
    job = ClassAd({"JobUniverse": 5} | ({} if said is None else {"WantFlocking": said}))
    assert rules.wanted_by(job, 0.0) is flocks


def test_nodes_of_a_parallel_job_stay_at_home():
    assert not Flocking(pools=("a",)).wanted_by(ClassAd({"JobUniverse": 11, "WantFlocking": True}), 0.0)


@pytest.mark.parametrize("name", ["a%b", "../x", "a/b", "@all"])
def test_what_is_no_name_of_a_pool_is_refused_with_its_place(name):
    with pytest.raises(ConfigError, match=r"FLOCK_TO = .*no name of a pool"):
        Settings.from_config(make_context("SCHEDD", config={"FLOCK_TO": f"good.example.org, {name}"}).config)


def test_the_knobs_are_read():
    knobs = {"FLOCK_TO": "a, b a", "MIN_FLOCK_LEVEL": 1, "FLOCK_INCREMENT": 2, "FLOCK_BY_DEFAULT": "false"}
    knobs |= {"ROOST_SCHEDD_FLOCK_AFTER": "3.5", "ROOST_SCHEDD_FLOCK_DIRECTORY": "/x"}
    found = Settings.from_config(make_context("SCHEDD", config=knobs).config).flocking
    assert found == Flocking(("a", "b"), 1, 2, 3.5, by_default=False, directory="/x")
