"""A daemon that works in cycles: every interval it looks at the pool, decides, and acts. Of several such daemons one
leads (shared.daemon.lead). What the next leader must know lies in the note of the lease, which the leader writes before
it acts: so neither a restart nor a change of the leader repeats within an interval what is meant to be done once.
"""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import Coroutine
from typing import Any, Final

from shared.bus.api import RemoteFailure
from shared.daemon.auxiliary import AuxiliaryDaemon
from shared.daemon.clock import wait_for_event
from shared.daemon.context import Context
from shared.daemon.lead import LeaderLease
from shared.errors import RetryableError
from shared.state import StaleEpoch

#: Seconds until a round that could not be made is tried again.
RETRY_S: Final = 10.0


class NothingToDo(RetryableError):
    """There is nothing yet to decide on, and no round is spent. Nothing is wrong: it is tried again, and told."""


def remaining_s(last_round: float, interval_s: float, now: float) -> float:
    """Seconds until the next round; last_round: when the last one was, 0: never. Whoever goes on may have a clock that
    is a little behind; a last round that lies further ahead than an interval was made by a clock that was wrong, and
    counts for nothing."""
    left = last_round + interval_s - now
    return max(0.0, left) if last_round and left <= 2 * interval_s else 0.0


class PeriodicDaemon(AuxiliaryDaemon):
    """Runs a cycle every interval, as long as it leads. group: as for `LeaderLease`."""

    def __init__(self, context: Context, lease_s: float, group: str = "") -> None:
        super().__init__(context)
        self.lead = LeaderLease(context, self.subsystem, lease_s, group)
        self.leads = False
        self.rounds = 0  # of this life
        self.trouble = ""  # why the last round could not be made
        self.store_answers = False
        self._at_rest = True  # the trouble is none (NoRound)
        self._terms = 0  # times that it was given the lead
        self._stopped = False
        self._wake = asyncio.Event()

    @abstractmethod
    def load_note(self, note: bytes) -> None:
        """What the leader has noted: heard while it stands by, and as it takes over. An older note than what it knows
        is no news: Redis may have lost the newer one."""

    @abstractmethod
    def due_s(self) -> float:
        """Seconds until the next round; 0: it is due."""

    @abstractmethod
    async def run_cycle(self) -> None:
        """Look, decide, note it (`lead.write`), and act. Raises StaleEpoch where another one leads by now, NoRound,
        RetryableError, RemoteFailure."""

    async def take_over(self) -> None:
        """It leads from now on: finish what its predecessor has noted and not done. Raises as `round` does."""

    def tasks(self) -> dict[str, Coroutine[Any, Any, None]]:
        return {"lead": self._keep_lease(), "rounds": self._run_cycles(), **super().tasks()}

    async def drain(self) -> None:
        self._stopped = True
        await self.lead.release()
        await super().drain()

    def ready(self) -> str:
        if not self.store_answers:
            return "the lead in Redis"
        return "" if self._at_rest else self.trouble

    def role(self) -> str:
        return "leader" if self.leads else "passive"

    def wake(self) -> None:
        """Look now whether a round is due, and tell: there are new rules."""
        self._wake.set()
        self.advertise_soon()

    # Who acts

    async def _keep_lease(self) -> None:
        while True:
            if not self._stopped:
                await self.update_lead()
            await self.context.clock.sleep(self.lead.renew_interval_s)

    async def update_lead(self) -> None:
        """Take the lead or keep it, if it is to be had."""
        log = self.context.log
        try:
            view = await self.lead.acquire()
        except RetryableError as error:
            if self.store_answers:
                log.warning("lead_not_seen", reason=str(error))
            self.store_answers = False
            self._set_leading(self.leads and self.lead.holds())
            return
        self.store_answers = True
        if not view.leads or not self.leads:
            self.load_note(view.note)
        if view.leads is not self.leads:
            log.info(f"{self.subsystem.lower()}_lead", leads=view.leads, leader=view.owner)
            self._set_leading(view.leads)
            self.wake()

    def _set_leading(self, leads: bool) -> None:
        if leads and not self.leads:
            self._terms += 1
        self.leads = leads
        if not leads:
            self._clear_trouble()  # whoever leads now has troubles of its own

    # Rounds

    async def _run_cycles(self) -> None:
        clock, taken_over = self.context.clock, 0
        while True:
            self._wake.clear()
            left = RETRY_S
            if self.leads and self.lead.holds():
                term = self._terms
                try:
                    if taken_over != term:
                        await self.take_over()
                        taken_over = term
                    left = self.due_s()
                    if left <= 0:
                        await self.run_cycle()
                        self._clear_trouble()
                        left = self.due_s()
                except StaleEpoch:
                    self._set_leading(False)
                except (RetryableError, RemoteFailure) as error:
                    self._note_trouble(error)
                    left = RETRY_S
            await wait_for_event(self._wake, clock, max(left, 0.01))

    def _clear_trouble(self) -> None:
        self.trouble, self._at_rest = "", True

    def _note_trouble(self, error: RetryableError | RemoteFailure) -> None:
        why = str(error)
        if why != self.trouble:
            self.context.log.warning("no_round", reason=why)
            self.advertise_soon()
        self.trouble, self._at_rest = why, isinstance(error, NothingToDo)
