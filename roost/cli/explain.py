"""`roost explain`: why a job waited, at any time of the past, and why a user's share is what it is."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from roost.cli import output
from roost.cli.job_selection import is_id
from roost.cli.options import COMMON, Option, Parsed, flag, parse, usage, value
from roost.cli.output import say
from roost.cli.times import interval_of, lasting, moment_of, shown
from roost.client import Client
from roost.errors import ClientError, UsageError
from roost.late_materialization import is_given, story

OPTIONS: tuple[Option, ...] = (
    value("at", help="what it was at that time, and why: 2026-11-22T10:00, 10:00, -2h, yesterday", metavar="TIME"),
    value("between", help="-between A B: only that time", metavar="A B"),
    value("from", help="only from then on", metavar="TIME"),
    value("to", help="only until then", metavar="TIME"),
    value("user", help="why the share of this submitter is what it is", metavar="USER"),
    value("name", help="the schedd, where several have a job of that id", metavar="SCHEDD"),
    flag("json", help="all of it as JSON"),
    *COMMON,
)
#: States in which a job waits.
_WAITING: Final = ("idle", "starting", "held")
#: Rows of a table without -json.
_MOST_HOURS: Final = 200


def run(command: str, argv: list[str]) -> int:
    parsed = parse(_spread(argv), OPTIONS)
    if parsed.has("help"):
        text = "Why a job waited, hour by hour; or why a user's share of the pool is what it is."
        say(usage(command, "JOB | -user USER", text, OPTIONS))
        return 0
    now = time.time()
    start, end = interval_of(parsed.one("from"), parsed.one("to"), now)
    if parsed.has("user"):
        if parsed.arguments or parsed.has("at"):
            raise UsageError("-user wants neither a job nor -at; -between A B says which time is meant")
        with Client(parsed.one("pool") or None) as client:
            found = client.journal(f"users/{parsed.one('user')}", **_interval(start, end))
        _tell(parsed, found, _user(found))
        return 0
    if len(parsed.arguments) != 1 or not is_id(parsed.arguments[0]):
        raise UsageError("name one job, such as 12.0, or a user with -user")
    at = moment_of(parsed.one("at"), now) if parsed.has("at") else 0.0
    if at > now:
        raise UsageError(f"-at {parsed.one('at')} is in the future: the journal knows the past")
    query = {"at": at, "schedd": parsed.one("name"), **_interval(start, end)}
    with Client(parsed.one("pool") or None) as client:
        cluster, _, proc = parsed.arguments[0].partition(".")
        try:
            found = client.journal(f"jobs/{parsed.arguments[0]}", **{key: one for key, one in query.items() if one})
        except ClientError:
            later = [ad for ad in client.factories(cluster, schedd=parsed.one("name")) if not is_given(ad, proc)]
            if not later:
                raise
            for ad in later:
                say(story(ad))
            return 0
    _tell(parsed, found, _moment(found, at) if at else _job(found))
    return 0


def _spread(argv: Sequence[str]) -> list[str]:
    """`-between A B` as -from and -to: a time may begin with a dash. Raises UsageError."""
    words: list[str] = []
    rest = iter(argv)
    for word in rest:
        if word in ("-between", "--between"):
            both = [next(rest, ""), next(rest, "")]
            if not all(both):
                raise UsageError("-between wants two times: -between A B")
            words += ["-from", both[0], "-to", both[1]]
        else:
            words.append(word)
    return words


def _interval(start: float, end: float) -> dict[str, float]:
    return {name: one for name, one in (("from", start), ("to", end)) if one}


def _tell(parsed: Parsed, found: Mapping[str, Any], lines: Iterable[str]) -> None:
    if parsed.has("json"):
        say(json.dumps(found, indent=1))
        return
    output.tell(lines)


# --- jobs


def _head(found: Mapping[str, Any]) -> str:
    return f"Job {found['job_id']} of {found['submitter'] or found['owner']} at {found['schedd']}: {found['state']}"


def _job(found: Mapping[str, Any]) -> Iterator[str]:
    yield _head(found)
    since = found.get("recorded_since")
    if since and not any(event["type"] == "job.submitted" for event in found["events"]) and found["spans"]:
        yield f"  (the journal begins at {shown(since)}; what was before is not known)"
    yield ""
    yield from _timeline(found)
    waited = found["waited"]
    if not waited:
        yield ""
        yield "It did not wait in that time."
        return
    total = sum(round(seconds * 1000) for seconds in waited.values()) / 1000
    words = found["causes"]
    yield ""
    yield f"It waited {lasting(total)} in all:"
    for code, seconds in waited.items():
        yield f"  {lasting(seconds):>12}  {100 * seconds / total if total else 0:5.1f} %  {words.get(code, code)}"
    yield from _hours(found)


def _timeline(found: Mapping[str, Any]) -> Iterator[str]:
    """Events, and what it waited for between them, in the order of time."""
    lines = [(event["at"], 0, event["text"]) for event in found["events"]]
    for span in found["spans"]:
        if span["state"] in _WAITING:
            for cause in span["causes"]:
                text = f"    waited {lasting(cause['seconds'])}: {cause['text']}"
                lines.append((span["start"], 1, text))
    # Milliseconds in spans, microseconds in events: what begins with an event comes after it.
    for at, _, text in sorted(lines, key=lambda line: (round(line[0] * 1000), line[1])):
        yield f"{shown(at)}  {text}" if not text.startswith("    ") else f"{'':19}{text}"


def _hours(found: Mapping[str, Any]) -> Iterator[str]:
    """Seconds by hour and cause."""
    hours = found["hours"]
    codes = list(found["waited"])
    if not hours or not codes:
        return
    yield ""
    rows = []
    for hour in hours[:_MOST_HOURS]:
        seconds = hour["seconds"]
        waited = sum(round(seconds.get(code, 0.0) * 1000) for code in codes) / 1000
        numbers = (*(seconds.get(code, 0.0) for code in codes), waited, seconds.get("running", 0.0))
        rows.append((shown(hour["start"]), *(f"{number:.3f}" for number in numbers)))
    yield from output.lines(
        ("Seconds, hour by hour", *codes, "waited", "ran"),
        rows,
        (False, *[True] * (len(codes) + 2)),
        (22, *[9] * len(codes), 10, 10),
        screen=output.terminal_width(),
        spare=codes[::-1],  # what it waited for longest comes first
    )
    if len(hours) > _MOST_HOURS:
        yield f"... {len(hours) - _MOST_HOURS} more hours: -json, or -between A B"


def _moment(found: Mapping[str, Any], at: float) -> Iterator[str]:
    yield _head(found)
    moment = found.get("moment")
    if moment is None:
        yield f"At {shown(at)} it was not in the queue, as far as the journal knows."
        return
    where = f" on {moment['slot']}" if moment["slot"] else ""
    lasted = f"from {shown(moment['since'])} to {shown(moment['until'])}"
    if moment["code"]:
        yield f"At {shown(at)} it was {moment['state']}{where}: {moment['text']}"
        yield f"  cause: {moment['code']}, {lasted} ({lasting(moment['until'] - moment['since'])})"
    else:
        yield f"At {shown(at)} it was {moment['state']}{where}, {lasted}"
    for code, number in moment["slots"].items():
        yield f"  {number:>8} {'slot' if number == 1 else 'slots'}: {code}"


# --- users


def _user(found: Mapping[str, Any]) -> Iterator[str]:
    yield f"Submitter {found['submitter']}"
    yield ""
    for line in found["text"]:
        begins = line if line.startswith(found["submitter"]) else f"{line[0].upper()}{line[1:]}"
        yield f"  {begins}" if begins.endswith(":") else f"  {begins}."
    points = [point for point in found["points"] if point.get("priority") is not None]
    if len(points) > 1:
        yield ""
        yield f"  {'':<19} {'EUP':>12} {'in use':>10} {'entitled':>10} {'requested':>10}"
        for point in _some(points, 20):
            yield (
                f"  {shown(point['at'])} {point['effective_priority']:>12.2f} {point['weighted_in_use']:>10.6g} "
                f"{point['entitled']:>10.6g} {point['requested']:>10.6g}"
            )


def _some(points: Sequence[Any], most: int) -> list[Any]:
    if len(points) <= most:
        return list(points)
    return [points[round(number * (len(points) - 1) / (most - 1))] for number in range(most)]
