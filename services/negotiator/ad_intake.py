"""How daemons' ads get into the slot table: whose ad counts, which slots are this negotiator's, which can be read.
Nothing that an ad can hold keeps the others from being matched.

`Reevaluation` is STARTD_AD_REEVAL_EXPR: whether a slot's new ad takes the place of the one that was used before (spec
row NEG-38). Without the knob the newer ad counts, by the sequence numbers of its daemon: the ad table sees to that
before anything comes here. With it, an administrator can have a slot matched by an older ad, say to damp what flutters.
The ad that was kept back is asked about again before each cycle, as the expression may look at the clock.

The reference asks only about ads with a flag that its manual does not know of, so there the knob seems to do nothing.
Here it does what the manual says: every slot is asked about. What a kept-back ad says of claims is kept back with it;
an expression should let changes of State pass:

    STARTD_AD_REEVAL_EXPR = TARGET.State =!= MY.State || TARGET.EnteredCurrentState > MY.EnteredCurrentState
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, TypeVar

from engine.fairshare.claim_charging import ClaimCharges
from engine.match.slot_table import SlotTable
from engine.policy import Policy
from services.negotiator.clock_offsets import ClockOffsets
from shared.classad import ClassAd, Expr, evaluate, is_true
from shared.classad.budget import Budget, ads_of, present
from shared.classad.quick import QuickAd, read_in_portions
from shared.classad.references import decided_by
from shared.daemon.ad_rows import BadAd, Patch
from shared.daemon.ad_table import AdTable
from shared.daemon.clock import Clock
from shared.daemon.offline_ads import is_offline

T = TypeVar("T")

#: Of a slot's ad, what a cycle evaluates before it meets any job.
_BY_ITSELF: Final = (
    *("PartitionableSlot", "State", "Offline", "SlotWeight", "Cpus", "Memory", "Disk", "DaemonShutdown"),
    *("ConcurrencyLimits", "PreemptingConcurrencyLimits"),
)
#: Of a submitter's ad: how often one of its jobs became ready to start.
_OFFERED: Final = "JobsOffered"
#: Names in MachineResources that are looked at.
_MOST_RESOURCES: Final = 100


class TooDear(ValueError):
    """The expressions in the ads of one machine take too long."""


@dataclass(slots=True)
class IntakeResult:
    """What taking in some ads came to. slots: how many are new or changed; touched: whether use may have changed;
    freed: whether a cycle may find room that the last one did not."""

    slots: int = 0
    touched: bool = False
    freed: bool = False

    def add(self, other: IntakeResult) -> None:
        self.slots += other.slots
        self.touched |= other.touched
        self.freed |= other.freed


class AdIntake:
    """Takes slots from ads into the slot table. `ads` holds what every daemon said, `table` the slots that this
    negotiator deals with. `unreadable` hears of ads that are left out: MyType, daemon, name, and why."""

    def __init__(
        self,
        policy: Policy,
        ads: AdTable,
        table: SlotTable,
        clock: Clock,
        unreadable: Callable[[str, str, str, Exception], None],
    ) -> None:
        self.policy = policy
        self._reevaluation = Reevaluation(policy.settings.startd_ad_reeval_expr)
        self._ads = ads
        self._table = table
        self._clock = clock
        self._unreadable = unreadable
        self._owners: dict[str, str] = {}  # slot -> daemon
        self.absent: set[str] = set()  # daemons that are gone: their slots are kept out of the table
        self._behind: set[str] = set()  # slots whose last ad could not be taken in
        self._unsteady: set[str] = set()  # slots that the constraint leaves out now, and may let in later
        self.claim_charges = ClaimCharges()
        self.clock_offsets = ClockOffsets()

    def configure(self, policy: Policy) -> None:
        """Go by another policy from now on. Slots stay as they were taken until they are taken again; which newest ads
        are kept back is not forgotten."""
        expr = policy.settings.startd_ad_reeval_expr
        if str(expr) != str(self.policy.settings.startd_ad_reeval_expr):
            self._reevaluation = Reevaluation(expr)
        self.policy = policy

    def clock_set(self, seconds: float) -> None:
        """Our clock was set by so many seconds: what was noted of ads and claims goes by the new time."""
        self._ads.clock_set(seconds)
        self.claim_charges.clock_set(seconds)
        self.clock_offsets.clock_set(seconds)

    def owner(self, slot: str, daemon: str) -> str:
        """The daemon that a slot belongs to: while its startd's ad stands, no other daemon may speak of it."""
        owner = self._owners.get(slot, daemon)
        return owner if self._ads.row("Machine", owner, slot) is not None else daemon

    def steps(
        self, daemon: str, changed: Iterable[str] | Mapping[str, Patch | None], gone: Iterable[str]
    ) -> Iterator[IntakeResult]:
        """Take in a daemon's slots: those whose ad is new or changed, with what changed where that is all of it, and
        those that are no more. A slot at each step, or a part of a large one: who takes in thousands lets others have
        their turn in between."""
        budget = ads_of(daemon)
        told = False
        patches: Mapping[str, Patch | None] = changed if isinstance(changed, Mapping) else {}
        for name in changed if daemon not in self.absent else ():
            row = self._ads.row("Machine", daemon, name)
            if row is None or self.owner(name, daemon) != daemon:
                continue
            freed = False
            try:
                offset, patch = self.clock_offsets.offset(daemon), patches.get(name)
                if patch is None or not self._apply_patch(daemon, name, patch, offset):
                    told_of = row.packed()
                    read = yield from _meanwhile(budget.over(QuickAd.portions(self.policy.match_exprs.into(told_of))))
                    if self._ads.row("Machine", daemon, name) is not row or row.packed() != told_of:
                        continue  # who changed it meanwhile takes it in
                    with budget.open():
                        freed = self._apply(daemon, name, told_of, offset, read)
            except (ValueError, RecursionError) as error:
                self._behind.add(name)
                if not told:  # of a machine whose ads are too dear once for all of them
                    self._unreadable("Machine", daemon, name, error)
                told = bool(budget.spent)
                if told:  # it would be as dear to the cycle
                    self._drop(name)
                yield IntakeResult()
                continue
            self._owners[name] = daemon
            yield IntakeResult(slots=1, touched=True, freed=freed)
        for name in gone:
            if self.owner(name, daemon) == daemon:
                self._owners.pop(name, None)
                self._drop(name)
                yield IntakeResult(touched=True)

    def _drop(self, name: str) -> None:
        """A slot is none of ours any more."""
        self._reevaluation.forget(name)
        self._unsteady.discard(name)
        self._behind.discard(name)
        self._table.drop(name)
        self.claim_charges.slot_dropped(name, self._clock.now())

    def _apply(self, daemon: str, name: str, packed: bytes, offset: float, read: QuickAd) -> bool:
        """Take in a slot's ad as it is now. read: what is put into the table. True when a cycle may find room on it.
        Raises ValueError, among them TooDear, and RecursionError."""
        settings, now = self.policy.settings, self._clock.now()
        constraint = settings.negotiator_slot_constraint
        self._unsteady.discard(name)
        if constraint is not None and evaluate(constraint, ad := ClassAd.unpack(packed), now=now) is not True:
            if not _is_steady(constraint, ad):
                self._unsteady.add(name)
            # Neither offered nor charged nor part of the pool's size: another negotiator's (NEG-04, MUL-01, MUL-02). It
            # may come back without its startd saying its claim id again.
            claim = self._table.claims.get(name)
            self._table.drop(name)
            self.claim_charges.slot_paused(name, now)
            if claim is not None:
                self._table.claims[name] = claim
            return False
        if settings.startd_ad_reeval_expr is not None and name in self._table.ads:
            new = ClassAd.unpack(packed)
            if not self._reevaluation.replaces(name, lambda: self._table.ads[name], new, now):
                return False
        freed = self._table.put(name, read, daemon)
        budget = present()
        if budget is not None and not self._affordable(read, budget):
            raise TooDear(f"{budget.what}: their expressions take too long ({budget.spent}); they match nothing")
        self._behind.discard(name)
        self._charge(name, offset)
        return freed

    def _apply_patch(self, daemon: str, name: str, patch: Patch, offset: float) -> bool:
        """Take in what changed in a slot's ad; False, with nothing changed, where the whole ad has to be looked at."""
        settings = self.policy.settings
        if settings.negotiator_slot_constraint is not None or settings.startd_ad_reeval_expr is not None:
            return False
        if self._owners.get(name) != daemon or name in self._behind or self.policy.match_exprs.exprs:
            return False
        if not self._table.patch(name, patch):
            return False
        self._charge(name, offset)
        return True

    def _charge(self, name: str, offset: float) -> None:
        """Have a slot that is in the table charged."""
        use = self._table.use(name)
        self.claim_charges.slot_seen(
            name,
            user=use.user,
            weight=use.weight,
            claimed_at=use.claimed_at,
            past=use.past,
            now=self._clock.now(),
            offset=offset,
            by_cpus=self.policy.cycle.use_slot_weights,
            clock_set=use.clock_set,
        )

    @staticmethod
    def _affordable(ad: QuickAd, budget: Budget) -> bool:
        """Whether what a cycle evaluates of a slot by itself, and what was evaluated so far, fits into the budget."""
        names = (*_BY_ITSELF, *ad.eval_string("MachineResources").replace(",", " ").split()[:_MOST_RESOURCES])
        for attribute in names:
            ad.eval(attribute)  # beyond the budget that costs nothing
        return not budget.spent

    def compact(self, most: int) -> int:
        """Compress up to so many of the slots' ads that came since the last time; how many were. Some 15 us each."""
        names = self._table.compact(most)
        for name in names:
            row = self._ads.row("Machine", self._owners.get(name, ""), name)
            if row is not None:
                with contextlib.suppress(BadAd):  # it was told when the ad came
                    row.stored()
        return len(names)

    def vanished(self, daemon: str) -> int:
        """A daemon is gone (COL-11): nobody gets its slots, and who has one goes on being charged for it, until the
        daemon speaks again or its ads expire. Returns how many of them there were."""
        group = self._ads.group("Machine", daemon)
        if group is None or daemon in self.absent:
            return 0
        self.absent.add(daemon)
        slots = [name for name in group.rows if self.owner(name, daemon) == daemon]
        for name in slots:
            self._table.put_away(name)
        return len(slots)

    def returned(self, daemon: str) -> Iterator[IntakeResult]:
        """A daemon speaks: if it was thought to be gone its slots are offered again. A step for each, as of all that
        follow."""
        if daemon in self.absent:
            self.absent.discard(daemon)
            group = self._ads.group("Machine", daemon)
            yield from self.steps(daemon, list(group.rows) if group is not None else (), ())

    def apply_all(self) -> Iterator[IntakeResult]:
        """Take in everything again: after loading, or when the policy is another. Slots that are in
        nobody's ads any more go: what was loaded may stand on messages that were missed, and nobody says again that
        they are gone. Until then somebody would be charged for them."""
        for group in list(self._ads.groups("Machine")):
            yield from self.steps(group.daemon, list(group.rows), ())
        for name, daemon in list(self._owners.items()):
            if self._ads.row("Machine", daemon, name) is None:
                yield from self.steps(daemon, (), [name])

    def apply_kept_back(self) -> Iterator[IntakeResult]:
        """Ask again about ads that STARTD_AD_REEVAL_EXPR kept back: it may let them pass by now (NEG-38)."""
        for name in self._reevaluation.kept_back():
            if name in self._owners:
                yield from self.steps(self._owners[name], [name], ())

    def apply_constraint(self) -> Iterator[IntakeResult]:
        """Ask NEGOTIATOR_SLOT_CONSTRAINT again, before a cycle, about slots whose ads are the same: the clock may have
        a part in it (NEG-04)."""
        constraint = self.policy.settings.negotiator_slot_constraint
        if constraint is None:
            return
        for name in (*sorted(self._unsteady), *self._table.left_out(constraint, self._clock.now())):
            if name in self._owners:
                yield from self.steps(self._owners[name], [name], ())

    def expire(self, now: float) -> Iterator[IntakeResult]:
        """Drop ads that nobody has repeated for CLASSAD_LIFETIME (COL-02)."""
        for group, names in self._ads.expired(now):
            self._ads.remove(group.my_type, group.daemon, names or None)
            if not group.rows:
                self.absent.discard(group.daemon)
                self.clock_offsets.forget([group.daemon])
            if group.my_type == "Machine":
                yield from self.steps(group.daemon, (), names)

    def sleeping_daemons(self, now: float) -> list[str]:
        """Daemons whose ads are about to expire, with machines among them that sleep: those are silent, and not gone
        as long as the collector keeps their ads (ABS-07)."""
        due = [group for group, _ in self._ads.expired(now) if group.my_type == "Machine"]
        return [one.daemon for one in due if any(is_offline(row.read(), now) for row in one.rows.values())]

    def wants_slots(self, daemon: str, updated: Mapping[str, Patch | None]) -> Generator[None, None, bool]:
        """Whether one of a schedd's submitters has idle jobs that it did not have before. updated: what changed in
        their ads. A schedd that does not count its offers is taken to have more with every change. One in each step."""
        for name, patch in updated.items():
            ad = yield from self._submitter(daemon, name)
            if ad is not None and _may_have_more(ad, patch):
                with ads_of(daemon).open():
                    submitter = submitter_of(ad)
                if submitter is not None and submitter.idle > 0:
                    return True
            yield
        return False

    def submitters(self) -> list[Submitter]:
        """Submitters that can be talked to, those that NEGOTIATOR_SUBMITTER_CONSTRAINT leaves (NEG-06), in a stable
        order."""
        return in_order(self.each_submitter())

    def each_submitter(self) -> Iterator[Submitter | None]:
        """The same in no order, with None for each that is left out, so that who takes thousands can give way."""
        constraint = self.policy.settings.negotiator_submitter_constraint
        now = self._clock.now()
        for daemon, name in [(daemon, name) for daemon, name, _ in self._ads.rows("Submitter")]:
            ad = yield from self._submitter(daemon, name)
            with ads_of(daemon).open():
                taken = ad is not None and (constraint is None or evaluate(constraint, ad, now=now) is True)
                found = submitter_of(ad) if ad is not None and taken else None
            yield found

    def _submitter(self, daemon: str, name: str) -> Generator[None, None, ClassAd | None]:
        row = self._ads.row("Submitter", daemon, name)
        if row is None:
            return None
        try:
            return (yield from ads_of(daemon).over(read_in_portions(row.packed())))
        except (ValueError, RecursionError) as error:
            self._unreadable("Submitter", daemon, name, error)
            return None


def _meanwhile(steps: Generator[None, None, T]) -> Generator[IntakeResult, None, T]:
    """Steps that take in nothing yet."""
    while True:
        try:
            next(steps)
        except StopIteration as done:
            found: T = done.value
            return found
        yield IntakeResult()


def _is_steady(constraint: Expr, ad: ClassAd) -> bool:
    """Whether a constraint has the same value for as long as the ad is the same: what it names are plain values."""
    named = decided_by(constraint)
    return named is not None and not any(isinstance(ad.find(key), Expr) for key in named)


class Reevaluation:
    """expr: the knob; None: it is not set. MY is the ad in use, TARGET the new one, as in HTCondor."""

    def __init__(self, expr: Expr | None = None) -> None:
        self._expr = expr
        self._kept_back: set[str] = set()

    def replaces(self, name: str, used: Callable[[], ClassAd | None], new: ClassAd, now: float) -> bool:
        """Whether the new ad of slot `name` is to be used from now on. `used` gives the ad in use, None if there is
        none; it is asked only where the knob is set. What is neither true nor false counts as true."""
        old = used() if self._expr is not None else None
        if self._expr is None or old is None:
            return True
        value = evaluate(self._expr, old, new, now)
        replaces = is_true(value) or not isinstance(value, bool | int | float)
        if replaces:
            self._kept_back.discard(name)
        else:
            self._kept_back.add(name)
        return replaces

    def kept_back(self) -> list[str]:
        """Slots whose newest ad is not in use, in order: ask about them again before a cycle."""
        return sorted(self._kept_back)

    def forget(self, name: str) -> None:
        """Forget a slot that is gone."""
        self._kept_back.discard(name)


@dataclass(frozen=True, slots=True)
class Submitter:
    """A submitter at one schedd."""

    name: str
    schedd: str  # inbox
    idle: int
    running: int
    weighted_idle: float | None = None  # in cores; None: its schedd does not tell
    weighted_running: float | None = None


def submitter_of(ad: ClassAd) -> Submitter | None:
    """None for one that can not be talked to."""
    found = Submitter(
        name=ad.eval_string("Name"),
        schedd=ad.eval_string("ScheddIpAddr"),
        idle=_amount(ad, "IdleJobs"),
        running=_amount(ad, "RunningJobs"),
        weighted_idle=_weight(ad, "WeightedIdleJobs"),
        weighted_running=_weight(ad, "WeightedRunningJobs"),
    )
    return found if found.name and found.schedd else None


def in_order(found: Iterable[Submitter | None]) -> list[Submitter]:
    """By name, and by schedd."""
    return sorted((one for one in found if one is not None), key=lambda one: (one.name, one.schedd))


def _may_have_more(ad: ClassAd, patch: Patch | None) -> bool:
    """Whether a submitter may have jobs to start that it did not have before: only then does its JobsOffered change."""
    return patch is None or _OFFERED in patch.changed or _OFFERED not in ad


def by_schedd(wanted: Iterable[Submitter]) -> Mapping[str, list[str]]:
    """Names of submitters with idle jobs, by the schedd to ask."""
    grouped: dict[str, list[str]] = {}
    for submitter in wanted:
        if submitter.idle > 0:
            grouped.setdefault(submitter.schedd, []).append(submitter.name)
    return grouped


def _weight(ad: ClassAd, name: str) -> float | None:
    value = ad.eval(name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf:
        return None
    return float(value)


def _amount(ad: ClassAd, name: str) -> int:
    value = ad.eval(name)
    return int(value) if isinstance(value, int | float) and 0 < value < math.inf else 0
