"""The faults: how each one is done to a pool, and undone."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.faults.pool import CENTRAL, FaultPool, Member
from bench.faults.servers import RabbitCluster, ReplicatedRedis
from bench.faults.workload import Workload
from tests.servers import Rabbit, Redis
from tests.waiting import wait_until

PATIENCE_S = 180.0

#: Makes what the fault lasts within.
Strike = Callable[[], AbstractContextManager[object]]


@dataclass(frozen=True, slots=True)
class Fault:
    """lasts_s: how long until what was lost is back; aims: seconds without service that are the aim, by what is
    wanted."""

    name: str
    strike: Strike
    lasts_s: float
    aims: dict[str, float]


@contextmanager
def killed(*members: Member) -> Iterator[None]:
    for member in members:
        member.kill()
    try:
        yield
    finally:
        for member in members:
            member.start()


@contextmanager
def frozen(*members: Member | Rabbit | Redis) -> Iterator[None]:
    for member in members:
        member.freeze()
    try:
        yield
    finally:
        for member in members:
            member.thaw()


@contextmanager
def lost(server: Rabbit | Redis) -> Iterator[None]:
    server.kill()
    try:
        yield
    finally:
        server.start()


@contextmanager
def full(directory: Path) -> Iterator[None]:
    """No room at all on the file system of this directory."""
    filler = directory / "filler"
    with filler.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(bytes(4096))
    try:
        yield
    finally:
        filler.unlink()


@contextmanager
def all_of(*faults: AbstractContextManager[object]) -> Iterator[None]:
    with ExitStack() as stack:
        for fault in faults:
            stack.enter_context(fault)
        yield


def none(lasts_s: float) -> Fault:
    return Fault("nothing", contextlib.nullcontext, lasts_s, {})


def of_daemons(pool: FaultPool, lasts_s: float, schedd_s: float) -> list[Fault]:
    """kill -9 and SIGSTOP of each kind of daemon. lasts_s: how long each one is away; schedd_s: the schedd."""

    def leading(*kinds: str) -> list[Member]:
        leader = pool.leader()
        return [pool[kind, leader] for kind in kinds]

    failover = {"match": 2.0}
    found = [
        Fault("the active negotiator", lambda: killed(*leading("negotiator")), lasts_s, failover),
        Fault("the active HAD", lambda: killed(*leading("had")), lasts_s, failover),
        Fault("the active negotiator and its HAD", lambda: killed(*leading("negotiator", "had")), lasts_s, failover),
        Fault("one collector", lambda: killed(pool["collector", "cm1"]), lasts_s, {"query": 1.0}),
        Fault("both collectors", lambda: killed(*(pool["collector", name] for name in CENTRAL)), 0.0, {}),
        Fault("the schedd", lambda: killed(pool["schedd", "ap"]), schedd_s, {}),
        Fault("one startd", lambda: killed(pool["startd", "ep1"]), lasts_s, {}),
        Fault("one gateway", lambda: killed(pool["gateway", "gw1"]), lasts_s, {}),
    ]
    killing = [Fault(f"{fault.name} killed", fault.strike, fault.lasts_s, fault.aims) for fault in found]
    hanging = [
        Fault("the active negotiator hung", lambda: frozen(*leading("negotiator")), lasts_s, {"match": 5.0}),
        Fault("the active HAD hung", lambda: frozen(*leading("had")), lasts_s, {"match": 5.0}),
        Fault("one collector hung", lambda: frozen(pool["collector", "cm1"]), lasts_s, {}),
        Fault("the schedd hung", lambda: frozen(pool["schedd", "ap"]), lasts_s, {}),
        Fault("one startd hung", lambda: frozen(pool["startd", "ep1"]), lasts_s, {}),
        Fault("one gateway hung", lambda: frozen(pool["gateway", "gw1"]), lasts_s, {}),
    ]
    everything = Fault("all daemons killed at once", lambda: killed(*pool.members.values()), 0.0, {})
    return [*killing, *hanging, everything]


def of_servers(pool: FaultPool, redis: ReplicatedRedis, rabbit: RabbitCluster, lasts_s: float) -> list[Fault]:
    within = {"submit": 10.0, "match": 10.0, "query": 10.0}

    def everything() -> AbstractContextManager[None]:
        servers = (*(lost(node) for node in rabbit.nodes), *(lost(server) for server in redis.servers))
        return all_of(*servers, killed(*pool.members.values()))

    return [
        Fault("Redis's primary killed", lambda: lost(redis.primary()), lasts_s, within),
        Fault("Redis's primary hung", lambda: frozen(redis.primary()), lasts_s, within),
        Fault("one RabbitMQ node of three killed", lambda: lost(rabbit.busiest()), lasts_s, within),
        Fault("one RabbitMQ node of three hung", lambda: frozen(rabbit.busiest()), lasts_s, {}),
        Fault("the schedd's disk full", lambda: full(pool.spool), lasts_s, {}),
        Fault("servers and daemons, all killed at once", everything, 0.0, {}),
    ]


def endure(fault: Fault, work: Workload, pool: FaultPool) -> dict[str, float]:
    """Let it happen and be over, and wait until the pool serves again: the longest times without service meanwhile, in
    seconds, by what was wanted."""
    work.use_first_gateway()
    struck = time.time()
    with fault.strike():
        time.sleep(fault.lasts_s)
    over = time.time()
    wait_until(lambda: work.served(over), PATIENCE_S, f"service after: {fault.name}")
    until = time.time()
    pool.wait_ready()
    return work.without(struck, until)
