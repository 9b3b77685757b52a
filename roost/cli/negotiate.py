"""`roost negotiate`: one negotiation cycle on paper. Nothing happens in the pool."""

from __future__ import annotations

import json
import math
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from difflib import get_close_matches
from typing import Any, Final

from roost.cli import output
from roost.cli.options import COMMON, Option, Parsed, flag, parse, usage, value
from roost.cli.output import say
from roost.cli.priority_table import from_one
from roost.client import Client
from roost.errors import UsageError
from roost.personal_config import tool_config
from roost.whatif import Answer, BadAd, Placed, Standing, moment_of, what_if
from shared.classad import ClassAd
from shared.config import Config, load_config
from shared.config.knobs import NegotiatorSettings
from shared.config.knobs.base import knobs_of
from shared.config.macros import references

OPTIONS: tuple[Option, ...] = (
    value("slotads", "machineads", help="slots of this file (as -long or -json writes them)", metavar="FILE"),
    value("jobads", help="jobs of this file; those that are idle ask", metavar="FILE"),
    value("userprios", help="accounting ads of this file (as roost userprio -long writes them)", metavar="FILE"),
    value("config", help="configuration file (else that of this machine); may be given again", metavar="FILE"),
    value("set", help="this knob has this value; may be given again", metavar="KNOB=VALUE"),
    value("now", help="the time: seconds since 1970, or 2026-11-21T22:15:00", metavar="TIME"),
    flag("slots", help="also which job gets which slot, and whom that preempts"),
    value("negotiator", help="whose priorities, where there are several", metavar="NEGOTIATOR"),
    value("limit", help="at most so many lines on jobs that get nothing (20)", metavar="N"),
    flag("json", help="everything as JSON"),
    *COMMON,
)
_SUMMARY: Final = (
    "A negotiation cycle on paper: who would get what. What no file gives comes from the pool; nothing happens there.\n"
    "Without -userprios everybody in files is a newcomer."
)
_LIMIT: Final = 20
#: Of other daemons, but part of a cycle.
_SCHEDDS: Final = ("SIGNIFICANT_ATTRIBUTES",)


def run(command: str, argv: list[str]) -> int:
    parsed = parse(argv, OPTIONS)
    if parsed.has("help"):
        say(usage(command, "", _SUMMARY, OPTIONS))
        return 0
    if parsed.arguments:
        raise UsageError(f"{parsed.arguments[0]!r} does not belong here; see roost negotiate -help")
    limit = parsed.integer("limit", _LIMIT)
    if limit < 0:
        raise UsageError(f"-limit wants 0 or more, not {limit}")
    given = _time(parsed.one("now")) if parsed.has("now") else None
    config = _config(parsed)
    for problem in config.warnings:
        sys.stderr.write(f"WARNING: {problem}\n")
    pool = _ads(parsed)
    now = given if given is not None else pool.moment()
    try:
        answer = what_if(pool.slots.ads, pool.jobs.ads, pool.accounting.ads, config, now)
    except BadAd as error:
        source = {"slot": pool.slots, "job": pool.jobs, "accounting": pool.accounting}[error.kind]
        raise UsageError(f"{source.place(error.number)}: {error.reason}") from error
    for text in answer.problems:
        sys.stderr.write(f"WARNING: {text}\n")
    if parsed.has("json"):
        say(json.dumps(to_map(answer, config, parsed.all("set")), indent=1))
        return 0
    for line in _lines(answer, config, parsed, limit):
        say(line)
    return 0


# --- what is asked about


@dataclass(frozen=True, slots=True)
class _Source:
    """Ads, and where the one of a number (from 0) stands."""

    ads: Sequence[ClassAd]
    place: Callable[[int], str]


@dataclass(frozen=True, slots=True)
class _Pool:
    slots: _Source
    jobs: _Source
    accounting: _Source
    live: bool

    def moment(self) -> float:
        """Now, or when the files were written: equal files give equal answers."""
        told = 0.0 if self.live else moment_of(self.slots.ads, self.jobs.ads, self.accounting.ads)
        return told or time.time()


def _ads(parsed: Parsed) -> _Pool:
    """From files, and from the pool what no file is given for. Files of slots and jobs need no pool."""
    files = {name: _file(parsed.one(name)) for name in ("slotads", "jobads", "userprios") if parsed.has(name)}
    slots, jobs, accounting = files.get("slotads"), files.get("jobads"), files.get("userprios")
    live = slots is None or jobs is None
    if live:
        with Client(parsed.one("pool") or None) as client:
            if slots is None:
                slots = _told("slot", client.ads("Machine"))
            if jobs is None:
                jobs = _told("job", client.jobs(constraint="JobStatus == 1"))
            if accounting is None:
                accounting = _told("accounting", client.priorities(parsed.one("negotiator")))
    elif parsed.has("pool") or parsed.has("negotiator"):
        option = "pool" if parsed.has("pool") else "negotiator"
        raise UsageError(f"-{option} has no effect with both -slotads and -jobads; leave it out")
    assert slots is not None
    assert jobs is not None
    return _Pool(slots, jobs, accounting or _told("accounting", ()), live)


def _told(kind: str, ads: Iterable[ClassAd]) -> _Source:
    return _Source(list(ads), lambda number: f"the pool's {kind} ad number {number + 1}")


def _file(name: str) -> _Source:
    """Of one ad with numbered attributes, as HTCondor writes accounting ads, all those it stands for."""
    ads, place = output.ads_with_places(name)
    found = [(one, number) for number, ad in enumerate(ads) for one in from_one(ad)]
    return _Source([ad for ad, _ in found], lambda number: place(found[number][1]))


def _time(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        try:
            seconds = datetime.fromisoformat(text).timestamp()
        except (ValueError, OverflowError, OSError):
            seconds = math.nan
    if not 0.0 < seconds < 1e11:
        raise UsageError(f"-now {text}: want seconds since 1970, or a time such as 2026-11-21T22:15:00")
    return seconds


def _config(parsed: Parsed) -> Config:
    """As the negotiator would read it. Raises UsageError, ConfigError."""
    overrides = overrides_of(parsed)
    files = parsed.all("config")
    if files or parsed.has("pool") or (parsed.has("slotads") and parsed.has("jobads")):
        config = load_config(files or None, subsystem="NEGOTIATOR", overrides=overrides)
    else:
        config = tool_config("NEGOTIATOR", overrides=overrides)
    for name in overrides:
        check_knob(name, config)
    return config


def overrides_of(parsed: Parsed) -> dict[str, str]:
    """What -set says. Raises UsageError."""
    overrides: dict[str, str] = {}
    for text in parsed.all("set"):
        name, equals, told = text.partition("=")
        if not equals or not re.fullmatch(r"[A-Za-z0-9_.]+", name.strip()):
            raise UsageError(f"-set {text}: want KNOB=VALUE, such as -set GROUP_QUOTA_group_physics=20")
        overrides[name.strip()] = told.strip()
    return overrides


def check_knob(name: str, config: Config) -> None:
    """Whether it matters to a cycle: a knob of the negotiator, or a macro that the configuration uses."""
    plain = name.lower().removeprefix("negotiator.")
    known = [*(knob.name for knob in knobs_of(NegotiatorSettings)), *_SCHEDDS]
    for one in known:
        if re.fullmatch("(.+)".join(map(re.escape, re.split(r"<[A-Za-z]+>", one.lower()))), plain):
            return
    if any(used.name.lower() == plain for macro in config.macros() for used in references(macro.text)):
        return
    near = get_close_matches(plain.upper(), known, 1)
    hint = f"did you mean {near[0]}?" if near else "docs/knobs.md lists the negotiator's"
    raise UsageError(f"-set {name}: a negotiation cycle looks at no knob of that name; {hint}")


# --- for scripts


def to_map(answer: Answer, config: Config, changes: Sequence[str]) -> dict[str, Any]:
    """All of an answer as plain data."""
    result = answer.result
    return {
        "now": answer.now,
        "config": {"files": list(config.files), "set": list(changes), "problems": list(answer.problems)},
        "slots": {"total": answer.slots, "offered": result.offered, "weight": answer.weight},
        "jobs": {"asked": sum(s.asked for s in answer.standings), "matched": len(answer.placed)},
        "spins": result.spins,
        "groups": [
            {
                "group": plan.name,
                "parent": plan.parent,
                "config_quota": plan.config_quota,
                "static": plan.static,
                "quota": _finite(plan.quota),
                "subtree_quota": _finite(plan.subtree_quota),
                "requested": plan.requested,
                "allocated": _finite(plan.allocated),
                "in_use": plan.in_use,
                "given": plan.given,
                "sort_key": plan.sort_key,
                "surplus": plan.surplus_policy,
            }
            for plan in answer.groups
        ],
        "submitters": [
            {
                "submitter": one.name,
                "group": one.group,
                "priority": one.priority,
                "factor": one.factor,
                "in_use": one.in_use,
                "asked": one.asked,
                "matched": one.matched,
                "given": one.given,
                "lost": one.lost,
                "share": one.share,
                "limit": _finite(one.limit),
            }
            for one in answer.standings
        ],
        "matches": [
            {
                "submitter": one.submitter,
                "schedd": one.schedd,
                "job": one.job,
                "slot": one.slot,
                "weight": one.weight,
                "reason": one.reason,
                "preempts": [{"slot": slot, "user": user} for slot, user in one.preempts],
            }
            for one in answer.placed
        ],
        "rejections": [
            {
                "submitter": one.submitter,
                "schedd": one.schedd,
                "job": one.job,
                "jobs": one.count,
                "code": one.code,
                "reason": one.reason,
                "counts": dict(one.counts),
                "details": dict(one.details),
            }
            for one in answer.unplaced
        ],
    }


def _finite(number: float) -> float | None:
    """None for what has no bound: JSON knows no infinity."""
    return number if math.isfinite(number) else None


# --- for people


def _lines(answer: Answer, config: Config, parsed: Parsed, limit: int) -> Iterator[str]:
    asked = sum(one.asked for one in answer.standings)
    when = datetime.fromtimestamp(answer.now).isoformat(" ", "seconds")
    yield f"{_many(asked, 'idle job')} and {_many(answer.slots, 'slot')}, {answer.result.offered} on offer, at {when}"
    source = ", ".join(config.files) or "no file"
    changed = "".join(f"\n  with {text}" for text in parsed.all("set"))
    yield f"Configuration: {source}{changed}"
    yield ""
    yield from _standing_lines(answer)
    schedds = {one.schedd for one in answer.placed} | {one.schedd for one in answer.unplaced}
    several = len(schedds) > 1
    if parsed.has("slots") and answer.placed:
        yield ""
        yield from placed_lines(answer.placed, schedds=several)
    if answer.unplaced and limit:
        yield ""
        yield from _unplaced_lines(answer, several, limit)


def _many(number: int, what: str) -> str:
    return f"{number} {what}" + ("" if number == 1 else "s")


def _standing_lines(answer: Answer) -> list[str]:
    """Submitters below their groups, and the sums."""
    members: dict[str, list[Standing]] = {}
    for one in answer.standings:
        members.setdefault(one.group, []).append(one)
    rows: list[tuple[str, ...]] = []
    for plan in answer.groups:
        if answer.has_groups:
            quota = _number(plan.quota) if math.isfinite(plan.quota) else ""
            rows.append((plan.name, quota, "", *_sums(members.get(plan.group, ())), ""))
        for one in members.get(plan.group, ()):
            indent = "  " if answer.has_groups else ""
            share = f"{one.share:.1%}" if one.asked else ""
            rows.append((indent + _clean(one.name), "", f"{one.priority:.2f}", *_sums([one]), share))
    rows.append(("TOTAL", "", "", *_sums(answer.standings), ""))
    headings = ["SUBMITTER", "QUOTA", "PRIORITY", "IN USE", "ASKED", "MATCHED", "WEIGHT", "LOSES", "SHARE"]
    left_out = set()
    if answer.has_groups:
        headings[0] = "GROUP, SUBMITTER"
    else:
        left_out.add(1)
    if not any(one.lost for one in answer.standings):
        left_out.add(headings.index("LOSES"))
    kept = [place for place in range(len(headings)) if place not in left_out]
    table = [[row[place] for place in kept] for row in rows]
    spare = [name for name in ("WEIGHT", "QUOTA", "SHARE") if headings.index(name) in kept]
    return output.lines(
        [headings[place] for place in kept],
        table,
        [bool(place) for place in kept],
        screen=output.terminal_width(),
        spare=spare,
    )


def _sums(standings: Iterable[Standing]) -> tuple[str, ...]:
    """Weight in use before, jobs asked for and matched, weight given and lost."""
    every = list(standings)
    return (
        _number(sum(one.in_use for one in every)),
        str(sum(one.asked for one in every)),
        str(sum(one.matched for one in every)),
        _number(sum(one.given for one in every)),
        _number(sum(one.lost for one in every)),
    )


def placed_lines(placed: Iterable[Placed], *, schedds: bool) -> list[str]:
    """The table of jobs that get slots. `schedds`: with each job the name of its schedd."""
    rows = []
    for one in placed:
        ended = ", ".join(_clean(user if slot == one.slot else f"{user} ({slot})") for slot, user in one.preempts)
        why = f" by {one.reason}" if ended else ""
        rows.append((_job(one.job, one.schedd, schedds), _clean(one.submitter), _clean(one.slot), ended + why))
    preempting = any(row[3] for row in rows)
    headings = ("JOB", "SUBMITTER", "SLOT", "PREEMPTS")
    width = 4 if preempting else 3
    return output.lines(
        headings[:width], [row[:width] for row in rows], (False,) * width, screen=output.terminal_width()
    )


def _unplaced_lines(answer: Answer, several: bool, limit: int) -> Iterator[str]:
    rows = [
        (str(one.count), _job(one.job, one.schedd, several), _clean(one.submitter), _clean(one.reason))
        for one in answer.unplaced[:limit]
    ]
    yield from output.lines(
        ("NOTHING FOR", "FIRST", "SUBMITTER", "BECAUSE"),
        rows,
        (True, False, False, False),
        screen=output.terminal_width(),
        spare=("SUBMITTER",),
    )
    more = len(answer.unplaced) - len(rows)
    if more > 0:
        yield f"and {more} more; -limit {len(answer.unplaced)} shows them"


def _job(job: str, schedd: str, several: bool) -> str:
    return _clean(f"{job} {schedd}" if several else job)


def _number(number: float) -> str:
    return f"{round(number, 2):.12g}"


def _clean(text: str) -> str:
    """One line that a terminal can show, whatever an ad holds."""
    return text if text.isprintable() else "".join(c if c.isprintable() else " " for c in text)
