#!/usr/bin/env python3
"""Start execution points when jobs wait, and stop them when they have nothing to do.

    python examples/autoscaler/autoscaler.py --dry-run                      (says what it would do; for any pool)
    python examples/autoscaler/autoscaler.py --process --state workers      (startds as processes on this machine)
    python examples/autoscaler/autoscaler.py --docker roost/pool:latest \\
        --network roost_pool --volume roost_startd-join:/run/roost/key:ro --prefix startd-auto
    python examples/autoscaler/autoscaler.py --kubernetes pool-startd --namespace jobs

A pool of `roost up` keeps its messages inside its process, where no other startd can join: try --dry-run there. A pool
with a broker takes workers: start it with `roost up -amqp URL -redis URL`, and this with ROOST_AMQP_URL
set to the same; or use the compose pool, where --docker runs startds beside those of compose; or the chart, whose
StatefulSet of execution points --kubernetes makes larger and smaller (kubernetes.py).

It looks whenever jobs come, go or are given back, and every --every seconds. decisions.py says when it does what. A
worker is drained first: what runs on it may end. Workers are known by a label (containers), by files in --state
(processes) or by the number of replicas (Kubernetes), so this program may be stopped and started again at any time; its
workers stay.
"""

import argparse
import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any, Protocol

sys.path.insert(0, str(Path(__file__).parent))

from decisions import Decision, Memory, Policy, Size, Worker, decide
from kubernetes import StatefulSet

from roost import Client, ClientError, Consumer

LABEL = "roost.autoscaler"
#: Why a machine is drained: by this its own drainings are known again.
DRAINED = "the autoscaler: idle"
BUSY = ("Claimed", "Preempting", "Matched")
TYPES = ("job.submitted", "job.released", "job.evicted", "job.ended", "job.removed", "slot.changed", "claim.ended")


class Workers(Protocol):
    """Where workers run. All of it may be repeated. in_order: only the last one can be stopped. first: the number of
    the first one."""

    in_order: bool
    first: int

    def names(self) -> dict[str, bool]:
        """The workers there are, and whether each lives."""

    def start(self, name: str) -> None: ...
    def stop(self, name: str) -> None: ...


class DryRun:
    in_order = False
    first = 1

    def __init__(self) -> None:
        self._names: dict[str, bool] = {}

    def names(self) -> dict[str, bool]:
        return dict(self._names)

    def start(self, name: str) -> None:
        print(f"would start {name}", flush=True)

    def stop(self, name: str) -> None:
        print(f"would stop {name}", flush=True)


class Processes:
    """A startd for each worker, with a directory of its own; `pid` in it says which process it is."""

    in_order = False
    first = 1

    def __init__(self, folder: Path, size: Size) -> None:
        if not os.environ.get("ROOST_AMQP_URL"):
            raise ClientError("set ROOST_AMQP_URL: workers join the pool over its broker", "usage")
        self.folder, self.size = folder.absolute(), size
        self._children: dict[str, subprocess.Popen[bytes]] = {}

    def names(self) -> dict[str, bool]:
        return {path.parent.name: self._lives(path) for path in sorted(self.folder.glob("*/pid"))}

    def _lives(self, path: Path) -> bool:
        child = self._children.get(path.parent.name)
        if child is not None:
            return child.poll() is None
        with contextlib.suppress(OSError, ValueError):
            # A number that some other program has by now is none of ours.
            return path.parent.name.encode() in Path(f"/proc/{int(path.read_text())}/cmdline").read_bytes()
        return False

    def start(self, name: str) -> None:
        place = self.folder / name
        place.mkdir(parents=True, exist_ok=True)
        settings = {
            "STARTD_NAME": name,
            "NUM_CPUS": self.size.cpus,
            "MEMORY": self.size.memory_mib,
            "SPOOL": place / "spool",
            "EXECUTE": place / "execute",
            "LOG": place / "log",
            "ROOST_HEALTH_PORT": 0,
        }
        with (place / "startd.log").open("ab") as log:
            child = subprocess.Popen(
                [sys.executable, "-m", "services.startd", "-name", name],
                env={**os.environ, **{f"_CONDOR_{key}": str(value) for key, value in settings.items()}},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._children[name] = child
        (place / "pid").write_text(str(child.pid))

    def stop(self, name: str) -> None:
        path = self.folder / name / "pid"
        if self._lives(path):
            os.kill(int(path.read_text()), signal.SIGTERM)
            return  # the next look finds it dead, and takes its file away
        path.unlink(missing_ok=True)
        if child := self._children.pop(name, None):
            child.wait()


class Containers:
    """A container for each worker, beside those of the compose pool."""

    in_order = False
    first = 1

    def __init__(self, options: argparse.Namespace, size: Size) -> None:
        import docker

        self._docker = docker.from_env()
        self._options, self._size = options, size

    def names(self) -> dict[str, bool]:
        found = self._docker.containers.list(all=True, filters={"label": f"{LABEL}={self._options.prefix}"})
        return {one.name: one.status in ("created", "running", "restarting") for one in found}

    def start(self, name: str) -> None:
        environment = dict(one.split("=", 1) for one in self._options.env)
        environment |= {"NUM_CPUS": str(self._size.cpus), "MEMORY": str(self._size.memory_mib)}
        if not {"ROOST_AMQP_URL", "ROOST_AMQP_URL_FILE"} & set(environment):
            environment.setdefault("ROOST_JOIN_TOKEN_FILE", "/run/roost/key/join_token")
        self._docker.containers.run(
            self._options.docker,
            self._options.command.split() if self._options.command else ["python3", "-m", "services.startd"],
            name=name,
            hostname=name,
            labels={LABEL: self._options.prefix},
            environment={**environment, "_CONDOR_STARTD_NAME": name},
            network=self._options.network or None,
            # Also the user that the pool gave to this name: a worker of the same name finds it again.
            volumes=[*self._options.volume, f"{name}-spool:/var/lib/roost/spool"],
            nano_cpus=self._size.cpus * 10**9,
            mem_limit=f"{self._size.memory_mib + 256}m",  # the startd itself
            restart_policy={"Name": "unless-stopped"},
            detach=True,
        )

    def stop(self, name: str) -> None:
        container = self._docker.containers.get(name)
        container.stop(timeout=30)
        container.remove(force=True)


class Autoscaler:
    def __init__(self, workers: Workers, policy: Policy, options: argparse.Namespace) -> None:
        self.workers, self.policy, self.options = workers, policy, options
        self.memory = Memory()
        self.since: dict[tuple[str, str], float] = {}
        self.draining: set[str] = set()
        self.started: set[str] = set()

    def look(self, now: float) -> Decision:
        """One look at the pool, and what follows from it. Raises ClientError."""
        with Client(self.options.pool) as client:
            jobs, free, machines, drained = self._pool(client)
            self._take_over(client, drained)
            workers = self._states(machines, now)
            usable = [size for name, size in free if name not in self.draining]
            decision, self.memory = decide(now, self.memory, jobs, usable, workers, self.policy)
            for name in decision.drain:
                self._say(f"drain {name}: {decision.why}")
                if not self.options.dry_run:
                    client.order("/v1/machines/drain", {"names": [name], "reason": DRAINED})
                self.draining.add(name)
        for name in decision.stop:
            self._say(f"stop {name}")
            self.workers.stop(name)
        if not decision.stop:
            self.draining &= set(self.workers.names())
        taken = set(self.workers.names())
        numbered = (f"{self.options.prefix}-{n}" for n in range(self.workers.first, 10**6))
        fresh = (name for name in numbered if name not in taken)
        for name, _ in zip(fresh, range(decision.start), strict=False):
            self.draining.discard(name)
            self.started.add(name)
            self.workers.start(name)
            self._say(f"started {name}: {decision.why}")
        if decision.never:
            self._say(f"{decision.never} jobs ask for more than a worker has")
        return decision

    def _take_over(self, client: Client, drained: set[str]) -> None:
        """Drainings of an earlier life of this program are its own. A worker that was stopped while it drained, and is
        started again, is told that this is over."""
        for name in sorted(drained & set(self.workers.names()) - self.draining):
            if name in self.started:
                self._say(f"undrain {name}")
                client.order("/v1/machines/cancel-drain", {"names": [name]})
            else:
                self.draining.add(name)

    def _pool(self, client: Client) -> tuple[Counter[Size], list[tuple[str, Size]], dict[str, bool], set[str]]:
        """(idle jobs by size, free slots by machine, machine -> whether it has a claimed slot, machines that we
        drain)"""
        jobs: Counter[Size] = Counter()
        for ad in client.jobs(
            constraint=f"JobStatus == 1 && ({self.options.constraint})",
            projection=["RequestCpus", "RequestMemory", "RequestGPUs", "ImageSize", "MemoryUsage"],
        ):
            jobs[Size(_whole(ad, "RequestGPUs"), max(1, _whole(ad, "RequestCpus")), _whole(ad, "RequestMemory"))] += 1
        free, machines, drained = [], {}, set()
        for ad in client.ads("Machine", projection=["Name", "State", "Cpus", "Memory", "GPUs", "DrainReason"]):
            machine = str(ad.eval("Name")).rpartition("@")[2]
            state = str(ad.eval("State"))
            machines[machine] = machines.get(machine, False) or state in BUSY
            if state == "Unclaimed":
                free.append((machine, Size(_whole(ad, "GPUs"), _whole(ad, "Cpus"), _whole(ad, "Memory"))))
            if ad.eval("DrainReason") == DRAINED:
                drained.add(machine)
        return jobs, free, machines, drained

    def _states(self, machines: dict[str, bool], now: float) -> list[Worker]:
        found = []
        for name, lives in self.workers.names().items():
            if not lives:
                state = "dead"
            elif name in self.draining:
                state = "draining"
            else:
                state = "running" if name in machines else "starting"
            since = self.since.setdefault((name, state), now)
            found.append(Worker(name, state, machines.get(name, False), since))  # type: ignore[arg-type]
        self.since = {(w.name, w.state): w.since for w in found}
        return found

    def _say(self, text: str) -> None:
        print(f"{time.strftime('%H:%M:%S')} {text}", flush=True)

    async def run(self) -> None:
        consumer = Consumer(self.options.pool, types=TYPES)
        news = asyncio.Event()

        @consumer.on(*TYPES)
        async def wake(_: Any) -> None:
            news.set()

        following = asyncio.create_task(consumer.run_async(signals=True))
        try:
            while not following.done():
                news.clear()
                try:
                    await asyncio.to_thread(self.look, time.monotonic())
                except ClientError as error:
                    if not error.retryable:
                        raise
                    self._say(f"the pool: {error}")
                waking = asyncio.create_task(news.wait())
                await asyncio.wait({waking, following}, timeout=self.options.every, return_when=asyncio.FIRST_COMPLETED)
                waking.cancel()
                if not following.done():
                    await asyncio.wait({following}, timeout=min(1.0, self.options.every))  # no storm of looks
            following.result()
        finally:
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)


def _whole(ad: Any, name: str) -> int:
    value = ad.eval(name)
    return round(value) if isinstance(value, int | float) else 0


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    how = made.add_mutually_exclusive_group(required=True)
    how.add_argument("--dry-run", action="store_true")
    how.add_argument("--process", action="store_true", help="workers are processes of this machine")
    how.add_argument("--kubernetes", metavar="STATEFULSET", default="", help="workers are its pods; with kubectl")
    how.add_argument("--docker", metavar="IMAGE", default="", help="workers are containers of this image")
    made.add_argument("--cpus", type=int, default=2, help="of a worker (%(default)s)")
    made.add_argument("--memory", type=int, default=2048, metavar="MIB", help="of a worker (%(default)s)")
    made.add_argument("--gpus", type=int, default=0, help="of a worker (%(default)s)")
    made.add_argument("--least", type=int, default=0, help="workers there always are (%(default)s)")
    made.add_argument("--most", type=int, default=4, help="workers at most (%(default)s)")
    made.add_argument("--step", type=int, default=2, help="workers started at a time (%(default)s)")
    made.add_argument("--start-after", type=float, default=10.0, metavar="S", help="(%(default)g)")
    made.add_argument("--idle-after", type=float, default=300.0, metavar="S", help="(%(default)g)")
    made.add_argument("--every", type=float, default=10.0, metavar="S", help="look at least so often (%(default)g)")
    made.add_argument("--constraint", default="true", help="which idle jobs count (ClassAd expression)")
    made.add_argument("--prefix", default=f"auto-{socket.gethostname().partition('.')[0]}", help="of workers' names")
    made.add_argument("--state", type=Path, default=Path("workers"), help="directory of processes (%(default)s)")
    made.add_argument("--network", default="", help="of containers")
    made.add_argument("--volume", action="append", default=[], metavar="FROM:TO[:ro]", help="of containers; repeat")
    made.add_argument("--env", action="append", default=[], metavar="NAME=VALUE", help="of containers; repeat")
    made.add_argument("--command", default="", help="of containers (default: a startd)")
    made.add_argument("--namespace", default="default", help="of the StatefulSet (%(default)s)")
    made.add_argument("--pool", default=None, help="URL of the pool's gateway (default: what roost finds)")
    return made


def main() -> None:
    options = parser().parse_args()
    size = Size(options.gpus, options.cpus, options.memory)
    try:
        workers: Workers
        if options.kubernetes:
            workers = StatefulSet(options.kubernetes, options.namespace)
            options.prefix = options.kubernetes
        elif options.docker:
            workers = Containers(options, size)
        elif options.process:
            workers = Processes(options.state, size)
        else:
            workers = DryRun()
        policy = Policy(
            size,
            options.least,
            options.most,
            options.step,
            options.start_after,
            options.idle_after,
            in_order=workers.in_order,
        )
        asyncio.run(Autoscaler(workers, policy, options).run())
    except ClientError as error:
        sys.exit(f"autoscaler.py: {error}")


if __name__ == "__main__":
    main()
