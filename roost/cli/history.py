"""`roost history`: jobs that left the queue, newest first."""

from __future__ import annotations

from roost.cli import output
from roost.cli.asked import constraint, is_id
from roost.cli.options import COMMON, Option, parse, usage, value
from roost.cli.output import Column, moment, number, say, span, text
from roost.cli.q import LETTER, job_id, status_of
from roost.client import Client
from shared.classad import ClassAd

OPTIONS: tuple[Option, ...] = (
    value("constraint", help="only jobs for which this expression is true", metavar="EXPR"),
    value("limit", "match", help="at most so many jobs", metavar="N"),
    value("name", help="only jobs of this schedd", metavar="SCHEDD"),
    *output.FORMATS,
    *COMMON,
)
_NEEDS = (
    "ClusterId",
    "ProcId",
    "Owner",
    "QDate",
    "RemoteWallClockTime",
    "JobStatus",
    "CompletionDate",
    "Cmd",
    "Args",
    "Arguments",
)


def run(command: str, argv: list[str]) -> int:
    parsed = parse(argv, OPTIONS)
    if parsed.has("help"):
        say(usage(command, "[JOB | OWNER]...", "Jobs that left the queue, newest first.", OPTIONS))
        return 0
    ids = [word for word in parsed.arguments if is_id(word)]
    with Client(parsed.one("pool") or None) as client:
        jobs = client.jobs(
            *ids,
            constraint=constraint(parsed),
            projection=output.projection(parsed, _NEEDS),
            schedd=parsed.one("name"),
            limit=parsed.integer("limit", 0),
            history=True,
        )
        if output.chosen(parsed):
            output.show(parsed, jobs)
            return 0
        columns = [
            Column(" ID", job_id, least=7),
            Column("OWNER", lambda ad: text(ad, "Owner"), least=14),
            Column("SUBMITTED", lambda ad: moment(number(ad, "QDate")), right=True, least=11),
            Column("RUN_TIME", _ran, right=True, least=12),
            Column("ST", lambda ad: LETTER.get(status_of(ad), "?")),
            Column("COMPLETED", lambda ad: _completed(number(ad, "CompletionDate")), right=True, least=11),
            Column("CMD", _command, least=15),
        ]
        for line in output.table(columns, jobs, pad=True, grow=False):
            say(line)
    return 0


def _ran(ad: ClassAd) -> str:
    seconds = number(ad, "RemoteWallClockTime")
    return span(seconds) if seconds > 0 else ""


def _completed(seconds: float) -> str:
    return moment(seconds) if seconds > 0 else ""


def _command(ad: ClassAd) -> str:
    """The program with its path, and its arguments."""
    arguments = text(ad, "Arguments") or text(ad, "Args")
    return f"{text(ad, 'Cmd')} {arguments}" if arguments else text(ad, "Cmd")
