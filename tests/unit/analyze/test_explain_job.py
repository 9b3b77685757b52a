"""Why a job does not run: every slot is counted once, and suggestions do what they say."""

from __future__ import annotations

import pytest

from engine.analyze import explain_job, to_map
from engine.analyze.report import Change, Rejection, Suggestion
from engine.reasons import Amount
from shared.classad import ClassAd, parse_expr
from tests.unit.analyze.pools import job, pool, slot


def nodes(count: int, **more):
    return [slot(f"slot1@node{n}", **more) for n in range(count)]


def test_conditions_are_counted_alone_and_together():
    slots = pool(
        slot("a", Arch="aarch64", Memory=512),
        slot("b", Memory=512),
        slot("c"),
        slot("d", Arch="aarch64"),
    )
    found = explain_job(slots, job('(TARGET.Arch == "X86_64") && (TARGET.Memory >= RequestMemory)'))
    assert [(t.text, t.alone, t.together) for t in found.terms] == [
        ('TARGET.Arch == "X86_64"', 2, 2),
        ("TARGET.Memory >= RequestMemory", 2, 1),
    ]
    assert found.outcomes == {"free": 1, "job-requirements": 3}
    assert found.slots == 4
    assert found.verdict == "1 slot could run it now; it waits for the next negotiation cycle."


def test_every_slot_is_counted_under_one_outcome():
    slots = pool(
        slot("free"),
        slot("bobs", State="Claimed", RemoteUser="bob@pool"),
        slot("group", State="Claimed", RemoteUser="x@pool", AccountingGroup="physics.carol"),
        slot("leaving", State="Preempting", RemoteUser="bob@pool"),
        slot("asleep", Offline=True),
        slot("called", Offline=True, MachineLastMatchTime=900),
        slot("matched", Offline=True),
        slot("small", Memory=512),
        slot("private", Start='=TARGET.Owner == "zoe"', State="Owner"),
        slot("promised"),
        slot("new"),
        slot("elsewhere", Site="far"),
        slot("claimed-small", Memory=512, State="Claimed", RemoteUser="bob@pool"),
        unoffered={"promised": "match-under-way", "new": "no-claim-id", "gone": "match-under-way"},
        waking=["matched", "free", "gone"],
        constraint=parse_expr('Site =!= "far"'),
    )
    found = explain_job(slots, job())
    assert found.outcomes == {
        "free": 1,
        "claimed": 3,
        "waking": 2,
        "offline": 1,
        "job-requirements": 2,
        "slot-requirements": 1,
        "match-under-way": 1,
        "no-claim-id": 1,
        "constraint": 1,
    }
    assert sum(found.outcomes.values()) == found.slots == 13
    assert found.users == {"bob@pool": 2, "physics.carol": 1}
    assert found.owner_state == 1
    assert found.capacity == 7  # all that suit but for those that sleep


def test_slots_that_refuse_are_told_by_their_first_condition():
    slots = pool(
        slot("a", Start='=TARGET.Owner == "bob" && KeyboardIdle > 900', KeyboardIdle=5),
        slot("b", Start="=KeyboardIdle > 900", KeyboardIdle=5),
        slot("c", Start="=KeyboardIdle > 900", KeyboardIdle=1000),
        slot("d", Memory=10),
    )
    found = explain_job(slots, job())
    assert found.outcomes == {"free": 1, "slot-requirements": 2, "job-requirements": 1}
    assert [(t.text, t.slots, t.accept, t.rejects) for t in found.slot_terms if t.rejects] == [
        ("KeyboardIdle > 900", 3, 1, 1),
        ('TARGET.Owner == "bob"', 1, 0, 1),
    ]


def test_too_much_memory_is_one_change_though_two_conditions_fail():
    slots = pool(slot("a", Memory=65536), slot("b", Memory=65536), slot("c"))
    found = explain_job(slots, job(RequestMemory=999_999))
    assert found.suggestions == (Suggestion((Change("set", "RequestMemory", to="65536", was="999999"),), 2),)
    assert found.capacity == 0
    assert found.verdict == (
        "No slot satisfies its Requirements: RequestMemory is 999999, and if it were 65536, 2 slots would; it does not "
        "run as things are."
    )


def test_a_constant_is_changed_to_the_nearest_that_helps():
    slots = pool(slot("a", Memory=65536), slot("b", Memory=2048), slot("c", Memory=65536, Start=False))
    found = explain_job(slots, job("TARGET.Memory >= 999999 && TARGET.Cpus >= 1"))
    change = Change("change", "TARGET.Memory >= 999999", to="TARGET.Memory >= 65536")
    assert found.suggestions == (Suggestion((change,), 1),)


@pytest.mark.parametrize(
    ("condition", "to", "gains"),
    [
        ("TARGET.Memory > 999999", "TARGET.Memory >= 8192", 3),
        ("999999 <= TARGET.Memory", "TARGET.Memory >= 8192", 3),
        ("TARGET.Memory < 10", "TARGET.Memory <= 8192", 3),
        ("TARGET.Memory <= -10", "TARGET.Memory <= 8192", 3),
        ("TARGET.Memory == 10", "TARGET.Memory == 8192", 3),
        ('TARGET.OpSys == "WINDOWS"', 'TARGET.OpSys == "LINUX"', 3),
        ('TARGET.OpSys =?= "linux"', 'TARGET.OpSys =?= "LINUX"', 3),
        ("TARGET.KFlops > 5", "", 3),  # no slot has it: nothing to change it to
        ("TARGET.HasDocker", "", 3),
        ('TARGET.OpSys != "LINUX"', "", 3),
        ("TARGET.Nothing > 3 || TARGET.Memory < 3", "", 3),
        ("false", "", 3),
        ("random() > 5.0", "", 3),
        ("TARGET.Memory * 2 > 99999", "TARGET.Memory * 2 >= 16384", 3),
        ('TARGET.Machine == "slot9"', 'TARGET.Machine == "node0"', 1),
    ],
)
def test_one_condition_in_the_way(condition, to, gains):
    found = explain_job(pool(*nodes(3)), job(f"({condition}) && TARGET.Cpus >= RequestCpus"))
    assert found.capacity == 0
    (suggestion,) = found.suggestions
    assert suggestion.gains == gains
    (change,) = suggestion.changes
    assert (change.action, change.to) == ("change" if to else "drop", to)


def test_two_things_in_the_way_are_told_together():
    slots = pool(slot("a", Arch="aarch64"), slot("b", Arch="aarch64", Cpus=8), slot("c", Arch="ppc64", OpSys="AIX"))
    wants = 'TARGET.Arch == "X86_64" && TARGET.Memory >= RequestMemory && TARGET.OpSys == "LINUX"'
    found = explain_job(slots, job(wants, RequestMemory=20_000))
    assert found.suggestions[0] == Suggestion(
        (
            Change("change", 'TARGET.Arch == "X86_64"', to='TARGET.Arch == "aarch64"'),
            Change("set", "RequestMemory", to="8192", was="20000"),
        ),
        2,
    )
    assert len(found.suggestions) == 1  # the third slot would need three changes


def test_one_slot_must_be_content_with_all_of_the_changes():
    slots = pool(slot("memory", Memory=65536, Cpus=2), slot("cpus", Memory=4096, Cpus=64))
    found = explain_job(slots, job(RequestMemory=10**6, RequestCpus=1000))
    assert found.suggestions[0].gains == 1
    assert {c.what: c.to for c in found.suggestions[0].changes} == {"RequestMemory": "65536", "RequestCpus": "2"}


def test_nothing_that_the_owner_could_change():
    found = explain_job(pool(*nodes(3, Start='=TARGET.Owner == "bob"')), job())
    assert found.suggestions == ()
    assert found.outcomes == {"slot-requirements": 3}
    assert found.verdict == "Slots satisfy its Requirements, but none accepts it: it does not run as things are."


def test_no_slot_is_short_of_the_minimum_after_a_change():
    """A slot with nothing in it is no reason to ask for nothing."""
    assert explain_job(pool(slot("a", Memory=0)), job()).suggestions == ()


def pslot(name: str, cpus: int, memory: int, **more: object) -> ClassAd:
    return slot(name, PartitionableSlot=True, Cpus=cpus, Memory=memory, **more)


def test_partitionable_slots_that_are_in_use_are_short_not_unfit():
    slots = pool(
        pslot("slot1@a", 0, 128),
        slot("slot1_1@a", DynamicSlot=True, State="Claimed", RemoteUser="bob@pool", Cpus=4, Memory=8064),
        pslot("slot1@b", 2, 512),
        slot("slot1_1@b", DynamicSlot=True, State="Claimed", RemoteUser="carol@pool", Cpus=2, Memory=7680),
        pslot("slot1@c", 4, 8192, TotalSlotMemory=512),  # an odd ad: more than the whole is left
    )
    found = explain_job(slots, job(RequestMemory=2048, RequestCpus=3))
    assert found.outcomes["in-use"] == 2
    cpus, memory = found.short
    assert cpus == Amount("Cpus", 3.0, whole=12.0, free=6.0, most=4.0, short=2)
    assert memory == Amount("Memory", 2048.0, whole=8192.0 + 8192.0 + 512.0, free=8832.0, most=8192.0, short=2)
    assert found.users == {"bob@pool": 1, "carol@pool": 1}
    assert found.capacity == 3
    assert "RequestMemory" not in {c.what for s in found.suggestions for c in s.changes}


def test_a_job_that_waits_for_a_busy_pool_is_told_so():
    slots = pool(pslot("slot1@a", 0, 0), slot("slot1_1@a", DynamicSlot=True, State="Claimed", RemoteUser="b"))
    found = explain_job(slots, job(RequestMemory=4096))
    assert found.verdict == "It waits for a cpu: 4 of 4 are claimed."
    assert found.blocked_by == ("in-use",)
    assert found.outcomes == {"claimed": 1, "in-use": 1}  # the part is no slot that "does not satisfy" anything
    assert found.suggestions == ()


def test_a_request_beyond_the_whole_of_a_partitionable_slot():
    slots = pool(pslot("slot1@a", 1, 1024), slot("slot1_1@a", DynamicSlot=True, State="Claimed", Memory=7168))
    found = explain_job(slots, job(RequestMemory=100_000))
    assert found.suggestions == (Suggestion((Change("set", "RequestMemory", to="8192", was="100000"),), 1),)


def test_the_last_rejection_is_told():
    stale = {"LastRejMatchReason": "too slow", "LastRejMatchTime": 5, "LastMatchTime": 9}
    assert explain_job(pool(slot("a")), job(**stale)).last is None
    fresh = {**stale, "LastRejMatchTime": 10}
    assert explain_job(pool(slot("a")), job(**fresh)).last == Rejection("too slow", at=10.0)
    said = Rejection("concurrency limit xsw is full", "limit", 11.0, {"limit": 1})
    found = explain_job(pool(slot("a")), job(**fresh), said)
    assert found.last == said
    assert found.verdict == "1 slot could run it now, but the last cycle gave it none: concurrency limit xsw is full."


def test_verdicts_where_nothing_is_free():
    def verdict(*ads):
        return explain_job(pool(*ads), job()).verdict

    claimed = {"State": "Claimed", "RemoteUser": "bob@pool"}
    assert verdict(*nodes(2, **claimed)) == "It waits for a slot: 2 of 2 that suit are claimed."
    asleep, called = slot("s", Offline=True), slot("c", Offline=True, MachineLastMatchTime=900)
    assert verdict(asleep) == "The machines that suit sleep: one is woken when a cycle finds no other slot for the job."
    assert verdict(asleep, called) == (
        "The machines that suit sleep. 1 slot that sleeps is to be woken: the job waits for that."
    )
    assert verdict(slot("busy", **claimed), called) == (
        "It waits for a slot: 1 of 1 that suit is claimed. 1 slot that sleeps is to be woken."
    )
    promised = explain_job(pool(slot("a"), unoffered={"a": "match-under-way"}), job()).verdict
    assert promised == "Slots that suit are not on offer at this moment; it may get one in a moment."


@pytest.mark.parametrize(
    ("more", "state", "says"),
    [
        ({"JobStatus": 2, "RemoteHost": "slot1@a"}, "running", "It is running on slot1@a."),
        (
            {"JobStatus": 2, "TransferInputBytesDone": 5000, "TransferInputBytesTotal": 10000},
            "running",
            "It is running. Its input is on its way: 5.0 of 10.0 kB.",
        ),
        (
            {"JobStatus": 5, "HoldReason": "by hand", "HoldReasonCode": 1, "HoldReasonSubCode": 2},
            "held",
            "It is on hold: by hand (code 1/2); it can run once it is released.",
        ),
        ({"JobStatus": 4, "ExitCode": 3}, "completed", "It is completed with exit code 3."),
        ({"JobStatus": 3}, "removed", "It is removed."),
        ({"JobStatus": 99}, "idle", "1 slot could run it now; it waits for the next negotiation cycle."),
    ],
)
def test_jobs_in_every_state(more, state, says):
    found = explain_job(pool(slot("a")), job(**more))
    assert (found.state, found.verdict) == (state, says)
    assert found.job == "12.0"


def test_a_held_job_is_told_what_would_help_too():
    found = explain_job(pool(slot("a")), job(JobStatus=5, RequestCpus=99))
    assert found.suggestions[0].changes == (Change("set", "RequestCpus", to="4", was="99"),)


def test_pools_and_jobs_without_anything():
    assert explain_job(pool(), job()).verdict == "There are no slots in the pool."
    nothing = explain_job(pool(ClassAd({"Name": "bare"})), ClassAd())
    assert nothing.outcomes == {"job-requirements": 1}
    assert nothing.job == "0.0"
    odd = ClassAd({"ClusterId": "x", "JobStatus": "y", "Requirements": "text", "LastRejMatchTime": float("nan")})
    assert explain_job(pool(slot("a")), odd).outcomes == {"job-requirements": 1}


def test_reports_are_plain_values():
    import json

    said = to_map(explain_job(pool(slot("a"), slot("b", Memory=1)), job(), Rejection("x", counts={"taken": 1})))
    assert json.loads(json.dumps(said)) == said
    assert said["outcomes"] == {"free": 1, "job-requirements": 1}
    assert said["suggestions"][0]["changes"][0] == {
        "action": "set",
        "what": "RequestMemory",
        "to": "1",
        "was": "1024",
    }


def test_an_explanation_that_takes_too_long_ends():
    class Enough(Exception):
        pass

    def patience():
        raise Enough

    slots = pool(*[slot(f"s{n}", Parts=f"={{ {n} }}") for n in range(5)], patience=patience)
    with pytest.raises(Enough):
        explain_job(slots, job("TARGET.Parts[0] == 3"))


def test_columns_are_read_in_one_go(monkeypatch):
    """Each pass over the ads costs some tenths of a second in a large pool."""
    slots = pool(*nodes(3, Alpha=1, Beta=2, Gamma="x"))
    passes = []
    plain = type(slots.table)._read
    monkeypatch.setattr(type(slots.table), "_read", lambda *args: passes.append(args[2]) or plain(*args))
    wanted = job("Wish && TARGET.Gamma == Word", Wish="=TARGET.Alpha == 1 && Beta > Number", Number=1, Word="x")
    assert explain_job(slots, wanted).outcomes == {"free": 3}
    assert len(passes) == 1


@pytest.mark.parametrize(
    ("groups", "verdict"),
    [
        ({}, "As for the others: 3 slots could run it now; it waits for the next negotiation cycle."),
        ({"NodeGroups": "1,2"}, "As for node 0: 3 slots could run it now; it waits for the next negotiation cycle."),
        (
            {"NodeGroups": "1,2", "NodeGroup1_RequestMemory": 10**6},
            "As for nodes 1 to 2: No slot satisfies its Requirements",
        ),
        (
            {"NodeGroups": "2,1", "RequestMemory": 10**6, "NodeGroup1_RequestMemory": 1},
            "As for nodes 0 to 1: No slot satisfies its Requirements",
        ),
        (
            {"NodeGroups": "2,1", "NodeGroup1_Requirements": "=false"},
            "As for node 2: No slot satisfies its Requirements",
        ),
        ({"NodeGroups": "9,9"}, "As for the others: 3 slots could run it now"),  # an ad that makes no sense
    ],
)
def test_of_a_job_with_groups_of_machines_those_are_told_that_stand_worst(groups, verdict):
    asked = job(JobUniverse=11, MinHosts=3, MaxHosts=3, CurrentHosts=1, **groups)
    found = explain_job(pool(*nodes(3)), asked)
    assert found.verdict.startswith(f"It has 1 of 3 machines, and starts when it has all. {verdict}")


def test_a_job_with_groups_of_machines_that_runs_is_told_as_any_other():
    groups = {"NodeGroups": "1,2", "NodeGroup1_RequestMemory": 10**6}
    found = explain_job(pool(*nodes(3)), job(JobUniverse=11, MinHosts=3, MaxHosts=3, JobStatus=2, **groups))
    assert found.verdict == "It is running."
