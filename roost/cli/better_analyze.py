"""`roost q -better-analyze`, `-analyze` and `-reverse-analyze`: which slots suit a job and which condition rejects the
others, in HTCondor's words. It compares ads as they are; `roost analyze` asks the negotiator, and tells more."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from roost.cli.conditions import INLINE, Conditions
from roost.cli.output import expression
from shared.classad import UNDEFINED, ClassAd, evaluate, half_match, is_true, parse_expr, unparse
from shared.classad.expr import AttrRef, Expr, fold

WIDTH: Final = 80
_INDENT: Final = 4
_NAMES: Final = 100  # characters of the names behind a count
_UNITS: Final = {"RequestMemory": " (mb)", "RequestDisk": " (kb)", "Memory": " (mb)", "Disk": " (kb)"}
_MEANT: Final = frozenset((5, 10, 11, 13))  # universes that need no warning
_RESOURCES: Final = "Cpus Memory Disk Swap"
_WARNINGS: Final = {
    7: "WARNING: Analysis is meaningless for Scheduler universe jobs.\n\n",
    8: "WARNING: Analysis is meaningless for MPI universe jobs.\n\n",
    9: "WARNING: Analysis is only meaningful for Grid universe jobs using matchmaking.\n\n",
}
_RUNNING: Final = (2, 6, 7)
_STATES: Final = {2: "running", 3: "removed", 4: "completed", 5: "held", 6: "running", 7: "running"}
_HEADINGS: Final = {"Slots": "         Slots", "Clusters": "       Clusters"}
_SUMMARY: Final = """\
               Autocluster    Matches     Machine     Running     Serving            \n\
 JobId        Members/Idle Requirements Rejects Job  Users Job  Other User Available Owner
------------- ------------ ------------ ----------- ----------- ---------- --------- -----
"""


#: Jobs that are alike, and the number of their autocluster.
_Kinds: TypeAlias = "list[tuple[list[ClassAd], int | None]]"


@dataclass(slots=True)
class Asked:
    """How the analysis is shown. better: with the conditions; machine: the name that was given for the slots."""

    better: bool = True
    summary: bool = False
    reverse: bool = False
    verbose: bool = False
    width: int = WIDTH
    machine: str = ""


@dataclass(slots=True)
class _Tally:
    """Slots by what they are to a job, each by its name."""

    slots: int = 0
    rejected: list[str] = field(default_factory=list)
    rejecting: list[str] = field(default_factory=list)
    mine: list[str] = field(default_factory=list)
    others: list[str] = field(default_factory=list)
    offline: list[str] = field(default_factory=list)
    free: int = 0


def select_slots(ads: Sequence[ClassAd], machine: str, constraint: str) -> list[ClassAd]:
    """The slots that are meant, by machine and number. Raises UsageError."""
    if constraint:
        wanted = expression(constraint, "mconstraint")
        ads = [ad for ad in ads if evaluate(wanted, ad) is True]
    if machine:
        key = fold(machine)
        ads = [ad for ad in ads if key in (fold(ad.eval_string("Name")), fold(ad.eval_string("Machine")))]
    return sorted(ads, key=lambda ad: (f"{ad.eval_string('Machine')}/", _integer(ad, "SlotID"), _name(ad)))


def analysis(jobs: Sequence[ClassAd], slots: Sequence[ClassAd], asked: Asked) -> Iterator[str]:
    """The text, in pieces."""
    now = parse_expr("time()")
    for ad in (*jobs, *slots):
        if "CurrentTime" not in ad:
            ad["CurrentTime"] = now
    if asked.reverse:
        yield from _reverse(jobs, slots, asked)
    elif asked.summary:
        yield from _summary(jobs, slots, asked)
    else:
        for job in jobs:
            yield from _job(job, slots, asked)


# --- one job


def _job(job: ClassAd, slots: Sequence[ClassAd], asked: Asked) -> Iterator[str]:
    title = f"{_integer(job, 'ClusterId')}.{_integer(job, 'ProcId'):03}"
    universe = _integer(job, "JobUniverse")
    local = universe in (7, 12)
    tally = _tally(job, [_whole(slot, job) for slot in slots if not is_true(slot.eval("DynamicSlot"))])
    served = "Owner" in job and not local
    if asked.better or (served and tally.rejected):
        yield from _conditions_of_job(job, slots, title, asked)
        if universe not in _MEANT:
            yield _WARNINGS.get(universe, "WARNING: Job universe unknown.  Analysis may not be meaningful.\n\n")
    heading = f"\n{_integer(job, 'ClusterId'):03}.{_integer(job, 'ProcId'):03}:  "
    yield from _state(job, local, heading)
    yield from _last_matches(job)
    if served and tally.slots:
        yield f"{heading}Run analysis summary ignoring user priority.  Of {tally.slots} machines,\n"
        yield from _counts(tally, asked.verbose)
    yield "\n"


def _conditions_of_job(job: ClassAd, slots: Sequence[ClassAd], title: str, asked: Asked) -> Iterator[str]:
    found = job.lookup("Requirements")
    if found is not None:
        yield f"The Requirements expression for job {title} is\n\n{pretty(' ' * _INDENT, found, asked.width)}\n\n"
    if not asked.better:
        yield "\n"
        return
    expr = AttrRef("Requirements") if found is None else found
    yield f"Job {title} defines the following attributes:\n\n"
    yield from _defined(job, expr, units=True)
    if len(slots) == 1 or asked.machine:
        said: list[str] = []  # HTCondor says of each slot what it said of those before as well
        for slot in slots:
            more = list(_of_other(job, slot, expr, units=True))
            said += more
            if more:
                yield f"{_name(slot, 'Target')} has the following attributes:\n\n{''.join(said)}\n"
    yield f"The Requirements expression for job {title} reduces to these conditions:\n\n"
    if found is not None:
        yield from _table(Conditions(found, job, slots), "Slots")
    yield "\n"


def _state(job: ClassAd, local: bool, heading: str) -> Iterator[str]:
    if "Owner" not in job:
        yield f"{heading}Nothing here.\n\n"
        return
    state = _STATES.get(_integer(job, "JobStatus"))
    said = f"Job is {state}.\n\n" if state else ""
    if state == "held" and (reason := job.eval_string("HoldReason")):
        said += f"Hold reason: {reason}\n\n"
    if local:
        said += "WARNING: A schedd ClassAd is needed to do analysis for scheduler or Local universe jobs.\n\n\n"
    if said:
        yield heading + said


def _last_matches(job: ClassAd) -> Iterator[str]:
    matched, failed = _integer(job, "LastMatchTime"), _integer(job, "LastRejMatchTime")
    if matched:
        yield f"Last successful match: {_moment(matched)}\n\n"
    elif failed:
        yield "No successful match recorded.\n"
    if failed > matched:
        yield f"Last failed match: {_moment(failed)}\n\n"
        if reason := job.eval_string("LastRejMatchReason"):
            yield f"Reason for last match failure: {reason}\n"


def _whole(slot: ClassAd, job: ClassAd) -> ClassAd:
    """A partitionable slot that has no room for the job as it is when nothing is carved from it."""
    room = slot.eval("WithinResourceLimits", job)
    if not isinstance(room, bool | int | float) or room or not is_true(slot.eval("PartitionableSlot")):
        return slot
    whole = slot.copy()
    for name in (slot.eval_string("MachineResources") or _RESOURCES).split():
        found = slot.lookup(f"TotalSlot{name}")
        whole[name] = UNDEFINED if found is None else found
    return whole


def _tally(job: ClassAd, slots: Sequence[ClassAd]) -> _Tally:
    tally = _Tally(len(slots))
    if "Owner" not in job or _integer(job, "JobUniverse") in (7, 12):
        return tally
    user = job.eval("User")
    for slot in slots:
        name = _name(slot)
        if not half_match(job, slot):
            tally.rejected.append(name)
            continue
        if not half_match(slot, job):
            tally.rejecting.append(name)
            continue
        if _offline(slot):
            tally.offline.append(name)
        remote = slot.eval("RemoteUser")
        if not isinstance(remote, str):
            tally.free += 1
        elif remote == user:
            tally.mine.append(name)
        else:
            tally.others.append(name)
    return tally


def _counts(tally: _Tally, verbose: bool) -> Iterator[str]:
    def line(names: Sequence[str], text: str) -> str:
        listed = f" [{_listed(names)}]" if verbose and names else ""
        return f"  {len(names):5} {text}{listed}\n"

    yield line(tally.rejected, "are rejected by your job's requirements")
    yield line(tally.rejecting, "reject your job because of their own requirements")
    yield f"  {len(tally.mine):5} match and are already running your jobs\n"
    yield line(tally.others, "match but are serving other users")
    if tally.offline:
        yield line(tally.offline, "match but are currently offline")
    yield f"  {tally.free:5} are able to run your job\n"
    if len(tally.rejected) == tally.slots:
        yield "\nWARNING:  Be advised:\n   No machines matched the jobs's constraints\n"
    elif len(tally.rejected) + len(tally.rejecting) == tally.slots:
        yield "\nWARNING:  Be advised:\n   Job did not match any machines's constraints\n"
        yield "   To see why, pick a machine that you think should match and add\n"
        yield "     -reverse -machine <name>\n   to your query.\n"


def _listed(names: Sequence[str]) -> str:
    """Names until they fill _NAMES characters."""
    text = ""
    for name in names:
        if len(text) >= _NAMES:
            return text if len(text) == _NAMES else f"{text[: _NAMES - 3]}..."
        text += f", {name}" if text else name
    return text


# --- a line for each kind of job


def _summary(jobs: Sequence[ClassAd], slots: Sequence[ClassAd], asked: Asked) -> Iterator[str]:
    yield f"{asked.machine}: " if asked.machine else ""
    yield f"Analyzing matches for {len(slots)} slots\n{_SUMMARY}"
    kinds = _kinds(jobs)
    # Those in no autocluster are counted as the first of them, as HTCondor does.
    first = next((int(_integer(members[0], "JobStatus") in _RUNNING) for members, number in kinds if number is None), 0)
    for members, number in kinds:
        job = members[0]
        states = Counter(_integer(member, "JobStatus") for member in members)
        tally = _tally(job, slots)
        counted = "Owner" in job and _integer(job, "JobUniverse") not in (7, 12)
        matched = tally.slots - len(tally.rejected) if counted else 0
        kind = ""
        if number is not None:
            kind = f"{number}:" if asked.verbose else ""
            kind += f"{len(members)}/{states[1]}"
        at_work = first if number is None else sum(states[state] for state in _RUNNING)
        running = f"{at_work}/{len(tally.mine)}" if at_work else str(len(tally.mine))
        yield (
            f"{_id(job):<13} {kind:<12} {matched:>12} {len(tally.rejecting):>11} {running:>11} "
            f"{len(tally.others):>10} {tally.free:>9} {job.eval_string('Owner')}\n"
        )


def _kinds(jobs: Sequence[ClassAd]) -> _Kinds:
    """Jobs of one autocluster together, and its number; first those that are in none."""
    kinds: dict[int, list[ClassAd]] = {}
    single = []
    for job in jobs:
        number = job.eval("AutoClusterId")
        if isinstance(number, int) and number >= 0:
            kinds.setdefault(number, []).append(job)
        else:
            single.append(job)
    return [([job], None) for job in single] + [(kinds[number], number) for number in sorted(kinds)]


# --- what slots require


def _reverse(jobs: Sequence[ClassAd], slots: Sequence[ClassAd], asked: Asked) -> Iterator[str]:
    kinds = _kinds(jobs)
    if not slots:
        return
    if not asked.summary and (asked.better or len(slots) == 1):
        for slot in slots:
            if _offline(slot):
                yield _offline_line(slot)
            else:
                yield from _slot(slot, kinds)
        return
    if len(jobs) == 1:
        yield f"{_id(jobs[0])}: Analyzing matches for 1 job\n"
    elif asked.verbose and jobs:
        yield f"Analyzing {len(jobs)} jobs in {len(kinds)} autoclusters\n"
    elif jobs:
        yield f"Analyzing matches for {len(jobs)} jobs\n"
    width = max(16, *(max(len(_name(ad)), len(ad.eval_string("Machine")) + 7) for ad in slots))
    yield f"{'':{width}} Slot  Slot's Req    Job's Req     Both   \n"
    yield f"{'Name':{width}} Type  Matches Job Matches Slot    Match %\n"
    yield f"{'-' * min(width, 24):{width}} ---- ------------ ------------ ----------\n"
    for slot in slots:
        if _offline(slot):
            yield _offline_line(slot)
            continue
        by_slot, by_job, both = _matches(slot, kinds)
        yield f"{_name(slot, ''):{width}} {_type(slot):4} {by_slot:12} {by_job:12} {_percent(both, kinds):10.2f}\n"


def _slot(slot: ClassAd, kinds: _Kinds) -> Iterator[str]:
    name = _name(slot)
    total = sum(len(members) for members, _ in kinds)
    yield f"\n-- Slot: {name} : Analyzing matches for {total} Jobs in {len(kinds)} autoclusters\n\n"
    expr = slot.lookup("Requirements")
    if expr is not None:
        yield from _conditions_of_slot(slot, expr, [members[0] for members, _ in kinds])
    by_slot, by_job, both = _matches(slot, kinds)
    yield f"{name}: Run analysis summary of {total} jobs.\n"
    yield f"{both:5} ({_percent(both, kinds):.2f} %) match both slot and job requirements.\n"
    yield f"{by_slot:5} match the requirements of this slot.\n"
    yield f"{by_job:5} have job requirements that match this slot.\n"


def _conditions_of_slot(slot: ClassAd, expr: Expr, jobs: Sequence[ClassAd]) -> Iterator[str]:
    text = pretty(" " * _INDENT, expr)
    for name in INLINE:
        inlined = slot.lookup(name)
        if inlined is not None:  # HTCondor breaks the lines above once more
            text = pretty(f"{text}\n\n  {name} is\n{' ' * _INDENT}", inlined)
    yield f"The Requirements expression for this slot is\n\n{text}\n\n"
    yield "This slot defines the following attributes:\n\n"
    yield from _defined(slot, expr, but=INLINE)
    if len(jobs) == 1 and (said := "".join(_of_other(slot, jobs[0], expr))):
        yield f"Job {_id(jobs[0])} has the following attributes:\n\n{said}\n"
    yield "The Requirements expression for this slot reduces to these conditions:\n\n"
    yield from _table(Conditions(expr, slot, jobs, inline=INLINE), "Clusters")
    yield "\n"


def _matches(slot: ClassAd, kinds: _Kinds) -> tuple[int, int, int]:
    """How many jobs the slot accepts, how many accept it, and both."""
    by_slot = by_job = both = 0
    for members, _ in kinds:
        accepts, accepted = half_match(slot, members[0]), half_match(members[0], slot)
        by_slot += len(members) * accepts
        by_job += len(members) * accepted
        both += len(members) * (accepts and accepted)
    return by_slot, by_job, both


def _percent(both: int, kinds: _Kinds) -> float:
    total = sum(len(members) for members, _ in kinds)
    return 100.0 * both / total if total else 0.0


def _offline(slot: ClassAd) -> bool:
    return is_true(slot.eval("Offline"))


def _offline_line(slot: ClassAd) -> str:
    return f"{_name(slot, ''):24}  is offline\n"


def _type(slot: ClassAd) -> str:
    if is_true(slot.eval("PartitionableSlot")):
        return "Part"
    return "Dyn" if is_true(slot.eval("DynamicSlot")) else "Stat"


# --- parts of both


def _table(conditions: Conditions, kind: str) -> Iterator[str]:
    yield f"{_HEADINGS[kind]}\nStep    Matched  Condition\n-----  --------  ---------\n"
    for number, count, text in conditions.rows():
        yield f"{f'[{number}]':<5} {count:>9}  {text}\n"


def _defined(ad: ClassAd, expr: Expr, *, units: bool = False, but: Sequence[str] = ()) -> Iterator[str]:
    """The attributes of the ad itself that the expression comes to."""
    names = _Names(ad, expr).own
    for key in sorted(names.keys() - {fold(name) for name in (*but, "CurrentTime")}):
        name = names[key]
        yield f"    {name} = {ad.text(name, 'old')}{_UNITS.get(name, '') if units else ''}\n"
    yield "\n"


def _of_other(ad: ClassAd, other: ClassAd, expr: Expr, *, units: bool = False) -> Iterator[str]:
    """The values of the other ad that the expression asks for."""
    names = _Names(ad, expr).others
    for key in sorted(names):
        name = names[key]
        if key in other:
            value = unparse(other.eval(key, ad), syntax="old")
            yield f"    TARGET.{name} = {value}{_UNITS.get(name, '') if units else ''}\n"


class _Names:
    """The names that an expression of an ad comes to, each as it is first written: the ad's own, and others."""

    def __init__(self, ad: ClassAd, expr: Expr) -> None:
        self._ad = ad
        self.own: dict[str, str] = {}
        self.others: dict[str, str] = {}
        self._walk(expr)

    def _walk(self, expr: Expr) -> None:
        if isinstance(expr, AttrRef):
            scope = expr.scope
            word = scope.key if isinstance(scope, AttrRef) and scope.scope is None else ""
            if scope is not None and word not in ("my", "target"):
                if isinstance(scope, AttrRef):
                    self._walk(scope)
            elif word != "target" and expr.name in self._ad:
                if expr.key not in self.own:
                    self.own[expr.key] = expr.name
                    found = self._ad.lookup(expr.name)
                    if found is not None:
                        self._walk(found)
            else:
                self.others.setdefault(expr.key, expr.name)
        else:
            for child in expr.children():
                self._walk(child)


def pretty(before: str, expr: Expr, width: int = WIDTH) -> str:
    """An expression behind a text, broken behind && and || where all of it is wider. What is broken already counts as
    one line, as in HTCondor's."""
    text = before + unparse(expr)
    done: list[str] = []
    start = depth = column = 0
    space = -1  # of the last && or || in this line
    indent = _INDENT
    at = 0
    depth = _INDENT
    while at < len(text):
        char = text[at]
        if char == "(":
            depth += 2
        elif char == ")":
            depth -= 2
        if column >= width and space >= 0:
            done.append(f"{text[start:space]}\n{' ' * indent}")
            start = space + 1
            column = at - start + indent
            space = -1
            indent = depth
        if text[max(0, at - 2) : at] in ("&&", "||"):
            space, indent = at, depth
        at += 1
        column += 1
    return "".join(done) + text[start:]


def _id(job: ClassAd) -> str:
    return f"{_integer(job, 'ClusterId')}.{_integer(job, 'ProcId')}"


def _name(ad: ClassAd, missing: str = "undefined") -> str:
    value = ad.eval("Name")
    return value if isinstance(value, str) else missing


def _integer(ad: ClassAd, name: str) -> int:
    value = ad.eval(name)
    return int(value) if isinstance(value, int | float) else 0


def _moment(seconds: int) -> str:
    return time.strftime("%a %b %e %H:%M:%S %Y", time.localtime(seconds))
