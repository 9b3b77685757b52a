"""Serving requests: which slots suit, which of them are taken, and what is known afterwards.

The cycle (cycle.py) decides who is served, in which order and within which limits; this is one request's turn.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from services.negotiator import ephemeral
from services.negotiator.board import NAMES, Board, Bools, Floats, RowNumbers, frame_of, set_up
from services.negotiator.carving import Key, Lines, lines_of
from services.negotiator.consumption import Policies, Portions, portions
from services.negotiator.ephemeral import Standing
from services.negotiator.group_tree import ROOT, GroupConfig, Tree
from services.negotiator.groups import Plan, Turn
from services.negotiator.handout import TOLERANCE, Purse, spend
from services.negotiator.limits import Counters, Wanted, depends_on_slot, parse, text_of, wanted
from services.negotiator.pool import (
    NEWCOMER,
    NO_PREEMPTION,
    PRIORITY_PREEMPTION,
    RANK_PREEMPTION,
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
from services.negotiator.thrashing import find_thrashing
from shared.classad import ClassAd
from shared.classad.columnar import OTHER_SIDE, Probe

#: Attributes of a job that depend on whose turn it is.
_BY_TURN = frozenset(("submitternegotiatinggroup", "submitterautoregroup"))
_REASONS = {FREE: NO_PREEMPTION, BY_RANK: RANK_PREEMPTION, BY_PRIORITY: PRIORITY_PREEMPTION}
#: Rows looked up at least; some of them are taken by others before the next spin.
_FEWEST = 256
#: Partitionable slots looked at together first: most requests need no more.
_FEW_MACHINES = 16


@dataclass(slots=True)
class Found:
    """The best slots for a request, best first. level: their reason by row, None: nobody uses any of them. complete:
    there are no others. epoch: of the board, for lists with partitionable slots, which grow old."""

    rows: RowNumbers
    level: Floats | None
    complete: bool
    epoch: int | None


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
        self._turn: Turn | None = None
        frame = frame_of(snapshot.slots)
        self.requests = [request for requests in snapshot.requests.values() for request in requests]
        self.ephemerals = ephemeral.mentioned(frame, config, self.requests)
        self.changing = bool(self.ephemerals & ephemeral.CHANGING)
        groups = config.groups or GroupConfig()
        own = assign(tree, groups, snapshot.total_weight).own
        self._quotas = {group.key: own[group.index] for group in tree.groups}
        with self.clock.part("set-up"):
            users = (name.lower() for name in USER_NAMES)
            frame.want([*NAMES, *users, *ephemeral.names_of(frame, config, self.requests)])
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
        self.orders = Orders(board.place)
        self.policies = Policies.of(board)
        self._flat: dict[int, tuple[Floats, bool]] = {}
        self._weightless = bool(np.any(board.weight <= 0.0))
        # Of a partitionable slot a core, at least, is handed out.
        portions = np.where(board.partitionable, np.minimum(board.weight, 1.0), board.weight)
        self.lightest = float(portions.min(initial=math.inf)) if len(portions) else 0.0
        board.check()

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
        for asked in self.asking.values():
            for asking in asked:
                matching.prepare(asking.ad, [expr for expr in knobs if expr is not None])
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
            group=group,
            group_quota=self._quotas.get(group, 0.0),
            group_in_use=self.group_in_use(group),
        )

    def enter(self, turn: Turn) -> None:
        """A group's turn begins."""
        self._turn = turn

    def is_held_back(self, name: str) -> bool:
        """Whether a submitter could use more than its slice: only such ones share in what is left (NEG-10)."""
        return any(asking.left and asking.cause == "share" for asking in self.asking[name])

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
            if purse.left <= TOLERANCE and not exempt and not self._weightless:
                asking.cause = "share"
                return
            took = self._some(asking, purse, 1 if self._is_unsteady() else n, exempt)
            if not took:
                return
            if self._is_unsteady():
                self._refresh(asking)

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
            asking.found = None
        asking.ad = self._job(asking.submitter, asking.request.ad)
        self.board.matching.hold(asking.ad)

    def _some(self, asking: Asking, purse: Purse, n: int, exempt: bool) -> int:
        """Give some slots to up to n jobs; how many got one. 0: there is nothing more for this request now."""
        k = max(_FEWEST, 4 * n)
        while True:
            with self.clock.part("select"):
                found = self._list(asking, k)
            if not len(found.rows):
                asking.cause = self._nothing(asking)
                return 0
            with self.clock.part("hand-out"):
                took = self._take(asking, found, purse, n, exempt)
            if took or found.complete:
                return took
            k = len(found.rows) * 8 + _FEWEST  # too heavy, all of them: there may be lighter ones further down

    def _nothing(self, asking: Asking) -> str:
        return "no-match"

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
            keys = [key.now for key in self._keys(asking.ad, level)]
            board.check()
        self.considered += board.size
        if level is None and not has_machines:
            listed, complete = self.orders.best(free, keys, k)
        else:
            rows = np.flatnonzero(free)
            listed, complete = best(rows, keys, board.place, k), len(rows) <= k
        if asking.last >= 0 and free[asking.last]:
            listed = np.concatenate([[asking.last], listed[listed != asking.last]])
        return Found(listed, level, complete, board.frame.epoch if has_machines or self.changing else None)

    def suits(self, asking: Asking) -> Bools:
        """(n,) bool: where job and slot match, whatever the slot's state."""
        matches = self.board.matching.match(asking.ad)
        return self.policies.apply(asking.ad, matches) if self.policies else matches

    def has_room(self, asking: Asking, rows: RowNumbers) -> Bools:
        """Of these rows, where at least one job fits."""
        return self._portions(asking, rows, 1).copies > 0

    def _portions(self, asking: Asking, rows: RowNumbers, most: int) -> Portions:
        taking = portions(asking.ad, self.board, rows, most)
        return self.policies.replace(asking.ad, taking, most) if self.policies else taking

    def _keys(self, ad: ClassAd, level: Floats | None) -> list[Key]:
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

    # --- taking

    def _take(self, asking: Asking, found: Found, purse: Purse, n: int, exempt: bool) -> int:
        """Take some of the slots found; how many jobs got one."""
        board, rows, level = self.board, found.rows, found.level
        spared = (level[rows] == BY_RANK) if exempt and level is not None else None
        if asking.wants is None:
            return self._take_by_limits(asking, found, purse, n, spared)
        if found.epoch is not None and board.partitionable[rows].any():
            return self._take_parts(asking, found, purse, n, exempt)
        chosen = rows[spend(purse, board.weight[rows], n, exempt=spared)]
        if len(chosen):
            self._give(asking, chosen, found, text_of(asking.wants) if asking.wants else "")
            if asking.wants:
                self.counters.take(asking.wants, len(chosen))
        elif found.complete:
            asking.cause = "ceiling" if purse.at_ceiling() else "share"
        return len(chosen)

    def _take_parts(self, asking: Asking, found: Found, purse: Purse, n: int, exempt: bool) -> int:
        """Where partitionable slots are among the slots found: the best few first, and others only where all of these
        are too heavy."""
        few = found.rows[: max(_FEW_MACHINES, n // _FEW_MACHINES)]
        for rows, most in ((few, n), (found.rows[len(few) :], 1)):
            if not len(rows):
                break
            lines, taking = self._places(asking, rows, most, found.level)
            if not lines.filled and len(rows) < min(most, len(found.rows)):
                rows = found.rows[:n]
                lines, taking = self._places(asking, rows, most, found.level)
            spared = (found.level[lines.rows] == BY_RANK) if exempt and found.level is not None else None
            picked = spend(purse, lines.charges, most, lines.rows, spared)
            if len(picked):
                limits = ""
                if asking.wants:
                    limits = text_of(asking.wants)
                    self.counters.take(asking.wants, len(picked))
                self._commit(asking, found, lines, taking, picked, limits)
                return len(picked)
            asking.cause = "ceiling" if purse.at_ceiling() else "share"
        return 0

    def _places(self, asking: Asking, rows: RowNumbers, n: int, level: Floats | None) -> tuple[Lines, Portions]:
        taking = self._portions(asking, np.sort(rows), n)
        keys = self._keys(asking.ad, level)
        return lines_of(self.board, asking.ad, rows, taking, keys, self.policies, self.config), taking

    def _commit(
        self, asking: Asking, found: Found, lines: Lines, taking: Portions, picked: NDArray[np.intp], limits: str
    ) -> None:
        board = self.board
        rows = lines.rows[picked]
        parts = board.partitionable[rows]
        if not parts.all():
            self._give(asking, rows[~parts], found, limits)
        if not parts.any():
            return
        picked, rows = picked[parts], rows[parts]
        slots, first, jobs = np.unique(rows, return_index=True, return_counts=True)
        charges = np.bincount(np.searchsorted(slots, rows), weights=lines.charges[picked], minlength=len(slots))
        last = np.zeros(len(slots), np.intp)
        last[np.searchsorted(slots, rows)] = picked  # the last line of each slot wins
        used = taking.used(np.searchsorted(taking.rows, slots), jobs)
        board.carve(slots, taking.keys, used, lines.weights[last])
        if self.config.depth_first:
            asking.last = int(rows[-1])
        for index in np.argsort(first, kind="stable").tolist():
            self._add(asking, int(slots[index]), int(jobs[index]), float(charges[index]), limits)

    def _take_by_limits(self, asking: Asking, found: Found, purse: Purse, n: int, spared: Bools | None) -> int:
        """Where concurrency limits depend on the slot: slot by slot, a full limit skips that slot only (LIM-08)."""
        board = self.board
        expr = asking.ad.lookup("ConcurrencyLimits")
        assert expr is not None
        rows = found.rows
        order = np.argsort(rows)
        texts: list[str | None] = [None] * len(rows)
        for index, text in zip(
            order.tolist(), Probe(board.matching, rows[order], {}).texts(expr, asking.ad, OTHER_SIDE), strict=True
        ):
            texts[index] = text
        asking.blocked.clear()
        took = 0
        heavy = 0
        for index, row in enumerate(rows.tolist()):
            if took >= n:
                break
            wants = parse(texts[index] or "")
            while took < n:
                name = self.counters.blocking(wants)
                if name:
                    asking.blocked[name] = asking.blocked.get(name, 0) + 1
                    break
                one = np.array([row], np.intp)
                if board.partitionable[row]:
                    lines, taking = self._places(asking, one, 1, found.level)
                    if not len(lines.rows) or not len(picked := spend(purse, lines.charges, 1)):
                        heavy += bool(len(lines.rows))
                        break
                    self.counters.take(wants)
                    self._commit(asking, found, lines, taking, picked, text_of(wants))
                    took += 1
                    return took  # the list has grown old
                exempt = None if spared is None else spared[index : index + 1]
                if not len(spend(purse, board.weight[one], 1, exempt=exempt)):
                    heavy += 1
                    break
                self.counters.take(wants)
                self._give(asking, one, found, text_of(wants))
                took += 1
                break
        if not took:
            asking.cause = "share" if heavy else f"limit:{next(iter(asking.blocked), '')}"
        return took

    def _give(self, asking: Asking, rows: RowNumbers, found: Found, limits: str) -> None:
        """Whole slots, one job each."""
        board = self.board
        keys = board.frame.keys
        submitter, request, level = asking.submitter, asking.request, found.level
        matches = self.matches
        total = 0.0
        for row, weight in zip(rows.tolist(), board.weight[rows].tolist(), strict=True):
            name = keys[row]
            matches[row] = match = Matched(submitter, request, name, 1, weight, NO_PREEMPTION, (), limits)
            total += weight
            if level is not None and level[row] < FREE:
                match.reason, match.preempts = _REASONS[float(level[row])], (name,)
                self._lose(row, weight)
        board.take(rows)
        self._charge(submitter, total, len(rows))
        asking.left -= len(rows)

    def _add(self, asking: Asking, row: int, jobs: int, weight: float, limits: str) -> None:
        """Some jobs on a partitionable slot."""
        key = (asking.submitter, asking.request.schedd, asking.request.autocluster, row, limits)
        known = self.matches.get(key)
        if known is None:
            name = self.board.frame.keys[row]
            self.matches[key] = Matched(asking.submitter, asking.request, name, jobs, weight, NO_PREEMPTION, (), limits)
        else:
            known.count += jobs
            known.weight += weight
        self._charge(asking.submitter, weight, jobs)
        asking.left -= jobs

    def _charge(self, name: str, weight: float, jobs: int) -> None:
        use = self._use.setdefault(name, [0.0, 0.0])
        use[0] += weight
        use[1] += jobs
        group = self.tree.group_of(name)
        self._group_use[group] = self._group_use.get(group, 0.0) + weight
        self.given[name] = self.given.get(name, 0.0) + weight

    def _lose(self, row: int, weight: float) -> None:
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

    # --- afterwards

    def settle(self, plans: Sequence[Plan]) -> None:
        """The hand-out is over."""

    def thrashing(self) -> tuple[Thrashing, ...]:
        return find_thrashing(self.snapshot.preempted, self.matches.values(), self.losers, self.config, self.now)
