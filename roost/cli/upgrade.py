"""`roost upgrade -check`: which releases a pool runs, and how to go to the one that is installed here."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Final

from engine.doctor import told_of
from engine.upgrade import Build, Plan, Release, plan
from roost.cli import output
from roost.cli.options import COMMON, Option, flag, parse, usage
from roost.cli.output import say
from roost.client import Client
from roost.errors import UsageError
from shared.messages.base import known_types, protocol
from shared.version import VERSION

OPTIONS: Final[tuple[Option, ...]] = (
    flag("check", help="say what runs, and whether and in which order it can be restarted with this release"),
    flag("json", help="as JSON"),
    *COMMON,
)
_ABOUT: Final = (
    "Compares what the daemons of the pool run with the release that is installed where this command runs. It changes "
    "nothing: docs/upgrade.md tells how to upgrade. Exit code 0: all run it, or a rolling restart is safe; 1: it is "
    "not."
)


def run(command: str, argv: list[str]) -> int:
    parsed = parse(argv, OPTIONS)
    if parsed.has("help"):
        say(usage(command, "-check", _ABOUT, OPTIONS))
        return 0
    if not parsed.has("check") or parsed.arguments:
        raise UsageError("roost upgrade -check is what there is: packages are installed by who installed them")
    import shared.messages  # noqa: F401  all of them

    with Client(parsed.one("pool") or None) as client:
        found = client.daemons_health()
    wanted = Release(VERSION, protocol(), known_types())
    made = plan(told_of(found), found.get("protocols") or {}, wanted)
    if parsed.has("json"):
        safe = not made.problems
        say(json.dumps({"wanted": VERSION, "protocol": wanted.protocol, "safe": safe, **asdict(made)}, indent=1))
    else:
        output.tell(told(made, wanted))
    return 1 if made.problems else 0


def told(made: Plan, wanted: Release) -> list[str]:
    """The lines that are shown."""
    lines = [f"Installed here: Roost {wanted.release}, messages {wanted.protocol}."]
    for build in made.builds:
        lines.append(f"  {_called(build):<42} {_who(build)}{'   this release' if build.own else ''}")
    lines += [f"PROBLEM: {one}." for one in made.problems]
    lines += [f"Note: {one}." for one in made.notes]
    if made.problems:
        return [*lines, "A rolling restart is not safe."]
    if made.is_done:
        return [*lines, "All daemons that answer run this release: nothing is to be done."]
    lines.append("A rolling restart with this release is safe. In this order, each kind before the next one:")
    lines.append(
        "  0. roost backup DIRECTORY; then load the functions of this release into Redis, where the pool has one"
    )
    lines.append("     of its own (python -m shared.daemon.load_functions)")
    for number, subsystem in enumerate(made.order, 1):
        lines.append(f"  {number}. roost restart -{subsystem.lower()} -all")
    return lines


def _called(build: Build) -> str:
    if not build.protocol:
        return "an earlier release"
    return f"Roost {build.release}, messages {build.protocol}"


def _who(build: Build) -> str:
    return ", ".join(
        f"{len(names)} {subsystem.lower()}{'s' * (len(names) > 1)}"
        for subsystem, names in sorted(build.daemons.items())
    )
