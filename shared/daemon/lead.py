"""Leadership among daemons of one kind, where two at work would do everything twice: one leads, the others stand by. A
lease in Redis says who leads, and holds a note in which the leader writes what the next one must know.

The negotiators have an election of their own (services/had): their leader must answer, and have the newest accounting
records.
"""

from __future__ import annotations

from dataclasses import dataclass

from shared.daemon.context import Context
from shared.errors import RetryableError
from shared.state import StaleEpoch, keys

#: Looks at the lease in its length: the lead is lost only where two of them fail.
RENEWALS_PER_LEASE = 3


@dataclass(frozen=True, slots=True)
class LeaseView:
    """What a look at the lease has shown."""

    leads: bool
    owner: str  # name of who leads
    note: bytes


class LeaderLease:
    """A daemon's part in it. group: those of another group act by themselves (its name; "": the one without)."""

    def __init__(self, context: Context, subsystem: str, lease_s: float, group: str = "") -> None:
        self.lease_s = lease_s
        self.owner = ""
        self._context = context
        self._key = keys.lead(subsystem, group)
        self._life = context.new_id()
        self._first = True
        self._until = float("-inf")  # monotonic: until then the lead is ours whatever happens

    @property
    def renew_interval_s(self) -> float:
        """How often to look, seconds."""
        return self.lease_s / RENEWALS_PER_LEASE

    def holds(self) -> bool:
        """Whether nobody else can lead at this moment."""
        return self._context.clock.monotonic() < self._until

    async def acquire(self) -> LeaseView:
        """Take the lead, or keep it, if it is to be had. Raises StoreUnavailable."""
        asked = self._context.clock.monotonic()
        reply = await self._context.store.run(
            "lead_take", [self._key], [self._context.name, self._life, round(self.lease_s * 1000), int(self._first)]
        )
        assert isinstance(reply, list)
        mine, owner, note = reply
        self._first = False
        self._until = asked + self.lease_s if mine else float("-inf")
        self.owner = owner.decode()
        return LeaseView(bool(mine), self.owner, note)

    async def write_note(self, note: bytes) -> None:
        """Keep this for whoever leads next. Raises StaleEpoch where another one leads by now, StoreUnavailable."""
        try:
            await self._context.store.run(
                "lead_note", [self._key], [self._context.name, self._life, note], confirm=True
            )
        except StaleEpoch:
            self._until = float("-inf")
            raise

    async def release(self) -> None:
        """Let another one lead at once, or, where that can not be told, when the lease is over."""
        self._until = float("-inf")
        try:
            await self._context.store.run("lead_give_up", [self._key], [self._context.name, self._life])
        except RetryableError as error:
            self._context.log.info("lead_left_to_end", reason=str(error))
