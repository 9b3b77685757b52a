"""`roost token create | list | revoke`: who may do what."""

from __future__ import annotations

import json

from roost.cli import output
from roost.cli.options import COMMON, Option, flag, parse, usage, value
from roost.cli.output import moment, say
from roost.client import Client
from roost.errors import UsageError

OPTIONS: tuple[Option, ...] = (
    value("level", help="READ, WRITE (the default) or ADMINISTRATOR", metavar="LEVEL"),
    value("label", help="what it is for", metavar="TEXT"),
    value("lifetime", help="seconds until it expires; none: never", metavar="SECONDS"),
    flag("json", help="as JSON"),
    *COMMON,
)


def run(command: str, argv: list[str]) -> int:
    parsed = parse(argv, OPTIONS)
    if parsed.has("help") or not parsed.arguments:
        say(usage(command, "create USER | list | revoke ID", "Tokens are shown once, and stored as digests.", OPTIONS))
        return 0 if parsed.has("help") else 1
    deed, *rest = parsed.arguments
    with Client(parsed.one("pool") or None) as client:
        if deed == "create" and len(rest) == 1:
            token = client.create_token(
                rest[0],
                parsed.one("level", "WRITE").upper(),
                label=parsed.one("label"),
                lifetime_s=parsed.seconds("lifetime") or 0.0,
            )
            say(json.dumps({"token": token}) if parsed.has("json") else token)
        elif deed == "list" and not rest:
            found = client.tokens()
            if parsed.has("json"):
                say(json.dumps(found, indent=2))
            else:
                rows = [
                    [t["id"], t["user"], t["level"], moment(t["expires"]) if t["expires"] else "never", t["label"]]
                    for t in found
                ]
                for line in output.lines(["ID", "USER", "LEVEL", "EXPIRES", "LABEL"], rows, [False] * 5):
                    say(line)
        elif deed == "revoke" and len(rest) == 1:
            count = client.revoke_token(rest[0])
            say(f"{count} token{'s' if count != 1 else ''} revoked")
            return 0 if count else 1
        else:
            raise UsageError("token create USER, token list, or token revoke ID")
    return 0
