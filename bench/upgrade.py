"""Whether daemons of two revisions work together in one pool, and whether it can be upgraded while it works.

    python -m bench.upgrade OLD [NEW]        revisions of this repository, or directories of checkouts (NEW: this one)
    python -m bench.upgrade OLD --jobs 20    jobs of each step (10)

Every daemon is a process, on one RabbitMQ and one Redis. Short jobs are submitted all the time, two at a time. The pool
begins with OLD; then each daemon in turn runs NEW among old ones, and OLD again; then all go to NEW in the order that
`roost upgrade -check` gives; then each runs OLD again among new ones, and NEW again. A step ends when as many jobs as
--jobs, submitted after it, have ended. In the end each job that was acknowledged has run exactly once, none was held or
lost, and no message was left over that a daemon could not read. Exit status 1 otherwise.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from bench.compare import ROOT, tree_of
from engine.doctor import told_of
from engine.upgrade import Release, plan
from roost.client import Client
from roost.errors import ClientError
from shared.classad import ClassAd
from shared.messages.base import known_types, protocol
from shared.version import VERSION
from tests.integration.pools import ProcessPool
from tests.servers import Rabbit, Redis, free_port
from tests.waiting import wait_until

#: All daemons that are moved from one revision to the other.
ROLES = ("collector", "journal", "had", "negotiator", "schedd", "startd", "gateway")
#: Jobs of one submit, and seconds between two.
TOGETHER, APART_S = 2, 0.4
PATIENCE_S = 180.0
JOB = "#!/bin/sh\necho $$ >>{runs}/$1\nsleep 0.2\n"


class MixedPool(ProcessPool):
    """Each daemon is of a tree of its own."""

    def __init__(self, directory: Path, amqp_url: str, redis_url: str, tree: Path) -> None:
        super().__init__(
            directory, amqp_url, redis_url, free_port(), NUM_CPUS="4", MEMORY="4096", ROOST_STARTD_DOCKER="false"
        )
        self.trees = dict.fromkeys(ROLES, tree)

    def start_daemon(self, name: str) -> None:
        self._tree = self.trees[name]
        super().start_daemon(name)

    def begin(self) -> None:
        self.start_daemon("journal")
        self.start()

    def move(self, name: str, tree: Path) -> None:
        """Ends it in good order, and starts it from the other tree."""
        daemon = self.daemons.pop(name)
        daemon.terminate()
        daemon.wait()
        self._dead.append(daemon)
        self.trees[name] = tree
        self.start_daemon(name)


@dataclass
class Trickle:
    """Submits jobs until it is stopped. told: tokens of those that were acknowledged, with when that was."""

    pool: MixedPool
    work: Path
    told: list[str] = field(default_factory=list)
    refused: int = 0  # submits that were not taken, or of which nobody knows
    _stop: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def start(self) -> None:
        (self.work / "runs").mkdir(parents=True)
        script = self.work / "job"
        script.write_text(JOB.format(runs=self.work / "runs"))
        script.chmod(0o755)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join(PATIENCE_S)

    def _run(self) -> None:
        number = 0
        while not self._stop.wait(APART_S):
            tokens = [f"{number + n:06d}" for n in range(TOGETHER)]
            number += TOGETHER
            try:
                with self.pool.client() as client:
                    client.submit(
                        {
                            "executable": str(self.work / "job"),
                            "arguments": "$(token)",
                            "transfer_executable": "false",
                            "should_transfer_files": "NO",
                            "request_memory": "16MB",
                            "request_disk": "1MB",
                        },
                        itemdata=[{"token": token} for token in tokens],
                        directory=self.work,
                        spool=False,
                    )
            except (ClientError, OSError):
                self.refused += 1  # the gateway or the schedd is on its way from one revision to the other
            else:
                self.told += tokens

    def runs(self, token: str) -> int:
        """How often a job began."""
        try:
            return len((self.work / "runs" / token).read_text().splitlines())
        except FileNotFoundError:
            return 0

    def wait_for(self, jobs: int, what: str) -> float:
        """Until so many jobs ran of those that are submitted from now on, and all before them; seconds."""
        began, first = time.monotonic(), len(self.told)

        def done() -> bool:
            told = list(self.told)
            return len(told) >= first + jobs and all(self.runs(token) for token in told[: first + jobs])

        wait_until(done, PATIENCE_S, f"{jobs} jobs {what}; logs in {self.pool.directory}")
        return time.monotonic() - began


def steps(pool: MixedPool, trickle: Trickle, old: Path, new: Path, jobs: int) -> Iterator[str]:
    """Carries out all, and says what was done."""
    yield f"all old: {trickle.wait_for(jobs, 'with all old'):.1f} s"
    for role in ROLES:
        pool.move(role, new)
        took = trickle.wait_for(jobs, f"with a new {role}")
        pool.move(role, old)
        yield f"new {role} among old ones: {took:.1f} s; old again: {trickle.wait_for(jobs, f'{role} old again'):.1f} s"
    for role in order(pool):
        pool.move(role, new)
        yield f"upgraded {role}: {trickle.wait_for(jobs, f'as {role} is upgraded'):.1f} s"
    for role in ROLES:
        pool.move(role, old)
        took = trickle.wait_for(jobs, f"with an old {role}")
        pool.move(role, new)
        yield f"old {role} among new ones: {took:.1f} s; new again: {trickle.wait_for(jobs, f'{role} new again'):.1f} s"


def order(pool: MixedPool) -> list[str]:
    """As `roost upgrade -check` says; an old gateway may not know of it, and then it is the usual one."""
    wanted = Release(VERSION, protocol(), known_types())
    try:
        with pool.client() as client:
            found = client.daemons_health()
        made = plan(told_of(found), found.get("protocols") or {}, wanted)
        if made.problems:
            print(*(f"problem: {one}" for one in made.problems), sep="\n")
        if made.order:
            return [one.lower() for one in made.order if one.lower() in ROLES]
    except ClientError as error:
        print(f"roost upgrade -check: {error}; the usual order is taken")
    return list(ROLES)


def verdict(pool: MixedPool, trickle: Trickle) -> list[str]:
    """What is wrong in the end."""
    wait_until(lambda: all(trickle.runs(one) for one in trickle.told), PATIENCE_S, "all jobs to have run")
    found = [f"job {one} ran {trickle.runs(one)} times" for one in trickle.told if trickle.runs(one) != 1]
    with pool.client() as client:
        wait_until(lambda: not list(client.jobs(projection=["ProcId"])), PATIENCE_S, "an empty queue")
        found += [f"job {ad['ClusterId']}.{ad['ProcId']} is held: {ad['HoldReason']}" for ad in held(client)]
        found += [f"dead letter: {one['type']} in {one['queue']}: {one['reason']}" for one in client.dead_letters(100)]
        completed = sum(1 for _ in client.jobs(constraint="JobStatus == 4", projection=["ProcId"], history=True))
    if completed < len(trickle.told):
        found.append(f"{completed} jobs are in the history, of {len(trickle.told)} that were acknowledged")
    return found


def held(client: Client) -> list[ClassAd]:
    return list(client.jobs(constraint="JobStatus == 5", projection=["ClusterId", "ProcId", "HoldReason"]))


def main() -> int:
    parser = argparse.ArgumentParser(description="Daemons of two revisions in one pool.")
    parser.add_argument("old", help="revision, or directory of a checkout")
    parser.add_argument("new", nargs="?", default=str(ROOT), help="the same (this checkout)")
    parser.add_argument("--jobs", type=int, default=10, help="of each step (10)")
    options = parser.parse_args()
    with ExitStack() as stack:
        old, new = (stack.enter_context(tree_of(name)) for name in (options.old, options.new))
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="roost-upgrade-")))
        rabbit, redis = Rabbit(), Redis()
        for server in (rabbit, redis):
            stack.callback(server.close)
            server.start()
        pool = MixedPool(directory / "pool", rabbit.url, redis.url, old)
        stack.callback(pool.close)
        pool.begin()
        trickle = Trickle(pool, directory / "work")
        stack.callback(trickle.stop)
        trickle.start()
        for line in steps(pool, trickle, old, new, options.jobs):
            print(line, flush=True)
        trickle.stop()
        problems = verdict(pool, trickle)
    print(f"{len(trickle.told)} jobs acknowledged, {trickle.refused} submits refused while daemons were away")
    print(*problems or ["each ran once, and no message was left over"], sep="\n")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
