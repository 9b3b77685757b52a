"""`roost q` by batches: the jobs of a cluster, of a named batch or of a DAG as one line, as condor_q has it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

from roost.cli import q_layouts as columns
from roost.cli.print_mask import Cells, Column, integer, string
from roost.cli.q_layouts import name_of
from shared.classad import ClassAd
from shared.classad.column_page import Sheet

Id = tuple[int, int]


@dataclass(slots=True)
class Job:
    """One job in the table. children: the first node below a DAGMan job; siblings: who follows there."""

    id: Id
    place: int  # of its cells
    ads: Sequence[ClassAd]  # all of them
    state: int = 0
    dag: int = 0  # cluster of the DAGMan job above
    batch: str | None = None
    manager: bool = False  # of the scheduler universe
    generation: int = 0
    next_proc: Job | None = None
    children: Job | None = None
    siblings: list[Job] = field(default_factory=list)
    folded: bool = False
    cooked: bool = False

    @property
    def ad(self) -> ClassAd:
        return self.ads[self.place]


@dataclass(slots=True)
class Sums:
    """What a line of a batch adds up."""

    done: int = 0
    total: int = 0
    unknown: int = 0
    states: dict[int, int] = field(default_factory=dict)
    first: Id | None = None
    last: Id = (0, 0)
    cluster: int = 0
    low: int = (1 << 31) - 1  # as it is where no job has a number
    high: int = 0
    jobs: int = 0


def dag_of(ad: ClassAd) -> int:
    """Cluster of the DAGMan job that a job belongs to; 0 for none."""
    value = ad.eval("DAGManJobId")
    if isinstance(value, int) and not isinstance(value, bool):
        return max(0, value)
    digits = value.partition(".")[0] if isinstance(value, str) else ""
    return int(digits) if digits.isdigit() and len(digits) < 12 else 0


def jobs_of(ids: Sequence[Id], ads: Sequence[ClassAd], *, batches: bool) -> list[Job]:
    """The jobs of these ads, read once where they differ only in their numbers."""
    alike: Sequence[int] = ads.alike(_READ) if isinstance(ads, Sheet) else range(len(ads))
    known = {place: _job_of(place, ads, batches=batches) for place in dict.fromkeys(alike)}
    jobs = []
    for place, (id, first) in enumerate(zip(ids, alike, strict=True)):
        one = known[first]
        jobs.append(Job(id, place, ads, one.state, one.dag, one.batch, one.manager))
    return jobs


#: What is read of every job, in lower case.
_READ: Final = ("jobstatus", "dagmanjobid", "jobuniverse", "jobbatchname", "dagnodename", "owner")


def _job_of(place: int, ads: Sequence[ClassAd], *, batches: bool) -> Job:
    ad = ads[place]
    state = integer(ad, "JobStatus") or 0
    job = Job((0, 0), place, ads, state, dag_of(ad), manager=integer(ad, "JobUniverse") == 7)
    if batches and not job.dag:
        name = name_of(ad)
        owner = string(ad, "Owner")
        job.batch = None if name is None else name if owner is None else f"{name}\n{owner}"
    return job


def link(jobs: Sequence[Job]) -> None:
    """Tie jobs, in order of their ids, to those of their cluster, batch and DAG."""
    by_id = {job.id: job for job in jobs}
    firsts: dict[str, Job] = {}
    if jobs and jobs[0].batch is not None:
        firsts[jobs[0].batch] = jobs[0]
    for before, job in pairwise(jobs):
        first = before.id[0] != job.id[0]
        if not first:
            before.next_proc = job
        if job.dag:
            parent = by_id.get((job.dag, 0))
            if parent is not None:
                job.generation = parent.generation + 1
                if parent.children is None:
                    parent.children = job
                elif first:
                    parent.children.siblings.append(job)
        elif job.batch is not None and first:
            head = firsts.setdefault(job.batch, job)
            if head is not job and not job.manager:
                head.siblings.append(job)


def in_line(job: Job) -> list[Job]:
    """A job and those that follow it on its level."""
    return [job, *job.siblings]


def fold(jobs: Sequence[Job], *, whole: bool, materialized: Mapping[int, int]) -> list[tuple[Job, Sums]]:
    """The lines of the view. whole: all jobs of their clusters that are in the queue are here, so that those that are
    not are done. materialized: cluster -> the next number that its factory gives."""
    lines = []
    for job in jobs:
        if job.folded or job.cooked:
            continue
        sums = Sums()
        _gather(sums, in_line(job), whole, materialized)
        job.cooked = True
        lines.append((job, sums))
    return lines


def _gather(sums: Sums, jobs: Sequence[Job], whole: bool, materialized: Mapping[int, int]) -> None:
    for job in jobs:
        if job.folded:
            continue
        _count(sums, job, whole, materialized)
        if not job.manager:
            low, high = (sums.cluster, sums.low), (sums.cluster, sums.high)
            sums.first = low if sums.first is None else min(sums.first, low)
            sums.last = max(sums.last, high)
        job.folded = True
        if job.children is not None:
            _gather(sums, in_line(job.children), whole, materialized)


def _count(sums: Sums, job: Job, whole: bool, materialized: Mapping[int, int]) -> None:
    ad = job.ad
    sums.cluster = job.id[0]
    real = job.id[1] >= 0
    if real:
        sums.low = sums.high = job.id[1]
    submitted = present = 0
    nodes = integer(ad, "DAG_NodesTotal")
    nodes = integer(ad, "TotalSubmitProcs") if nodes is None else nodes
    if integer(ad, "JobUniverse") == 7:
        sums.total += nodes or 0
        sums.done += integer(ad, "DAG_NodesDone") or 0
    else:
        if nodes is not None:
            submitted, present = nodes, 1
        if real:
            sums.jobs += 1
            _state(sums, job)
    other = job.next_proc
    while other is not None:
        if not other.folded:
            if other.id[1] >= 0:
                sums.jobs += 1
                _state(sums, other)
                sums.low = min(sums.low, other.id[1])
                sums.high = max(sums.low, other.id[1])
            other.folded = True
        present += 1
        other = other.next_proc
    if job.manager or job.dag:
        return
    if not submitted:
        sums.unknown += 1
        return
    done = submitted - present
    if sums.cluster in materialized:
        done = materialized[sums.cluster] - sums.jobs
    sums.total += submitted
    if whole:
        sums.done += done


def _state(sums: Sums, job: Job) -> None:
    state = job.state if 0 <= job.state <= 9 else 0
    sums.states[state] = sums.states.get(state, 0) + 1


def cells_of(
    lines: Sequence[tuple[Job, Sums]],
    cells: Cells,
    columns_: Sequence[Column],
    *,
    always_held: bool = False,
    clusters: bool = False,
) -> Cells:
    """The cells of the view's lines, from those of the first job of each. Without held jobs their column is not shown,
    unless always_held. clusters: one without any job has its number as JOB_IDS; else what HTCondor shows there."""
    found: Cells = [list(texts) for texts in cells]
    held = always_held
    for place, (job, sums) in enumerate(lines):
        states = sums.states
        counts = {
            columns.DONE: 0 if sums.unknown else sums.done,
            columns.RUN: states.get(2, 0) + states.get(6, 0),
            columns.IDLE: states.get(1, 0) + states.get(7, 0),  # a suspended job stands with the idle ones
            columns.HOLD: states.get(5, 0),
            columns.TOTAL: 0 if sums.unknown else sums.total,
        }
        held = held or states.get(5, 0) > 0
        for number, count in counts.items():
            found[number][place] = f"{count:6}" if count > 0 else None
        if not job.manager and found[columns.BATCH][place] is None:
            found[columns.BATCH][place] = f"ID: {job.id[0]}"
        empty = clusters and job.id[1] < 0 and not sums.jobs
        found[columns.IDS][place] = f"{sums.cluster}." if empty else _range(sums)
    columns_[columns.HOLD].hidden = not held
    return found


def _range(sums: Sums) -> str:
    first, last = sums.first or (0, 0), sums.last
    if first == last:
        return f"{first[0]}.{first[1]}"
    if first[0] == last[0]:
        return f"{first[0]}.{first[1]}-{last[1]}"
    return f"{first[0]}.{first[1]} ... {last[0]}.{last[1]}"


def set_widths(cells: Cells, columns_: Sequence[Column], screen: int) -> None:
    """Owner and batch as wide as they need. screen: width that the lines must fit in; 0: none."""

    def longest(number: int) -> int:
        return max((len(text.encode()) for text in cells[number] if text is not None), default=0)

    owner, batch, ids = longest(columns.OWNER), longest(columns.BATCH), longest(columns.IDS)
    if screen:
        room = screen - 50
        if owner + batch + ids > room:
            spare = (room - (8 + 10 + 9)) // 3 if room >= 27 else -((27 - room) // 3)
            for_batch = for_owner = for_ids = spare
            if for_ids < ids and batch + owner - (for_batch + for_owner + 18) > 7 and for_batch < 10:
                ids //= 2
            if for_ids + 9 > ids:
                rest = for_ids + 9 - ids
                for_owner += rest // 2
                for_batch += rest - rest // 2
            if for_batch + 10 > batch:
                for_owner = min(8 + for_owner + for_batch + 10 - batch, owner) - 8
            if for_owner + 8 > owner:
                for_batch = min(10 + for_batch + for_owner + 8 - owner, batch) - 10
            batch, owner = min(batch, for_batch + 10), min(owner, for_owner + 8)
    first, second = columns_[columns.OWNER], columns_[columns.BATCH]
    if owner < first.width:
        first.width, first.auto, first.cut = max(8, owner), False, True
    else:
        first.width = owner
    second.width = max(10, batch)
