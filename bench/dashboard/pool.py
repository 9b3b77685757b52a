"""A large pool that nobody need have: ads of made-up machines in a real collector, jobs in a real schedd.

    python -m bench.dashboard.pool --slots 100000 --jobs 10000 --dir DIRECTORY [--events 50]

Prints one line of JSON, {url, token, seconds}, when it is up, and runs until it is told to end. There are no startds,
so no negotiator either: what the dashboard asks of that one is answered by a stand-in with made-up books.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import getpass
import json
import math
import random
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from engine.fairshare.accounting_ads import group_ad, submitter_ad
from engine.fairshare.group_tree import GroupConfig, GroupTree
from engine.fairshare.priorities import Record
from services.collector.core.queries import read
from services.collector.daemon import Collector
from services.gateway.daemon import Gateway
from services.schedd.daemon import Schedd
from shared.bus.api import Exchange, RequestHandler
from shared.bus.memory import MemoryBus, MemoryHub
from shared.classad import ClassAd
from shared.config import load_config
from shared.daemon import logs
from shared.daemon.ad_rows import pack
from shared.daemon.base import Daemon
from shared.daemon.main import loop_runner, make_context
from shared.daemon.runner import Runner
from shared.messages.ads import AdUpdate
from shared.messages.analysis import Analysis, Analyze
from shared.messages.base import Ack, Envelope, Failure, Message
from shared.messages.events import CycleDone, JobStarted, SlotChanged
from shared.messages.had import AskHad, Change, HadStanding
from shared.messages.journal import INBOX as JOURNAL
from shared.messages.journal import AskCycles, AskEvents, AskSeries, JournalAnswer
from shared.messages.negotiation import GetPriorities, Priorities
from shared.messages.queue import JobPage, QueryJobs, SubmitJobs
from shared.state import open_store
from shared.state.api import Store
from tests.speakers import Speakers

SLOTS_EACH = 16
USERS = 40
GROUPS = ("physics", "physics.atlas", "physics.cms", "chemistry", "biology", "biology.genomes")
#: State, Activity, and how many of a hundred slots are so.
STATES = (
    ("Claimed", "Busy", 68),
    ("Unclaimed", "Idle", 20),
    ("Owner", "Idle", 5),
    ("Matched", "Idle", 1),
    ("Preempting", "Vacating", 1),
    ("Drained", "Retiring", 3),
    ("Backfill", "Busy", 2),
)
NAME = "synthetic"
PAGE = 1000


def host_of(number: int) -> str:
    return f"node{number:05}.example.org"


def user_of(number: int) -> str:
    return f"{GROUPS[number % len(GROUPS)]}.user{number:02}@example.org"


def machine_ads(slots: int, now: float) -> Iterator[AdUpdate]:
    """A message for each machine, with some thirty attributes a slot."""
    dice = random.Random(1)
    kinds = [kind for kind in STATES for _ in range(kind[2])]
    for number in range(slots // SLOTS_EACH):
        host = host_of(number)
        names = [f"slot{slot}@{host}" for slot in range(1, SLOTS_EACH + 1)]
        ads = []
        for slot, name in enumerate(names, 1):
            state, activity, _ = kinds[dice.randrange(len(kinds))]
            ad: dict[str, Any] = {
                "MyType": "Machine",
                "TargetType": "Job",
                "Name": name,
                "Machine": host,
                "SlotID": slot,
                "SlotType": "Static",
                "PartitionableSlot": False,
                "DynamicSlot": False,
                "State": state,
                "Activity": activity,
                "Cpus": (1, 2, 4)[slot % 3],
                "Memory": (2048, 4096, 8192, 16384)[slot % 4],
                "Disk": 10_000_000 + slot,
                "GPUs": 1 if slot == 1 and number % 10 == 0 else 0,
                "LoadAvg": round(dice.random() * 2.0, 2) if state == "Claimed" else 0.0,
                "TotalCpus": 37,
                "TotalMemory": 122_880,
                "TotalSlots": SLOTS_EACH,
                "OpSys": "LINUX",
                "Arch": "X86_64",
                "OpSysAndVer": ("Debian12", "AlmaLinux9")[number % 2],
                "MyAddress": f"startd.{host}",
                "EnteredCurrentState": int(now - dice.randrange(100_000)),
                "EnteredCurrentActivity": int(now - dice.randrange(10_000)),
                "DaemonStartTime": int(now - 500_000),
                "SlotWeight": 1,
                "Start": True,
                "RoostVersion": NAME,
            }
            if state in ("Claimed", "Preempting"):
                user = user_of(dice.randrange(USERS))
                ad |= {"RemoteOwner": user, "AccountingGroup": user, "JobId": f"{dice.randrange(1, 20)}.{slot}"}
            ads.append(pack(ad))
        yield AdUpdate(my_type="Machine", daemon=f"startd@{host}", start_time=1, sequence=1, names=names, ads=ads)


def books(slots: int, now: float) -> list[ClassAd]:
    """Accounting ads of groups and users."""
    quotas = {"physics": 0.5, "physics.atlas": 0.25, "physics.cms": 0.2, "chemistry": 0.2, "biology": 0.2}
    tree = GroupTree.of(
        GroupConfig(names=GROUPS, quota={name: quotas.get(name, 0.1) * slots for name in GROUPS}, accept_surplus=True)
    )
    dice = random.Random(2)
    records = {}
    for number in range(USERS):
        use = float(dice.randrange(slots // USERS * 2))
        records[user_of(number)] = Record(
            priority=max(0.5, use * dice.random() * 1.5),
            factor=dice.choice((1000.0, 1000.0, 100.0)),
            in_use=use,
            slots_in_use=int(use),
            usage=use * 90_000,
            weighted_usage=use * 90_000,
            begin=now - 1e6,
            last=now,
            updated=now,
            ceiling=dice.choice((-1.0, -1.0, slots / 10)),
        )
    found = []
    for group in tree.groups:
        members = [one for name, one in records.items() if _group_of(name) == group.name]
        below = [one for name, one in records.items() if f"{_group_of(name)}.".startswith(f"{group.name}.")]
        own, inside = sum(one.in_use for one in members), sum(one.in_use for one in below)
        if group.name == "<none>":
            inside = sum(one.in_use for one in records.values())
        record = Record(in_use=own, slots_in_use=int(own), factor=1000.0, subtree_in_use=inside, updated=now)
        parent = group.name.rpartition(".")[0] or "<none>"
        ad = group_ad(group, parent, record, negotiator=NAME)
        quota = quotas.get(group.name, 0.1) * slots if group.name != "<none>" else float(slots)
        ad.update({"EffectiveQuota": quota, "SubtreeQuota": quota, "Requested": inside * 1.2})
        found.append(ad)
    whole = sum(one.in_use for one in records.values())
    for name, record in records.items():
        share = record.in_use / whole if whole else 0.0
        found.append(
            submitter_ad(name, record, group=_group_of(name), negotiator=NAME, share=share, limit=share * slots)
        )
    return found


def _group_of(user: str) -> str:
    return user.partition("@")[0].rpartition(".")[0]


class SyntheticPool:
    """directory: spool, token and store. events: made-up ones a second, for something to follow."""

    def __init__(self, directory: Path, slots: int, jobs: int, events: float = 0.0, *, journal: bool = False) -> None:
        self.directory, self.slots, self.jobs, self.events, self.journal = directory, slots, jobs, events, journal
        self.running = 0  # jobs of the second access point
        self._hub = MemoryHub()
        self._store: Store | None = None
        self._runners: list[Runner] = []
        self._speakers = Speakers.on_hub(self._hub)
        self._told: asyncio.Task[None] | None = None
        self._books: list[ClassAd] = []

    @property
    def cpus(self) -> float:
        """Of all slots; see machine_ads."""
        return self.slots * 7 / 3

    @property
    def url(self) -> str:
        gateway = self._runners[-1].daemon
        assert isinstance(gateway, Gateway)
        return f"http://127.0.0.1:{gateway.port}"

    @property
    def token(self) -> str:
        return (self.directory / "token").read_text().strip()

    async def start(self) -> None:
        """Returns when all ads are in, and the columns are read that questions stand on."""
        self._store = open_store("auto", self.directory)
        await self._store.start()
        await self._serve(f"negotiator.{NAME}", "negotiator", self._answer)
        await self._serve(f"had.{NAME}", f"had.{NAME}", self._answer)
        if self.journal:
            await self._serve(f"journal.{NAME}", JOURNAL, self._remember)
            await self._serve("schedd.elsewhere", "schedd.elsewhere", self._answer)
        kinds: tuple[type[Daemon], ...] = (Collector, Schedd, Gateway)
        for kind in kinds:
            runner = Runner(kind.subsystem.lower(), lambda kind=kind: self._daemon(kind))  # type: ignore[misc]
            self._runners.append(runner)
            await runner.start()
            if runner.deaths:
                raise RuntimeError(f"the {runner.name} did not start: {runner.last_error}")
        await self._fill()
        await self._submit()
        if self.events:
            self._told = asyncio.create_task(self._tell())

    async def stop(self) -> None:
        if self._told is not None:
            self._told.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._told
        for runner in reversed(self._runners):
            await runner.stop()
        await self._speakers.stop()
        if self._store is not None:
            await self._store.stop()

    async def _serve(self, sender: str, inbox: str, answer: RequestHandler) -> None:
        await (await self._speakers.bus(sender)).serve(inbox, answer)

    def _daemon(self, kind: type[Daemon]) -> Daemon:
        overrides = {
            "SPOOL": str(self.directory / "spool"),
            "LOG": str(self.directory / "log"),
            "ROOST_TOKEN_FILE": str(self.directory / "token"),
            "ROOST_GATEWAY_PORT": "0",
            "ROOST_SCHEDD_TRANSFER_HOST": "127.0.0.1",
            "ROOST_SCHEDD_TRANSFER_PORT": "0",
            "CLASSAD_LIFETIME": "86400",
            "UID_DOMAIN": "example.org",
        }
        config = load_config([], subsystem=kind.subsystem, overrides=overrides, env={})
        bus = MemoryBus(self._hub, sender=f"{kind.subsystem.lower()}.{NAME}")
        assert self._store is not None
        return kind(make_context(kind, config, NAME, bus, self._store))

    async def _fill(self) -> None:
        collector = self._runners[0].daemon
        assert isinstance(collector, Collector)
        now = time.time()
        for number, message in enumerate(machine_ads(self.slots, now)):
            collector.search.changed(collector.directory.apply(message))
            if number % 20 == 0:
                await asyncio.sleep(0)
        self._books = books(self.slots, now)
        cycles = {
            f"LastNegotiationCycle{name}{number}": value
            for number in range(3)
            for name, value in (
                *(("Time", int(now) - 60 * number - 5), ("End", int(now) - 60 * number - 4), ("Duration", 0.7)),
                *(("TotalSlots", self.slots), ("CandidateSlots", self.slots // 5), ("Matches", 1200 - number * 100)),
                *(("Rejections", 31), ("NumIdleJobs", self.jobs), ("NumJobsConsidered", 2000)),
                *(("ActiveSubmitterCount", USERS), ("PrefetchDuration", 0.1), ("Phase4Duration", 0.5)),
            )
        }
        others: dict[str, list[dict[str, Any]]] = {
            "Negotiator": [
                {"Name": NAME, "Shard": "", "NegotiatorIsActive": True, "Epoch": 3, "Cycles": 812, **cycles}
                | {"PriorityHalflife": 86400.0, "MyAddress": f"negotiator.{NAME}"}
            ],
            "HAD": [
                {"Name": NAME, "Shard": "", "HadState": "Leader", "HadEpoch": 3, "MyAddress": f"had.{NAME}"}
                | {"HadLeader": NAME, "HadStateSince": int(now) - 5000}
            ],
        }
        owners = {"Negotiator": f"negotiator@{NAME}", "HAD": f"had@{NAME}"}
        if self.journal:  # a second access point, whose jobs run
            dice = random.Random(3)
            running = {user_of(number): dice.randrange(self.slots // USERS) for number in range(USERS)}
            self.running = sum(running.values())
            others["Scheduler"] = [
                {"Name": "elsewhere", "MyAddress": "schedd.elsewhere", "TotalRunningJobs": self.running}
                | {"TotalIdleJobs": 0, "TotalHeldJobs": 0, "TotalJobAds": self.running}
            ]
            others["Submitter"] = [
                {"Name": name, "RunningJobs": jobs, "IdleJobs": 0, "HeldJobs": 0, "ScheddName": "elsewhere"}
                for name, jobs in running.items()
            ]
        for my_type, ads in others.items():
            message = AdUpdate(
                my_type=my_type,
                daemon=owners.get(my_type, "schedd@elsewhere"),
                start_time=1,
                sequence=1,
                names=[str(ad["Name"]) for ad in ads],
                ads=[pack({"MyType": my_type, **ad}) for ad in ads],
            )
            collector.search.changed(collector.directory.apply(message))
        # A pool that has been up for a while: its index has been read, and is written down.
        await collector.search.answer(read(["Machine"], "", ["Name"], 1, "", False, "Name"))
        while collector.directory.writer.waiting:
            await collector.directory.writer.write_some()

    async def _submit(self) -> None:
        for number in range(20):
            each = self.jobs // 20 + (number < self.jobs % 20)
            if not each:
                break
            group, _, name = user_of(number).partition("@")[0].rpartition(".")
            ad = ClassAd(
                {
                    "Cmd": f"/home/user{number:02}/simulate",
                    "Args": f"--seed {number}",
                    "Iwd": "/",
                    "JobUniverse": 5,
                    "RequestCpus": 1,
                    "RequestMemory": 1024,
                    "AccountingGroup": f"{group}.{name}",
                    "AcctGroup": group,
                    "AcctGroupUser": name,
                    **(
                        {"JobStatus": 5, "HoldReason": "submitted on hold", "HoldReasonCode": 15}
                        if number % 7 == 0
                        else {}
                    ),
                }
            )
            procs = [ClassAd({"ProcId": proc}).pack() for proc in range(each)]
            message = SubmitJobs(
                user=f"{getpass.getuser()}@example.org", submit_id=f"fill-{number}", cluster_ad=ad.pack(), procs=procs
            )
            await self._speakers.call(f"schedd.{NAME}", message, timeout=120.0)

    async def _tell(self) -> None:
        number, epoch = 0, 3
        while True:
            number += 1
            slot, host = number % SLOTS_EACH + 1, host_of(number % max(1, self.slots // SLOTS_EACH))
            now = time.time()
            started = JobStarted(
                at=now, schedd=NAME, job_id=f"{number % 20 + 1}.{number % 100}", owner=user_of(number % USERS),
                slot=f"slot{slot}@{host}", attempt=1, waited_s=float(number * 7919 % 600),
            )  # fmt: skip
            changed = SlotChanged(
                at=now, startd=f"startd@{host}", slot=f"slot{slot}@{host}", state="Claimed", activity="Busy",
                from_state="Unclaimed", from_activity="Idle", owner=user_of(number % USERS),
            )  # fmt: skip
            for event in (started, changed):
                await self._speakers.publish(Exchange.EVENTS, event.type, event)
            if number % 50 == 0:
                done = CycleDone(
                    at=now, negotiator=NAME, epoch=epoch, cycle=812 + number // 50, trigger="periodic", duration_s=0.7,
                    slots=self.slots, submitters=USERS, requests=120, matches=1200, rejections=31,
                )  # fmt: skip
                await self._speakers.publish(Exchange.EVENTS, done.type, done)
            await asyncio.sleep(2.0 / self.events)

    async def _remember(self, envelope: Envelope) -> Message:
        """A journal's answers: a day like any other."""
        body = envelope.body
        now = time.time()
        if isinstance(body, AskSeries):
            start, end = body.start or now - 86_400, body.end or now
            times = [start + (end - start) * (number + 1) / body.points for number in range(body.points)]
            waves = [0.5 + 0.5 * math.sin(at / 9_000) + 0.08 * math.sin(at / 700) for at in times]
            shares = {state: part / 100 for state, _, part in STATES}
            series = {
                "slots": {
                    "Claimed": [self.slots * (shares["Claimed"] - 0.18 * (1 - wave)) for wave in waves],
                    "Unclaimed": [self.slots * (shares["Unclaimed"] + 0.18 * (1 - wave)) for wave in waves],
                    **{state: [self.slots * part] * len(times) for state, part in list(shares.items())[2:]},
                },
                "cpus": {
                    "Claimed": [self.cpus * (shares["Claimed"] - 0.18 * (1 - wave)) for wave in waves],
                    "Unclaimed": [self.cpus * (shares["Unclaimed"] + 0.18 * (1 - wave)) for wave in waves],
                    **{state: [self.cpus * part] * len(times) for state, part in list(shares.items())[2:]},
                },
                "jobs": {
                    "running": [self.slots * 0.6 * (0.7 + 0.3 * wave) for wave in waves],
                    "idle": [self.jobs * (1.4 - wave) for wave in waves],
                    "held": [self.jobs * 0.15] * len(times),
                },
                "shares": {
                    user_of(number): [self.slots / 12 * (1 + 0.5 * math.sin(at / 9_000 + number)) for at in times]
                    for number in range(5)
                },
            }
            return JournalAnswer(data={"times": times, "series": series.get(body.name, {})})
        if isinstance(body, AskEvents):
            led = {"id": "led", "type": "had.leader", "at": now - 1_500, "negotiator": NAME, "epoch": 3}
            told = [{**led, "had": NAME, "state": "leader"}] if body.types == "had.*" else []
            return JournalAnswer(data={"events": told, "next": None})
        if isinstance(body, AskCycles):
            listed = [
                {
                    "at": now - 20 * number,
                    "negotiator": NAME,
                    "epoch": 3,
                    "cycle": 812 - number,
                    "trigger": "free-slots",
                }
                | {
                    "duration_s": 0.6 + 0.2 * math.sin(number),
                    "slots": self.slots,
                    "submitters": USERS,
                    "requests": 120,
                }
                | {"matches": 1200 - 7 * number, "rejections": 31}
                for number in range(body.limit)
            ]
            return JournalAnswer(data={"cycles": listed, "next": now - 20 * body.limit})
        return Failure(code="not-found", reason="nothing is recorded of it")

    async def _answer(self, envelope: Envelope) -> Message:
        body = envelope.body
        if isinstance(body, GetPriorities):
            start = int(body.after or 0)
            end = start + (body.limit or PAGE)
            return Priorities(
                ads=[ad.pack() for ad in self._books[start:end]], next=str(end) if end < len(self._books) else ""
            )
        if isinstance(body, Analyze):
            verdict = "It waits for a slot: 412 of 412 that suit are claimed."
            terms = [{"text": 'TARGET.Arch == "X86_64"', "alone": self.slots, "together": self.slots}]
            last = {
                "reason": "its submitter had all of its share",
                "code": "share",
                "at": time.time() - 20,
                "counts": {},
            }
            report = {"state": "idle", "verdict": verdict, "slots": self.slots, "terms": terms, "last": last}
            return Analysis(
                jobs=[{"job": str(number), "suggestions": [], **report} for number, _ in enumerate(body.jobs)]
            )
        if isinstance(body, QueryJobs):
            return JobPage(ads=[], totals={"Running": self.running})
        if isinstance(body, AskHad):
            now = time.time()
            changes = [Change(at=now - 5000, had=NAME, state="leader", epoch=3, reason="")]
            return HadStanding(
                had=NAME, shard="", state="Leader", epoch=3, leader=NAME, since=now - 5000, lease_left_s=1.0,
                answering=True, held_back_s=0.0, books="3.812", in_redis="3.812", memory="3.812", snapshot="3.800",
                snapshot_taken=now - 30, snapshot_file="", problem="", had_list=[f"had.{NAME}"], changes=changes,
            )  # fmt: skip
        return Ack()


async def serve(options: argparse.Namespace) -> None:
    began = time.perf_counter()
    pool = SyntheticPool(options.dir, options.slots, options.jobs, options.events, journal=options.journal)
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    try:
        await pool.start()
        told = {"url": pool.url, "token": pool.token, "seconds": round(time.perf_counter() - began, 2)}
        partial = options.dir / "pool.json.new"
        partial.write_text(json.dumps(told) + "\n")
        partial.replace(options.dir / "pool.json")
        print(json.dumps(told), flush=True)
        await stop.wait()
    finally:
        await pool.stop()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--slots", type=int, default=100_000)
    parser.add_argument("--jobs", type=int, default=10_000)
    parser.add_argument("--events", type=float, default=50.0, help="made-up events a second")
    parser.add_argument("--journal", action="store_true", help="with made-up history")
    parser.add_argument("--dir", type=Path, required=True)
    options = parser.parse_args()
    options.dir.mkdir(parents=True, exist_ok=True)
    with (options.dir / "pool.log").open("a", buffering=1) as log:
        logs.configure(stream=log)
        loop_runner()(serve(options))
    return 0


if __name__ == "__main__":
    sys.exit(main())
