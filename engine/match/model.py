"""The data a negotiation cycle is decided on, and what it decides.

    snapshot = snapshot_of(slot_ads, requests, records, config)   # or SlotTable.snapshot(...), from the resident table
    result = negotiate(snapshot, config, now)

Everything is as of one moment: a cycle changes none of it, and equal arguments give equal results.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final

from engine.fairshare.group_tree import GroupConfig
from engine.fairshare.priorities import Record, Share
from engine.match.concurrency_limits import LimitConfig
from engine.match.sort_orders import SortOrders
from shared.classad import ClassAd
from shared.classad.columnar import Matching
from shared.classad.expr import Expr

#: Who has no record is taken for one that is seen for the first time.
NEWCOMER: Final = Record(factor=1000.0)

#: Why a slot that somebody uses may be taken from him (NEG-21): not at all, as nobody uses it; its RANK prefers the job
#: (PRE-01); the job's submitter has the better priority (PRE-02).
NO_PREEMPTION: Final = "none"
RANK_PREEMPTION: Final = "rank"
PRIORITY_PREEMPTION: Final = "priority"


@dataclass(frozen=True, slots=True)
class Request:
    """`count` jobs of one autocluster at one schedd, in that submitter's order (NEG-15, NEG-29)."""

    schedd: str  # inbox
    autocluster: int
    count: int
    ad: ClassAd


@dataclass(frozen=True, slots=True)
class CycleConfig:
    """The knobs a cycle looks at. A rank that is None contributes nothing to the order (NEG-25).

    pre_job_rank, post_job_rank: NEGOTIATOR_PRE_JOB_RANK and _POST_JOB_RANK; MY is the slot, TARGET the job (NEG-21).
    preemption_requirements: PREEMPTION_REQUIREMENTS; None is False (PRE-03). preemption_rank: PREEMPTION_RANK (PRE-07).
    preemption_requirements_stable, preemption_rank_stable: False where they look at what changes within a cycle; then
    the job that is about to get a slot is asked about once more with the values of that moment (NEG-28).
    slot_constraint, poolsize_constraint: NEGOTIATOR_SLOT_CONSTRAINT, NEGOTIATOR_SLOT_POOLSIZE_CONSTRAINT. Both are used
    by who makes the snapshot (NEG-04, NEG-35, MUL-01), not by the cycle.
    use_slot_weights: NEGOTIATOR_USE_SLOT_WEIGHTS; force_slot_weight: FORCE_NEGOTIATOR_SLOT_WEIGHT; slot_weight: the
    negotiator's own SLOT_WEIGHT, for slots without one, and for all with force; None is Cpus (NEG-37).
    discount_suspended: NEGOTIATOR_DISCOUNT_SUSPENDED_RESOURCES: a suspended slot is not use of its user (ACC-14).
    consider_preemption: NEGOTIATOR_CONSIDER_PREEMPTION (NEG-05); consider_early_preemption:
    NEGOTIATOR_CONSIDER_EARLY_PREEMPTION (PRE-08); allow_pslot_preemption: ALLOW_PSLOT_PREEMPTION (PRE-11).
    trim_shutdown_s: NEGOTIATOR_TRIM_SHUTDOWN_THRESHOLD, 0: off (NEG-33). depth_first: NEGOTIATOR_DEPTH_FIRST (NEG-34).
    matchlist_caching: NEGOTIATOR_MATCHLIST_CACHING. Without it what looks at attributes that change within the cycle
    (...ResourcesInUse) is evaluated anew for every job; else once for each turn of a request (NEG-27).
    all_jobs_in_cluster: NEGOTIATE_ALL_JOBS_IN_CLUSTER. Without it, once a request got less than it asked, later ones of
    the same autocluster in the submitter's list are passed over in this turn (NEG-17).
    max_time_*: seconds by `monotonic`; no `monotonic`, no limit, and no measuring: a cycle is a function of its
    arguments only (NEG-26).
    thrash_count, thrash_window_s: so many preemptions of one slot to and fro between the same users in so many seconds
    are reported (Result.thrashing). 0: never.
    groups: None is no groups. limits: concurrency limits.
    """

    pre_job_rank: Expr | None = None
    post_job_rank: Expr | None = None
    preemption_requirements: Expr | None = None
    preemption_rank: Expr | None = None
    preemption_requirements_stable: bool = True
    preemption_rank_stable: bool = True
    slot_constraint: Expr | None = None
    poolsize_constraint: Expr | None = None
    use_slot_weights: bool = True
    force_slot_weight: bool = False
    slot_weight: Expr | None = None
    discount_suspended: bool = False
    consider_preemption: bool = True
    consider_early_preemption: bool = False
    allow_pslot_preemption: bool = False
    trim_shutdown_s: float = 0.0
    depth_first: bool = False
    matchlist_caching: bool = True
    all_jobs_in_cluster: bool = False
    max_time_per_submitter_s: float = math.inf
    max_time_per_schedd_s: float = math.inf
    max_time_per_cycle_s: float = math.inf
    max_time_per_piespin_s: float = math.inf
    monotonic: Callable[[], float] | None = None
    thrash_count: int = 3
    thrash_window_s: float = 3600.0
    groups: GroupConfig | None = None
    limits: LimitConfig = field(default_factory=LimitConfig)


@dataclass(frozen=True, slots=True)
class Preempted:
    """A preemption of the recent past: `by` took `slot` from `user` at `at` (seconds since 1970)."""

    slot: str
    user: str
    by: str
    at: float


def machine_of(slot: str) -> str:
    """The machine in the name of a slot: who answers for it where nobody knows better."""
    return slot.rpartition("@")[2]


@dataclass(frozen=True, slots=True)
class Slots:
    """The slots of a cycle, as rows of the columnar table `matching.table`; the key of a row is the slot's Name.

    Arrays that belong to the rows are the table's companions, so that they keep their place when rows change theirs:
    OFFERED (n,) bool: may be given away: NEGOTIATOR_SLOT_CONSTRAINT holds and no match is on its way to it. The others
    are there for what they tell of their use. NAMED (n,) bool: its claim id has come. PLACE (n,) int64: a number
    by which its name is in natural order, in which equals go (slot2 before slot10; NEG-21).
    """

    matching: Matching
    emptied: Matching  # over a frame of its own: the slots as if nothing of partitionable ones were in use
    owner: Callable[[str], str] = machine_of  # of a slot, by its name: the daemon whose ad it is
    orders: SortOrders = field(default_factory=SortOrders)  # of the rows, as the last cycle left them

    OFFERED: ClassVar[str] = "offered"
    NAMED: ClassVar[str] = "named"
    PLACE: ClassVar[str] = "place"

    @property
    def names(self) -> Sequence[str]:
        """Names of the slots, by row."""
        return self.matching.table.keys

    def ad(self, name: str) -> ClassAd:
        """A slot's ad, as a new object. Raises KeyError."""
        table = self.matching.table
        return table.ad(table.row(name))


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One moment of the pool.

    slots: see Slots. requests: by submitter, in the submitter's order; several requests may be of one autocluster. The
    jobs of one schedd come together (NEG-16).
    records: by submitter, of all who ask or use slots; for others NEWCOMER.
    in_use: by submitter: (weight, number) of the slots in use, of everybody, matches on their way included.
    total_weight: of all slots that count for shares, used or not (NEG-35).
    demand: by submitter: weight of what it runs and asks for, from the submitter ads (GRP-17); for those who are
    missing it is what they use and RequestCpus (1 without weights) for each job asked for.
    running: who runs jobs, by the submitter ads, whether they ask for more or not. With preemption considered they
    have a part of the pool, as what they run may be taken from them.
    limits_in_use: units of concurrency limits in use, by lower-case name, matches on their way included (LIM-12).
    preempted: recent preemptions, in any order, for Result.thrashing.
    last_remainder: by group: when it last had a fraction of a slot (Plan.remainder); without slot weights only.
    """

    slots: Slots
    requests: Mapping[str, Sequence[Request]]
    records: Mapping[str, Record]
    in_use: Mapping[str, tuple[float, int]]
    total_weight: float
    demand: Mapping[str, float] = field(default_factory=dict)
    running: frozenset[str] = frozenset()
    limits_in_use: Mapping[str, float] = field(default_factory=dict)
    preempted: Sequence[Preempted] = ()
    last_remainder: Mapping[str, float] = field(default_factory=dict)


@dataclass(slots=True)
class Matched:
    """`count` jobs of a request on one slot; several for partitionable slots only. (Not frozen: a cycle makes 100,000
    of them, and freezing takes three times as long.)

    slot: its Name. weight: charged for all of these jobs together. reason: NO_PREEMPTION, RANK_PREEMPTION or
    PRIORITY_PREEMPTION. preempts: names of the slots whose claims end for it: the slot itself, or dynamic slots of this
    partitionable one, in the order in which they were added (PRE-12, PRE-17). limits: what each of the jobs takes of
    concurrency limits, as `limits.parse` reads it; empty: nothing. rank: the job's Rank of the slot as it was found,
    which decides nothing any more.
    """

    submitter: str
    request: Request
    slot: str
    count: int
    weight: float
    reason: str = NO_PREEMPTION
    preempts: tuple[str, ...] = ()
    limits: str = ""
    rank: float = field(default=0.0, compare=False)


@dataclass(frozen=True, slots=True)
class Rejected:
    """Why (the rest of) a request got nothing.

    left: jobs that got nothing. code: the cause that decided, one of reasons.CODES. reason: a sentence for people.
    counts: how many slots failed, by the first cause that kept them from this request, one of reasons.SLOTS. details:
    some of these once more, by code and detail (`job-requirements:TARGET.Memory >= 4096`).
    """

    submitter: str
    request: Request
    left: int
    code: str
    reason: str
    counts: Mapping[str, int] = field(default_factory=dict)
    details: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Thrashing:
    """A slot that goes to and fro between users: `times` preemptions within the window, this cycle's included."""

    slot: str
    users: tuple[str, ...]
    times: int


@dataclass(frozen=True, slots=True)
class Result:
    """What a cycle decides.

    matches: in the order in which they were made. considered: pairs of slot and request looked at. out_of_time:
    submitters, schedds (or "cycle") whose time was over. offered: slots that could be given away as the cycle began.
    preempted_users: by slot: who had what is preempted. offline: sleeping slots that jobs wait for (wakeup.py).
    seconds: by part of the work, with `monotonic` only. dear: daemons whose slots were left out, for some submitters at
    least, as their expressions are too dear, with the processor seconds that they took; with `monotonic` only.
    """

    matches: tuple[Matched, ...]
    rejections: tuple[Rejected, ...]
    spins: int
    considered: int
    shares: Mapping[str, Share] = field(default_factory=dict)
    groups: Sequence[Any] = ()
    thrashing: tuple[Thrashing, ...] = ()
    out_of_time: tuple[str, ...] = ()
    offered: int = 0
    preempted_users: Mapping[str, str] = field(default_factory=dict)
    offline: tuple[str, ...] = ()
    seconds: Mapping[str, float] = field(default_factory=dict)
    dear: Mapping[str, float] = field(default_factory=dict)
