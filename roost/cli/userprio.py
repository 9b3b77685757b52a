"""`roost userprio`: users' priorities and usage, and an administrator's changes to them."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence

from roost.cli import output
from roost.cli.options import COMMON, Option, flag, many, parse, usage, value
from roost.cli.output import moment, number, say, span, text
from roost.client import Client
from roost.errors import UsageError
from shared.classad import ClassAd

_CHANGES = {
    "setfactor": "factor",
    "setprio": "priority",
    "setaccum": "accumulated",
    "setbegin": "begin",
    "setlast": "last",
    "setfloor": "floor",
    "setceiling": "ceiling",
}
#: Other spellings in use.
_SPELT = {"setfloor": ("set-floor",), "setceiling": ("setceil", "set-ceil", "set-ceiling")}
OPTIONS: tuple[Option, ...] = (
    flag("all", help="real priority and first and last usage too"),
    flag("allusers", help="users of all times, not only of the last day"),
    *(
        many(name, *_SPELT.get(name, ()), help=f"set a user's {what}", metavar="USER VALUE")
        for name, what in _CHANGES.items()
    ),
    many("resetusage", help="set a user's accumulated usage to zero", metavar="USER"),
    many("delete", help="forget a user", metavar="USER"),
    value("name", "negotiator", help="which negotiator, where there are several", metavar="NEGOTIATOR"),
    *output.FORMATS,
    *COMMON,
)
_DAY = 86400.0


def run(command: str, argv: list[str]) -> int:
    parsed = parse(argv, OPTIONS)
    if parsed.has("help"):
        say(usage(command, "", "Priorities and usage; a lower effective priority is a better one.", OPTIONS))
        return 0
    with Client(parsed.one("pool") or None) as client:
        changed = False
        for option, what in [*_CHANGES.items(), ("resetusage", "reset"), ("delete", "delete")]:
            if parsed.has(option):
                user, amount = _change(option, parsed.all(option))
                client.set_priority(user, what, amount)
                say(f"The {what} of {user} was set to {amount:g}" if amount is not None else f"{user}: {what} done")
                changed = True
        if changed:
            return 0
        ads = client.priorities(parsed.one("name"))
    if output.chosen(parsed):
        output.show(parsed, ads)
        return 0
    now = time.time()
    if not parsed.has("allusers"):
        ads = [
            ad
            for ad in ads
            if number(ad, "ResourcesUsed") > 0
            or now - max(number(ad, "LastUsageTime"), number(ad, "LastUpdate") - _DAY) < _DAY
        ]
    ads.sort(key=lambda ad: (number(ad, "Priority"), text(ad, "Name")))
    heads, rows = _table(ads, now, everything=parsed.has("all"))
    say(f"Last Priority Update: {moment(max((number(ad, 'LastUpdate') for ad in ads), default=0) or now):>12}")
    for line in _ruled(heads, rows, _sums(ads, len(heads), everything=parsed.has("all"))):
        say(line)
    return 0


def _table(ads: list[ClassAd], now: float, *, everything: bool) -> tuple[list[tuple[str, str]], list[list[str]]]:
    """Headings of two lines each, and one row of cells a user."""
    heads = [("", "User Name"), ("Effective", "Priority")]
    heads += [("Real", "Priority")] if everything else []
    heads += [("Priority", "Factor"), ("Wghted", "In Use"), ("Total Usage", "(wghted-hrs)")]
    heads += [("Usage", "Start Time"), ("Last", "Usage Time")] if everything else []
    heads += [("Time Since", "Last Usage"), ("Submitter", "Floor"), ("Submitter", "Ceiling")]
    rows = []
    for ad in ads:
        factor, last = number(ad, "PriorityFactor"), number(ad, "LastUsageTime")
        cells = [text(ad, "Name"), _amount(number(ad, "Priority"))]
        cells += [_amount(number(ad, "Priority") / max(factor, 1e-9))] if everything else []
        cells += [
            _amount(factor),
            f"{number(ad, 'WeightedResourcesUsed', number(ad, 'ResourcesUsed')):g}",
            _amount(number(ad, "WeightedAccumulatedUsage") / 3600),
        ]
        cells += [_when(number(ad, "BeginUsageTime")), _when(last)] if everything else []
        floor, ceiling = number(ad, "Floor"), number(ad, "Ceiling", -1.0)
        cells += [_since(last, now), f"{floor:g}" if floor > 0 else "", f"{ceiling:g}" if ceiling >= 0 else ""]
        rows.append(cells)
    return heads, rows


def _sums(ads: list[ClassAd], columns: int, *, everything: bool) -> list[str]:
    in_use = sum(number(ad, "WeightedResourcesUsed", number(ad, "ResourcesUsed")) for ad in ads)
    hours = sum(number(ad, "WeightedAccumulatedUsage") for ad in ads) / 3600
    cells = [f"Number of users: {len(ads)}", "", *([""] if everything else []), "", f"{in_use:g}", _amount(hours)]
    return cells + [""] * (columns - len(cells))


def _ruled(heads: list[tuple[str, str]], rows: list[list[str]], sums: list[str]) -> list[str]:
    """Two lines of headings, the users, the sums, with rules between them."""
    cells = [*rows, sums]
    widths = [max(len(one), len(two), *(len(row[i]) for row in cells)) for i, (one, two) in enumerate(heads)]
    widths[0] = max(24, widths[0])

    def line(row: Sequence[str]) -> str:
        rest = [cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)]
        return " ".join([row[0].ljust(widths[0]), *rest]).rstrip()

    rule = " ".join("-" * width for width in widths)
    first, second = (line([head[n] for head in heads]) for n in (0, 1))
    return [first, second, rule, *(line(row) for row in rows), rule, line(sums)]


def _amount(number_shown: float) -> str:
    """Two digits after the point; very large ones as 5e+09."""
    return f"{number_shown:.2f}" if abs(number_shown) < 1e9 else f"{number_shown:.0e}"


def _change(option: str, values: list[str]) -> tuple[str, float | None]:
    if option in ("resetusage", "delete"):
        if len(values) != 1:
            raise UsageError(f"-{option} wants one user: -{option} USER")
        return values[0], None
    if len(values) != 2:
        raise UsageError(f"-{option} wants a user and a number: -{option} USER VALUE")
    try:
        amount = float(values[1])
    except ValueError:
        amount = math.nan
    if not math.isfinite(amount):
        raise UsageError(f"-{option} {values[0]}: {values[1]!r} is not a number")
    return values[0], amount


def _since(last: float, now: float) -> str:
    return span(now - last)[:-3] if last > 0 else "<none>"


def _when(seconds: float) -> str:
    return moment(seconds, "%m/%d/%Y %H:%M") if seconds > 0 else "???"
