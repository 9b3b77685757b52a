"""`roost doctor`: whether the pool is well, and what to do where it is not."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Final

from engine.attention import Finding
from engine.doctor import needs_somebody
from roost.cli import output
from roost.cli.options import COMMON, Option, flag, parse, usage
from roost.cli.output import say
from roost.client import Client
from roost.doctor import Report, examine
from roost.errors import ClientError, UsageError

OPTIONS: Final[tuple[Option, ...]] = (
    flag("json", help="as JSON"),
    flag("pool-only", help="do not look at the machine where the command runs"),
    *COMMON,
)
_ABOUT: Final = (
    "Looks at the pool and at this machine's set-up: daemons, versions, clocks, event loops, leases, queues, dead "
    "letters, disks, certificates, jobs that wait in vain, machines that fail jobs; broker and store where the "
    "machine's configuration names them. Exit code 0: nothing needs to be done (notes do not count); 1: something does."
)
_LEVELS: Final = ("error", "warning", "note")


def run(command: str, argv: list[str]) -> int:
    parsed = parse(argv, OPTIONS)
    if parsed.has("help"):
        say(usage(command, "", _ABOUT, OPTIONS))
        return 0
    if parsed.arguments:
        raise UsageError(f"{parsed.arguments[0]!r} does not belong here: see roost doctor -help")
    machine = not parsed.has("pool-only")
    try:
        with Client(parsed.one("pool") or None) as client:
            report, where = examine(client, machine=machine), client.url
    except ClientError as error:
        report, where = examine(None, str(error), machine=machine), ""
    well = not needs_somebody(report.findings)
    if parsed.has("json"):
        findings = [asdict(one) | {"about": dict(one.about)} for one in report.findings]
        say(json.dumps({"url": where, "well": well, "findings": findings, "looked": report.looked}, indent=1))
    else:
        for line in told(report, where, output.terminal_width() or 100):
            say(line)
    return 0 if well else 1


def told(report: Report, where: str, width: int) -> list[str]:
    """The lines that are shown."""
    counts = [(sum(one.level == level for one in report.findings), level) for level in _LEVELS]
    said = ", ".join(f"{number} {level}{'s' * (number != 1)}" for number, level in counts if number)
    daemons = report.daemons.get("daemons") or ()
    asked = f", {len(daemons)} daemons asked" if daemons else ""
    lines = [f"Pool at {where or '(no gateway)'}{asked}: {said or 'nothing to complain of'}"]
    for one in report.findings:
        lines += finding(one, width)
    if report.looked:
        lines += output.wrapped(f"Looked at: {', '.join(report.looked)}.", width)
    return lines


def finding(one: Finding, width: int) -> list[str]:
    """One of them: what is wrong, then what shows more of it."""
    more = "; ".join(filter(None, (one.command, f"docs/{one.help}" if one.help else "")))
    head = output.wrapped(f"{one.level:<8} {one.text}", width, 9)
    return [*head, *output.wrapped(f"{'':<8} see {more}", width, 13)] if more else head
