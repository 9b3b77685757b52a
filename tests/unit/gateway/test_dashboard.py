"""What the dashboard asks of the pool: parts that fail alone, pages over several schedds, a missing journal."""

import pytest

from services.gateway.dashboard import Dashboard
from services.gateway.pool_client import PoolClient
from shared.bus.api import RemoteFailure
from shared.bus.memory import MemoryBus, MemoryHub
from shared.classad import ClassAd, column_page
from shared.daemon.clock import SystemClock
from shared.messages.ads import AdCounts, AdPage, CountAds, QueryAds
from shared.messages.base import Envelope, Failure
from shared.messages.events import JobStarted
from shared.messages.journal import AskJob, AskLeaders, JournalAnswer
from shared.messages.negotiation import Priorities
from shared.messages.queue import ALIKE, JobPage, QueryJobs
from tests.speakers import Speakers
from tests.waiting import eventually


class Pool:
    """Stand-ins on one hub: a collector that knows these ads, schedds with these jobs."""

    def __init__(self, patience_s=30.0):
        self.patience_s = patience_s
        self.hub = MemoryHub()
        self.bus = MemoryBus(self.hub, sender="gateway.test")
        self.speakers = Speakers.on_hub(self.hub)
        self.ads: dict[str, list[ClassAd]] = {}
        self.asked: list[QueryJobs] = []

    async def __aenter__(self):
        await self.bus.start()
        self.survey = Dashboard(PoolClient(self.bus, SystemClock()), SystemClock(), self.patience_s)
        return self

    async def __aexit__(self, *_):
        await self.speakers.stop()
        await self.bus.stop()

    async def serve(self, inbox, answer):
        """By a daemon whose inbox it is."""
        server = await self.speakers.bus(inbox if "." in inbox else f"{inbox}.test")
        await server.serve(inbox, answer)

    async def collector(self):
        async def answer(envelope):
            body = envelope.body
            if isinstance(body, CountAds):
                return AdCounts(values=[["Claimed", "Busy", 4, 0, False]], counts=[10])
            assert isinstance(body, QueryAds)
            ads = [ad.pack() for kind in body.my_types for ad in self.ads.get(kind, [])]
            return AdPage(ads=ads, fits=len(ads))

        await self.serve("collector", answer)

    async def schedd(self, name, jobs):
        self.ads.setdefault("Scheduler", []).append(
            ClassAd({"Name": name, "MyAddress": f"schedd.{name}", "TotalIdleJobs": jobs})
        )

        async def answer(envelope):
            body = envelope.body
            self.asked.append(body)
            if body.factories:
                late = ClassAd({"ClusterId": 7, "JobMaterializeItemCount": 100, "JobMaterializeNextProcId": 40})
                return JobPage(ads=[late.pack()] if jobs else [], next="", totals={})
            before = int(body.after.partition(".")[2]) if body.after else jobs
            procs = [] if body.constraint == "false" else list(range(before - 1, -1, -1))
            shown = procs[: body.limit]
            ads = [ClassAd({"ClusterId": 1, "ProcId": proc, "JobStatus": 1}).pack() for proc in shown]
            return JobPage(ads=ads, next=f"1.{shown[-1]}" if len(procs) > len(shown) else "", totals={"Idle": jobs})

        await self.serve(f"schedd.{name}", answer)

    async def sorted_schedd(self, name, jobs, gone):
        """One whose jobs, by cluster, ask for as much memory as their number; `gone` has left when it is asked for."""
        self.ads.setdefault("Scheduler", []).append(ClassAd({"Name": name, "MyAddress": f"schedd.{name}"}))

        async def answer(envelope):
            body = envelope.body
            wanted = {int(one.partition(".")[0]) for one in body.ids} - {gone} if body.ids else set(jobs)
            shown = [] if body.constraint == "false" else sorted(wanted & set(jobs), reverse=body.newest)
            ads = [ClassAd({"ClusterId": one, "ProcId": 0, "JobStatus": 1, "RequestMemory": one}) for one in shown]
            return JobPage(ads=[ad.pack() for ad in ads], next="", totals={"Idle": len(jobs)})

        await self.serve(f"schedd.{name}", answer)


async def test_held_jobs_are_counted_by_their_schedds():
    """One of a cluster that is held for too many reasons is counted by cluster; the others by reason."""

    async with Pool() as pool:
        pool.ads["Scheduler"] = [ClassAd({"Name": name, "MyAddress": f"schedd.{name}"}) for name in ("a", "b")]
        await pool.collector()

        def answers(name, most, counts):
            async def answer(envelope):
                body = envelope.body
                assert (body.constraint, body.columns) == ("JobStatus == 5", True)
                if len(body.by) > most:
                    return Failure(code="bad-request", reason="by: too many kinds")
                cells = [("ClusterId", [1] * len(counts)), ("ProcId", list(range(len(counts))))]
                cells += [("HoldReason", [f"no /{name}/{number}" for number in range(len(counts))]), (ALIKE, counts)]
                return JobPage(ads=[], columns=column_page.page(len(counts), cells), rows=len(counts))

            return answer

        await pool.serve("schedd.a", answers("a", 3, [9000, 1000]))
        await pool.serve("schedd.b", answers("b", 1, [70_000]))
        (line,) = await pool.survey.held_jobs.by_reason()
        assert (line["count"], line["reason"], line["first"], line["schedd"]) == (80_000, "no /a/0", "1.0", "a")


@pytest.mark.parametrize("limit", [1, 2, 3, 5, 50])
async def test_pages_of_jobs_go_on_from_schedd_to_schedd(limit):
    """Every job once, newest first in each queue; the totals are of all queues on each page."""
    async with Pool() as pool:
        for name, jobs in (("a", 5), ("b", 0), ("c", 3)):
            await pool.schedd(name, jobs)
        await pool.collector()
        seen, after = [], ""
        for _ in range(20):
            page = await pool.survey.job_page(after=after, limit=limit)
            assert page["totals"] == {"Idle": 8}
            assert page["schedds"] == ["a", "b", "c"]
            assert len(page["rows"]) <= limit
            seen += [(row["Schedd"], row["Id"]) for row in page["rows"]]
            after = page["next"]
            if not after:
                break
        assert seen == [("a", f"1.{proc}") for proc in (4, 3, 2, 1, 0)] + [("c", f"1.{proc}") for proc in (2, 1, 0)]


@pytest.mark.parametrize("limit", [2, 50])
async def test_sorted_pages_are_of_all_queues_as_one(limit):
    """By an attribute that alternates between the schedds; those that have left meanwhile are not there."""
    async with Pool() as pool:
        for name, numbers in (("a", (1, 4, 5)), ("b", (2, 3, 6))):
            await pool.sorted_schedd(name, numbers, gone=5)
        await pool.collector()
        seen, after = [], ""
        for _ in range(20):
            page = await pool.survey.job_page(order="-memory", after=after, limit=limit)
            assert (page["fits"], page["totals"], page["schedds"]) == (6, {"Idle": 6}, ["a", "b"])
            seen += [(row["Schedd"], row["Id"]) for row in page["rows"]]
            after = page["next"]
            if not after:
                break
        assert seen == [("b", "6.0"), ("a", "4.0"), ("b", "3.0"), ("b", "2.0"), ("a", "1.0")]


async def test_what_can_not_be_sorted_is_refused():
    async with Pool() as pool:
        await pool.schedd("a", 2)
        await pool.collector()
        with pytest.raises(RemoteFailure, match="history is newest first"):
            await pool.survey.job_page(order="memory", history=True)
        with pytest.raises(RemoteFailure, match="after"):
            await pool.survey.job_page(order="memory", after="a\x001.1")


async def test_a_cursor_of_nobody_is_refused():
    async with Pool() as pool:
        await pool.schedd("a", 2)
        await pool.collector()
        with pytest.raises(RemoteFailure, match="after"):
            await pool.survey.job_page(after="elsewhere\x001.1")


async def test_filters_become_constraints():
    async with Pool() as pool:
        await pool.schedd("a", 2)
        await pool.collector()
        await pool.survey.job_page(status="Held", user='x"y', search="sim")
        (asked,) = pool.asked
        assert asked.newest
        assert "JobStatus == 5" in asked.constraint
        assert '"x\\"y"' in asked.constraint
        assert "regexp" in asked.constraint


async def test_one_part_that_is_not_there_spoils_no_other():
    """No negotiator, no collector: the first page says what is missing, and shows the rest."""
    async with Pool(patience_s=0.3) as pool:
        pool.survey.on_event(
            Envelope(JobStarted(at=2e12, schedd="s", job_id="1.0", owner="o", slot="x", attempt=1, waited_s=4.0))
        )
        found = await pool.survey.overview()
        assert found["waits"]["p50"] == 4.0
        assert "no answer" in found["slots"]["error"]
        await pool.schedd("a", 2)
        await pool.collector()
        await eventually(answered(pool), what="the parts that were asked for before there was a collector")
        found = await pool.survey.overview()
        assert found["queue"]["idle"] == 2
        assert found["negotiators"] == []


def answered(pool):
    async def look():
        return (await pool.survey.overview())["slots"].get("used_cpus") == 40.0

    return look


async def test_a_journal_that_is_missing_silent_or_ignorant():
    async with Pool() as pool:
        assert await pool.survey.journal.recorded(AskLeaders()) == {"missing": "no journal daemon"}

        async def answer(envelope):
            if isinstance(envelope.body, AskJob):
                return Failure(code="not-found", reason="nothing is known of it")
            return JournalAnswer(data={"changes": []})

        await pool.serve("journal", answer)
        assert await pool.survey.journal.recorded(AskLeaders(limit=5)) == {"found": {"changes": []}}
        assert await pool.survey.journal.recorded(AskJob(job_id="1.0")) == {"missing": "nothing is known of it"}


async def test_groups_lend_what_their_own_members_leave():
    """A group's own quota is what is left of it for itself, without the groups below."""
    async with Pool() as pool:
        await pool.collector()
        quotas = {
            "<none>": ("<none>", 16, 0),
            "p": ("<none>", 8, 0),
            "p.a": ("p", 4, 8),
            "p.c": ("p", 3, 6),
            "b": ("<none>", 6, 2),
        }
        ads = [
            ClassAd(
                {"Name": name, "AccountingGroup": parent, "IsAccountingGroup": True, "SubtreeQuota": quota}
                | {"WeightedResourcesUsed": used, "PriorityFactor": 1.0, "Priority": 0.5}
            )
            for name, (parent, quota, used) in quotas.items()
        ]

        async def answer(_):
            return Priorities(ads=[ad.pack() for ad in ads])

        pool.ads["Negotiator"] = [ClassAd({"Name": "n", "Shard": ""})]
        await pool.serve("negotiator", answer)
        found = await pool.survey.groups()
        lent = {}
        for loan in found["loans"]:
            lent[loan["lender"]] = lent.get(loan["lender"], 0.0) + loan["amount"]
        assert sum(lent.values()) == pytest.approx(7.0)
        assert lent["p"] == pytest.approx(1.0)  # 8 less 4 and 3: nobody of its own uses it
        with pytest.raises(RemoteFailure, match="no submitter x"):
            await pool.survey.parity("x", "y")


async def test_clusters_with_jobs_to_come_are_on_the_first_page_of_all_jobs():
    """The schedd leaves out those that are over; no question is asked where a filter would not be heeded."""
    async with Pool() as pool:
        await pool.schedd("a", 2)
        await pool.schedd("b", 0)
        await pool.collector()
        (line,) = (await pool.survey.job_page(user="ann@pool"))["late"]
        assert (line["ClusterId"], line["Schedd"], line["Left"]) == (7, "a", 60)
        asked = [one.constraint for one in pool.asked if one.factories]
        assert len(asked) == 2
        assert all("JobMaterializePaused" in text and 'User == "ann@pool"' in text for text in asked)
        for more in ({"status": "Idle"}, {"search": "sleep"}, {"history": True}, {"after": "a\0001.1"}):
            assert (await pool.survey.job_page(**more))["late"] == []
        assert len([one for one in pool.asked if one.factories]) == 2


async def test_who_drains_and_wakes_machines_is_told_with_them():
    async with Pool() as pool:
        await pool.collector()
        pool.ads["Defrag"] = [ClassAd({"MyType": "Defrag", "Name": "d", "MachinesDraining": 2, "Secret": 1})]
        page = await pool.survey.machine_page(order="Machine", after="", limit=10, condition="asleep")
        assert page["keepers"] == {"Defrag": [{"Name": "d", "MachinesDraining": 2}], "Rooster": []}
