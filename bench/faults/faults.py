"""The faults: how each one is done to a pool, and undone."""

from __future__ import annotations

import contextlib
import random
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Protocol

from bench.faults.containers import CENTRAL as NUMBERS
from bench.faults.containers import HEARS as INPUT
from bench.faults.containers import SPEAKS as OUTPUT
from bench.faults.containers import Container, ContainerPool, at_once, cut, memory_limits_met
from bench.faults.network import HEARS, SPEAKS, Networks
from bench.faults.pool import CENTRAL, FaultPool, Member
from bench.faults.servers import RabbitCluster, RabbitNode, ReplicatedRedis
from bench.faults.workload import Workload
from tests.servers import Rabbit, Redis
from tests.waiting import wait_until

PATIENCE_S = 180.0
#: Machines that are rebooted come back within so many seconds of each other.
REBOOTS_WITHIN_S = 3.0

#: Makes what the fault lasts within.
Strike = Callable[[], AbstractContextManager[object]]

#: Seconds without service that are the aim on a quiet machine. A job is submitted twice a second, so half a second more
#: may pass between two matches. Sentinels wait for 1 s before they take a primary for dead (bench.faults.servers).
REDIS_WITHIN = {"submit": 3.0, "match": 3.5, "query": 3.0}
RABBITMQ_WITHIN = {"submit": 3.0, "match": 3.5, "query": 3.0, "two leaders": 0.0}
#: The leading negotiator, its HAD or both were killed, or hang.
KILLED = {"leader": 1.0, "match": 1.5, "two leaders": 0.0}
HUNG = {"leader": 2.0, "match": 2.5, "two leaders": 0.0}
#: A gateway or a collector hangs: clients go to another.
ELSEWHERE = {"submit": 2.5, "query": 2.0}
EVERYTHING = {"submit": 5.0, "match": 5.5, "query": 5.0}


class Victim(Protocol):
    """A daemon or a server, as a process or a container."""

    def kill(self) -> None: ...

    def start(self) -> None: ...

    def freeze(self) -> None: ...

    def thaw(self) -> None: ...


class Pool(Protocol):
    def leader(self) -> str: ...

    def wait_ready(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Fault:
    """lasts_s: how long until what was lost is back; aims: seconds without service that are the aim, by what is
    wanted. within: what the pool must be brought to before the workload begins. restarts: jobs of the workload end
    with what is struck, and begin again elsewhere."""

    name: str
    strike: Strike
    lasts_s: float
    aims: dict[str, float]
    within: Strike = nullcontext
    restarts: bool = False


@contextmanager
def killed(*victims: Victim) -> Iterator[None]:
    at_once([victim.kill for victim in victims])
    try:
        yield
    finally:
        at_once([victim.start for victim in victims])


@contextmanager
def rebooted(victims: Sequence[Victim]) -> Iterator[None]:
    """Whatever runs on their machines is gone at once, jobs as well, and only what is on disks is left; they come back
    in any order."""
    at_once([victim.crash if isinstance(victim, Member) else victim.kill for victim in victims])
    yield
    chance = random.Random(time.time())
    begun = time.monotonic()

    def start(victim: Victim, after_s: float) -> None:
        time.sleep(max(0.0, begun + after_s - time.monotonic()))
        victim.start()

    at_once([partial(start, victim, chance.uniform(0.0, REBOOTS_WITHIN_S)) for victim in victims])


@contextmanager
def frozen(*victims: Victim) -> Iterator[None]:
    at_once([victim.freeze for victim in victims])
    try:
        yield
    finally:
        at_once([victim.thaw for victim in victims])


@contextmanager
def small_disk(directory: Path, mib: int) -> Iterator[None]:
    """A file system of its own, to be filled (takes root)."""
    directory.mkdir(parents=True)
    mount = ["mount", "-t", "tmpfs", "-o", f"size={mib}m", "tmpfs", str(directory)]
    subprocess.run(mount, check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(directory)], check=True)


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
def clocks_set(ahead_s: int, *members: Member) -> Iterator[None]:
    """The time of their machine is set, and set back."""
    for member in members:
        member.set_clock(ahead_s)
    try:
        yield
    finally:
        for member in members:
            member.set_clock(0)


@contextmanager
def memory_alarm(nodes: Sequence[RabbitNode | Rabbit], lasts_s: float) -> Iterator[None]:
    """RabbitMQ takes itself to be short of memory for so long, and no more messages. It counts the time itself, as its
    own command may take as long to start."""
    setting = "vm_memory_monitor:set_vm_memory_high_watermark"
    spell = f"spawn(fun() -> {setting}(0.00001), timer:sleep({round(lasts_s * 1000)}), {setting}(0.4) end)."
    at_once([lambda node=node: node.ctl("eval", spell) for node in nodes])  # type: ignore[misc]
    yield


@contextmanager
def at_maxmemory(server: Redis) -> Iterator[None]:
    """Redis refuses all writes that need memory."""
    server.command("CONFIG", "SET", "maxmemory", "1")
    try:
        yield
    finally:
        server.command("CONFIG", "SET", "maxmemory", "0")


@contextmanager
def restarted_in_turns(pool: FaultPool) -> Iterator[None]:
    """Each daemon is stopped in good order and started; the next one when all are ready."""
    for member in pool.members.values():
        member.stop()
        member.start()
        pool.wait_ready()
    yield


@contextmanager
def dead_primary(pool: FaultPool | ContainerPool, primary: str, *victims: Victim) -> Iterator[None]:
    """The primary of HAD_USE_PRIMARY is dead, and somebody else leads, until `returns` or the end."""
    pool.with_primary(True)
    try:
        wait_until(lambda: pool.leader() == primary, PATIENCE_S, "the lead of the primary")
        for victim in victims:
            victim.kill()
        pool.leader()
        yield
    finally:
        pool.with_primary(False)


@contextmanager
def returns(pool: FaultPool | ContainerPool, primary: str, *victims: Victim) -> Iterator[None]:
    at_once([victim.start for victim in victims])
    wait_until(lambda: pool.leader() == primary, PATIENCE_S, "the return of the primary")
    yield


def none(lasts_s: float) -> Fault:
    return Fault("nothing", nullcontext, lasts_s, {})


def of_daemons(pool: FaultPool, lasts_s: float, schedd_s: float) -> list[Fault]:
    """kill -9 and SIGSTOP of each kind of daemon. lasts_s: how long each one is away; schedd_s: the schedd."""

    def leading(*kinds: str) -> list[Member]:
        leader = pool.leader()
        return [pool[kind, leader] for kind in kinds]

    found = [
        Fault("the active negotiator", lambda: killed(*leading("negotiator")), lasts_s, KILLED),
        Fault("the active HAD", lambda: killed(*leading("had")), lasts_s, KILLED),
        Fault("the active negotiator and its HAD", lambda: killed(*leading("negotiator", "had")), lasts_s, KILLED),
        Fault("one collector", lambda: killed(pool["collector", "cm1"]), lasts_s, {"query": 1.0}),
        Fault("both collectors", lambda: killed(*(pool["collector", name] for name in CENTRAL)), 0.0, {}),
        Fault("the schedd", lambda: killed(pool["schedd", "ap"]), schedd_s, {}),
        Fault("one startd", lambda: killed(pool["startd", "ep1"]), lasts_s, {}),
        Fault("one gateway", lambda: killed(pool["gateway", "gw1"]), lasts_s, {}),
    ]
    killing = [Fault(f"{fault.name} killed", fault.strike, fault.lasts_s, fault.aims) for fault in found]
    hanging = [
        Fault("the active negotiator hung", lambda: frozen(*leading("negotiator")), lasts_s, HUNG),
        Fault("the active HAD hung", lambda: frozen(*leading("had")), lasts_s, HUNG),
        Fault("one collector hung", lambda: frozen(pool["collector", "cm1"]), lasts_s, ELSEWHERE),
        Fault("the schedd hung", lambda: frozen(pool["schedd", "ap"]), lasts_s, {}),
        Fault("one startd hung", lambda: frozen(pool["startd", "ep1"]), lasts_s, {}),
        Fault("one gateway hung", lambda: frozen(pool["gateway", "gw1"]), lasts_s, ELSEWHERE),
    ]
    everything = Fault("all daemons killed at once", lambda: killed(*pool.members.values()), 0.0, EVERYTHING)
    return [*killing, *hanging, everything]


def of_rooms(
    pool: FaultPool, primary: Callable[[], Redis], nodes: Sequence[RabbitNode | Rabbit], lasts_s: float
) -> list[Fault]:
    """No room on the disk of a daemon, each of which has one of its own, or in the memory of a server; and a rolling
    restart."""

    def home(kind: str, name: str) -> Strike:
        return lambda: full(pool[kind, name or pool.leader()].home)

    some = (("schedd", "ap"), ("startd", "ep1"), ("collector", "cm1"), ("gateway", "gw1"))
    leading = (("negotiator", ""), ("had", ""))
    disks = [Fault(f"the disk full at the {kind}", home(kind, name), lasts_s, {}) for kind, name in (*some, *leading)]
    return [
        *disks,
        Fault("RabbitMQ's memory alarm", lambda: memory_alarm(nodes, lasts_s), lasts_s, {}),
        Fault("Redis at maxmemory", lambda: at_maxmemory(primary()), lasts_s, {}),
        Fault("everything restarted in turns", lambda: restarted_in_turns(pool), 0.0, {"query": 1.0}),
    ]


def of_networks(pool: FaultPool, networks: Networks, lasts_s: float) -> list[Fault]:
    """The way of one machine to RabbitMQ and Redis cut in one direction or both, or bad; and that of all machines."""

    def cut(machine: Callable[[], str], *directions: str) -> Strike:
        return lambda: networks.cut(machine(), *directions)

    some: tuple[tuple[str, Callable[[], str], dict[str, float]], ...] = (
        ("the leading central manager", pool.leader, HUNG),
        ("the access point", lambda: "ap", {}),
        ("an execution point", lambda: "ep1", {}),
        ("a gateway", lambda: "gw1", {}),
    )
    found = []
    for name, machine, aims in some:
        found += [
            Fault(f"{name} hears nothing, but is heard", cut(machine, HEARS), lasts_s, aims),
            Fault(f"nobody hears {name}", cut(machine, SPEAKS), lasts_s, aims),
            Fault(f"{name} cut off", cut(machine, HEARS, SPEAKS), lasts_s, aims),
            Fault(f"the network of {name} bad", lambda m=machine: networks.bad(m()), lasts_s, {}),  # type: ignore[misc]
        ]
    machines = {name for _, name in pool.members}
    return [*found, Fault("all networks bad", lambda: networks.bad(*machines), lasts_s, {})]


def of_single(redis: Redis, rabbit: Rabbit, lasts_s: float) -> list[Fault]:
    """Of a pool with one Redis and one RabbitMQ, which nothing replaces."""
    return [
        Fault("the only Redis killed", lambda: killed(redis), lasts_s, {}),
        Fault("the only Redis hung", lambda: frozen(redis), lasts_s, {}),
        Fault("the only RabbitMQ killed", lambda: killed(rabbit), lasts_s, {}),
    ]


def of_clocks(pool: FaultPool, lasts_s: float) -> list[Fault]:
    """The clock of a machine set forth and back by an hour, and back and forth."""

    def leading() -> list[Member]:
        return [pool[kind, pool.leader()] for kind in ("negotiator", "had", "collector")]

    def machines() -> dict[str, list[Member]]:
        return {
            "the leading central manager": leading(),
            "the access point": [pool["schedd", "ap"]],
            "an execution point": [pool["startd", "ep1"]],
            "all machines": list(pool.members.values()),
        }

    def set_(what: str, ahead_s: int) -> Strike:
        return lambda: clocks_set(ahead_s, *machines()[what])

    names = ("the leading central manager", "the access point", "an execution point", "all machines")
    return [
        Fault(f"the clock of {what} set {how}", set_(what, ahead_s), lasts_s, HUNG)
        for what in names
        for how, ahead_s in (("an hour forth, and back", 3600), ("an hour back, and forth", -3600))
    ]


def of_servers(pool: FaultPool, redis: ReplicatedRedis, rabbit: RabbitCluster, lasts_s: float) -> list[Fault]:
    everything: list[Victim] = [*rabbit.nodes, *redis.servers, *redis.sentinels, *pool.members.values()]
    return [
        Fault("Redis's primary killed", lambda: killed(redis.primary()), lasts_s, REDIS_WITHIN),
        Fault("Redis's primary hung", lambda: frozen(redis.primary()), lasts_s, REDIS_WITHIN),
        Fault("one RabbitMQ node of three killed", lambda: killed(rabbit.busiest()), lasts_s, RABBITMQ_WITHIN),
        Fault("one RabbitMQ node of three hung", lambda: frozen(rabbit.busiest()), lasts_s, RABBITMQ_WITHIN),
        Fault("servers and daemons, all killed at once", lambda: killed(*everything), 0.0, {}),
        Fault("all machines rebooted", lambda: rebooted(everything), 0.0, {}, restarts=True),
    ]


def of_primary(pool: FaultPool) -> Fault:
    """HAD_USE_PRIMARY: the first of HAD_LIST comes back, and takes the lead from who has it."""
    daemons = [pool[kind, CENTRAL[0]] for kind in ("negotiator", "had")]
    return Fault(
        "the primary comes back",
        lambda: returns(pool, CENTRAL[0], *daemons),
        0.0,
        KILLED,
        lambda: dead_primary(pool, CENTRAL[0], *daemons),
    )


def of_containers(pool: ContainerPool, lasts_s: float, schedd_s: float) -> list[Fault]:
    """docker kill and docker pause of each kind of container, and cuts of its network."""

    def leading(*kinds: str) -> list[Container]:
        leader = pool.leader()
        return [pool[f"{kind}{leader}"] for kind in kinds]

    def manager() -> list[Container]:
        return pool.central(pool.leader())

    def primary() -> Container:
        return pool[pool.redis_primary()]

    def either(*victims: str) -> list[Container]:
        return [pool[victim] for victim in victims]

    first_manager = [pool["negotiator"], pool["had"]]
    collectors = [pool[f"collector{number}"] for number in NUMBERS]
    query = {"query": 1.0}
    return [
        Fault("the active negotiator killed", lambda: killed(*leading("negotiator")), lasts_s, KILLED),
        Fault("the active HAD killed", lambda: killed(*leading("had")), lasts_s, KILLED),
        Fault("the leading central manager killed", lambda: killed(*manager()), lasts_s, KILLED | query),
        Fault("one collector killed", lambda: killed(pool["collector"]), lasts_s, query),
        Fault("all collectors killed", lambda: killed(*collectors), 0.0, {}),
        Fault("one schedd of two killed", lambda: killed(pool["schedd2"]), schedd_s, {}),
        Fault("one startd killed", lambda: killed(pool["startd3"]), lasts_s, {}, restarts=True),
        Fault("one gateway killed", lambda: killed(pool["gateway"]), lasts_s, {}),
        Fault("the active negotiator hung", lambda: frozen(*leading("negotiator")), lasts_s, HUNG),
        Fault("the leading central manager hung", lambda: frozen(*manager()), lasts_s, HUNG),
        Fault("one schedd of two hung", lambda: frozen(pool["schedd2"]), lasts_s, {}),
        Fault("one startd hung", lambda: frozen(pool["startd3"]), lasts_s, {}),
        Fault("one gateway hung", lambda: frozen(pool["gateway"]), lasts_s, ELSEWHERE),
        Fault("Redis's primary killed", lambda: killed(primary()), lasts_s, REDIS_WITHIN),
        Fault("Redis's primary hung", lambda: frozen(primary()), lasts_s, REDIS_WITHIN),
        Fault("one RabbitMQ node of three killed", lambda: killed(pool.busiest_broker()), lasts_s, RABBITMQ_WITHIN),
        Fault("one RabbitMQ node of three hung", lambda: frozen(pool.busiest_broker()), lasts_s, RABBITMQ_WITHIN),
        Fault("the leading central manager cut off", lambda: cut(*manager()), lasts_s, HUNG),
        Fault("... it hears nothing, but is heard", lambda: cut(*manager(), directions=[INPUT]), lasts_s, HUNG),
        Fault("... nobody hears it", lambda: cut(*manager(), directions=[OUTPUT]), lasts_s, HUNG),
        Fault("the active HAD cut off from Redis", lambda: cut(*leading("had"), off=pool.redis()), lasts_s, HUNG),
        Fault(
            "the active negotiator cut off from Redis",
            lambda: cut(*leading("negotiator"), off=pool.redis()),
            lasts_s,
            HUNG,
        ),
        Fault(
            "the active negotiator cut off from RabbitMQ",
            lambda: cut(*leading("negotiator"), off=pool.brokers()),
            lasts_s,
            HUNG,
        ),
        Fault("one schedd of two cut off", lambda: cut(pool["schedd2"]), lasts_s, {}),
        Fault("one startd cut off", lambda: cut(pool["startd3"]), lasts_s, {}),
        Fault(
            "one startd cut off from schedds",
            lambda: cut(pool["startd3"], off=either("schedd", "schedd2")),
            lasts_s,
            {},
        ),
        Fault("Redis's primary cut off", lambda: cut(primary()), lasts_s, REDIS_WITHIN),
        Fault("one RabbitMQ node of three cut off", lambda: cut(pool.busiest_broker()), lasts_s, RABBITMQ_WITHIN),
        Fault(
            "the primary comes back",
            lambda: returns(pool, "", *first_manager),
            0.0,
            KILLED,
            lambda: dead_primary(pool, "", *first_manager),
        ),
        *[
            Fault(f"the memory limit of {what} met", lambda who=who: memory_limits_met(*who()), 0.0, {})  # type: ignore[misc]
            for what, who in (
                ("the active negotiator", lambda: leading("negotiator")),
                ("the active HAD", lambda: leading("had")),
                ("one collector", lambda: either("collector")),
                ("one schedd of two", lambda: either("schedd2")),
                ("one gateway", lambda: either("gateway")),
            )
        ],
        Fault("all containers killed at once", lambda: killed(*pool.members.values()), 0.0, {}, restarts=True),
    ]


def endure(fault: Fault, work: Workload, pool: Pool) -> tuple[float, float]:
    """Let it happen and be over, and wait until the pool serves again: when it was struck, and when the pool had
    served again, seconds since 1970."""
    work.use_first_gateway()
    struck = time.time()
    with fault.strike():
        time.sleep(fault.lasts_s)
    over = time.time()
    wait_until(lambda: work.served(over), PATIENCE_S, f"service after: {fault.name}")
    until = time.time()
    pool.wait_ready()
    return struck, until
