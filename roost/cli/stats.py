"""`roost stats`: how machines and submitters stood, from the history that a view server keeps. Options and columns are
condor_stats's."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from roost.cli.options import COMMON, Option, Parsed, flag, parse, usage, value
from roost.cli.output import lines, say
from roost.cli.times import moment_of
from roost.client import Client
from roost.errors import UsageError

_DAY_S: Final = 86400.0
OPTIONS: tuple[Option, ...] = (
    value("resourcequery", help="a slot: seconds since its keyboard was touched, load, state", metavar="SLOT"),
    flag("resourcelist", help="the slots that something is known of"),
    value("resgroupquery", help="slots of a platform by state, or of all of them", metavar="ARCH/OPSYS|Total"),
    flag("resgrouplist", help="the platforms"),
    value("userquery", help="running and idle jobs of a user at one schedd", metavar="USER/SCHEDD"),
    flag("userlist", help="users, each with a schedd"),
    value("usergroupquery", help="running and idle jobs of a user, or of everybody", metavar="USER|Total"),
    flag("usergrouplist", help="users"),
    flag("lastday", help="the last 24 hours; so it is without another time"),
    flag("lastweek", help="the last 7 days"),
    flag("lastmonth", help="the last 30 days"),
    value("lasthours", help="the last N hours", metavar="N"),
    value("from", help="from then on: -from M D Y, or a time as `explain` takes it", metavar="M D Y"),
    value("to", help="until then", metavar="M D Y"),
    flag("orgformat", help="seconds since 1970 in place of per cent of the time that is asked about"),
    value("f", help="write to a file", metavar="FILE"),
    value("name", help="the collector, where several keep a history", metavar="COLLECTOR"),
    flag("json", help="columns and points as JSON"),
    *COMMON,
)
#: Option -> kind of what it asks about. Of several the last counts.
_QUERIES: Final = {
    "resourcequery": "resources",
    "resourcelist": "resources",
    "resgroupquery": "platforms",
    "resgrouplist": "platforms",
    "userquery": "submitters",
    "userlist": "submitters",
    "usergroupquery": "users",
    "usergrouplist": "users",
}
#: How condor_stats spells a state that is none of its words in capitals.
_SPELT: Final = {"Preempting": "PRE-EMPTING"}


def run(command: str, argv: list[str]) -> int:
    parsed = parse(_dated(argv), OPTIONS)
    if parsed.has("help"):
        text = (
            "How machines and submitters stood in the past; without a QUERY the whole pool, summed up. A collector\n"
            "with KEEP_POOL_HISTORY knows."
        )
        say(usage(command, "[TIME] [QUERY]", text, OPTIONS))
        return 0
    if parsed.arguments:
        raise UsageError(f"{parsed.arguments[0]!r} belongs to no option; see `roost {command} -help`")
    queries = [name for name, _, _ in parsed.order if name in _QUERIES]
    if not queries:
        return _summary(parsed)
    kind, query = _QUERIES[queries[-1]], queries[-1]
    start, end = _time(parsed, time.time())
    asked = {"from": start, "to": end, "name": parsed.one(query), "collector": parsed.one("name")}
    with Client(parsed.one("pool") or None) as client:
        found = client.pool_history(kind, **{key: one for key, one in asked.items() if one})
    if parsed.has("json"):
        shown: Sequence[str] = [json.dumps(found, indent=1)]
    elif query.endswith("list"):
        shown = list(found["names"]) or ["No Data."]
    else:
        shown = list(_points(found, per_cent=not parsed.has("orgformat"))) or ["No Data."]
    _write(parsed.one("f"), shown)
    return 0


def _summary(parsed: Parsed) -> int:
    """Without a query: slots by state and jobs of the whole pool, at the end of the time, the least, the mean, the
    most."""
    start, end = _time(parsed, time.time())
    asked = {"from": start, "to": end, "name": "Total", "collector": parsed.one("name")}
    given = {key: one for key, one in asked.items() if one}
    with Client(parsed.one("pool") or None) as client:
        found = {kind: client.pool_history(kind, **given) for kind in ("platforms", "users")}
    if parsed.has("json"):
        _write(parsed.one("f"), [json.dumps(found, indent=1)])
        return 0
    rows = [row for kind, what in (("platforms", "slots"), ("users", "jobs")) for row in _sums(found[kind], what)]
    told = (
        lines(("WHAT", "LAST", "LEAST", "MEAN", "MOST"), rows, (False, True, True, True, True))
        if rows
        else ["No Data."]
    )
    _write(parsed.one("f"), told)
    return 0


def _sums(found: Mapping[str, Any], what: str) -> Iterator[tuple[str, ...]]:
    """A row for each column but the time, of columns that are not 0 all the time."""
    for place, name in enumerate(found["columns"], 1):
        values = [float(point[place]) for point in found["points"]]
        if any(values):
            numbers = (values[-1], min(values), sum(values) / len(values), max(values))
            yield (f"{what} {name.lower().removesuffix(what)}", *(f"{number:.4g}" for number in numbers))


def _points(found: Mapping[str, Any], *, per_cent: bool) -> Iterator[str]:
    """Columns with tabs between them; the first is the time."""
    start, end = found["from"], found["to"]
    for at, *row in found["points"]:
        when = f"{100 * (at - start) / (end - start or 1):.6f}" if per_cent else str(round(at))
        if found["kind"] == "resources":
            idle, load, state = row
            yield f"{when}\t{idle}\t{load:.6f}\t{_SPELT.get(state, state.upper())}"
        else:
            yield "\t".join((when, *(f"{number:g}" if number < 1e6 else str(number) for number in row)))


def _write(path: str, lines: Sequence[str]) -> None:
    if not path:
        for line in lines:
            say(line)
        return
    try:
        Path(path).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    except OSError as error:
        raise UsageError(f"-f {path}: {error.strerror}") from error


def _time(parsed: Parsed, now: float) -> tuple[float, float]:
    """From when to when. Raises UsageError."""
    start, end = now - _DAY_S, now
    for name, _, values in parsed.order:
        if name in ("lastday", "lastweek", "lastmonth"):
            start = now - {"lastday": 1, "lastweek": 7, "lastmonth": 30}[name] * _DAY_S
        elif name == "lasthours":
            if not values[0].isdigit() or not 0 < int(values[0]) <= 1_000_000:
                raise UsageError(f"-lasthours wants a number of hours, not {values[0]!r}")
            start = now - int(values[0]) * 3600.0
        elif name == "from":
            start = moment_of(values[0], now, "-from")
        elif name == "to":
            end = moment_of(values[0], now, "-to")
    if start < 0:
        raise UsageError("the time begins before 1970")
    if start > now or end > now:
        raise UsageError("the time ends, or begins, in the future: the history knows the past")
    if start >= end:
        raise UsageError("the time ends before it begins")
    return start, end


def _dated(argv: Sequence[str]) -> list[str]:
    """`-from M D Y` as one word, as a date. Raises UsageError."""
    words: list[str] = []
    at = 0
    while at < len(argv):
        word = argv[at]
        three = argv[at + 1 : at + 4]
        if word in ("-from", "--from", "-to", "--to") and len(three) == 3 and all(one.isdigit() for one in three):
            month, day, year = (int(one) for one in three)
            year += 0 if year > 99 else 2000 if year < 50 else 1900
            try:
                words += [word, datetime(year, month, day).date().isoformat()]
            except ValueError as error:
                raise UsageError(f"{word} wants month, day and year, not {' '.join(three)}: {error}") from error
            at += 4
            continue
        words.append(word)
        at += 1
    return words
