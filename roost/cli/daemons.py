"""`roost reconfig | restart | off | on`: orders to daemons."""

from __future__ import annotations

import sys
from typing import Any, Final

from roost.cli.daemon_commands import report, targets_of
from roost.cli.options import COMMON, Option, Parsed, flag, parse, usage, value
from roost.cli.output import say
from roost.client import Client
from roost.errors import UsageError

_SUMMARY: Final = {
    "reconfig": "Have daemons read their configuration again. Tells what has changed, and what waits for a restart.",
    "restart": "Have daemons end in good order and start again. Running jobs go on.",
    "off": "Switch daemons off until `roost on`, also over restarts. A startd stays, empty, and takes no jobs.",
    "on": "Switch daemons on again.",
}
_WHOM: Final = "NAME is a daemon's or a machine's; none: this machine's daemons."
#: Option -> subsystem.
_KINDS: Final = {
    "startd": "STARTD",
    "schedd": "SCHEDD",
    "negotiator": "NEGOTIATOR",
    "collector": "COLLECTOR",
    "had": "HAD",
    "journal": "JOURNAL",
    "gangliad": "GANGLIAD",
    "adstash": "ADSTASH",
    "defrag": "DEFRAG",
    "rooster": "ROOSTER",
    "registrar": "REGISTRAR",
    "gateway": "GATEWAY",
}
#: What HTCondor has daemons of its own for, and why there is none here.
_NONE: Final = {
    "REPLICATION": "the HADs replicate: use -had",
    "MASTER": "a master takes no orders: name daemons, or -all",
    "SHADOW": "jobs have no shadows",
    "STARTER": "jobs have no starters",
}

_WHO: tuple[Option, ...] = (
    flag("all", "a", help="all daemons of the pool"),
    value("name", "n", help="the daemon or machine of this name", metavar="NAME"),
    value("constraint", help="daemons whose ad fits this expression", metavar="EXPR"),
    value("subsystem", "daemon", help="only daemons of this kind", metavar="KIND"),
    *(flag(name, help=f"only {name}s") for name in _KINDS),
)
_HOW: tuple[Option, ...] = (
    flag("graceful", help="jobs keep the time they were promised, then they are asked to leave (so without this)"),
    flag("peaceful", help="jobs run to their end"),
    flag("fast", help="jobs are killed"),
)
OPTIONS: Final[dict[str, tuple[Option, ...]]] = {
    "reconfig": (*_WHO, flag("json", help="the answers as JSON"), *COMMON),
    "restart": (*_WHO, *_HOW, flag("json", help="the answers as JSON"), *COMMON),
    "off": (
        *_WHO,
        *_HOW,
        value("reason", help="told of what is off", metavar="TEXT"),
        flag("json", help="the answers as JSON"),
        *COMMON,
    ),
    "on": (*_WHO, flag("json", help="the answers as JSON"), *COMMON),
}


def run(command: str, argv: list[str]) -> int:
    options = OPTIONS[command]
    parsed = parse(argv, options)
    if parsed.has("help"):
        say(usage(command, "[NAME...]", f"{_SUMMARY[command]}\n{_WHOM}", options))
        return 0
    order: dict[str, Any] = targets_of(parsed) | {"subsystems": _subsystems(parsed)}
    if command == "off":
        order |= {"how": _how(parsed), "reason": parsed.one("reason")}
    elif command == "restart" and (how := _how(parsed)) != "graceful":
        sys.stderr.write(f"WARNING: -{how} makes no difference: a restart ends no job\n")
    with Client(parsed.one("pool") or None) as client:
        answers = client.order(f"/v1/daemons/{command}", order)
    return report(parsed, answers, {"reconfig": "reconfigured"}.get(command, ""))


def _how(parsed: Parsed) -> str:
    given = [how for how in ("graceful", "peaceful", "fast") if parsed.has(how)]
    if len(given) > 1:
        raise UsageError(f"-{given[0]} and -{given[1]} do not go together")
    return given[0] if given else "graceful"


def _subsystems(parsed: Parsed) -> list[str]:
    chosen = [kind for name, kind in _KINDS.items() if parsed.has(name)]
    for word in parsed.all("subsystem"):
        kind = word.lstrip("-").upper().removeprefix("CONDOR_")
        if kind in _NONE:
            raise UsageError(f"-subsystem {word}: {_NONE[kind]}")
        if kind not in _KINDS.values():
            raise UsageError(f"-subsystem {word}: there are {', '.join(_KINDS)}")
        chosen.append(kind)
    return list(dict.fromkeys(chosen))
