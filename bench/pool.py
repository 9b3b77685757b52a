"""What a pool as a whole costs: submit-to-start latency, throughput of short jobs, submit rate, messages per job.

    python -m bench.pool                 embedded: `roost up` in one process
    python -m bench.pool --servers       every daemon a process, on a private RabbitMQ and Redis
    python -m bench.pool --json FILE     the figures, for machines

Everything is seen from outside, through the gateway. Latency is from the moment the client begins its submit call until
the schedd has heard from the startd that the job runs (event job.started), so HTTP, commit, negotiation, claim, and the
start of the process are in it. Throughput is of /bin/true on one startd with 8 slots, from the first start to the last
end, file transfer excluded (same file system). The submit rate is of `roost submit` as a user runs it, Python's start
included, on one cluster of 20,000 jobs that are queued on hold. Processor time per job is of the throughput: of each
daemon and server with all that it started (of the startd apart: the fork server; nannies and jobs), the listener's
gateway included. Messages per job are of the throughput too: on servers what the broker was given and what it handed
on, answers to calls and all; embedded what the daemons publish.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import psutil

from roost.client import Event
from roost.submit import Description, here
from tests.integration.inside import InsidePool
from tests.integration.pools import EmbeddedPool, Pool, ProcessPool
from tests.servers import Rabbit, Redis, free_port

#: The shortest job, without its last line.
TRUE = "executable = /bin/true\ntransfer_executable = false\nshould_transfer_files = NO\n"


class Listener:
    """Gathers events in a thread of its own."""

    def __init__(self, pool: Pool, *types: str) -> None:
        self.events: list[tuple[float, Event]] = []
        self.changed = threading.Condition()
        self._client = pool.client()
        opened = threading.Event()
        threading.Thread(target=self._follow, args=(types, opened), daemon=True).start()
        opened.wait(10)

    def _follow(self, types: tuple[str, ...], opened: threading.Event) -> None:
        for event in self._client.events(*types, on_open=opened.set):
            with self.changed:
                self.events.append((time.time(), event))
                self.changed.notify_all()

    def wait_for(self, count: int, timeout_s: float) -> None:
        with self.changed:
            if not self.changed.wait_for(lambda: len(self.events) >= count, timeout_s):
                raise TimeoutError(f"{len(self.events)} of {count} events after {timeout_s:g} s")


def description(directory: Path, text: str) -> Description:
    return Description(text, here("bench.sub", directory), now=time.time())


def latency(pool: Pool, directory: Path, jobs: int) -> dict[str, float]:
    """Jobs that come one at a time to an idle pool, 0.05 to 1 s apart."""
    listener = Listener(pool, "job.started", "job.ended")
    cluster = next(description(directory, f"{TRUE}queue\n").clusters())
    begun: dict[str, float] = {}
    chance = random.Random(1)
    with pool.client() as client:
        for number in range(jobs):
            start = time.time()
            queued = client.submit(cluster.ad, cluster.jobs())
            begun[f"{queued.cluster}.0"] = start
            listener.wait_for(2 * (number + 1), 30)
            time.sleep(chance.uniform(0.05, 1.0))
    seconds = sorted(
        event.body["at"] - begun[event.body["job_id"]] for _, event in listener.events if event.type == "job.started"
    )
    return {
        "latency_median_s": statistics.median(seconds),
        "latency_p90_s": seconds[int(len(seconds) * 0.9)],
        "latency_max_s": seconds[-1],
        "latency_jobs": len(seconds),
    }


def processor_s(pids: Mapping[str, int]) -> dict[str, float]:
    """Processor time of processes by name, in s, with all that they started as far as it lives or was waited for. Of a
    startd apart: "forkserver", what it has as children itself, and "jobs", what these have started."""
    used = dict.fromkeys(pids, 0.0)
    for name, pid in pids.items():
        root = psutil.Process(pid)
        theirs = ("forkserver", "jobs") if name == "startd" else (name, name)
        _add(used, root, name, theirs[0])
        for child in root.children():
            _add(used, child, *theirs)
            with suppress(psutil.NoSuchProcess):
                for one in child.children(recursive=True):
                    _add(used, one, theirs[1], theirs[1])
    return used


def _add(used: dict[str, float], process: psutil.Process, own: str, waited_for: str) -> None:
    """Add up what a process used, and what those used that it has waited for, under two names."""
    with suppress(psutil.NoSuchProcess):
        times = process.cpu_times()
        used[own] = used.get(own, 0.0) + times.user + times.system
        used[waited_for] = used.get(waited_for, 0.0) + times.children_user + times.children_system


def messages(rabbit: Rabbit) -> dict[str, int]:
    """What a broker was given since its start, and what it handed on: messages, answers to calls included."""
    told = rabbit.ctl("eval", "rabbit_global_counters:overview().")

    def total(of: str) -> int:
        return sum(map(int, re.findall(rf"\b{of}\s*=>\s*(\d+)", told)))

    return {"published": total("messages_received_total"), "delivered": total("messages_delivered_total")}


def throughput(
    pool: Pool, directory: Path, jobs: int, pids: Mapping[str, int], rabbit: Rabbit | None
) -> dict[str, float]:
    said = messages(rabbit) if rabbit is not None else {}
    before = processor_s(pids)
    listener = Listener(pool, "job.started", "job.ended")
    cluster = next(description(directory, f"{TRUE}queue {jobs}\n").clusters())
    with pool.client() as client:
        client.submit(cluster.ad, cluster.jobs())
        listener.wait_for(2 * jobs, 600)
    starts = [event.body["at"] for _, event in listener.events if event.type == "job.started"]
    ends = [event.body["at"] for _, event in listener.events if event.type == "job.ended"]
    used = {name: (after - before.get(name, 0.0)) / jobs * 1e3 for name, after in processor_s(pids).items()}
    heard = messages(rabbit) if rabbit is not None else {}
    return {
        "throughput_jobs_per_s": jobs / (max(ends) - min(starts)),
        "throughput_jobs": jobs,
        **{f"processor_ms_{name}": value for name, value in used.items()},
        "processor_ms_per_job": sum(used.values()),
        **{f"messages_{name}_per_job": (count - said[name]) / jobs for name, count in heard.items()},
    }


def submit_rate(pool: Pool, directory: Path, jobs: int) -> dict[str, float]:
    (directory / "many.sub").write_text(
        "executable = /bin/true\ntransfer_executable = false\narguments = $(Process)\noutput = out.$(Process)\n"
        f"hold = true\nqueue {jobs}\n"
    )
    begun = time.perf_counter()
    subprocess.run(
        [sys.executable, "-m", "roost", "submit", "many.sub"],
        cwd=directory,
        env=pool.environment(),
        check=True,
        stdout=subprocess.DEVNULL,
    )
    took = time.perf_counter() - begun
    with pool.client() as client:
        client.act("remove", constraint="JobStatus == 5")
    return {"submit_jobs_per_s": jobs / took, "submit_jobs": jobs}


def messages_per_job(jobs: int = 1000) -> float:
    """Messages that all daemons of an embedded pool publish for a job, answers to calls not counted, less what an idle
    pool says in the same time."""
    with tempfile.TemporaryDirectory(prefix="roost-bench-") as folder:
        pool = InsidePool(Path(folder) / "pool", NUM_CPUS="8", MEMORY="16384")

        def published() -> int:
            daemons = [runner.daemon for runner in pool.pool.runners]
            return sum(daemon.context.bus.health.published for daemon in daemons if daemon is not None)

        try:
            work = Path(folder) / "work"
            work.mkdir()
            before = published()
            time.sleep(5)
            idle = (published() - before) / 5
            cluster = next(description(work, f"{TRUE}queue {jobs}\n").clusters())
            before, begun = published(), time.monotonic()
            with pool.client() as client:
                client.wait([str(client.submit(cluster.ad, cluster.jobs()).cluster)], timeout=120)
            return (published() - before - idle * (time.monotonic() - begun)) / jobs
        finally:
            pool.close()


def measure(servers: bool, scale: float) -> dict[str, Any]:
    rabbit: Rabbit | None = None
    figures: dict[str, Any] = {"transport": "RabbitMQ + Redis" if servers else "embedded"}
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="roost-bench-")))
        pool: EmbeddedPool | ProcessPool
        if servers:
            rabbit, redis = Rabbit(), Redis()
            for server in (rabbit, redis):
                stack.callback(server.close)
                server.start()
            pool = ProcessPool(
                directory / "pool", rabbit.url, redis.url, free_port(), NUM_CPUS="8", MEMORY="16384", DOCKER=""
            )
            stack.callback(pool.close)
            pool.start()
            pids = {name: daemon.pid for name, daemon in pool.daemons.items()}
            for server in (rabbit, redis):
                assert server.process is not None
                pids[server.program] = server.process.pid
        else:
            pool = EmbeddedPool(directory / "pool")
            stack.callback(pool.close)
            pool.start("-cpus", "8", "-memory", "16384")
            pids = {"pool": pool.process.pid}
        work = directory / "work"
        work.mkdir()
        latency(pool, work, 3)  # warm
        figures |= latency(pool, work, int(40 * scale))
        figures |= throughput(pool, work, int(2000 * scale), pids, rabbit)
        figures |= submit_rate(pool, work, int(20_000 * scale))
    if not servers:
        figures["messages_per_job"] = messages_per_job()
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description="Latency, throughput and submit rate of a pool.")
    parser.add_argument("--servers", action="store_true", help="on a private RabbitMQ and Redis")
    parser.add_argument("--scale", type=float, default=1.0, help="fewer or more jobs (1.0)")
    parser.add_argument("--json", type=Path, help="write the figures there")
    options = parser.parse_args()
    figures = measure(options.servers, options.scale)
    for name, value in figures.items():
        print(f"{name:<24} {value:>12.4g}" if isinstance(value, float) else f"{name:<24} {value:>12}")
    if options.json:
        options.json.write_text(json.dumps(figures, indent=2) + "\n")


if __name__ == "__main__":
    main()
