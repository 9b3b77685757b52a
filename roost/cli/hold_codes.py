"""`roost q -hold-codes`: held jobs by why they are held, most jobs first."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict

from engine.queue.hold_reasons import ATTRIBUTES, HoldReason, grouped
from roost.cli import job_selection, output
from roost.cli.options import Parsed
from roost.cli.output import say
from roost.cli.paint import Paint
from roost.client import Client

_HEADINGS = ("JOBS", "CODE/SUB", "FIRST", "HOLD_REASON")


def show(parsed: Parsed) -> int:
    """As JSON with -json. The exit code."""
    terms = ["JobStatus == 5"]
    if chosen := job_selection.constraint(parsed):
        terms.append(chosen)
    ids = [word for word in parsed.arguments if job_selection.is_id(word)]
    if ids:
        terms.append(job_selection.one_of(ids))
    with Client(parsed.one("pool") or None) as client:
        jobs = client.jobs(
            constraint=" && ".join(f"({term})" for term in terms), projection=ATTRIBUTES, schedd=parsed.one("name")
        )
        found = grouped((ad, parsed.one("name"), 1) for ad in jobs)
    if parsed.has("json"):
        say(
            json.dumps([{name: value for name, value in asdict(one).items() if value != ""} for one in found], indent=2)
        )
        return 0
    for line in lines(found, output.terminal_width(), Paint.of_terminal()):
        say(line)
    return 0


def lines(found: Sequence[HoldReason], width: int, paint: Paint) -> Iterator[str]:
    """A line for each reason, more where it does not fit in so many columns. width: 0: as long as it is."""
    if not found:
        yield "No jobs are held."
        return
    rows = [[str(one.count), _code(one), one.first, " ".join(one.reason.split())] for one in found]
    heading, *table = output.lines(_HEADINGS, rows, (True, False, False, False), screen=width)
    yield paint.strong(heading)
    yield from table
    total = sum(one.count for one in found)
    yield ""
    yield (
        f"{total} held {'job' if total == 1 else 'jobs'}, {len(found)} {'reason' if len(found) == 1 else 'reasons'}; "
        "`roost release` lets jobs go on."
    )


def _code(one: HoldReason) -> str:
    return "-" if one.code is None else f"{one.code}/{one.subcode or 0}"
