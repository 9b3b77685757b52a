"""`roost pools`: this pool and others beside it, a line each."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from roost.cli import output
from roost.cli.options import COMMON, Option, flag, parse, usage
from roost.cli.output import say, span
from roost.client import Client
from roost.errors import UsageError

OPTIONS: tuple[Option, ...] = (flag("json", help="everything as JSON"), *COMMON)
_SUMMARY = (
    "This pool, and those that its gateway is told to ask (ROOST_GATEWAY_POOLS): cpus, jobs, and what needs attention "
    "there. Exit code 1: one could not be asked."
)
_HEADINGS: Final = ("Pool", "Cpus", "InUse", "GPUs", "Running", "Idle", "Held", "Users", "Release", "State")
_RIGHT: Final = (False, True, True, True, True, True, True, True, False, False)
_SPARE: Final = ("Release", "GPUs", "Users", "InUse")


def run(command: str, argv: list[str]) -> int:
    parsed = parse(argv, OPTIONS)
    if parsed.has("help"):
        say(usage(command, "", _SUMMARY, OPTIONS))
        return 0
    if parsed.arguments:
        raise UsageError(f"{parsed.arguments[0]!r} does not belong here; see roost pools -help")
    with Client(parsed.one("pool") or None) as client:
        pools = client.pools()
    if parsed.has("json"):
        say(json.dumps({"pools": pools}, indent=1))
    else:
        for line in lines(pools, time.time(), output.terminal_width()):
            say(line)
    return int(any(pool["error"] for pool in pools))


def lines(pools: Sequence[Mapping[str, Any]], now: float, screen: int = 0) -> Iterator[str]:
    """What is shown. `pools`: as the gateway tells them; screen: width that lines must fit in; 0: none."""
    rows = [_row(pool, now) for pool in pools]
    yield from output.lines(_HEADINGS, rows, _RIGHT, screen=screen, spare=_SPARE)
    for pool in pools:
        if pool["error"]:
            yield from output.wrapped(f"{pool['name']} can not be asked: {pool['error']}", screen)
    if len(pools) == 1:
        yield from output.wrapped("No other pools: ROOST_GATEWAY_POOLS names those that this gateway asks.", screen)


def _row(pool: Mapping[str, Any], now: float) -> tuple[str, ...]:
    use = "" if pool["utilisation"] is None else f"{100 * pool['utilisation']:.0f}%"
    counts = (pool[name] for name in ("running", "idle", "held", "users"))
    return (
        pool["name"] or "(this pool)",
        _number(pool["cpus"]),
        use,
        _number(pool["gpus"]),
        *map(_number, counts),
        pool["version"],
        _state(pool, now),
    )


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.0f}"


def _state(pool: Mapping[str, Any], now: float) -> str:
    if pool["error"]:
        return "not reached" if pool["at"] is None else f"not reached for {span(now - pool['at'])}"
    for level in ("error", "warning"):
        if number := pool[f"{level}_count"]:
            return f"{number} {level}{'s' * (number != 1)}: {pool['first']}"
    return "well"
