"""`roost vacate | drain | undrain | update-machine-ad`: orders to execution points."""

from __future__ import annotations

from typing import Any, Final

from roost.cli.daemon_commands import report, targets_of
from roost.cli.options import COMMON, Option, Parsed, flag, many, parse, usage, value
from roost.cli.output import ads_with_places, say
from roost.client import Client
from roost.errors import UsageError

_WHO: tuple[Option, ...] = (
    flag("all", "a", help="all machines of the pool"),
    value("name", "n", help="the machine, startd or slot of this name", metavar="NAME"),
    value("constraint", help="slots whose ad fits this expression", metavar="EXPR"),
)
_END: tuple[Option, ...] = (flag("json", help="the answers as JSON"), *COMMON)
_CANCEL: tuple[Option, ...] = (
    value("request-id", help="only the draining of this id; of any other it is an error", metavar="ID"),
)

OPTIONS: Final[dict[str, tuple[Option, ...]]] = {
    "vacate": (
        *_WHO,
        flag("graceful", help="jobs are asked to leave first (so without this)"),
        flag("fast", help="jobs are killed"),
        *_END,
    ),
    "drain": (
        *_WHO,
        flag("graceful", help="jobs keep the time they were promised, then they are asked to leave (so without this)"),
        flag("quick", help="jobs are asked to leave now"),
        flag("fast", help="jobs are killed"),
        value("reason", help="shown in the machine's ads", metavar="TEXT"),
        flag("resume-on-completion", help="once all slots are empty the machine takes jobs again"),
        flag("restart-on-completion", help="once all slots are empty the startd restarts, and takes jobs again"),
        flag("exit-on-completion", help="once all slots are empty the startd is off, until roost on"),
        value("check", help="unless this is true of every slot, the machine is not drained", metavar="EXPR"),
        value("start", help="START while older jobs still run: of jobs that may begin meanwhile", metavar="EXPR"),
        flag("cancel", help="end a draining, as roost undrain"),
        *_CANCEL,
        *_END,
    ),
    "undrain": (*_WHO, *_CANCEL, *_END),
    "update-machine-ad": (
        *_WHO,
        many("remove", help="attributes that are no more to be as they were set", metavar="ATTRIBUTE"),
        *_END,
    ),
}
_ARGUMENTS: Final = {
    "vacate": "[NAME...]",
    "drain": "MACHINE...",
    "undrain": "MACHINE...",
    "update-machine-ad": "[FILE]",
}
_SUMMARY: Final = {
    "vacate": "End the claims of slots; their jobs start again elsewhere. NAME is a slot's or a machine's; none: this\n"
    "machine. (roost vacate-job does the same to jobs.)",
    "drain": "Let machines become empty, and take no further jobs.",
    "undrain": "End a draining: the machines take jobs again.",
    "update-machine-ad": "Show attributes in the ads of all slots of a machine, until its startd restarts. FILE has\n"
    "lines Attribute = expression; none, or -: standard input. Without -name: this machine.",
}


def run(command: str, argv: list[str]) -> int:
    options = OPTIONS[command]
    parsed = parse(argv, options)
    if parsed.has("help"):
        say(usage(command, _ARGUMENTS[command], _SUMMARY[command], options))
        return 0
    if command == "drain" and parsed.has("cancel"):
        command = "undrain"
        _only(parsed, ("cancel", "request-id", "name", "constraint", "all", "json", "pool"), "-cancel")
    if command == "vacate":
        path, order = "vacate", targets_of(parsed) | {"how": _one_of(parsed, ("graceful", "fast")) or "graceful"}
    elif command == "drain":
        path, order = "drain", _draining(parsed)
    elif command == "undrain":
        path = "cancel-drain"
        order = targets_of(parsed, needed="which machine? roost undrain MACHINE, or -all")
        order |= {"request_id": parsed.one("request-id")}
    else:
        path, order = "update-ad", _attributes(parsed)
    with Client(parsed.one("pool") or None) as client:
        answers = client.order(f"/v1/machines/{path}", order)
    return report(parsed, answers, "done")


def _draining(parsed: Parsed) -> dict[str, Any]:
    if parsed.has("request-id"):
        raise UsageError("-request-id belongs to -cancel: a new draining gets its own id")
    after = _one_of(parsed, ("resume-on-completion", "restart-on-completion", "exit-on-completion"))
    return targets_of(parsed, needed="which machine? roost drain MACHINE, or -all") | {
        "how": _one_of(parsed, ("graceful", "quick", "fast")) or "graceful",
        "reason": parsed.one("reason"),
        "on_completion": after.partition("-")[0] or "nothing",
        "check": parsed.one("check"),
        "start": parsed.one("start"),
    }


def _attributes(parsed: Parsed) -> dict[str, Any]:
    """One ad of a file. -remove needs none."""
    files, parsed.arguments = parsed.arguments, []
    if len(files) > 1:
        raise UsageError("one file only; machines are named with -name")
    removed = parsed.all("remove")
    attributes = {}
    if files or not removed:
        source = files[0] if files else "-"
        ads, _ = ads_with_places(source)
        if len(ads) != 1:
            raise UsageError(f"{source}: want one ad, lines of Attribute = expression, and found {len(ads)}")
        attributes = {name: str(ads[0].lookup(name)) for name in ads[0]}
    return targets_of(parsed) | {"attributes": attributes, "removed": removed}


def _one_of(parsed: Parsed, names: tuple[str, ...]) -> str:
    given = [name for name in names if parsed.has(name)]
    if len(given) > 1:
        raise UsageError(f"-{given[0]} and -{given[1]} do not go together")
    return given[0] if given else ""


def _only(parsed: Parsed, names: tuple[str, ...], by: str) -> None:
    for name in parsed.values:
        if name not in names:
            raise UsageError(f"-{name} has no effect with {by}; leave it out")
