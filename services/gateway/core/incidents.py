"""What happened to the pool's own daemons, for the axis of time of its charts: events that tell the same shortly after
each other are one. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

#: Events that are looked at, by what their types begin with.
TYPES: Final = ("daemon.*", "had.*")
#: The newest so many are told.
MOST: Final = 200


def incidents(events: Iterable[Mapping[str, Any]], apart_s: float, most: int = MOST) -> list[dict[str, Any]]:
    """[{at, end, count, event}] in the order of time, the newest `most`. event: the first of `count` that tell the same
    of daemons of one kind, none more than apart_s after the one before; at, end: the first and the last, s since
    1970."""
    found: list[dict[str, Any]] = []
    last: dict[tuple[str, ...], dict[str, Any]] = {}
    for event in sorted(events, key=lambda one: (float(one["at"]), str(one.get("id")))):
        if event["type"] == "had.leader" and event.get("state") != "leader" and not event.get("reason"):
            continue  # it stands by, as it should
        kind = (str(event["type"]), str(event.get("subsystem", "")), str(event.get("state", "")))
        at = float(event["at"])
        before = last.get(kind)
        if before is not None and at - before["end"] <= apart_s:
            before["end"], before["count"] = at, before["count"] + 1
        else:
            last[kind] = {"at": at, "end": at, "count": 1, "event": dict(event)}
            found.append(last[kind])
    return found[-most:]
