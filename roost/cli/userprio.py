"""`roost userprio`: users' priorities and usage, and an administrator's changes to them."""

from __future__ import annotations

import math
import re
import time
from datetime import datetime

from roost.cli import ad_formats, custom_columns, output
from roost.cli import priority_table as tables
from roost.cli.options import COMMON, Option, Parsed, flag, many, parse, usage, value
from roost.cli.output import number, say, span, text
from roost.client import Client
from roost.errors import UsageError
from shared.classad import ClassAd, evaluate, parse_expr, unparse

#: Option -> (what the negotiator calls it, what people do).
_CHANGES = {
    "setfactor": ("factor", "priority factor"),
    "setprio": ("priority", "priority"),
    "setaccum": ("accumulated", "accumulated usage"),
    "setbegin": ("begin", "begin usage time"),
    "setlast": ("last", "last usage time"),
    "setfloor": ("floor", "floor"),
    "setceiling": ("ceiling", "ceiling"),
}
#: Other spellings in use.
_SPELT = {"setfloor": ("set-floor",), "setceiling": ("setceil", "set-ceil", "set-ceiling")}
#: Options that choose columns.
_COLUMNS = {
    "all": tables.ALL,
    "most": tables.MOST,
    "quotas": tables.QUOTAS,
    "usage": tables.USAGE,
    "priority": tables.PRIORITIES,
    "surplus": frozenset(("surplus",)),
    "sortkey": frozenset(("sort_key",)),
    "order": frozenset(("order",)),
    "groupid": frozenset(("group_id",)),
}
OPTIONS: tuple[Option, ...] = (
    flag("allusers", help="users of all times, not only of the last day"),
    value("activefrom", help="users who used something since this date", metavar="MONTH DAY YEAR"),
    flag("all", help="all columns"),
    flag("most", help="the most useful columns (default)"),
    flag("priority", "prio", help="columns of priorities"),
    flag("usage", help="columns of usage"),
    flag("quotas", "quota", help="columns of group quotas"),
    flag("surplus", help="column of what groups do with surplus"),
    flag("sortkey", help="column of the groups' sort key"),
    flag("order", help="column of the groups' order in this table"),
    flag("groupid", help="column of the groups' numbers"),
    flag("hierarchical", help="users below their groups (default)"),
    flag("flat", help="users and groups in one list"),
    flag("grouporder", help="groups first, then users"),
    flag("grouprollup", help="groups with the sums of all groups below"),
    value("getreslist", help="slots that a user has", metavar="USER"),
    value("constraint", help="only ads for which this expression is true", metavar="EXPR"),
    flag("legacy", help="with -long: one ad for all, with numbered attributes"),
    flag("modular", help="with -long: an ad for each (default)"),
    flag("collector", help="ads from the collector, which has those of the last day"),
    flag("negotiator", help="ads from the negotiator (default)"),
    value("inputfile", help="ads of this file (as -long writes them) instead of a pool's", metavar="FILE"),
    value("name", help="which negotiator, where there are several", metavar="NEGOTIATOR"),
    *(
        many(name, *_SPELT.get(name, ()), help=f"set a user's {shown}", metavar="USER VALUE")
        for name, (_, shown) in _CHANGES.items()
    ),
    value("duration", help="with -setfactor, -setfloor, -setceiling: the old value comes back then", metavar="TIME"),
    many("resetusage", help="set a user's accumulated usage to zero", metavar="USER"),
    many("setquota", help="set a group's quota, in weighted slots, in place of the configuration's", metavar="GROUP N"),
    many("setdynamicquota", help="set it as a part of the quota of the group above, 0 to 1", metavar="GROUP PART"),
    many("unsetquota", help="give a group the configuration's quota again", metavar="GROUP"),
    flag("resetall", help="set everybody's accumulated usage to zero"),
    many("delete", help="forget a user", metavar="USER"),
    *output.FORMATS,
    *COMMON,
)
_DAY = 86400.0
_UNITS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": _DAY, "w": 7 * _DAY}


def run(command: str, argv: list[str]) -> int:
    parsed = parse(_dates_joined(argv), OPTIONS)
    if parsed.has("help"):
        summary = "Priorities and usage; a lower effective priority is a better one."
        say(usage(command, "[USER]...", summary, OPTIONS))
        return 0
    changes = _changes(parsed)
    if changes:
        _change(parsed, changes)
    elif parsed.has("getreslist"):
        _list_slots(parsed)
    else:
        _show(parsed)
    return 0


# --- changes


def _changes(parsed: Parsed) -> list[tuple[str, str, float | None, str]]:
    """(user, what, value, what to say) for each change asked for. Raises UsageError before any is made."""
    duration = _duration(parsed.one("duration"))
    found: list[tuple[str, str, float | None, str]] = []
    for option, (what, shown) in _CHANGES.items():
        values = parsed.all(option)
        if len(values) % 2 or (parsed.has(option) and not values):
            raise UsageError(f"-{option} wants a user and a number: -{option} USER VALUE")
        for user, written in zip(values[::2], values[1::2], strict=True):
            amount = _amount(option, user, written)
            until = f" for {span(duration)}" if duration else ""
            found.append((_full(option, user), what, amount, f"The {shown} of {user} was set to {amount:g}{until}"))
            if duration and what not in ("factor", "floor", "ceiling"):
                raise UsageError(f"-duration goes with -setfactor, -setfloor and -setceiling, not with -{option}")
    for option, what, done in (
        ("resetusage", "reset", "The accumulated usage of {} was set to zero"),
        ("delete", "delete", "The record of {} was deleted"),
    ):
        if parsed.has(option):
            if len(parsed.all(option)) != 1:
                raise UsageError(f"-{option} wants one user: -{option} USER")
            user = _full(option, parsed.all(option)[0])
            found.append((user, what, None, done.format(user)))
    found += _quotas(parsed)
    if parsed.has("resetall"):
        found.append(("", "reset-all", None, "The accumulated usage of all users was set to zero"))
    if duration and not any(what in ("factor", "floor", "ceiling") for _, what, _, _ in found):
        raise UsageError("-duration goes with -setfactor, -setfloor and -setceiling")
    return found


def _quotas(parsed: Parsed) -> list[tuple[str, str, float | None, str]]:
    """The changes of groups' quotas, likewise."""
    found: list[tuple[str, str, float | None, str]] = []
    for option, what, shown in (
        ("setquota", "quota", "quota of {} was set to {:g}"),
        ("setdynamicquota", "dynamic-quota", "quota of {} was set to {:g} of that of the group above"),
    ):
        values = parsed.all(option)
        if len(values) % 2 or (parsed.has(option) and not values):
            raise UsageError(f"-{option} wants a group and a number: -{option} GROUP NUMBER")
        for group, written in zip(values[::2], values[1::2], strict=True):
            amount = _amount(option, group, written)
            found.append((group, what, amount, f"The {shown.format(group, amount)}"))
    if parsed.has("unsetquota"):
        if len(parsed.all("unsetquota")) != 1:
            raise UsageError("-unsetquota wants one group: -unsetquota GROUP")
        group = parsed.all("unsetquota")[0]
        found.append((group, "no-quota", None, f"The quota of {group} is the configuration's again"))
    return found


def _change(parsed: Parsed, changes: list[tuple[str, str, float | None, str]]) -> None:
    if parsed.arguments:
        raise UsageError(f"{parsed.arguments[0]!r} does not belong to a change")
    duration = _duration(parsed.one("duration"))
    with Client(parsed.one("pool") or None) as client:
        for user, what, amount, done in changes:
            if what in ("quota", "dynamic-quota"):
                one, other = (amount, None) if what == "quota" else (None, amount)
                client.set_quota(user, one, dynamic=other, negotiator=parsed.one("name"))
            elif what == "no-quota":
                client.unset_quota(user, negotiator=parsed.one("name"))
            else:
                seconds = duration if what in ("factor", "floor", "ceiling") else 0.0
                client.set_priority(user, what, amount, duration=seconds, negotiator=parsed.one("name"))
            say(done)


def _amount(option: str, user: str, written: str) -> float:
    try:
        amount = float(written)
    except ValueError:
        amount = math.nan
    if not math.isfinite(amount):
        raise UsageError(f"-{option} {user}: {written!r} is not a number")
    return amount


def _full(option: str, user: str) -> str:
    if "@" not in user:
        raise UsageError(f"-{option} {user}: name the user in full, as user@domain")
    return user


def _duration(written: str) -> float:
    if not written:
        return 0.0
    matched = re.fullmatch(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)([smhdw]?)", written.strip().lower())
    seconds = float(matched[1]) * _UNITS[matched[2]] if matched else 0.0
    if not 0.0 < seconds <= 1e10:
        raise UsageError(f"-duration {written}: want a time such as 3600, 90m, 12h or 2d")
    return seconds


# --- what is shown


def _show(parsed: Parsed) -> None:
    now = time.time()
    since = _since(parsed, now)
    form = output.chosen(parsed)
    from_file = parsed.has("inputfile")
    written = output.ads_from(parsed.one("inputfile")) if from_file else []
    ads = [one for ad in written for one in tables.from_one(ad)] if from_file else _ads(parsed, 0.0 if form else since)
    # Of a file the table has everybody, as with HTCondor's tool: only -af and -long -modular choose.
    chooses = not from_file or (form and not (form == "long" and not parsed.has("modular")))
    numbers = {id(ad): number for number, ad in enumerate(ads, 1)}
    if parsed.arguments and not from_file:
        ads = [ad for ad in ads if _named(ad, parsed.arguments)]
    wanted = [parse_expr(term, syntax="old") for term in output.constraints(parsed)]
    if chooses:
        ads = [ad for ad in ads if all(evaluate(term, ad) is True for term in wanted)]
    if parsed.has("grouprollup") and not from_file:
        ads = tables.roll_up(ads)
    if form:
        _print(parsed, form, ads, written, numbers)
        return
    if from_file and not ads:
        return
    chosen = frozenset[str]().union(*(columns for option, columns in _COLUMNS.items() if parsed.has(option)))
    hierarchical, groups_first = _order(parsed)
    view = tables.View(
        columns=chosen or tables.MOST,
        since=since,
        now=now,
        hierarchical=hierarchical,
        groups_first=groups_first,
        quotas_asked=parsed.has("quotas") or parsed.has("surplus"),
        from_file=from_file,
    )
    for line in tables.table(ads, view):
        say(line)


def _order(parsed: Parsed) -> tuple[bool | None, bool]:
    """(users below their groups, None for where there are groups; groups first). The last option counts."""
    hierarchical, groups_first = None, False
    for name, _, _ in parsed.order:
        if name == "hierarchical":
            hierarchical, groups_first = True, False
        elif name in ("flat", "grouporder"):
            hierarchical, groups_first = False, groups_first or name == "grouporder"
    return hierarchical, groups_first


def _print(
    parsed: Parsed,
    form: str,
    ads: list[ClassAd],
    written: list[ClassAd] | None = None,
    numbers: dict[int, int] | None = None,
) -> None:
    """Ads in another form than the table. written: as the file has them that they come from; numbers: of each of them
    in the file, also where some are not chosen, by identity."""
    if form == "af":
        custom = custom_columns.columns(parsed)
        assert custom is not None
        if custom.mask.headings:
            output.write(custom.mask.heading())
        output.write("".join(custom.mask.lines(custom.mask.read(ads, one_by_one=True))))
        return
    only = output.attribute_names(parsed)
    if form == "long" and parsed.has("inputfile"):
        if parsed.has("modular"):
            for place, ad in enumerate(ads, 1):
                one = ClassAd((name, expr) for name, expr in ad.exprs() if name != "LastUpdate")
                one["SubmittorId"] = (numbers or {}).get(id(ad), place)
                output.write("\n" + ad_formats.text_of(one, "long", only))
        else:
            # What such an ad has besides its numbered attributes belongs to it, too.
            whole = [ad for ad in written or () if ad.lookup("NumSubmittors") is not None]
            whole = whole or ([tables.as_one(ads)] if ads else [])
            output.write("".join(ad_formats.text_of(ad, "long", only) for ad in whole))
        return
    if form == "long" and parsed.has("legacy"):
        ads = [tables.as_one(ads)]
    before, between, behind = ad_formats.frame(form)
    output.write(before)
    for place, ad in enumerate(ads):
        output.write((between if place else "") + ad_formats.text_of(ad, form, only) + ("\n" if form == "long" else ""))
    output.write(behind)


def _since(parsed: Parsed, now: float) -> float:
    """Who used nothing since then is not in the table; -1: everybody is. The last option counts."""
    asked = [name for name, _, _ in parsed.order if name in ("allusers", "activefrom")]
    if asked[-1:] != ["activefrom"]:
        return -1.0 if asked else now - _DAY
    month, day, year = (int(word) for word in parsed.one("activefrom").split("/"))
    try:
        return datetime(year + 2000 if year < 50 else year + 1900 if year < 1900 else year, month, day).timestamp()
    except (ValueError, OverflowError, OSError) as error:
        raise UsageError(f"-activefrom {month} {day} {year}: {error}") from error


def _dates_joined(argv: list[str]) -> list[str]:
    """The command line with the three words of -activefrom as one. Raises UsageError."""
    words = list(argv)
    for place, word in enumerate(words):
        if len(word) > 4 and "-activefrom".startswith(f"-{word.lstrip('-').lower()}") and word.startswith("-"):
            date = words[place + 1 : place + 4]
            if len(date) < 3 or not all(part.isdecimal() for part in date):
                raise UsageError("-activefrom wants three numbers: -activefrom MONTH DAY YEAR")
            return [*words[: place + 1], "/".join(date), *words[place + 4 :]]
    return words


def _ads(parsed: Parsed, active_since: float) -> list[ClassAd]:
    with Client(parsed.one("pool") or None) as client:
        if not parsed.has("collector"):
            since = active_since if active_since > 0 else 0.0
            return client.priorities(parsed.one("name"), submitters=parsed.arguments, active_since=since)
        constraint = f"NegotiatorName =?= {unparse(parsed.one('name'))}" if parsed.has("name") else ""
        found: dict[tuple[str, str], ClassAd] = {}
        for ad in client.ads("Accounting", constraint=constraint):
            key = (text(ad, "NegotiatorName"), text(ad, "Name"))
            # One that led before may have left its ads behind.
            if key not in found or number(ad, "LastUpdate") >= number(found[key], "LastUpdate"):
                found[key] = ad
    negotiators = sorted({negotiator for negotiator, _ in found})
    if len(negotiators) > 1:
        raise UsageError(f"the pool has several negotiators: name one ({', '.join(negotiators)}) with -name")
    return [found[key] for key in sorted(found)]


def _named(ad: ClassAd, names: list[str]) -> bool:
    name = text(ad, "Name")
    return name in names or name.partition("@")[0] in names


def _list_slots(parsed: Parsed) -> None:
    user = _full("getreslist", parsed.one("getreslist"))
    name = unparse(user)
    constraint = f"AccountingGroup =?= {name} || (AccountingGroup =?= undefined && RemoteUser =?= {name})"
    projection = ("Name", "EnteredCurrentState", "State", "PartitionableSlot")
    with Client(parsed.one("pool") or None) as client:
        found = client.ads("Machine", constraint=constraint, projection=projection)
        ads = [ad for ad in found if ad.eval("PartitionableSlot") is not True]
    if output.chosen(parsed):
        _print(parsed, output.chosen(parsed), ads)
        return
    say(f"{'Resource Name':<30} {' Start Time':>12} {' Match Time':>12}")
    say(f"{'-------------':<30} {' ----------':>12} {' ----------':>12}")
    for ad in sorted(ads, key=lambda ad: text(ad, "Name")):
        since = number(ad, "EnteredCurrentState")
        say(f"{text(ad, 'Name'):<30} {output.moment(since):>12} {span(time.time() - since):>12}")
    say(f"{'-------------':<30} {' ------------':>12} {' ------------':>12}")
    say(f"Number of Resources Used: {len(ads)}")
