"""Whether a rolling restart is safe, and in which order: by what daemons say they know and keep."""

from engine.doctor import Told
from engine.upgrade import USUAL, Release, plan
from roost.cli.upgrade import told
from shared.messages.base import known_types, protocol

OWN = Release("0.2.0", "new", ["a/1", "journal.job/1", "claim.activate/1"], {"job queue": 2})


def daemon(subsystem, name="x", *, release="0.1.0", speaks="old", **health):
    return Told(subsystem, name, health={"release": release, "protocol": speaks, **health})


def test_daemons_that_run_the_release_need_nothing():
    made = plan([daemon("SCHEDD", release="0.2.0", speaks="new")], {"new": OWN.messages}, OWN)
    assert made.is_done
    assert not made.problems
    assert [build.own for build in made.builds] == [True]


def test_the_usual_order_names_only_who_is_to_be_restarted():
    daemons = [daemon(kind) for kind in ("GATEWAY", "STARTD", "COLLECTOR", "SCHEDD")]
    daemons += [daemon("NEGOTIATOR", release="0.2.0", speaks="new")]
    made = plan(daemons, {"old": OWN.messages}, OWN)
    assert made.order == ["COLLECTOR", "SCHEDD", "STARTD", "GATEWAY"]
    assert not made.problems


def test_who_answers_a_new_request_comes_before_who_sends_it():
    # claim.activate goes from schedds to startds: they have to know it first.
    daemons = [daemon(kind) for kind in ("SCHEDD", "STARTD", "GATEWAY")]
    made = plan(daemons, {"old": ["a/1", "journal.job/1"]}, OWN)
    assert made.order == ["STARTD", "SCHEDD", "GATEWAY"]
    assert not made.notes


def test_where_each_would_have_to_be_first_the_usual_order_counts_and_it_is_told():
    wanted = Release("0.2.0", "new", ["claim.activate/1", "job.report/1"], {})
    made = plan([daemon("SCHEDD"), daemon("STARTD")], {"old": []}, wanted)
    assert made.order == ["SCHEDD", "STARTD"]
    assert any("SCHEDD, STARTD send each other" in note for note in made.notes)


def test_going_back_is_refused_where_a_daemon_keeps_what_the_release_does_not_read():
    made = plan([daemon("SCHEDD", "ap1", keeps={"job queue": 3})], {"old": OWN.messages}, OWN)
    (problem,) = made.problems
    assert "schedd ap1 keeps its job queue in version 3, and 0.2.0 reads 2" in problem


def test_messages_that_the_release_does_not_know_make_it_unsafe():
    made = plan([daemon("STARTD")], {"old": [*OWN.messages, "later/1"]}, OWN)
    (problem,) = made.problems
    assert "later/1" in problem


def test_who_does_not_answer_or_tell_is_named():
    silent = Told("STARTD", "node1", silent="gone")
    older = Told("SCHEDD", "ap1")
    made = plan([silent, older, Told("HAD", "cm1", off=True)], {}, OWN)
    assert made.order == ["SCHEDD"]
    assert len(made.notes) == 2
    assert [build.protocol for build in made.builds] == [""]


def test_every_kind_of_daemon_has_a_place_in_the_order():
    made = plan([daemon(kind) for kind in reversed(USUAL)], {"old": OWN.messages}, OWN)
    assert made.order == list(USUAL)


def test_the_command_shows_the_steps():
    lines = told(plan([daemon("SCHEDD"), daemon("STARTD")], {"old": OWN.messages}, OWN), OWN)
    assert any("1 schedd, 1 startd" in line for line in lines)
    assert "  1. roost restart -schedd -all" in lines
    assert told(plan([], {}, OWN), OWN)[-1].startswith("All daemons that answer")
    assert told(plan([daemon("STARTD")], {"old": ["z/1"]}, OWN), OWN)[-1] == "A rolling restart is not safe."


def test_the_digest_of_this_release_is_of_all_its_messages():
    assert len(known_types()) > 100
    assert "daemon.config/1" in known_types()
    assert len(protocol()) == 12
