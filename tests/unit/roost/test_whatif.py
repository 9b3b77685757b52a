"""A cycle on paper from plain ads: the daemons' own steps, put together."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import msgpack
import pytest

from engine.fairshare.accounting_ads import record_of, submitter_ad
from engine.fairshare.priorities import Record, Temporary
from roost.whatif import Answer, BadAd, moment_of, what_if
from shared.classad import ClassAd
from shared.classad.cells import TEXT_CODE
from shared.config import Config, load_config
from tests.reference_pools import Recorded, ad, recorded
from tests.spec import spec
from tests.unit.analyze.pools import job as idle_job
from tests.unit.analyze.pools import slot

NOW = 1_000_000.0
#: As it may come over the wire.
UNREADABLE = ClassAd.unpack(msgpack.packb({"Name": "x", "Rank": msgpack.ExtType(TEXT_CODE, b"1 +")}))
DAY = 86400.0


def config(**knobs: str) -> Config:
    return load_config([], subsystem="NEGOTIATOR", env={}, overrides=knobs)


def accounting(name: str, **attributes: object) -> ClassAd:
    return ClassAd({"Name": name, "Priority": 500.0, "PriorityFactor": 1000.0, "LastUpdate": int(NOW), **attributes})


def job(**more: object) -> ClassAd:
    return idle_job("TARGET.Memory >= RequestMemory", **more)


def jobs(user: str, count: int, cluster: int, **more: object) -> list[ClassAd]:
    owner = user.partition("@")[0]
    return [job(ClusterId=cluster, ProcId=proc, User=user, Owner=owner, **more) for proc in range(count)]


def slots(count: int, **more: object) -> list[ClassAd]:
    return [slot(f"slot1@node{number + 1}", Cpus=1, **more) for number in range(count)]


def got(answer: Answer) -> dict[str, int]:
    return {one.name: one.matched for one in answer.standings}


# --- held to HTCondor


def everything(pool: Recorded) -> tuple[list[ClassAd], list[ClassAd]]:
    """The jobs and accounting ads of a recorded pool. A job's cluster is its request's place, from 1."""
    found = []
    for place, asked in enumerate(pool.row["jobs"], 1):
        for proc in range(asked["count"]):
            one, name = ad(asked["ad"]), asked["submitter"]
            one.update({"ClusterId": place, "ProcId": proc, "JobStatus": 1, "User": name, "AccountingGroup": name})
            found.append(one)
    return found, [submitter_ad(name, one, group="", negotiator="") for name, one in pool.records().items()]


#: Every second one that the cycle is held to (test_reference_pools.py).
POOLS = [pool for pool in recorded() if "until" not in pool.row][::2]


@spec("NEG-17", "NEG-29", "GRP-17")
@pytest.mark.parametrize("pool", POOLS, ids=lambda pool: pool.name)
def test_plain_ads_come_to_what_the_reference_decides(pool: Recorded, tmp_path: Path) -> None:
    """The data: see test_reference_pools.py. Here also the requests are made of jobs, by what slots look at (NEG-17,
    NEG-29), demand is counted and records are read from accounting ads."""
    file = tmp_path / "condor_config"
    file.write_text("\n".join(pool.row["config"]) + "\n")
    asked, books = everything(pool)
    answer = what_if(
        pool.slots(),
        asked,
        books,
        load_config([file], subsystem="NEGOTIATOR", env={}),
        float(pool.row["now"]),
    )
    requests = pool.row["jobs"]
    ours = Counter(
        (one.submitter, requests[int(one.job.partition(".")[0]) - 1]["autocluster"], one.slot) for one in answer.placed
    )
    theirs = Counter(
        (requests[place]["submitter"], requests[place]["autocluster"], name)
        for place, name, _, _ in pool.row["matches"]
    )
    assert ours == theirs
    users = {str(one.eval("Name")): one.eval("RemoteUser") for one in pool.slots()}
    whole = {(name, who) for _, name, who, _ in pool.row["matches"] if who in users.values()}
    assert {pair for one in answer.placed for pair in one.preempts if pair[0] == one.slot} == whole
    assert sum(one.count for one in answer.unplaced) == sum(one["count"] for one in requests) - len(answer.placed)


# --- jobs


@spec("NEG-15")
def test_jobs_come_by_priority_then_by_age() -> None:
    asking = [*jobs("alice@pool", 3, 13), *jobs("alice@pool", 2, 12), job(ClusterId=14, JobPrio=5)]
    asking.reverse()
    answer = what_if(slots(4), asking, (), config(), NOW)
    assert [one.job for one in answer.placed] == ["14.0", "12.0", "12.1", "13.0"]
    assert [(one.job, one.count) for one in answer.unplaced] == [("13.1", 2)]


def test_only_idle_jobs_that_want_a_slot_ask() -> None:
    others = [job(ProcId=1, JobStatus=2), job(ProcId=2, JobStatus=5), job(ProcId=3, JobUniverse=7), job(ProcId=4)]
    answer = what_if(slots(9), others, (), config(), NOW)
    assert [one.job for one in answer.placed] == ["12.4"]


@spec("NEG-17")
def test_requests_differ_in_what_slots_look_at_only() -> None:
    asking = [job(ProcId=0, Note="x"), job(ProcId=1, Note="y"), job(ProcId=2, RequestMemory=999_999)]
    answer = what_if(slots(9), asking, (), config(), NOW)
    assert len({one.request.autocluster for one in answer.result.matches}) == 1
    (left,) = answer.unplaced
    assert (left.job, left.count, left.code) == ("12.2", 1, "no-match")
    assert left.counts == {"job-requirements": 9}
    picky = what_if(slots(9, Start='=TARGET.Note == "x"'), asking, (), config(), NOW)
    assert [one.job for one in picky.placed] == ["12.0"]
    unread = config(SIGNIFICANT_ATTRIBUTES="Owner")  # who says so himself has jobs that differ taken for alike
    one_request = what_if(slots(9, Start='=TARGET.Note == "x"'), asking[:2], (), unread, NOW)
    assert len({one.request.autocluster for one in one_request.result.matches}) == 1


def test_each_schedd_has_its_own_cluster_12() -> None:
    asking = [job(GlobalJobId=f"{schedd}#12.0#17") for schedd in ("b@x", "a@x")]
    answer = what_if(slots(1), asking, (), config(), NOW)
    assert [(one.schedd, one.job) for one in answer.placed] == [("a@x", "12.0")]
    assert [(one.schedd, one.job) for one in answer.unplaced] == [("b@x", "12.0")]


@spec("NEG-06", "NEG-31")
def test_constraints_on_jobs_and_submitters() -> None:
    asking = [*jobs("alice@pool", 2, 12), *jobs("bob@pool", 1, 13), job(ClusterId=14, RequestMemory=2048)]
    big = config(NEGOTIATOR_JOB_CONSTRAINT="RequestMemory > 2000")
    assert [one.job for one in what_if(slots(9), asking, (), big, NOW).placed] == ["14.0"]
    first = config(NEGOTIATOR_JOB_CONSTRAINT="ProcId == 0")
    assert sorted(one.job for one in what_if(slots(9), asking, (), first, NOW).placed) == ["12.0", "13.0", "14.0"]
    many = config(NEGOTIATOR_SUBMITTER_CONSTRAINT="IdleJobs >= 3")
    assert got(what_if(slots(9), asking, (), many, NOW)) == {"alice@pool": 3}


# --- slots


@spec("NEG-04")
def test_slots_outside_the_constraint_are_not_there() -> None:
    there = [*slots(3), slot("slot1@other", Cpus=1, Shard="b", State="Claimed", RemoteUser="zoe@pool")]
    answer = what_if(there, jobs("alice@pool", 5, 12), (), config(NEGOTIATOR_SLOT_CONSTRAINT='Shard =!= "b"'), NOW)
    assert (answer.slots, answer.weight, got(answer)) == (3, 3.0, {"alice@pool": 3})


@spec("NEG-32")
def test_match_exprs_are_seen_by_slots() -> None:
    there = slots(1, Start='=MY.NegotiatorMatchExprSITE == "here"')
    one = jobs("alice@pool", 1, 12)
    assert not what_if(there, one, (), config(), NOW).placed
    assert what_if(there, one, (), config(NEGOTIATOR_MATCH_EXPRS="SITE", SITE='"here"'), NOW).placed


def test_a_pool_without_slots_or_jobs() -> None:
    answer = what_if((), jobs("alice@pool", 2, 12), (), config(), NOW)
    assert [(one.job, one.count, dict(one.counts)) for one in answer.unplaced] == [("12.0", 2, {})]
    empty = what_if(slots(2), (), (), config(), NOW)
    assert (empty.placed, empty.unplaced, empty.standings) == ((), (), ())


@spec("PRE-02")
def test_whom_a_preemption_hits_is_told() -> None:
    ranks = {"Rank": 0.0, "CurrentRank": 0.0}
    held = slots(2, State="Claimed", Activity="Busy", RemoteUser="bob@pool", AccountingGroup="bob@pool", **ranks)
    books = [accounting("bob@pool", Priority=9000.0), accounting("alice@pool")]
    knobs = config(PREEMPTION_REQUIREMENTS="RemoteUserPrio > SubmitterUserPrio * 1.2")
    answer = what_if(held, jobs("alice@pool", 1, 12), books, knobs, NOW)
    (one,) = answer.placed
    assert (one.reason, one.preempts) == ("priority", ((one.slot, "bob@pool"),))
    bob = next(each for each in answer.standings if each.name == "bob@pool")
    assert (bob.in_use, bob.lost, bob.asked) == (2.0, 1.0, 0)


# --- the books


@spec("NEG-08")
def test_shares_follow_the_books() -> None:
    asking = [*jobs("alice@pool", 40, 12), *jobs("bob@pool", 40, 13)]
    books = [accounting("alice@pool", Priority=500.0), accounting("bob@pool", Priority=1500.0)]
    answer = what_if(slots(20), asking, books, config(), NOW)
    assert got(answer) == {"alice@pool": 15, "bob@pool": 5}
    assert [(one.name, one.share) for one in answer.standings] == [("alice@pool", 0.75), ("bob@pool", 0.25)]


@spec("ACC-10", "ACC-13")
def test_newcomers_get_the_factor_that_the_configuration_has_for_them() -> None:
    asking = [*jobs("alice@pool", 40, 12), *jobs("bob@pool", 40, 13, NiceUser=True)]
    answer = what_if(slots(20), asking, (), config(DEFAULT_PRIO_FACTOR="100"), NOW)
    assert [(one.name, one.factor) for one in answer.standings] == [("alice@pool", 100.0), ("nice-user.bob@pool", 1e10)]


@spec("ACC-03")
def test_books_are_settled_up_to_the_moment_of_the_cycle() -> None:
    """Half a day's half-life between the ads and the cycle: 8 decays towards what is in use."""
    books = [accounting("alice@pool", Priority=8000.0, WeightedResourcesUsed=2.0, ResourcesUsed=2)]
    answer = what_if(slots(1), jobs("alice@pool", 1, 12), books, config(PRIORITY_HALFLIFE="43200"), NOW + DAY / 2)
    assert [one.priority for one in answer.standings] == [5000.0]
    fresh = what_if(slots(1), jobs("alice@pool", 1, 12), books, config(PRIORITY_HALFLIFE="43200"), NOW)
    assert [one.priority for one in fresh.standings] == [8000.0]


def test_a_change_for_a_while_is_over_when_it_is_over() -> None:
    books = [accounting("alice@pool", Ceiling=1, CeilingUntil=int(NOW) + 60, CeilingAfter=-1)]
    asking = jobs("alice@pool", 3, 12)
    assert got(what_if(slots(3), asking, books, config(), NOW)) == {"alice@pool": 1}
    assert got(what_if(slots(3), asking, books, config(), NOW + 61)) == {"alice@pool": 3}


def test_a_record_survives_its_ad() -> None:
    record = Record(
        priority=3.5, factor=20.0, in_use=4.0, slots_in_use=2, usage=70.0, weighted_usage=140.0, begin=10.0, last=90.0,
        updated=90.0, floor=2.0, ceiling=7.0, temporary=(Temporary("factor", 1000.0, 500.0),),
    )  # fmt: skip
    assert record_of(submitter_ad("alice@pool", record, group="<none>", negotiator="x")) == record
    assert record_of(ClassAd({"Name": "a"})) == Record()
    assert record_of(ClassAd({"Name": "a", "Priority": 70.0})) == Record(priority=70.0, factor=1.0)


# --- groups


@spec("GRP-14", "GRP-25")
def test_what_if_the_quota_were_5() -> None:
    asking = [*jobs("ada@pool", 40, 12, AccountingGroup="physics.ada"), *jobs("bob@pool", 40, 13)]
    knobs = {"GROUP_NAMES": "physics", "GROUP_QUOTA_physics": "3"}
    answer = what_if(slots(20), asking, (), config(**knobs), NOW)
    assert got(answer) == {"physics.ada@pool": 3, "bob@pool": 17}
    assert [plan.name for plan in answer.groups] == ["physics", "<none>"]
    assert [one.group for one in answer.standings] == ["physics", "<none>"]
    more = what_if(slots(20), asking, (), config(**{**knobs, "GROUP_QUOTA_physics": "5"}), NOW)
    assert got(more) == {"physics.ada@pool": 5, "bob@pool": 15}


@spec("GRP-17")
def test_demand_is_what_runs_and_what_waits() -> None:
    running = slot("slot1@busy", Cpus=4, SlotWeight=4, State="Claimed", RemoteUser="physics.ada@pool")
    asking = jobs("ada@pool", 3, 12, AccountingGroup="physics.ada", RequestCpus=2)
    for weighted, demand in (("true", 10.0), ("false", 4.0)):
        knobs = config(GROUP_NAMES="physics", GROUP_QUOTA_physics="9", NEGOTIATOR_USE_WEIGHTED_DEMAND=weighted)
        answer = what_if([running, *slots(3)], asking, (), knobs, NOW)
        assert {plan.group: plan.requested for plan in answer.groups}["physics"] == demand


def test_problems_of_the_configuration_are_told() -> None:
    answer = what_if(slots(1), (), (), config(GROUP_NAMES="physics", GROUP_QUOTA_fysics="3"), NOW)
    assert any("GROUP_QUOTA_fysics".lower() in text.lower() for text in answer.problems)


# --- what can not be


def test_equal_arguments_give_equal_answers_and_change_nothing() -> None:
    there, asking = slots(3), [*jobs("alice@pool", 4, 12), *jobs("bob@pool", 4, 13)]
    before = [one.pack() for one in (*there, *asking)]
    knobs = config(NEGOTIATOR_MATCH_EXPRS="SITE", SITE='"here"')
    first, second = (what_if(there, asking, (), knobs, NOW) for _ in range(2))
    assert (first.placed, first.unplaced, first.standings) == (second.placed, second.unplaced, second.standings)
    assert [one.pack() for one in (*there, *asking)] == before


@pytest.mark.parametrize(
    ("kind", "number", "bad", "says"),
    [
        ("slot", 1, ClassAd({"Cpus": 1}), "no Name"),
        ("slot", 1, UNREADABLE, "can not be read"),
        ("job", 1, UNREADABLE, "can not be read"),
        ("slot", 1, ClassAd({"Name": "slot1@node1"}), "comes twice, ad number 1 is it too"),
        ("slot", 1, ClassAd({"Name": "x", "MyType": "Job"}), "MyType is Job, not Machine"),
        ("job", 1, ClassAd({"ProcId": 0, "JobStatus": 1}), "no ClusterId"),
        ("job", 1, ClassAd({"ClusterId": 1, "ProcId": 0}), "no JobStatus"),
        ("job", 1, ClassAd({"ClusterId": 1, "ProcId": 0, "JobStatus": 1}), "job 1.0 has no User"),
        ("job", 1, job(), "job 12.0 comes twice"),
        ("job", 1, job(ProcId=1, JobPrio="high"), "JobPrio"),
        ("job", 1, job(ProcId=1, AccountingGroup="a b"), "AccountingGroup"),
        ("job", 1, ClassAd({"MyType": "Machine"}), "MyType is Machine, not Job"),
        ("accounting", 1, ClassAd({"Priority": 3.0}), "no Name"),
        ("accounting", 1, ClassAd({"Name": "a@x", "Priority": "3"}), "a@x: Priority = \"3\" is no number"),
        ("accounting", 1, ClassAd({"Name": "a@x", "PriorityFactor": -2}), "PriorityFactor = -2 can not be"),
        ("accounting", 1, ClassAd({"Name": "a@x", "Ceiling": -2}), "Ceiling = -2 can not be: want -1 or more"),
    ],
)  # fmt: skip
def test_an_ad_that_is_no_use_is_named(kind: str, number: int, bad: ClassAd, says: str) -> None:
    ads = {"slot": slots(1), "job": jobs("alice@pool", 1, 12), "accounting": [accounting("alice@pool")]}
    ads[kind].append(bad)
    with pytest.raises(BadAd) as raised:
        what_if(ads["slot"], ads["job"], ads["accounting"], config(), NOW)
    assert (raised.value.kind, raised.value.number) == (kind, number)
    assert says in raised.value.reason


def test_when_ads_were_true() -> None:
    ads = [ClassAd({"LastHeardFrom": 5, "MyCurrentTime": 7}), ClassAd({"ServerTime": 3})]
    assert moment_of(ads, [ClassAd({"LastUpdate": "never"})]) == 7.0
    assert moment_of([], [ClassAd()]) == 0.0
