"""`roost status`: slots and daemons of the pool, in HTCondor's layouts."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable

from roost.cli import output
from roost.cli.options import COMMON, Option, Parsed, flag, parse, usage, value
from roost.cli.output import Column, number, say, span, text
from roost.client import Client
from shared.classad import ClassAd

OPTIONS: tuple[Option, ...] = (
    flag("compact", help="one line a machine"),
    flag("claimed", help="claimed slots and who uses them"),
    flag("avail", help="slots that are free"),
    flag("submitters", help="users with jobs"),
    flag("schedd", help="access points"),
    flag("negotiator", help="negotiators"),
    flag("had", help="the daemons that choose the active negotiator"),
    flag("collector", help="collectors"),
    flag("any", help="everything there is"),
    flag("absent", help="machines that went away"),
    flag("run", help="access points with their running jobs (with -slot: claimed slots)"),
    flag("slot", help="slots, with -run"),
    flag("total", "totals", help="totals only"),
    value("constraint", help="only ads for which this expression is true", metavar="EXPR"),
    value("limit", help="at most so many ads", metavar="N"),
    value("ads", help="ads of this file (as -long or -json writes them) instead of a pool's", metavar="FILE"),
    *output.FORMATS,
    *COMMON,
)

#: Heading of the totals -> state it counts.
STATES = {
    "Owner": "Owner",
    "Claimed": "Claimed",
    "Unclaimed": "Unclaimed",
    "Matched": "Matched",
    "Preempting": "Preempting",
    " Drain": "Drained",
    "Backfill": "Backfill",
    "BkIdle": "",
}
_KINDS = {
    "submitters": "Submitter",
    "schedd": "Scheduler",
    "negotiator": "Negotiator",
    "had": "HAD",
    "collector": "Collector",
}
_SLOT = (
    "Name",
    "Machine",
    "OpSys",
    "Arch",
    "State",
    "Activity",
    "OpSysAndVer",
    "LoadAvg",
    "CondorLoadAvg",
    "TotalLoadAvg",
    "Mips",
    "KFlops",
    "TotalSlotGPUs",
    "GPUs",
    "MaxJobMemory",
    "Memory",
    "Cpus",
    "MyCurrentTime",
    "EnteredCurrentActivity",
    "RemoteOwner",
    "RemoteUser",
    "JobId",
    "PartitionableSlot",
    "DynamicSlot",
    "TotalSlots",
    "TotalCpus",
    "TotalMemory",
    "TotalSlotCpus",
    "TotalSlotMemory",
    "LastHeardFrom",
    "ClientMachine",
    "SlotID",
)


def run(command: str, argv: list[str]) -> int:
    parsed = parse(argv, OPTIONS)
    if parsed.has("help"):
        say(usage(command, "[MACHINE]...", "Slots and daemons of the pool.", OPTIONS))
        return 0
    kind = next((k for k in _KINDS if parsed.has(k)), "schedd" if parsed.has("run") and not parsed.has("slot") else "")
    types = [] if parsed.has("any") else [_KINDS[kind]] if kind else ["Machine"]
    found = _from_file(parsed, types) if parsed.has("ads") else _from_pool(parsed, types)
    # A cut is what the pool gave first; what is shown stands in the usual order.
    found.sort(key=_by_name)
    if output.chosen(parsed):
        output.show(parsed, found)
        return 0
    if not found:
        return 0
    if parsed.has("any"):
        body, sums = output.table(_ANY, found, pad=True), []
    elif kind:
        body, sums = output.table(_COLUMNS[kind], found), (_TOTALS[kind](found) if kind in _TOTALS else [])
    else:
        body, sums = _slots(parsed, found, time.time())
    if parsed.has("total"):
        body = []
    if body:
        body.insert(1, "")
    for line in body:
        say(line)
    if sums:
        say()
        for line in sums:
            say(line)
    return 0


def _from_pool(parsed: Parsed, types: list[str]) -> list[ClassAd]:
    with Client(parsed.one("pool") or None) as client:
        found = list(
            client.ads(
                *types,
                constraint=_constraint(parsed),
                projection=output.projection(parsed, list(_SLOT) if types == ["Machine"] else []),
                limit=parsed.integer("limit", 0),
                absent=parsed.has("absent"),
            )
        )
    if not output.chosen(parsed):
        for ad in found:  # our startds tell the machine's load only
            if "CondorLoadAvg" not in ad and "LoadAvg" in ad:
                ad["CondorLoadAvg"] = number(ad, "LoadAvg")
    return found


def _from_file(parsed: Parsed, types: list[str]) -> list[ClassAd]:
    ads = output.ads_from(parsed.one("ads"), _constraint(parsed))
    chosen = [ad for ad in ads if not types or text(ad, "MyType", types[0]) in types]
    limit = parsed.integer("limit", 0)
    return chosen[:limit] if limit else chosen


def _constraint(parsed: Parsed) -> str:
    terms = output.constraints(parsed)
    if parsed.arguments:
        names = [json.dumps(word) for word in parsed.arguments]
        terms.append("(" + " || ".join(f"Machine == {n} || Name == {n}" for n in names) + ")")
    if parsed.has("claimed") or (parsed.has("run") and parsed.has("slot")):
        terms.append('State == "Claimed"')
    if parsed.has("avail"):
        terms.append('State == "Unclaimed"')
    if parsed.has("absent"):
        terms.append("Absent =?= true")
    return " && ".join(terms)


def _by_name(ad: ClassAd) -> tuple[str, str, int, int]:
    """By machine, and slots of a machine in order of their numbers."""
    name = text(ad, "Name")
    slot, at, machine = name.partition("@")
    digits = slot.removeprefix("slot").split("_")
    if not at or not all(d.isdigit() for d in digits):
        return (text(ad, "Machine", name), name, 0, 0)
    return (machine, "slot", int(digits[0]), int(digits[1]) if len(digits) > 1 else -1)


def _t(name: str, missing: str | None = "") -> Callable[[ClassAd], str | None]:
    return lambda ad: shown if (shown := text(ad, name)) else missing


def _n(name: str) -> Callable[[ClassAd], str | None]:
    return lambda ad: str(int(number(ad, name))) if isinstance(ad.eval(name), int | float) else None


def _load(ad: ClassAd) -> str | None:
    load = ad.eval("CondorLoadAvg")
    return f"{load:.3f}" if isinstance(load, int | float) else None


def _slots(parsed: Parsed, ads: list[ClassAd], now: float) -> tuple[list[str], list[str]]:
    """The table of slots, and their totals."""
    if parsed.has("compact"):
        return _compact(ads), totals(ads, _compact_platform)
    head = [
        Column("Name", _t("Name"), least=18),
        Column("OpSys", _t("OpSys"), least=10),
        Column("Arch", _t("Arch"), least=6),
    ]
    if parsed.has("claimed") or parsed.has("run"):
        tail = [
            Column("LoadAv", _load, right=True, least=6),
            Column("RemoteUser", _t("RemoteUser", None), least=20),
            Column("ClientMachine", _t("ClientMachine", None), least=16),
        ]
        head[1] = Column("OpSys", _t("OpSys"), least=11)
        return output.table([*head, *tail], ads, pad=True), _speed_totals(ads)
    tail = [
        Column("State", _t("State"), least=9),
        Column("Activity", _t("Activity"), least=8),
        Column("LoadAv", _load, right=True, least=6),
        Column("Mem", _n("Memory"), right=True, least=5),
        Column("  ActvtyTime", lambda ad: _activity_time(ad, now), right=True, least=12, joined=True),
    ]
    return output.table([*head, *tail], ads, pad=True), totals(ads)


def _activity_time(ad: ClassAd, now: float) -> str:
    current = number(ad, "MyCurrentTime", number(ad, "LastHeardFrom", now))
    return span(current - number(ad, "EnteredCurrentActivity"))


_SHORT_ARCH = {"X86_64": "x64", "INTEL": "x86"}


def _platform(ad: ClassAd) -> str:
    return f"{text(ad, 'Arch', '?')}/{text(ad, 'OpSys', '?')}"


def _compact_platform(ad: ClassAd) -> str:
    arch = text(ad, "Arch", "?")
    return f"{_SHORT_ARCH.get(arch, arch)}/{text(ad, 'OpSysAndVer') or text(ad, 'OpSys', '?')}"


def _compact(ads: list[ClassAd]) -> list[str]:
    """One line a machine: what it has, what of it is free, and the states of its slots by their first letters."""
    machines: dict[str, list[ClassAd]] = {}
    for ad in ads:
        machines.setdefault(text(ad, "Machine"), []).append(ad)
    headings = ["Machine", "Platform", "Slots", "Cpus", "Gpus", " TotalGb", "FreCpu", " FreeGb", " CpuLoad", "ST"]
    rows = [_machine(machine, slots) for machine, slots in machines.items()]
    return output.lines(headings, rows, [False, False, *[True] * 7, False])


def _machine(machine: str, slots: list[ClassAd]) -> list[str]:
    parents = [ad for ad in slots if ad.eval("PartitionableSlot") is True]
    whole = parents or [ad for ad in slots if ad.eval("DynamicSlot") is not True] or slots
    dynamic = [ad for ad in slots if ad.eval("DynamicSlot") is True]
    free = parents or [ad for ad in whole if text(ad, "State") in ("Unclaimed", "Owner")]
    states = {(text(ad, "State", "?")[0] + text(ad, "Activity", "?")[0].lower()) for ad in dynamic or whole}
    gpus = sum(number(ad, "TotalSlotGPUs", number(ad, "GPUs")) for ad in whole)
    return [
        machine,
        _compact_platform(whole[0]),
        f"{len(dynamic)} " if parents else f"{len(whole)}S",
        str(int(sum(number(ad, "TotalSlotCpus", number(ad, "Cpus")) for ad in whole))),
        str(int(gpus)) if gpus else "",
        f"{sum(number(ad, 'TotalSlotMemory', number(ad, 'Memory')) for ad in whole) / 1024:.2f}",
        str(int(sum(number(ad, "Cpus") for ad in free))),
        f"{sum(number(ad, 'Memory') for ad in free) / 1024:.2f}",
        f"{sum(number(ad, 'CondorLoadAvg', number(ad, 'LoadAvg')) for ad in whole):.2f}",
        states.pop() if len(states) == 1 else "**",
    ]


def _grouped(ads: list[ClassAd], key: Callable[[ClassAd], str]) -> dict[str, list[ClassAd]]:
    groups: dict[str, list[ClassAd]] = {}
    for ad in ads:
        groups.setdefault(key(ad), []).append(ad)
    return dict(sorted(groups.items()))


def _sums(headings: list[str], rows: list[list[str]], least: int = 14) -> list[str]:
    """Totals as HTCondor sets them: heading, groups and sum parted by empty lines. The last row is the sum."""
    first, *others = output.lines(headings, rows, [True] * len(headings), [least])
    return [first, "", *others[:-1], "", others[-1]]


def totals(ads: list[ClassAd], key: Callable[[ClassAd], str] = _platform) -> list[str]:
    """Slots by platform and state."""

    def row(name: str, slots: list[ClassAd]) -> list[str]:
        counts = Counter(text(ad, "State") for ad in slots)
        return [name, str(len(slots)), *(str(counts[state]) if state else "0" for state in STATES.values())]

    rows = [row(name, slots) for name, slots in _grouped(ads, key).items()]
    return _sums(["", "Total", *STATES], [*rows, row("Total", ads)])


def _speed_totals(ads: list[ClassAd]) -> list[str]:
    def row(name: str, slots: list[ClassAd]) -> list[str]:
        mips, kflops = (sum(int(number(ad, what)) for ad in slots) for what in ("Mips", "KFlops"))
        load = sum(number(ad, "LoadAvg") for ad in slots) / len(slots)
        return [name, str(len(slots)), str(mips), str(kflops), f"{load:.3f}"]

    rows = [row(name, slots) for name, slots in _grouped(ads, _platform).items()]
    headings = ["", "Machines", "        MIPS", "      KFLOPS", "  AvgLoadAvg"]
    lines = _sums(headings, [*rows, row("Total", ads)])
    # The load stands four to the left.
    return [line[:-12] + line[-12:].strip().rjust(7) if line and line != lines[0] else line for line in lines]


def _submitter_totals(ads: list[ClassAd]) -> list[str]:
    names = ("RunningJobs", "IdleJobs", "HeldJobs")

    def row(name: str, found: list[ClassAd]) -> list[str]:
        return [name, *(str(int(sum(number(ad, what) for ad in found))) for what in names)]

    rows = [row(name, found) for name, found in _grouped(ads, lambda ad: text(ad, "Name")).items()]
    width = max(14, *(len(r[0]) for r in rows))
    shown = [f"{name:>{width}}" + "".join(f"{n:>11}" for n in counts) for name, *counts in [*rows, row("Total", ads)]]
    heading = " " * width + "RunningJobs   IdleJobs   HeldJobs"
    return [heading, "", *shown[:-1], "", shown[-1]]


def _schedd_totals(ads: list[ClassAd]) -> list[str]:
    names = ("TotalRunningJobs", "TotalIdleJobs", "TotalHeldJobs")
    sums = [int(sum(number(ad, what) for ad in ads)) for what in names]
    widths = (18, 19, 19)
    heading = " " * 14 + "".join(f"{name:>{w}}" for name, w in zip(names, widths, strict=True))
    return [heading, "", " " * 14, f"{'Total':>14}" + "".join(f"{n:>{w}}" for n, w in zip(sums, widths, strict=True))]


_ANY = [
    Column("MyType", _t("MyType", "None"), least=18),
    Column("TargetType", lambda _: "None", least=18),
    Column("Name", _t("Name", "?"), least=41),
]


def _jobs_columns(prefix: str, machine: Callable[[ClassAd], str | None]) -> list[Column]:
    return [
        Column("Name", _t("Name")),
        Column("Machine", machine),
        Column("RunningJobs", _n(f"{prefix}RunningJobs"), right=True),
        Column("  IdleJobs", _n(f"{prefix}IdleJobs"), right=True),
        Column("  HeldJobs", _n(f"{prefix}HeldJobs"), right=True),
    ]


_COLUMNS = {
    "submitters": _jobs_columns("", lambda ad: text(ad, "Machine") or text(ad, "ScheddName")),
    "schedd": _jobs_columns("Total", _t("Machine")),
    "negotiator": [
        Column("Name", _t("Name"), least=20),
        Column("Active", _t("NegotiatorIsActive")),
        Column("Epoch", _n("Epoch"), right=True, least=6),
        Column("Cycles", _n("Cycles"), right=True, least=8),
    ],
    "had": [
        Column("Name", _t("Name"), least=20),
        Column("HadIsActive", _t("HadIsActive")),
        Column("HadState", _t("HadState")),
        Column("Epoch", _n("HadEpoch"), right=True, least=6),
        Column("Since", lambda ad: output.moment(number(ad, "HadStateSince")), least=11),
    ],
    "collector": [
        Column("Name", _t("Name")),
        Column("Machine", _t("Machine"), least=18),
        Column("RunningJobs", _n("RunningJobs"), right=True),
        Column("IdleJobs", _n("IdleJobs"), right=True),
        Column("HostsTotal", _n("HostsTotal"), right=True),
    ],
}
_TOTALS: dict[str, Callable[[list[ClassAd]], list[str]]] = {
    "submitters": _submitter_totals,
    "schedd": _schedd_totals,
}
