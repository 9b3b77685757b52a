"""What may go wrong, and how it is undone. Each fault is a coroutine that lasts as long as its trouble."""

from __future__ import annotations

import asyncio
import contextlib
import math
import random
import re
from collections.abc import Awaitable, Callable
from dataclasses import replace

from bench.security.bus import Maker, allowed
from bench.security.cases import data_of
from shared.bus.api import Exchange, RemoteFailure
from shared.bus.topology import inbox_queue
from shared.errors import RoostError
from shared.messages.base import BadMessage, Envelope, Message
from shared.messages.orders import CancelDrain, Drain, Reconfigure, Vacate
from tests.simulation.wires import LATENCY_S
from tests.simulation.world import LEASE_S, World

Fault = Callable[[World, random.Random], Awaitable[None]]


def any_of(world: World, chance: random.Random, *kinds: str) -> str:
    return chance.choice([name for name in world.names() if not kinds or name.split(".")[0] in kinds])


async def _weather(world: World, what: str, seconds: float, probability: float) -> None:
    if what in ("drop", "late"):
        world.weather.bad_until = max(world.weather.bad_until, world.time() + seconds)
    setattr(world.weather, what, probability)
    await asyncio.sleep(seconds)
    setattr(world.weather, what, 0.0)


async def drop(world: World, chance: random.Random) -> None:
    probability, seconds = chance.uniform(0.02, 0.5), chance.uniform(2, 30)
    world.note(f"{probability:.0%} of messages are lost for {seconds:.1f} s")
    await _weather(world, "drop", seconds, probability)


async def duplicate(world: World, chance: random.Random) -> None:
    probability, seconds = chance.uniform(0.05, 0.9), chance.uniform(2, 30)
    world.note(f"{probability:.0%} of messages come twice for {seconds:.1f} s")
    await _weather(world, "duplicate", seconds, probability)


async def unconfirmed(world: World, chance: random.Random) -> None:
    probability, seconds = chance.uniform(0.05, 0.6), chance.uniform(2, 30)
    world.note(f"{probability:.0%} of messages arrive unconfirmed for {seconds:.1f} s")
    await _weather(world, "unconfirmed", seconds, probability)


async def late(world: World, chance: random.Random) -> None:
    world.weather.late_s = chance.choice([0.05, 1.0, 10.0])
    probability, seconds = chance.uniform(0.1, 1.0), chance.uniform(2, 30)
    world.note(f"{probability:.0%} of messages are up to {world.weather.late_s} s late for {seconds:.1f} s")
    world.weather.late_until = max(world.weather.late_until, world.time() + seconds)
    await _weather(world, "late", seconds, probability)


async def crash(world: World, chance: random.Random) -> None:
    name, seconds = any_of(world, chance), chance.choice([0.0, 0.5, 5.0, 15.0, 35.0])
    world.note(f"{name} is killed, and started again after {seconds:g} s")
    await down(world, name, seconds)


async def crash_within(world: World, chance: random.Random) -> None:
    name, at, seconds = any_of(world, chance), chance.randint(1, 30), chance.choice([0.0, 0.5, 5.0])
    world.note(f"{name} is killed as it begins its {at}th task from now, and started again after {seconds:g} s")
    await _down_at_task(world, name, at, seconds)


async def _down_at_task(world: World, name: str, at: int, seconds: float) -> None:
    life = world.lives[name]
    life.crash_at_task = at
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(life.gone.wait(), 60.0)
    life.crash_at_task = 0
    if life.dead:
        await down(world, name, seconds)


async def order_cut_short(world: World, chance: random.Random) -> None:
    """A schedd is killed within an order about a whole cluster."""
    at, seconds = chance.randint(1, 12), chance.choice([0.0, 0.5, 5.0])
    world.note(
        f"whoever is told next to hold, release or remove a whole cluster is killed as it begins its {at}th task from"
        f" then, and started again after {seconds:g} s"
    )
    world.next_order = asyncio.get_running_loop().create_future()
    with contextlib.suppress(TimeoutError):
        name = await asyncio.wait_for(world.next_order, 60.0)
        await _down_at_task(world, name, at, seconds)


async def down(world: World, name: str, seconds: float) -> None:
    world.lives[name].kill()
    world.leave(name, world.time() + seconds)
    await asyncio.sleep(seconds)
    if world.lives[name].dead:
        world.begin(name)


async def stop(world: World, chance: random.Random) -> None:
    name, seconds = any_of(world, chance), chance.choice([0.0, 0.5, 5.0, 35.0])
    patience = chance.choice([0.1, 10.0, 30.0])
    world.note(f"{name} is told to end, killed if it takes {patience:g} s, and started again after {seconds:g} s")
    await _ended(world, name, patience, seconds)


async def all_stop(world: World, chance: random.Random) -> None:
    names, seconds, patience = list(world.names()), chance.choice([0.0, 10.0]), chance.choice([1.0, 30.0])
    world.note(f"every daemon is told to end, killed if it takes {patience:g} s, and started again after {seconds:g} s")
    await asyncio.gather(*(_ended(world, name, patience, seconds) for name in names))


async def upgrade(world: World, chance: random.Random) -> None:
    names = list(world.names())
    chance.shuffle(names)
    pause = chance.choice([0.0, 1.0, 3.0])
    world.note(f"one daemon after the other is told to end, and started again at once, {pause:g} s apart")
    for name in names:
        await _ended(world, name, 30.0, 0.0)
        await asyncio.sleep(pause)


async def _ended(world: World, name: str, patience_s: float, seconds: float, *, upgraded: bool = False) -> None:
    told = world.time()
    await world.lives[name].stop(patience_s)
    world.leave(name, world.time() + seconds, since=told)
    await asyncio.sleep(seconds)
    if upgraded:
        world.earlier.discard(name)
    if world.lives[name].dead:
        world.begin(name)


async def earlier(world: World, chance: random.Random) -> None:
    """Some daemons were of an earlier version from the start, and are upgraded now, one after the other."""
    names = sorted(world.earlier)
    chance.shuffle(names)
    pause = chance.choice([0.0, 1.0, 3.0])
    world.note(f"{len(names)} daemons of an earlier version are upgraded, {pause:g} s apart")
    for name in names:
        await _ended(world, name, chance.choice([0.1, 30.0]), 0.0, upgraded=True)
        await asyncio.sleep(pause)


async def reconfigure(world: World, chance: random.Random) -> None:
    name = any_of(world, chance)
    world.note(f"{name} reads its configuration again")
    await _order(world, name, Reconfigure(by="root@pool"))


async def freeze(world: World, chance: random.Random) -> None:
    name, seconds = any_of(world, chance), chance.choice([0.5, 3.0, 10.0, 35.0])
    world.note(f"{name} is frozen for {seconds:g} s")
    world.lives[name].freeze(seconds)
    world.leave(name, world.time() + seconds)
    await asyncio.sleep(seconds)


async def cut_bus(world: World, chance: random.Random) -> None:
    name, seconds = any_of(world, chance), chance.choice([0.2, 3.0, 15.0, 35.0])
    world.note(f"{name} is cut from the bus for {seconds:g} s")
    await cut([name], world, seconds)


async def broker_restarts(world: World, chance: random.Random) -> None:
    seconds = chance.choice([0.5, 5.0, 15.0, 40.0])
    world.note(f"the broker is away for {seconds:g} s")
    await cut(list(world.names()), world, seconds)


async def cut(names: list[str], world: World, seconds: float) -> None:
    lives = [world.lives[name] for name in names]
    for life in lives:
        life.bus.disconnect()
        world.leave(life.name, world.time() + seconds)
    await asyncio.sleep(seconds)
    for life in lives:
        if not life.dead:
            life.bus.reconnect()


async def cut_store(world: World, chance: random.Random) -> None:
    name = any_of(world, chance, "had", "negotiator", "collector")
    seconds = chance.choice([0.5, 5.0, 20.0])
    world.note(f"{name} is cut from the store for {seconds:g} s")
    life = world.lives[name]
    life.store.cut = True
    await asyncio.sleep(seconds)
    life.store.cut = False


async def store_away(world: World, chance: random.Random) -> None:
    seconds = chance.choice([0.5, 5.0, 20.0])
    world.note(f"the store is away for {seconds:g} s")
    await _store_away(world, seconds)


async def _store_away(world: World, seconds: float) -> None:
    for life in world.lives.values():
        life.store.cut = True
    await asyncio.sleep(seconds)
    for life in world.lives.values():
        life.store.cut = False


async def store_fails_over(world: World, chance: random.Random) -> None:
    """The primary dies, and a replica takes over that lacks its last writes, but for those that were confirmed."""
    seconds, lag = chance.choice([0.05, 1.0, 8.0]), chance.choice([0.01, 0.3, math.inf])
    world.note(f"the store's replica lags by {lag:g} s for {seconds:g} s")
    world.store.fall_behind(lag)
    await asyncio.sleep(seconds)
    away = chance.choice([0.0, 2.0, 8.0])
    world.note(f"the store's primary is lost; its replica takes over after {away:g} s")
    await _store_away(world, away)
    world.usage.notes_lost |= world.store.lags is not None
    world.store.fail_over()


async def store_lags(world: World, chance: random.Random) -> None:
    """Writes that are to be confirmed by a replica wait, or are not."""
    seconds, lag = chance.choice([0.5, 3.0, 20.0]), chance.choice([0.1, 0.9, math.inf])
    world.note(f"the store's replica lags by {lag:g} s for {seconds:g} s, and catches up")
    world.store.fall_behind(lag)
    await asyncio.sleep(seconds)
    world.store.catch_up()


async def store_emptied(world: World, chance: random.Random) -> None:
    world.note("the store is emptied")
    world.store.forget_all()
    world.usage.notes_lost = True


async def disk_fills(world: World, chance: random.Random) -> None:
    name, seconds = any_of(world, chance, "schedd", "startd", "journal"), chance.choice([0.5, 3.0, 15.0])
    world.note(f"the disk of {name} is full for {seconds:g} s")
    world.full.add(name)
    await asyncio.sleep(seconds)
    world.full.discard(name)


async def disk_slow(world: World, chance: random.Random) -> None:
    """What was told to a disk is done and known late: what waits for it is overtaken by all else."""
    name = chance.choice([any_of(world, chance, "schedd"), any_of(world, chance)])
    seconds, takes = chance.choice([2.0, 10.0, 25.0]), chance.choice([0.05, 1.0, 12.0])
    dies = chance.random() < 0.6
    then = ", and then it is killed" if dies else ""
    world.note(f"the disk of {name} takes up to {takes:g} s for {seconds:g} s{then}")
    world.slow_disks[name] = takes
    if takes > LEASE_S / 2:
        # Leases of claims are renewed, and ends of runs taken, when what led there is on the disk.
        world.leave(name, world.time() + seconds)
    await asyncio.sleep(seconds)
    world.slow_disks.pop(name, None)
    if dies:
        world.lives[name].kill()
        await down(world, name, chance.choice([0.0, 5.0]))


async def drain(world: World, chance: random.Random) -> None:
    """An administrator drains a machine, and changes his mind."""
    name, seconds = any_of(world, chance, "startd"), chance.choice([1.0, 10.0, 20.0])
    how = chance.choice(["graceful", "quick", "fast"])
    world.note(f"{name} is drained ({how}) for {seconds:g} s")
    await _order(world, name, Drain(request_id=world.new_id(), how=how, by="root@pool"))
    await asyncio.sleep(seconds)
    # Not another's: only one drain is in force, and it may be over.
    await _order(world, name, CancelDrain(by="root@pool"))


async def vacate(world: World, chance: random.Random) -> None:
    name, how = any_of(world, chance, "startd"), chance.choice(["graceful", "fast"])
    world.note(f"all slots of {name} are vacated ({how})")
    await _order(world, name, Vacate(how=how, by="root@pool"))


async def _order(world: World, name: str, order: Message) -> None:
    """Until it is answered, be it with a refusal."""
    while True:
        try:
            await world.user.call(name, order, timeout=5.0)
        except RemoteFailure as failure:
            if failure.retryable:
                await asyncio.sleep(1.0)
                continue
        except RoostError:
            await asyncio.sleep(1.0)
            continue
        return


async def machine_dies(world: World, chance: random.Random) -> None:
    name = any_of(world, chance, "startd")
    seconds = chance.choice([1.0, 10.0, 35.0])
    world.note(f"the machine of {name} goes down for {seconds:g} s")
    world.lives[name].kill()
    world.hosts[name.partition(".")[2]].lose_all()
    await down(world, name, seconds)


async def managers_die(world: World, chance: random.Random) -> None:
    seconds = chance.choice([0.0, 3.0, 20.0])
    names = [name for name in world.names() if name.split(".")[0] in ("collector", "negotiator", "had")]
    world.note(f"all central managers are killed, and started again after {seconds:g} s")
    await asyncio.gather(*(down(world, name, seconds) for name in names))


async def everything_dies(world: World, chance: random.Random) -> None:
    seconds = chance.choice([0.0, 10.0])
    world.note(f"every daemon is killed, and started again after {seconds:g} s")
    await asyncio.gather(*(down(world, name, seconds) for name in world.names()))


async def everything_away(world: World, chance: random.Random) -> None:
    """For longer than a claim has until its schedd has shown that it knows of it, soon after a job has begun."""
    seconds = chance.choice([20.0, 40.0])
    world.note(f"every daemon is killed, and started again after {seconds:g} s")
    await asyncio.gather(*(down(world, name, seconds) for name in world.names()))


async def resources_change(world: World, chance: random.Random) -> None:
    """A machine comes back with other cores and memory, and after a while as it was."""
    name, seconds = chance.choice(["startd.ep1", "startd.ep2"]), chance.choice([5.0, 15.0, 30.0])
    cpus, dies = chance.choice([2, 3, 6, 8]), chance.random() < 0.4
    memory = 1024 * chance.choice([1, 2, cpus])
    how = "the machine of {} goes down, and comes back" if dies else "{} is killed, and finds itself"
    world.note(f"{how.format(name)} with {cpus} cores and {memory} MB for {seconds:g} s")
    host = world.hosts[name.partition(".")[2]]
    was = host.hardware.detected
    for detected, pause in ((replace(was, cpus=cpus, cores=cpus, memory_mib=memory), seconds), (was, 0.0)):
        world.lives[name].kill()
        if dies:
            host.lose_all()
        host.hardware.detected = detected
        await down(world, name, chance.choice([0.0, 1.0]))
        await asyncio.sleep(pause)


async def replay(world: World, chance: random.Random) -> None:
    """Messages that came come again, in any order, however long ago that was."""
    seconds, gap = chance.choice([1.0, 5.0, 20.0]), chance.choice([0.02, 0.2, 1.0])
    world.note(f"every {gap:g} s for {seconds:g} s a message of before comes again")
    until = world.time() + seconds
    while world.time() < until:
        await asyncio.sleep(gap)
        if world.said:
            old = chance.choice(world.said)
            world.hub.inject(Exchange(old.exchange), old.key, old.data, queue=old.queue)


async def hostile(world: World, chance: random.Random) -> None:
    """Daemons of every role that the broker lets in send what nobody asked for, whole, altered and broken."""
    seconds, gap = chance.choice([1.0, 5.0, 20.0]), chance.choice([0.02, 0.1])
    world.note(f"every {gap:g} s for {seconds:g} s some daemon that means no good says something")
    until, maker = world.time() + seconds, Maker()
    while world.time() < until:
        await asyncio.sleep(gap)
        case = maker.make(chance)
        data, key = data_of(case["data"]), str(case["key"])
        try:
            sender = Envelope.unpack(data).sender
        except BadMessage:
            sender = case["user"]
        if sender != case["user"] or not allowed(case) or sender.startswith("gateway"):
            continue  # which the broker refuses, or who receives it: the broker says who sent it, people sign
        queue = "" if case["exchange"] else _with_numbers(key)
        exchange = Exchange(case["exchange"] or Exchange.RPC)
        world.hub.inject(exchange, _with_numbers(queue.removeprefix(inbox_queue("")) or key), data, queue=queue)


async def files_cut(world: World, chance: random.Random) -> None:
    """Connections on which files travel end in the midst, or are refused."""
    seconds, cuts, closed = chance.uniform(2, 30), chance.choice([0.02, 0.2, 1.0]), chance.random() < 0.3
    world.note(f"{'all files' if closed else f'{cuts:.0%} of what files are sent in'} are cut off for {seconds:.1f} s")
    world.wires.cuts, world.wires.closed = cuts, closed
    if closed:
        world.wires.cut()
    await asyncio.sleep(seconds)
    world.wires.cuts, world.wires.closed = 0.0, False


async def kept_die(world: World, chance: random.Random) -> None:
    """Connections die, and startds that keep them do not hear of it."""
    resets, times, gap = chance.random() < 0.6, chance.choice([1, 3]), chance.uniform(1.0, 10.0)
    answered = "resets" if resets else "nothing"
    world.note(f"connections of file transfer are dead, {times} times {gap:.1f} s apart, and answer with {answered}")
    for _ in range(times):
        world.wires.die_unnoticed(resets=resets)
        await asyncio.sleep(gap)


async def files_slow(world: World, chance: random.Random) -> None:
    seconds, takes = chance.uniform(2, 30), chance.choice([0.2, 2.0, 20.0])
    world.note(f"each piece of a file takes up to {takes:g} s for {seconds:.1f} s")
    world.wires.slow_s = takes
    await asyncio.sleep(seconds)
    world.wires.slow_s = LATENCY_S


async def answers_lost(world: World, chance: random.Random) -> None:
    """What users ask of gateways, or what these answer, does not arrive."""
    world.lost_answers, seconds = chance.choice([0.1, 0.5, 1.0]), chance.uniform(2, 40)
    world.note(f"{world.lost_answers:.0%} of the gateways' answers are lost for {seconds:.1f} s")
    await asyncio.sleep(seconds)
    world.lost_answers = 0.0


async def gateways_fail(world: World, chance: random.Random) -> None:
    """One of them is killed, hangs, or is cut from the bus, in the midst of what users ask."""
    name, seconds = any_of(world, chance, "gateway"), chance.choice([0.5, 5.0, 20.0])
    how = chance.choice(["is killed, and started again after", "is frozen for", "is cut from the bus for"])
    world.note(f"{name} {how} {seconds:g} s")
    if how.startswith("is killed"):
        await down(world, name, seconds)
    elif how.startswith("is frozen"):
        world.lives[name].freeze(seconds)
        await asyncio.sleep(seconds)
    else:
        await cut([name], world, seconds)


def _with_numbers(name: str) -> str:
    """A daemon of this pool, for one of a pool that has one of each: "schedd.ap" is "schedd.ap1"."""
    return re.sub(r"\b(cm|ap|ep)$", r"\g<1>1", name)
