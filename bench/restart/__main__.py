"""Daemons killed with SIGKILL at random moments while jobs run and disks fill: `python -m bench.restart`.

Every daemon is a process, on one RabbitMQ and one Redis: a machine with four static slots, one with a partitionable
slot of four cores, an access point, a central manager, a gateway. The next victim (a startd, the schedd, or every
daemon) and the moment come from --seed; it is started again up to a second later, ready or not for the next one. The
startds' EXECUTE is a small file system of its own that is filled and emptied meanwhile (takes root). Each attempt of
a job writes into the job's own file when it begins, that it lives, and when it ends. In the end every job has one
start, and one more for each reason in its event log, never two at a time, and none was evicted. Exit status 1
otherwise.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import sys
import tempfile
import threading
import time
from collections import Counter
from contextlib import ExitStack, suppress
from pathlib import Path

from bench.faults.containers import at_once
from bench.faults.faults import small_disk
from bench.faults.pool import FaultPool, Member
from bench.faults.workload import recorded
from bench.pool import description
from bench.restart.verdict import Totals, totals
from roost.client import Client
from roost.errors import ClientError
from tests.servers import Rabbit, Redis
from tests.waiting import wait_until

MEMBERS = (
    ("collector", "cm1"),
    ("negotiator", "cm1"),
    ("had", "cm1"),
    ("schedd", "ap"),
    ("startd", "static"),
    ("startd", "pslot"),
    ("gateway", "gw1"),
)
SLOTS = {
    "static": {"NUM_CPUS": "4", "NUM_SLOTS_TYPE_1": "4", "SLOT_TYPE_1": "1/4"},
    "pslot": {"NUM_CPUS": "4", "NUM_SLOTS_TYPE_1": "1", "SLOT_TYPE_1": "100%", "SLOT_TYPE_1_PARTITIONABLE": "true"},
}
#: A line is short enough for the kernel to add it to the file as a whole.
JOB = """#!/bin/sh
say() {{ echo "$1 $$ $(date +%s.%N)" >>{runs}/$token; }}
token=$1
say begin
for beat in $(seq $2); do sleep 0.25; say alive; done
say end
"""
#: Jobs in the queue at a time, twice as many as there are slots; a quarter of a second each part of one.
QUEUED, PARTS = 16, (2, 24)
DISK_MIB = 256
REST_S = 600.0


class Work:
    """Jobs that are submitted until `stop`."""

    def __init__(self, directory: Path, pool: FaultPool, chance: random.Random) -> None:
        self.runs, self.logs, self.pool, self.chance = directory / "runs", directory / "logs", pool, chance
        for one in (directory, self.runs, self.logs):
            one.mkdir(mode=0o777)
            one.chmod(0o777)
        self.directory = directory
        script = directory / "job"
        script.write_text(JOB.format(runs=self.runs))
        script.chmod(0o755)
        self.acknowledged: set[str] = set()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()

    def ended(self) -> int:
        return sum(b"end " in one.read_bytes() for one in self.runs.iterdir())

    def _run(self) -> None:
        number = 0
        with self.pool.connect(10.0) as client:
            while not self._stop.wait(0.1):
                if len(self.acknowledged) - self.ended() >= QUEUED:
                    continue
                number += 1
                with suppress(ClientError):  # it may be in the queue nevertheless: its file will tell
                    self._submit(client, f"job{number}")

    def _submit(self, client: Client, token: str) -> None:
        text = (
            f"executable = {self.directory}/job\narguments = {token} {self.chance.randint(*PARTS)}\n"
            f"transfer_executable = false\nshould_transfer_files = NO\nrequest_memory = 16\nrequest_disk = 1024\n"
            f"log = {self.logs}/{token}\nqueue\n"
        )
        (cluster,) = description(self.directory, text).clusters()
        client.submit(cluster.ad, cluster.jobs())
        self.acknowledged.add(token)

    def verdict(self) -> Totals:
        """Once all jobs have ended, or REST_S are over."""
        found = {}
        with self.pool.connect(60.0) as client:

            def rest() -> bool:
                with suppress(ClientError):
                    found.update({entry.token.split()[0]: entry for entry in recorded(client)})
                    return not list(client.jobs(projection=["ClusterId"])) and set(found) >= self.acknowledged
                return False

            with suppress(TimeoutError):  # who is missing is in the verdict
                wait_until(rest, REST_S, "the end of all jobs")
        rows = []
        for token in sorted({*found, *self.acknowledged}):
            entry = found.get(token)
            wrote, log = ((where / token) for where in (self.runs, self.logs))
            rows.append(
                (
                    token,
                    wrote.read_text() if wrote.exists() else "",
                    log.read_text() if log.exists() else "",
                    entry.status if entry else None,
                    entry.exit_code if entry else None,
                    entry.starts if entry else 0,
                )
            )
        return totals(rows)


class Filler:
    """Fills a file system to a random share, and empties it, until `stop`. All of it in no more than nine tenths: a job
    that meets a full disk is held, and rightly."""

    def __init__(self, directory: Path, chance: random.Random) -> None:
        self._file = directory / "filler"
        self._chance = chance
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()
        self._file.unlink(missing_ok=True)

    def _run(self) -> None:
        while not self._stop.wait(0.3):
            with self._file.open("wb") as file:
                for _ in range(self._chance.randint(0, DISK_MIB * 9 // 10)):
                    file.write(bytes(1 << 20))


def victims(pool: FaultPool, chance: random.Random) -> tuple[str, list[Member]]:
    what = chance.choice(["startd", "schedd", "everything"])
    if what == "startd":
        return what, [pool["startd", chance.choice(["static", "pslot"])]]
    if what == "schedd":
        return what, [pool["schedd", "ap"]]
    return what, list(pool.members.values())


def kill(pool: FaultPool, work: Work, kills: int, chance: random.Random) -> Counter[str]:
    """So many times. Every fifth time the pool comes to rest first, so that jobs get on where all is slow, too."""
    done: Counter[str] = Counter()
    for number in range(kills):
        if number % 5 == 0:
            pool.wait_ready()
            ended = work.ended()
            wait_until(lambda ended=ended: work.ended() > ended, 300, "the end of a job")  # type: ignore[misc]
        time.sleep(chance.uniform(0.1, 4.0))
        what, some = victims(pool, chance)
        at_once([victim.kill for victim in some])
        time.sleep(chance.uniform(0.0, 1.0))
        at_once([victim.start for victim in some])
        done[what] += 1
        print(f"{number + 1} of {kills}: {what}; {work.ended()} jobs have ended", file=sys.stderr, flush=True)
    return done


def main() -> int:
    parser = argparse.ArgumentParser(description="Kill daemons at random moments while jobs run, and count starts.")
    parser.add_argument("--kills", type=int, default=100, metavar="N", help="how many (100)")
    parser.add_argument("--seed", type=int, default=1, help="of victims and moments (1)")
    parser.add_argument("--logs", type=Path, metavar="DIR", help="keep what daemons and jobs wrote in DIR")
    options = parser.parse_args()
    chance = random.Random(options.seed)
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="roost-restart-")))
        directory.chmod(0o755)
        rabbit, redis = Rabbit(), Redis()
        for server in (rabbit, redis):
            stack.callback(server.close)
            server.start()
        stack.enter_context(small_disk(directory / "disk", DISK_MIB))
        own = {("startd", name): {**knobs, "EXECUTE": str(directory / "disk" / name)} for name, knobs in SLOTS.items()}
        for name in SLOTS:
            (directory / "disk" / name).mkdir(mode=0o755)
        pool = FaultPool(
            directory / "pool",
            rabbit.url,
            redis.url,
            members=MEMBERS,
            own=own,
            HAD_LIST="",
            MEMORY="4096",
            CLAIM_WORKLIFE="1200",
        )
        stack.enter_context(pool)
        work, filler = Work(directory / "work", pool, chance), Filler(directory / "disk", random.Random(options.seed))
        begun = time.monotonic()
        for one in (work, filler):
            one.start()
        try:
            done = kill(pool, work, options.kills, chance)
        finally:
            for one in (work, filler):
                one.stop()
        pool.wait_ready()
        verdict = work.verdict()
        if options.logs:
            pool.keep_logs(options.logs)
            shutil.copytree(work.directory, options.logs / "work", dirs_exist_ok=True)
    said = ", ".join(f"{what} {count}" for what, count in sorted(done.items()))
    print(
        f"seed {options.seed}, {options.kills} kills ({said}) in {time.monotonic() - begun:.0f} s at a load of "
        f"{os.getloadavg()[0]:.0f}: {verdict.jobs} jobs, {verdict.attempts} attempts, {verdict.explained} of them "
        f"another one for a recorded reason; {len(verdict.faults)} jobs with faults"
    )
    for token, wrong in verdict.faults.items():
        print(f"  {token}: {'; '.join(wrong)}")
    return 1 if verdict.faults else 0


if __name__ == "__main__":
    sys.exit(main())
