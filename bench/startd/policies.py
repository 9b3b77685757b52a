"""What many dynamic slots cost: looking at the policies of all of them, doing nothing, and one claim more."""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from pathlib import Path

from bench.startd.pool import Bench, job_ad, line
from services.startd.core.slots.effects import SlotEffects

#: Policies as a desktop machine has them: every expression is really evaluated.
KNOBS = {
    "START": "KeyboardIdle >= 0 && TARGET.RequestMemory < 100000",
    "WANT_SUSPEND": "TARGET.JobPrio =?= 7",
    "SUSPEND": "LoadAvg > 1000",
    "CONTINUE": "LoadAvg < 1000",
    "PREEMPT": "LoadAvg > 10000 || TARGET.JobPrio =?= -7",
    "KILL": "false",
    "RANK": "TARGET.JobPrio ?: 0",
    "MAXJOBRETIREMENTTIME": "3600",
    "CLAIM_WORKLIFE": "86400",
}


async def measure(options: argparse.Namespace) -> list[str]:
    count = options.slots
    lines = []
    knobs = {
        "NUM_CPUS": str(count + 100),
        "MEMORY": str((count + 100) * 128),
        "DISK": str((count + 100) * 4096),
        **KNOBS,
    }
    with tempfile.TemporaryDirectory(prefix="roost-bench-") as folder:
        bench = Bench(**knobs)
        await bench.start(Path(folder))
        startd, now = bench.startd, time.time()
        try:
            times, effects = [], SlotEffects()
            for number in range(count):
                begin = time.perf_counter()
                claim_id = await bench.claim(number)
                times.append((time.perf_counter() - begin) * 1000)
                ad = job_ad(number)
                # No process: what is counted is ours.
                run = f"1.{number}/1"
                effects.add(startd.shared.slot_manager.activate(claim_id, run, ad.pack(), ad, now)[1])
            startd.shared.effects.carry_out(effects)
            lines.append(line(f"claim, from the first to the {count}th dynamic slot", times))
            await asyncio.sleep(1.0)  # what waits to be told is
            lines.append(
                line("all policies, with new ads, processor time", await _reviews(bench, options.rounds, anew=True))
            )
            lines.append(
                line("all policies, nothing is new, processor time", await _reviews(bench, options.rounds, anew=False))
            )
            more = []
            for number in range(50):
                begin = time.perf_counter()
                claim_id = await bench.claim(count + number)
                more.append((time.perf_counter() - begin) * 1000)
                bench.release(claim_id)
                await asyncio.sleep(0.05)
            lines.append(line(f"claim on a slot with {count} dynamic ones", more))
            cpu, begin = time.process_time(), time.perf_counter()
            for number in range(50):
                bench.release(await bench.claim(10 * count + number))
                await asyncio.sleep(0.05)
            spent = time.process_time() - cpu
            lines.append(f"processor time of a claim and its release, with the ads told: {spent / 50 * 1000:.1f} ms")
            await asyncio.sleep(1.0)
            cpu, begin = time.process_time(), time.perf_counter()
            await asyncio.sleep(options.idle)
            share = (time.process_time() - cpu) / (time.perf_counter() - begin) * 100
            lines.append(f"{count} busy dynamic slots, nothing happens: {share:.1f} % of a core")
        finally:
            await bench.stop()
    return lines


async def _reviews(bench: Bench, rounds: int, *, anew: bool) -> list[float]:
    """Milliseconds of processor time of looking at every slot once: others on the machine do not count."""
    found = []
    for _ in range(rounds):
        if anew:
            bench.startd.shared.ads.renew()
        begin = time.process_time()
        bench.startd.shared.review()
        found.append((time.process_time() - begin) * 1000)
        await asyncio.sleep(0.01)
    return found
