"""`roost events`: follow what happens in the pool."""

from __future__ import annotations

import json
import sys
import time
from fnmatch import fnmatchcase
from typing import Any

from roost.cli.options import COMMON, Option, flag, parse, usage, value
from roost.cli.output import say
from roost.client import Client, Event

OPTIONS: tuple[Option, ...] = (
    flag("json", help="one JSON object a line"),
    value("after", help="go on after this event id, as far as the gateway still has it", metavar="ID"),
    value("limit", help="stop after so many events", metavar="N"),
    *COMMON,
)
#: Characters of a field, and of a text inside of one.
_WIDEST = 400
_WIDEST_INSIDE = 30


def run(command: str, argv: list[str]) -> int:
    parsed = parse(argv, OPTIONS)
    if parsed.has("help"):
        say(
            usage(
                command, "[TYPE]...", "Follow events; TYPE is a pattern such as 'job.*' or negotiation.cycle.", OPTIONS
            )
        )
        return 0
    limit = parsed.integer("limit", 0)
    types = [pattern.replace("#", "*") for pattern in parsed.arguments]  # as the broker writes "everything below"
    for warning in _warnings(types):
        sys.stderr.write(f"roost: {warning}\n")
    with Client(parsed.one("pool") or None) as client:
        for count, event in enumerate(client.events(*types, after=parsed.one("after")), 1):
            if parsed.has("json"):
                say(json.dumps({"id": event.id, "type": event.type, **event.body}))
            else:
                say(line(event))
            sys.stdout.flush()
            if limit and count >= limit:
                break
    return 0


def _warnings(patterns: list[str]) -> list[str]:
    """What to tell of shell patterns that may be mistyped."""
    if not patterns:
        return []
    from roost.event_patterns import unheard  # the models of all events: 0.5 s of processor time

    return unheard(patterns, lambda pattern, one: fnmatchcase(one, pattern))


def line(event: Event) -> str:
    """Time, type, and the fields that say something, cut to what a person reads: packed ads are for -json."""
    body = {k: v for k, v in event.body.items() if v not in ("", None, [], {}) and k not in ("at", "sender")}
    fields = " ".join(f"{k}={_told(v, _WIDEST)}" for k, v in body.items())
    at = event.body.get("at", 0.0)
    return f"{time.strftime('%H:%M:%S', time.localtime(at))}.{int(at * 1000) % 1000:03} {event.type:<18} {fields}"


def _told(value: Any, widest: int) -> str:
    if isinstance(value, float):
        return f"{value:.3f}"
    if isinstance(value, list):
        text = f"[{', '.join(_told(one, _WIDEST_INSIDE) for one in value)}]"
        widest = _WIDEST
    elif isinstance(value, dict):
        text = f"{{{', '.join(f'{name}={_told(one, _WIDEST_INSIDE)}' for name, one in value.items())}}}"
        widest = _WIDEST
    else:
        text = str(value).replace("\n", " ")
    return text if len(text) <= widest else f"{text[: widest - 3]}..."
