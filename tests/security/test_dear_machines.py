"""What the owner of one machine can cost all others with the expressions in its ads: neither the loop of a collector or
negotiator for more than 50 ms, nor the time of a cycle, an analysis or a what-if."""

import time

import pytest

from engine.fairshare.priorities import Record
from engine.match.cycle import negotiate
from engine.match.model import CycleConfig
from engine.match.slot_table import SlotTable
from roost.whatif import what_if
from services.negotiator.analyze_rpc import AnalyzedJob, Analyzer, PoolState
from shared.bus.api import Exchange
from shared.classad import ClassAd, parse_expr
from shared.classad.budget import TooExpensive
from shared.classad.cells import LONGEST_TEXT, PackedError
from shared.classad.columnar import Meter
from shared.classad.columnar.meter import DEAR_S, ENOUGH, MOST_OWNERS, MOST_S, OWNER_S
from shared.config import load_config
from shared.messages.ads import AdUpdate
from tests.loop_meter import measured
from tests.security.hostile import CORPUS
from tests.security.processor_time import SILENCE_S, cost
from tests.unit.negotiator.test_ad_intake import Desk
from tests.unit.negotiator.test_cycle import request
from tests.waiting import eventually
from tests.wholepool import WholePool

#: A condition that is dear for each pair of job and slot anew.
DEAR = f"size({CORPUS['strcat']}) =?= size(strcat(MY.Name, TARGET.Name, TARGET.Owner, TARGET.JobPrio))"
NOW = 1_000_000.0
CONFIG = CycleConfig(monotonic=time.monotonic)
#: What all that one machine may cost a cycle takes at most.
MOST_CPU_S = ENOUGH * (OWNER_S + MOST_S)


def machine(host, slots, requirements, **more):
    return [
        ClassAd(
            {
                "Name": f"slot{number}@{host}",
                "Machine": host,
                "Cpus": 1,
                "Memory": 4096,
                "State": "Unclaimed",
                "Requirements": parse_expr(requirements),
                **more,
            }
        )
        for number in range(slots)
    ]


def jobs(submitters, requirements="TARGET.Memory >= 1"):
    return {
        f"user{number}@p": [
            request(1, autocluster=number, Owner=f"user{number}", JobPrio=1, Requirements=parse_expr(requirements))
        ]
        for number in submitters
    }


def snapshot(ads, requests):
    table = SlotTable(CONFIG)
    for ad in ads:
        name = str(ad["Name"])
        table.put(name, ad, f"startd@{name.partition('@')[2]}")
        table.claims[name] = "claim"
    return table.snapshot(CONFIG, requests, {name: Record() for name in requests})


def cycle(ads, requests):
    """The cycle, and the processor seconds that it took."""
    taken, began = snapshot(ads, requests), time.thread_time()
    return negotiate(taken, CONFIG, NOW), time.thread_time() - began


def test_a_machine_of_dear_expressions_takes_a_cycle_little_time_and_is_left_out():
    """Without a bound each of the 40 jobs pays for each of its 60 slots: half a minute."""
    requests = jobs(range(40))
    honest = machine("good", 40, "TARGET.JobPrio >= 0")
    _, plain = cycle(honest, requests)
    result, took = cycle([*honest, *machine("evil", 60, DEAR)], requests)
    assert {match.slot.partition("@")[2] for match in result.matches} == {"good"}
    assert len(result.matches) == 40
    assert list(result.dear) == ["startd@evil"]
    assert result.dear["startd@evil"] <= MOST_CPU_S
    assert took < plain + 2 * MOST_CPU_S + 0.5


def test_a_dear_submitter_takes_no_machine_from_the_others():
    requests = jobs(range(10)) | jobs([99], DEAR)
    hosts = [machine(f"m{number}", 2, "TARGET.JobPrio >= 0") for number in range(10)]
    result, _ = cycle([ad for ads in hosts for ad in ads], requests)
    assert {match.submitter for match in result.matches} == jobs(range(10)).keys()


def test_who_is_dear_to_several_is_dear_to_all_and_who_finds_all_dear_is_dear_himself():
    meter = Meter(lambda key: key.partition("@")[2])

    def meets(asker, host):
        meter.asker = asker
        for _ in range(3):
            if not meter.is_out(f"slot1@{host}"):
                meter.add((f"slot1@{host}",), MOST_S)

    for number in range(ENOUGH - 1):
        meets(f"user{number}", "evil")
    meter.asker = "somebody"
    assert not meter.is_out("slot1@evil")
    meets("another", "evil")
    meter.asker = "somebody"
    assert meter.is_out("slot1@evil")
    for owner in range(MOST_OWNERS + 5):  # after as many of them its word counts nothing
        for asker in ("eve", "eva", "evi"):
            meets(asker, f"m{owner}")
    meter.asker = "somebody"
    assert [meter.is_out(f"slot1@m{owner}") for owner in range(MOST_OWNERS + 5)] == [True] * MOST_OWNERS + [False] * 5
    assert not Meter(str).is_out("slot1@m1")


def test_ordinary_evaluations_are_never_dear_however_many():
    meter = Meter(str)
    for _ in range(100_000):
        meter.add(("a",), DEAR_S * 0.9)
    meter.add(["a"] * 10_000, 0.4)  # a table at once
    assert meter.idle


#: Each attribute that is looked at as an ad is taken in.
LOOKED_AT = (
    *("State", "Activity", "Offline", "PartitionableSlot", "Cpus", "Memory", "Disk", "SlotWeight", "MyAddress"),
    *("RoostClaims", "RoostLook", "RoostClaimedAt", "RoostPastClaims", "RemoteUser", "AccountingGroup", "Machine"),
)


def dear_ads(count):
    """Each by another text, so that nothing can be kept of one for the next."""
    return [
        ClassAd(
            {
                "Name": f"slot{number}@evil",
                **{name: parse_expr(f"{CORPUS['strcat']} =?= {number}") for name in LOOKED_AT},
            }
        ).pack()
        for number in range(count)
    ]


def long_ads(count):
    """Nothing but long expressions, all different."""
    return [
        ClassAd(
            {
                "Name": f"slot{number}@evil",
                **{f"A{n}": parse_expr("+".join(f"b{number}_{n}_{i}" for i in range(1500))) for n in range(4)},
            }
        ).pack()
        for number in range(count)
    ]


@pytest.mark.parametrize(("made", "count"), [(dear_ads, 100), (long_ads, 15)])
def test_taking_in_a_machines_ads_holds_no_loop_and_the_machine_is_told_of_once(made, count):
    ads = made(count)

    def taken():
        desk = Desk(NEGOTIATOR_SLOT_CONSTRAINT="Cpus =!= 17")
        desk.slot("slot1@good", "startd@good", State="Unclaimed")
        desk.said = {f"slot{n}@evil": packed for n, packed in enumerate(ads)}
        return desk

    def work():
        nonlocal desk
        desk = taken()
        desk.say("Machine", "startd@evil", desk.said)

    desk = None
    assert cost(work) < SILENCE_S
    assert "slot1@good" in desk.table.ads
    assert len(desk.table.ads) <= 1 + 5  # those before the budget was spent
    ((kind, daemon, _, error),) = desk.refused
    assert (kind, daemon) == ("Machine", "startd@evil")
    assert "the ads of startd@evil: their expressions take too long (processor time)" in str(error)


def test_a_machine_may_have_many_ordinary_slots():
    desk = Desk(NEGOTIATOR_SLOT_CONSTRAINT='regexp("^slot", Name) && Memory > 1')
    ordinary = {
        f"slot{n}@good": ClassAd(
            {
                "Name": f"slot{n}@good",
                "Memory": parse_expr("1024 * 4"),
                "SlotWeight": parse_expr("Cpus"),
                "Cpus": 1,
                "Requirements": parse_expr("START && (TARGET.RequestCpus <= Cpus)"),
                "START": True,
            }
        ).pack()
        for n in range(1000)
    }
    desk.say("Machine", "startd@good", ordinary)
    assert len(desk.table.ads) == 1000
    assert desk.refused == []


def test_an_expression_that_is_too_long_to_be_read_is_refused_with_its_length():
    text = b"1" + b"+1" * LONGEST_TEXT
    from msgpack import ExtType, packb

    ad = ClassAd.unpack(packb({"A": ExtType(1, text)}))

    def read():
        with pytest.raises(PackedError, match=f"an expression of {len(text)} bytes.*at most {LONGEST_TEXT} are read"):
            ad.find("a")

    assert cost(read) < SILENCE_S / 2


def test_an_analysis_of_a_job_leaves_a_dear_machine_out_and_goes_on():
    ads = [*machine("evil", 400, DEAR), *machine("good", 3, "TARGET.JobPrio >= 0")]
    packed = {str(ad["Name"]): ad.pack() for ad in ads}
    job = request(1, Owner="alice", JobPrio=1).ad
    job.update({"ClusterId": 1, "ProcId": 0, "JobStatus": 1})
    began = time.thread_time()
    (report,) = Analyzer().jobs(packed, PoolState(NOW, dict.fromkeys(packed, "claim")), [AnalyzedJob(job)], "")
    assert time.thread_time() - began < 3.0
    assert report["outcomes"]["free"] == 3


def test_a_what_if_ends_with_the_limit_that_it_met():
    config = load_config([], subsystem="NEGOTIATOR", env={})
    ads = machine("evil", 60, DEAR)
    job = request(1, Owner="alice", JobPrio=1).ad
    job.update({"ClusterId": 1, "ProcId": 0, "JobStatus": 1, "User": "alice@p", "MyType": "Job", "QDate": 1})
    for ad in ads:
        ad["MyType"] = "Machine"
    with pytest.raises(TooExpensive, match="this what-if: the limit of processor time for one question is met"):
        what_if(ads, [job], [], config, NOW, most_s=0.3)
    assert what_if(machine("good", 1, "true", MyType="Machine"), [job], [], config, NOW, most_s=5.0).placed


async def test_no_daemon_is_held_by_the_ads_of_one_machine(tmp_path):
    """Real daemons, all on this loop: a collector that keeps the ads of sleeping machines, and a negotiator."""
    async with WholePool(tmp_path, cpus=1, COLLECTOR_PERSISTENT_AD_LOG="/on", ABSENT_REQUIREMENTS="Cpus > 1") as pool:
        bus = await pool.bus("startd.evil")
        packed = dear_ads(100)
        names = [f"slot{n}@evil" for n in range(len(packed))]
        found = []
        for sequence in range(1, 4):
            update = AdUpdate(
                my_type="Machine",
                daemon="startd@evil",
                start_time=1,
                sequence=sequence,
                names=names,
                ads=packed,
            )
            with measured() as held:
                await bus.publish(Exchange.ADS, "update.Machine.startd@evil", update)
                await eventually(lambda n=sequence: sequence_of(pool.collector.directory.table, "startd@evil") == n)
                await eventually(lambda n=sequence: sequence_of(pool.negotiator.ads, "startd@evil") == n)
            found.append((held.longest_s, held.worst[:2]))
        assert min(found)[0] < SILENCE_S, found
        assert pool.dead() == {}


def sequence_of(table, name):
    group = table.group("Machine", name)
    return group.sequence if group is not None else 0
