"""`roost demo`: see a pool work."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from roost import demo
from roost.cli.options import Option, flag, parse, usage, value
from roost.cli.output import say
from roost.client import Client
from roost.errors import ClientError, UsageError
from roost.pool_directory import POOL_FILE

OPTIONS: tuple[Option, ...] = (
    value("jobs", help="how many jobs (40)", metavar="N"),
    flag("keep", help="keep the demo's directory"),
    flag("help", "h", help="show this help"),
)
_BAR = 40
_PATIENCE_S = 10


def run(command: str, argv: list[str]) -> int:
    parsed = parse(argv, OPTIONS)
    if parsed.has("help"):
        say(usage(command, "", "Start a pool, run real jobs in it, check and print what they found.", OPTIONS))
        return 0
    jobs = parsed.integer("jobs", demo.JOBS)
    if jobs < 1:
        raise UsageError("-jobs takes a number from 1 on")
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)  # like Ctrl-C: the pool is not left behind
    began = time.monotonic()
    home = Path(tempfile.mkdtemp(prefix="roost-demo-"))
    try:
        with _pool(home / "pool") as client:
            slots = list(client.ads("Machine", projection=["Name", "Cpus", "Memory", "OpSysAndVer"]))
            machine = slots[0]
            say(
                f"   {machine.eval('Name')}: {machine.eval('Cpus')} cpus, {machine.eval('Memory')} MiB, "
                f"{machine.eval('OpSysAndVer')}   (pool up after {time.monotonic() - began:.1f} s)"
            )
            work = demo.prepare(home / "work", jobs)
            files = sum(len(path.read_text().splitlines()) for path in work.lists)
            say(f"\n2. Submit {len(work.lists)} jobs that survey {files} source files of Python's standard library")
            waits = _follow_starts()
            cluster = _submit(work)
            say("\n3. Watch them run")
            states = _watch(client, cluster, len(work.lists))
            failed = _failures(client, cluster, work)
            if failed or states != {4: len(work.lists)}:
                say("\nNot all jobs did what they should:")
                for line in failed:
                    say(f"   {line}")
                return 1
            whole = demo.collect(work)
            say("\n4. Results, added up and checked against one run over all files without the pool")
            _print(whole)
            say(f"\nAll {len(work.lists)} jobs completed in {time.monotonic() - began:.1f} s, pool start included.")
            if waits:
                say(f"The first one ran {min(waits) * 1000:.0f} ms after it was submitted.")
        for line in _try_next():
            say(line)
        return 0
    except KeyboardInterrupt:
        say("\n\nStopped. The pool is down, and nothing of it is left.")
        return 130
    finally:
        if parsed.has("keep"):
            say(f"(kept {home})")
        else:
            shutil.rmtree(home, ignore_errors=True)


def _try_next() -> list[str]:
    """What to type now, as it works in this shell: bin/demo has not put `roost` on anybody's PATH."""
    programs = Path(sys.executable).parent
    activate = programs / "activate"
    first = []
    if shutil.which("roost") is None and activate.exists():
        first = [f". {shlex.quote(os.path.relpath(activate))}", "# in every terminal: puts roost on its PATH"]
    hello = shlex.quote(os.path.relpath(demo.HERE / "hello.sub"))
    rows = [
        first,
        ["roost up", "# a pool of your own; then in another terminal"],
        ["roost status", "# its slots"],
        [f"roost submit {hello}", "# five jobs"],
        ["roost history", "# how they went"],
    ]
    rows = [row for row in rows if row]
    width = max(len(row[0]) for row in rows)
    return ["\nTry next:", *(f"   {command:<{width}}   {remark}" for command, remark in rows)]


@contextmanager
def _pool(directory: Path) -> Iterator[Client]:
    say("1. Start a pool: collector, negotiator, HAD, schedd, startd and gateway in one process")
    directory.mkdir(parents=True)
    log = (directory / "demo.log").open("wb")
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("ROOST_", "_CONDOR_"))}
    environment["ROOST_POOL_DIR"] = str(directory)
    # A process group of its own: Ctrl-C is for us, who clear the queue before the pool stops.
    process = subprocess.Popen(
        [sys.executable, "-m", "roost", "up", "-port", "0"], env=environment, stdout=log, stderr=log, process_group=0
    )
    os.environ.clear()
    os.environ.update(environment)
    try:
        end = time.monotonic() + 60
        while not (directory / POOL_FILE).exists():
            if process.poll() is not None or time.monotonic() > end:
                raise ClientError(f"the pool did not start:\n{(directory / 'demo.log').read_text()[-2000:]}")
            time.sleep(0.02)
        with Client() as client:
            while not any(ad.eval("Cpus") for ad in client.ads("Machine", projection=["Cpus"])):
                if process.poll() is not None or time.monotonic() > end:
                    raise ClientError(f"the pool has no slots:\n{(directory / 'demo.log').read_text()[-2000:]}")
                time.sleep(0.02)
            try:
                yield client
            except KeyboardInterrupt:
                signal.signal(signal.SIGINT, signal.SIG_IGN)
                _clear()
                raise
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # impatience must not leave half of a pool behind
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
        log.close()


def _clear() -> None:
    """Remove all jobs, and wait for those that ran: a pool that stops lets them run on."""
    end = time.monotonic() + _PATIENCE_S
    with suppress(ClientError), Client() as client:
        client.act("remove", constraint="true")
        while any(client.job_totals().values()) and time.monotonic() < end:
            time.sleep(0.05)


def _submit(work: demo.Work) -> int:
    said = subprocess.run(
        [sys.executable, "-m", "roost", "submit", work.submit_file.name],
        cwd=work.directory,
        capture_output=True,
        text=True,
        check=False,
    )
    if said.returncode:
        raise ClientError(said.stderr.strip().removeprefix("roost: "))
    for line in said.stdout.strip().splitlines():
        say(f"   {line}")
    return int(said.stdout.rpartition("cluster ")[2].strip().rstrip("."))


def _watch(client: Client, cluster: int, total: int) -> Counter[int]:
    """A line that fills up, until nothing is idle or running; where output is no terminal, a line for each quarter."""
    live = sys.stdout.isatty()
    shown = -1
    while True:
        states = Counter(client.wait_states([str(cluster)]).values())
        done = states[4]
        bar = "#" * (done * _BAR // total) + "." * (_BAR - done * _BAR // total)
        text = f"   [{bar}] {done:>3} done  {states[2]:>2} running  {states[1]:>3} idle"
        if states[5]:
            text += f"  {states[5]} held"
        if live:
            sys.stdout.write(f"\r{text}")
            sys.stdout.flush()
        elif done * 4 // total != shown:
            shown = done * 4 // total
            say(text)
        if not states[1] and not states[2] and not states[6] and sum(states.values()) >= total:
            if live:
                say()
            return +states
        time.sleep(0.1)


def _print(whole: dict[str, Any]) -> None:
    say(
        f"   {whole['files']:,} files, {whole['lines']:,} lines, {whole['functions']:,} functions, "
        f"{whole['classes']:,} classes"
    )
    say(f"   longest function: {whole['longest'][1]}, {whole['longest'][0]:,} lines")
    common = Counter(whole["imports"]).most_common(8)
    width = max(count for _, count in common)
    say("   most imported modules:")
    for name, count in common:
        say(f"     {name:<12} {count:>5}  {'#' * max(1, count * 30 // width)}")


def _follow_starts() -> list[float]:
    """Seconds from each job's submit until it ran, gathered from the pool's events as they come."""
    waits: list[float] = []
    following = threading.Event()

    def follow() -> None:
        with Client() as client:
            for event in client.events("job.started", on_open=following.set):
                body = event.body
                waits.append(body["waited_s"] + body["at"] - body["began"])

    threading.Thread(target=follow, daemon=True).start()
    following.wait(10)
    return waits


def _failures(client: Client, cluster: int, work: demo.Work) -> list[str]:
    """What to tell of jobs on hold, and of those that ended with an error."""
    needs = ["ProcId", "JobStatus", "HoldReason", "ExitCode"]
    told = []
    for history in (True, False):
        for ad in client.jobs(str(cluster), projection=needs, history=history):
            proc = ad.eval("ProcId")
            if ad.eval("JobStatus") == 5:
                told.append(f"{cluster}.{proc} is on hold: {ad.eval('HoldReason')}")
            elif ad.eval("ExitCode") != 0:
                name = work.lists[int(str(proc))].name
                error = (work.directory / "found" / f"{name}.err").read_text().strip().splitlines()
                told.append(f"{cluster}.{proc} ended with {ad.eval('ExitCode')}: {error[-1] if error else ''}")
    return told
