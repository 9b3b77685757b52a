"""Machines of a pool, many in one process, that run nothing: `python -m bench.scale.machines URL MACHINES OPTIONS`.

Each has a connection of its own to the broker, an inbox, ads as long as a real one's (134 attributes a slot), claims
and reports: its messages are those of a startd, made by the same classes where these need no slots of their own (the
advertiser, the gathering of ends). Jobs take no time and have no files.

Says "ready" once all ads are out, then a line of JSON with what it did so far for each line that it reads. "last": jobs
go on from now on; "end": all of them end, and those after them take no time.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import random
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import structlog
import uvloop

from bench.classad.ads import machine
from services.startd.run.end_reports import EndReports
from shared.bus import connect
from shared.bus.api import BusUnavailable, Exchange
from shared.classad import ClassAd, parse_ad
from shared.config import Config, load_config
from shared.daemon.advertiser import Advertiser
from shared.daemon.context import Context
from shared.errors import RoostError
from shared.messages.ads import SendAds
from shared.messages.base import Ack, Envelope, Message
from shared.messages.claims import (
    ActivateClaim,
    Activated,
    Activation,
    Alive,
    AliveReply,
    ClaimGranted,
    ClaimRefused,
    DeactivateClaim,
    JobExit,
    JobReport,
    JobReportAck,
    ReleaseClaim,
    RequestClaim,
)
from shared.messages.events import ClaimEnded, ClaimMade, SlotChanged
from shared.state.embedded import EmbeddedStore

#: Changes of ads gather so long, as a startd's do (services.startd.publisher).
LATER_S: Final = 0.2
#: Connections that are opened at the same time.
OPENING: Final = 20
#: A report that is not answered is repeated after so long.
REPEAT_S: Final = 1.0


class Work:
    """How long jobs take: no time, or until all of them end."""

    def __init__(self) -> None:
        self.lasts = False
        self._over = asyncio.Event()

    async def done(self) -> None:
        if self.lasts:
            await self._over.wait()

    def end(self) -> None:
        self.lasts = False
        self._over.set()
        self._over = asyncio.Event()


@dataclass
class Did:
    """What the machines of this process did."""

    refreshes: int = 0
    claims: int = 0
    starts: int = 0
    ends: int = 0
    refused: int = 0
    failed: list[str] = field(default_factory=list)


@dataclass
class Slot:
    name: str
    ad: ClassAd
    claim_id: str
    number: int = 0  # of claims so far
    held_by: str = ""  # a schedd
    submitter: str = ""
    run: asyncio.Task[None] | None = None


class Machine:
    """One of them. ad: of a slot, which gets names."""

    def __init__(self, url: str, name: str, slots: int, ad: ClassAd, config: Config, work: Work, did: Did) -> None:
        self.name, self.work, self.did = name, work, did
        self.bus = connect(url, f"startd.{name}")
        place = Path(tempfile.gettempdir())
        self.context = Context(
            name=name,
            config=config,
            bus=self.bus,
            store=EmbeddedStore(),
            spool=place,
            execute=place,
            log=structlog.stdlib.get_logger(),
        )
        self.advertiser = Advertiser(self.context, "Machine")
        self.ends = EndReports(self.bus, name, self._spawn)
        self.tasks: set[asyncio.Task[None]] = set()
        self.slots: dict[str, Slot] = {}
        for number in range(1, slots + 1):
            own = ad.copy()
            full = f"slot{number}@{name}"
            own.update({"Name": full, "Machine": name, "MyAddress": f"startd.{name}", "SlotID": number})
            own.update({"State": "Unclaimed", "Activity": "Idle"})
            self.slots[full] = Slot(full, own, "")
            self._offer(self.slots[full])
        self._changed: set[str] = set()
        self._later: asyncio.TimerHandle | None = None

    def _spawn(self, work: Coroutine[Any, Any, None], name: str) -> None:
        task = asyncio.get_running_loop().create_task(work, name=name)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    def _offer(self, slot: Slot) -> None:
        slot.number += 1
        slot.claim_id = f"<{self.name}>#1#{slot.number}#{slot.name}{random.getrandbits(64):x}"

    def _offers(self) -> dict[str, str]:
        return {slot.name: slot.claim_id for slot in self.slots.values() if not slot.held_by}

    async def start(self) -> None:
        await self.bus.start()
        await self.bus.serve(f"startd.{self.name}", self._on_request)
        await self.tell_all()

    async def refresh(self) -> None:
        """As every UPDATE_INTERVAL: three attributes of each slot have changed."""
        for slot in self.slots.values():
            slot.ad.update({"LoadAvg": round(random.random(), 2), "KeyboardIdle": random.randrange(5000)})
            slot.ad["Disk"] = random.randrange(10**7, 10**8)
        await self.tell_all()
        self.did.refreshes += 1

    async def tell_all(self) -> None:
        await self.advertiser.publish({slot.name: slot.ad for slot in self.slots.values()}, self._offers())

    # Claims

    async def _on_request(self, envelope: Envelope) -> Message:
        body = envelope.body
        if isinstance(body, RequestClaim):
            return self._on_claim(body)
        if isinstance(body, Alive):
            held = {slot.claim_id for slot in self.slots.values() if slot.held_by == body.schedd}
            return AliveReply(unknown=[claim for claim in (*body.claim_ids, *body.only_asked) if claim not in held])
        if isinstance(body, ActivateClaim):
            slot = self._claimed(body.claim_id)
            if slot is None:
                return ClaimRefused(reason="no such claim", code="unknown-claim")
            self._begin(slot, body.activation, first=False)
            return Activated(job_id=body.activation.job_id, attempt=body.activation.attempt)
        if isinstance(body, ReleaseClaim | DeactivateClaim):
            slot = self._claimed(body.claim_id)
            if slot is not None and slot.run is not None:
                slot.run.cancel()
            if slot is not None and isinstance(body, ReleaseClaim):
                self._release(slot)
        elif isinstance(body, SendAds):
            self.advertiser.resend(body)
        return Ack()

    def _claimed(self, claim_id: str) -> Slot | None:
        return next((slot for slot in self.slots.values() if slot.held_by and slot.claim_id == claim_id), None)

    def _on_claim(self, body: RequestClaim) -> Message:
        slot = self.slots.get(body.slot)
        if slot is None or slot.claim_id != body.claim_id or slot.held_by not in ("", body.schedd):
            self.did.refused += 1
            return ClaimRefused(reason="no such claim", code="unknown-claim")
        if not slot.held_by:
            self.did.claims += 1
            slot.held_by, slot.submitter = body.schedd, body.submitter
            if body.activation is not None:
                self._begin(slot, body.activation, first=True)
            made = ClaimMade(
                at=time.time(), startd=self.name, slot=slot.name, schedd=body.schedd, submitter=body.submitter
            )
            self._tell(made)
            self._becomes(slot, "Claimed", "Busy")
        return ClaimGranted(
            claim_id=slot.claim_id, slot=slot.name, slot_ad=slot.ad.pack(), activated=body.activation is not None
        )

    def _tell(self, event: Message) -> None:
        async def publish() -> None:
            with suppress(BusUnavailable):
                await self.bus.publish(Exchange.EVENTS, event.type, event)

        self._spawn(publish(), "event")

    def _becomes(self, slot: Slot, state: str, activity: str) -> None:
        """The slot's ad says so soon, and an event at once."""
        event = SlotChanged(
            at=time.time(),
            startd=self.name,
            slot=slot.name,
            state=state,
            activity=activity,
            from_state=slot.ad.eval_string("State"),
            from_activity=slot.ad.eval_string("Activity"),
        )
        now = int(time.time())
        slot.ad.update({"State": state, "Activity": activity, "EnteredCurrentState": now})
        slot.ad.update({"EnteredCurrentActivity": now, "RemoteUser": slot.submitter, "ClientMachine": slot.held_by})
        self._changed.add(slot.name)
        if self._later is None:
            self._later = asyncio.get_running_loop().call_later(LATER_S, self._tell_changes)
        self._tell(event)

    def _tell_changes(self) -> None:
        self._later = None
        changed, self._changed = self._changed, set()
        ads = {name: self.slots[name].ad for name in changed}
        self._spawn(self.advertiser.change(ads, (), self._offers()), "ads")

    def _release(self, slot: Slot) -> None:
        if not slot.held_by:
            return
        ended = ClaimEnded(
            at=time.time(), startd=self.name, slot=slot.name, schedd=slot.held_by, submitter=slot.submitter, reason=""
        )
        slot.held_by = slot.submitter = ""
        self._offer(slot)
        self._becomes(slot, "Unclaimed", "Idle")
        self._tell(ended)

    # Runs

    def _begin(self, slot: Slot, run: Activation, *, first: bool) -> None:
        slot.run = asyncio.get_running_loop().create_task(self._runs(slot, run, first))
        self.tasks.add(slot.run)
        slot.run.add_done_callback(self.tasks.discard)

    async def _runs(self, slot: Slot, run: Activation, first: bool) -> None:
        """One job after the other, as the schedd hands them over."""
        following: Activation | None = run
        while following is not None:
            answer = await self._run(slot, following, told=first or self.work.lasts)
            following, first = answer.next, False
            if answer.release or not answer.known:
                self._release(slot)

    async def _run(self, slot: Slot, run: Activation, *, told: bool) -> JobReportAck:
        self.did.starts += 1
        began = time.time()
        about: dict[str, Any] = {
            "startd": self.name,
            "slot": slot.name,
            "claim_id": slot.claim_id,
            "job_id": run.job_id,
            "attempt": run.attempt,
            "started_at": began,
        }
        schedd = slot.held_by
        if told:
            running = JobReport(**about, sequence=1, phase="running", at=began, renew=True)
            await self._until_answered(lambda: self.bus.call(f"schedd.{schedd}", running))
        await self.work.done()
        ran_s = time.time() - began
        end = JobReport(
            **about,
            sequence=2,
            phase="ended",
            at=time.time(),
            had_s=ran_s,
            ran_s=ran_s,
            exit=JobExit(reason="exited", exit_code=0, output_committed=True),
        )
        answer = await self._until_answered(lambda: self.ends.call(schedd, end))
        self.did.ends += 1
        assert isinstance(answer, JobReportAck), answer
        return answer

    async def _until_answered(self, ask: Callable[[], Awaitable[Message]]) -> Message:
        """Reports are repeated, as a startd's are."""
        while True:
            try:
                return await ask()
            except RoostError as error:
                self.did.failed.append(str(error)[:200])
                await asyncio.sleep(REPEAT_S)


async def main(options: argparse.Namespace) -> None:
    config = load_config([], subsystem="STARTD", env={})
    did, work = Did(), Work()
    machines = []
    for number in range(options.first, options.first + options.machines):
        ad = parse_ad(machine(number, "true"), "old")
        ad.update({"Arch": "X86_64", "OpSys": "LINUX", "OpSysAndVer": "Debian12", "HasFileTransfer": True})
        ad.update({"Cpus": 1, "Memory": 4096, "Disk": 10**7, "SlotWeight": 1, "FileSystemDomain": options.domain})
        ad.set_text("Requirements", "START")
        machines.append(Machine(options.url, f"m{number:05}", options.slots, ad, config, work, did))
    gate = asyncio.Semaphore(OPENING)

    async def start(one: Machine) -> None:
        async with gate:
            await one.start()

    await asyncio.gather(*map(start, machines))

    async def live(one: Machine) -> None:
        await asyncio.sleep(random.random() * options.interval)
        while True:
            await one.refresh()
            await asyncio.sleep(options.interval)

    living = [asyncio.ensure_future(live(one)) for one in machines]
    print("ready", flush=True)
    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        if line == "last\n":
            work.lasts = True
        elif line == "end\n":
            work.end()
        print(json.dumps({**vars(did), "connected": sum(one.bus.health.connected for one in machines)}), flush=True)
    for task in living:
        task.cancel()
    for one in machines:
        await one.bus.stop()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url")
    parser.add_argument("machines", type=int)
    parser.add_argument("--first", type=int, default=0, help="number of the first one")
    parser.add_argument("--slots", type=int, default=10)
    parser.add_argument("--interval", type=float, default=300.0, help="UPDATE_INTERVAL, s")
    parser.add_argument("--domain", default="pool", help="FileSystemDomain")
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    uvloop.run(main(parser.parse_args()))
