"""What a consumer decides: which events it wants, how they are read, and which of them a snapshot has in it."""

import json
import random

import pytest

from roost import events
from roost.cli import events as command
from roost.consumer.filters import Filter, binding_patterns, in_group, patterns_of, shell_patterns
from roost.consumer.http import time_of
from roost.consumer.snapshot import SnapshotCut
from roost.consumer.source import Received
from roost.event_patterns import unheard
from roost.events import (
    JobEnded,
    JobEvent,
    JobHeld,
    JobReleased,
    JobsSubmitted,
    JobStarted,
    SlotChanged,
    UnknownEvent,
    event_of,
)
from shared.bus.topology import CONSUMER_READS
from shared.classad import ClassAd
from shared.messages.base import catalogue, new_id
from shared.messages.events import Event, JobKind, JobsSorted

ABOUT = {"at": 5.0, "schedd": "ap", "job_id": "3.1", "owner": "alice", "submitter": "physics.cms.alice@pool"}


def got(event, ident="x"):
    return Received(ident, event, "schedd.ap")


# Reading


def test_every_event_has_a_class_here():
    told = {kind for kind in catalogue().values() if issubclass(kind, Event)}
    assert told == set(events.TYPES.values())
    assert all(getattr(events, kind.__name__) is kind for kind in told)


def test_events_match_by_class_and_field():
    match event_of("job.held", {**ABOUT, "code": 1, "subcode": 0, "reason": "by user"}):
        case JobHeld(job_id=job, reason=reason):
            assert (job, reason) == ("3.1", "by user")
        case other:
            raise AssertionError(other)


@pytest.mark.parametrize(
    ("name", "version", "body", "problem"),
    [
        ("job.teleported", None, {"at": 3, "where": "mars"}, ""),
        ("job.held", 9, {**ABOUT}, ""),
        ("job.held", 1, {**ABOUT, "code": "many"}, "code: Input should be a valid integer"),
        ("", None, {}, ""),
    ],
)
def test_what_is_not_known_is_an_event_all_the_same(name, version, body, problem):
    event = event_of(name, body, version)
    assert isinstance(event, UnknownEvent)
    assert (event.type, event.body) == (name, body)
    assert problem in event.problem
    assert event.at == float(body.get("at", 0))


def test_fields_of_a_newer_release_are_left_out():
    event = event_of("job.released", {**ABOUT, "reason": "r", "mood": "good"})
    assert event == JobReleased(**ABOUT, reason="r")


def test_bytes_come_through_json():
    """A packed ad is no text: as one it could not be sent to anybody who follows events over HTTP."""
    sorted_ = JobsSorted(
        at=1.0, schedd="ap", kinds=[JobKind(autocluster=1, submitter="a@p", jobs=[(1, 0, 3)], ad=b"\x8a\xff\x00")]
    )
    text = sorted_.model_dump_json().encode()
    assert event_of("job.sorted", json.loads(text), text=text) == sorted_


# Filters


def test_patterns_of_classes_and_texts():
    assert patterns_of([]) == ("#",)
    assert patterns_of([JobEnded, "slot.*", JobEnded]) == ("job.ended", "slot.*")
    assert patterns_of([Event]) == ("#",)
    jobs = patterns_of([JobEvent])
    assert {"job.ended", "job.held"} <= set(jobs)
    assert all(name.startswith("job.") for name in jobs)
    for bad in ("", "job ended", "job.[a]*", "job?"):
        with pytest.raises(ValueError, match=r"want a type such as job\.ended"):
            patterns_of([bad])


def test_the_gateway_is_asked_for_at_least_what_is_wanted():
    assert shell_patterns(("#",)) == []
    assert shell_patterns(("job.*", "slot.changed")) == ["job.*", "slot.changed"]
    assert shell_patterns(("job.#",)) == ["job.*", "job"]


def test_a_queue_is_bound_to_families_that_its_user_may_read():
    assert binding_patterns(("job.*", "slot.changed")) == ("job.*", "slot.changed")
    assert binding_patterns(("#",)) == tuple(f"{family}.#" for family in CONSUMER_READS)
    assert "had.leader" in binding_patterns(("*.leader",))
    families = {kind.type.partition(".")[0] for kind in events.TYPES.values()}
    assert families - {"gateway"} == set(CONSUMER_READS)


def test_filters_look_at_what_an_event_says():
    held = got(JobHeld(**ABOUT, code=1, subcode=0, reason="r"))
    submitted = got(
        JobsSubmitted(
            at=1, schedd="ap", owner="alice", submitter="physics.cms.alice@pool", cluster=3, first_proc=0, count=9
        )
    )
    slot = got(SlotChanged(at=1, startd="d", slot="s", state="Claimed", activity="Busy", owner="physics.bob@pool"))
    unknown = got(UnknownEvent("job.new", 1, {"owner": "alice", "job_id": "3.2"}))
    everything = [held, submitted, slot, unknown]

    def taken(**wanted):
        return [one for one in everything if Filter(**wanted).takes(one)]

    assert taken() == everything
    assert taken(patterns=("job.*",)) == [held, submitted, unknown]
    assert taken(owner="alice") == [held, submitted, unknown]
    assert taken(owner="physics.cms.alice@pool") == [held, submitted]
    assert taken(owner="bob") == [slot]
    assert taken(owner="lice") == []
    assert taken(group="physics") == [held, submitted]
    assert taken(group="physics.cms") == [held, submitted]
    assert taken(group="phys") == []
    assert taken(job="3") == [held, submitted, unknown]
    assert taken(job="3.1") == [held, submitted]
    assert taken(job="31") == []
    assert taken(schedd="ap") == [held, submitted]
    assert taken(where=lambda one: isinstance(one.event, SlotChanged)) == [slot]


def test_groups_are_those_above_a_submitter():
    assert in_group("Physics.CMS.alice@pool", "physics")
    assert not in_group("alice@pool", "alice")
    assert not in_group("alice@physics.edu", "physics")


def test_jobs_for_a_snapshot_are_those_of_the_filter():
    wanted = Filter(owner='a"b', job="3.1", group="physics").job_constraint()
    assert '(Owner == "a\\"b" || User == "a\\"b")' in wanted
    assert "(ClusterId == 3) && (ProcId == 1)" in wanted
    from shared.classad import evaluate, parse_expr

    inside = ClassAd({"Owner": 'a"b', "ClusterId": 3, "ProcId": 1, "AcctGroup": "physics.cms"})
    assert evaluate(parse_expr(wanted), inside, None, 0.0) is True
    for name, value in (("AcctGroup", "physicsx"), ("Owner", "c"), ("ProcId", 2)):
        outside = ClassAd({**dict(inside.items()), name: value})
        assert evaluate(parse_expr(wanted), outside, None, 0.0) is not True
    assert Filter().job_constraint() == ""


def test_ids_tell_their_time():
    assert abs(time_of(new_id()) - time_of(new_id())) < 60
    assert time_of("") == time_of("z" * 32) == time_of("12") == 0.0


# The cut between a snapshot and the events after it


def job_ad(cluster, proc, read):
    return ClassAd({"ClusterId": cluster, "ProcId": proc, "GlobalJobId": f"ap#{cluster}.{proc}#1", "RoostReadAt": read})


def started(job, at, schedd="ap"):
    return Received(
        new_id(),
        JobStarted(at=at, schedd=schedd, job_id=job, owner="a", slot="s", attempt=1, waited_s=0.0),
    )


def submitted(cluster, at, count=1):
    return Received(
        new_id(),
        JobsSubmitted(at=at, schedd="ap", owner="a", submitter="a@p", cluster=cluster, first_proc=0, count=count),
    )


def test_an_event_before_the_ad_was_read_is_no_news():
    cut = SnapshotCut()
    assert cut.job(job_ad(3, 0, 10.5))
    assert not cut.job(job_ad(3, 0, 11.0))  # a page that was read twice
    events = [started("3.0", 10.25), started("3.0", 10.5), started("3.0", 10.75), started("3.0", 9.0, schedd="other")]
    assert [one.event.at for one in cut.news(events)] == [10.75, 9.0]


def test_a_job_that_left_before_is_no_news_and_one_that_came_after_is():
    cut = SnapshotCut()
    cut.job(job_ad(3, 0, 10.0))
    cut.job(job_ad(5, 0, 10.1))
    late = submitted(4, 9.0)  # its number was given early, it was committed late
    events = [started("4.0", 8.0), late, started("4.0", 9.5), started("2.0", 9.9), started("6.0", 9.9), submitted(3, 9)]
    assert cut.news(events) == [late, events[2], events[4]]
    assert cut.is_news(started("2.0", 10.2))


def test_a_cluster_that_came_while_the_queue_was_read_is_to_be_read_again():
    cut = SnapshotCut()
    cut.job(job_ad(3, 0, 10.0))
    assert cut.incomplete([submitted(3, 9.0, count=1), submitted(4, 9.0, count=5)]) == []
    assert cut.incomplete([submitted(3, 9.0, count=2)]) == [("ap", 3)]


def test_a_schedd_that_tells_whole_seconds_repeats_rather_than_loses():
    cut = SnapshotCut()
    cut.job(ClassAd({"ClusterId": 3, "ProcId": 0, "GlobalJobId": "ap#3.0#1", "ServerTime": 10}))
    events = [started("3.0", 9.9), started("3.0", 10.0), started("3.0", 10.9)]
    assert cut.news(events) == events[1:]


def slot_event(at, state, activity):
    return Received(new_id(), SlotChanged(at=at, startd="d", slot="slot1@d", state=state, activity=activity))


def test_a_slot_is_told_from_the_state_on_that_its_ad_shows():
    cut = SnapshotCut()
    facts = {"Name": "slot1@d", "State": "Claimed", "Activity": "Busy"}
    cut.slot(ClassAd({**facts, "EnteredCurrentActivity": 12, "EnteredCurrentState": 11}))
    events = [
        slot_event(11.5, "Claimed", "Idle"),
        slot_event(12.1, "Claimed", "Idle"),
        slot_event(12.2, "Claimed", "Busy"),
        slot_event(12.3, "Claimed", "Idle"),
        slot_event(13.0, "Unclaimed", "Idle"),
    ]
    assert cut.news(events) == events[3:]
    assert not cut.is_news(slot_event(11.9, "Claimed", "Idle"))
    assert cut.is_news(slot_event(12.9, "Claimed", "Retiring"))


@pytest.mark.parametrize("seed", range(20))
def test_state_of_snapshot_and_news_is_the_state_of_all_events(seed):
    """A queue lives on while it is read, job by job, and events come late and shuffled between schedds: who applies the
    news to the snapshot knows what is really there, and is told of no change twice."""
    chance = random.Random(seed)
    truth, snapshot, heard, all_told = {}, {}, [], []
    clock, cluster, cut = 0.0, 0, SnapshotCut()
    keys = iter(())
    for _ in range(400):
        clock += chance.random()
        what = chance.random()
        if what < 0.25:
            cluster += 1
            count = chance.randint(1, 3)
            heard.append(submitted(cluster, clock, count))
            truth.update({f"{cluster}.{proc}": 0 for proc in range(count)})
        elif what < 0.7 and truth:
            job = chance.choice(sorted(truth))
            truth[job] += 1
            heard.append(started(job, clock))
        elif what < 0.8 and truth:
            job = chance.choice(sorted(truth))
            del truth[job]
            heard.append(
                Received(
                    new_id(),
                    JobEnded(at=clock, schedd="ap", job_id=job, owner="a", slot="s", attempt=1, exit_code=0, ran_s=1.0),
                )
            )
        else:  # read one more job
            if len(heard) > 200 and not snapshot:
                keys = iter(sorted(truth, key=lambda job: tuple(map(int, job.split(".")))))
            job = next(keys, None)
            if job in truth:
                snapshot[job] = truth[job]
                cut.job(job_ad(*map(int, job.split(".")), clock))
            elif job is None and snapshot:
                break
    for job in keys:  # the rest of the queue, with nothing in between
        if job in truth:
            snapshot[job] = truth[job]
            cut.job(job_ad(*map(int, job.split(".")), clock))
    for _, number in cut.incomplete(heard):
        for job in [job for job in truth if job.startswith(f"{number}.")]:
            if cut.job(job_ad(*map(int, job.split(".")), clock)):
                snapshot[job] = truth[job]
    assert snapshot
    state = dict(snapshot)
    for one in cut.news(heard):
        event = one.event
        all_told.append(one.id)
        if isinstance(event, JobsSubmitted):
            for proc in range(event.count):
                assert f"{event.cluster}.{proc}" not in snapshot
                state[f"{event.cluster}.{proc}"] = 0
        elif isinstance(event, JobEnded):
            state.pop(event.job_id, None)
        elif event.job_id in state:
            state[event.job_id] += 1
    assert {job: count for job, count in state.items() if job in truth} == truth
    assert len(set(all_told)) == len(all_told)
    assert set(state) == set(truth)


@pytest.mark.parametrize("pattern", ["job.*", "job.ended", "#", "*.ended", "daemon.#"])
def test_patterns_that_events_fit_are_not_spoken_of(pattern):
    assert unheard([pattern]) == []


@pytest.mark.parametrize(
    ("pattern", "near"), [("jobs.*", "job.*"), ("job.endet", "job.ended"), ("jobs.ended", "job.ended")]
)
def test_a_mistyped_pattern_is_told_with_the_nearest(pattern, near):
    assert unheard([pattern, "job.*"]) == [f"no event of this release is {pattern}: did you mean {near}?"]


def test_the_command_looks_at_shell_patterns_as_the_gateway_does():
    assert command._warnings([]) == command._warnings(["*", "j*", "job.st?rted", "negotiation.cycle"]) == []
    assert command._warnings(["job.strated"]) == ["no event of this release is job.strated: did you mean job.started?"]
