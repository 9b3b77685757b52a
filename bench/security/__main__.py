"""Hostile inputs to a real pool, by family, and what they did: `python -m bench.security`.

    python -m bench.security [--count 1000000] [--minutes M] [--seed S] [--family bus ...] [--large SHARE] [--json FILE]
                             [--found DIR]

The pool's daemons are processes on a RabbitMQ and a Redis of the run's own, each with a user of the broker of its own,
and a gateway that signs. Counted are crashes (a daemon that ended, a handler that failed, an answer 5xx or `internal`,
a reader that raised what it should not), silences (work that kept a loop for more than 50 ms of processor time, by the
daemons' own meters) and rights widened (an answer to who may not ask; a job, priority, token, configuration or lead
that is another than before). Ends with 1 when there was any, and writes each into --found. At the end an ordinary job
has to run. SIGTERM ends a run early, with the figures so far.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import os
import secrets
import signal
import statistics
import sys
import tempfile
import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

from bench.security import bus, http, texts
from bench.security.cases import CRASH, FAMILIES, RIGHTS, SILENCE, Case, Fault, Tally, dice_of, write
from bench.security.pool import HostilePool
from tests.security.attacker import Attacker
from tests.yardstick import slowness

#: Of a hundred inputs so many are of each family, where all are sent.
SHARES: Final = dict(zip(FAMILIES, (10, 10, 25, 22, 22, 8, 3), strict=True))
#: Inputs of a family that are made and sent together; how many are under way at a time.
BATCH: Final = {
    "http": 200,
    "bus": 400,
    "messages": 500,
    "submit": 500,
    "configuration": 500,
    "ads": 200,
    "expressions": 60,
}
UNDER_WAY: Final = {"http": 12, "bus": 12}
#: Seconds between looks at the meters, and at what is protected.
METERS_EVERY_S, LOOK_EVERY_S = 2.0, 45.0
#: Inputs sent last that are kept with what was found of the pool as a whole.
KEPT: Final = 400
#: How much the daemons go before who sends and who reads here: attackers have machines of their own, and a daemon that
#: gets no processor answers in one turn of its loop what came meanwhile.
NICE: Final = 10


class Run:
    """One run. Every family has a worker; they share the pool."""

    def __init__(
        self, pool: HostilePool, seed: int, families: Sequence[str], count: int, minutes: float, large: float = 0.0
    ) -> None:
        """large: the share of messages of the bus with a text of megabytes."""
        self.pool = pool
        self.large = large
        self.seed = seed
        self.tallies = {family: Tally() for family in families}
        self._readers = texts.Readers()
        self._reads = asyncio.Semaphore(2)  # more at a time would be in each other's way
        whole = sum(SHARES[family] for family in families)
        self._wanted = {family: round(count * SHARES[family] / whole) for family in families}
        self._ends = time.monotonic() + minutes * 60 if minutes else float("inf")
        self._last: deque[Case] = deque(maxlen=KEPT)
        self._before: dict[str, Any] = {}
        self.pool_faults: list[Fault] = []
        self.looks = 0
        self.loads: list[float] = []
        self.slowness: list[float] = []  # of this machine meanwhile, see tests.yardstick
        self.silences: dict[str, int] = {}

    async def whole(self) -> None:
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, self._end)
        self._before = await asyncio.to_thread(self.pool.protected)
        watching = asyncio.create_task(self._watch())
        try:
            await asyncio.gather(*(self._family(family) for family in self.tallies))
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)
            self._readers.close()
        await self._meters()
        await self._look()
        try:
            await asyncio.to_thread(self.pool.works)
        except Exception as error:  # noqa: BLE001  whatever it is, no job ran
            self._found(Fault(CRASH, "pool", f"afterwards no ordinary job ran to its end: {error}"))

    def _end(self) -> None:
        self._ends = 0.0

    def faults(self) -> list[Fault]:
        return [*self.pool_faults, *(fault for tally in self.tallies.values() for fault in tally.faults)]

    async def _family(self, family: str) -> None:
        tally, began = self.tallies[family], time.perf_counter()
        if family == "http":
            await self._http(tally)
        elif family == "bus":
            await self._bus(tally)
        else:
            await self._texts(family, tally)
            return  # which adds up what its batches took
        tally.seconds = time.perf_counter() - began

    def _more(self, family: str) -> int:
        """How many inputs to make now; 0: there were enough."""
        left = self._wanted[family] - self.tallies[family].sent
        return 0 if time.monotonic() > self._ends else max(0, min(left, BATCH[family]))

    async def _http(self, tally: Tally) -> None:
        maker, target, first = http.Maker(self.pool.described), self.pool.target, 0
        while count := self._more("http"):
            cases = [maker.make(dice_of(self.seed, "http", number)) for number in range(first, first + count)]
            await self._all(cases, UNDER_WAY["http"], lambda case: http.take(case, target, tally))
            first += count

    async def _bus(self, tally: Tally) -> None:
        attackers = {user: Attacker(self.pool.url_of(user), tally, bus.judge) for user in bus.ATTACKERS}
        maker, first = bus.Maker(self.large), 0
        try:
            for attacker in attackers.values():
                await attacker.start()
            while count := self._more("bus"):
                made = [(n, maker.make(dice_of(self.seed, "bus", n))) for n in range(first, first + count)]
                ids = {id(case): f"{self.seed:x}.{number}" for number, case in made}
                await self._all(
                    [case for _, case in made],
                    UNDER_WAY["bus"],
                    lambda case, ids=ids: attackers[case["user"]].take(case, ids[id(case)]),  # type: ignore[misc]
                )
                first += count
        finally:
            for attacker in attackers.values():
                await attacker.stop()

    async def _texts(self, family: str, tally: Tally) -> None:
        first = 0
        while count := self._more(family):
            async with self._reads:
                tally.add(await self._readers.run(family, self.seed, first, count))
            first += count

    async def _all(self, cases: list[Case], at_once: int, send: Callable[[Case], Awaitable[None]]) -> None:
        waiting = deque(cases)

        async def work() -> None:
            while waiting:
                case = waiting.popleft()
                self._last.append(case)
                await send(case)

        await asyncio.gather(*(work() for _ in range(at_once)))

    async def _watch(self) -> None:
        looked, said_of = time.monotonic(), set[int]()
        while True:
            await asyncio.sleep(METERS_EVERY_S)
            await self._meters()
            if time.monotonic() > looked + LOOK_EVERY_S:
                await self._look()
                looked = time.monotonic()
                said = ", ".join(f"{family} {tally.sent}" for family, tally in self.tallies.items())
                load = os.getloadavg()[0]
                self.loads.append(load)
                self.slowness.append(min(slowness() for _ in range(3)))  # the first one finds caches cold
                told = f"faults: {len(self.faults())}; load {load:.1f}, {self.slowness[-1]:.1f} times as slow as usual"
                print(f"  {said}; {told}", flush=True)
                for fault in self.faults():  # at once: who stops this run knows them too
                    if id(fault) not in said_of:
                        said_of.add(id(fault))
                        print(f"    {story_of(fault)}", flush=True)

    async def _meters(self) -> None:
        for name, times in (await asyncio.to_thread(self.pool.silences)).items():
            self.silences[name] = self.silences.get(name, 0) + times
            last = await asyncio.to_thread(self.pool.last_silence, name)
            self._found(Fault(SILENCE, "pool", f"{name}: its loop was held {times} times, the last time: {last}"))

    async def _look(self) -> None:
        self.looks += 1
        for fault in await asyncio.to_thread(self.pool.look, self._before):
            self._found(fault)

    def _found(self, fault: Fault) -> None:
        self.pool_faults.append(Fault(fault.kind, fault.family, fault.story, tuple(self._last)))


def report(run: Run, took: float) -> dict[str, Any]:
    """Printed as a table, and returned for a file."""
    print(f"\n{'family':<14} {'inputs':>9} {'a second':>9} {'longest':>9} crashes silences rights")
    rows: dict[str, Any] = {}
    for family, tally in run.tallies.items():
        rows[family] = {
            "inputs": tally.sent,
            "a_second": round(tally.sent / tally.seconds) if tally.seconds else 0,
            "longest_s": round(tally.longest_s, 4),
            **{kind: tally.count(kind) for kind in (CRASH, SILENCE, RIGHTS)},
            "outcomes": dict(tally.outcomes.most_common(20)),
        }
        counts = " ".join(f"{tally.count(kind):>7}" for kind in (CRASH, SILENCE, RIGHTS))
        longest = f"{tally.longest_s * 1000:.0f} ms" if tally.longest_s else ""
        print(f"{family:<14} {tally.sent:>9} {rows[family]['a_second']:>9} {longest:>9} {counts}")
        print(f"{'':<14} {', '.join(f'{what} {n}' for what, n in tally.outcomes.most_common(8))}")
    found = {kind: sum(fault.kind == kind for fault in run.faults()) for kind in (CRASH, SILENCE, RIGHTS)}
    found[SILENCE] += sum(run.silences.values()) - sum(fault.kind == SILENCE for fault in run.pool_faults)
    inputs = sum(tally.sent for tally in run.tallies.values())
    load = (round(min(run.loads), 1), round(max(run.loads), 1)) if run.loads else (round(os.getloadavg()[0], 1),) * 2
    print(f"{inputs} inputs in {took:.0f} s at a load of {load[0]} to {load[1]}, seed {run.seed}.")
    slow = round(statistics.median(run.slowness), 2) if run.slowness else None
    if slow is not None:
        # A silence of 55 ms on a machine that is twice as slow as usual would be none elsewhere.
        print(f"Work took {slow:.1f} times the processor time that it usually takes.")
    print(f"{run.looks} looks at what is protected.")
    print(f"Crashes {found[CRASH]}, silences {found[SILENCE]} {run.silences or ''}, rights widened {found[RIGHTS]}.")
    return {
        "seed": run.seed,
        "inputs": inputs,
        "seconds": round(took, 1),
        "load": load,
        "slowness": slow,
        "families": rows,
        "held": run.silences,
        **found,
    }


def story_of(fault: Fault) -> str:
    """In one line."""
    return f"{fault.kind} {fault.family}: {fault.story.splitlines()[0][:300]}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=1_000_000, help="inputs, of all families together")
    parser.add_argument("--minutes", type=float, default=0.0, help="at most so long; 0: until all are sent")
    parser.add_argument("--seed", type=int, help="of the dice; none: another one in every run")
    parser.add_argument("--family", choices=FAMILIES, nargs="+", default=list(FAMILIES))
    parser.add_argument("--large", type=float, default=0.0, help="share of large messages on the bus, 0 to 1")
    parser.add_argument("--json", type=Path, help="write the figures here too")
    parser.add_argument("--found", type=Path, help="a directory for the inputs of what was found")
    options = parser.parse_args()
    logging.getLogger("aiormq").setLevel(logging.CRITICAL)  # what the broker refuses is counted here
    seed = secrets.randbits(32) if options.seed is None else options.seed
    with tempfile.TemporaryDirectory(prefix="roost-fuzz-") as place, ExitStack() as stack:
        pool = HostilePool(Path(place) / "pool", stack)
        pool.open()
        os.nice(NICE)
        run, began = Run(pool, seed, options.family, options.count, options.minutes, options.large), time.perf_counter()
        asyncio.run(run.whole())
        figures = report(run, time.perf_counter() - began)
    stories: dict[str, int] = {}
    for fault in run.faults():
        what = story_of(fault)
        stories[what] = stories.get(what, 0) + 1
    for what, times in list(stories.items())[:40]:
        print(f"{times} x {what}")
    if options.json:
        options.json.write_text(json.dumps(figures, indent=1) + "\n")
    if options.found:
        write(options.found, seed, run.faults())
    return 1 if run.faults() else 0


if __name__ == "__main__":
    sys.exit(main())
