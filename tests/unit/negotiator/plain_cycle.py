"""The negotiation cycle once more, as plain loops over ClassAds: what `negotiate` is held to (test_twin.py).

One job at a time, every slot looked at anew, nothing remembered but who has what. It is slow and easy to read. What it
shares with the product is what is plain there too: the ads and their evaluator, fractions of a pie, priorities, group
quotas, counters of concurrency limits, consumption policies.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from engine.fairshare.claim_charging import charged_to
from engine.fairshare.group_negotiation import GroupTurn, negotiate_groups
from engine.fairshare.group_tree import ROOT, GroupConfig, GroupTree
from engine.fairshare.priorities import Record, effective, pie_fractions
from engine.fairshare.quotas import assign_quotas
from engine.match.concurrency_limits import LimitCounters
from engine.match.model import (
    NEWCOMER,
    NO_PREEMPTION,
    PRIORITY_PREEMPTION,
    RANK_PREEMPTION,
    CycleConfig,
    Request,
    Slots,
    Snapshot,
)
from engine.match.slot_arrays import frame_of
from shared.classad import ClassAd, Expr, evaluate, half_match
from shared.job_limits import Wanted, depends_on_slot, text_of, wanted
from tests.unit.negotiator.outcomes import Key, Outcome, gifts_of
from tests.unit.negotiator.plain_slots import PlainSlot, is_full, is_part_of, natural, number, weight_of, without_part

#: The rank of what is no number, of the configuration's ranks.
_LAST = -3.4028234663852886e38
#: Weights that differ by less are equal: sums of tenths miss whole numbers by as much.
NEARLY = 1e-9
#: Reasons for a claim, best first (NEG-21).
LEVELS = {NO_PREEMPTION: 2, RANK_PREEMPTION: 1, PRIORITY_PREEMPTION: 0}


def plain_negotiate(snapshot: Snapshot, config: CycleConfig, now: float) -> Outcome:
    """Decide one cycle, without time limits."""
    return _Cycle(snapshot, config, now).run()


@dataclass
class _Ask:
    submitter: str
    request: Request
    left: int
    cause: str = ""


@dataclass
class _Purse:
    """What a submitter may take in its turn: limit: its slice; unused: of that, of slots nobody has; cap: up to its
    ceiling or floor; got: what it has; preempted: of that, what others had."""

    limit: float
    unused: float
    cap: float
    got: float = 0.0
    preempted: float = 0.0

    def full(self) -> bool:
        return self.got >= self.cap - NEARLY

    def spent(self) -> bool:
        return self.limit - self.got <= NEARLY

    def permits(self, weight: float, preempts: bool) -> bool:
        """The first slot of a turn may exceed the slice, and the first of those that nobody has (NEG-13); these are
        measured against the slice without what was preempted."""
        within = self.got + weight <= self.limit + NEARLY
        if preempts:
            return within or self.got <= 0.0 < self.limit
        free = self.got - self.preempted
        if free <= 0.0 < self.unused and self.got < self.limit:
            return True
        return free + weight <= self.unused + NEARLY and (within or self.got < self.limit - NEARLY)


@dataclass(frozen=True)
class _Offer:
    """A slot that one job may have. after: a partitionable slot's ad when the job has its part."""

    slot: PlainSlot
    reason: str
    charge: float
    after: ClassAd | None
    victims: tuple[PlainSlot, ...]
    key: tuple[object, ...]


class _Cycle:
    def __init__(self, snapshot: Snapshot, config: CycleConfig, now: float) -> None:
        self.snapshot, self.config, self.now = snapshot, config, now
        self.groups = config.groups or GroupConfig()
        self.tree = GroupTree.of(self.groups)
        self.quotas = assign_quotas(self.tree, self.groups, snapshot.total_weight)
        self.counters = LimitCounters(config.limits, snapshot.limits_in_use)
        self.weight_in_use = {name: use[0] for name, use in snapshot.in_use.items()}
        self.slots_in_use = {name: use[1] for name, use in snapshot.in_use.items()}
        self.slots = [self._slot(name) for name in sorted(snapshot.slots.names, key=natural)]
        for slot in self.slots:
            slot.children = [child for child in self.slots if is_part_of(child, slot)]
        # Of a partitionable slot a core, at least, is handed out.
        self.lightest = min(
            (min(1.0, slot.weight) if slot.partitionable else slot.weight for slot in self.slots), default=0.0
        )
        self.weightless = any(slot.weight == 0.0 and not is_full(slot) for slot in self.slots)
        self.asks = {name: [_Ask(name, r, r.count) for r in asked] for name, asked in snapshot.requests.items()}
        self.gifts: dict[Key, int] = {}
        self.weights: dict[Key, float] = {}
        self.turn: GroupTurn | None = None
        askers = {name for name, asks in self.asks.items() if asks}
        self.everybody = askers | (set(snapshot.running) if config.consider_preemption else set())
        self.left_turns: set[tuple[str, str]] = set()  # (group, who needs no turn of it any more)

    def _slot(self, name: str) -> PlainSlot:
        table = frame_of(self.snapshot.slots).table
        row = table.row(name)
        ad = table.ad(row)
        config = self.config
        partitionable = ad.eval("PartitionableSlot") is True
        usable = bool(table.companions[Slots.OFFERED][row]) and bool(table.companions[Slots.NAMED][row])
        usable = usable and ad.eval("Offline", now=self.now) is not True
        if config.trim_shutdown_s > 0 and ad.eval("DaemonShutdown", now=self.now + config.trim_shutdown_s) is True:
            usable = False  # NEG-33
        users = (ad.eval(n) for n in ("PreemptingAccountingGroup", "PreemptingUser", "AccountingGroup", "RemoteUser"))
        return PlainSlot(
            name,
            ad,
            weight_of(ad, config, self.now),
            partitionable,
            ad.eval("State") in ("Claimed", "Preempting") and not partitionable,
            usable,
            next((user for user in users if isinstance(user, str) and user), ""),  # PRE-06
            charged_to(ad, discount_suspended=config.discount_suspended),
        )

    # --- submitters

    def run(self) -> Outcome:
        total = self.snapshot.total_weight
        heaviest = max((slot.weight for slot in self.slots), default=0.0)
        negotiate_groups(self.tree, self.groups, total, self._demand(), self._group_use, self._serve, heaviest=heaviest)
        left = []
        for name, asks in sorted(self.asks.items()):
            left += [(name, i, ask.left, ask.cause.partition(":")[0]) for i, ask in enumerate(asks) if ask.left]
        return Outcome(
            gifts_of(self.gifts, self.weights),
            tuple((name, i, n) for name, i, n, _ in left),
            tuple(code for *_, code in left),
        )

    def _record(self, name: str) -> Record:
        record = self.snapshot.records.get(name, NEWCOMER)
        return record if effective(record) > 0.0 else NEWCOMER

    def _eup(self, name: str) -> float:
        return effective(self._record(name))

    def _use(self, name: str) -> float:
        return self.weight_in_use.get(name, 0.0)

    def _group_use(self, group: str) -> float:
        return sum(weight for name, weight in self.weight_in_use.items() if self.tree.group_of(name) == group)

    def _demand(self) -> dict[str, float]:
        """GRP-17."""
        demand: dict[str, float] = {}
        for name in {name for name, asks in self.asks.items() if asks} | set(self.snapshot.demand):
            if name in self.snapshot.demand:
                asked = self.snapshot.demand[name]
            else:
                asked = self._use(name)
                for ask in self.asks[name]:
                    cpus = ask.request.ad.eval("RequestCpus") if self.config.use_slot_weights else 1.0
                    plain = isinstance(cpus, int | float) and not isinstance(cpus, bool) and 0 < cpus < 1e9
                    asked += ask.left * (float(cpus) if plain else 1.0)  # type: ignore[arg-type]
            group = self.tree.group_of(name)
            demand[group] = demand.get(group, 0.0) + asked
        return demand

    def _serve(self, turn: GroupTurn) -> float:
        """A group's turn: floors first, then spins (NEG-08 to NEG-13)."""
        self.turn = turn
        self.given = 0.0
        self.kept = 0.0  # of that, without what the group's own members lost
        present = [
            name
            for name in self.everybody
            if self.tree.group_of(name) in turn.members and (turn.group, name) not in self.left_turns
        ]
        members = [name for name in present if any(ask.left for ask in self.asks.get(name, ()))]
        if not members:
            return 0.0
        others = [name for name in present if name not in members]
        self.left_turns |= {(turn.group, name) for name in others}

        def below(names: Iterable[str]) -> list[str]:
            return [name for name in names if self._use(name) < self._record(name).floor]

        if below(members):
            self._spin(below(members), below(others), 0)
        spin = 1
        while members:
            before = sum(self.gifts.values())
            asked = members, others
            members, others = self._spin(members, others, spin)
            unchanged = (len(members), len(others)) == tuple(map(len, asked)) and sum(self.gifts.values()) == before
            if unchanged and spin > 1:
                break
            spin += 1
        return self.given

    def _spin(self, names: list[str], others: list[str], spin: int) -> tuple[list[str], list[str]]:
        """Who still asks afterwards, and who has a part besides. Spin 0 is that of the floors."""
        turn = self.turn
        assert turn is not None
        pie = min(self.snapshot.total_weight, turn.quota)
        room = turn.limit - self.kept
        open_weight = sum(slot.weight for slot in self.slots if slot.usable and not slot.claimed and not slot.taken)
        free = min(open_weight, room, max(0.0, self.snapshot.total_weight - sum(self.weight_in_use.values())))
        parts = pie_fractions([*names, *others], {name: self._eup(name) for name in [*names, *others]})
        parts_of_free = pie_fractions(names, {name: self._eup(name) for name in names})

        def due(name: str) -> float:
            return max(0.0, parts[name] * pie - self._use(name))

        def of_the_free(name: str) -> float:
            return due(name) if spin <= 1 else parts_of_free[name] * max(0.0, free)

        def slice_of(name: str) -> float:
            return max(due(name), of_the_free(name))

        def had(name: str) -> float:
            most = self._use(name) + due(name)
            return self._use(name) / most if most > 0.0 else math.inf

        if spin <= 1:
            names = sorted(names, key=lambda name: (self._eup(name), had(name), name))
        rest = sum(map(slice_of, names)) + sum(map(due, others)) if spin else math.inf
        unused_rest = sum(map(of_the_free, names)) if spin > 1 else math.inf
        others = [name for name in others if spin > 1 and due(name) < self.lightest - NEARLY]
        still = []
        for name in names:
            if (at_quota := self.kept >= turn.limit - NEARLY) and spin != 1:
                return [], []
            limit = max(0.0, min(slice_of(name), rest))
            unused = 0.0 if at_quota else max(0.0, min(of_the_free(name), room, unused_rest))
            if spin > 1:  # crumbs stay where they are
                limit = limit if limit >= self.lightest - NEARLY else 0.0
                unused = unused if unused >= self.lightest - NEARLY else 0.0
                if not limit and not unused:
                    still.append(name)
                    continue
            record = self._record(name)
            cap = record.ceiling - self._use(name) if record.ceiling >= 0.0 else math.inf
            if cap < self.lightest - NEARLY or cap <= 0.0:
                for ask in self.asks[name]:
                    ask.cause = "ceiling"
                if spin:
                    self.left_turns.add((turn.group, name))
                continue
            purse = _Purse(limit, unused, cap if spin else min(cap, record.floor))
            causes = [ask.cause for ask in self.asks[name]]
            self._serve_one(name, purse, spin)
            if spin > 1 and not unused:
                for ask, cause in zip(self.asks[name], causes, strict=True):
                    ask.cause = cause if ask.cause == "no-match" else ask.cause
            rest -= purse.got
            unused_rest -= purse.got - purse.preempted
            if any(ask.left and ask.cause in ("share", "ceiling") for ask in self.asks[name]):
                still.append(name)
            elif purse.spent() and any(ask.left for ask in self.asks[name]):
                others.append(name)
            elif spin:
                self.left_turns.add((turn.group, name))
        return still, others

    def _serve_one(self, name: str, purse: _Purse, spin: int) -> None:
        refused: dict[tuple[str, int], str] = {}
        for ask in self.asks[name]:
            key = (ask.request.schedd, ask.request.autocluster)
            if not ask.left:
                continue
            if key in refused and not self.config.all_jobs_in_cluster:  # NEG-17
                ask.cause = refused[key]
                continue
            self._serve_request(ask, purse, spin)
            if ask.left:
                refused[key] = ask.cause

    # --- jobs

    def _serve_request(self, ask: _Ask, purse: _Purse, spin: int) -> None:
        config = self.config
        steady = config.matchlist_caching and config.preemption_requirements_stable and config.preemption_rank_stable
        job = self._with_ephemerals(ask)
        packing: PlainSlot | None = None
        while ask.left:
            if not steady:
                job = self._with_ephemerals(ask)  # NEG-27, NEG-28
            wants = None if depends_on_slot(ask.request.ad) else wanted(ask.request.ad, ClassAd(), self.now)
            if wants and self.counters.blocking(wants):
                ask.cause = f"limit:{self.counters.blocking(wants)}"
                return
            if purse.full():
                ask.cause = "ceiling"
                return
            exempting = spin == 1 and config.consider_preemption and self._has_held()  # NEG-14
            if purse.spent() and not exempting and not self.weightless:
                ask.cause = "share"
                return
            offers = [offer for slot in self.slots if (offer := self._offer(slot, job, ask.submitter)) is not None]
            offers.sort(key=lambda offer: offer.key)
            if config.depth_first and packing is not None:  # NEG-34
                offers.sort(key=lambda offer: offer.slot is not packing)
            chosen, cause = None, "no-match"
            for offer in offers:
                its_wants = wanted(job, offer.slot.seen(), self.now) if wants is None else wants
                blocked = self.counters.blocking(its_wants)
                exempt = exempting and offer.reason == RANK_PREEMPTION
                if blocked:
                    if cause == "no-match":
                        cause = f"limit:{blocked}"
                elif purse.permits(offer.charge, self._shuffled(offer)) or exempt:
                    chosen = (offer, its_wants)
                    break
                else:
                    cause = "share"
            if chosen is None:
                ask.cause = cause
                return
            self._give(ask, purse, *chosen)
            packing = chosen[0].slot

    def _has_held(self) -> bool:
        return any(slot.claimed and slot.usable for slot in self.slots)

    def _with_ephemerals(self, ask: _Ask) -> ClassAd:
        """The job with what only the cycle knows (NEG-43, NEG-44); the slots are brought up to date too."""
        for slot in self.slots:
            slot.ephemeral = ClassAd()
            if slot.user:
                slot.ephemeral["RemoteUserPrio"] = self._eup(slot.user)
                slot.ephemeral["RemoteUserResourcesInUse"] = self.slots_in_use.get(slot.user, 0)
                slot.ephemeral.update(self._of_group("Remote", slot.user))
        for slot in self.slots:
            for other in self.slots:
                if other.user and other.ad.eval("Machine") == slot.ad.eval("Machine"):
                    slot.ephemeral[f"Slot{other.ad.eval('SlotID')}_RemoteUserPrio"] = self._eup(other.user)
        assert self.turn is not None
        job = ask.request.ad.copy()
        job["SubmitterUserPrio"] = self._eup(ask.submitter)
        job["SubmitterUserResourcesInUse"] = self.slots_in_use.get(ask.submitter, 0)
        job["SubmitterNegotiatingGroup"] = self.turn.group
        job["SubmitterAutoregroup"] = self.turn.group == ROOT and self.tree.group_of(ask.submitter) != ROOT
        job.update(self._of_group("Submitter", ask.submitter))
        return job

    def _of_group(self, whose: str, name: str) -> dict[str, object]:
        group = self.tree.group_of(name)
        if group == ROOT:
            return {f"{whose}Group": ROOT} if self.tree else {}
        return {
            f"{whose}Group": group,
            f"{whose}GroupQuota": self.quotas.own[self.tree.by_key[group]],
            f"{whose}GroupResourcesInUse": self._group_use(group),
        }

    # --- slots

    def _offer(self, slot: PlainSlot, job: ClassAd, submitter: str) -> _Offer | None:
        """How the job may have the slot now; None: not at all."""
        config = self.config
        if slot.taken or not slot.usable:
            return None
        seen = slot.seen()
        after: ClassAd | None = None
        victims: tuple[PlainSlot, ...] = ()
        reason = NO_PREEMPTION
        if slot.partitionable:
            whole = slot.ad
            after = without_part(whole, _with(whole, slot.ephemeral), job, self.now)
            if after is None:
                found = self._emptied(slot, job, submitter)
                if found is None:
                    return None
                whole, after, reason, victims = found
            # Parts are charged what the slot weighs less without them (CON-06).
            charge = (
                max(0.0, weight_of(whole, config, self.now) - weight_of(after, config, self.now))
                if config.use_slot_weights
                else 1.0
            )
        else:
            if not half_match(job, seen, now=self.now) or not half_match(seen, job, now=self.now):  # NEG-18
                return None
            charge = slot.weight
            if slot.claimed:
                reason = self._preemption(slot, seen, job, submitter)
                if not reason:
                    return None
                victims = (slot,)
        key = (
            -self._rank(config.pre_job_rank, seen, job),
            -number(job.eval("Rank", seen, self.now)),
            -self._rank(config.post_job_rank, seen, job),
            -LEVELS[reason],
            -self._rank(config.preemption_rank, seen, job) if reason != NO_PREEMPTION else 0.0,
            natural(slot.name),
        )
        return _Offer(slot, reason, charge, after, victims, key)

    def _rank(self, expr: Expr | None, slot: ClassAd, job: ClassAd) -> float:
        return 0.0 if expr is None else number(evaluate(expr, slot, job, self.now), _LAST)

    def _preemption(self, slot: PlainSlot, seen: ClassAd, job: ClassAd, submitter: str) -> str:
        """Why a slot in use may be taken as it is (PRE-08, PRE-15); empty: it may not."""
        config = self.config
        if config.allow_pslot_preemption and seen.eval("DynamicSlot") is True:
            return ""
        if not config.consider_early_preemption and number(seen.eval("RetirementTimeRemaining", job, self.now)) > 0:
            return ""
        return self._preference(slot, seen, job, submitter)

    def _preference(self, slot: PlainSlot, seen: ClassAd, job: ClassAd, submitter: str) -> str:
        """Why the job comes before who has the slot (PRE-01 to PRE-06); empty: it does not."""
        config = self.config
        if not config.consider_preemption or seen.eval("Activity") == "Idle" or not slot.user:  # NEG-05, NEG-19
            return ""
        rank = number(seen.eval("Rank", job, self.now), math.nan)
        current = number(seen.eval("CurrentRank", now=self.now), math.nan)
        if rank > current:
            return RANK_PREEMPTION
        if rank != current or slot.user == submitter or self._eup(slot.user) <= self._eup(submitter):
            return ""
        requirements = config.preemption_requirements
        allowed = requirements is not None and evaluate(requirements, seen, job, self.now) is True  # PRE-03
        return PRIORITY_PREEMPTION if allowed else ""

    def _emptied(
        self, slot: PlainSlot, job: ClassAd, submitter: str
    ) -> tuple[ClassAd, ClassAd, str, tuple[PlainSlot, ...]] | None:
        """A partitionable slot with as many of its dynamic slots as the job needs (PRE-11 to PRE-17): the ad with their
        resources, that without the job's part, the reason, and the dynamic slots."""
        if not self.config.allow_pslot_preemption:
            return None
        ranked = sorted(slot.children, key=lambda child: (number(child.ad.eval("CurrentRank")), natural(child.name)))
        whole, reason, victims = slot.ad.copy(), RANK_PREEMPTION, []
        for child in ranked:
            seen = child.seen()
            if child.taken or not child.usable or not child.claimed:
                continue
            if number(seen.eval("RetirementTimeRemaining", job, self.now)) > 0:  # PRE-14
                continue
            why = self._preference(child, seen, job, submitter)
            if not why:
                continue
            if why == PRIORITY_PREEMPTION:
                reason = why
            victims.append(child)
            for name in ("Cpus", "Memory", "Disk"):
                whole[name] = _amount(whole, name) + _amount(child.ad, name)
            after = without_part(whole, _with(whole, slot.ephemeral), job, self.now)
            if after is not None:
                return whole, after, reason, tuple(victims)
        return None

    # --- giving

    def _give(self, ask: _Ask, purse: _Purse, offer: _Offer, wants: Wanted) -> None:
        slot = offer.slot
        request = ask.request
        preempts = tuple(victim.name for victim in offer.victims)
        key = (
            ask.submitter,
            request.schedd,
            request.autocluster,
            slot.name,
            offer.reason,
            preempts,
            text_of(wants),
        )
        self.gifts[key] = self.gifts.get(key, 0) + 1
        self.weights[key] = self.weights.get(key, 0.0) + offer.charge
        self.counters.take(wants)
        purse.got += offer.charge
        purse.preempted += offer.charge if self._shuffled(offer) else 0.0
        self.given += offer.charge
        self.kept += offer.charge
        assert self.turn is not None
        for victim in offer.victims:
            if victim.charged and self.tree.group_of(victim.charged) in self.turn.members:
                self.kept -= victim.weight
        ask.left -= 1
        for victim in offer.victims:
            self._use_more(victim.charged, -victim.weight, -1)
            victim.taken = True
        self._use_more(ask.submitter, offer.charge, 1)
        if offer.after is None:
            slot.taken = True
        else:
            slot.ad = offer.after
            slot.weight = weight_of(slot.ad, self.config, self.now)

    def _shuffled(self, offer: _Offer) -> bool:
        """Whether it is no more use of the group: preemption, but not of others where the quota is a cap (GRP-14)."""
        assert self.turn is not None
        if not offer.victims or not self.turn.capped:
            return bool(offer.victims)
        return all(
            victim.charged and self.tree.group_of(victim.charged) in self.turn.members for victim in offer.victims
        )

    def _use_more(self, name: str, weight: float, slots: int) -> None:
        if not name:
            return
        self.weight_in_use[name] = max(0.0, self._use(name) + weight)
        self.slots_in_use[name] = max(0, self.slots_in_use.get(name, 0) + slots)


def _amount(ad: ClassAd, name: str) -> int | float:
    """Of a resource; whole numbers stay whole, as the startd's do."""
    value = ad.eval(name)
    return value if isinstance(value, int | float) and not isinstance(value, bool) else 0


def _with(ad: ClassAd, more: ClassAd) -> ClassAd:
    both = ad.copy()
    both.update(more)
    return both
