"""What the commands to daemons share: the arguments that name daemons, and how answers are shown."""

from __future__ import annotations

import json
import socket
import sys
from collections.abc import Sequence
from typing import Any

from roost.cli.options import Parsed
from roost.cli.output import say
from roost.cli.paint import Paint
from roost.errors import UsageError
from roost.personal_config import tool_config


def targets_of(parsed: Parsed, *, needed: str = "") -> dict[str, Any]:
    """The daemons that a command line means: its arguments, -name, -constraint, -all, else those of this machine.
    needed: instead, what to say when nobody is named. Raises UsageError."""
    names = [*parsed.arguments, *parsed.all("name")]
    if parsed.has("all") and (names or parsed.has("constraint")):
        raise UsageError("-all means everybody: leave names and -constraint out")
    if not names and not parsed.has("all") and not parsed.has("constraint"):
        if needed:
            raise UsageError(needed)
        names = [tool_config().get("FULL_HOSTNAME") or socket.gethostname()]
    return {"names": names, "all": parsed.has("all"), "constraint": parsed.one("constraint")}


def report(parsed: Parsed, answers: Sequence[dict[str, Any]], done: str = "") -> int:
    """Show what each daemon answered: a line each. done: what is said of one that tells nothing else. The exit code."""
    failed = [answer for answer in answers if not answer["done"]]
    if parsed.has("json"):
        say(json.dumps(answers, indent=1))
        return 1 if failed else 0
    paint = Paint.of_terminal(sys.stderr)
    alike: dict[str, list[str]] = {}  # what daemons without slots say -> who says it
    for answer in answers:
        who = f"{answer['subsystem'].lower()} {answer['name']}"
        if not answer["done"]:
            sys.stderr.write(f"{paint.bad(who)}: {answer['said']}\n")
            continue
        for line in _lines(answer, done):
            if "slots" in answer:
                say(f"{who}: {line}")
            else:
                alike.setdefault(line, []).append(who)
        for name in answer.get("unknown", ()):
            failed.append(answer)
            sys.stderr.write(f"{who}: there is no slot {name}\n")
        for warning in answer.get("warnings", ()):
            sys.stderr.write(f"{paint.warn('WARNING:')} {who}: {warning}\n")
    for line, who_all in alike.items():
        many = f"{len(who_all)} daemons ({', '.join(who_all)})"
        say(f"{who_all[0] if len(who_all) == 1 else many}: {line}")
    return 1 if failed else 0


def _lines(answer: dict[str, Any], done: str) -> list[str]:
    if "slots" in answer:
        told = [f"{slot}: {said}" for slot, said in answer["slots"].items()]
        return told or ([] if answer.get("unknown") else ["no claim, match or backfill to end"])
    if "changed" not in answer:
        return [answer.get("said") or done]
    if not answer["changed"]:
        return [f"{done}, nothing has changed"]
    now = [name for name in answer["changed"] if name not in answer["at_start"]]
    parts = [done]
    if now:
        parts.append(f"in force: {', '.join(now)}")
    if answer["at_start"]:
        parts.append(f"after a restart: {', '.join(answer['at_start'])}")
    return ["; ".join(parts)]
