"""`roost wait`: until jobs have left the queue (or are on hold), or until their log tells their ends."""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from collections.abc import Mapping

from roost.cli.options import COMMON, Option, Parsed, flag, parse, usage, value
from roost.cli.output import say
from roost.cli.paint import Paint
from roost.cli.progress import Progress
from roost.cli.q_totals import STATUS
from roost.client import Client
from roost.errors import UsageError

OPTIONS: tuple[Option, ...] = (
    value("timeout", "wait", help="give up after so many seconds (exit code 2)", metavar="SECONDS"),
    value("log", help="read this log of jobs instead of asking the pool, as condor_wait does", metavar="FILE"),
    value("num", help="with -log: until so many jobs have ended", metavar="NUMBER"),
    flag("echo", help="with -log: print events as they come"),
    flag("status", help="with -log: print how jobs stand as that changes"),
    flag("json", help="final status of each job as JSON"),
    *COMMON,
)


def run(command: str, argv: list[str]) -> int:
    parsed = parse(argv, OPTIONS)
    if parsed.has("help"):
        text = (
            "Wait for jobs. Exit code 0: all completed; 1: some were removed or held; 2: time is over.\n"
            "-log FILE [JOB]: wait for the ends of jobs that a log tells, also those that were removed; exit code 1:\n"
            "time is over, or it has no such job."
        )
        say(usage(command, "JOB...", text, OPTIONS))
        return 0
    if parsed.has("log"):
        return _log(parsed)
    for option in ("num", "echo", "status"):
        if parsed.has(option):
            raise UsageError(f"-{option} belongs to -log FILE")
    if not parsed.arguments:
        raise UsageError("wait for what? name jobs: 12 or 12.3")
    progress, began = Progress(), time.monotonic()

    def tell(states: Mapping[str, int]) -> None:
        progress.show(standing(states, time.monotonic() - began))

    with Client(parsed.one("pool") or None) as client:
        try:
            # On a terminal a line tells how they stand; a script hears nothing before the end.
            timeout = parsed.seconds("timeout")
            if sys.stderr.isatty():
                states = client.wait(parsed.arguments, timeout=timeout, tell=tell)
            else:
                states = client.wait(parsed.arguments, timeout=timeout)
        except TimeoutError as error:
            progress.clear()
            say(str(error))
            return 2
        finally:
            progress.clear()
    if parsed.has("json"):
        say(json.dumps({job: STATUS[status] for job, status in states.items()}, indent=2))
    elif not states:
        raise UsageError(f"no such job: {' '.join(parsed.arguments)}")
    else:
        paint = Paint.of_terminal()
        good = all(status == 4 for status in states.values())
        say((paint.good if good else paint.bad)(counted(states)))
    return 0 if states and all(status == 4 for status in states.values()) else 1


def counted(states: Mapping[str, int]) -> str:
    """ "3 jobs: 1 completed, 2 running"."""
    counts = Counter(STATUS[status] for status in states.values())
    parts = ", ".join(f"{count} {name}" for name, count in sorted(counts.items()))
    return f"{len(states)} {'job' if len(states) == 1 else 'jobs'}: {parts}"


def standing(states: Mapping[str, int], waited_s: float) -> str:
    """How they stand, and since when somebody waits: for a line that is drawn over and over."""
    seconds = int(waited_s)
    clock = f"{seconds // 3600}:{seconds // 60 % 60:02}:{seconds % 60:02}"
    return f"{clock}  {counted(states)}" if states else f"{clock}  no such job yet"


def _log(parsed: Parsed) -> int:
    from roost.cli.jobs_to_end import NAMES, JobsToEnd, job_of
    from shared.job_log import BadEvent, LogFollower

    if len(parsed.arguments) > 1:
        raise UsageError("-log FILE and at most one job: 12 or 12.3")
    only = parsed.arguments[0].removesuffix(".-1") if parsed.arguments else ""
    number = parsed.integer("num", 0)
    if number < 0 or (parsed.has("num") and not number):
        raise UsageError("-num wants a number of jobs, from 1 on")
    limit = parsed.seconds("timeout")
    file = parsed.one("log")
    end = None if limit is None else time.monotonic() + limit
    waiting = JobsToEnd(only)
    try:
        with LogFollower(file) as log:
            while True:
                for event in log.read():
                    if isinstance(event, BadEvent) or not waiting.take(event):
                        continue
                    if parsed.has("echo"):
                        say(f"{event.number:03d} ({job_of(event)}) {event.title or event.kind}")
                    if parsed.has("status"):
                        name = NAMES.get(event.number, f"event {event.number}")
                        counts = f"{len(waiting.running)} to end, {len(waiting.ended)} ended"
                        say(f"{job_of(event)} {name}; {counts}")
                if waiting.done(number):
                    say("All jobs done." if not number else f"{len(waiting.ended)} jobs done.")
                    return 0
                if not waiting.known:
                    raise UsageError(f"{file}: no job {only} was submitted by this log" if only else f"{file}: no jobs")
                sys.stdout.flush()
                if not log.pause(end):
                    say("Time expired.")
                    return 1
    except OSError as error:
        raise UsageError(f"{file}: {error.strerror}") from None
