"""Roost from Python: `from roost import Client, Consumer, Pool`. Loaded when they are first used, since the command,
which is this package too, starts often."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from roost.aio import AsyncClient
    from roost.client import Client
    from roost.consumer import Consumer, Gap, Once, Received
    from roost.errors import ClientError
    from roost.executor import AsyncPool, Pool
    from roost.job_event_log import JobEvent, JobEventLog, JobEventType

_FROM: Final = {
    "Client": "roost.client",
    "AsyncClient": "roost.aio",
    "AsyncPool": "roost.executor",
    "Consumer": "roost.consumer",
    "Gap": "roost.consumer",
    "Once": "roost.consumer",
    "Pool": "roost.executor",
    "Received": "roost.consumer",
    "ClientError": "roost.errors",
    "JobEvent": "roost.job_event_log",
    "JobEventLog": "roost.job_event_log",
    "JobEventType": "roost.job_event_log",
}


def __getattr__(name: str) -> Any:
    if name not in _FROM:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(import_module(_FROM[name]), name)
    globals()[name] = found
    return found


__all__ = [
    "AsyncClient",
    "AsyncPool",
    "Client",
    "ClientError",
    "Consumer",
    "Gap",
    "JobEvent",
    "JobEventLog",
    "JobEventType",
    "Once",
    "Pool",
    "Received",
]
