#!/usr/bin/env python3
"""Say, or do, something when a cluster of jobs is done: a consumer of the pool's events.

usage: notify.py [--once] [COMMAND [ARGUMENT...]]

Without a command it prints a line. A command gets that line on its standard input and the facts in its environment
(ROOST_CLUSTER, ROOST_COMPLETED, ROOST_FAILED, ROOST_HELD, ROOST_REMOVED):

    python examples/notify.py mail -s 'jobs are done' me@example.org

--once: end after the first cluster. A cluster is done when each of its jobs is completed, removed or on hold.
"""

import os
import subprocess
import sys
from collections import Counter

from roost.client import Client, Event
from roost.errors import ClientError

STATES = {3: "removed", 4: "completed", 5: "held"}
AT_WORK = "JobStatus != 3 && JobStatus != 4 && JobStatus != 5"
#: How long the queue may take to show what an event told, seconds.
SETTLE_S = 10


class Watch:
    """Which jobs of which clusters are still at work."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.at_work: dict[str, set[str]] = {}  # cluster -> job ids
        self.told: dict[str, Counter[str]] = {}  # cluster -> outcome

    def look(self) -> None:
        """Called whenever the stream of events opens: what is in the queue already."""
        for ad in self.client.jobs(constraint=AT_WORK, projection=["ClusterId", "ProcId"]):
            cluster = str(ad.eval("ClusterId"))
            self.at_work.setdefault(cluster, set()).add(f"{cluster}.{ad.eval('ProcId')}")

    def take(self, event: Event) -> str:
        """The cluster that may be done with this event, or nothing."""
        body = event.body
        if event.type == "job.submitted":
            cluster, first = str(body["cluster"]), body["first_proc"]
            jobs = {f"{cluster}.{proc}" for proc in range(first, first + body["count"])}
            self.at_work.setdefault(cluster, set()).update(jobs)
            return ""
        job = body["job_id"]
        cluster = job.partition(".")[0]
        jobs = self.at_work.setdefault(cluster, set())
        if event.type in ("job.ended", "job.held", "job.removed"):
            jobs.discard(job)
        else:  # released, evicted: at work again
            jobs.add(job)
        return "" if jobs else cluster

    def outcome(self, cluster: str) -> Counter[str] | None:
        """How many jobs ended how; None while some are still at work (an ended job may be run again), and when that is
        no news (a job that ends and is put on hold makes two events)."""
        try:
            self.client.wait([cluster], timeout=SETTLE_S)
        except TimeoutError:
            self.look()
            return None
        del self.at_work[cluster]
        counts: Counter[str] = Counter()
        for history in (True, False):
            for ad in self.client.jobs(cluster, projection=["JobStatus", "ExitCode"], history=history):
                state = STATES[int(str(ad.eval("JobStatus")))]
                counts["failed" if state == "completed" and ad.eval("ExitCode") != 0 else state] += 1
        if counts == self.told.get(cluster):
            return None
        self.told[cluster] = counts
        return counts


def tell(cluster: str, counts: Counter[str], command: list[str]) -> None:
    line = f"cluster {cluster} is done: " + ", ".join(f"{count} {state}" for state, count in sorted(counts.items()))
    if not command:
        print(line, flush=True)
        return
    facts = {f"ROOST_{state.upper()}": str(counts[state]) for state in ("completed", "failed", "held", "removed")}
    done = subprocess.run(
        command, input=line + "\n", text=True, check=False, env={**os.environ, **facts, "ROOST_CLUSTER": cluster}
    )
    if done.returncode:
        print(f"{command[0]} ended with {done.returncode}", file=sys.stderr)


def main(arguments: list[str]) -> int:
    if arguments[:1] in (["-h"], ["--help"]):
        print(__doc__)
        return 0
    once = arguments[:1] == ["--once"]
    command = arguments[1:] if once else arguments
    types = [f"job.{what}" for what in ("submitted", "ended", "evicted", "held", "released", "removed")]
    with Client() as events, Client() as questions:
        watch = Watch(questions)
        for event in events.events(*types, on_open=watch.look):
            cluster = watch.take(event)
            counts = watch.outcome(cluster) if cluster else None
            if counts:
                tell(cluster, counts, command)
                if once:
                    return 0
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except ClientError as error:
        sys.exit(f"notify.py: {error}")
    except KeyboardInterrupt:
        sys.exit(130)
