"""`roost qedit` and `roost prio`: change attributes of queued jobs. Who may change what, the schedd says."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping
from typing import Final

from roost.cli.job_selection import is_id, one_of, owned_by
from roost.cli.options import COMMON, Option, Parsed, flag, parse, usage, value
from roost.cli.output import constraints, expression, say
from roost.client import Client
from roost.errors import ClientError, UsageError

_WHICH: Final[tuple[Option, ...]] = (
    value("constraint", help="all jobs for which this expression is true", metavar="EXPR"),
    value("owner", help="all jobs of this owner", metavar="NAME"),
)
_END: Final[tuple[Option, ...]] = (
    value("name", "n", help="only jobs of this schedd", metavar="SCHEDD"),
    flag("json", help="outcome of each job as JSON"),
    *COMMON,
)
QEDIT: Final[tuple[Option, ...]] = (
    *_WHICH,
    value("edits", help="lines ATTRIBUTE = EXPRESSION of a file; -: standard input", metavar="FILE"),
    *_END,
)
PRIO: Final[tuple[Option, ...]] = (
    *_WHICH,
    value("p", "prio", help="the priority; without, +N or -N before the jobs: so much more or less", metavar="NUMBER"),
    flag("all", "a", help="all jobs that you may act on"),
    *_END,
)
_ATTRIBUTE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_PAIR: Final = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)\s*=(?![=?!])\s*(.*)", re.DOTALL)
_RELATIVE: Final = re.compile(r"[+-]\d{1,10}")


def run(command: str, argv: list[str]) -> int:
    return _prio(command, argv) if command == "prio" else _qedit(command, argv)


def _qedit(command: str, argv: list[str]) -> int:
    parsed = parse(argv, QEDIT)
    if parsed.has("help"):
        text = (
            "Change attributes of jobs in the queue. JOB is a cluster (12), a job (12.3) or an owner's name;\n"
            "EXPRESSION is a ClassAd expression: a text keeps its quotes, '\"urgent\"'. What the schedd keeps itself\n"
            "(Owner, JobStatus, ...) and what the pool lets nobody change (IMMUTABLE_JOB_ATTRS) is refused."
        )
        say(usage(command, "JOB... ATTRIBUTE EXPRESSION... | ATTRIBUTE=EXPRESSION...", text, QEDIT))
        return 0
    ids, words = _jobs(parsed)
    edits = pairs(words)
    if parsed.has("edits"):
        edits |= _file(parsed.one("edits"))
    if not edits:
        raise UsageError("change what? roost qedit 12.3 ATTRIBUTE EXPRESSION")
    for name, text in edits.items():
        expression(text, name)
    with Client(parsed.one("pool") or None) as client:
        outcome = _edit(client, ids, edits, parsed)
    if parsed.has("json"):
        say(json.dumps(outcome, indent=2))
        return _status(outcome)
    done = sum(result == "done" for result in outcome.values())
    for name in edits if done else ():
        say(f'Set attribute "{name}" for {done} matching {"job" if done == 1 else "jobs"}.')
    return _tell(outcome)


def _prio(command: str, argv: list[str]) -> int:
    parsed = parse(argv, PRIO)
    if parsed.has("help"):
        text = (
            "Change the priority (JobPrio) of jobs among those of the same user: the highest runs first. JOB is a\n"
            "cluster (12), a job (12.3) or an owner's name. Users' own priorities: roost userprio."
        )
        say(usage(command, "[+N|-N] JOB...", text, PRIO))
        return 0
    words = parsed.arguments
    wanted = parsed.one("p")
    relative = not wanted and bool(words) and _RELATIVE.fullmatch(words[0]) is not None
    if relative:
        wanted, words = words[0], words[1:]
    if not wanted:
        raise UsageError("which priority? roost prio -p 10 12.3, or roost prio +5 12.3")
    if not re.fullmatch(r"[+-]?\d{1,10}", wanted):
        raise UsageError(f"-p {wanted[:80]!r}: a priority is a whole number")
    ids = [word for word in words if is_id(word)]
    owners = [*parsed.all("owner"), *(word for word in words if not is_id(word))]
    parsed.values["owner"] = owners
    if not (ids or owners or parsed.has("constraint") or parsed.has("all")):
        raise UsageError("of which jobs? name them (12 or 12.3), an owner, -constraint EXPR or -all")
    outcome: dict[str, str] = {}
    with Client(parsed.one("pool") or None) as client:
        if not relative:
            outcome = _edit(client, ids, {"JobPrio": str(int(wanted))}, parsed)
        else:
            for priority, jobs in _changed(client, ids, int(wanted), parsed).items():
                outcome |= client.edit(jobs, {"JobPrio": str(priority)}, schedd=parsed.one("name"))
    if parsed.has("json"):
        say(json.dumps(outcome, indent=2))
        return _status(outcome)
    done = sum(result == "done" for result in outcome.values())
    if done:
        say(f"Changed the priority of {done} {'job' if done == 1 else 'jobs'}.")
    return _tell(outcome)


def _changed(client: Client, ids: list[str], by: int, parsed: Parsed) -> Mapping[int, list[str]]:
    """The new priority of each job that is meant -> those jobs."""
    found: dict[int, list[str]] = {}
    terms = [term for term in (one_of(ids), _constraint(parsed)) if term]
    needs = ("ClusterId", "ProcId", "JobPrio")
    for ad in client.jobs(constraint=" && ".join(terms), projection=needs, schedd=parsed.one("name")):
        priority = ad.eval("JobPrio")
        new = (int(priority) if isinstance(priority, int) else 0) + by
        found.setdefault(new, []).append(f"{ad.eval('ClusterId')}.{ad.eval('ProcId')}")
    return found


def _jobs(parsed: Parsed) -> tuple[list[str], list[str]]:
    """The ids at the beginning of the words, and the words behind them. An owner there goes to -owner."""
    words = list(parsed.arguments)
    ids = []
    while words and is_id(words[0]):
        ids.append(words.pop(0))
    named = bool(ids) or parsed.has("constraint") or parsed.has("owner")
    if not named:
        if not words or _PAIR.fullmatch(words[0]):
            raise UsageError("of which jobs? name them (12 or 12.3), an owner, or -constraint EXPR")
        parsed.values["owner"] = [words.pop(0)]
    return ids, words


def pairs(words: list[str]) -> dict[str, str]:
    """ATTRIBUTE EXPRESSION, or ATTRIBUTE=EXPRESSION as one word, as often as they come. Raises UsageError."""
    found: dict[str, str] = {}
    left = list(words)
    while left:
        word = left.pop(0)
        if pair := _PAIR.fullmatch(word):
            name, text = pair.group(1), pair.group(2)
        else:
            name, text = word, left.pop(0) if left else ""
        if not _ATTRIBUTE.fullmatch(name):
            raise UsageError(f"{name[:80]!r} is no name of an attribute: letters, digits and _")
        if not text.strip():
            raise UsageError(f"{name}: which value? roost qedit JOB {name} EXPRESSION")
        found[name] = text
    return found


def _file(file: str) -> dict[str, str]:
    try:
        if file == "-":
            lines = sys.stdin.read().splitlines()
        else:
            with open(file, encoding="utf-8", errors="surrogateescape") as source:
                lines = source.read().splitlines()
    except OSError as error:
        raise UsageError(f"{file}: {error.strerror}") from None
    found: dict[str, str] = {}
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        pair = _PAIR.fullmatch(line.strip())
        if pair is None:
            raise UsageError(f"{file}, line {number}: want ATTRIBUTE = EXPRESSION")
        found[pair.group(1)] = pair.group(2)
    return found


def _constraint(parsed: Parsed) -> str:
    terms = constraints(parsed)
    if parsed.all("owner"):
        terms.append(owned_by(parsed.all("owner")))
    return " && ".join(terms)


def _edit(client: Client, ids: list[str], edits: Mapping[str, str], parsed: Parsed) -> dict[str, str]:
    constraint = _constraint(parsed) or ("true" if parsed.has("all") else "")
    if ids and constraint:
        raise UsageError("name jobs either by id or by owner, -constraint or -all, not both")
    return client.edit(ids, edits, constraint=constraint, schedd=parsed.one("name"))


def _status(outcome: Mapping[str, str]) -> int:
    return 0 if outcome and all(result == "done" for result in outcome.values()) else 1


def _tell(outcome: Mapping[str, str]) -> int:
    from roost.cli.act import said

    if not outcome:
        raise ClientError("no jobs match", "not-found")
    for job, result in outcome.items():
        if result != "done":
            sys.stderr.write(f"roost: job {job}: {said(result)}\n")
    return _status(outcome)
