"""`roost analyze`: why jobs do not run, and what would help; what a slot would take."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from engine.analyze import Slots, WaitingRequest, explain_job, explain_slot, to_map
from engine.analyze.job_report import name_of, state_of
from engine.reasons import SLOTS, amount, said
from roost.cli import output
from roost.cli.job_selection import constraint, is_id
from roost.cli.options import COMMON, Option, Parsed, flag, parse, usage, value
from roost.cli.output import moment, say
from roost.cli.paint import Paint
from roost.client import Client
from roost.errors import ClientError, UsageError
from roost.late_materialization import story
from shared.classad import ClassAd
from shared.classad.columnar import Table

OPTIONS: tuple[Option, ...] = (
    flag("reverse", "reverse-analyze", help="what the slots require first, all of it"),
    flag("summary", help="one line a job"),
    value("machine", help="only this slot or machine; without jobs: what it would take of what waits", metavar="NAME"),
    value("constraint", help="only jobs for which this expression is true", metavar="EXPR"),
    value("name", help="only the queue of this schedd", metavar="SCHEDD"),
    value("negotiator", help="which one, where there are several", metavar="NEGOTIATOR"),
    value("limit", help="at most so many reports (20)", metavar="N"),
    value("jobads", help="jobs of this file (as -long or -json writes them) instead of a pool's", metavar="FILE"),
    value("slotads", "machineads", help="slots of this file instead of a pool's", metavar="FILE"),
    flag("json", help="the whole reports as JSON"),
    *COMMON,
)
_LIMIT: Final = 20
_MOST: Final = 50
_WIDTH: Final = 100  # of a condition in a table; -json has it whole
_MOST_ROWS: Final = 12  # of the slots' conditions without -reverse


def run(command: str, argv: list[str]) -> int:
    parsed = parse(argv, OPTIONS)
    if parsed.has("help"):
        say(usage(command, "[JOB | OWNER]...", "Why jobs do not run, and what would help.", OPTIONS))
        return 0
    return analyze(parsed)


def analyze(parsed: Parsed) -> int:
    """Does what the options say; `roost q -analyze` comes in here too."""
    limit = parsed.integer("limit", _LIMIT)
    if not 1 <= limit <= _MOST:
        raise UsageError(f"-limit wants 1 to {_MOST}, not {limit}")
    ids = [word for word in parsed.arguments if is_id(word)]
    if parsed.has("slotads"):
        found = _offline(parsed, ids, limit)
    elif parsed.has("jobads"):
        raise UsageError("-jobads needs -slotads: slots to compare with (`roost status -l` writes such a file)")
    else:
        with Client(parsed.one("pool") or None) as client:
            clusters = list(dict.fromkeys(one.partition(".")[0] for one in ids))
            late = client.factories(*clusters, schedd=parsed.one("name")) if clusters else ()
            stories = [text for ad in late if (text := story(ad))]
            try:
                found = client.analysis(
                    *ids,
                    constraint=constraint(parsed),
                    schedd=parsed.one("name"),
                    machine=parsed.one("machine"),
                    negotiator=parsed.one("negotiator"),
                    limit=limit,
                )
            except ClientError:
                if not stories:
                    raise
                found = {"jobs": [], "slots": [], "more": 0}  # none of them is in the queue yet
            if stories:
                found["factories"] = stories
    if parsed.has("json"):
        say(json.dumps(found, indent=1))
        return 0
    show(found, parsed)
    return 0


def _offline(parsed: Parsed, ids: Sequence[str], limit: int) -> dict[str, Any]:
    """The same as the pool answers, of files. Jobs that are alike are not put together: their ads may say anything."""
    now = time.time()
    slots = output.ads_from(parsed.one("slotads"))
    machine = parsed.one("machine")
    if machine:
        slots = [ad for ad in slots if machine in (_name(ad), _name(ad).partition("@")[2], ad.eval_string("Machine"))]
        if not slots:
            raise UsageError(f"-machine {machine}: {parsed.one('slotads')} has no slot or machine of that name")
    only = constraint(parsed)
    if parsed.has("jobads"):
        jobs = output.ads_from(parsed.one("jobads"), only)
    else:
        with Client(parsed.one("pool") or None) as client:
            jobs = list(client.jobs(*ids, constraint=only, schedd=parsed.one("name")))
    missing = [word for word in ids if not any(word in (name_of(ad), name_of(ad).partition(".")[0]) for ad in jobs)]
    if missing:
        raise UsageError(f"there is no job {', '.join(missing)} in {parsed.one('jobads') or 'the queue'}")
    if ids:
        jobs = [ad for ad in jobs if name_of(ad) in ids or name_of(ad).partition(".")[0] in ids]
    elif not only:
        jobs = [ad for ad in jobs if state_of(ad) == "idle"]
    if machine and not ids and not only:
        waiting = [WaitingRequest(name_of(ad), ad.eval_string("User"), 1, ad) for ad in jobs]
        reports = [to_map(explain_slot(_slots([ad], now), _name(ad), waiting)) for ad in slots]
        return {"jobs": [], "slots": reports, "more": 0}
    pool = _slots(slots, now)
    return {
        "jobs": [to_map(explain_job(pool, ad)) for ad in jobs[:limit]],
        "slots": [],
        "more": max(0, len(jobs) - limit),
    }


def _slots(ads: Iterable[ClassAd], now: float) -> Slots:
    table = Table()
    for number, ad in enumerate(ads):
        table.put(_name(ad) or f"slot number {number + 1}", ad)
    table.flush()
    return Slots(table, now)


def _name(ad: ClassAd) -> str:
    return ad.eval_string("Name")


# --- for people


def show(found: Mapping[str, Any], parsed: Parsed) -> None:
    """Reports as text, an empty line between them."""
    paint = Paint.of_terminal()
    for text in found.get("factories", ()):
        say(text)
    if found.get("factories") and found["jobs"]:
        say()
    if not found["jobs"] and not found["slots"] and not found.get("factories"):
        say("No such jobs in the queue: nothing to explain.")
    for number, report in enumerate(found["jobs"]):
        if parsed.has("summary"):
            say(f"{_whose(report)}: {report['verdict']}")
            continue
        if number:
            say()
        for line in job_lines(report, reverse=parsed.has("reverse"), paint=paint, screen=output.terminal_width()):
            say(line)
    for number, report in enumerate(found["slots"]):
        if number:
            say()
        for line in slot_lines(report, paint, output.terminal_width()):
            say(line)
    if found["more"]:
        say(f"\n{found['more']} more kinds of jobs are not shown; -limit shows more.")


def job_lines(report: Mapping[str, Any], *, reverse: bool, paint: Paint, screen: int = 0) -> Iterator[str]:
    """One job's report. `reverse`: the slots' conditions first and all of them. screen: width that lines must fit in;
    0: none."""
    yield paint.strong(f"Job {_whose(report)}: {report['state']}")
    yield from output.wrapped(f"  {report['verdict']}", screen, 2)
    if not report["slots"]:
        return
    yield from _slots_lines(report, paint, screen)
    tables = [_terms_lines(report, paint, screen), _slot_terms_lines(report, paint, screen, everything=reverse)]
    for lines in reversed(tables) if reverse else tables:
        yield from lines
    yield from _unadvertised_lines(report, paint, screen)
    yield from _last_lines(report, screen)
    yield from _suggestion_lines(report, paint, screen)


def _painted(before: Sequence[tuple[str, Callable[[str], str]]], text: str, screen: int) -> Iterator[str]:
    """A text behind words that are painted, in lines that fit: what is painted counts with what of it is seen."""
    plain = "".join(words for words, _ in before)
    first, *rest = output.wrapped(plain + text, screen, len(plain))
    yield "".join(paint(words) for words, paint in before) + first[len(plain) :]
    yield from rest


def _whose(report: Mapping[str, Any]) -> str:
    also = report["also"]
    return f"{report['job']} (and {also} more like it)" if also else str(report["job"])


def _slots_lines(report: Mapping[str, Any], paint: Paint, screen: int) -> Iterator[str]:
    yield ""
    yield paint.strong("  Slots")
    outcomes: Mapping[str, int] = report["outcomes"]
    width = len(str(report["slots"]))
    for outcome in SLOTS:
        if outcome in outcomes:
            number = outcomes[outcome]
            count = f"{number:>{width}}"
            detail = ""
            if outcome == "claimed" and report["users"]:
                detail = f": {_counts(report['users'])}"
            elif outcome == "in-use" and report["short"]:
                detail = f" ({', '.join(map(_amount, report['short']))})"
                if "claimed" not in outcomes and report["users"]:
                    detail += f", by {_counts(report['users'])}"
            elif outcome == "slot-requirements" and report["owner_state"]:
                detail = f" ({report['owner_state']} in state Owner)"
            meaning = said(outcome, number).partition(" ")[2]
            before = [("    ", str), (count, paint.good if outcome == "free" else str), ("  ", str)]
            yield from _painted(before, f"{meaning}{detail}", screen)
    yield f"    {report['slots']:>{width}}  in all"


def _amount(short: Mapping[str, Any]) -> str:
    name = short["name"]
    free = f"{amount(name, short['free'])} of {amount(name, short['whole'])} free"
    return f"{name}: {free}, at most {amount(name, short['most'])} on one"


def _terms_lines(report: Mapping[str, Any], paint: Paint, screen: int) -> Iterator[str]:
    if not report["terms"]:
        return
    yield ""
    yield paint.strong("  What the job requires, and how many slots satisfy it")
    width = max(8, len(str(report["slots"])))
    yield f"    {'alone':>{width}} {'together':>{width}}  condition"
    for term in report["terms"]:
        counts = [(f"{term[name]:>{width}}", str if term[name] else paint.bad) for name in ("alone", "together")]
        before = [("    ", str), counts[0], (" ", str), counts[1], ("  ", str)]
        yield from _painted(before, _cut(term["text"]), screen)


def _slot_terms_lines(report: Mapping[str, Any], paint: Paint, screen: int, *, everything: bool) -> Iterator[str]:
    rows = [row for row in report["slot_terms"] if everything or row["rejects"]]
    if not rows:
        return
    yield ""
    yield paint.strong("  What slots require of the job")
    width = max(8, len(str(report["slots"])))
    yield f"    {'rejects':>{width}} {'accept':>{width}} {'of slots':>{width}}  condition"
    shown = rows if everything else rows[:_MOST_ROWS]
    for row in shown:
        rejects = (f"{row['rejects']:>{width}}", paint.bad if row["rejects"] else str)
        before = [("    ", str), rejects, (f" {row['accept']:>{width}} {row['slots']:>{width}}  ", str)]
        yield from _painted(before, _cut(row["text"]), screen)
    if len(rows) > len(shown):
        yield f"    and {len(rows) - len(shown)} more; -reverse shows them"


def _unadvertised_lines(report: Mapping[str, Any], paint: Paint, screen: int) -> Iterator[str]:
    reasons: Mapping[str, str] = report.get("unadvertised") or {}  # a gateway of an earlier version says nothing of it
    if not reasons:
        return
    yield ""
    yield paint.strong("  What HTCondor's slots tell of themselves and slots here never do")
    for name, why in reasons.items():
        yield from _painted([("    ", str), (name, paint.bad), (": ", str)], why, screen)


def _last_lines(report: Mapping[str, Any], screen: int) -> Iterator[str]:
    last = report["last"]
    if not last:
        return
    yield ""
    when = f" at {moment(last['at'])}" if last["at"] else ""
    yield from output.wrapped(f"  The last negotiation cycle{when} said: {last['reason']}", screen, 2)


def _suggestion_lines(report: Mapping[str, Any], paint: Paint, screen: int) -> Iterator[str]:
    if not report["suggestions"]:
        return
    yield ""
    yield paint.strong("  What would help")
    width = max(len(str(one["gains"])) for one in report["suggestions"])
    for one in report["suggestions"]:
        first, *others = [_change(change) for change in one["changes"]]
        gains = f"+{one['gains']}".rjust(width + 1)
        slots = "slot: " if one["gains"] == 1 else "slots:"
        yield from _painted([("    ", str), (gains, paint.good), (f" {slots} ", str)], first, screen)
        for other in others:
            yield from output.wrapped(f"    {'':<{width + 1}}    and {other}", screen, width + 13)


def _change(change: Mapping[str, str]) -> str:
    if change["action"] == "set":
        return f"{change['what']} = {change['to']} (it is {_cut(change['was'])})"
    if change["action"] == "change":
        return f"{_cut(change['to'])} instead of {_cut(change['what'])}"
    return f"without {_cut(change['what'])}"


def slot_lines(report: Mapping[str, Any], paint: Paint, screen: int = 0) -> Iterator[str]:
    """One slot's report: what it would take, and why not the rest. screen: as in job_lines."""
    yield paint.strong(f"Slot {report['slot']}: {report['state'] or 'unknown state'}")
    yield from output.wrapped(f"  {report['verdict']}", screen, 2)
    if not report["requests"]:
        return
    yield ""
    rows = [(_fit(one), one["job"], one["submitter"], str(one["count"]), _why(one)) for one in report["requests"]]
    heading, *table = output.table(
        ("", "JOB", "SUBMITTER", "JOBS", "WHY NOT"),
        rows,
        (False, False, False, True, False),
        screen=max(0, screen - 2),
        spare=("SUBMITTER",),
    )
    yield from (f"  {line}" for line in heading)
    for request, lines in zip(report["requests"], table, strict=True):
        yield from (f"  {paint.good(line) if request['fits'] else line}" for line in lines)


def _fit(request: Mapping[str, Any]) -> str:
    return "yes" if request["fits"] else "no"


def _why(request: Mapping[str, Any]) -> str:
    if request["fits"]:
        return ""
    whose = "the job requires" if request["side"] == "job" else "the slot requires"
    first, *rest = request["fails"]
    return f"{whose} {_cut(first)}" + (f" (and {len(rest)} more)" if rest else "")


def _counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{_cut(name)} {count}" for name, count in counts.items())


def _cut(text: str) -> str:
    """One line that a terminal can show, whatever an ad holds."""
    if not text.isprintable():
        text = "".join(c if c.isprintable() else " " for c in text)
    return text if len(text) <= _WIDTH else f"{text[: _WIDTH - 3]}..."
