"""What `roost had` shows of what the HADs say."""

import time

from roost.cli.had import lines

NOW = 1_700_000_000.0


def had(name, state="Passive", **changes):
    told = {
        "had": name,
        "shard": "",
        "state": state,
        "epoch": 7,
        "leader": "cm1",
        "since": NOW - 3661,
        "lease_left_s": 1.04 if state == "Leader" else 0.0,
        "answering": True,
        "held_back_s": 0.0,
        "books": "7.50",
        "in_redis": "7.50",
        "memory": "7.50",
        "snapshot": "7.48",
        "snapshot_taken": NOW - 20,
        "snapshot_file": "/spool/Accountantnew.log",
        "problem": "",
        "had_list": ["cm1", "cm2"],
        "changes": [
            {"at": NOW - 3661, "had": "cm1", "state": "leader", "epoch": 7, "reason": ""},
            {"at": NOW - 3662, "had": "cm2", "state": "passive", "epoch": 6, "reason": "cm1 has the lease"},
        ],
        "silent": "",
    }
    return told | changes


def shown(*hads):
    return list(lines(hads, NOW))


def test_leader_epoch_lease_states_and_last_changes():
    found = shown(had("cm1", "Leader"), had("cm2", snapshot_taken=0.0, held_back_s=90.5))
    at = time.strftime("%m/%d %H:%M:%S", time.localtime(NOW - 3662))
    taken = time.strftime("%m/%d %H:%M:%S", time.localtime(NOW - 20))
    assert found[0] == "cm1 leads under epoch 7, for 0+01:01:01; 1.0 s of its lease are left"
    assert found[3].split() == ["cm1", "Leader", "0+01:01:01", "answers", "7.50", "7.50", "7.48", *taken.split()]
    assert found[4].split() == ["cm2", "Passive", "0+01:01:01", "answers", "0+00:01:30", "7.50", "7.50"]
    assert found[-1] == f"  {at} cm2 passive, epoch 6: cm1 has the lease"


def test_nobody_leads_and_one_is_silent():
    found = shown(had("cm1", "Election", answering=False), {"had": "cm2", "shard": "", "silent": "no answer in 2 s"})
    assert found[0] == "Nobody leads."
    assert "cm2 does not answer: no answer in 2 s" in found
    assert found[4].split() == ["cm2", "silent"]


def test_copies_that_fail_or_are_not_made_are_pointed_out():
    assert "cm1 can not copy the books to /spool/Accountantnew.log: disk full" in shown(had("cm1", problem="disk full"))
    without = shown(had("cm1", "Leader", snapshot_file=""))
    assert "No copies of the accountant's books are kept (HAD_USE_REPLICATION is false)." in without


def test_each_negotiator_of_a_pool_has_a_part_of_its_own():
    found = shown(had("cm1", "Leader"), had("cm1", "Leader", shard="gpus", epoch=3))
    assert found[0].startswith("cm1 leads under epoch 7")
    assert any(line.startswith("Negotiator gpus: cm1 leads under epoch 3") for line in found)


def test_no_had_at_all():
    assert "Start it beside each of them" in shown()[0]
