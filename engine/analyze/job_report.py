"""One job against the slots of a pool."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np

from engine.analyze.report import JobReport, Rejection, SlotTerm, Suggestion, Term
from engine.analyze.requirements import Requirements
from engine.analyze.slots import Mask, Slots
from engine.analyze.suggestions import suggestions
from engine.analyze.unadvertised import unadvertised
from engine.queue.jobs import BadSubmit
from engine.queue.parallel import GROUPS, count_of, group_ad, sizes_of
from engine.reasons import POLICIES, SLOTS, Amount, blockers, nearest, wait
from engine.reasons import slots as so_many
from shared.classad import ClassAd
from shared.transfer.progress import in_words

PARALLEL_UNIVERSE: Final = 11
STATES: Final = {
    1: "idle", 2: "running", 3: "removed", 4: "completed", 5: "held", 6: "transferring output", 7: "suspended",
}  # fmt: skip
MOST_SLOT_TERMS: Final = 30  # those that reject most
MOST_USERS: Final = 10
#: Groups of machines of one job that are looked at; of one that has more the first is.
MOST_GROUPS: Final = 20


def explain_job(slots: Slots, job: ClassAd, last: Rejection | None = None, also: int = 0) -> JobReport:
    """Everything about one job: see JobReport. Of a job whose machines are asked for in groups it is about the group
    that stands worst. `last`: what the negotiator said last; else the job's own LastRejMatchReason counts. Raises only
    what `slots.patience` does."""
    last = last or remembered(job)
    sizes = _sizes(job)
    if not 1 < len(sizes) <= MOST_GROUPS:
        report = _of_one(slots, job, last, also)
        return replace(report, verdict=_of_all(job, report.verdict)) if _waits_for_all(job) else report
    reports = [_of_one(slots, group_ad(job, group), last, also) for group in range(len(sizes))]
    worst = min(range(len(reports)), key=lambda group: _served(reports[group]))
    return replace(reports[worst], verdict=_of_all(job, reports[worst].verdict, sum(sizes[:worst]), sizes[worst]))


def _of_one(slots: Slots, ad: ClassAd, last: Rejection | None, also: int) -> JobReport:
    slots.prepare(ad)
    return slots.matching.together(lambda: _explained(slots, ad, last, also))


def _sizes(job: ClassAd) -> list[int]:
    """How many machines each of its groups has; empty: it is no job that waits for groups, or its ad makes no sense."""
    if GROUPS not in job or not _waits_for_all(job):
        return []
    try:
        return sizes_of(job, count_of(job))
    except BadSubmit:
        return []


def _served(report: JobReport) -> tuple[bool, bool, int]:
    """How well a group of machines stands: one that no slot suits is worst."""
    return report.capacity > 0, report.outcomes.get("free", 0) > 0, report.capacity


def remembered(job: ClassAd) -> Rejection | None:
    """The last rejection that the schedd wrote into the job. One older than the last match tells nothing any more."""
    reason, at = job.eval_string("LastRejMatchReason"), _number(job, "LastRejMatchTime")
    return Rejection(reason, at=at) if reason and at >= _number(job, "LastMatchTime") else None


def state_of(job: ClassAd) -> str:
    """JobStatus in words. What has none waits to be queued: idle."""
    return STATES.get(int(_number(job, "JobStatus", 1.0)), "idle")


def name_of(job: ClassAd) -> str:
    """Its id, as "12.0"."""
    return f"{int(_number(job, 'ClusterId')):d}.{int(_number(job, 'ProcId')):d}"


def _explained(slots: Slots, job: ClassAd, last: Rejection | None, also: int) -> JobReport:
    state = state_of(job)
    if state in ("completed", "removed"):
        return JobReport(name_of(job), state, verdict=_at_rest(job, state), also=also)
    view = slots.look()
    needs = Requirements(slots, view, job)
    suits = needs.satisfied & needs.accepted
    # Dynamic slots in use are parts of a machine that suits as a whole: busy, however they were carved.
    whole = needs.capacity & view.partitionable & ~view.offline
    parts = slots.on_machines_of(whole) & view.dynamic & view.claimed & ~suits
    outcomes: dict[str, Mask] = {}
    left = np.ones(len(slots), np.bool_)

    def take(outcome: str, rows: Mask) -> None:
        outcomes[outcome] = outcomes.get(outcome, np.zeros(len(slots), np.bool_)) | (left & rows)
        left[rows] = False

    if view.draining.any():
        take("draining", view.draining & ~suits & needs.wanted_when_empty)
    take("in-use", whole & ~suits)
    take("claimed", parts)
    take("job-requirements", ~needs.satisfied)
    take("slot-requirements", ~needs.accepted)
    take("waking", view.waking)
    take("offline", view.offline)
    unoffered = {
        reason: slots.named(name for name, why in slots.unoffered.items() if why == reason)
        for reason in ("no-claim-id", "match-under-way")
    }
    take("no-claim-id", unoffered["no-claim-id"])
    take("constraint", view.left_out)
    take("match-under-way", unoffered["match-under-way"])
    take("claimed", view.claimed)
    take("free", left.copy())
    counts = {name: number for name in SLOTS if name in outcomes and (number := int(outcomes[name].sum()))}
    # Dynamic slots are parts of partitionable ones, which count as a whole.
    eligible = ~view.offline & ~(view.dynamic if view.partitionable.any() else np.zeros(len(slots), np.bool_))
    capacity = int((needs.capacity & eligible).sum())
    users = slots.users(outcomes["claimed"] | (slots.on_machines_of(outcomes["in-use"]) & view.claimed & view.dynamic))
    short: tuple[Amount, ...] = ()
    if "in-use" in counts:
        static = suits & ~view.partitionable & eligible
        short = needs.short((whole | static) & ~view.dynamic, view.claimed)
    code = last.code if state == "idle" and last is not None else ""
    found: tuple[Suggestion, ...] = ()
    if state in ("idle", "held"):
        found = suggestions(needs, eligible, 5 if capacity == 0 else 3)
    return JobReport(
        job=name_of(job),
        state=state,
        verdict=_verdict(job, state, counts, capacity, last, short, needs, found),
        blocked_by=blockers(code, counts) if state == "idle" else (),
        slots=len(slots),
        capacity=capacity,
        outcomes=counts,
        terms=_terms(needs),
        slot_terms=_slot_terms(needs),
        users=dict(users.most_common(MOST_USERS)),
        short=short,
        owner_state=int((view.owner & ~needs.accepted).sum()),
        suggestions=found,
        last=last if state == "idle" else None,
        also=also,
        unadvertised=unadvertised(needs),
    )


def _terms(needs: Requirements) -> tuple[Term, ...]:
    together = np.ones(len(needs.slots), np.bool_)
    terms = []
    for each in needs.mine:
        together &= each.conjunct.mask
        terms.append(Term(each.conjunct.text, int(each.conjunct.mask.sum()), int(together.sum())))
    return tuple(terms)


def _slot_terms(needs: Requirements) -> tuple[SlotTerm, ...]:
    rows = sorted(needs.rejects(), key=lambda row: (-row.rejects, row.accept - row.slots))
    return tuple(rows[:MOST_SLOT_TERMS])


def _verdict(
    job: ClassAd,
    state: str,
    counts: dict[str, int],
    capacity: int,
    last: Rejection | None,
    short: tuple[Amount, ...],
    needs: Requirements,
    found: tuple[Suggestion, ...],
) -> str:
    """One sentence for who reads only one."""
    if state == "held":
        code, subcode = int(_number(job, "HoldReasonCode")), int(_number(job, "HoldReasonSubCode"))
        reason = job.eval_string("HoldReason") or "no reason given"
        return f"It is on hold: {reason} (code {code}/{subcode}); it can run once it is released."
    if state != "idle":
        host = job.eval_string("RemoteHost")
        return f"It is {state}{f' on {host}' if host else ''}.{_on_their_way(job)}"
    if slot := job.eval_string("RoostMatchedSlot"):
        return f"It is matched with {slot}; it runs once that has answered."
    cause = nearest(counts)
    if not cause:
        return "There are no slots in the pool."
    policy = last is not None and last.code in POLICIES
    if cause == "free":
        some = _slots(counts["free"], "could", "could")
        if last is None or (last.code and not policy):
            return f"{some} run it now; it waits for the next negotiation cycle."
        return f"{some} run it now, but the last cycle gave it none: {last.reason}."
    besides = f" Besides, {last.reason.partition('; besides,')[0]}." if policy and last is not None else ""
    if cause in ("match-under-way", "no-claim-id"):
        return f"Slots that suit are not on offer at this moment; it may get one in a moment.{besides}"
    waking = ""
    if counts.get("waking"):
        waking = f" {_slots(counts['waking'], 'that sleeps is', 'that sleep are')} to be woken."
    if cause in ("claimed", "in-use"):
        return f"It {wait(counts, short)}.{waking}{besides}"
    if cause == "draining":
        return f"It {wait(counts)}.{waking}{besides}"
    if cause == "waking":
        return f"The machines that suit sleep.{waking.removesuffix('.')}: the job waits for that."
    if cause == "offline":
        return "The machines that suit sleep: one is woken when a cycle finds no other slot for the job."
    if cause == "constraint":
        return f"{_slots(counts[cause], 'suits', 'suit')}, but NEGOTIATOR_SLOT_CONSTRAINT leaves out all that do."
    if cause == "slot-requirements":
        return "Slots satisfy its Requirements, but none accepts it: it does not run as things are."
    return _impossible(needs, found)


def _on_their_way(job: ClassAd) -> str:
    """How far its files are that travel."""
    found = ""
    for way in ("Input", "Output"):
        done, total, rate = (int(_number(job, f"Transfer{way}Bytes{what}")) for what in ("Done", "Total", "PerSecond"))
        if f"Transfer{way}BytesDone" in job:
            found += f" Its {way.lower()} is on its way: {in_words(max(0, done), max(0, total), max(0, rate))}."
    return found


def _waits_for_all(job: ClassAd) -> bool:
    """Whether it is a parallel job that has not got all of its machines."""
    idle = state_of(job) == "idle" and not job.eval_string("RoostMatchedSlot")
    return idle and job.eval("JobUniverse") == PARALLEL_UNIVERSE


def _of_all(job: ClassAd, verdict: str, first: int = -1, machines: int = 0) -> str:
    """The sentence of a parallel job, which starts on all of its machines or on none. first: the number of the first
    of the `machines` that the verdict is about; negative: it is about all."""
    wanted, had = int(_number(job, "MaxHosts")), int(_number(job, "CurrentHosts"))
    others = "the others" if first < 0 else f"node {first}"
    if machines > 1:
        others = f"nodes {first} to {first + machines - 1}"
    return f"It has {had} of {wanted} machines, and starts when it has all. As for {others}: {verdict}"


def _impossible(needs: Requirements, found: tuple[Suggestion, ...]) -> str:
    """That no slot satisfies the job, and what stands in the way if it is one thing."""
    changes = found[0].changes if found else ()
    if len(changes) == 1 and changes[0].action == "set":
        (one,) = changes
        return (
            f"No slot satisfies its Requirements: {one.what} is {one.was}, and if it were {one.to}, "
            f"{so_many(found[0].gains)} would; it does not run as things are."
        )
    none = [each.conjunct.text for each in needs.mine if not each.emptied.any()]
    if len(none) == 1:
        return f"No slot satisfies its Requirements: for none is {none[0]} true; it does not run as things are."
    return "No slot satisfies its Requirements: it does not run as things are."


def _at_rest(job: ClassAd, state: str) -> str:
    code = job.eval("ExitCode")
    return f"It is {state}" + (f" with exit code {code}." if state == "completed" and isinstance(code, int) else ".")


def _slots(count: int, one: str, many: str) -> str:
    return f"1 slot {one}" if count == 1 else f"{count} slots {many}"


def _number(ad: ClassAd, name: str, default: float = 0.0) -> float:
    value = ad.eval(name)
    return float(value) if isinstance(value, int | float) and -1e15 < value < 1e15 else default
