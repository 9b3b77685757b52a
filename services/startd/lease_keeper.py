"""Keeps the leases of claims: here, in the journal for a later life, and with whoever has the processes of their runs.

A lease is a moment of the machine's own clock (`Clock.boottime`), which neither steps nor stands still while the
machine sleeps: so it means the same to this startd, to the next one, and to the fork server, which kills a run whose
lease has passed when no startd does it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from services.startd.core.slots.leases import Leases, first_of, left_of
from services.startd.core.slots.model import Claim
from services.startd.exec.api import Launcher
from services.startd.journal_writer import JournalWriter
from services.startd.run_table import RunTable
from shared.daemon.clock import Clock
from shared.host import boot_id


class LeaseKeeper:
    def __init__(
        self, clock: Clock, journal_writer: JournalWriter, run_table: RunTable, launchers: Mapping[str, Launcher]
    ) -> None:
        self._clock = clock
        self._journal_writer = journal_writer
        self._run_table = run_table
        self._launchers = launchers
        self._leases = Leases()
        self._boot = boot_id()

    def grant(self, claim: Claim, first_s: float = 0.0) -> None:
        """Begin the lease of this claim anew. first_s: how long it lasts until its schedd renews it for the first
        time; 0: as long as ever."""
        self._leases.grant(claim.claim_id, claim.lease_s, self._clock.boottime(), first_s)
        self._spread([claim.claim_id])

    def asked_again(self, claim: Claim, first_s: float) -> None:
        """The schedd asks once more for a claim that it was given: it does not know that yet."""
        self._leases.asked_again(claim.claim_id, self._clock.boottime(), first_s)
        self._spread([claim.claim_id])

    def renew(self, claims: Iterable[str]) -> list[str]:
        """Start these leases anew. Returns the claims that have none (any more)."""
        claims = list(claims)
        first = any(map(self._leases.is_first, claims))
        unknown = self._leases.renew(claims, self._clock.boottime())
        self._spread(set(claims).difference(unknown))
        if first:
            self._journal_writer.write()
        return unknown

    def confirmed(self, claim_id: str, since: float) -> None:
        """The claim's schedd has answered what was said to it at `since` (Clock.boottime)."""
        self._leases.confirm(claim_id, since, self._clock.boottime())
        self._spread([claim_id])
        # At once: a startd that is killed in the next moment would end the job with the first lease.
        self._journal_writer.write()

    def is_first(self, claim_id: str) -> bool:
        """Whether its schedd has not shown yet that it knows of the claim."""
        return self._leases.is_first(claim_id)

    def unknown(self, claims: Iterable[str]) -> list[str]:
        """Those of these claims that have no lease (any more)."""
        now = self._clock.boottime()
        return [claim for claim in claims if (left := self._leases.left_s(claim, now)) is None or left <= 0]

    def restore(self, claims: Iterable[Claim], kept: Mapping[str, Mapping[str, Any]]) -> None:
        """Go on with the leases of an earlier life, as the journal kept them. A claim of a release that kept none has a
        whole one; so has one of before the machine was started anew, as no process of its can have outlived that."""
        now = self._clock.boottime()
        for claim in claims:
            record = kept.get(claim.claim_id)
            left = left_of(record, self._boot, now)
            end = now + (claim.lease_s if left is None else left)
            self._leases.restore(claim.claim_id, claim.lease_s, end, 0.0 if left is None else first_of(record))
            self._keep(claim.claim_id)

    def drop(self, claim_id: str) -> None:
        if claim_id in self._leases:
            self._leases.drop(claim_id)
            self._journal_writer.put("leases", claim_id, None)

    def expired(self) -> dict[str, float]:
        """Take out and return the claims whose lease has passed, with its length: of the first lease, where the schedd
        did not renew that."""
        claims = self._leases.expired(self._clock.boottime())
        for claim_id in claims:
            self._journal_writer.put("leases", claim_id, None)
        return claims

    def next_end_s(self) -> float | None:
        """No lease passes within so many seconds; None: there is none."""
        end = self._leases.next_end()
        return None if end is None else end - self._clock.boottime()

    def left_s(self, claim_id: str) -> float | None:
        """Seconds until the claim's lease passes; None: it has none."""
        return self._leases.left_s(claim_id, self._clock.boottime())

    def __contains__(self, claim_id: str) -> bool:
        return claim_id in self._leases

    def _spread(self, claims: Iterable[str]) -> None:
        """Have them written down, and told to those who have processes of these claims."""
        left = {claim: left_s for claim in claims if (left_s := self.left_s(claim)) is not None}
        for claim_id in left:
            self._keep(claim_id)
        self._journal_writer.write_soon()
        runs: dict[str, dict[str, float]] = {}
        for run in self._run_table.by_key.values():
            left_s = left.get(run.record.claim_id)
            if left_s is not None and run.record.launched and not run.ended:
                runs.setdefault(run.record.launcher, {})[run.record.name] = left_s
        for name, leases in runs.items():
            self._launchers[name].lease(leases)

    def _keep(self, claim_id: str) -> None:
        end = self._leases.end_of(claim_id)
        first = self._leases.first_s(claim_id)
        self._journal_writer.put("leases", claim_id, {"until": end, "boot": self._boot, "first": first})
