"""An accountant whose records are in Redis for good, and in memory while its negotiator is active.

Only the active negotiator writes, through a script that refuses a stale epoch.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from engine.fairshare.accountant import Accountant, Check, no_check
from engine.fairshare.accounting_clock import clock_ahead, clock_behind
from engine.fairshare.claim_charging import Claim, Key
from engine.fairshare.claim_rows import claim_field, decode_claims, encode_claim
from engine.fairshare.group_tree import GroupTree
from engine.fairshare.priorities import Factors, Record, decode_records, encode_record, encode_records
from shared.accounting_version import NOTHING
from shared.state.accounting import (
    StoredRecords,
    read_records,
    read_version,
    restore_records,
    stage_claims,
    when_written,
    write_records,
)
from shared.state.api import Store

#: Records of who uses nothing in one run of the script.
BATCH: Final = 5_000
#: Where more claims than this changed, all are put aside in parts before they are in force at once: one step with so
#: many would keep HADs from their lease.
MANY_CLAIMS: Final = 10_000


class StoredAccountant(Accountant):
    """One that reads its records from Redis and writes what changed."""

    def __init__(
        self,
        store: Store,
        negotiator: str,
        factors: Factors,
        half_life: float,
        shard: str = "",
        tree: GroupTree | None = None,
        *,
        now: Callable[[], float],
        check: Check = no_check,
    ) -> None:
        """shard: which negotiators these records are of, whichever of them leads. now: the clock by which all is
        charged. check: also called after reading and writing."""
        super().__init__(negotiator, factors, half_life, tree, check=check)
        self._store = store
        self._shard = shard
        self._now = now
        #: What we wrote last, if nothing was read since, and how far our clock was set after all that was charged.
        self._wrote, self._set_since = NOTHING, 0.0
        #: How far our clock was ahead of everybody's when the records were read last, seconds.
        self.ahead_s = 0.0
        #: The same of Redis's alone; None: that is not known.
        self.redis_ahead_s: float | None = None
        #: Of the accounting records in memory, as Redis confirmed it.
        self.version = NOTHING
        self._highest = NOTHING  # the newest version that a check has seen
        #: Records that can not be read. They are left alone until their submitters use something.
        self._unreadable: dict[bytes, bytes] = {}
        self._unreadable_groups: dict[bytes, bytes] = {}
        self._replace_claims = False  # claims in Redis are to be replaced by all that are in memory
        self._writing = asyncio.Lock()  # a later state must not be overtaken by an earlier one

    def check_invariants(self) -> list[str]:
        """Those of an accountant, and that versions only grow."""
        found = super().check_invariants()
        if self.version < self._highest:
            found.append(f"version {self.version.text} is older than {self._highest.text}, which it was before")
        self._highest = max(self._highest, self.version)
        return found

    @property
    def unreadable(self) -> list[str]:
        """Names whose record can not be read."""
        return [raw.decode(errors="replace") for raw in (*self._unreadable, *self._unreadable_groups)]

    async def load(self, epoch: int = 0) -> bool:
        """Read the accounting records: on becoming active under this epoch. A Redis that has older ones than are in
        memory has lost the rest: it gets these first. Returns whether that was so. Raises StaleEpoch."""
        lost = await self._restore(epoch)
        stored = await read_records(self._store, self._shard)
        noted, now = await when_written(self._store, self._shard, stored.version), self._now()
        # From here on at once: who charges meanwhile must not find half of it.
        submitters, self._unreadable = decode_records(stored.submitters)
        groups, self._unreadable_groups = decode_records(stored.groups)
        # Claims that lie there may be of another state of the accounting records.
        claims, others = decode_claims(stored.claims if stored.until is not None else {})
        self._replace_claims = bool(others or (stored.until is None and stored.claims))
        known = stored.until is not None or not any(record.last for record in submitters.values())
        self.version = max(NOTHING, stored.version)
        self.read(submitters, groups, claims, stored.until or 0.0, claims_known=known)
        ours = stored.version == self._wrote != NOTHING
        self._wrote = NOTHING
        behind_s = self._set_since if ours else clock_behind(self.until, now, noted.passed_s if noted else None)
        self.ahead_s = clock_ahead(behind_s, now, noted.now) if noted else 0.0
        self.redis_ahead_s = now - noted.now if noted else None
        if behind_s:
            super().clock_set(behind_s)
        self.check(self.check_invariants)
        return lost

    def clock_set(self, seconds: float) -> None:
        """As an accountant does it; what was written is that much behind."""
        super().clock_set(seconds)
        self._set_since += seconds

    async def commit(self, epoch: int) -> None:
        """Write what changed since the last commit. Raises StaleEpoch when a newer negotiator is active."""
        records = self.records
        async with self._writing:
            # Of those who use nothing nothing depends on the others'.
            if len(records.changed) > BATCH:
                charged = (records.claims[key].user for key in records.changed_claims if key in records.claims)
                idle = sorted(records.changed - {*records.using, *charged})
                for start in range(0, len(idle), BATCH):
                    await self._write(epoch, set(idle[start : start + BATCH]), alone=True)
            if self._replace_claims or len(records.changed_claims) > MANY_CLAIMS:
                # What changes from here on is written as ever.
                self._replace_claims, records.changed_claims = True, {}
                rows = [(claim_field(key), encode_claim(claim)) for key, claim in self.records.claims.items()]
                await stage_claims(self._store, self._shard, epoch, rows)
            changed = records.changed or records.changed_groups or records.changed_claims
            if records.using or changed or self._replace_claims:
                await self._write(epoch, set(records.changed))
        self.check(self.check_invariants)

    async def _write(self, epoch: int, names: set[str], *, alone: bool = False) -> None:
        """Write these submitters' records, and, but for `alone`, all else that changed, in one step."""
        anew, groups, changed, set_before = False, set[str](), dict[Key, None](), self._set_since
        if not alone:
            anew, groups, changed = self._replace_claims, self.records.changed_groups, self.records.changed_claims
            self._replace_claims, self.records.changed_groups, self.records.changed_claims = False, set(), {}
        self.records.changed -= names
        before = self.version
        try:
            self.version = await write_records(
                self._store,
                self._shard,
                epoch,
                self.version,
                until=None if alone else self.until,
                submitters=_rows(names, self.records.submitters),
                groups=_rows(groups, self.records.groups),
                claims=[(claim_field(key), _row_of(self.records.claims.get(key))) for key in changed],
                staged=anew,
            )
            if not alone:
                self._wrote, self._set_since = self.version, self._set_since - set_before
            elif self._wrote == before:
                self._wrote = self.version
        except BaseException:
            # Nothing was written, or it does no harm to write it again.
            self._replace_claims |= anew
            self.records.changed |= names
            self.records.changed_groups |= groups
            self.records.changed_claims = {**changed, **self.records.changed_claims}
            raise

    async def _restore(self, epoch: int) -> bool:
        if self.version == NOTHING or await read_version(self._store, self._shard) >= self.version:
            return False
        async with self._writing:
            # With what was not written yet: that is as much a part of the accounting records as the rest.
            submitters = self._unreadable | encode_records(self.records.submitters)
            groups = self._unreadable_groups | encode_records(self.records.groups)
            rows = {claim_field(key): encode_claim(claim) for key, claim in self.records.claims.items()}
            until = self.until if self.claims_known else None
            stored = StoredRecords.of(self.version, submitters, groups, rows, until)
            self._wrote, self._set_since = await restore_records(self._store, self._shard, epoch, stored), 0.0
        return True


def _rows(names: Iterable[str], records: Mapping[str, Record]) -> list[tuple[bytes, bytes]]:
    known = ((name, records.get(name)) for name in sorted(names))
    return [(name.encode(), encode_record(record) if record is not None else b"") for name, record in known]


def _row_of(claim: Claim | None) -> bytes:
    return encode_claim(claim) if claim is not None else b""
