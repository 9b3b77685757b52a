"""Following what happens in a pool: see `Consumer`, and docs/consumers.md."""

from __future__ import annotations

from roost.consumer.consumer import JOB_ATTRIBUTES, SLOT_ATTRIBUTES, Consumer
from roost.consumer.exactly_once import Once, Transaction
from roost.consumer.filters import Filter
from roost.consumer.handlers import HandlerFailed
from roost.consumer.health import Health
from roost.consumer.source import Gap, Item, Job, Live, Received, Slot, SnapshotItem
from shared.bus.api import Reject
from shared.bus.handling import RetryPolicy

__all__ = [
    "JOB_ATTRIBUTES",
    "SLOT_ATTRIBUTES",
    "Consumer",
    "Filter",
    "Gap",
    "HandlerFailed",
    "Health",
    "Item",
    "Job",
    "Live",
    "Once",
    "Received",
    "Reject",
    "RetryPolicy",
    "Slot",
    "SnapshotItem",
    "Transaction",
]
