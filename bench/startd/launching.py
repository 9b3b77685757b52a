"""How soon jobs run: on a claim, against the bare thing, for each launcher."""

from __future__ import annotations

import argparse
import os
import subprocess
import tempfile
import time
from pathlib import Path

from bench.startd.pool import SLOTS, Bench, job, line


def bare(count: int) -> list[float]:
    """Milliseconds until a subprocess is started."""
    found = []
    for _ in range(count):
        asked = time.perf_counter()
        process = subprocess.Popen(["/bin/true"], cwd="/tmp")
        found.append((time.perf_counter() - asked) * 1000)
        process.wait()
    return found


def bare_containers(count: int, image: str) -> list[float]:
    """Milliseconds of `docker run` of the same command, to its end."""
    found = []
    for _ in range(count):
        asked = time.perf_counter()
        subprocess.run(["docker", "run", "--rm", "--network=none", image, "/bin/true"], check=True, capture_output=True)
        found.append((time.perf_counter() - asked) * 1000)
    return found


async def processes(count: int, *, as_root: bool) -> list[str]:
    lines = [line("bare subprocess, until it is started", bare(count))]
    with tempfile.TemporaryDirectory(prefix="roost-bench-") as folder:
        os.chmod(folder, 0o755)  # jobs of other accounts enter it
        bench = Bench(ROOST_OWN_USERS="*" if as_root else "")
        await bench.start(Path(folder))
        try:
            jobs = [job(10_000_000 + number) for number in range(count)]
            lines.append(line("claim request to running process", await bench.latency(jobs)))
            for claims in (1, SLOTS):
                cpu = time.process_time()
                jobs = [job(claims * 1_000_000 + number) for number in range(count)]
                spent = await bench.run(jobs, claims)
                cpu = (time.process_time() - cpu) / count * 1000
                lines.append(
                    f"/bin/true on {claims} claim(s): {count / spent:.0f} jobs/s, {cpu:.2f} ms CPU of the startd a job"
                )
        finally:
            await bench.stop()
    return lines


async def containers(count: int, image: str) -> list[str]:
    """The engine is the one that DOCKER_HOST names; it has the image."""
    lines = [line(f"docker run {image}, from start to end", bare_containers(count, image))]
    with tempfile.TemporaryDirectory(prefix="roost-bench-") as folder:
        os.chmod(folder, 0o755)
        bench = Bench(ROOST_DOCKER="true")
        await bench.start(Path(folder))
        try:
            what = {"DockerImage": image, "WantDocker": True, "JobUniverse": 5}
            jobs = [job(number, **what) for number in range(count)]
            lines.append(line("claim request to running container", await bench.latency(jobs)))
            begin = time.perf_counter()
            await bench.run([job(1_000_000 + number, **what) for number in range(count)], 1)
            spent = (time.perf_counter() - begin) / count * 1000
            lines.append(f"containers on a reused claim: {spent:.1f} ms each, to the acknowledged end")
        finally:
            await bench.stop()
    return lines


async def measure(options: argparse.Namespace) -> list[str]:
    if options.docker:
        return await containers(max(1, options.jobs // 10), options.image)
    return await processes(options.jobs, as_root=options.as_root)
