"""`roost ping`: whether the pool answers, who it takes you for, what it lets you do. `roost who`: what runs here."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator, Sequence
from typing import Any, Final

from roost.cli import output
from roost.cli.options import COMMON, Option, flag, parse, usage, value
from roost.cli.output import say
from roost.cli.token import LEVELS
from roost.client import Client
from roost.errors import UsageError
from roost.personal_config import tool_config
from shared.classad import ClassAd

PING: Final[tuple[Option, ...]] = (
    flag("verbose", "v", help="also the gateway's address, the token and how long the answer took"),
    flag("json", help="as JSON"),
    *COMMON,
)
WHO: Final[tuple[Option, ...]] = (
    value("name", "n", help="of this machine; without: the machine where the command runs", metavar="MACHINE"),
    flag("all", "a", help="of all machines"),
    flag("json", help="as JSON"),
    *COMMON,
)


def run(command: str, argv: list[str]) -> int:
    return _who(command, argv) if command == "who" else _ping(command, argv)


def _ping(command: str, argv: list[str]) -> int:
    parsed = parse(argv, PING)
    if parsed.has("help"):
        text = (
            "Whether the pool answers, and who it takes you for. With LEVELs (READ, WRITE, ADMINISTRATOR) whether you\n"
            "have each of them. Exit code 0: all of it; 1: not."
        )
        say(usage(command, "[LEVEL...]", text, PING))
        return 0
    wanted = [word.upper() for word in parsed.arguments]
    for level in wanted:
        if level not in LEVELS:
            raise UsageError(f"{level}: there are {', '.join(LEVELS)}")
    with Client(parsed.one("pool") or None) as client:
        began = time.monotonic()
        me: dict[str, Any] = client.whoami()
        took = time.monotonic() - began
        lines, passed = told(me, wanted, client.url, took if parsed.has("verbose") else None)
    if parsed.has("json"):
        say(json.dumps({**me, "url": client.url, "seconds": round(took, 6), "passed": passed}, indent=1))
    else:
        for line in lines:
            say(line)
    return 0 if passed else 1


def told(me: dict[str, Any], wanted: Sequence[str], url: str, took: float | None) -> tuple[list[str], bool]:
    """What is shown, and whether all levels that were asked for are there. took: seconds, for -verbose."""
    user, level = str(me.get("user")), str(me.get("level"))
    there = LEVELS.index(level) if level in LEVELS else -1
    lines = []
    passed = True
    for one in wanted:
        has = LEVELS.index(one) <= there
        passed &= has
        lines.append(
            f"{one} command {'succeeded' if has else 'failed'} as {user}" + ("" if has else f", who has {level}")
        )
    method = str(me.get("method") or "TOKEN")
    by = "" if method == "TOKEN" else f", by {method}"
    if not wanted:
        lines.append(f"{user} with level {level}{by}")
    own = me.get("levels") or {}
    if own and not wanted:
        lines.append("For the work of " + ", ".join(f"{one}: {its}" for one, its in sorted(own.items())))
    scopes = me.get("scopes") or []
    if scopes:
        lines.append(f"This token opens only: {', '.join(map(str, scopes))}")
    if took is not None:
        lines.append(f"Gateway: {url}, answered in {took * 1000:.1f} ms")
        expires = float(me.get("expires") or 0)
        until = f", until {output.moment(expires, '%Y-%m-%d %H:%M')}" if expires else ""
        lines.append(f"{'Token' if method == 'TOKEN' else method}: {me.get('token')}{until}")
    return lines, passed


def _who(command: str, argv: list[str]) -> int:
    parsed = parse(argv, WHO)
    if parsed.has("help"):
        say(usage(command, "", "Whose jobs run on a machine, in which slots, since when.", WHO))
        return 0
    if parsed.arguments:
        raise UsageError(
            f"{parsed.arguments[0]!r} does not belong here: machines are named with -name, -all: all of them"
        )
    machine = parsed.one("name") or tool_config().get("FULL_HOSTNAME") or socket.gethostname()
    terms = ["isString(JobId)"] if parsed.has("all") else ["isString(JobId)", f"Machine == {json.dumps(machine)}"]
    with Client(parsed.one("pool") or None) as client:
        ads = list(client.ads("Machine", constraint=" && ".join(terms), projection=_NEEDS))
    ads.sort(key=lambda ad: (str(ad.eval("Machine")), str(ad.eval("Name"))))
    if parsed.has("json"):
        say(json.dumps([row(ad, time.time()) for ad in ads], indent=1))
        return 0
    if not ads:
        say("No jobs run " + ("in the pool." if parsed.has("all") else f"on {machine}."))
        return 0
    for line in table(ads, time.time()):
        say(line)
    return 0


_NEEDS: Final = (
    "Name",
    "Machine",
    "RemoteOwner",
    "JobId",
    "JobStart",
    "EnteredCurrentActivity",
    "Activity",
    "ClientMachine",
)
_HEADINGS: Final = ("OWNER", "CLIENT", "SLOT", "JOB", "RUNTIME", "ACTIVITY")


def table(ads: Sequence[ClassAd], now: float) -> Iterator[str]:
    """The lines that are shown."""
    rows = [row(ad, now) for ad in ads]
    cells = [(r["owner"], r["client"], r["slot"], r["job"], output.span(r["runtime"]), r["activity"]) for r in rows]
    right = (False, False, False, False, True, False)
    yield from output.lines(
        _HEADINGS, cells, right, screen=output.terminal_width(), spare=("CLIENT", "ACTIVITY", "RUNTIME")
    )


def row(ad: ClassAd, now: float) -> dict[str, Any]:
    """One running job. runtime: seconds."""
    began = output.number(ad, "JobStart", output.number(ad, "EnteredCurrentActivity", now))
    return {
        "owner": output.text(ad, "RemoteOwner"),
        "client": output.text(ad, "ClientMachine"),
        "slot": output.text(ad, "Name"),
        "job": output.text(ad, "JobId"),
        "runtime": max(0.0, now - began),
        "activity": output.text(ad, "Activity"),
    }
