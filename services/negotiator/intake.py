"""What daemons say of themselves, on its way into the slot table: whose ad counts, which slots are ours, which can be
read. Nothing an ad can hold keeps the others from being matched."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from services.negotiator.clocks import Clocks
from services.negotiator.reeval import Reevaluation
from services.negotiator.settings import Policy
from services.negotiator.slot_table import SlotTable, Submitter, submitters
from services.negotiator.tally import Tally
from shared.classad import ClassAd, evaluate
from shared.daemon.ad_table import AdTable
from shared.daemon.asleep import is_offline
from shared.daemon.clock import Clock


@dataclass(slots=True)
class Taken:
    """What came of some ads. slots: how many are new or changed; touched: whether use may have changed; freed: whether
    a cycle may find room that the last one did not."""

    slots: int = 0
    touched: bool = False
    freed: bool = False

    def add(self, other: Taken) -> None:
        self.slots += other.slots
        self.touched |= other.touched
        self.freed |= other.freed


class Intake:
    """See the module. `ads` holds what every daemon said, `table` the slots that this negotiator deals with.
    `unreadable` hears of ads that are left out: MyType, daemon, name, and why."""

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
        self.tally = Tally()
        self.clocks = Clocks()

    def adopt(self, policy: Policy) -> None:
        """Go by another policy from now on. Slots stay as they were taken until they are taken again; which newest ads
        are kept back is not forgotten."""
        expr = policy.settings.startd_ad_reeval_expr
        if str(expr) != str(self.policy.settings.startd_ad_reeval_expr):
            self._reevaluation = Reevaluation(expr)
        self.policy = policy

    def owner(self, slot: str, daemon: str) -> str:
        """Whose slot this is: while its startd's ad of it stands, no other daemon may speak of it."""
        owner = self._owners.get(slot, daemon)
        return owner if self._ads.row("Machine", owner, slot) is not None else daemon

    def take(self, daemon: str, changed: Iterable[str], gone: Iterable[str]) -> Taken:
        """A daemon's slots: those whose ad is new or changed, and those that are no more."""
        taken = Taken()
        for name in changed:
            row = self._ads.row("Machine", daemon, name)
            if row is None or self.owner(name, daemon) != daemon:
                continue
            try:
                taken.freed |= self._take(name, row.packed(), self.clocks.offset(daemon))
            except (ValueError, RecursionError) as error:
                self._unreadable("Machine", daemon, name, error)
                continue
            self._owners[name] = daemon
            taken.touched = True
            taken.slots += 1
        for name in gone:
            if self.owner(name, daemon) == daemon:
                self._owners.pop(name, None)
                self._reevaluation.forget(name)
                self._table.drop(name)
                self.tally.drops(name, self._clock.now())
                taken.touched = True
        return taken

    def _take(self, name: str, packed: bytes, offset: float) -> bool:
        """A slot's ad as it is now. True when a cycle may find room on it. Raises ValueError, RecursionError."""
        settings, now = self.policy.settings, self._clock.now()
        constraint = settings.negotiator_slot_constraint
        if constraint is not None and evaluate(constraint, ClassAd.unpack(packed), now=now) is not True:
            # Neither offered nor charged nor part of the pool's size: another negotiator's (NEG-04, MUL-01, MUL-02). It
            # may come back without its startd saying its claim id again.
            claim = self._table.claims.get(name)
            self._table.drop(name)
            self.tally.pauses(name, now)
            if claim is not None:
                self._table.claims[name] = claim
            return False
        if settings.startd_ad_reeval_expr is not None and name in self._table.ads:
            new = ClassAd.unpack(packed)
            if not self._reevaluation.replaces(name, lambda: self._table.ads[name], new, now):
                return False
        freed = self._table.put(name, self.policy.match_exprs.into(packed))
        user, weight, claimed_at, past = self._table.use(name)
        self.tally.sees(
            name,
            user=user,
            weight=weight,
            claimed_at=claimed_at,
            past=past,
            now=now,
            offset=offset,
            by_cpus=self.policy.cycle.use_slot_weights,
        )
        return freed

    def take_all(self) -> Iterator[Taken]:
        """Everything again, daemon by daemon: after loading, or when the policy is another. Slots that are in nobody's
        ads any more go: what was loaded may stand on messages that were missed, and nobody says again that they are
        gone. Until then somebody would be charged for them."""
        for group in list(self._ads.groups("Machine")):
            yield self.take(group.daemon, list(group.rows), ())
        taken = Taken()
        for name, daemon in list(self._owners.items()):
            if self._ads.row("Machine", daemon, name) is None:
                taken.add(self.take(daemon, (), [name]))
        yield taken

    def take_kept_back(self) -> Taken:
        """Slots whose newest ad STARTD_AD_REEVAL_EXPR kept back: it may let it pass by now (NEG-38)."""
        taken = Taken()
        for name in self._reevaluation.kept_back():
            if name in self._owners:
                taken.add(self.take(self._owners[name], [name], ()))
        return taken

    def expire(self, now: float) -> Taken:
        """Ads nobody repeats for CLASSAD_LIFETIME are gone (COL-02)."""
        taken = Taken()
        for group, names in self._ads.expired(now):
            self._ads.remove(group.my_type, group.daemon, names or None)
            if not group.rows:
                self.clocks.forget([group.daemon])
            if group.my_type == "Machine":
                taken.add(self.take(group.daemon, (), names))
        return taken

    def sleepers(self, now: float) -> list[str]:
        """Daemons whose ads are about to expire, with machines among them that sleep: those are silent, and not gone
        as long as the collector keeps their ads (ABS-07)."""
        due = [group for group, _ in self._ads.expired(now) if group.my_type == "Machine"]
        return [one.daemon for one in due if any(is_offline(row.read(), now) for row in one.rows.values())]

    def wants_slots(self, daemon: str, names: Iterable[str]) -> bool:
        """Whether one of a schedd's submitters has idle jobs."""
        ads = (self._submitter(daemon, name) for name in names)
        return any(submitter.idle > 0 for submitter in submitters(ad for ad in ads if ad is not None))

    def submitters(self) -> list[Submitter]:
        """Submitters that can be talked to, those that NEGOTIATOR_SUBMITTER_CONSTRAINT leaves (NEG-06)."""
        constraint = self.policy.settings.negotiator_submitter_constraint
        now = self._clock.now()
        told = (self._submitter(daemon, name) for daemon, name, _ in self._ads.rows("Submitter"))
        return submitters(
            ad for ad in told if ad is not None and (constraint is None or evaluate(constraint, ad, now=now) is True)
        )

    def _submitter(self, daemon: str, name: str) -> ClassAd | None:
        row = self._ads.row("Submitter", daemon, name)
        if row is None:
            return None
        try:
            return ClassAd.unpack(row.packed()).check()
        except (ValueError, RecursionError) as error:
            self._unreadable("Submitter", daemon, name, error)
            return None
