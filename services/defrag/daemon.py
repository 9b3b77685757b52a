"""Defrag: drains fragmented machines by a policy, so that jobs that need a whole one get it (spec rows DFR-*).

Every DEFRAG_INTERVAL it asks the collector for all machines, decides, writes the round down in Redis, and then gives
its orders. Of several daemons of one DEFRAG_NAME one acts (shared.daemon.lead); when it is gone another one goes on
with what it wrote down. Losing all of them stops nothing: a drain that was begun ends by itself, and the machine takes
jobs again.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import ClassVar, Final, Literal, cast

from prometheus_client.core import Metric

from services.defrag.book import RECENT_S, Book, Order, Seen
from services.defrag.giving import Giver, machines
from services.defrag.machines import Expressions
from services.defrag.policy import Round, Rules, decide, prefix
from shared.classad import unparse
from shared.classad.expr import Literal as Constant
from shared.config import ConfigError, Problem
from shared.config.knobs import DefragSettings
from shared.daemon.context import Context
from shared.daemon.facts import announce
from shared.daemon.measures import Source, counter, gauge
from shared.daemon.rounds import NoRound, Rounds, left_s
from shared.messages.events import DefragRound

NO_MACHINE: Final = "there is no machine with a partitionable slot yet"


class Defrag(Rounds):
    """See the module."""

    subsystem: ClassVar[str] = "DEFRAG"
    my_type: ClassVar[str] = "Defrag"
    at_start: ClassVar[tuple[str, ...]] = ("ROOST_DEFRAG_LEASE",)

    def __init__(self, context: Context) -> None:
        self.settings = DefragSettings.from_config(context.config)
        self.rules = rules_of(self.settings)
        self.group = self.settings.defrag_name or ""
        super().__init__(context, self.settings.roost_defrag_lease, self.group)
        self.giver = Giver(context, self.lead.holds)
        self.book = Book()
        self.orders = self.refusals = self.cancels = 0  # of this life
        context.metrics.register(_Metrics(self))

    async def reconfigure(self) -> None:
        settings = DefragSettings.from_config(self.context.config)
        # Its name is read as it starts: its lead, its book and its drains are that name's.
        self.rules, self.settings = replace(rules_of(settings), prefix=self.rules.prefix), settings
        self.hurry()

    def update_s(self) -> float:
        return float(self.settings.defrag_update_interval)

    def learn(self, note: bytes) -> None:
        try:
            book = Book.unpack(note)
        except ValueError as error:
            self.context.log.error("defrag_note_damaged", reason=str(error))
            return
        if book.last_round >= self.book.last_round:
            self.book = book

    # Rounds

    def due_s(self) -> float:
        return left_s(self.book.last_round, self.rules.interval_s, self.context.clock.now())

    async def take_over(self) -> None:
        """Orders that were written down and not answered, by an earlier life or another defrag."""
        now = self.context.clock.now()
        orders = self.book.unanswered(now)
        if orders:
            self.context.log.info("orders_given_again", machines=[order.machine for order in orders])
            await self._give(orders)
            await self.lead.write(self.book.pack())

    async def round(self) -> None:
        context, rules = self.context, self.rules
        found = await machines(context, rules.expressions)
        if not found:
            raise NoRound(NO_MACHINE)  # the pool may be starting: what is due is not spent
        now = context.clock.now()
        decided = decide(rules, self.book, found, now, context.new_id)
        await self.lead.write(decided.book.pack())
        self.book = decided.book
        self.rounds += 1
        failed = await self._carry_out(decided)
        await self.lead.write(self.book.pack())
        self.tell()
        seen = self.book.seen
        names = {inbox: machine.name for inbox, machine in found.items()}
        drained = [names[order.machine] for order in decided.drains if order.machine not in failed]
        cancelled = [machine.name for machine in decided.cancels if machine.inbox not in failed]
        event = DefragRound(
            at=now,
            defrag=context.name,
            name=self.group,
            machines=seen.machines,
            whole=seen.whole,
            draining=seen.draining,
            drained=drained,
            cancelled=cancelled,
            failed={names[inbox]: why for inbox, why in failed.items()},
            why=seen.why,
        )
        context.log.info("defrag_round", **event.model_dump(include={"whole", "draining", "drained", "failed", "why"}))
        await announce(context, event)

    async def _carry_out(self, decided: Round) -> dict[str, str]:
        """Give the orders of a round. Returns what went wrong, by inbox."""
        cancelled = await self.giver.cancel(decided.cancels)
        failed = {inbox: "no answer" if why is None else why for inbox, why in cancelled.items() if why != ""}
        self.cancels += len(cancelled) - len(failed)
        return failed | await self._give(decided.drains)

    async def _give(self, orders: list[Order] | tuple[Order, ...]) -> dict[str, str]:
        """Returns what went wrong, by inbox. Who did not answer may have taken the order: the next round tells."""
        answers = await self.giver.drain(orders, self.rules)
        failed: dict[str, str] = {}
        now = self.context.clock.now()
        for order in orders:
            answer = answers[order.request_id]
            if answer is None:
                failed[order.machine] = "no answer"
                continue
            self.book = self.book.answered(order, now, taken=not answer)
            self.orders += not answer
            if answer:
                self.refusals += 1
                failed[order.machine] = answer
        if failed:
            self.context.log.warning("not_drained", machines=failed)
        return failed

    # What it tells

    def said(self) -> Mapping[str, object]:
        book, seen = self.book, self.book.seen
        now = self.context.clock.now()
        successes, failures = book.recently(now)
        return {
            "Machine": self.context.config.get("FULL_HOSTNAME") or self.context.name,
            "MyCurrentTime": int(now),
            "DefragName": self.group,
            "DefragIsActive": self.leads,
            "DefragLastRound": int(book.last_round),
            "DefragSaid": self.trouble or seen.why,
            "MachinesDraining": seen.draining,
            "MachinesDrainingPeak": book.draining_peak,
            "WholeMachines": seen.whole,
            "WholeMachinesPeak": book.whole_peak,
            "DrainedMachines": book.drained,
            "MeanDrainedArrival": book.mean_arrival_s,
            "DrainSuccesses": book.successes,
            "DrainFailures": book.failures,
            "DrainCancels": book.cancels,
            "RecentDrainSuccesses": successes,
            "RecentDrainFailures": failures,
            "RecentStatsLifetime": int(RECENT_S),
            "AvgDrainingBadput": seen.badput,
            "AvgDrainingUnclaimed": seen.unclaimed,
        }


def rules_of(settings: DefragSettings) -> Rules:
    """The policy as configured. Raises ConfigError."""
    name = settings.defrag_name or ""
    if name and not re.fullmatch(r"[A-Za-z0-9_.@-]{1,100}", name):
        problem = f"DEFRAG_NAME is {name[:80]!r}: want a name of letters, digits and _ . @ -, 100 at most"
        raise ConfigError((Problem(problem),))
    how = cast(Literal["graceful", "quick", "fast"], settings.defrag_draining_schedule.lower())
    start = settings.defrag_draining_start_expr
    never = isinstance(start, Constant) and start.value is False
    return Rules(
        expressions=Expressions(
            settings.defrag_requirements,
            settings.defrag_whole_machine_expr,
            settings.defrag_cancel_requirements,
            settings.defrag_rank,
        ),
        per_hour=settings.defrag_draining_machines_per_hour,
        interval_s=settings.defrag_interval,
        most_whole=settings.defrag_max_whole_machines,
        most_draining=settings.defrag_max_concurrent_draining,
        how=how,
        start="" if never or how != "graceful" else unparse(start),
        prefix=prefix(name),
    )


class _Metrics(Source):
    """What defrag measures of itself. What the pool looks like only the one that acts tells."""

    def __init__(self, defrag: Defrag) -> None:
        self._defrag = defrag

    def collect(self) -> Iterator[Metric]:
        defrag = self._defrag
        seen = defrag.book.seen if defrag.leads else Seen()
        yield gauge("roost_defrag_acts", "1 for the one of its name that acts", defrag.leads)
        yield counter("roost_defrag_rounds", "Looks at the pool", defrag.rounds)
        yield counter("roost_defrag_drains", "Orders to drain that were taken", defrag.orders)
        yield counter("roost_defrag_refusals", "Orders to drain that were refused", defrag.refusals)
        yield counter("roost_defrag_cancels", "Drains that it ended early", defrag.cancels)
        yield gauge("roost_defrag_draining_machines", "Machines that drain, at the last round", seen.draining)
        yield gauge("roost_defrag_whole_machines", "Machines that are whole, at the last round", seen.whole)
        badput = "Part of the pool's cpu time that went to jobs which draining ended"
        yield gauge("roost_defrag_badput_ratio", badput, seen.badput)
        unclaimed = "Part of the pool's cpu time that went to nobody because of draining"
        yield gauge("roost_defrag_unclaimed_ratio", unclaimed, seen.unclaimed)
        since = "When the last round was, since 1970; 0: none yet"
        yield gauge("roost_defrag_last_round_seconds", since, defrag.book.last_round if defrag.leads else 0.0)
        text = "1 while a round can not be made: the collector does not answer, or knows no machine"
        yield gauge("roost_defrag_no_round", text, bool(defrag.leads and defrag.trouble))
