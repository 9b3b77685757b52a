"""`roost dead-letters`: messages that no daemon could take: list, requeue, discard."""

from __future__ import annotations

import json

from roost.cli import output
from roost.cli.options import COMMON, Option, flag, many, parse, usage, value
from roost.cli.output import moment, say
from roost.client import Client

OPTIONS: tuple[Option, ...] = (
    many("requeue", help="publish these again where they came from (`all`: every one)", metavar="ID"),
    many("discard", help="drop these for good (`all`: every one)", metavar="ID"),
    value("limit", help="at most so many", metavar="N"),
    flag("json", help="everything that is known of them, as JSON"),
    *COMMON,
)


def run(command: str, argv: list[str]) -> int:
    parsed = parse(argv, OPTIONS)
    if parsed.has("help"):
        say(usage(command, "", "Messages that no daemon could take, oldest first.", OPTIONS))
        return 0
    with Client(parsed.one("pool") or None) as client:
        letters = client.dead_letters(parsed.integer("limit", 100))
        for option, deed in (("requeue", client.dead_letters_requeue), ("discard", client.dead_letters_discard)):
            if parsed.has(option):
                asked = parsed.all(option)
                ids = [d["id"] for d in letters] if asked == ["all"] else asked
                done = deed(ids)
                say(f"{len(done)} of {len(ids)} {option}{'d' if option.endswith('e') else 'ed'}")
                return 0 if len(done) == len(ids) else 1
    if parsed.has("json"):
        say(json.dumps(letters, indent=2))
        return 0
    if not letters:
        say("There are no dead letters.")
        return 0
    rows = [[d["id"], moment(d["at"], "%m/%d %H:%M:%S"), d["type"] or "?", d["queue"], d["reason"]] for d in letters]
    headings, spare = ["ID", "WHEN", "TYPE", "QUEUE", "REASON"], ("WHEN", "QUEUE")
    for line in output.lines(headings, rows, [False] * 5, screen=output.terminal_width(), spare=spare):
        say(line)
    return 0
