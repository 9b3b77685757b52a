"""Explains what became of a job: from recorded events to spans of time in one state, each with the reasons why the job
waited. Pure.

A job is idle, starting (matched, but not yet running), running, held, or gone. What an idle job waited for is laid over
that: of all reasons that held at a moment, the first of `_FIRST` counts. Times are whole milliseconds here, so that
parts add up to the whole exactly.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, Final

from engine.reasons import nearest
from shared.transfer.progress import in_words

#: Every cause of waiting, with a few words for people. The negotiator's codes are its own (reasons.CODES), but
#: for `no-match`, which is told apart by what kept most slots away.
CAUSES: Final[Mapping[str, str]] = {
    "requirements": "no slot satisfies its Requirements",
    "draining": "machines that suit are being drained",
    "start-policy": "slots do not accept it (START)",
    "busy": "slots that suit are busy",
    "taken": "slots that suit went to other jobs",
    "no-slots": "there are no slots",
    "offline": "slots that suit sleep",
    "slot-starting": "slots that suit are not ready yet",
    "shutting-down": "slots that suit are about to shut down",
    "share": "its submitter had its share of the pool",
    "ceiling": "its submitter is at its ceiling",
    "quota": "its group had its quota",
    "limit": "a concurrency limit is reached",
    "out-of-time": "the time for its submitter in a cycle was over",
    "negotiation": "no cycle had decided about it yet",
    "no-broker": "its schedd or the negotiator had no connection to the broker",
    "no-negotiator": "no negotiator led",
    "schedd-down": "its schedd was down",
    "schedd-silent": "its schedd did not answer the negotiator",
    "schedd-limit": "its schedd ran as many jobs as it may (MAX_JOBS_RUNNING)",
    "starting": "its slot was being claimed, and its files brought there",
    "vacating": "its slot was being emptied of the job that had it",
    "held": "it was on hold",
    "unknown": "the journal has no record of that time",
}
#: The cause where slots decided, by the nearest of reasons.SLOTS.
_BY_SLOTS: Final[Mapping[str, str]] = {
    **dict.fromkeys(("free", "taken", "match-under-way", "claimed", "in-use", "consumed"), "busy"),
    "no-claim-id": "slot-starting",
    "shutting-down": "shutting-down",
    "draining": "draining",
    "waking": "offline",
    "offline": "offline",
    "constraint": "busy",
    "slot-requirements": "start-policy",
    "job-requirements": "requirements",
}


def cause_of(code: str, counts: Mapping[str, int]) -> str:
    """The cause for a code of the negotiator and its counts of slots."""
    if code != "no-match":
        return code if code in CAUSES else "unknown"
    if not sum(counts.values()):
        return "no-slots"
    return _BY_SLOTS.get(nearest(counts) or "?", "unknown")


HOUR_MS: Final = 3_600_000
#: States in which a job waits.
WAITING: Final = ("idle", "starting", "held")
#: States of a job that has left.
GONE: Final = ("completed", "removed")
#: Of causes that hold at the same time, the first counts: what is further from the job explains what is nearer.
_FIRST: Final = ("unknown", "schedd-down", "no-broker", "no-negotiator", "schedd-limit", "schedd-silent")


@dataclass(frozen=True, slots=True)
class RecordedEvent:
    """An event about the job. body: its fields."""

    at: float
    type: str
    body: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class AutoclusterChange:
    """From then on the job is of this autocluster."""

    at: float
    autocluster: int
    submitter: str


@dataclass(frozen=True, slots=True)
class WaitReason:
    """From then on this is why the autocluster waits; an empty code: nothing is known of it, or it waits no more."""

    at: float
    autocluster: int
    code: str
    text: str
    counts: Mapping[str, int] = field(default_factory=dict)
    shard: str = ""


@dataclass(frozen=True, slots=True)
class Outage:
    """Something that stopped all jobs of the schedd. end None: it lasts."""

    code: str
    start: float
    end: float | None
    text: str


@dataclass(frozen=True, slots=True)
class JobHistory:
    """All that is known of a job; each list in the order of time. resets: when a negotiator told its reasons anew, or
    the schedd began a new life, so that what was told before is over; (time, shard), shard None: of all."""

    events: Sequence[RecordedEvent]
    kinds: Sequence[AutoclusterChange] = ()
    whys: Sequence[WaitReason] = ()
    resets: Sequence[tuple[float, str | None]] = ()
    outages: Sequence[Outage] = ()
    #: By (slot, cycle): what else is known of a match: rank, and who had the slot.
    matches: Mapping[tuple[str, int], Mapping[str, Any]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Piece:
    """A time of one cause, in milliseconds. code: of CAUSES, or the state where the job does not wait."""

    start: int
    end: int
    code: str
    text: str
    counts: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Span:
    """A time in one state, in milliseconds; its pieces fill it without gap or overlap."""

    start: int
    end: int
    state: str
    pieces: tuple[Piece, ...]
    slot: str = ""
    note: str = ""


def spans_of(facts: JobHistory, until: float) -> list[Span]:
    """The job's life from its first recorded event to `until` (seconds since 1970), or to its end."""
    phases = _phases(facts)
    found: list[Span] = []
    for number, phase in enumerate(phases):
        if phase.state in GONE:
            break
        end = phases[number + 1].start if number + 1 < len(phases) else _ms(until)
        if end <= phase.start:
            continue
        found.append(Span(phase.start, end, phase.state, tuple(_pieces(facts, phase, end)), phase.slot, phase.text))
    return found


def state_of(facts: JobHistory) -> str:
    """What the job is at the end of all facts; "": nothing is known."""
    phases = _phases(facts)
    return phases[-1].state if phases else ""


def clip(spans: Iterable[Span], start: float, end: float) -> list[Span]:
    """What of them lies between two times (seconds since 1970; 0: open)."""
    low = _ms(start) if start else 0
    high = _ms(end) if end else 1 << 62
    found = []
    for span in spans:
        a, b = max(low, span.start), min(high, span.end)
        if a < b:
            pieces = tuple(
                Piece(max(a, one.start), min(b, one.end), one.code, one.text, one.counts)
                for one in span.pieces
                if one.start < b and one.end > a
            )
            found.append(Span(a, b, span.state, pieces, span.slot, span.note))
    return found


def hours_of(spans: Iterable[Span]) -> list[dict[str, Any]]:
    """Hour by hour the seconds of each cause, and of running: `{start, seconds: {code: s}}`. Hours of UTC."""
    found: dict[int, dict[str, int]] = {}
    for span in spans:
        for piece in span.pieces:
            at = piece.start
            while at < piece.end:
                hour = at // HOUR_MS
                stop = min(piece.end, (hour + 1) * HOUR_MS)
                codes = found.setdefault(hour, {})
                codes[piece.code] = codes.get(piece.code, 0) + stop - at
                at = stop
    return [
        {
            "start": hour * HOUR_MS / 1000,
            "seconds": {code: ms / 1000 for code, ms in sorted(found[hour].items(), key=lambda one: -one[1])},
        }
        for hour in sorted(found)
    ]


def span_map(span: Span) -> dict[str, Any]:
    """As the contract of the HTTP interface has it."""
    causes: dict[tuple[str, str], int] = {}
    for piece in span.pieces:
        if span.state in WAITING:
            key = (piece.code, piece.text)
            causes[key] = causes.get(key, 0) + piece.end - piece.start
    return {
        "start": span.start / 1000,
        "end": span.end / 1000,
        "state": span.state,
        **({"slot": span.slot} if span.slot else {}),
        **({"note": span.note} if span.note else {}),
        "causes": [
            {"code": code, "text": text, "seconds": ms / 1000}
            for (code, text), ms in causes.items()  # in the order in which they first held
        ],
    }


def moment_map(spans: Iterable[Span], at: float) -> dict[str, Any] | None:
    """What the job was at that moment, and why; None: it was not there, or is not recorded."""
    ms = _ms(at)
    for span in spans:
        if span.start <= ms < span.end:
            piece = next(one for one in span.pieces if one.start <= ms < one.end)
            waits = span.state in WAITING
            return {
                "at": at,
                "state": span.state,
                "slot": span.slot,
                "code": piece.code if waits else "",
                "text": piece.text if waits else span.note,
                "since": piece.start / 1000,
                "until": piece.end / 1000,
                "slots": dict(piece.counts),
            }
    return None


#: Events that may be of many jobs of a cluster (shared.messages.events.JobsOrdered).
ORDERED: Final = frozenset(("job.held", "job.released", "job.removed"))


def with_hold(fact: RecordedEvent, proc: int) -> list[RecordedEvent]:
    """The facts that an event of its cluster is for one proc: a job may be submitted on hold, and many may be ordered
    at once."""
    if (ordered := fact.body.get("jobs")) and fact.type in ORDERED:
        if not any(first <= proc <= last for first, last in ordered):
            return []
        cluster = str(fact.body.get("job_id", "")).partition(".")[0]
        body = {name: value for name, value in fact.body.items() if name != "jobs"}
        return [RecordedEvent(fact.at, fact.type, {**body, "job_id": f"{cluster}.{proc}"})]
    held = fact.body.get("held") or ()
    if fact.type != "job.submitted" or not any(first <= proc <= last for first, last in held):
        return [fact]
    body = {"code": fact.body.get("hold_code", 0), "reason": fact.body.get("hold_reason", "")}
    return [fact, RecordedEvent(fact.at, "job.held", {**fact.body, **body})]


#: Where jobs of the scheduler universe run.
_AT_SCHEDD: Final = "at the access point"


def describe_event(fact: RecordedEvent, match: Mapping[str, Any] | None = None) -> str:
    """An event in words."""
    body = fact.body
    slot = body.get("slot", "")
    match fact.type:
        case "job.submitted":
            count = body.get("count", 1)
            return f"submitted by {body.get('owner', '')}" + (
                f" with {count} jobs in its cluster" if count != 1 else ""
            )
        case "job.matched":
            known = match or {}
            rank = f", Rank {known['rank']:g}" if known.get("rank") else ""
            ends = "".join(f"; {who} has to leave {what} for it" for what, who in known.get("preempts", ()))
            part = f" (machine {body['machines']} of {body['of_machines']})" if body.get("of_machines") else ""
            by = f"by {body.get('negotiator', '')} in cycle {body.get('cycle', '')}"
            return f"matched with {slot}{part} {by}{rank}{ends}"
        case "job.unmatched":
            return f"not started{f' on {slot}' if slot else ''}: {body.get('reason', '')}"
        case "job.started":
            return f"started {f'on {slot}' if slot else _AT_SCHEDD} (run {body.get('attempt', 1)})"
        case "job.transferring":
            numbers = (int(body.get(name, 0)) for name in ("bytes_done", "bytes_total", "bytes_per_s"))
            return f"{body.get('direction', 'files')} on its way: {in_words(*numbers)}"
        case "job.evicted":
            return f"evicted from {slot}: {body.get('reason', '')}"
        case "job.ended":
            signal = body.get("exit_signal")
            how = f"signal {signal}" if signal is not None else f"exit code {body.get('exit_code')}"
            ran_s = body.get("ran_s", 0.0)
            if not slot and not ran_s:
                return f"ended with {how}, without a run (noop_job)"
            return f"ended {f'on {slot}' if slot else _AT_SCHEDD} with {how}, having run {ran_s:.0f} s"
        case "job.held":
            return f"put on hold (code {body.get('code')}): {body.get('reason', '')}"
        case "job.released":
            return f"released: {body.get('reason', '')}"
        case "job.removed":
            return f"removed: {body.get('reason', '')}"
        case _:
            return fact.type


# --- phases


@dataclass(frozen=True, slots=True)
class _Phase:
    start: int  # ms
    state: str
    slot: str = ""
    text: str = ""
    code: str = ""  # the cause, where it is known at once
    has: str = ""  # of a parallel job that waits: what it has already


#: Seconds since 1970 that no time is beyond.
_FAR_S: Final = 1e11


def _ms(seconds: float) -> int:
    return round(max(-_FAR_S, min(_FAR_S, seconds)) * 1000)  # whoever tells of an event says when


def _phases(facts: JobHistory) -> list[_Phase]:
    found: list[_Phase] = []
    for fact in facts.events:
        phase = _phase(fact, facts)
        if phase is None:
            continue
        last = found[-1] if found else None
        if fact.type == "job.started" and last is not None and last.state == "idle":
            # A claim that had run another job took it at once: it waited so long, and then its files came.
            begun = _ms(float(fact.body.get("began", 0.0)))
            if last.start <= begun < phase.start:
                found.append(_Phase(begun, "starting", phase.slot, CAUSES["starting"], "starting"))
        if last is not None and phase.start < last.start:
            phase = replace(phase, start=last.start)
        found.append(phase)
    return found


def _phase(fact: RecordedEvent, facts: JobHistory) -> _Phase | None:
    at, body = _ms(fact.at), fact.body
    slot = str(body.get("slot", ""))
    if fact.type in ("job.submitted", "job.released", "job.unmatched", "job.evicted"):
        return _Phase(at, "idle", "", describe_event(fact))
    if fact.type == "job.matched":
        machines, of = int(body.get("machines") or 0), int(body.get("of_machines") or 0)
        if machines < of:
            return _Phase(
                at, "idle", "", describe_event(fact), has=f"it has {machines} of {of} machines; for another: "
            )
        known = facts.matches.get((slot, int(body.get("cycle", 0))))
        code = "vacating" if known and known.get("preempts") else "starting"
        return _Phase(at, "starting", slot, CAUSES[code], code)
    if fact.type == "job.started":
        return _Phase(at, "running", slot, describe_event(fact))
    if fact.type == "job.held":
        reason = str(body.get("reason", ""))
        return _Phase(at, "held", "", f"{reason} (code {body.get('code', 0)}.{body.get('subcode', 0)})", "held")
    if fact.type == "job.ended":
        return _Phase(at, "completed", slot, describe_event(fact))
    if fact.type == "job.removed":
        return _Phase(at, "removed", "", describe_event(fact))
    return None


# --- causes of waiting


def _pieces(facts: JobHistory, phase: _Phase, end: int) -> list[Piece]:
    if phase.state == "running":
        return [Piece(phase.start, end, "running", phase.text)]
    if phase.code == "held":
        return [Piece(phase.start, end, "held", phase.text)]
    cuts = {phase.start, end}
    for at in _moments(facts):
        if phase.start < at < end:
            cuts.add(at)
    ordered = sorted(cuts)
    idle = _IdleReasons(facts)
    pieces: list[Piece] = []
    for start, stop in pairwise(ordered):
        code, text, counts = idle.at(start) if phase.state == "idle" else _starting(facts, phase, start)
        text = phase.has + text
        last = pieces[-1] if pieces else None
        if last is not None and (last.code, last.text) == (code, text):
            pieces[-1] = Piece(last.start, stop, code, text, last.counts)
        else:
            pieces.append(Piece(start, stop, code, text, counts))
    return pieces


def _moments(facts: JobHistory) -> Iterable[int]:
    for listed in (facts.kinds, facts.whys):
        for one in listed:
            yield _ms(one.at)
    for at, _ in facts.resets:
        yield _ms(at)
    for outage in facts.outages:
        yield _ms(outage.start)
        if outage.end is not None:
            yield _ms(outage.end)


def _outage(facts: JobHistory, at: int, codes: Sequence[str] = _FIRST) -> Outage | None:
    there = [
        one
        for one in facts.outages
        if one.code in codes and _ms(one.start) <= at and (one.end is None or at < _ms(one.end))
    ]
    return min(there, key=lambda one: codes.index(one.code), default=None)


def _starting(facts: JobHistory, phase: _Phase, at: int) -> tuple[str, str, Mapping[str, int]]:
    down = _outage(facts, at, ("schedd-down",))
    return (down.code, down.text, {}) if down is not None else (phase.code, phase.text, {})


class _IdleReasons:
    """What an idle job waits for at a moment."""

    def __init__(self, facts: JobHistory) -> None:
        self.facts = facts
        self.kinds = [_ms(kind.at) for kind in facts.kinds]
        self.whys: dict[int, dict[str, list[WaitReason]]] = {}
        for why in facts.whys:
            self.whys.setdefault(why.autocluster, {}).setdefault(why.shard, []).append(why)
        self.resets = [(_ms(at), shard) for at, shard in facts.resets]

    def at(self, ms: int) -> tuple[str, str, Mapping[str, int]]:
        outage = _outage(self.facts, ms)
        if outage is not None:
            return outage.code, outage.text, {}
        place = bisect_right(self.kinds, ms)
        if place:
            why = self._why(self.facts.kinds[place - 1].autocluster, ms)
            if why is not None:
                code = cause_of(why.code, why.counts)
                return code, why.text or CAUSES[code], why.counts
        return "negotiation", CAUSES["negotiation"], {}

    def _why(self, autocluster: int, ms: int) -> WaitReason | None:
        """The newest reason in force, of whatever negotiator."""
        valid = []
        for shard, whys in self.whys.get(autocluster, {}).items():
            place = bisect_right(whys, ms, key=lambda why: _ms(why.at))
            if place and whys[place - 1].code and _ms(whys[place - 1].at) >= self._reset(shard, ms):
                valid.append(whys[place - 1])
        return max(valid, key=lambda why: why.at, default=None)

    def _reset(self, shard: str, ms: int) -> int:
        """When what that negotiator had told was last declared over."""
        for place in range(bisect_right(self.resets, ms, key=lambda one: one[0]) - 1, -1, -1):
            if self.resets[place][1] in (None, shard):
                return self.resets[place][0]
        return 0


def seconds_by(spans: Iterable[Span], key: Callable[[Span, Piece], str | None]) -> dict[str, float]:
    """Seconds of all pieces, by what `key` says of each; None leaves one out."""
    found: dict[str, int] = {}
    for span in spans:
        for piece in span.pieces:
            name = key(span, piece)
            if name is not None:
                found[name] = found.get(name, 0) + piece.end - piece.start
    return {name: ms / 1000 for name, ms in sorted(found.items(), key=lambda one: -one[1])}
