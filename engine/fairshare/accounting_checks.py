"""What can not be true of accounting records: each contradiction in one sentence, none if all is well. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from engine.fairshare.accounting_records import MOST_NEWCOMERS, AccountingRecords, first_end
from engine.fairshare.priorities import MINIMUM_PRIORITY, Share

#: Sums of many changes drift by less than this part of them.
_DRIFT: Final = 1e-6


def record_violations(records: AccountingRecords, until: float) -> Iterator[str]:
    """Find records with impossible numbers. until: all are charged up to here, seconds since 1970."""
    for kind, known in (("submitter", records.submitters), ("group", records.groups)):
        for name, record in known.items():
            if not record.priority >= MINIMUM_PRIORITY:
                yield f"{kind} {name} has priority {record.priority!r}, below {MINIMUM_PRIORITY}"
            if not (record.usage >= 0.0 and record.weighted_usage >= 0.0):
                yield f"{kind} {name} has usage {record.usage!r}, weighted {record.weighted_usage!r}: below 0"
            if record.slots_in_use < 0 or not record.in_use >= -_DRIFT:
                yield f"{kind} {name} has {record.slots_in_use} slots of weight {record.in_use!r} in use: below 0"
            if record.updated > until:
                yield f"{kind} {name} was charged up to {record.updated!r}, all others up to {until!r}"
            if record.quota >= 0.0 and record.dynamic_quota >= 0.0:
                yield f"{kind} {name} has two quotas: {record.quota!r}, and {record.dynamic_quota!r} as a part"


def index_violations(records: AccountingRecords) -> Iterator[str]:
    """Find indexes that are not in step with the records."""
    using = {name for name, record in records.submitters.items() if record.slots_in_use or record.in_use}
    for name in sorted(using ^ records.using.keys()):
        yield f"submitter {name} {'uses' if name in using else 'does not use'} something: the index says otherwise"
    for name, group in records.using.items():
        if group != records.group(name):
            yield f"submitter {name} is charged in group {group.key}, and belongs to {records.group(name).key}"
    ending = {name: first_end(record) for name, record in records.submitters.items() if record.temporary}
    if ending != records.ending:
        names = sorted(name for name, _ in ending.items() ^ records.ending.items())
        yield f"changes for a while of {', '.join(names)} are to end at other times than their records say"
    if both := sorted(records.newcomers.keys() & records.submitters.keys()):
        yield f"{', '.join(both)} have a record, and are newcomers as well"
    if len(records.newcomers) > MOST_NEWCOMERS:
        yield f"{len(records.newcomers)} newcomers are known, more than {MOST_NEWCOMERS}"
    if not records.is_ordered():
        yield "pages are ordered by other names than there are"


def claim_violations(records: AccountingRecords) -> Iterator[str]:
    """Find claims that are charged to somebody who uses nothing."""
    for (slot, began), claim in records.claims.items():
        if claim.until is None and claim.user not in records.using:
            yield f"claim of {slot} since {began!r} is charged to {claim.user}, who is not known to use anything"


def share_violations(shares: Mapping[str, Share]) -> Iterator[str]:
    """Find shares that are no part of the pool."""
    for name, share in shares.items():
        if not -_DRIFT <= share.fraction <= 1.0 + _DRIFT:
            yield f"submitter {name} has {share.fraction!r} of the pool for its share"


def group_violations(records: AccountingRecords) -> Iterator[str]:
    """Find groups that are charged for something else than their submitters use."""
    own, below = records.use_by_group()
    for key, record in records.groups.items():
        weight, slots = own.get(key, (0.0, 0))
        if slots != record.slots_in_use or not _about(record.in_use, weight):
            yield (
                f"group {key} is charged for {record.slots_in_use} slots of weight {record.in_use!r}; "
                f"its submitters use {slots} of weight {weight!r}"
            )
        if not _about(max(0.0, record.subtree_in_use), below.get(key, 0.0)):
            yield (
                f"group {key} and those below it are charged for weight {record.subtree_in_use!r}; their "
                f"submitters use {below.get(key, 0.0)!r}"
            )
    for key in sorted(own.keys() - records.groups.keys()):
        if own[key][1]:
            yield f"group {key} has no record, and its submitters use {own[key][1]} slots"


def _about(value: float, other: float) -> bool:
    return abs(value - other) <= _DRIFT * (1.0 + abs(other))
