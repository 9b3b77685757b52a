"""Snapshots made from plain ads: for tests, simulations and questions of the kind "what if". The daemon's come from its
resident table (slot_table.py)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from services.negotiator.board import weights
from services.negotiator.limits import counts_of
from services.negotiator.pool import CycleConfig, Preempted, Request, Slots, Snapshot
from services.negotiator.priorities import Record
from services.negotiator.usage import charged_to
from shared.classad import ClassAd, evaluate
from shared.classad.columnar import Frame, Matching, Table
from shared.natural import natural


def places(names: Sequence[str]) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """(n,) int64: each name's place in natural order; names that differ in leading zeros only go by the plain name."""
    order = sorted(range(len(names)), key=lambda index: (natural(names[index]), names[index]))
    place = np.empty(len(names), np.int64)
    place[order] = np.arange(len(names))
    return place


def new_table() -> Table:
    """An empty table for slots: partitionable ones, which change during a cycle, stand together at the end."""
    return Table(leading="PartitionableSlot")


def snapshot_of(
    ads: Iterable[ClassAd],
    requests: Mapping[str, Sequence[Request]],
    records: Mapping[str, Record],
    config: CycleConfig,
    *,
    in_use: Mapping[str, tuple[float, int]] | None = None,
    total_weight: float | None = None,
    withheld: frozenset[str] = frozenset(),
    nameless: frozenset[str] = frozenset(),
    demand: Mapping[str, float] | None = None,
    preempted: Sequence[Preempted] = (),
) -> Snapshot:
    """A snapshot of slots given by their ads, each with a Name of its own.

    in_use: what is missing is counted from the claimed slots. total_weight: of the slots that pass the pool size
    constraint, if it is not given. withheld: names of slots that may not be given away (a match is on its way); those
    that fail the slot constraint come besides. nameless: names of slots whose claim id is missing.
    """
    ads = list(ads)
    table = new_table()
    for ad in ads:
        table.put(str(ad.eval("Name")), ad)
    table.flush()
    frame = Frame(table)
    matching = Matching(frame, 0.0)
    weighed = matching.together(lambda: weights(matching, config))  # it may move rows: their keys only now
    weight = dict(zip(table.keys, weighed.tolist(), strict=True))
    passing = {
        str(ad.eval("Name"))
        for ad in ads
        if config.slot_constraint is None or evaluate(config.slot_constraint, ad) is True
    }
    use: dict[str, tuple[float, int]] = {}
    for ad in ads:
        user, name = charged_to(ad, discount_suspended=config.discount_suspended), str(ad.eval("Name"))
        if user and name in passing:  # a slot outside the constraint is another negotiator's to account for (MUL-02)
            weighted, number = use.get(user, (0.0, 0))
            use[user] = (weighted + weight[name], number + 1)
    if total_weight is None:
        counted = [
            a for a in ads if config.poolsize_constraint is None or evaluate(config.poolsize_constraint, a) is True
        ]
        total_weight = sum(weight[name] for ad in counted if (name := str(ad.eval("Name"))) in passing)
    keys = table.keys
    table.companions = {
        Slots.OFFERED: np.array([key in passing and key not in withheld for key in keys], np.bool_),
        Slots.NAMED: np.array([key not in nameless for key in keys], np.bool_),
        Slots.PLACE: places(keys),
    }
    return Snapshot(
        slots=Slots(matching),
        requests=requests,
        records=records,
        in_use=use if in_use is None else in_use,
        total_weight=total_weight,
        demand=demand or {},
        limits_in_use=counts_of(ads),
        preempted=preempted,
    )
