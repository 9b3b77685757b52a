"""`roost rm | hold | release | suspend | continue | vacate-job`: act on jobs by id, owner or constraint."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Final

from roost.cli.job_selection import owned_by
from roost.cli.options import COMMON, Option, flag, parse, usage, value
from roost.cli.output import constraints, say
from roost.cli.paint import PLAIN, Paint
from roost.client import Client
from roost.errors import UsageError

_SUMMARY = {
    "rm": "Remove jobs. JOB is a cluster (12), a job (12.3) or an owner's name.",
    "hold": "Put jobs on hold; running ones are stopped.",
    "release": "Release held jobs, so that they run again.",
    "suspend": "Have running jobs stand still where they are, until they are continued. They keep their slots.",
    "continue": "Let jobs go on that were suspended by `roost suspend`.",
    "vacate-job": "End the run of jobs; they go back to idle and start again.",
}
_DONE = {
    "rm": "marked for removal",
    "hold": "held",
    "release": "released",
    "suspend": "suspended",
    "continue": "continued",
    "vacate-job": "vacated",
}

#: What became of jobs of which nothing is wrong.
_GOOD: Final = ("done", "already")
#: So many jobs have a line each.
_FEW: Final = 20

_WHICH: tuple[Option, ...] = (
    value("constraint", help="all jobs for which this expression is true", metavar="EXPR"),
    flag("all", "a", help="all jobs that you may act on"),
    value("reason", help="kept with the job and its events", metavar="TEXT"),
    value("name", help="only jobs of this schedd", metavar="SCHEDD"),
    flag("verbose", "v", help="a line for each job, however many they are"),
    flag("json", help="outcome of each job as JSON"),
    *COMMON,
)
_OWN: dict[str, tuple[Option, ...]] = {
    "rm": (flag("forcex", help="drop a job that can not be removed in the ordinary way"),),
    "vacate-job": (flag("fast", help="kill at once instead of asking first"),),
}
OPTIONS: dict[str, tuple[Option, ...]] = {command: (*_OWN.get(command, ()), *_WHICH) for command in _SUMMARY}


def run(command: str, argv: list[str]) -> int:
    options = OPTIONS[command]
    parsed = parse(argv, options)
    if parsed.has("help"):
        say(usage(command, "JOB...", _SUMMARY[command], options))
        return 0
    ids: list[str] = []
    owners: list[str] = []
    for word in parsed.arguments:
        (ids if word.replace(".", "", 1).isdigit() else owners).append(word)
    terms = constraints(parsed)
    if owners:
        terms.append(owned_by(owners))
    if parsed.has("all"):
        terms.append("true")
    if not ids and not terms:
        raise UsageError(f"{command} what? name jobs (12 or 12.3), an owner, -constraint EXPR or -all")
    if ids and terms:
        raise UsageError("name jobs either by id or by owner, -constraint or -all, not both")
    action = {"rm": "remove-force" if parsed.has("forcex") else "remove", "vacate-job": "vacate"}.get(command, command)
    if command == "vacate-job" and parsed.has("fast"):
        action = "vacate-fast"
    with Client(parsed.one("pool") or None) as client:
        outcome = client.act(
            action, ids, constraint=" && ".join(terms), reason=parsed.one("reason"), schedd=parsed.one("name")
        )
    if parsed.has("json"):
        say(json.dumps(outcome, indent=2))
    elif not outcome:
        say("No jobs match.")
    else:
        for line in told(command, outcome, each=parsed.has("verbose"), paint=Paint.of_terminal()):
            say(line)
    failed = [r for r in outcome.values() if r not in _GOOD]
    return 1 if failed or not outcome else 0


def told(command: str, outcome: Mapping[str, str], *, each: bool, paint: Paint = PLAIN) -> Iterator[str]:
    """A line for each of a few jobs, or of all where that is wanted; else one for all that went alike."""
    if each or len(outcome) <= _FEW:
        for job, result in outcome.items():
            line = f"Job {job} {_DONE[command]}" if result == "done" else f"Job {job}: {said(result)}"
            yield line if result in _GOOD else paint.bad(line)
        return
    by_result: dict[str, list[str]] = {}
    for job, result in outcome.items():
        by_result.setdefault(result, []).append(job)
    for result, jobs in sorted(by_result.items(), key=lambda one: (one[0] != "done", -len(one[1]))):
        clusters = list(dict.fromkeys(job.partition(".")[0] for job in jobs))
        where = f"cluster {clusters[0]}" if len(clusters) == 1 else f"{len(clusters)} clusters"
        number = f"{len(jobs)} job{'s' if len(jobs) > 1 else ''} of {where}"
        more = f"{said(result)} ({', '.join(jobs[:3])}{', ...' if len(jobs) > 3 else ''})"
        line = f"{number} {_DONE[command]}" if result == "done" else f"{number}: {more}"
        yield line if result in _GOOD else paint.bad(line)


def said(result: str) -> str:
    return {
        "not-found": "not in the queue; `roost history` tells of jobs that left it",
        "denied": "permission denied: it belongs to somebody else",
        "already": "already so",
        "wrong-state": "not in a state for that",
    }.get(result, result)
