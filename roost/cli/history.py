"""`roost history`: jobs that left the queue, newest first; of a pool, or of a history file."""

from __future__ import annotations

import itertools
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

from engine.queue.outcome import FAILED
from roost.cli import ad_formats, custom_columns, history_files, output
from roost.cli.job_selection import is_id, owned_by
from roost.cli.options import COMMON, Option, Parsed, ask, flag, parse, usage, value
from roost.cli.output import say
from roost.cli.print_mask import Mask, column
from roost.cli.printas import EXIT, PAST_RUN_TIME, STATUS_LETTER, TABLE
from roost.client import Client
from roost.errors import UsageError
from shared.classad import ClassAd, ParseError, evaluate, parse_expr
from shared.classad.expr import Expr, Literal

#: In the order in which HTCondor's tool looks at them, which decides what a short option means.
OPTIONS: tuple[Option, ...] = (
    ask("l|ong", "whole ads, one attribute a line"),
    ask("xml", "whole ads as XML"),
    ask("jsonl", "whole ads as JSON, one a line"),
    ask("json", "whole ads as JSON"),
    ask("b|ackwards", "newest first (the default)"),
    ask("nob|ackwards", "oldest first"),
    ask("forw|ards", "oldest first"),
    ask("w|ide:", "do not cut long values; a number: lines of so many characters"),
    ask("m|atch", "at most so many jobs", "N"),
    ask("lim|it", "at most so many jobs", "N"),
    ask("scan|limit", "look at so many jobs", "N"),
    ask("fi|le", "jobs of this history file instead of a pool's", "FILE"),
    ask("sea|rch", "jobs of this history file and the older ones beside it (FILE.20261122T120000)", "FILE"),
    ask("dir|ectory", "not here: no pool of ours keeps a file for each run"),
    ask("ep|ochs:", "a record of each run that is over, of jobs in the queue too; in a file: -type EPOCH"),
    ask("u|serlog", "not here: see `roost wait -log` and `roost q`", "FILE"),
    ask("t|ype", "records of these types in a file (JOB, EPOCH, ...), or ALL", "TYPE,..."),
    ask("lo|cal", "taken for HTCondor's sake"),
    ask("sta|rtd", "jobs that execution points ran"),
    ask("sch|edd", "jobs of access points (the default)"),
    ask("str|eam-results:", "taken for HTCondor's sake"),
    ask("at|tributes", "only these attributes in -long, -json and -xml", "ATTR,..."),
    ask("h|elp", "show this help"),
    *custom_columns.FORMAT,
    flag("failed", help="only jobs that failed: by a signal, or with another exit code than their success_exit_code"),
    value("layout", help="condor: the columns of condor_history", metavar="condor"),
    ask("c|onstraint", "only jobs for which this expression is true", "EXPR"),
    ask("sinc|e", "stop before this job, or where this expression is true", "JOB|EXPR"),
    ask("com|pletedsince", "stop where a job was completed by then (seconds since 1970)", "TIME"),
    ask("n|ame", "only jobs of this schedd", "SCHEDD"),
    ask("p|ool", "address of the pool's gateway, host[:port] or URL", "ADDRESS"),
    COMMON[-1],
)
_ID: Final = re.compile(r"([0-9]+)(?:\.([0-9]+))?\Z")


#: Options of HTCondor's tool that mean nothing here -> what there is instead.
_ABSENT: Final = {
    "directory": "there are no files of single runs: -search FILE reads a history file and the older ones beside it",
    "userlog": "`roost wait -log FILE` reads a log of jobs, `roost history JOB` has the whole ad",
}


def run(command: str, argv: list[str]) -> int:
    parsed = parse(argv, OPTIONS)
    if parsed.has("help"):
        say(usage(command, "[JOB | OWNER]...", "Jobs that left the queue, newest first.", OPTIONS))
        return 0
    for name, instead in _ABSENT.items():
        if parsed.has(name):
            raise UsageError(f"-{name}: {instead}")
    if parsed.letters.get("epochs"):
        raise UsageError("-epochs:d: records of runs are not deleted one by one; MAX_EPOCH_HISTORY_LOG bounds them")
    if parsed.one("layout") not in ("", "condor"):
        raise UsageError(f"-layout {parsed.one('layout')}: want condor")
    form = _form(parsed)
    ways = [name for name, _, _ in parsed.order if name in ("forwards", "nobackwards", "backwards")]
    forwards = bool(ways) and ways[-1] != "backwards"  # the last one counts
    if forwards and parsed.has("since"):
        raise UsageError("-since goes back in time, so -forwards does not go with it")
    custom = custom_columns.columns(parsed)
    mask = custom.mask if custom else _mask(parsed)
    if custom is not None and custom.from_file and (output.leading_number(parsed.letters.get("wide", "")) or 80) <= 80:
        mask.overall = (output.leading_number(parsed.letters.get("wide", "")) or output.terminal_width() or 80) - 1
        if parsed.has("wide") and not parsed.letters.get("wide"):
            mask.overall = 0
    condition = _condition(parsed, custom.where if custom else "")
    stop = _stop(parsed)
    if any(parsed.has(name) for name in ("file", "search", "startd")):
        if parsed.has("epochs"):
            raise UsageError("-epochs asks the pool; records of runs in a file: -type EPOCH")
        files = _files(parsed)
        search = history_files.Search(parsed.arguments, _kinds(parsed))
        found = itertools.chain.from_iterable(
            history_files.jobs(file, search, forwards=forwards) for file in (files if forwards else reversed(files))
        )
        _show(parsed, form, mask, _chosen(parsed, found, condition, stop))
        return 0
    shown = _of_pool(parsed, form, mask, condition, stop, forwards=forwards)
    ids = [word for word in parsed.arguments if is_id(word)]
    if shown or not ids or len(ids) < len(parsed.arguments) or parsed.one("layout") == "condor":
        return 0
    sys.stderr.write(f"roost: there is no such job in the history: {', '.join(ids[:5])}\n")
    return 1


def _form(parsed: Parsed) -> str:
    """long, json, jsonl or xml; "" for a table. Raises UsageError."""
    asked = [name for name in ("xml", "json", "jsonl") if parsed.has(name)]
    if len(asked) > 1:
        raise UsageError(f"-{asked[0]} and -{asked[1]} exclude each other")
    return asked[0] if asked else "long" if parsed.has("long") else ""


def _mask(parsed: Parsed) -> Mask:
    """The usual table."""
    width = output.leading_number(parsed.letters.get("wide", ""))
    wide = parsed.has("wide") and (not width or width > 80)
    columns = [
        column("ClusterId", " ID", None, -7, auto=True, cut=False, by=TABLE["JOB_ID"]),
        column("Owner", "OWNER", "%v", -14, auto=True, cut=not wide),
        column("QDate", "SUBMITTED", None, 11, by=TABLE["DATE"]),
        column("ClusterId", "RUN_TIME", None, 12, by=PAST_RUN_TIME),
        column("JobStatus", "ST", None, -2, by=STATUS_LETTER),
        column("CompletionDate", "COMPLETED", None, 11, by=TABLE["DATE"]),
        *([] if _is_condors(parsed) else [column("ExitCode", "EXIT", None, -6, cut=False, by=EXIT)]),
        column("Cmd", "CMD", None, -15, cut=False, by=TABLE["JOB_COMMAND"]),
    ]
    screen = width or (0 if parsed.has("wide") else max(0, output.terminal_width() - 1))
    return Mask(columns, prefix=" ", row_suffix="\n", overall=screen, headings=True)


def _is_condors(parsed: Parsed) -> bool:
    """Whether the table is to be HTCondor's: by its name for the tool, or for its files."""
    return parsed.one("layout") == "condor" or any(parsed.has(name) for name in ("file", "search", "startd"))


def _condition(parsed: Parsed, where: str) -> str:
    named = []
    for word in parsed.arguments:
        if is_id(word):
            cluster, _, proc = word.partition(".")
            named.append(f"ClusterId == {cluster}" + (f" && ProcId == {proc}" if proc else ""))
        else:
            named.append(owned_by([word]))
    terms = [f"({' || '.join(f'({one})' for one in named)})"] if named else []
    if parsed.has("failed"):
        terms.append(f"({FAILED})")
    return " && ".join([*terms, *output.constraints(parsed), *([f"({where})"] if where else [])])


def _stop(parsed: Parsed) -> Expr | None:
    """The expression that ends the search, before the job for which it is true. Raises UsageError."""
    found: Expr | None = None
    for name, _, values in parsed.order:
        if name == "completedsince":
            found = output.expression(f"CompletionDate <= {values[0]}", name)
        elif name == "since":
            job = _ID.match(values[0])
            try:
                parsed_since = parse_expr(values[0], syntax="old")
            except ParseError as error:
                raise UsageError(f"-since {values[0][:100]}: want a job's number or an expression: {error}") from error
            if job is not None:
                text = f"ClusterId == {job[1]}" + (f" && ProcId == {job[2]}" if job[2] else "")
                parsed_since = parse_expr(text, syntax="old")
            elif isinstance(parsed_since, Literal):
                raise UsageError(f"-since {values[0][:100]}: want a job's number or an expression")
            found = parsed_since
    return found


# --- where jobs come from


def _files(parsed: Parsed) -> list[Path]:
    """The files to read, oldest first. Raises UsageError."""
    if parsed.has("file"):
        return [Path(parsed.one("file"))]
    if not parsed.has("search"):
        return _of_this_machine(parsed)
    file = Path(parsed.one("search"))
    files = history_files.rotated(file)
    if not files:
        raise UsageError(f"-search {file}: there is no such file, and no older one beside it ({file.name}.DATETIME)")
    return files


def _kinds(parsed: Parsed) -> frozenset[str]:
    """The types of records that are shown."""
    found = {word.upper() for value in parsed.all("type") for word in re.split(r"[, ]+", value) if word}
    if "TRANSFER" in found:
        found |= {"INPUT", "OUTPUT", "CHECKPOINT"}
    return frozenset(found) or frozenset(("JOB",))


def _of_this_machine(parsed: Parsed) -> list[Path]:
    """The history files of this machine's execution point, oldest first. Raises UsageError."""
    from roost.personal_config import tool_config

    for name in ("pool", "name"):
        if parsed.has(name):
            raise UsageError(f"-startd reads this machine's file, so -{name} does not go with it: ask on that machine")
    config = tool_config("STARTD")
    file = Path(config.get("STARTD_HISTORY") or Path(config.get("SPOOL") or "spool") / "startd_history")
    files = history_files.rotated(file)
    if not files:
        raise UsageError(f"{file}: there is no history of an execution point (STARTD_HISTORY) on this machine")
    return files


def _of_pool(parsed: Parsed, form: str, mask: Mask, condition: str, stop: Expr | None, *, forwards: bool) -> int:
    """The jobs that a pool's schedds remember; how many were shown."""
    limited = stop is None and not parsed.has("scanlimit") and not forwards
    needed = [] if form else mask.attributes()
    if form:
        needed = output.attribute_names(parsed)
    if needed and stop is not None:
        from shared.classad import references

        found = references(stop)
        needed = sorted({*needed, *found.missing, *found.unscoped})
    simple = all(is_id(word) for word in parsed.arguments)
    failed = [f"({FAILED})"] if parsed.has("failed") else []
    terms = " && ".join([*failed, *output.constraints(parsed)]) if simple else condition
    with Client(parsed.one("pool") or None) as client:
        # Where the search is to stop, all jobs must be looked at, not only those that are shown.
        asks_all = stop is not None or parsed.has("scanlimit")
        jobs = client.jobs(
            *(parsed.arguments if simple and not asks_all else ()),
            constraint="" if asks_all else terms,
            projection=[] if asks_all else needed,
            schedd=parsed.one("name"),
            limit=_limit(parsed) if limited else 0,
            history=not parsed.has("epochs"),
            epochs=parsed.has("epochs"),
        )
        ads: Iterable[ClassAd] = reversed(list(jobs)) if forwards else jobs
        count = itertools.count()
        chosen = (ad for ad, _ in zip(_chosen(parsed, ads, condition if asks_all else "", stop), count, strict=False))
        _show(parsed, form, mask, chosen)
        return next(count)


def _limit(parsed: Parsed) -> int:
    """How many jobs at most; 0: all. The last of -limit and -match counts."""
    names = [name for name, _, _ in parsed.order if name in ("limit", "match")]
    return max(0, parsed.integer(names[-1], 0)) if names else 0


def _chosen(
    parsed: Parsed, found: Iterable[ClassAd | str], condition: str, stop: Expr | None
) -> Iterator[ClassAd | str]:
    """Those jobs that are asked for, and where the search ends."""
    wanted = output.expression(condition, "constraint") if condition else None
    limit = _limit(parsed)
    scan = parsed.integer("scanlimit", 0)
    looked = shown = 0
    for ad in found:
        if isinstance(ad, str):
            yield ad
            continue
        looked += 1
        if stop is not None and _is_true(evaluate(stop, ad)):
            return
        if wanted is None or _is_true(evaluate(wanted, ad)):
            yield ad
            shown += 1
        if (limit and shown >= limit) or (scan > 0 and looked >= scan):
            return


def _is_true(value: Any) -> bool:
    return isinstance(value, bool | int | float) and value == value and bool(value)


# --- how they are shown


def _show(parsed: Parsed, form: str, mask: Mask, found: Iterable[ClassAd | str]) -> None:
    if form:
        _whole(parsed, form, found)
        return
    if mask.headings:
        output.write(mask.heading())
    block: list[ClassAd] = []
    for ad in found:
        if isinstance(ad, str):
            _lines(mask, block)
            output.write(ad)
        else:
            block.append(ad)
            if len(block) >= 1000:  # a history may be long
                _lines(mask, block)
    _lines(mask, block)


def _lines(mask: Mask, block: list[ClassAd]) -> None:
    if block:
        output.write("".join(mask.lines(mask.read(block, one_by_one=True))))
        block.clear()


def _whole(parsed: Parsed, form: str, found: Iterable[ClassAd | str]) -> None:
    custom = custom_columns.columns(parsed)  # of a whole ad, what they read
    only = [*output.attribute_names(parsed), *(custom.mask.attributes() if custom else ())]
    before, between, behind = ad_formats.frame_of_history(form)
    output.write(before)
    first = True
    for ad in found:
        if isinstance(ad, str):
            output.write(ad)
            continue
        output.write("" if first else between)
        first = False
        output.write(_text(ad, form, only))
    output.write(behind)


def _text(ad: ClassAd, form: str, only: list[str]) -> str:
    if form == "jsonl":
        from shared.classad import to_json

        return to_json(ad, True, ad_formats.names_of(ad, only) if only else None) + "\n"
    if form == "long":
        # Capitals come first here, other than in HTCondor's other tools.
        names = sorted(ad_formats.names_of(ad, only))
        return "".join(f"{name} = {ad.text(name, 'old')}\n" for name in names) + "\n"
    if only:
        return ad_formats.text_of(ad, form, only) + ("\n" if form == "xml" else "")
    from shared.classad import to_json, to_xml

    return to_json(ad) + "\n" if form == "json" else to_xml(ad) + "\n"
