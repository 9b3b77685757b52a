"""`roost import`: priorities and jobs of an HTCondor pool come into this one (docs/migration.md)."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Iterable
from typing import Any, Final

from roost.cli.options import COMMON, Option, Parsed, flag, parse, usage, value
from roost.cli.output import say
from roost.client import Client
from roost.errors import UsageError
from roost.importing.accounts import Accounts, read_accounts
from roost.importing.classad_log import Log, lines_of, read_log
from shared.config.errors import Problem

#: Records in one request.
_BATCH: Final = 1000

OPTIONS: tuple[Option, ...] = (
    flag("dry-run", help="change nothing: say what would be done, and what is wrong"),
    flag("replace", help="of the accountant: also for users of whom this pool knows something already"),
    value("name", help="the negotiator, where there are several", metavar="NAME"),
    *COMMON,
)


def run(command: str, argv: list[str]) -> int:
    parsed = parse(argv, OPTIONS)
    if parsed.has("help"):
        text = (
            "Bring priorities and usage of an HTCondor pool to this one (docs/migration.md).\n"
            "FILE is the Accountantnew.log of the SPOOL directory of the machine with the negotiator. Stop HTCondor\n"
            "first, or copy the file."
        )
        say(usage(command, "accountant FILE", text, OPTIONS))
        return 0
    if len(parsed.arguments) != 2 or parsed.arguments[0] not in ("accountant",):
        raise UsageError("say what to import: roost import accountant FILE")
    return _accountant(parsed, parsed.arguments[1])


def _read(file: str) -> Log:
    """Raises UsageError, ConfigError."""
    try:
        with open(file, "rb") as stream:
            log = read_log(lines_of(stream), file)
    except OSError as error:
        raise UsageError(f"{file}: {error.strerror}; name a file that can be read") from error
    warn(log.warnings)
    return log


def warn(problems: Iterable[Problem]) -> None:
    for problem in problems:
        sys.stderr.write(f"WARNING: {problem}\n")


def _accountant(parsed: Parsed, file: str) -> int:
    found = read_accounts(_read(file), file)
    dry, replacing = parsed.has("dry-run"), parsed.has("replace")
    with Client(parsed.one("pool") or None) as client:
        # All are looked at before any is taken in.
        plan = _ask(client, parsed, found, replacing=replacing, dry=True)
        done = plan if dry else _ask(client, parsed, found, replacing=replacing, dry=False)
    for name in sorted(done["taken"]):
        say(f"{name}: {_described(found, name)}{' would be' if dry else ''} taken in")
    for name in sorted(done["known"]):
        say(f"{name}: is known here already and stays as it is (-replace takes the file's)")
    for name, why in sorted(done["left"].items()):
        sys.stderr.write(f"WARNING: {file}, line {found.lines[name]}: {name} is left out: {why}\n")
    counts = [
        f"{len(done['taken'])} {'would be ' if dry else ''}taken in",
        f"{len(done['known'])} known already",
        f"{len(done['usual'])} without anything to keep",
        f"{len(done['left'])} left out",
    ]
    say(f"{len(found.records)} records: {', '.join(counts)}")
    return 0


def _ask(client: Client, parsed: Parsed, found: Accounts, *, replacing: bool, dry: bool) -> dict[str, Any]:
    rows = [{"name": name, **dataclasses.asdict(record)} for name, record in found.records.items()]
    summed: dict[str, Any] = {"taken": [], "known": [], "usual": [], "left": {}}
    for start in range(0, len(rows), _BATCH):
        answer = client.import_accounts(
            rows[start : start + _BATCH],
            until=found.until,
            replacing=replacing,
            dry_run=dry,
            negotiator=parsed.one("name"),
        )
        for kind in ("taken", "known", "usual"):
            summed[kind] += answer[kind]
        summed["left"].update(answer["left"])
    return summed


def _described(found: Accounts, name: str) -> str:
    record = found.records[name]
    factor = f", factor {record.factor:g}" if record.factor else ""
    return f"priority {record.priority:.2f}{factor}, {record.weighted_usage / 3600.0:.2f} weighted hours"
