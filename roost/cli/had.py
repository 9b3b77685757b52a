"""`roost had`: who leads, and how the daemons that choose the active negotiator stand."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from roost.cli import output
from roost.cli.options import COMMON, Option, flag, parse, usage
from roost.cli.output import say, span
from roost.client import Client
from roost.errors import UsageError

OPTIONS: tuple[Option, ...] = (flag("json", help="everything as JSON"), *COMMON)
_SUMMARY = "Who leads, under which epoch, how the others stand, and which copies of the accountant's books there are."
#: Changes that are shown.
_CHANGES = 5


def run(command: str, argv: list[str]) -> int:
    parsed = parse(argv, OPTIONS)
    if parsed.has("help"):
        say(usage(command, "", _SUMMARY, OPTIONS))
        return 0
    if parsed.arguments:
        raise UsageError(f"{parsed.arguments[0]!r} does not belong here; see roost had -help")
    with Client(parsed.one("pool") or None) as client:
        hads = client.hads()
    if parsed.has("json"):
        say(json.dumps({"hads": hads}, indent=1))
        return 0
    output.tell(lines(hads, time.time(), output.terminal_width()))
    return 0


def lines(hads: Sequence[Mapping[str, Any]], now: float, screen: int = 0) -> Iterator[str]:
    """What is shown. `hads`: as the gateway tells them; screen: width that the table must fit in; 0: none."""
    if not hads:
        yield "No HAD is in the pool: its negotiators wait for one. Start it beside each of them."
        return
    shards = sorted({str(had["shard"]) for had in hads})
    for number, shard in enumerate(shards):
        if number:
            yield ""
        yield from _shard([had for had in hads if had["shard"] == shard], shard, now, screen)


def _shard(hads: Sequence[Mapping[str, Any]], shard: str, now: float, screen: int) -> Iterator[str]:
    said = [had for had in hads if not had.get("silent")]
    leaders = [had for had in said if had["state"] == "Leader"]
    name = f"Negotiator {shard}: " if shard else ""
    if leaders:
        led = max(leaders, key=lambda had: int(had["epoch"]))
        left = float(led["lease_left_s"])
        since = span(now - float(led["since"]))
        whole = f" of {float(led['lease_s']):.1f} s" if led.get("lease_s") else ""  # none: of an earlier version
        what = f"{left:.1f} s of its lease{whole} are left"
        yield f"{name}{led['had']} leads under epoch {led['epoch']}, for {since}; {what}"
    else:
        yield f"{name}Nobody leads."
    yield ""
    yield from output.lines(_HEADINGS, [_row(had, now) for had in hads], _RIGHT, screen=screen, spare=_SPARE)
    for had in hads:
        if had.get("silent"):
            yield f"{had['had']} does not answer: {had['silent']}"
        elif had["problem"]:
            yield f"{had['had']} can not copy the books to {had['snapshot_file']}: {had['problem']}"
    if said and not any(had["snapshot_file"] for had in said):
        yield "No copies of the accountant's books are kept (HAD_USE_REPLICATION is false)."
    changes = max((list(had["changes"]) for had in said), key=len, default=[])
    if changes:
        yield ""
        yield "Last changes:"
    for change in changes[:_CHANGES]:
        why = f": {change['reason']}" if change["reason"] else ""
        at = time.strftime("%m/%d %H:%M:%S", time.localtime(float(change["at"])))
        yield f"  {at} {change['had']} {change['state']}, epoch {change['epoch']}{why}"


_HEADINGS = ("Name", "State", "For", "Negotiator", "HeldBack", "InRedis", "Memory", "Copy", "Taken")
_RIGHT = (False, False, True, False, True, True, True, True, False)
_SPARE = ("Taken", "Copy", "HeldBack", "Memory", "InRedis")


def _row(had: Mapping[str, Any], now: float) -> tuple[str, ...]:
    if had.get("silent"):
        return (str(had["had"]), "silent", *[""] * 7)
    taken = float(had["snapshot_taken"])
    return (
        str(had["had"]),
        str(had["state"]),
        span(now - float(had["since"])),
        "answers" if had["answering"] else "silent",
        span(float(had["held_back_s"])) if had["held_back_s"] else "",
        str(had["in_redis"]),
        str(had["memory"]),
        str(had["snapshot"]) if taken else "",
        time.strftime("%m/%d %H:%M:%S", time.localtime(taken)) if taken else "",
    )
