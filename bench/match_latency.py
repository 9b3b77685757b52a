"""From a job's commit to its match, on an idle pool of many slots: `python -m bench.match_latency [--slots N]`.

The negotiator, its HAD, RabbitMQ and Redis are processes of their own, as in a real pool. The bench stands in for the
startds (each with 500 slots whose ads are as long as HTCondor's own) and for the schedd: "commit" is the moment it
publishes a submitter ad that tells of one idle job more, the end is when the match has reached it. In between lie the
ad's way through the broker, the negotiator's wake-up, the request list fetched from the schedd, the cycle, the
accountant's write to Redis, and the match's way back. The schedd's own commit to disk is not in it (bench.pool has it).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import statistics
import sys
import tempfile
import time
from pathlib import Path

import structlog
import uvloop

from bench.classad.ads import job, machine
from shared.bus import connect
from shared.bus.api import Bus
from shared.classad import ClassAd, parse_ad, parse_expr
from shared.config import load_config
from shared.daemon.advertiser import Advertiser
from shared.daemon.context import Context
from shared.messages.ads import SendAds
from shared.messages.base import Ack, Envelope, Failure, Message
from shared.messages.negotiation import GetRequests, Matches, MatchesTaken, RequestList, ResourceRequest
from shared.state.embedded import EmbeddedStore
from tests.servers import Leashed, Rabbit, Redis

SLOTS_A_STARTD = 500
SUBMITTER = "u1@pool"


class Stand:
    """Somebody on the bus who has ads and answers those who ask for them."""

    def __init__(self, url: str, subsystem: str, name: str, my_type: str) -> None:
        self.bus: Bus = connect(url, f"{subsystem.lower()}.{name}")
        self.context = Context(
            name=name,
            config=load_config([], subsystem=subsystem, env={}),
            bus=self.bus,
            store=EmbeddedStore(),
            spool=Path(os.devnull),
            execute=Path(os.devnull),
            log=structlog.stdlib.get_logger(),
        )
        self.inbox = f"{subsystem.lower()}.{name}"
        self.ads = Advertiser(self.context, my_type)

    async def start(self) -> None:
        await self.bus.start()
        await self.bus.serve(self.inbox, self.answer)

    async def answer(self, envelope: Envelope) -> Message:
        if isinstance(envelope.body, SendAds):
            self.ads.resend(envelope.body)
            return Ack()
        return Failure(code="bad-request", reason="this is a bench")


class Schedd(Stand):
    """Has at most one idle job, and notes when its match comes."""

    def __init__(self, url: str) -> None:
        super().__init__(url, "SCHEDD", "bench", "Submitter")
        self.idle = 0
        self.matched = asyncio.Event()
        ad = parse_ad(job(1), "old")
        ad["Owner"] = "u1"
        ad["Requirements"] = parse_expr("TARGET.Memory >= RequestMemory && TARGET.Cpus >= RequestCpus")
        self.ad = ad.pack()

    async def answer(self, envelope: Envelope) -> Message:
        body = envelope.body
        if isinstance(body, GetRequests):
            request = ResourceRequest(autocluster=1, count=self.idle, ad=self.ad, first_job="1.0")
            return RequestList(requests={SUBMITTER: [request] if self.idle else []})
        if isinstance(body, Matches):
            if body.matches:
                self.idle = 0
                self.matched.set()
            return MatchesTaken(begun=[match.count for match in body.matches])
        return await super().answer(envelope)

    async def tell(self) -> None:
        ad = ClassAd({"Name": SUBMITTER, "MyType": "Submitter", "ScheddIpAddr": self.inbox, "IdleJobs": self.idle})
        ad["RoostTold"] = time.time()  # as a schedd's ads differ each time
        await self.ads.publish({SUBMITTER: ad})


def slots(startd: int) -> dict[str, ClassAd]:
    found: dict[str, ClassAd] = {}
    for number in range(startd * SLOTS_A_STARTD, (startd + 1) * SLOTS_A_STARTD):
        ad = parse_ad(machine(number), "old")
        ad["Name"] = f"slot{number}@startd{startd}"
        ad["MyType"] = "Machine"
        ad["MyAddress"] = f"startd.startd{startd}"
        ad["State"], ad["Activity"] = "Unclaimed", "Idle"
        found[str(ad["Name"])] = ad
    return found


async def measure(amqp: str, count: int, jobs: int) -> dict[str, float]:
    schedd = Schedd(amqp)
    await schedd.start()
    await schedd.tell()
    for number in range(-(-count // SLOTS_A_STARTD)):
        startd = Stand(amqp, "STARTD", f"startd{number}", "Machine")
        await startd.start()
        ads = slots(number)
        await startd.ads.publish(ads, {name: f"<{name}>#1#1#secret" for name in ads})
    seconds: list[float] = []
    chance = random.Random(1)
    for number in range(jobs + 3):
        schedd.matched.clear()
        schedd.idle = 1
        begun = time.perf_counter()
        await schedd.tell()
        await asyncio.wait_for(schedd.matched.wait(), 120)
        if number >= 3:  # the first wait for the table to be filled
            seconds.append(time.perf_counter() - begun)
        await schedd.tell()
        await asyncio.sleep(chance.uniform(0.3, 1.0))
    seconds.sort()
    return {
        "slots": float(count),
        "jobs": float(len(seconds)),
        "match_latency_median_s": statistics.median(seconds),
        "match_latency_p90_s": seconds[int(len(seconds) * 0.9)],
        "match_latency_max_s": seconds[-1],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="How long a job on an idle pool waits for its match.")
    parser.add_argument("--slots", type=int, default=10_000)
    parser.add_argument("--jobs", type=int, default=30)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures to FILE")
    options = parser.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(40))
    with tempfile.TemporaryDirectory(prefix="roost-bench-") as folder:
        home = Path(folder)
        rabbit, redis = Rabbit(), Redis()
        daemons: list[Leashed] = []
        try:
            rabbit.start()
            redis.start()
            environment = {
                **os.environ,
                "ROOST_AMQP_URL": rabbit.url,
                "ROOST_REDIS_URL": redis.url,
                "_CONDOR_SPOOL": str(home / "spool"),
                "_CONDOR_LOG": str(home / "log"),
                "_CONDOR_ROOST_HEALTH_PORT": "0",
            }
            for name in ("had", "negotiator"):
                command = [sys.executable, "-m", f"services.{name}"]
                daemons.append(Leashed(command, log=home / f"{name}.log", env=environment, cwd=Path.cwd()))
            figures = uvloop.run(measure(rabbit.url, options.slots, options.jobs))
        finally:
            for daemon in daemons:
                if daemon.returncode is None:
                    daemon.terminate()
                daemon.close()
            redis.close()
            rabbit.close()
    for name, value in figures.items():
        print(f"{name:28} {value:12.6g}")
    if options.json:
        options.json.write_text(json.dumps(figures, indent=1) + "\n")


if __name__ == "__main__":
    main()
