"""Defrag: drains fragmented machines by a policy, so that jobs that need a whole machine get one (spec rows DFR-*).

Every DEFRAG_INTERVAL it asks the collector for all machines, decides, writes the decision to Redis, and then sends its
orders. Of several daemons of one DEFRAG_NAME one leads (shared.daemon.lead); when it is gone, another one continues
with what it wrote. Losing all of them stops nothing: a drain that was begun ends by itself, and the machine takes jobs
again.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar, Final, Literal, cast

from services.defrag.core.machines import Expressions
from services.defrag.core.policy import RECENT_S, Decision, DefragState, Order, PoolView, Rules, decide, prefix
from services.defrag.orders import OrderSender, machines
from shared.classad import unparse
from shared.classad.expr import Literal as Constant
from shared.config import ConfigError, Problem
from shared.config.knobs import DefragSettings
from shared.daemon.context import Context
from shared.daemon.events import announce
from shared.daemon.metrics import Counter, Declared, Gauge, register
from shared.daemon.periodic import NothingToDo, PeriodicDaemon, remaining_s
from shared.messages.events import DefragRound
from shared.stored_versions import DEFRAG

NO_MACHINE: Final = "there is no machine with a partitionable slot yet"


class Defrag(PeriodicDaemon):
    """Defrag as a daemon: each cycle decides, writes the decision down, and sends its orders."""

    subsystem: ClassVar[str] = "DEFRAG"
    writes: ClassVar[tuple[str, ...]] = (DEFRAG,)
    my_type: ClassVar[str] = "Defrag"
    at_start: ClassVar[tuple[str, ...]] = ("ROOST_DEFRAG_LEASE",)

    def __init__(self, context: Context) -> None:
        self.settings = DefragSettings.from_config(context.config)
        self.rules = rules_of(self.settings)
        self.group = self.settings.defrag_name or ""
        super().__init__(context, self.settings.roost_defrag_lease, self.group)
        self.sender = OrderSender(context, self.lead.holds)
        self.state = DefragState()
        self.orders = self.refusals = self.cancels = 0  # of this life
        register(context.metrics, METRICS, self)

    async def reconfigure(self) -> None:
        settings = DefragSettings.from_config(self.context.config)
        # Its name is read as it starts: its lead, its state and its drains are that name's.
        self.rules, self.settings = replace(rules_of(settings), prefix=self.rules.prefix), settings
        self.wake()

    def update_interval_s(self) -> float:
        return float(self.settings.defrag_update_interval)

    def load_note(self, note: bytes) -> None:
        try:
            state = DefragState.unpack(note)
        except ValueError as error:
            self.context.log.error("defrag_note_damaged", reason=str(error))
            return
        if state.last_round >= self.state.last_round:
            self.state = state

    # Cycles

    def due_s(self) -> float:
        return remaining_s(self.state.last_round, self.rules.interval_s, self.context.clock.now())

    async def take_over(self) -> None:
        """Orders that were written down and not answered, by an earlier life or another defrag."""
        now = self.context.clock.now()
        orders = self.state.unanswered(now)
        if orders:
            self.context.log.info("orders_given_again", machines=[order.machine for order in orders])
            await self._send_drains(orders)
            await self.lead.write_note(self.state.pack())

    async def run_cycle(self) -> None:
        context, rules = self.context, self.rules
        found = await machines(context, rules.expressions)
        if not found:
            raise NothingToDo(NO_MACHINE)  # the pool may be starting: what is due is not spent
        now = context.clock.now()
        decided = decide(rules, self.state, found, now, context.new_id)
        await self.lead.write_note(decided.state.pack())
        self.state = decided.state
        self.rounds += 1
        failed = await self._carry_out(decided)
        await self.lead.write_note(self.state.pack())
        self.advertise_soon()
        seen = self.state.seen
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

    async def _carry_out(self, decided: Decision) -> dict[str, str]:
        """Give the orders of a round. Returns what went wrong, by inbox."""
        cancelled = await self.sender.cancel(decided.cancels)
        failed = {inbox: "no answer" if why is None else why for inbox, why in cancelled.items() if why != ""}
        self.cancels += len(cancelled) - len(failed)
        return failed | await self._send_drains(decided.drains)

    async def _send_drains(self, orders: list[Order] | tuple[Order, ...]) -> dict[str, str]:
        """Returns what went wrong, by inbox. Who did not answer may have taken the order: the next round tells."""
        answers = await self.sender.drain(orders, self.rules)
        failed: dict[str, str] = {}
        now = self.context.clock.now()
        for order in orders:
            answer = answers[order.request_id]
            if answer is None:
                failed[order.machine] = "no answer"
                continue
            self.state = self.state.answered(order, now, taken=not answer)
            self.orders += not answer
            if answer:
                self.refusals += 1
                failed[order.machine] = answer
        if failed:
            self.context.log.warning("not_drained", machines=failed)
        return failed

    # The ad

    def ad_attributes(self) -> Mapping[str, object]:
        state, seen = self.state, self.state.seen
        now = self.context.clock.now()
        successes, failures = state.recently(now)
        return {
            "Machine": self.context.config.get("FULL_HOSTNAME") or self.context.name,
            "MyCurrentTime": int(now),
            "DefragName": self.group,
            "DefragIsActive": self.leads,
            "DefragLastRound": int(state.last_round),
            "DefragSaid": self.trouble or seen.why,
            "MachinesDraining": seen.draining,
            "MachinesDrainingPeak": state.draining_peak,
            "WholeMachines": seen.whole,
            "WholeMachinesPeak": state.whole_peak,
            "DrainedMachines": state.drained,
            "MeanDrainedArrival": state.mean_arrival_s,
            "DrainSuccesses": state.successes,
            "DrainFailures": state.failures,
            "DrainCancels": state.cancels,
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


def _view(defrag: Defrag) -> PoolView:
    """What the pool looks like only the one that leads tells."""
    return defrag.state.seen if defrag.leads else PoolView()


METRICS: Final[Declared[Defrag]] = (
    Gauge("roost_defrag_acts", "1 for the one of its name that acts", lambda defrag: defrag.leads),
    Counter("roost_defrag_rounds", "Looks at the pool", lambda defrag: defrag.rounds),
    Counter("roost_defrag_drains", "Orders to drain that were taken", lambda defrag: defrag.orders),
    Counter("roost_defrag_refusals", "Orders to drain that were refused", lambda defrag: defrag.refusals),
    Counter("roost_defrag_cancels", "Drains that it ended early", lambda defrag: defrag.cancels),
    Gauge(
        "roost_defrag_draining_machines",
        "Machines that drain, at the last round",
        lambda defrag: _view(defrag).draining,
    ),
    Gauge(
        "roost_defrag_whole_machines", "Machines that are whole, at the last round", lambda defrag: _view(defrag).whole
    ),
    Gauge(
        "roost_defrag_badput_ratio",
        "Part of the pool's cpu time that went to jobs which draining ended",
        lambda defrag: _view(defrag).badput,
    ),
    Gauge(
        "roost_defrag_unclaimed_ratio",
        "Part of the pool's cpu time that went to nobody because of draining",
        lambda defrag: _view(defrag).unclaimed,
    ),
    Gauge(
        "roost_defrag_last_round_seconds",
        "When the last round was, since 1970; 0: none yet",
        lambda defrag: defrag.state.last_round if defrag.leads else 0.0,
    ),
    Gauge(
        "roost_defrag_no_round",
        "1 while a round can not be made: the collector does not answer, or knows no machine",
        lambda defrag: bool(defrag.leads and defrag.trouble),
    ),
)
