"""Clocks that are set."""

from __future__ import annotations

import asyncio
import random

from tests.simulation.faults import any_of, cut, down
from tests.simulation.world import MACHINES, World


async def clock_steps(world: World, chance: random.Random) -> None:
    name, seconds = any_of(world, chance), chance.choice([-30.0, -2.0, 2.0, 45.0])
    world.note(f"the clock of {name} steps by {seconds:g} s")
    _step(world, name, seconds)


def _step(world: World, name: str, seconds: float) -> None:
    kind, _, host = name.partition(".")
    if kind == "negotiator":  # use is charged by the clock of who leads (ACC-16)
        world.usage.leader_stepped(seconds, sum(MACHINES.values()))
    elif kind == "startd":
        world.usage.stepped(host, seconds)
    world.clocks[name].skew += seconds


def _leads(world: World, name: str) -> bool:
    daemon = world.lives[name].daemon
    return daemon is not None and daemon.role() == "leader"


async def clock_jumps(world: World, chance: random.Random) -> None:
    """By an hour, that of one daemon or of all, and back."""
    names = list(world.names()) if chance.random() < 0.3 else [any_of(world, chance)]
    seconds, until = chance.choice([-3600.0, 3600.0]), chance.choice([0.5, 5.0, 25.0])
    whose = f"the clock of {names[0]} jumps" if len(names) == 1 else "all clocks jump"
    world.note(f"{whose} by {seconds:g} s, and back after {until:g} s")
    for step in (seconds, -seconds):
        for name in names:
            _step(world, name, step)
        await asyncio.sleep(until)
        until = 0.0


async def leaders_clock_jumps(world: World, chance: random.Random) -> None:
    """By an hour and back, while the lead is lost and taken again, by the same negotiator or by another."""
    leading = [name for name in world.names() if name.startswith("negotiator") and _leads(world, name)]
    name = chance.choice(leading or [any_of(world, chance, "negotiator")])
    seconds, gap = chance.choice([-3600.0, 3600.0]), chance.choice([0.1, 1.0, 5.0])
    lost = chance.choice(["is killed", "is frozen for 4 s", "loses its HAD", "is told late to lead on"])
    world.note(
        f"the clock of {name}, which leads, jumps by {seconds:g} s; {gap:g} s later it {lost}; then it jumps back"
    )
    _step(world, name, seconds)
    await asyncio.sleep(gap)
    life, had = world.lives[name], name.replace("negotiator", "had")
    if lost == "is killed":
        await down(world, name, chance.choice([0.0, 3.0]))
    elif lost == "loses its HAD":
        await down(world, had, chance.choice([0.0, 3.0]))
    elif lost == "is frozen for 4 s":
        life.freeze(4.0)
        world.leave(name, world.time() + 4.0)
    elif _leads(world, name):  # its lease is over, and its HAD, which has the lead, says at once that it goes on
        life.daemon.leads_until = 0.0
    await asyncio.sleep(gap)
    _step(world, name, -seconds)


async def startds_clock_jumps(world: World, chance: random.Random) -> None:
    """By an hour and back, while nobody hears of the claims that come and go there, or while it is dead."""
    name = any_of(world, chance, "startd")
    seconds, gap = chance.choice([-3600.0, 3600.0, -45.0, 45.0]), chance.choice([0.5, 5.0, 15.0])
    lost = chance.choice(["it is killed", "it is cut from the bus", "it goes on"])
    world.note(f"the clock of {name} jumps by {seconds:g} s, {gap:g} s later {lost}; after as long it jumps back")
    _step(world, name, seconds)
    await asyncio.sleep(gap)
    if lost == "it is killed":
        await down(world, name, gap)
    elif lost == "it is cut from the bus":
        await cut([name], world, gap)
    else:
        await asyncio.sleep(gap)
    _step(world, name, -seconds)
