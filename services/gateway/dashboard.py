"""Answers the dashboard's questions about the pool. Each answer is counted, sorted and cut where the ads are, never by
fetching them all, and shared by all who look (single_flight)."""

from __future__ import annotations

import asyncio
import difflib
from collections.abc import Coroutine, Sequence
from functools import partial
from typing import Any, Final

from services.gateway.core import dashboard_rows, job_use, machine_map
from services.gateway.core.batches import BY as BATCHES_BY
from services.gateway.core.batches import FIELDS as BATCH_FIELDS
from services.gateway.core.batches import Batches
from services.gateway.core.dashboard_rows import Ends, WaitTimes
from services.gateway.core.fair_share import ROOT, GroupUse, Standing, loans, parity
from services.gateway.core.machine_map import MachineMap
from services.gateway.held_jobs import HeldJobs
from services.gateway.in_time import InTime
from services.gateway.journal_answers import JournalAnswers
from services.gateway.machine_past import MachinePast
from services.gateway.pool_client import JOB_TOTALS, PoolClient, Schedd
from services.gateway.single_flight import SharesAnswers, shared
from services.gateway.sorted_jobs import JobSorter
from shared.bus.api import RemoteFailure
from shared.classad.unparse import quote_string
from shared.cooperative import in_turns
from shared.daemon.clock import Clock
from shared.daemon.readable_ads import checked, of_each
from shared.messages.ads import AdCounts, AdPage, CountAds, QueryAds
from shared.messages.base import Envelope
from shared.messages.events import JobEnded, JobStarted
from shared.messages.queue import JobPage, QueryJobs
from shared.natural_sort import natural_key

#: Submitter ads looked at for who has most jobs.
MOST_SUBMITTERS: Final = 1000
#: Clusters of late materialization that are looked at for a page of jobs.
MOST_LATE: Final = 50
#: Accounts that are listed at all, the ones with most in use.
MOST_ACCOUNTS: Final = 20_000
ACCOUNTING_FRESH_S: Final = 2.0
#: Slots are all read for a picture of all machines.
MAP_FRESH_S: Final = 5.0
#: How long jobs put together by cluster are good, seconds.
BATCHES_FRESH_S: Final = 3.0
#: A page waits so long for a part of it, seconds, and is shown without.
PATIENCE_S: Final = 8.0
#: Where a negotiator does not say: PRIORITY_HALFLIFE's default, seconds.
HALF_LIFE_S: Final = 86_400.0
#: One ad of each machine.
FIRST_SLOT: Final = "SlotID == 1 && DynamicSlot =!= true"
MACHINE_ORDERS: Final = ("Machine", "TotalLoadAvg", "LoadAvg", "TotalCpus", "TotalMemory", "EnteredCurrentActivity")


class Dashboard(SharesAnswers):
    """Answers about the whole pool. Raises RoostError for what the pool refuses, or when it does not answer."""

    def __init__(self, pool: PoolClient, clock: Clock, patience_s: float = PATIENCE_S) -> None:
        self._pool = pool
        self._clock = clock
        self._in_time = InTime(patience_s)
        super().__init__(clock.monotonic)
        self.waits = WaitTimes()
        self.ends = Ends()
        self.journal = JournalAnswers(pool, clock)
        self.machine_past = MachinePast(pool, clock)
        self.sorter = JobSorter(pool, clock)
        self.held_jobs = HeldJobs(pool, clock)

    async def stop(self) -> None:
        """End what nobody waits for any more."""
        await self._in_time.stop()

    def on_event(self, envelope: Envelope) -> None:
        """One of roost.events."""
        if isinstance(envelope.body, JobStarted):
            self.waits.started(envelope.body.at, envelope.body.waited_s)
        elif isinstance(envelope.body, JobEnded):
            self.ends.ended(envelope.body.at, failed=envelope.body.failed)

    # The first page

    async def overview(self) -> dict[str, Any]:
        """All parts. One that can not be had is {"error": why}: the others are shown all the same."""
        asked: dict[str, Coroutine[Any, Any, Any]] = {
            "slots": self.slots(),
            "queue": self.queue(),
            "users": self.busiest(),
            "negotiators": self.negotiators(),
            "hads": self.leaders(),
            "holds": self.held_jobs.by_reason(),
        }
        found = await asyncio.gather(*(self._in_time.get(part) for part in asked.values()))
        now = self._clock.now()
        told = {"at": now, "waits": self.waits.told(now), "ends": self.ends.told(now)}
        return {**told, **dict(zip(asked, found, strict=True))}

    @shared()
    async def slots(self) -> dict[str, Any]:
        by = ["State", "Activity", "Cpus", "GPUs", "PartitionableSlot"]
        counts = await self._count("Machine", "", by)
        return dashboard_rows.by_state(counts.values, counts.counts)

    @shared()
    async def queue(self) -> dict[str, int]:
        names = ["TotalRunningJobs", "TotalIdleJobs", "TotalHeldJobs", "TotalRemovedJobs", "TotalJobAds"]
        return dashboard_rows.queue(await self._pool.read_ads(["Scheduler"], projection=names))

    async def busiest(self, most: int = 12) -> dict[str, Any]:
        """Submitters with most jobs, and how many have any."""
        lines = await self._submitters()
        return {"count": len(lines), "lines": lines[:most]}

    @shared()
    async def negotiators(self) -> list[dict[str, Any]]:
        """The negotiators and what each tells of its last cycles."""
        found = []
        for ad in await self._pool.read_ads(["Negotiator"]):
            told = dashboard_rows.plain(
                ad, ("Name", "Shard", "NegotiatorIsActive", "Epoch", "Cycles", "PriorityHalflife")
            )
            found.append({**told, "cycles": dashboard_rows.cycles(ad)})
        return sorted(found, key=lambda one: str(one.get("Name")))

    @shared()
    async def leaders(self) -> list[dict[str, Any]]:
        """The HADs as their ads tell."""
        names = ["Name", "Shard", "HadState", "HadEpoch", "HadLeader", "HadStateSince"]
        return [dashboard_rows.plain(ad, names) for ad in await self._pool.read_ads(["HAD"], projection=names)]

    # Machines

    @shared()
    async def slot_page(
        self, *, state: str = "", activity: str = "", search: str = "", order: str, after: str, limit: int
    ) -> dict[str, Any]:
        """{rows, next, fits}."""
        constraint = dashboard_rows.all_of(
            dashboard_rows.equals("State", state),
            dashboard_rows.equals("Activity", activity),
            dashboard_rows.slots_with(search),
        )
        page = await self._page("Machine", constraint, dashboard_rows.SLOT_FIELDS, order, after, limit)
        found = await of_each(page.ads, dashboard_rows.slot)
        return {"rows": found, "next": page.next, "fits": page.fits}

    async def machine_page(
        self, *, search: str = "", condition: str = "", order: str, after: str, limit: int
    ) -> dict[str, Any]:
        """{rows, next, fits, keepers}: a row tells of the machine's slots by state. condition: of rows.CONDITIONS."""
        constraint = dashboard_rows.all_of(
            FIRST_SLOT,
            dashboard_rows.looked_for(search, ("Machine",)),
            dashboard_rows.CONDITIONS[condition] if condition else "",
        )

        async def make() -> dict[str, Any]:
            page = await self._page("Machine", constraint, dashboard_rows.SLOT_FIELDS, order, after, limit)
            found = await of_each(page.ads, dashboard_rows.slot)
            names = [str(row.get("Machine", "")) for row in found]
            states: dict[str, dict[str, Any]] = {name: {} for name in names}
            if names:
                listed = ", ".join(map(quote_string, names))
                by = ["Machine", "State", "Cpus", "PartitionableSlot"]
                counts = await self._count("Machine", f"member(Machine, {{{listed}}})", by)
                for (name, slot_state, cpus, partitionable), count in zip(counts.values, counts.counts, strict=True):
                    each = cpus if isinstance(cpus, int | float) else 0
                    if str(name) not in states or (partitionable is True and each <= 0):
                        continue
                    line = states[str(name)].setdefault(str(slot_state), {"slots": 0, "cpus": 0})
                    line["slots"] += count
                    line["cpus"] += each * count
            lines = [{**row, "states": states[name]} for row, name in zip(found, names, strict=True)]
            return {"rows": lines, "next": page.next, "fits": page.fits}

        page = await self.single_flight.get(("machines", constraint, order, after, limit), make)
        return {**page, "keepers": await self.keepers()}

    @shared(MAP_FRESH_S)
    async def machine_map(self) -> bytes:
        """All machines, as core.machine_map.MachineMap tells them."""
        found = MachineMap()
        async for sheet, ads in self._pool.ad_sheets("Machine", "", machine_map.FIELDS):
            cells = (sheet.cells(name.lower()) for name in machine_map.FIELDS)
            await in_turns(found.add(zip(*cells, strict=True)))
            rows = await of_each(ads, partial(dashboard_rows.plain, names=machine_map.FIELDS))
            await in_turns(found.add([row.get(name) for name in machine_map.FIELDS] for row in rows))
        return await asyncio.to_thread(found.told, self._clock.now())

    @shared()
    async def keepers(self) -> dict[str, list[dict[str, Any]]]:
        """Who empties and who wakes machines: {"Defrag": [...], "Rooster": [...]}."""
        kinds = dashboard_rows.KEEPER_FIELDS
        asked = ["MyType", *(name for fields in kinds.values() for name in fields)]
        found: dict[str, list[dict[str, Any]]] = {kind: [] for kind in kinds}
        for ad in await self._pool.read_ads(list(kinds), projection=asked):
            kind = ad.eval_string("MyType")
            if kind in kinds:
                found[kind].append(dashboard_rows.plain(ad, kinds[kind]))
        return found

    @shared()
    async def machine(self, name: str, limit: int) -> dict[str, Any]:
        """{machine, slots, fits, about}: one machine's slots by name, and what its first slot tells of it. Raises
        RemoteFailure not-found."""
        constraint = dashboard_rows.equals("Machine", name)
        page = await self._page("Machine", constraint, (), "Name", "", limit)
        ads = await of_each(page.ads, checked)
        if not ads:
            raise RemoteFailure("not-found", f"there is no machine {name[:200]} in the pool")
        # slot2 before slot10
        ads.sort(key=lambda ad: natural_key(str(ad.eval("Name")).lower()))
        first = next((ad for ad in ads if ad.eval("DynamicSlot") is not True), ads[0])
        return {
            "machine": name,
            "slots": [dashboard_rows.slot(ad) for ad in ads],
            "fits": page.fits,
            "about": dashboard_rows.plain(first, dashboard_rows.MACHINE_FIELDS),
        }

    # Jobs

    async def job_page(
        self,
        *,
        schedd: str = "",
        status: str = "",
        user: str = "",
        search: str = "",
        machine: str = "",
        history: bool = False,
        order: str = "",
        after: str = "",
        limit: int = 50,
    ) -> dict[str, Any]:
        """{rows, next, totals, schedds, late}: newest first, schedd by schedd. totals: by status, of the whole queues;
        late: clusters of which jobs are to come into the queue, on the first page of queues that nothing filters.
        order: of core.job_order.ORDERS, with - before it descending: all queues as one, and in `fits` how many."""
        constraint = _chosen(status, user, search, machine)
        known = await self._pool.schedds()
        asked = [await self._pool.schedd(schedd)] if schedd else known
        if order:
            if history:
                raise RemoteFailure("bad-request", "order: the history is newest first; only queues are sorted")
            page = await self.sorter.page(asked, constraint, order, after, limit)
            return {**page, "schedds": [one.name for one in known], "late": []}
        place, _, job = after.rpartition("\0")
        if after and place not in [one.name for one in asked]:
            raise RemoteFailure("bad-request", "after: want what the page before gave as next")
        start = next((number for number, one in enumerate(asked) if one.name == place), 0)

        async def make() -> dict[str, Any]:
            found: list[dict[str, Any]] = []
            totals: dict[str, int] = {}
            coming, more = job, ""
            for number, one in enumerate(asked):
                # Every schedd tells its totals, also those whose jobs are not on this page.
                wanted = limit - len(found) if number >= start and not more else 0
                if history and not wanted:
                    continue
                page = await (
                    self._jobs(one, constraint, coming, wanted, history)
                    if wanted
                    else self._pool.ask(one.inbox, JOB_TOTALS, JobPage, timeout=30.0)
                )
                for key, count in page.totals.items():
                    totals[key] = totals.get(key, 0) + count
                if not wanted:
                    continue
                rows = await of_each(page.ads, partial(dashboard_rows.job, schedd=one.name))
                dashboard_rows.fill_reasons(rows, page.reasons)
                found += rows
                coming = ""
                if page.next:
                    more = f"{one.name}\0{page.next}"
                elif len(found) >= limit and number + 1 < len(asked):
                    more = f"{asked[number + 1].name}\0"
            late: list[dict[str, Any]] = []
            if not (history or after or status or search or machine):
                for one in asked:
                    late += await self._late(one, dashboard_rows.of_user(user), MOST_LATE - len(late))
            names = [one.name for one in known]
            return {"rows": found, "next": more, "totals": totals, "schedds": names, "late": late}

        return await self.single_flight.get(("jobs", schedd, constraint, history, after, limit), make)

    async def batch_page(
        self,
        *,
        schedd: str = "",
        status: str = "",
        user: str = "",
        search: str = "",
        machine: str = "",
        after: int = 0,
        limit: int = 50,
    ) -> dict[str, Any]:
        """{rows, next, fits, jobs, constraint}: jobs in the queues by cluster, see core.batches; jobs: how many fit in
        all, and by which ClassAd constraint, for whoever acts on all of them."""
        constraint = _chosen(status, user, search, machine)
        asked = [await self._pool.schedd(schedd)] if schedd else await self._pool.schedds()

        async def make() -> Batches:
            found = Batches()
            for one in asked:
                async for sheet, ads in self._pool.job_sheets(one, constraint, BATCH_FIELDS, by=BATCHES_BY):
                    found.add(one.name, sheet)
                    for ad in ads:
                        found.add_ad(one.name, ad)
            await asyncio.to_thread(found.order)
            return found

        batches = await self.single_flight.get(("batches", schedd, constraint), make, BATCHES_FRESH_S)
        return {**batches.page(after, limit), "constraint": constraint or "true"}

    async def job(self, job_id: str, schedd: str = "", *, user: str = "", admin: bool = False) -> dict[str, Any]:
        """{job, history, use, ad: {name: text}}: a job of a queue or a history, as far as this user sees it. Raises
        RemoteFailure not-found."""
        if not dashboard_rows.job_named(job_id) or "." not in job_id:
            raise RemoteFailure("bad-request", f"{job_id[:80]} names no job: write CLUSTER.PROC")
        asked = [await self._pool.schedd(schedd)] if schedd else await self._pool.schedds()
        for history in (False, True):
            question = QueryJobs(ids=[job_id], limit=1, history=history, user=user, admin=admin)
            for one in asked:
                async for page in self._pool.jobs(one, question):
                    for ad in await of_each(page.ads, checked):
                        return {
                            "job": dashboard_rows.job(ad, one.name),
                            "history": history,
                            "use": job_use.use(ad, self._clock.now()),
                            "ad": dashboard_rows.texts(ad),
                        }
        raise RemoteFailure("not-found", f"there is no job {job_id} in any queue or history")

    # Shares

    async def users(
        self, *, search: str = "", order: str = "-in_use", after: int = 0, limit: int = 100
    ) -> dict[str, Any]:
        """{rows, next, fits, in_use, half_life_s}: who may use the pool, with priorities and what they have in the
        queue. in_use: weighted slots of all of them together."""
        (_, people), lines, half_life = await asyncio.gather(self._accounts(), self._submitters(), self.half_life())
        queued = {line["name"].lower(): line for line in lines}
        wanted = search.strip().lower()
        found = []
        for row in people:
            if wanted not in row["Name"].lower():
                continue
            jobs = queued.get(row["Name"].lower(), {})
            found.append({**row, **{key: jobs.get(key, 0) for key in ("running", "idle", "held")}})
        key, descending = dashboard_rows.USER_ORDERS[order.removeprefix("-")], order.startswith("-")
        found.sort(key=lambda row: row["Name"])
        found.sort(key=lambda row: dashboard_rows.sortable(row.get(key)), reverse=descending)
        end = after + limit
        return {
            "rows": found[after:end],
            "next": end if end < len(found) else None,
            "fits": len(found),
            "in_use": sum(float(row.get("WeightedResourcesUsed", 0.0)) for row in people),
            "half_life_s": half_life,
        }

    async def groups(self) -> dict[str, Any]:
        """{groups, loans, pool}: accounting groups with quotas and use, and who uses what of whose quota."""
        (found, people), slots = await asyncio.gather(self._accounts(), self._in_time.get(self.slots()))
        planned = any(row.get("SubtreeQuota", 0) for row in found)
        whole = {row["Name"]: float(row.get("SubtreeQuota" if planned else "ConfigQuota", 0.0)) for row in found}
        above = {row["Name"]: str(row.get("AccountingGroup", ROOT)) for row in found}
        given = dict.fromkeys(whole, 0.0)  # to the groups right below
        for name, parent in above.items():
            if parent != name and parent in given:
                given[parent] += whole[name]
        stands = [
            GroupUse(
                row["Name"],
                above[row["Name"]],
                max(0.0, whole[row["Name"]] - given[row["Name"]]),
                float(row.get("WeightedResourcesUsed", 0.0)),
            )
            for row in found
        ]
        members: dict[str, int] = {}
        for row in people:
            group = str(row.get("AccountingGroup", ROOT))
            members[group] = members.get(group, 0) + 1
        return {
            "groups": [{**row, "members": members.get(row["Name"], 0)} for row in found],
            "loans": [{"lender": one.lender, "borrower": one.borrower, "amount": one.amount} for one in loans(stands)],
            "planned": planned,
            "cpus": slots.get("cpus", 0.0),
        }

    async def parity(self, first: str, second: str) -> dict[str, Any]:
        """When two submitters will have the same effective priority. Raises RemoteFailure not-found."""
        (_, people), half_life = await asyncio.gather(self._accounts(), self.half_life())
        now = self._clock.now()
        standing = []
        for name in (first, second):
            row = next((row for row in people if row["Name"] == name), None)
            if row is None:
                raise RemoteFailure(
                    "not-found", f"there is no submitter {name[:200]}; they are told with their domains"
                )
            standing.append(
                Standing(name, row["RealPriority"], float(row["PriorityFactor"]), float(row["WeightedResourcesUsed"]))
            )
        found = parity(standing[0], standing[1], half_life)
        return {
            "first": first,
            "second": second,
            "at": now,
            "half_life_s": half_life,
            "in_s": found.in_s,
            "ahead": found.ahead,
            "points": found.points,
        }

    async def half_life(self) -> float:
        """PRIORITY_HALFLIFE of the negotiator that leads, seconds."""
        for one in await self.negotiators():
            told = one.get("PriorityHalflife")
            if one.get("NegotiatorIsActive") is True and isinstance(told, int | float):
                return float(told)
        return HALF_LIFE_S

    # How

    @shared(ACCOUNTING_FRESH_S)
    async def _accounts(self) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        found: list[dict[str, Any]] = []
        for negotiator in await self._pool.negotiators():
            if len(found) >= MOST_ACCOUNTS:
                break
            async for page in self._pool.accounting_ads(negotiator):
                found += await of_each(page, partial(dashboard_rows.plain, names=dashboard_rows.ACCOUNT_FIELDS))
                if len(found) >= MOST_ACCOUNTS:
                    break
        return dashboard_rows.accounts(found)

    @shared()
    async def _submitters(self) -> list[dict[str, Any]]:
        names = dashboard_rows.SUBMITTER_FIELDS
        found: list[dict[str, Any]] = []
        after = ""
        while len(found) < MOST_SUBMITTERS:
            page = await self._page("Submitter", "", names, "-RunningJobs", after, MOST_SUBMITTERS)
            found += await of_each(page.ads, partial(dashboard_rows.plain, names=names))
            after = page.next
            if not after:
                break
        return dashboard_rows.submitters(found)

    async def _page(
        self, my_type: str, constraint: str, names: Sequence[str], order: str, after: str, limit: int
    ) -> AdPage:
        question = QueryAds(
            my_types=[my_type], constraint=constraint, projection=list(names), order=order, after=after, limit=limit
        )
        return await self._pool.ask("collector", question, AdPage, timeout=30.0)

    async def _count(self, my_type: str, constraint: str, by: list[str]) -> AdCounts:
        return await self._pool.ask(
            "collector", CountAds(my_type=my_type, constraint=constraint, by=by), AdCounts, timeout=30.0
        )

    async def _late(self, schedd: Schedd, constraint: str, limit: int) -> list[dict[str, Any]]:
        """At most so many lines of clusters whose jobs come some at a time, oldest first."""
        if limit <= 0:
            return []
        constraint = dashboard_rows.all_of(constraint, dashboard_rows.NOT_OVER)
        question = QueryJobs(
            constraint=constraint, projection=list(dashboard_rows.LATE_FIELDS), limit=limit, factories=True
        )
        answer = await self._pool.ask(schedd.inbox, question, JobPage, timeout=30.0)
        lines = await of_each(answer.ads, partial(dashboard_rows.late, schedd=schedd.name))
        return [line for line in lines if line["Left"]]

    async def _jobs(self, schedd: Schedd, constraint: str, after: str, limit: int, history: bool) -> JobPage:
        question = QueryJobs(
            constraint=constraint,
            projection=list(dashboard_rows.JOB_FIELDS),
            limit=limit,
            after=after,
            history=history,
            newest=not history,
            reasons=not history,
        )
        return await self._pool.ask(schedd.inbox, question, JobPage, timeout=30.0)


def _chosen(status: str, user: str, search: str, machine: str) -> str:
    """The constraint of a table's filters. Raises RemoteFailure bad-request."""
    if status and status not in dashboard_rows.STATES:
        near = difflib.get_close_matches(status, dashboard_rows.STATES, 1)
        mend = f"did you mean {near[0]}?" if near else f"want one of {', '.join(dashboard_rows.STATES)}"
        raise RemoteFailure("bad-request", f"status={status[:80]}: {mend}")
    named = dashboard_rows.job_named(search)
    return dashboard_rows.all_of(
        dashboard_rows.with_status(status),
        dashboard_rows.of_user(user),
        dashboard_rows.of_machine(machine),
        named or dashboard_rows.looked_for(search, dashboard_rows.JOB_SEARCHED),
    )
