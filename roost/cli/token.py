"""`roost token create | list | revoke`: who may do what."""

from __future__ import annotations

import json

from roost.cli import output
from roost.cli.options import COMMON, Option, Parsed, flag, parse, usage, value
from roost.cli.output import moment, say
from roost.client import Client
from roost.errors import UsageError

#: As HTCondor's tools order them, each including those before it.
LEVELS = ("READ", "WRITE", "ADMINISTRATOR")

OPTIONS: tuple[Option, ...] = (
    value("level", "authz", help="READ, WRITE (the default) or ADMINISTRATOR; the highest of several", metavar="LEVEL"),
    value("identity", help="create: the user, in place of the argument", metavar="USER"),
    value("label", help="what it is for", metavar="TEXT"),
    value("lifetime", help="seconds until it expires; none: never", metavar="SECONDS"),
    value("scope", help="opens only operations that fit: jobs.*, events, ...; may be repeated", metavar="PATTERN"),
    flag("all", help="list: also tokens that were revoked in the last 30 days"),
    flag("json", help="as JSON"),
    *COMMON,
)


def run(command: str, argv: list[str]) -> int:
    parsed = parse(argv, OPTIONS)
    if parsed.has("help") or not parsed.arguments:
        about = "Tokens are shown once, and stored as digests. Operations are listed in docs/api.md."
        say(usage(command, "create USER | list | revoke ID...", about, OPTIONS))
        return 0 if parsed.has("help") else 1
    deed, *rest = parsed.arguments
    if parsed.has("identity") and deed == "create":
        rest = [*rest, parsed.one("identity")]
    with Client(parsed.one("pool") or None) as client:
        if deed == "create" and len(rest) == 1:
            return _create(client, parsed, rest[0])
        if deed == "list" and not rest:
            return _list(client, parsed)
        if deed == "revoke" and rest:
            count = sum(client.revoke_token(ident) for ident in rest)
            say(f"{count} token{'s' if count != 1 else ''} revoked")
            return 0 if count >= len(rest) else 1
    raise UsageError("token create USER, token list, or token revoke ID")


def _create(client: Client, parsed: Parsed, user: str) -> int:
    levels = [level.upper() for level in parsed.all("level")] or ["WRITE"]
    unknown = [level for level in levels if level not in LEVELS]
    if unknown:
        raise UsageError(f"-level {unknown[0][:40]}: there are {', '.join(LEVELS)}")
    made = client.make_token(
        user,
        max(levels, key=LEVELS.index),
        label=parsed.one("label"),
        lifetime_s=parsed.seconds("lifetime") or 0.0,
        scopes=parsed.all("scope"),
    )
    say(json.dumps({"token": made.token, "id": made.id}) if parsed.has("json") else made.token)
    return 0


def _list(client: Client, parsed: Parsed) -> int:
    found = client.tokens(all=parsed.has("all"))
    if parsed.has("json"):
        say(json.dumps(found, indent=2))
        return 0
    rows = [
        [
            t["id"],
            t["user"],
            t["level"],
            f"revoked {moment(t['revoked'])}" if t["revoked"] else moment(t["expires"]) if t["expires"] else "never",
            moment(t["used"]) if t["used"] else "never",
            " ".join(t["scopes"]) or "all",
            t["label"],
        ]
        for t in found
    ]
    for line in output.lines(["ID", "USER", "LEVEL", "EXPIRES", "LAST USE", "SCOPES", "LABEL"], rows, [False] * 7):
        say(line)
    return 0
