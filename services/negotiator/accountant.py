"""The accountant's books: records in memory while active, in Redis for good.

Only the active negotiator writes, through a script that refuses a stale epoch; each record is written whole with the
time it is charged up to, so after a fail-over the next negotiator charges on from exactly there, at the use that was
on the books (spec rows ACC-16, ACC-18; the reference charges likewise while its negotiator is down).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, fields

import msgpack

from services.negotiator.priorities import Factors, Record, advance, change, choose_factor, effective
from shared.classad import ClassAd
from shared.state import keys
from shared.state.api import Store

_FIELDS = {f.name for f in fields(Record)}


class Accountant:
    """Records of all submitters of one negotiator."""

    def __init__(self, store: Store, negotiator: str, factors: Factors, half_life: float, shard: str = "") -> None:
        self._store = store
        self._key = keys.accountant(shard)  # whichever negotiator of the shard leads
        self._epoch_key = keys.had_epoch(shard)
        self._negotiator = negotiator
        self.factors = factors
        self.half_life = half_life
        self.records: dict[str, Record] = {}
        self._dirty: set[str] = set()

    async def load(self) -> None:
        """Read the books: on becoming active."""
        rows = await self._store.hgetall(self._key)
        self.records = {name.decode(): _decode(row) for name, row in rows.items()}
        self._dirty.clear()

    def record(self, submitter: str, now: float) -> Record:
        """The submitter's record; a new one gets its factor on first sight (ACC-10)."""
        record = self.records.get(submitter)
        if record is None:
            record = Record(factor=choose_factor(submitter, self.factors), updated=now)
            self._put(submitter, record)
        return record

    def charge(self, in_use: Mapping[str, tuple[float, int]], now: float) -> None:
        """Charge everybody up to now. `in_use`: submitter -> (weighted slots, slots) from now on."""
        for name in in_use:
            self.record(name, now)
        for name, record in self.records.items():
            weighted, slots = in_use.get(name, (0.0, 0))
            if record.updated != now or (weighted, slots) != (record.in_use, record.slots_in_use):
                self._put(name, advance(record, now, self.half_life, weighted, slots))

    def change(self, submitter: str, what: str, value: float | None, now: float) -> None:
        """An administrator's change. Raises ValueError."""
        if what == "delete":
            if submitter not in self.records:
                raise ValueError(f"there is no submitter {submitter!r}")
            del self.records[submitter]
            self._dirty.add(submitter)
            return
        record = advance(self.record(submitter, now), now, self.half_life, *self._use(submitter))
        self._put(submitter, change(record, what, value, now))

    async def commit(self, epoch: int) -> None:
        """Write what changed since the last commit. Raises StaleEpoch when a newer negotiator is active."""
        dirty, self._dirty = self._dirty, set()
        if not dirty:
            return
        args: list[bytes | str | int | float] = [epoch]
        for name in sorted(dirty):
            record = self.records.get(name)
            args += [name, _encode(record) if record is not None else b""]
        try:
            await self._store.run("accountant_write", [self._epoch_key, self._key], args, confirm=True)
        except BaseException:
            self._dirty |= dirty  # nothing was written, or it does no harm to write it again
            raise

    def ads(self) -> list[ClassAd]:
        """One accounting ad for each submitter (ACC-21; attribute names as the reference publishes them)."""
        return [self._ad(name, record) for name, record in sorted(self.records.items())]

    def _use(self, submitter: str) -> tuple[float, int]:
        record = self.records[submitter]
        return record.in_use, record.slots_in_use

    def _put(self, submitter: str, record: Record) -> None:
        self.records[submitter] = record
        self._dirty.add(submitter)

    def _ad(self, name: str, record: Record) -> ClassAd:
        ad = ClassAd()
        ad.update(
            {
                "MyType": "Accounting",
                "Name": name,
                "NegotiatorName": self._negotiator,
                "Priority": effective(record),
                "PriorityFactor": record.factor,
                "ResourcesUsed": record.slots_in_use,
                "WeightedResourcesUsed": record.in_use,
                "AccumulatedUsage": record.usage,
                "WeightedAccumulatedUsage": record.weighted_usage,
                "BeginUsageTime": int(record.begin),
                "LastUsageTime": int(record.last),
                "SubmitterLimit": 0.0,
                "SubmitterShare": 0.0,
                "Floor": record.floor,
                "Ceiling": record.ceiling,
                "IsAccountingGroup": False,
                "AccountingGroup": name.partition("@")[0].rpartition(".")[0] or "<none>",
                "LastUpdate": int(record.updated),
            }
        )
        return ad


def _encode(record: Record) -> bytes:
    packed: bytes = msgpack.packb(asdict(record))
    return packed


def _decode(row: bytes) -> Record:
    values = msgpack.unpackb(row)
    return Record(**{name: value for name, value in values.items() if name in _FIELDS})
