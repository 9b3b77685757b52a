"""`roost enroll` and `roost identities`: a user of the broker for each daemon, and taking it away."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from roost.cli import output
from roost.cli.options import COMMON, Option, Parsed, flag, parse, usage, value
from roost.cli.output import moment, say
from roost.client import Client
from roost.enrolment import CONFIGURATION, Enrolled, join
from roost.errors import ClientError, UsageError

ENROLL: tuple[Option, ...] = (
    flag("create", help="make a join token, as an administrator, and show it; with -role, -name, -uses, -lifetime"),
    value("role", help="the daemon's: startd, schedd, ...; with -create of those it lets in, may be repeated"),
    value("name", help="the daemon's name in the pool (this host's); with -create a shell pattern", metavar="NAME"),
    value("token-file", help="file with the join token; - reads it from standard input", metavar="FILE"),
    value("directory", help="where what the daemon needs goes (/etc/condor/identities, or below ~/.condor)"),
    value("uses", help="-create: how many daemons it lets in (1)", metavar="N"),
    value("lifetime", help="-create: seconds until it expires (3600); 0: never", metavar="SECONDS"),
    flag("json", help="as JSON"),
    *COMMON,
)
IDENTITIES: tuple[Option, ...] = (flag("json", help="as JSON"), *COMMON)


def run(command: str, argv: list[str]) -> int:
    return _identities(command, argv) if command == "identities" else _enroll(command, argv)


def _enroll(command: str, argv: list[str]) -> int:
    parsed = parse(argv, ENROLL)
    if parsed.has("help"):
        about = "A join token is good once, or -uses times. The password is made here, and only its hash is sent."
        say(usage(command, "-create -role ROLE -name PATTERN | -role ROLE -token-file FILE", about, ENROLL))
        return 0
    if parsed.arguments:
        raise UsageError(f"{parsed.arguments[0][:80]!r} does not belong here; see roost {command} -help")
    roles = parsed.all("role")
    if parsed.has("create"):
        if not roles or not parsed.one("name"):
            raise UsageError("-create wants -role ROLE and -name PATTERN: whom the join token lets in")
        uses = parsed.one("uses") or "1"
        if not uses.isdecimal() or not int(uses):
            raise UsageError(f"-uses {uses[:40]}: want a number of daemons")
        lifetime = parsed.seconds("lifetime")
        with Client(parsed.one("pool") or None) as client:
            made = client.create_join_token(
                roles, parsed.one("name"), uses=int(uses), lifetime_s=3600.0 if lifetime is None else lifetime
            )
        say(
            json.dumps({"token": made.token, "id": made.id, "expires": made.expires})
            if parsed.has("json")
            else made.token
        )
        return 0
    if len(roles) != 1 or not parsed.one("token-file"):
        raise UsageError("enroll wants -role ROLE and -token-file FILE, or -create")
    done = _join(parsed, roles[0])
    if parsed.has("json"):
        say(json.dumps({"user": done.user, "directory": str(done.directory)}))
    else:
        say(f"{done.user} is enrolled; its daemon reads {done.directory / CONFIGURATION} (LOCAL_CONFIG_FILE)")
    return 0


def _join(parsed: Parsed, role: str) -> Enrolled:
    name = parsed.one("name") or host()
    place = Path(parsed.one("directory") or _place())
    try:
        return join(parsed.one("pool") or None, role, name, join_token(parsed.one("token-file")), place)
    except OSError as error:
        raise ClientError(f"{error.filename or place}: {error.strerror or error}", "failed") from error


def host() -> str:
    """As the daemons name themselves."""
    from roost.personal_config import tool_config
    from shared.daemon.main import name_of

    return name_of("", tool_config(), None)


def _place() -> str:
    return "/etc/condor/identities" if os.geteuid() == 0 else str(Path.home() / ".condor" / "identities")


def join_token(place: str) -> str:
    """The one in a file; -: standard input. Raises OSError."""
    text = os.read(0, 4096).decode() if place == "-" else Path(place).read_text(encoding="utf-8")
    if not text.strip():
        raise UsageError("the join token is empty")
    return text.strip()


def _identities(command: str, argv: list[str]) -> int:
    parsed = parse(argv, IDENTITIES)
    if parsed.has("help"):
        about = "NAME: a user (startd.node1), a daemon's name (node1: all of its daemons), or a join token's id."
        say(usage(command, "[list] | revoke NAME...", about, IDENTITIES))
        return 0
    deed, *names = parsed.arguments or ["list"]
    with Client(parsed.one("pool") or None) as client:
        if deed == "list" and not names:
            _list(client.identities(), as_json=parsed.has("json"))
            return 0
        if deed == "revoke" and names:
            gone = [client.revoke_identity(name) for name in names]
            users = [user for one in gone for user in one["users"]]
            if parsed.has("json"):
                say(json.dumps({"users": users, "tokens": sum(one["tokens"] for one in gone)}))
                return 0
            for user in users:
                say(f"{user} is revoked")
            if tokens := sum(one["tokens"] for one in gone):
                say(f"{tokens} join token{'s' if tokens != 1 else ''} revoked")
            return 0
    raise UsageError("identities, identities list, or identities revoke NAME")


def _list(found: dict[str, list[dict[str, Any]]], *, as_json: bool) -> None:
    if as_json:
        say(json.dumps(found, indent=2))
        return
    rows = [
        [
            one["role"],
            one["name"],
            moment(one["since"]) if one["since"] else "by hand",
            "now" if one["connected"] else moment(one["seen"]) if one["seen"] else "never",
            one["by"],
            one["address"],
        ]
        for one in found["identities"]
    ]
    screen = output.terminal_width()
    titles = ["ROLE", "NAME", "SINCE", "SEEN", "BY", "FROM"]
    for line in output.lines(titles, rows, [False] * 6, screen=screen, spare=("BY", "SINCE")):
        say(line)
    if found["tokens"]:
        say("")
    tokens = [
        [
            one["id"],
            " ".join(one["roles"]),
            one["names"],
            str(one["left"]),
            moment(one["expires"]) if one["expires"] else "never",
            one["by"],
        ]
        for one in found["tokens"]
    ]
    if tokens:
        titles = ["JOIN TOKEN", "ROLES", "NAMES", "LEFT", "EXPIRES", "BY"]
        for line in output.lines(
            titles, tokens, [False, False, False, True, False, False], screen=screen, spare=("BY",)
        ):
            say(line)
