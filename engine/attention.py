"""What of a pool needs somebody's attention now, gravest first: what is broken, what jobs will never get out of by
themselves, and what looks odd. The dashboard's overview and the tools of operators show the same findings.

`Facts` are what was seen; a part that nobody looked at stays empty and is judged as well. `unknown` names the parts
that could not be had: they are told, since nothing found is not the same as nothing wrong.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

Level = Literal["error", "warning", "note"]
_ORDER: Final = {"error": 0, "warning": 1, "note": 2}

#: A daemon whose ad is so old has missed an update, seconds (twice UPDATE_INTERVAL's default).
SILENT_S: Final = 600.0
#: Since the end of the last cycle, with idle jobs in the queues, seconds.
CYCLE_LATE_S: Final = 600.0
#: How long the oldest idle job waits before it is noted, and before it is a warning, seconds.
OLD_S: Final = 3600.0
VERY_OLD_S: Final = 86_400.0
#: A batch fails when so many of its jobs ended lately, and so large a part of them failed.
BATCH_ENDED: Final = 3
BATCH_PART: Final = 0.5
#: A machine is a black hole when so many jobs failed on it, so large a part of what ended there, and jobs of the same
#: batches fail elsewhere at most so often as a part of that.
HOLE_FAILED: Final = 5
HOLE_PART: Final = 0.5
HOLE_ELSEWHERE: Final = 0.25
#: A disk with less than this is short, and with less than this is as good as full, MiB.
DISK_SHORT_MIB: Final = 1024.0
DISK_FULL_MIB: Final = 100.0
#: Messages that wait in one queue.
QUEUE_LONG: Final = 10_000
#: A certificate that ends so soon, seconds.
EXPIRES_S: Final = 14 * 86_400.0
#: Findings of one code that are told one by one; the others are counted.
MOST_OF_ONE: Final = 5


@dataclass(frozen=True, slots=True)
class Daemon:
    """One daemon by its ad. kind: MyType, such as Scheduler; a machine is one, not a slot. heard: when its ad came
    last, s since 1970; 0: not known. problem: what it says itself is wrong with it."""

    kind: str
    name: str
    version: str = ""
    heard: float = 0.0
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Gone:
    """A machine that was there and is not any more, since when (s since 1970)."""

    name: str
    since: float


@dataclass(frozen=True, slots=True)
class Jobs:
    """Jobs that stand alike: how many, why, and the first of them with its schedd. code: HoldReasonCode, if they are
    held."""

    count: int
    reason: str
    first: str
    schedd: str = ""
    code: int | None = None


@dataclass(frozen=True, slots=True)
class Oldest:
    """The job that is idle for longest, since when (s since 1970), and what its last cycle said."""

    job: str
    schedd: str
    since: float
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Ended:
    """Jobs of one cluster that ended lately on one machine."""

    schedd: str
    cluster: int
    machine: str
    ended: int
    failed: int


@dataclass(frozen=True, slots=True)
class Queue:
    """A queue of the broker, and how many messages wait in it."""

    name: str
    messages: int


@dataclass(frozen=True, slots=True)
class Disk:
    """The room that is left for what lies there, MiB. of: whose it is, such as "machine node1"."""

    of: str
    what: str
    free_mib: float


@dataclass(frozen=True, slots=True)
class Certificate:
    """When it ends, s since 1970."""

    of: str
    ends: float


@dataclass(frozen=True, slots=True)
class Facts:
    """A pool as it was seen. A part is empty where there is nothing, and None or empty where nobody looked.

    daemons: all but machines; None where nobody looked, since a pool without a schedd is broken. machines: how many of
    them there are by version; None where nobody looked. silent_machines: those that may be. gone: machines. leader: the
    negotiator that is active; "": none is. cycle_ended: s since 1970; 0: there was none yet. idle: jobs in all queues.
    ended: within the last hour. unknown: part -> why it could not be had.
    """

    daemons: Sequence[Daemon] | None = None
    machines: Mapping[str, int] | None = None
    silent_machines: Sequence[Daemon] = ()
    gone: Sequence[Gone] = ()
    leader: str | None = None
    cycle_ended: float = 0.0
    idle: int = 0
    held: Sequence[Jobs] = ()
    never: Sequence[Jobs] = ()
    oldest: Oldest | None = None
    ended: Sequence[Ended] = ()
    queues: Sequence[Queue] = ()
    dead_letters: int | None = None
    disks: Sequence[Disk] = ()
    certificates: Sequence[Certificate] = ()
    unknown: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing to look at. text: a whole sentence. about: what the dashboard opens, {"page", and what the page takes}.
    help: a page of docs/ with its section. command: what shows more, or mends it."""

    code: str
    level: Level
    text: str
    count: int = 1
    about: Mapping[str, str] = field(default_factory=dict)
    help: str = ""
    command: str = ""


def attention(facts: Facts, now: float) -> list[Finding]:
    """What needs attention, errors before warnings before notes; of each level in the order of causes: what is broken
    stands before what follows from it."""
    found = [
        *_missing(facts),
        *_silent(facts, now),
        *_negotiation(facts, now),
        *_stuck(facts),
        *_failing(facts.ended),
        *_disks(facts.disks),
        *_bus(facts),
        *_certificates(facts.certificates, now),
        *_versions(facts),
        *_oldest(facts, now),
    ]
    return gravest_first(found)


def gravest_first(findings: Iterable[Finding]) -> list[Finding]:
    """Errors before warnings before notes; of each level in the order in which they come."""
    return sorted(findings, key=lambda one: _ORDER[one.level])


#: What a pool needs to do its work, what it is without, and the command that lists them.
_NEEDED: Final = {
    "Scheduler": ("There is no schedd: nobody can submit jobs, and none run.", "roost status -schedd"),
    "Negotiator": ("There is no negotiator: idle jobs get no machines.", "roost status -negotiator"),
    "Machine": ("There are no machines: no startd has told of any.", "roost status"),
}
_PING: Final = "roost ping"
_WELL: Final = "how-to.md#see-whether-the-pool-is-well"


def _missing(facts: Facts) -> Iterator[Finding]:
    for part, why in facts.unknown.items():
        text = f"Nothing is known of {part}: {why}"
        yield Finding("unknown", "warning", text, help=_WELL, command=_PING)
    missing = set() if facts.daemons is None else {"Scheduler", "Negotiator"} - {one.kind for one in facts.daemons}
    if facts.machines is not None and not any(facts.machines.values()):
        missing.add("Machine")
    for kind, (text, command) in _NEEDED.items():
        if kind in missing:
            about = {"page": "machines"} if kind == "Machine" else {}
            yield Finding("no-daemon", "error", text, about=about, help=_WELL, command=command)


def _silent(facts: Facts, now: float) -> Iterator[Finding]:
    told = [
        Finding(
            "machine-gone", "error", f"Machine {one.name} went away {_ago(now - one.since)} and has not come back.",
            about={"page": "machine", "name": one.name}, help=_WELL,
            command=f"roost status {one.name}",
        )
        for one in sorted(facts.gone, key=lambda one: one.since)
    ]  # fmt: skip
    yield from _few(told, "machines that went away", {"page": "machines"}, "roost status")
    told = []
    for one in (*(facts.daemons or ()), *facts.silent_machines):
        of = f"{_NAMES.get(one.kind, one.kind.lower())} {one.name}"
        about = {"page": "machine", "name": one.name} if one.kind == "Machine" else {}
        if one.problem:
            yield Finding(
                "daemon-problem", "error", f"The {of} says: {one.problem}", about=about,
                help=_WELL,
            )  # fmt: skip
        if one.heard and now - one.heard > SILENT_S:
            told.append(
                Finding(
                    "silent", "warning", f"Nothing was heard of the {of} for {_span(now - one.heard)}.", about=about,
                    help=_WELL, command=_PING,
                )
            )  # fmt: skip
    yield from _few(told, "daemons are silent", {"page": "machines"}, _PING)


_NAMES: Final = {
    "Scheduler": "schedd", "Machine": "machine", "Negotiator": "negotiator", "Collector": "collector", "HAD": "HAD",
}  # fmt: skip


def _negotiation(facts: Facts, now: float) -> Iterator[Finding]:
    if facts.leader is None or not any(one.kind == "Negotiator" for one in facts.daemons or ()):
        return  # nobody looked, or it is told that there is none at all
    if not facts.leader:
        yield Finding(
            "no-leader", "error", "No negotiator is active: idle jobs get no machines.",
            about={"page": "availability"}, help="fault-tolerance.md", command="roost had",
        )  # fmt: skip
    elif facts.idle and facts.cycle_ended and now - facts.cycle_ended > CYCLE_LATE_S:
        text = f"The last negotiation cycle ended {_ago(now - facts.cycle_ended)}, and {_jobs(facts.idle)} idle."
        yield Finding(
            "no-cycle", "error", text, about={"page": "negotiation"}, help="negotiation.md",
            command="roost had",
        )  # fmt: skip


def _stuck(facts: Facts) -> Iterator[Finding]:
    told = []
    for one in sorted(facts.never, key=lambda one: -one.count):
        text = f"{_jobs(one.count)} idle that no slot can ever run, the first {one.first}: {one.reason}"
        told.append(
            Finding(
                "never-runnable", "warning", text, one.count, _job(one), "how-to.md#find-out-why-a-job-is-idle",
                f"roost analyze {one.first}",
            )
        )  # fmt: skip
    yield from _few(told, "idle jobs that no slot can ever run", {"page": "jobs", "status": "Idle"}, "roost analyze")
    told = []
    for one in sorted(facts.held, key=lambda one: -one.count):
        code = "" if one.code is None else f" (code {one.code})"
        text = f"{_jobs(one.count)} held, the first {one.first}: {one.reason}{code}"
        told.append(
            Finding(
                "held", "warning", text, one.count, _job(one), "how-to.md#see-why-jobs-are-held-and-let-them-go-on",
                "roost q -hold-codes",
            )
        )  # fmt: skip
    yield from _few(told, "held jobs for other reasons", {"page": "jobs", "status": "Held"}, "roost q -hold-codes")


def _failing(rows: Sequence[Ended]) -> Iterator[Finding]:
    """Machines on which jobs fail that do well elsewhere; then batches of which most fail, but for what those machines
    did to them."""
    by_machine: dict[str, list[Ended]] = defaultdict(list)
    by_batch: dict[tuple[str, int], list[Ended]] = defaultdict(list)
    for row in rows:
        by_machine[row.machine].append(row)
        by_batch[row.schedd, row.cluster].append(row)
    batches = {key: _sum(ran) for key, ran in by_batch.items()}
    holes = {}
    for machine, ran in by_machine.items():
        here = _sum(ran)
        if here.failed < HOLE_FAILED or here.part < HOLE_PART:
            continue
        whole = [batches[row.schedd, row.cluster] for row in ran]
        elsewhere = _Sum(sum(one.ended for one in whole) - here.ended, sum(one.failed for one in whole) - here.failed)
        if elsewhere.ended >= BATCH_ENDED and elsewhere.part <= here.part * HOLE_ELSEWHERE:
            holes[machine] = here
    told = [
        Finding(
            "black-hole", "error",
            f"Machine {name} fails jobs that succeed elsewhere: {here.failed} of {here.ended} within an hour.",
            here.failed, {"page": "machine", "name": name}, "how-to.md#empty-a-machine-for-a-kernel-update",
            f"roost drain {name}",
        )
        for name, here in sorted(holes.items(), key=lambda one: -one[1].failed)
    ]  # fmt: skip
    yield from _few(told, "machines fail jobs that succeed elsewhere", {"page": "machines"}, "roost history -failed")
    told = []
    for (schedd, cluster), ran in by_batch.items():
        here = _sum(row for row in ran if row.machine not in holes)
        if here.ended >= BATCH_ENDED and here.part >= BATCH_PART:
            text = f"Batch {cluster} fails: {here.failed} of {here.ended} jobs that ended within an hour."
            about = {"page": "jobs", "history": "true", "status": "Failed", "search": str(cluster), "schedd": schedd}
            told.append(
                Finding(
                    "failing-batch", "error" if here.failed == here.ended else "warning", text, here.failed, about,
                    "how-to.md#see-what-failed-and-run-it-again", f"roost history {cluster}",
                )
            )  # fmt: skip
    told.sort(key=lambda one: -one.count)
    yield from _few(
        told,
        "batches of which most jobs fail",
        {"page": "jobs", "history": "true", "status": "Failed"},
        "roost history",
    )


@dataclass(frozen=True, slots=True)
class _Sum:
    ended: int
    failed: int

    @property
    def part(self) -> float:
        return self.failed / self.ended if self.ended else 0.0


def _sum(rows: Iterable[Ended]) -> _Sum:
    listed = list(rows)
    return _Sum(sum(row.ended for row in listed), sum(row.failed for row in listed))


def _disks(disks: Sequence[Disk]) -> Iterator[Finding]:
    told = []
    for disk in sorted(disks, key=lambda one: one.free_mib):
        if disk.free_mib >= DISK_SHORT_MIB:
            continue
        kind, _, name = disk.of.partition(" ")
        told.append(
            Finding(
                "disk", "error" if disk.free_mib < DISK_FULL_MIB else "warning",
                f"The {disk.of} has {disk.free_mib:.0f} MiB left for {disk.what}.",
                about={"page": "machine", "name": name} if kind == "machine" else {},
                help=_WELL,
            )
        )  # fmt: skip
    yield from _few(told, "disks are short", {}, "")


def _bus(facts: Facts) -> Iterator[Finding]:
    if facts.dead_letters:
        number = facts.dead_letters
        what = (
            "1 message that no daemon could take lies"
            if number == 1
            else f"{number} messages that no daemon could take lie"
        )
        text = f"{what} in the dead letters."
        yield Finding(
            "dead-letters", "warning", text, number, {"page": "letters"}, "bus.md", "roost dead-letters"
        )  # fmt: skip
    for queue in sorted(facts.queues, key=lambda one: -one.messages):
        if queue.messages > QUEUE_LONG:
            text = f"{queue.messages} messages wait in the queue {queue.name}: who reads it is slow, or gone."
            yield Finding("queue", "warning", text, queue.messages, help="bus.md")


def _certificates(certificates: Sequence[Certificate], now: float) -> Iterator[Finding]:
    for one in sorted(certificates, key=lambda one: one.ends):
        if one.ends <= now:
            yield Finding("certificate", "error", f"The certificate of the {one.of} has ended.", help="tls.md")
        elif one.ends - now < EXPIRES_S:
            text = f"The certificate of the {one.of} ends in {_span(one.ends - now)}."
            yield Finding("certificate", "warning", text, help="tls.md")


def _versions(facts: Facts) -> Iterator[Finding]:
    daemons = [one for one in facts.daemons or () if one.version]
    counts = Counter(one.version for one in daemons)
    machines = Counter({version: number for version, number in (facts.machines or {}).items() if version})
    counts.update(machines)
    if len(counts) < 2:
        return
    (usual, _), *others = counts.most_common()
    told = []
    for version, _ in others:
        named = [f"{_NAMES.get(one.kind, one.kind.lower())} {one.name}" for one in daemons if one.version == version]
        if machines[version]:
            named.append("1 machine" if machines[version] == 1 else f"{machines[version]} machines")
        told.append(f"{version} ({', '.join(named[:3])}{', ...' if len(named) > 3 else ''})")
    text = f"Versions differ: most daemons are of {usual}, some of {' and '.join(told)}."
    yield Finding(
        "versions",
        "note",
        text,
        sum(number for _, number in others),
        help="install.md",
        command="roost status -af Machine RoostVersion",
    )


def _oldest(facts: Facts, now: float) -> Iterator[Finding]:
    oldest = facts.oldest
    if oldest is None or now - oldest.since < OLD_S:
        return
    text = f"Job {oldest.job} is idle for {_span(now - oldest.since)}, longer than any other"
    yield Finding(
        "oldest-idle", "warning" if now - oldest.since >= VERY_OLD_S else "note",
        f"{text}: {oldest.reason}" if oldest.reason else f"{text}.", 1,
        {"page": "job", "name": oldest.job, "schedd": oldest.schedd}, "how-to.md#find-out-why-a-job-is-idle",
        f"roost analyze {oldest.job}",
    )  # fmt: skip


def _few(told: Sequence[Finding], what: str, about: Mapping[str, str], command: str) -> Iterator[Finding]:
    """The first ones, and one finding that counts the others."""
    yield from told[:MOST_OF_ONE]
    if more := told[MOST_OF_ONE:]:
        count = sum(one.count for one in more)
        yield Finding(more[0].code, more[0].level, f"And {count} more {what}.", count, about, more[0].help, command)


def _job(jobs: Jobs) -> dict[str, str]:
    return {"page": "job", "name": jobs.first, "schedd": jobs.schedd}


def _jobs(count: int) -> str:
    return "1 job is" if count == 1 else f"{count} jobs are"


def _ago(seconds: float) -> str:
    return f"{_span(seconds)} ago"


def _span(seconds: float) -> str:
    """The largest unit only."""
    seconds = max(0.0, seconds)
    for size, unit in ((86_400.0, "d"), (3600.0, "h"), (60.0, "min")):
        if seconds >= size:
            return f"{int(seconds // size)} {unit}"
    return f"{int(seconds)} s"
