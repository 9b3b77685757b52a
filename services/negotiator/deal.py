"""Serving requests: which slots suit, which of them are taken, and what is known afterwards.

The cycle (cycle.py) decides who is served, in which order and within which limits; this is one request's turn.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from services.negotiator import ephemeral
from services.negotiator.board import NAMES, Board, Bools, Floats, RowNumbers, frame_of, parts_cost, set_up
from services.negotiator.carving import Key
from services.negotiator.consumption import LEAST, Policies, Portions, fits, least_cpus, portions
from services.negotiator.emptying import Emptied, Machines
from services.negotiator.ephemeral import Standing
from services.negotiator.group_tree import ROOT, GroupConfig, Tree
from services.negotiator.groups import Turn
from services.negotiator.handout import Purse
from services.negotiator.limits import Counters, Wanted, depends_on_slot, wanted
from services.negotiator.pool import (
    NEWCOMER,
    CycleConfig,
    Matched,
    Request,
    Snapshot,
    Thrashing,
)
from services.negotiator.preemption import BY_PRIORITY, BY_RANK, CHARGED_NAMES, FREE, USER_NAMES, Preemption, users_of
from services.negotiator.priorities import Record, effective
from services.negotiator.quotas import assign
from services.negotiator.selection import Orders, best
from services.negotiator.stopwatch import Stopwatch
from services.negotiator.taking import take
from services.negotiator.thrashing import find_thrashing
from shared.classad import ClassAd
from shared.classad.columnar import OTHER_SIDE

#: Attributes of a job that depend on whose turn it is.
_BY_TURN = frozenset(("submitternegotiatinggroup", "submitterautoregroup"))
#: Rows looked up at least; some of them are taken by others before the next spin.
_FEWEST = 1024


@dataclass(slots=True)
class Found:
    """The best slots for a request, best first. level: their reason by row, None: nobody uses any of them. complete:
    there are no others. epoch: of the board, for lists with partitionable slots, which grow old. emptied: by row, those
    that take preemption of dynamic slots; None: the job may preempt none of them, now or later."""

    rows: RowNumbers
    level: Floats | None
    complete: bool
    epoch: int | None
    emptied: dict[int, Emptied] | None = None


@dataclass(slots=True)
class Asking:
    """A request and how many of its jobs still ask.

    ad: the job's ad with what only the cycle knows. wants: of concurrency limits; None: that depends on the slot.
    cause: why the rest got nothing in its last turn. blocked: full limits met on slots.
    """

    submitter: str
    request: Request
    left: int
    ad: ClassAd
    wants: Wanted | None
    found: Found | None = None
    cause: str = ""
    blocked: dict[str, int] = field(default_factory=dict)
    last: int = -1  # with NEGOTIATOR_DEPTH_FIRST the machine that is being filled
    ranks: Floats | None = None  # its Rank of each row, as its list was made; None: the same for all

    def rank_of(self, row: int) -> float:
        return float(self.ranks[row]) if self.ranks is not None and row < len(self.ranks) else 0.0


class Deal:
    """The working state of one cycle that is about slots, jobs and their use."""

    def __init__(self, snapshot: Snapshot, config: CycleConfig, tree: Tree, now: float) -> None:
        self.snapshot, self.config, self.tree, self.now = snapshot, config, tree, now
        self.clock = Stopwatch(config)
        self.counters = Counters(config.limits, snapshot.limits_in_use)
        self._use = {name: [weight, float(slots)] for name, (weight, slots) in snapshot.in_use.items()}
        self._group_use: dict[str, float] = {}
        for name, (weight, _) in snapshot.in_use.items():
            group = tree.group_of(name)
            self._group_use[group] = self._group_use.get(group, 0.0) + weight
        self.eup = {name: effective(self.record(name)) for name in snapshot.requests}
        self.matches: dict[object, Matched] = {}
        self.given: dict[str, float] = {}
        self.losers: dict[str, str] = {}  # who had a slot that is preempted, by its name
        self.considered = 0
        self.returned = 0.0  # weight that groups lost in their own turns
        self._turn: Turn | None = None
        self._foreign: Bools | None = None
        frame = frame_of(snapshot.slots)
        self.requests = [request for requests in snapshot.requests.values() for request in requests]
        names = ephemeral.names_of(frame, config, self.requests)
        self.ephemerals = ephemeral.mentioned(frame, names)
        self.changing = bool(self.ephemerals & ephemeral.CHANGING)
        groups = config.groups or GroupConfig()
        own = assign(tree, groups, snapshot.total_weight).own
        self._quotas = {group.key: own[group.index] for group in tree.groups}
        with self.clock.part("set-up"):
            users = (name.lower() for name in USER_NAMES)
            frame.want([*NAMES, *users, *names])
            self._set_up_slots(now)
            self._set_up_requests()
            self._prepare()

    def _set_up_slots(self, now: float) -> None:
        snapshot, config = self.snapshot, self.config
        frame = frame_of(snapshot.slots)
        self.users = users_of(frame)
        self.charged = users_of(frame, CHARGED_NAMES)
        self.remote = ephemeral.of_slots(self.ephemerals, frame, self.users.names, self.users.user, self.standing)
        self.board: Board = set_up(snapshot.slots, config, now, self.remote, ephemeral.CHANGING)
        board = self.board
        board.check()
        self.preemption: Preemption | None = None
        if board.held.any():
            eups = [effective(self.record(name)) for name in self.users.names]
            self.preemption = Preemption.of(board, config, self.users, eups)
        self.machines: Machines | None = None
        if self.preemption is not None and self.preemption.parts.any():
            self.machines = Machines(board, self.preemption.parts, self.preemption.current_rank)
        self.orders = Orders(board.place)
        self.policies = Policies.of(board)
        self._flat: dict[int, tuple[Floats, bool]] = {}
        self._left: tuple[tuple[int, int], tuple[bool, float]] | None = None
        self._no_preemption = self.preemption is None or self.preemption.is_idle()
        # A full machine weighs nothing, but it is no slot to be had for nothing.
        self._weightless = bool(np.any((board.weight <= 0.0) & ~self._full()))
        choosy = self.preemption is not None and self.preemption.choosy
        self._all_cost = not choosy and not self._weightless and not self.policies and parts_cost(board, config)
        # Of a partitionable slot a core, at least, is handed out.
        portions = np.where(board.partitionable, np.minimum(board.weight, 1.0), board.weight)
        self.lightest = float(portions.min(initial=math.inf)) if len(portions) else 0.0
        board.check()

    def _full(self) -> Bools:
        """(n,) bool: partitionable slots of which nothing is left."""
        cpus = self.board.free.get("cpus")
        if cpus is None:
            return np.zeros(self.board.size, np.bool_)
        full: Bools = self.board.partitionable & ~self.policies.has & (cpus.number < LEAST["cpus"])
        return full

    def _set_up_requests(self) -> None:
        self.asking: dict[str, list[Asking]] = {}
        for name, requests in self.snapshot.requests.items():
            self.asking[name] = [
                Asking(name, request, request.count, self._job(name, request.ad), self._wants(request.ad))
                for request in requests
            ]
        for asked in self.asking.values():
            for asking in asked:
                self.board.matching.hold(asking.ad)

    def _prepare(self) -> None:
        """Have all that will be asked planned: what is new to the table may move its rows, now rather than later."""
        config, matching = self.config, self.board.matching
        knobs = (config.pre_job_rank, config.post_job_rank, config.preemption_rank, config.preemption_requirements)
        jobs = [asking.ad for asked in self.asking.values() for asking in asked]
        matching.prepare(jobs, [expr for expr in knobs if expr is not None])
        self.board.check()

    # --- who asks

    def record(self, name: str) -> Record:
        record = self.snapshot.records.get(name)
        return NEWCOMER if record is None or effective(record) <= 0.0 else record

    def in_use(self, name: str) -> float:
        use = self._use.get(name)
        return 0.0 if use is None else use[0]

    def group_in_use(self, group: str) -> float:
        return max(0.0, self._group_use.get(group, 0.0))

    def all_in_use(self) -> float:
        """By everybody."""
        return sum(use[0] for use in self._use.values())

    def refuse(self, name: str, cause: str) -> None:
        """Nothing (more) for this submitter."""
        for asking in self.asking[name]:
            asking.cause = cause

    def asked_weight(self, name: str) -> float:
        """What a submitter's requests come to: a core is one, a job without weights is one."""
        total = 0.0
        for asking in self.asking[name]:
            cpus = asking.request.ad.eval("RequestCpus") if self.config.use_slot_weights else 1
            fits = isinstance(cpus, int | float) and not isinstance(cpus, bool) and 0 < cpus < 1e9
            total += asking.left * (float(cpus) if fits else 1.0)  # type: ignore[arg-type]
        return total

    def heaviest(self) -> float:
        offered = self.board.open | self.board.held
        return float(self.board.weight[offered].max(initial=0.0))

    def standing(self, name: str) -> Standing:
        group = self.tree.group_of(name)
        return Standing(
            eup=effective(self.record(name)),
            slots=int(self._use.get(name, (0.0, 0.0))[1]),
            group=group if self.tree else "",
            group_quota=self._quotas.get(group, 0.0),
            group_in_use=self.group_in_use(group),
        )

    def enter(self, turn: Turn) -> None:
        """A group's turn begins."""
        self._turn = turn
        self._foreign = None
        if turn.capped and self.preemption is not None:
            own = [self.tree.group_of(name) in turn.members for name in self.charged.names]
            self._foreign = ~np.array([*own, False])[self.charged.user]

    def within_group(self, rows: RowNumbers) -> Bools:
        """(k,) bool: which of these rows, if preempted, are no more use of the group whose turn it is. What a group
        with a hard cap takes from others is, as free slots are."""
        return np.ones(len(rows), np.bool_) if self._foreign is None else ~self._foreign[rows]

    def is_held_back(self, name: str) -> bool:
        """Whether a submitter could use more than its slice or its ceiling allows: only such ones share in what is
        left (NEG-10)."""
        return any(asking.left and asking.cause in ("share", "ceiling") for asking in self.asking[name])

    def _job(self, name: str, ad: ClassAd) -> ClassAd:
        """A job's ad as it is matched."""
        if not self.ephemerals:
            return ad
        turn = self._turn
        negotiating = turn.group if turn is not None else self.tree.group_of(name)
        regrouped = turn is not None and turn.group == ROOT and self.tree.group_of(name) != ROOT
        merged = ad.copy()
        merged.update(ephemeral.of_job(self.ephemerals, self.standing(name), negotiating, regrouped))
        return merged

    def _wants(self, ad: ClassAd) -> Wanted | None:
        return None if depends_on_slot(ad) else wanted(ad, ClassAd(), self.now)

    # --- a request's turn

    def serve(self, asking: Asking, purse: Purse, spin: int) -> None:
        """Hand out slots to one request until its jobs, the slots or the purse are used up. Sets its cause."""
        if self.changing or not self.ephemerals.isdisjoint(_BY_TURN):
            self._refresh(asking)
        exempt = spin == 1 and self.preemption is not None  # NEG-14
        asking.last = -1
        if self.config.depth_first:
            asking.found = None  # it begins with the machine that was packed in the last turn
        while asking.left > 0:
            n = asking.left
            if asking.wants:
                name = self.counters.blocking(asking.wants)
                if name:
                    asking.cause = f"limit:{name}"
                    return
                n = min(n, int(min(n, self.counters.room(asking.wants))))
            if purse.at_ceiling():
                asking.cause = "ceiling"
                return
            if purse.is_spent(not self._no_preemption) and not self._weightless:
                if not exempt:
                    asking.cause = "share"
                    return
                if asking.wants is not None and self._all_cost:
                    asking.cause = "share" if self._suits_any(asking) else "no-match"
                    return
            took = self._some(asking, purse, 1 if self._is_unsteady() else n, exempt)
            if not took:
                return
            if self._is_unsteady():
                self._refresh(asking)

    def _suits_any(self, asking: Asking) -> bool:
        """Whether there is a slot that the request could have if its submitter's slice were not used up."""
        found = asking.found
        if found is not None and (found.epoch is None or found.epoch == self.board.frame.epoch):
            there = bool((self.board.open[found.rows] | self.board.held[found.rows]).any())
            if there or found.complete:
                return there
        with self.clock.part("select"), self.clock.part("evaluate"):
            return self._is_any_left(asking) and bool(self._candidates(asking)[0].any())

    def _is_unsteady(self) -> bool:
        """Whether every job has to be looked at with the values of its moment (NEG-27, NEG-28)."""
        config = self.config
        if not self.changing:
            return False
        return not (
            config.matchlist_caching and config.preemption_requirements_stable and config.preemption_rank_stable
        )

    def _refresh(self, asking: Asking) -> None:
        ephemeral.refresh(self.remote, self.users.names, self.users.user, self.standing)
        if self.changing:
            self.board.frame.changed()
        asking.found = None  # it was for the values of another turn
        asking.ad = self._job(asking.submitter, asking.request.ad)
        self.board.matching.hold(asking.ad)

    def _some(self, asking: Asking, purse: Purse, n: int, exempt: bool) -> int:
        """Give some slots to up to n jobs; how many got one. 0: there is nothing more for this request now."""
        k = max(_FEWEST, 4 * n)
        while True:
            with self.clock.part("select"):
                found = self._list(asking, k)
            if not len(found.rows):
                asking.cause = "no-match"
                return 0
            with self.clock.part("hand-out"):
                took = take(self, asking, found, purse, n, exempt)
            if took or found.complete:
                return took
            k = len(found.rows) * 8 + _FEWEST  # too heavy, all of them: there may be lighter ones further down

    # --- candidates

    def _list(self, asking: Asking, k: int) -> Found:
        """The best slots that suit and are still there; at least k if there are so many, or more than none."""
        board, found = self.board, asking.found
        if found is not None and (found.epoch is None or found.epoch == board.frame.epoch):
            rows = found.rows[board.open[found.rows] | board.held[found.rows]]
            if found.complete or len(rows) >= k or (len(rows) and k <= len(found.rows)):
                found.rows = rows
                return found
        asking.found = found = self._find(asking, k)
        return found

    def _find(self, asking: Asking, k: int) -> Found:
        board = self.board
        with self.clock.part("evaluate"):
            if not self._is_any_left(asking):
                return Found(np.zeros(0, np.intp), None, True, None)
            free, level, has_machines, emptied = self._candidates(asking)
            told = self.keys(asking.ad, level)
            asking.ranks = next((key.now for key in told if key.side == OTHER_SIDE), None)
            keys = [key.now for key in told]
            board.check()
        self.considered += board.size
        if level is None and not has_machines:
            listed, complete = self.orders.best(free, keys, k)
        else:
            rows = np.flatnonzero(free)
            listed, complete = best(rows, keys, board.place, k), len(rows) <= k
        if asking.last >= 0 and free[asking.last]:
            listed = np.concatenate([[asking.last], listed[listed != asking.last]])
        epoch = board.frame.epoch if has_machines or self.changing else None
        return Found(listed, level, complete, epoch, emptied)

    def _candidates(self, asking: Asking) -> tuple[Bools, Floats | None, bool, dict[int, Emptied] | None]:
        """The slots that suit and can be given now, in any order; and as in `Found`: level, whether some of them are
        partitionable, emptied."""
        board = self.board
        suits = self.suits(asking)
        free = suits & board.open
        level: Floats | None = None
        if self.preemption is not None:
            by_rank, by_priority = self.preemption.offers(
                asking.ad, asking.submitter, self.eup[asking.submitter], suits
            )
            used = by_rank | by_priority
            if used.any():
                free |= used
                level = np.where(by_rank, BY_RANK, np.where(by_priority, BY_PRIORITY, FREE))
        has_machines = False
        if board.resources:
            machines = np.flatnonzero(free & board.partitionable)
            has_machines = len(machines) > 0
            free[machines[~self.has_room(asking, machines)]] = False
        emptied = self._emptied(asking, free) if self.machines else None
        if emptied:
            has_machines = True
            level = np.full(board.size, FREE) if level is None else level
            for row, one in emptied.items():
                free[row] = True
                level[row] = one.level
        return free, level, has_machines, emptied

    def _is_any_left(self, asking: Asking) -> bool:
        """False where nothing is left that a job of this size could have, whatever else it wants: in a busy pool that
        is so for all who come after the last free slot was given, and they need not be matched with anything."""
        if self.policies or self.machines is not None or not self._no_preemption:
            return True
        whole, most = self._room()
        return whole or most >= least_cpus(asking.ad)

    def _room(self) -> tuple[bool, float]:
        """Whether a whole slot can be given away, and how many cores a partitionable one has at most."""
        board = self.board
        key = (board.frame.epoch, board.taken_rows)
        if self._left is None or self._left[0] != key:
            parts = board.open & board.partitionable
            most = 0.0
            if parts.any():
                column = board.free.get("cpus")
                most = math.inf if column is None else float(np.nan_to_num(column.number[parts], nan=math.inf).max())
            self._left = (key, (bool((board.open & ~board.partitionable).any()), most))
        return self._left[1]

    def _emptied(self, asking: Asking, free: Bools) -> dict[int, Emptied] | None:
        """Machines that the job may have by preempting some of their dynamic slots; None: it may preempt none."""
        assert self.machines is not None
        assert self.preemption is not None
        left = self.preemption.parts & ~self.board.taken
        by_rank, by_priority = self.preemption.preferred(asking.ad, asking.submitter, self.eup[asking.submitter], left)
        allowed = by_rank | by_priority
        if not allowed.any():
            return None
        lines = self.machines.lines(free, allowed)
        if not len(lines[0]):
            return {}
        taking = self.portions(asking, np.unique(lines[0]), 1)
        return self.machines.offers(asking.ad, lines, by_priority, taking, self.policies, self.config)

    def suits(self, asking: Asking) -> Bools:
        """(n,) bool: where job and slot match, whatever the slot's state."""
        matches = self.board.matching.match(asking.ad)
        return self.policies.apply(asking.ad, matches) if self.policies else matches

    def has_room(self, asking: Asking, rows: RowNumbers) -> Bools:
        """Of these rows, where at least one job fits."""
        if self.policies:
            return self.portions(asking, rows, 1).copies > 0
        return fits(asking.ad, self.board, rows)

    def portions(self, asking: Asking, rows: RowNumbers, most: int) -> Portions:
        taking = portions(asking.ad, self.board, rows, most)
        return self.policies.replace(asking.ad, taking, most) if self.policies else taking

    def keys(self, ad: ClassAd, level: Floats | None) -> list[Key]:
        """Sort keys of the match list (NEG-21). What is the same for all slots is left out."""
        matching, config = self.board.matching, self.config
        keys = []
        if config.pre_job_rank is not None:
            keys.append(Key(matching.values(config.pre_job_rank, ad), config.pre_job_rank))
        if ad.find("rank") is not None:
            rank = ad.lookup("Rank")
            assert rank is not None
            keys.append(Key(matching.job_rank(ad), rank, OTHER_SIDE))
        if config.post_job_rank is not None:
            keys.append(Key(matching.values(config.post_job_rank, ad), config.post_job_rank))
        if not self.board.resources:  # else it may be another when a machine is used
            keys = [key for key in keys if not self._is_flat(key.now)]
        if level is not None:
            keys.append(Key(level))
            if config.preemption_rank is not None:
                keys.append(Key(np.where(level < FREE, matching.values(config.preemption_rank, ad), 0.0)))
        return keys

    def _is_flat(self, values: Floats) -> bool:
        """Whether a key is the same everywhere. Keys are shared by many requests, so this is remembered."""
        known = self._flat.get(id(values))
        if known is None or known[0] is not values:
            known = self._flat[id(values)] = (values, not len(values) or bool(values.min() == values.max()))
        return known[1]

    # --- use

    def charge(self, name: str, weight: float, jobs: int) -> None:
        use = self._use.setdefault(name, [0.0, 0.0])
        use[0] += weight
        use[1] += jobs
        group = self.tree.group_of(name)
        self._group_use[group] = self._group_use.get(group, 0.0) + weight
        self.given[name] = self.given.get(name, 0.0) + weight

    def lose(self, row: int, weight: float) -> None:
        """Who had the slot has it no longer."""
        holder = self.charged.user[row]
        if holder < 0:
            return
        user = self.charged.names[holder]
        self.losers[self.board.frame.keys[row]] = user
        use = self._use.setdefault(user, [0.0, 0.0])
        use[0] = max(0.0, use[0] - weight)
        use[1] = max(0.0, use[1] - 1)
        group = self.tree.group_of(user)
        self._group_use[group] = max(0.0, self._group_use.get(group, 0.0) - weight)
        if self._turn is not None and group in self._turn.members:
            self.returned += weight

    # --- afterwards

    def thrashing(self) -> tuple[Thrashing, ...]:
        return find_thrashing(self.snapshot.preempted, self.matches.values(), self.losers, self.config, self.now)
