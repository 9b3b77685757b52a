"""What needs attention: each cause is found, what is well is not told, and the gravest comes first."""

from dataclasses import replace

import pytest

from engine.attention import (
    MOST_OF_ONE,
    QUEUE_LONG,
    VERY_OLD_S,
    Certificate,
    Daemon,
    Disk,
    Ended,
    Facts,
    Gone,
    Jobs,
    Oldest,
    Queue,
    attention,
)

NOW = 1_795_000_000.0
KINDS = ("Collector", "Scheduler", "Negotiator")
WELL = Facts(
    daemons=[Daemon(kind, f"{kind.lower()}1", "1.0", NOW - 20) for kind in KINDS],
    machines={"1.0": 3},
    leader="negotiator1",
    cycle_ended=NOW - 30,
    idle=12,
    oldest=Oldest("3.0", "ap1", NOW - 60),
    ended=[Ended("ap1", 3, "node1", 40, 1)],
    queues=[Queue("schedd.ap1", 20)],
    dead_letters=0,
    disks=[Disk("machine node1", "jobs", 50_000.0)],
    certificates=[Certificate("gateway", NOW + 90 * 86_400)],
)


def found(**changed):
    return [(one.level, one.code) for one in attention(replace(WELL, **changed), NOW)]


def test_a_pool_that_is_well_needs_nothing():
    assert attention(WELL, NOW) == []


def test_nobody_who_looked_is_not_taken_for_a_pool_without_daemons():
    assert attention(Facts(), NOW) == []


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({"daemons": [one for one in WELL.daemons if one.kind != "Scheduler"]}, ("error", "no-daemon")),
        ({"machines": {}}, ("error", "no-daemon")),
        ({"silent_machines": [Daemon("Machine", "node2", "1.0", NOW - 700)]}, ("warning", "silent")),
        ({"daemons": [*WELL.daemons, Daemon("HAD", "cm2", "1.0", NOW - 700)]}, ("warning", "silent")),
        ({"daemons": [*WELL.daemons, Daemon("Journal", "j", "1.0", NOW, "disk full")]}, ("error", "daemon-problem")),
        ({"daemons": [*WELL.daemons, Daemon("HAD", "cm2", "0.9", NOW)]}, ("note", "versions")),
        ({"machines": {"1.0": 3, "0.9": 1}}, ("note", "versions")),
        ({"gone": [Gone("node7", NOW - 300)]}, ("error", "machine-gone")),
        ({"leader": ""}, ("error", "no-leader")),
        ({"cycle_ended": NOW - 3600}, ("error", "no-cycle")),
        ({"held": [Jobs(3, "no such file", "7.0", "ap1", 12)]}, ("warning", "held")),
        ({"never": [Jobs(2, "no slot has so much memory", "8.0", "ap1")]}, ("warning", "never-runnable")),
        ({"oldest": Oldest("3.0", "ap1", NOW - 2 * 3600)}, ("note", "oldest-idle")),
        ({"oldest": Oldest("3.0", "ap1", NOW - VERY_OLD_S)}, ("warning", "oldest-idle")),
        ({"ended": [Ended("ap1", 3, "node1", 5, 5)]}, ("error", "failing-batch")),
        ({"ended": [Ended("ap1", 3, "node1", 6, 3)]}, ("warning", "failing-batch")),
        ({"queues": [Queue("roost.view", QUEUE_LONG + 1)]}, ("warning", "queue")),
        ({"dead_letters": 1}, ("warning", "dead-letters")),
        ({"disks": [Disk("machine node1", "jobs", 500.0)]}, ("warning", "disk")),
        ({"disks": [Disk("schedd ap1", "its queue", 20.0)]}, ("error", "disk")),
        ({"certificates": [Certificate("gateway", NOW - 1)]}, ("error", "certificate")),
        ({"certificates": [Certificate("gateway", NOW + 86_400)]}, ("warning", "certificate")),
        ({"unknown": {"the queues": "no answer within 8 s"}}, ("warning", "unknown")),
    ],
)
def test_each_cause_is_found_and_nothing_else(changed, expected):
    assert found(**changed) == [expected]


def test_old_cycles_matter_only_where_jobs_wait():
    assert found(cycle_ended=NOW - 3600, idle=0) == []


def test_few_jobs_that_failed_are_no_failing_batch():
    assert found(ended=[Ended("ap1", 3, "node1", 2, 2)]) == []
    assert found(ended=[Ended("ap1", 3, "node1", 10, 4)]) == []


def test_a_black_hole_is_told_and_the_batch_it_spoils_is_not():
    """Most of a batch failed, all on one machine: it is the machine, not the batch."""
    ended = [Ended("ap1", 3, "bad", 20, 20), Ended("ap1", 3, "good", 10, 0)]
    (only,) = attention(replace(WELL, ended=ended), NOW)
    assert only.code == "black-hole"
    assert only.about == {"page": "machine", "name": "bad"}
    assert "20 of 20" in only.text
    assert only.command == "roost drain bad"


def test_a_batch_that_fails_everywhere_makes_no_black_holes():
    ended = [Ended("ap1", 3, f"node{number}", 20, 20) for number in range(3)]
    (only,) = attention(replace(WELL, ended=ended), NOW)
    assert only.code == "failing-batch"
    assert (only.level, only.count) == ("error", 60)


def test_a_machine_that_alone_ran_a_batch_is_not_blamed():
    assert found(ended=[Ended("ap1", 3, "node1", 20, 20)]) == [("error", "failing-batch")]


def test_errors_come_before_warnings_before_notes():
    levels = [
        level
        for level, _ in found(
            oldest=Oldest("3.0", "ap1", NOW - 7200), dead_letters=2, leader="", held=[Jobs(1, "x", "7.0")]
        )
    ]
    assert levels == ["error", "warning", "warning", "note"]


def test_many_of_one_cause_are_counted():
    held = [Jobs(number, f"reason {number}", f"{number}.0", "ap1", 1) for number in range(1, MOST_OF_ONE + 3)]
    told = attention(replace(WELL, held=held), NOW)
    assert len(told) == MOST_OF_ONE + 1
    assert told[0].count == MOST_OF_ONE + 2  # most jobs first
    assert told[-1].text == "And 3 more held jobs for other reasons."  # 1 and 2 of the last two reasons
    assert told[-1].about == {"page": "jobs", "status": "Held"}


def test_words_fit_one_and_many():
    one, two = (
        attention(replace(WELL, held=[Jobs(number, "no such file", "7.0", "ap1", 12)]), NOW)[0] for number in (1, 2)
    )
    assert one.text == "1 job is held, the first 7.0: no such file (code 12)"
    assert two.text.startswith("2 jobs are held")
    (letter,) = attention(replace(WELL, dead_letters=1), NOW)
    assert letter.text == "1 message that no daemon could take lies in the dead letters."


def test_versions_are_told_with_whose_they_are():
    told = attention(
        replace(WELL, machines={"1.0": 30, "0.9": 2}, daemons=[*WELL.daemons, Daemon("HAD", "cm2", "0.8")]), NOW
    )
    assert told[0].text == ("Versions differ: most daemons are of 1.0, some of 0.9 (2 machines) and 0.8 (HAD cm2).")
    assert told[0].count == 3
