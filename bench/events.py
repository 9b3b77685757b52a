"""How long an event takes from the bus to an HTTP client.

    python -m bench.events                     a personal pool of its own, both kinds of stream
    python -m bench.events --listeners 20      besides the one that is measured
    python -m bench.events --json FILE         the figures, for machines

A publisher on the pool's bus stamps each event with the clock; a client in another process, connected to the gateway as
any client is, reads the stamp and the clock of the same machine. So the figure has the bus in memory, the gateway's
writing and fan-out, and the way over the loopback; a broker and a network add theirs.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import statistics
import tempfile
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import aiohttp

from roost.up import PersonalPool, Plan, prepare
from shared.bus.api import Exchange
from shared.bus.memory import MemoryBus
from shared.messages.events import PriorityChanged

KIND = "accountant.changed"
#: Nobody else's events have this submitter.
WHO = "bench@events"


async def sse(url: str, token: str, count: int, ready: Connection) -> list[float]:
    """Seconds that each event took, over server-sent events."""
    took: list[float] = []
    headers = {"Authorization": f"Bearer {token}"}
    async with (
        aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=None)) as session,
        session.get(f"{url}/v1/events", params={"type": KIND}, headers=headers) as answer,
    ):
        await answer.content.readline()
        ready.send(True)
        async for line in answer.content:
            if line.startswith(b"data: "):
                body = json.loads(line[6:])
                if body.get("submitter") == WHO:
                    took.append(time.time() - body["value"])
                    if len(took) == count:
                        break
    return took


async def websocket(url: str, token: str, count: int, ready: Connection) -> list[float]:
    """The same, over a WebSocket."""
    took: list[float] = []
    async with aiohttp.ClientSession() as session, session.ws_connect(f"{url}/v1/events/ws") as socket:
        await socket.send_json({"types": [KIND], "token": token})
        await socket.receive()
        ready.send(True)
        async for message in socket:
            body = json.loads(message.data).get("data", {})
            if body.get("submitter") == WHO:
                took.append(time.time() - body["value"])
                if len(took) == count:
                    break
    return took


STREAMS = {"server-sent events": sse, "websocket": websocket}


def listen(name: str, url: str, token: str, count: int, pipe: Connection) -> None:
    """A client in a process of its own."""
    pipe.send(asyncio.run(STREAMS[name](url, token, count, pipe)))


async def told(pipe: Connection) -> Any:
    """What a process says, without holding up the loop."""
    return await asyncio.to_thread(pipe.recv)


async def measure(name: str, count: int, rate: float, listeners: int, directory: Path) -> dict[str, float]:
    """Milliseconds: median, 99 %, most."""
    prepare(directory)
    pool = PersonalPool(Plan(directory, knobs={"ROOST_GATEWAY_PORT": "0", "ROOST_GATEWAY_STREAMS": "0"}))
    await pool.start()
    token = (directory / "token").read_text().strip()
    bus = MemoryBus(pool._hub, sender="negotiator.bench")
    await bus.start()
    spawn = multiprocessing.get_context("spawn")
    processes = []
    try:
        pipes = []
        for _ in range(listeners + 1):
            ours, theirs = spawn.Pipe()
            process = spawn.Process(target=listen, args=(name, pool.url, token, count, theirs), daemon=True)
            process.start()
            theirs.close()
            processes.append(process)
            pipes.append(ours)
        for pipe in pipes:
            await told(pipe)
        for _ in range(count):
            now = time.time()
            await bus.publish(
                Exchange.EVENTS, KIND, PriorityChanged(at=now, submitter=WHO, what="factor", value=now, by="bench")
            )
            await asyncio.sleep(1 / rate)
        took = sorted(1000 * one for one in await told(pipes[0]))
    finally:
        for process in processes:
            process.kill()
            process.join()
        await bus.stop()
        await pool.stop()
    return {
        "median_ms": statistics.median(took),
        "p99_ms": took[min(len(took) - 1, int(0.99 * len(took)))],
        "most_ms": took[-1],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=500, help="events to measure (%(default)s)")
    parser.add_argument("--rate", type=float, default=100.0, help="events a second (%(default)s)")
    parser.add_argument("--listeners", type=int, default=0, help="other clients that hear all of it (%(default)s)")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    options = parser.parse_args()
    figures = {}
    for name in STREAMS:
        with tempfile.TemporaryDirectory(prefix="roost-bench-") as folder:
            done = measure(name, options.events, options.rate, options.listeners, Path(folder))
            figures[name] = asyncio.run(done)
        told_of = ", ".join(f"{what.removesuffix('_ms')} {value:.2f} ms" for what, value in figures[name].items())
        print(f"{name:20} {told_of}")
    if options.json:
        options.json.write_text(json.dumps(figures, indent=2) + "\n")


if __name__ == "__main__":
    main()
