"""What ads, jobs and events say becomes facts; a part that can not be had, or seen, spoils no other."""

import pytest

from engine.attention import Disk, Ended, Gone, Jobs
from services.gateway.attention import Attention
from services.gateway.core import attention_facts
from services.gateway.core.attention_facts import MOST_ENDS, NEVER, Lately
from services.gateway.dashboard import Dashboard
from services.gateway.pool_client import PoolClient
from shared.bus.api import Exchange, Reject
from shared.bus.memory import MemoryBus, MemoryHub
from shared.classad import ClassAd, evaluate, parse_expr
from shared.daemon.clock import SystemClock
from shared.messages.ads import AdCounts, AdPage, CountAds
from shared.messages.base import Envelope
from shared.messages.events import DaemonGone, DaemonStarted, JobEnded
from shared.messages.queue import JobPage
from tests.speakers import Speakers
from tests.waiting import eventually

NOW = 1_795_000_000.0


def ended(at=NOW, job="12.0", slot="slot1_2@node1", failed=False):
    return JobEnded(at=at, schedd="ap1", job_id=job, owner="ada", slot=slot, attempt=1, failed=failed, ran_s=1.0)


@pytest.mark.parametrize(
    ("reason", "status", "stuck"),
    [
        ("can not run on any slot as things are (of 8 slots, 8 do not satisfy the job's Requirements)", 1, True),
        ("can not run on any slot as things are", 2, False),
        ("waits for a cpu: 8 of 8 are claimed", 1, False),
        (None, 1, False),
    ],
)
def test_jobs_that_can_never_run_are_found_by_what_their_cycle_said(reason, status, stuck):
    ad = ClassAd({"JobStatus": status} | ({"LastRejMatchReason": reason} if reason else {}))
    assert (evaluate(parse_expr(NEVER), ad) is True) == stuck


def test_the_first_of_jobs_that_are_alike_stands_for_all_of_them():
    ad = ClassAd({"ClusterId": 7, "ProcId": 0, "AutoClusterId": 3, "LastRejMatchReason": "can not run"})
    assert attention_facts.never([(ad, "ap1")], {("ap1", 3): 40}) == [Jobs(40, "can not run", "7.0", "ap1")]
    assert attention_facts.never([(ad, "ap2")], {("ap1", 3): 40})[0].count == 1


def test_the_job_that_is_idle_for_longest_is_not_the_one_that_was_submitted_first():
    """It ran meanwhile."""
    first = ClassAd({"ClusterId": 1, "ProcId": 0, "QDate": 100, "EnteredCurrentStatus": 900})
    second = ClassAd({"ClusterId": 2, "ProcId": 0, "QDate": 500, "EnteredCurrentStatus": 500})
    found = attention_facts.oldest([(first, "a"), (second, "a")])
    assert found is not None
    assert (found.job, found.since) == ("2.0", 500.0)
    assert attention_facts.oldest([]) is None


def test_what_a_daemon_says_is_wrong_with_it_is_kept():
    ads = [
        ClassAd({"MyType": "Journal", "Name": "j", "RoostVersion": "1", "JournalProblem": "disk full"}),
        ClassAd({"MyType": "HAD", "Name": "h", "LastHeardFrom": 50, "JournalProblem": ""}),
    ]
    assert [(one.kind, one.heard, one.problem) for one in attention_facts.daemons(ads)] == [
        ("Journal", 0.0, "disk full"),
        ("HAD", 50.0, ""),
    ]
    assert attention_facts.disks([ClassAd({"Machine": "node1", "TotalDisk": 2048})]) == [
        Disk("machine node1", "jobs", 2.0)
    ]


def test_ends_are_counted_by_cluster_and_machine_for_an_hour():
    lately = Lately()
    lately.job_ended(ended(NOW - 4000, failed=True))
    lately.job_ended(ended(NOW - 100, failed=True))
    lately.job_ended(ended(NOW - 50))
    lately.job_ended(ended(NOW - 10, slot="slot1@node2"))
    assert lately.ended(NOW) == [Ended("ap1", 12, "node1", 2, 1), Ended("ap1", 12, "node2", 1, 0)]
    assert lately.ended(NOW + 4000) == []


def test_no_more_ends_are_kept_than_there_is_room_for():
    lately = Lately()
    for number in range(MOST_ENDS + 10):
        lately.job_ended(ended(NOW, job=f"{number}.0"))
    assert sum(one.ended for one in lately.ended(NOW)) == MOST_ENDS


def test_a_machine_that_came_back_is_gone_no_more():
    lately = Lately()
    lately.went("startd@node1", NOW - 60)
    lately.went("startd@node2", NOW - 30)
    lately.went("schedd@ap1", NOW - 30)
    lately.went("startd@node1", NOW - 10)  # each collector tells it
    assert lately.gone(NOW) == [Gone("node1", NOW - 60), Gone("node2", NOW - 30)]
    lately.came("startd@node1")
    assert lately.gone(NOW) == [Gone("node2", NOW - 30)]
    assert lately.gone(NOW + 2 * 86_400) == []


class Pool:
    """A collector, a schedd and nothing else on a hub."""

    async def __aenter__(self):
        self.hub = MemoryHub()
        self.bus = MemoryBus(self.hub, sender="gateway.test")
        self.speakers = Speakers.on_hub(self.hub)
        await self.bus.start()
        self.attention = self.watching(5.0)
        return self

    def watching(self, patience_s):
        clock = SystemClock()
        client = PoolClient(self.bus, clock)
        return Attention(client, self.bus, Dashboard(client, clock, patience_s), clock, patience_s)

    async def __aexit__(self, *_):
        await self.speakers.stop()
        await self.bus.stop()

    async def serve(self, *, machines=3):
        schedd = ClassAd({"MyType": "Scheduler", "Name": "ap1", "MyAddress": "schedd.ap1", "TotalIdleJobs": 2})
        leader = ClassAd({"MyType": "Negotiator", "Name": "cm", "NegotiatorIsActive": True})
        stuck = ClassAd(
            {"ClusterId": 7, "ProcId": 0, "JobStatus": 1, "AutoClusterId": 3, "LastRejMatchReason": "can not run"}
        )
        held = ClassAd({"ClusterId": 8, "ProcId": 1, "HoldReason": "no file", "HoldReasonCode": 12})

        async def collector(envelope):
            body = envelope.body
            if isinstance(body, CountAds):
                return AdCounts(values=[["1.0"]], counts=[machines])
            kinds = {"Scheduler": schedd, "Negotiator": leader}
            return AdPage(ads=[ad.pack() for kind, ad in kinds.items() if kind in body.my_types])

        async def jobs(envelope):
            text = envelope.body.constraint
            found = [held] if "== 5" in text else [stuck] * 2 if "member" in text else [stuck]
            return JobPage(ads=[ad.pack() for ad in found])

        for inbox, sender, answer in (("collector", "collector.c", collector), ("schedd.ap1", "schedd.ap1", jobs)):
            await (await self.speakers.bus(sender)).serve(inbox, answer)

    async def codes(self, may=lambda operation: True):
        told = await self.attention.told(may)
        return {one["code"]: one for one in told["findings"]}, told["hidden"]


async def test_all_parts_are_collected():
    async with Pool() as pool:
        await pool.serve()
        for number in range(6):
            pool.attention.on_event(envelope(ended(SystemClock().now(), job=f"9.{number}", failed=True)))
        pool.attention.on_event(
            envelope(DaemonGone(at=1.0, collector="c", daemon="startd@node9", since=SystemClock().now()))
        )
        found, hidden = await pool.codes()
        assert set(found) == {"held", "never-runnable", "failing-batch", "machine-gone"}
        assert found["held"]["about"] == {"page": "job", "name": "8.1", "schedd": "ap1"}
        assert found["never-runnable"]["count"] == 2
        assert hidden == []
        pool.attention.on_event(
            envelope(DaemonStarted(at=2.0, daemon="startd@node9", subsystem="STARTD", release="1.0"))
        )
        assert "machine-gone" not in (await pool.codes())[0]


async def rejecting(_):
    raise Reject("no such thing")


def envelope(event):
    return Envelope(event)


async def test_dead_letters_are_for_who_may_see_them():
    async with Pool() as pool:
        await pool.serve()
        server = await pool.speakers.bus("collector.other")
        await server.consume("roost.collector", rejecting)
        pool.hub.inject(Exchange.ADS, "x", b"garbage")

        async def buried():
            return await pool.bus.waiting([Exchange.DEAD]) == {Exchange.DEAD: 1}

        await eventually(buried, what="a dead letter")
        found, _ = await pool.codes()
        assert found["dead-letters"]["count"] == 1
        found, hidden = await pool.codes(lambda operation: operation != "dead-letters")
        assert "dead-letters" not in found
        assert hidden == ["the dead letters"]
        found, hidden = await pool.codes(lambda operation: operation == "ads")
        assert "held" not in found
        assert hidden == ["the held jobs", "the idle jobs", "the dead letters"]


async def test_a_part_that_can_not_be_had_is_told():
    async with Pool() as pool:  # no collector at all
        pool.attention = pool.watching(0.2)
        found, _ = await pool.codes()
        assert "unknown" in found
        assert "Nothing is known of" in found["unknown"]["text"]
