"""`roost wait`: until jobs have left the queue (or are on hold)."""

from __future__ import annotations

import json

from roost.cli.options import COMMON, Option, flag, parse, usage, value
from roost.cli.output import say
from roost.cli.q_totals import STATUS
from roost.client import Client
from roost.errors import UsageError

OPTIONS: tuple[Option, ...] = (
    value("timeout", "wait", help="give up after so many seconds (exit code 2)", metavar="SECONDS"),
    flag("json", help="final status of each job as JSON"),
    *COMMON,
)


def run(command: str, argv: list[str]) -> int:
    parsed = parse(argv, OPTIONS)
    if parsed.has("help"):
        text = "Wait for jobs. Exit code 0: all completed; 1: some were removed or held; 2: time is over."
        say(usage(command, "JOB...", text, OPTIONS))
        return 0
    if not parsed.arguments:
        raise UsageError("wait for what? name jobs: 12 or 12.3")
    with Client(parsed.one("pool") or None) as client:
        try:
            states = client.wait(parsed.arguments, timeout=parsed.seconds("timeout"))
        except TimeoutError as error:
            say(str(error))
            return 2
    if parsed.has("json"):
        say(json.dumps({job: STATUS[status] for job, status in states.items()}, indent=2))
    elif not states:
        raise UsageError(f"no such job: {' '.join(parsed.arguments)}")
    else:
        counts: dict[str, int] = {}
        for status in states.values():
            counts[STATUS[status]] = counts.get(STATUS[status], 0) + 1
        say(f"{len(states)} jobs: " + ", ".join(f"{count} {name}" for name, count in sorted(counts.items())))
    return 0 if states and all(status == 4 for status in states.values()) else 1
