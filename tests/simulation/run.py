"""One seed, one history: `bin/sim --seed 7 --loud` tells it again (tests/simulation/search.py is the command).

Faults come for some minutes; then all is mended, and the pool has a while to do what it was asked. What must hold is
looked at meanwhile (`World`) and at the end (`_judge`).
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import itertools
import math
import os
import random
import shutil
import tempfile
import time
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any
from unittest import mock

import aiohttp

from services.schedd.core.job_states import Verdict
from services.schedd.io import actions, group_orders
from services.schedd.io.job_updates import JobUpdates
from services.startd.run import end_reports
from shared.classad import ClassAd
from shared.config import Config
from shared.config.knobs.base import Settings
from shared.errors import RoostError
from shared.messages.negotiation import GetPriorities
from tests.consistency import queue_faults, slot_faults
from tests.simulation import faults, long_leases, seeds
from tests.simulation.gateway import SimulatedGateway
from tests.simulation.loop import Stuck, VirtualLoop
from tests.simulation.machine import output_of
from tests.simulation.news import log_of, wrong_in_log
from tests.simulation.wires import LATENCY_S
from tests.simulation.workload import Job, Users
from tests.simulation.world import START, World

# Daemons check after every operation that what they hold agrees with itself; a contradiction ends the history.
os.environ.setdefault("ROOST_STRICT_INVARIANTS", "1")
#: Faults begin in the first so many seconds; everything is mended when the last of them is over.
FAULTS_S = 60.0
#: Then all jobs must be done after so many seconds more: leases of a minute end, some jobs run again.
HEALING_S = 600.0
#: In so many seconds everybody has heard everything.
NEWS_S = 45.0
#: What is charged to a user may differ by so many core-seconds from what slots were claimed for.
CHARGED_TO_S = 1.0


#: Where the clock that bounds expressions is known by its own name.
_THREAD_TIMES = ("shared.classad.evaluate.thread_time", "shared.classad.functions.pcre.thread_time")


#: HADs have leases ten times as long here as where everything is quick, and look at one as often as they do there.
_AT_MOST = ("MOST_POLL_S", "MOST_LEAD_S", "MOST_FOLLOW_S")

_read_config = Settings.from_config.__func__  # type: ignore[attr-defined]


@cache
def _settings(kind: type[Settings], config: Config) -> Settings:
    """Settings never change, and the world makes each Config once: what reads them need not do so for each life."""
    settings: Settings = _read_config(kind, config)
    return settings


@dataclass
class Story:
    seed: int
    only: tuple[int, ...] | None = None  # of its planned faults: these, by number; None: all
    planned: int = 0
    wrong: list[str] = field(default_factory=list)
    faults: list[tuple[float, str]] = field(default_factory=list)
    trace: int = 0  # a sum over all that happened
    jobs: int = 0
    runs: int = 0
    used_s: float = 0.0  # cores x seconds that slots were claimed, as the startds say
    charged_s: float = 0.0  # as the accountant says
    lasted_s: float = 0.0  # virtual
    took_s: float = 0.0  # real

    def __str__(self) -> str:
        told = "\n".join(f"  {at:8.3f} {what}" for at, what in self.faults)
        wrong = "\n".join(f"  {one}" for one in self.wrong[:20])
        return f"seed {self.seed}: {self.command}\nfaults:\n{told}\nwrong:\n{wrong}"

    @property
    def command(self) -> str:
        """What tells it again."""
        only = "" if self.only is None else f" --only {','.join(map(str, self.only)) or 'none'}"
        return f"bin/sim --seed {self.seed}{only}"


def play(seed: int, only: Collection[int] | None = None, *, loud: bool = False) -> Story:
    """Tell the history of a seed. only: of its faults leave out all but these, by their numbers; the others come at
    the same times and do the same. None: all of them."""
    began = time.perf_counter()
    loop = VirtualLoop()
    loop.handlers_are_their_own = seed >= seeds.WIDER_FROM
    loop.set_exception_handler(_no_news_of_cut_connections)
    story = Story(seed, None if only is None else tuple(sorted(only)))
    random.seed(seed)  # of those that ask no generator of their own
    with _directory() as directory, _time_of(loop, seed), _no_collecting():
        asyncio.set_event_loop(loop)
        try:
            loop.run_until_complete(_play(story, directory, loud))
        except Stuck as error:
            story.wrong.append(f"{loop.time():.3f}: {error}")
            story.wrong += loop.busy()
        finally:
            for task in asyncio.all_tasks(loop):
                task._log_destroy_pending = False
            asyncio.set_event_loop(None)
            loop.close()
    story.took_s = time.perf_counter() - began
    return story


def _no_news_of_cut_connections(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """aiohttp's client forgets the task that wrote to a connection which was cut."""
    if not isinstance(context.get("exception"), aiohttp.ClientConnectionResetError):
        loop.default_exception_handler(context)


@contextlib.contextmanager
def _no_collecting() -> Iterator[None]:
    """A history is short, and what it leaves goes at once at its end: to look for it meanwhile costs a tenth."""
    gc.freeze()  # what was there before stays
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        gc.collect()


@contextlib.contextmanager
def _directory() -> Iterator[Path]:
    """An empty one, in memory where that can be had; the same for all histories of this process."""
    memory = Path("/dev/shm")
    directory = (memory if os.access(memory, os.W_OK) else Path(tempfile.gettempdir())) / f"roost-sim-{os.getpid():07d}"
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(mode=0o700)
    try:
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)


@contextlib.contextmanager
def _time_of(loop: VirtualLoop, seed: int) -> Iterator[None]:
    """What asks the machine for the time gets the simulation's, and secrets can be told again."""

    def now() -> float:
        return START + loop.time()

    secrets = itertools.count(1)
    with contextlib.ExitStack() as patches:
        for clock in ("time.time", "time.perf_counter", "time.process_time", "time.thread_time", *_THREAD_TIMES):
            patches.enter_context(mock.patch(clock, now))
        for interval in _AT_MOST:
            patches.enter_context(mock.patch(f"services.had.core.timing.{interval}", math.inf))
        if seed >= seeds.FILES_FROM:  # by this clock transfers are given up
            patches.enter_context(mock.patch("time.monotonic", loop.time))
        if seed >= seeds.KEPT_FROM:  # by this one kept connections are
            patches.enter_context(mock.patch("aiohttp.connector.monotonic", loop.time))
        patches.enter_context(mock.patch.object(Settings, "from_config", classmethod(_settings)))
        patches.enter_context(mock.patch("secrets.token_hex", lambda n: f"{next(secrets):0{2 * n}x}"))
        yield


async def _play(story: Story, directory: Path, loud: bool) -> None:
    chance = random.Random(story.seed)
    slow = seeds.SUBSCRIBING_S if story.seed >= seeds.SLOW_FROM else 0.0
    wider = story.seed >= seeds.WIDER_FROM
    whole = story.seed >= seeds.WHOLE_FROM
    world = World(directory, random.Random(chance.random()), loud=loud, subscribing_s=slow, wider=wider, whole=whole)
    world.files = story.seed >= seeds.FILES_FROM
    world.broker_keeps = story.seed >= seeds.EARLIER_FROM
    world.parallel = story.seed >= seeds.PARALLEL_FROM
    world.wires.kept = world.grouped = story.seed >= seeds.KEPT_FROM
    world.usage.moves_with_clocks = story.seed >= seeds.STARTDS_FROM
    world.gateways = SimulatedGateway if story.seed >= seeds.GATEWAYS_FROM else None
    if story.seed >= seeds.LEASES_FROM:
        world.long_leases = long_leases.LongLeases(world.time, world.hosts, world.violations)
    together_s = seeds.TOGETHER_S
    with (
        world.wires.instead_of_sockets() if world.files else contextlib.nullcontext(),
        mock.patch.multiple(end_reports, GATHER_S=together_s, AT_ONCE_S=together_s)
        if story.seed >= seeds.TOGETHER_FROM
        else contextlib.nullcontext(),
        _ordered_together(world) if world.grouped else contextlib.nullcontext(),
        long_leases.short_first_leases() if world.long_leases is not None else contextlib.nullcontext(),
    ):
        await _live(story, world, chance)


@contextlib.contextmanager
def _ordered_together(world: World) -> Iterator[None]:
    """Few jobs that are alike are ordered at once; by schedds of an earlier version one by one, as they did it."""
    order_group = group_orders.order_group

    def unless_earlier(updates: JobUpdates, *asked: Any, **named: Any) -> Verdict | None:
        return None if f"schedd.{updates.name}" in world.earlier else order_group(updates, *asked, **named)

    with (
        mock.patch.object(group_orders, "LEAST", seeds.TOGETHER),
        mock.patch.object(actions, "order_group", unless_earlier),
    ):
        yield


async def _live(story: Story, world: World, chance: random.Random) -> None:
    await world.open()
    users = Users(world, random.Random(chance.random()), clusters=chance.randint(4, 10))
    working = asyncio.ensure_future(users.work())
    plan = list(_plan(chance, story.seed))
    story.planned = len(plan)
    if any(fault is faults.earlier for _, fault, _ in plan):
        part = chance.choice([0.2, 0.5, 1.0])
        world.earlier = {name for name in world.names() if chance.random() < part}
    trouble = [
        asyncio.ensure_future(_later(at, fault, world, its))
        for number, (at, fault, its) in enumerate(plan)
        if story.only is None or number in story.only
    ]
    keeping = asyncio.ensure_future(_keep_alive(world))
    try:
        await asyncio.gather(*trouble)
        _mend(world)
        story.wrong += await _heals(world, users, working, story)
    except (AssertionError, RoostError) as error:
        story.wrong.append(f"{world.time():.3f}: {error}")
    finally:
        for task in (keeping, working):
            task.cancel()
        await asyncio.gather(keeping, working, return_exceptions=True)
        story.wrong = world.violations + world.errors + story.wrong
        story.faults, story.jobs, story.runs = world.faults, len(users.jobs), len(world.processes)
        story.lasted_s, story.trace = world.time(), world.trace
        await world.close()


def _plan(chance: random.Random, seed: int) -> Iterator[tuple[float, faults.Fault, random.Random]]:
    """When each fault comes, and what it draws its details from."""
    kinds = seeds.kinds_of(seed)
    for _ in range(chance.choice([1, 2, 3, 5, 8])):
        yield chance.uniform(2.0, FAULTS_S), chance.choice(kinds), random.Random(chance.random())
    if seed >= seeds.EARLIER_FROM and chance.random() < 0.5:
        yield chance.uniform(2.0, FAULTS_S), faults.earlier, random.Random(chance.random())


async def _later(at: float, fault: faults.Fault, world: World, chance: random.Random) -> None:
    await asyncio.sleep(at)
    if fault is faults.everything_away and world.long_leases is not None:
        await world.long_leases.next_start(chance)
    with world.long_leases.trouble() if world.long_leases is not None else contextlib.nullcontext():
        await fault(world, chance)


async def _keep_alive(world: World) -> None:
    """The supervisor: a daemon that ended by itself is started again."""
    while True:
        await asyncio.sleep(2.0)
        for name, life in list(world.lives.items()):
            if life.dead and life.died_of and life.died_of != "a fault":
                world.note(f"{name} ended: {life.died_of}")
                world.begin(name)


async def _charges(world: World) -> dict[str, float]:
    """Cores x seconds that the accountant has written down, by user."""
    found: dict[str, float] = {}
    after = ""
    while True:
        page = await world.user.call("negotiator", GetPriorities(after=after), timeout=10.0)
        for packed in page.ads:
            ad = ClassAd.unpack(packed)
            if not ad.eval("IsAccountingGroup"):
                found[ad.eval_string("Name")] = float(ad.eval("WeightedAccumulatedUsage") or 0.0)
        after = page.next
        if not after:
            return found


def _mend(world: World) -> None:
    world.note("all is mended")
    world.weather.drop = world.weather.duplicate = world.weather.unconfirmed = world.weather.late = 0.0
    world.wires.cuts, world.wires.closed, world.wires.slow_s = 0.0, False, LATENCY_S
    world.lost_answers = 0.0
    world.earlier.clear()
    for name, life in list(world.lives.items()):
        life.store.cut = False
        world.full.discard(name)
        if life.dead:
            world.begin(name)
        else:
            life.bus.reconnect()


async def _heals(world: World, users: Users, working: asyncio.Future[None], story: Story) -> list[str]:
    """What is wrong at the end."""
    deadline = world.time() + HEALING_S
    left: list[str] = ["nothing was looked at"]
    while left and world.time() < deadline:
        await asyncio.sleep(5.0)
        if not working.done():
            left = [f"users still wait for answers: {users.refusal}"]
            continue
        working.result()
        left = [told for job in users.jobs.values() if (told := await _state(users, job))]
    left += [f"{name} is dead: {life.died_of}" for name, life in world.lives.items() if life.dead]
    if not left:
        left = await _rests(world)
    if not left:
        left = await _told(world, users)
    if not left:
        left = await _recorded(world)
    if not left:
        left = await _miscounted(world, story)
        deadline = world.time() + NEWS_S
        while left and world.time() < deadline:  # what was lost is told again with the next ads
            await asyncio.sleep(5.0)
            left = await _miscounted(world, story)
    return left


async def _told(world: World, users: Users) -> list[str]:
    """Where queue and history, the stream of facts and users' logs do not agree."""
    wrong = await users.unknown()
    logs = {
        schedd: log_of(sorted(users.logs.glob(f"{schedd}.*"))) for schedd in {j.schedd for j in users.jobs.values()}
    }
    for job in users.jobs.values():
        ads = await users.ad_of(job)
        if not ads:  # its factory was stopped before it was made
            if logs[job.schedd].get(job.id) or world.news.submitted[job.schedd, job.id]:
                wrong.append(f"{job.id} of {job.schedd} was made, and is not in the history")
            continue
        status, starts = int(ads[0].eval("JobStatus")), int(ads[0].eval("NumJobStarts") or 0)
        wrong += world.news.wrong_about(job.schedd, job.id, status=status, starts=starts)
        if job.logged:
            said = wrong_in_log(logs[job.schedd].get(job.id, []), status=status, starts=starts)
            wrong += [f"the log of {job.id} of {job.schedd}: {one}" for one in said]
    return wrong


async def _recorded(world: World) -> list[str]:
    """Where the journal is not what the broker had for it."""
    deadline = world.time() + NEWS_S
    while True:
        wrong = [one for name in world.lives if name.startswith("journal") for one in world.unrecorded(name)]
        if not wrong or world.time() > deadline:
            return wrong
        await asyncio.sleep(2.0)


async def _miscounted(world: World, story: Story) -> list[str]:
    """Use that was charged not at all, or twice."""
    charges, wrong = await _charges(world), []
    story.charged_s = story.used_s = 0.0
    slack = CHARGED_TO_S + world.usage.slack()
    for user, (least, most) in sorted(world.usage.bounds().items()):
        charged = charges.pop(user, 0.0)
        story.charged_s += charged
        story.used_s += most
        if not least - slack <= charged <= most + slack:
            exact = f"{least:.2f}" if most - least < 0.01 else f"{least:.2f} to {most:.2f}"
            wrong.append(f"{user} was charged {charged:.2f} core-seconds and used {exact}, +-{slack:g}")
    return [*wrong, *(f"{user} was charged {left:.2f} and used nothing" for user, left in charges.items() if left)]


async def _state(users: Users, job: Job) -> str:
    """What is wrong with a job that should have ended; empty: nothing."""
    try:
        ads = await users.ad_of(job)
    except RoostError as error:
        return f"{job.name} can not be asked for: {error}"
    if job.removed and job.late and not ads:
        return ""
    if len(ads) != 1:
        return f"{job.name} ({job.schedd} {job.id}) is there {len(ads)} times"
    (ad,) = ads
    status, code = ad.eval("JobStatus"), ad.eval("ExitCode")
    if job.removed and status in (3, 4):
        return ""
    if status != 4 or code != job.exit_code:
        hold = ad.eval("HoldReason")
        return f"{job.name} ({job.schedd} {job.id}) has status {status}, exit code {code}, hold {hold}"
    if job.nodes and not users.world.ran_together(job.name, job.nodes):
        return f"{job.name} ({job.schedd} {job.id}) is done, and no run of it had all of its {job.nodes} nodes"
    return _output(users, job) if job.files is not None else ""


def _output(users: Users, job: Job) -> str:
    """What is wrong with what a job that is done brought back: it is its last run's, as a whole."""
    assert job.files is not None
    runs = [process for process in users.world.processes if process.job == job.name]
    try:
        found = (job.files / f"out.{job.name}").read_bytes()
    except OSError as error:
        return f"{job.name} ({job.schedd} {job.id}) is done, and its output is not there: {error.strerror}"
    if found == output_of(job.name, runs[-1].attempt):
        return ""
    return f"{job.name} ({job.schedd} {job.id}): its output has {len(found)} bytes, and begins with {found[:20]!r}"


async def _rests(world: World) -> list[str]:
    """With all jobs done, every claim ends, every slot is whole, and every book adds up."""
    deadline = world.time() + 120.0
    while True:
        wrong = []
        for name, life in world.lives.items():
            kind, daemon = name.split(".")[0], life.daemon
            if kind == "schedd":
                wrong += [f"{name}: {one}" for one in queue_faults(daemon)]
            elif kind == "startd":
                wrong += [f"{name}: {one}" for one in slot_faults(daemon.shared.slot_manager)]
                wrong += [
                    f"{name}: {slot} is claimed" for slot, one in daemon.shared.slot_manager.slots.items() if one.claim
                ]
        wrong += [f"{one.job} runs on {one.host}" for one in world.processes if one.alive]
        hads = {name: life.daemon for name, life in world.lives.items() if name.startswith("had")}
        leaders = [name for name, had in hads.items() if had.role() == "leader"]
        if len(leaders) != 1:
            wrong.append(f"leaders: {leaders}")
        if not wrong or world.time() > deadline:
            return wrong
        await asyncio.sleep(2.0)
