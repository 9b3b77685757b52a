"""`roost q`: jobs in the queue, in HTCondor's layouts."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable

from roost.cli import analyze, output
from roost.cli.asked import constraint, is_id, one_of
from roost.cli.options import COMMON, Option, Parsed, flag, lettered, parse, usage, value
from roost.cli.output import Column, moment, number, say, span, text
from roost.client import Client
from roost.errors import UsageError
from shared.classad import ClassAd

STATUS = {1: "idle", 2: "running", 3: "removed", 4: "completed", 5: "held", 6: "running", 7: "suspended"}
LETTER = {1: "I", 2: "R", 3: "X", 4: "C", 5: "H", 6: " >", 7: "S"}
UNIVERSE = {5: "Vanilla", 7: "Scheduler", 9: "Grid", 10: "Java", 11: "Parallel", 12: "Local", 13: "VM"}
_ORDER = ("completed", "removed", "idle", "running", "held", "suspended")

OPTIONS: tuple[Option, ...] = (
    flag("nobatch", help="one line a job"),
    flag("batch", help="one line a batch (the default)"),
    flag("hold", "held", help="held jobs and why"),
    flag("run", help="running jobs and where"),
    flag("idle", help="idle jobs only"),
    flag("totals", help="totals only"),
    flag("allusers", "global", "all", help="everybody's jobs (the default shows them too)"),
    value("constraint", help="only jobs for which this expression is true", metavar="EXPR"),
    value("name", help="only the queue of this schedd", metavar="SCHEDD"),
    value("limit", help="at most so many jobs", metavar="N"),
    value("jobads", help="jobs of this file (as -long or -json writes them) instead of a pool's", metavar="FILE"),
    lettered("analyze", help="why these jobs do not run (`roost analyze`); also -analyze:summary,reverse"),
    lettered("better-analyze", help="the same"),
    flag("reverse-analyze", help="the same, what the slots require first"),
    value("machine", help="with -analyze: only this slot or machine", metavar="NAME"),
    value("slotads", "machineads", help="with -analyze: slots of this file instead of a pool's", metavar="FILE"),
    *output.FORMATS,
    *COMMON,
)

_NEEDS = (
    "ClusterId",
    "ProcId",
    "Owner",
    "User",
    "JobStatus",
    "JobBatchName",
    "QDate",
    "TotalSubmitProcs",
    "JobPrio",
    "Cmd",
    "Args",
    "Arguments",
    "ImageSize",
    "MemoryUsage",
    "RemoteWallClockTime",
    "JobCurrentStartDate",
    "ShadowBday",
    "LastRemoteWallClockTime",
    "EnteredCurrentStatus",
    "HoldReason",
    "HoldReasonCode",
    "HoldReasonSubCode",
    "RemoteHost",
    "ServerTime",
    "JobUniverse",
    "DAGManJobId",
    "DAG_NodesTotal",
    "DAG_NodesDone",
    "RequestCpus",
    "RequestMemory",
    "NumShadowStarts",
    "LastRemoteHost",
)

#: What totals alone look at.
_COUNTED = ("JobStatus", "JobUniverse", "DAG_NodesTotal")


def run(command: str, argv: list[str]) -> int:
    parsed = parse(argv, OPTIONS)
    if parsed.has("help"):
        say(usage(command, "[JOB | OWNER]...", "Jobs in the queue.", OPTIONS))
        return 0
    if any(parsed.has(name) for name in ("analyze", "better-analyze", "reverse-analyze")):
        return analyze.analyze(_for_analyze(parsed))
    ids = [word for word in parsed.arguments if is_id(word)]
    limit = parsed.integer("limit", 0)
    if parsed.has("jobads"):
        file = parsed.one("jobads")
        only = " && ".join(term for term in (constraint(parsed), one_of(ids)) if term)
        found = sorted(output.ads_from(file, only), key=_number_of)
        if output.chosen(parsed):
            output.show(parsed, found)
        else:
            at = next((number(ad, "ServerTime") for ad in found if "ServerTime" in ad), time.time())
            show(parsed, found, f"Jobads: {file}", at)
        return 0
    only = constraint(parsed)
    with Client(parsed.one("pool") or None) as client:
        jobs = client.jobs(
            *ids,
            constraint=only,
            projection=output.projection(parsed, _COUNTED if parsed.has("totals") else _NEEDS),
            schedd=parsed.one("name"),
            limit=limit,
        )
        if output.chosen(parsed):
            output.show(parsed, jobs)
            return 0
        found = list(jobs)
        schedds = [parsed.one("name")] if parsed.has("name") else client.pool()["schedds"]
        everybody = None
        if not (ids or only or parsed.has("limit")):
            everybody = totals("all users", found)
        elif not any(parsed.has(view) for view in ("run", "idle", "hold")):
            counts = client.job_totals(parsed.one("name"))
            everybody = _totals_line("all users", Counter({_KEY[name]: n for name, n in counts.items()}))
    show(parsed, found, f"Schedd: {', '.join(schedds)}", time.time(), everybody)
    return 0


#: STATUS by the names that schedds count under.
_KEY = {
    "Idle": "idle",
    "Running": "running",
    "Removed": "removed",
    "Completed": "completed",
    "Held": "held",
    "TransferringOutput": "running",
    "Suspended": "suspended",
}


def _for_analyze(parsed: Parsed) -> Parsed:
    """The options as `roost analyze` has them. Raises UsageError."""
    words = [word for name in ("analyze", "better-analyze") for word in parsed.letters.get(name, "").split(",") if word]
    unknown = sorted(set(words) - {"summary", "reverse"})
    if unknown:
        raise UsageError(f"-analyze:{unknown[0]}: unknown; known are summary and reverse")
    for word in words + (["reverse"] if parsed.has("reverse-analyze") else []):
        parsed.values.setdefault(word, [])
    return parsed


def _number_of(ad: ClassAd) -> tuple[float, float]:
    return number(ad, "ClusterId"), number(ad, "ProcId")


def show(parsed: Parsed, jobs: list[ClassAd], source: str, now: float, everybody: str | None = None) -> None:
    """The table that the options ask for, and the totals. `everybody`: a line on the whole queue."""
    say(f"\n\n-- {source} @ {time.strftime('%m/%d/%y %H:%M:%S', time.localtime(now))}")
    if not parsed.has("totals"):
        if parsed.has("hold"):
            body = hold_table(jobs)
        elif parsed.has("run"):
            body = run_table(jobs, now)
        elif parsed.has("idle"):
            body = idle_table(jobs)
        elif parsed.has("nobatch"):
            body = job_table(jobs, now)
        else:
            part = parsed.has("constraint") or any("." in word for word in parsed.arguments if is_id(word))
            body = batch_table(jobs, whole=not part)
        for line in body:
            say(line)
        if parsed.has("run") or parsed.has("idle"):
            return
        say()
    # The blanks are HTCondor's; on a terminal they would break the line.
    say(totals("query", jobs) + (" " * 51 if parsed.has("jobads") else ""))
    if everybody is not None:
        say(everybody)
    say()


def status_of(ad: ClassAd) -> int:
    status = int(number(ad, "JobStatus"))
    return status if status in STATUS else 1


def job_id(ad: ClassAd) -> str:
    return f"{int(number(ad, 'ClusterId'))}.{int(number(ad, 'ProcId'))}"


_BATCH = ("OWNER", "BATCH_NAME", "   SUBMITTED", "  DONE", "  RUN ", "  IDLE", "  HOLD", " TOTAL", "JOB_IDS")
_HOLD = _BATCH.index("  HOLD")


def is_dagman(ad: ClassAd) -> bool:
    """A job that manages others: the line of its batch tells of those, and it is not counted itself."""
    return number(ad, "JobUniverse") == 7 and "DAG_NodesTotal" in ad


def batch_table(jobs: Iterable[ClassAd], *, whole: bool = True) -> list[str]:
    """One line a batch: a named batch of one owner, the nodes of a DAG, or one cluster. `whole`: these are all jobs of
    their clusters that are in the queue, so that those that are not there are done."""
    batches: dict[tuple[str, str], list[ClassAd]] = {}
    for ad in jobs:
        cluster = int(number(ad, "ClusterId"))
        dag = cluster if is_dagman(ad) else int(number(ad, "DAGManJobId"))
        name = text(ad, "JobBatchName") or (f"DAG: {dag}" if dag else f"ID: {cluster}")
        batches.setdefault((text(ad, "Owner"), name), []).append(ad)
    rows = [_batch(owner, name, ads, whole) for (owner, name), ads in batches.items()]
    headings, least = list(_BATCH), [8, 10, 12, 6, 6, 6, 6, 6, 0]
    right = [False, False, *[True] * 6, False]
    if all(row[_HOLD] == "_" for row in rows):
        for cells in (headings, least, right, *rows):
            del cells[_HOLD]  # type: ignore[attr-defined]
    return output.lines(headings, rows, right, least)


def _batch(owner: str, name: str, ads: list[ClassAd], whole: bool) -> list[str]:
    nodes = [ad for ad in ads if not is_dagman(ad)]
    counts = Counter(STATUS[status_of(ad)] for ad in nodes)
    manager = next((ad for ad in ads if is_dagman(ad)), None)
    if manager is not None:
        done, total = int(number(manager, "DAG_NodesDone")), int(number(manager, "DAG_NodesTotal"))
    else:
        clusters = {int(number(ad, "ClusterId")): int(number(ad, "TotalSubmitProcs")) for ad in ads}
        total = max(sum(clusters.values()), len(ads))
        done = total - len(ads) if whole else 0  # those that have left the queue
    # A suspended job stands with the idle ones, as HTCondor has it.
    cells = [done, counts["running"], counts["idle"] + counts["suspended"], counts["held"], total]
    shown = [str(c) if c else "_" for c in cells]
    return [owner, name, moment(min(number(ad, "QDate") for ad in ads)), *shown, _range(nodes or ads)]


def _range(ads: list[ClassAd]) -> str:
    pairs = sorted((int(number(ad, "ClusterId")), int(number(ad, "ProcId"))) for ad in ads)
    (first, low), (last, high) = pairs[0], pairs[-1]
    if pairs[0] == pairs[-1]:
        return f"{first}.{low}"
    return f"{first}.{low}-{high}" if first == last else f"{first}.{low} ... {last}.{high}"


def _common(jobs: list[ClassAd]) -> list[Column]:
    return [
        Column(" ID", output.job_id_cell(jobs), least=8),
        Column("OWNER", lambda ad: text(ad, "Owner"), least=14, most=14),
    ]


def _submitted() -> Column:
    return Column("  SUBMITTED", lambda ad: moment(number(ad, "QDate")), right=True, least=11)


def _ran(now: float) -> Column:
    return Column("    RUN_TIME", lambda ad: run_time(ad, now) or "[?????]", right=True, least=12)


def job_table(jobs: list[ClassAd], now: float) -> list[str]:
    return output.table(
        [
            *_common(jobs),
            _submitted(),
            _ran(now),
            Column("ST", lambda ad: LETTER.get(status_of(ad), "?")),
            Column("PRI", lambda ad: str(int(number(ad, "JobPrio")))),
            Column("SIZE", lambda ad: f"{size_mib(ad):.1f}", right=True, least=4),
            Column("CMD", command_line),
        ],
        jobs,
    )


def run_table(jobs: list[ClassAd], now: float) -> list[str]:
    host = Column("HOST(S)", lambda ad: text(ad, "RemoteHost"))
    return output.table([*_common(jobs), _submitted(), _ran(now), host], jobs)


def idle_table(jobs: list[ClassAd]) -> list[str]:
    return output.table(
        [
            *_common(jobs),
            Column("UNIVERSE", lambda ad: UNIVERSE.get(int(number(ad, "JobUniverse")), "Unknown")),
            Column(" CPUS", lambda ad: text(ad, "RequestCpus"), right=True),
            Column("MEMORY", lambda ad: text(ad, "RequestMemory"), right=True),
            Column("STARTS", lambda ad: str(int(number(ad, "NumShadowStarts"))), right=True),
            Column("LAST_HOST", lambda ad: text(ad, "LastRemoteHost", "undefined")),
        ],
        jobs,
    )


def hold_table(jobs: list[ClassAd]) -> list[str]:
    """With the codes (spec row TLS-05), which HTCondor's table has from version 25 on."""
    return output.table(
        [
            *_common(jobs),
            Column("HELD_SINCE", lambda ad: moment(number(ad, "EnteredCurrentStatus")), right=True, least=11),
            Column(
                "CODE/SUB", lambda ad: f"{int(number(ad, 'HoldReasonCode'))}/{int(number(ad, 'HoldReasonSubCode'))}"
            ),
            Column("HOLD_REASON", lambda ad: text(ad, "HoldReason", "undefined")),
        ],
        jobs,
    )


def run_time(ad: ClassAd, now: float) -> str | None:
    """How long the job has run this time, or ran the last time; None where that can not be."""
    if status_of(ad) not in (2, 6, 7):
        return span(number(ad, "LastRemoteWallClockTime"))
    began = number(ad, "ShadowBday", number(ad, "JobCurrentStartDate"))
    seconds = number(ad, "ServerTime", now) - began if began else 0.0
    return span(seconds) if seconds >= 0 else None


def size_mib(ad: ClassAd) -> float:
    memory = number(ad, "MemoryUsage", -1.0)
    return memory if memory >= 0 else number(ad, "ImageSize") / 1024


def command_line(ad: ClassAd) -> str:
    """The program's name and its arguments, as the ad has them."""
    name = text(ad, "Cmd").rpartition("/")[2]
    return f"{name} {text(ad, 'Arguments') or text(ad, 'Args')}".rstrip()


def totals(what: str, jobs: Iterable[ClassAd]) -> str:
    return _totals_line(what, Counter(STATUS[status_of(ad)] for ad in jobs if not is_dagman(ad)))


def _totals_line(what: str, counts: Counter[str]) -> str:
    parts = ", ".join(f"{counts[name]} {name}" for name in _ORDER)
    return f"Total for {what}: {counts.total()} jobs; {parts}"
