"""What is written down of an event: rows for tables. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, Final

from shared.messages.base import Envelope
from shared.messages.events import (
    Event,
    GroupStanding,
    JobEvent,
    JobsSorted,
    JobsSubmitted,
    MatchesMade,
    ReasonsChanged,
    StandingsTold,
    SubmitterStanding,
)

Row = dict[str, Any]
#: By name of the table.
Rows = dict[str, list[Row]]

#: Fields of events whose content has tables of its own: an event keeps how many there were.
_ELSEWHERE: Final = {
    "job.sorted": ("kinds",),
    "negotiation.reasons": ("reasons",),
    "negotiation.matched": ("groups",),
    "accountant.standing": ("submitters", "groups"),
}
#: A job's id has numbers that a table can hold.
_MOST: Final = 2**63 - 1


def rows_of(envelope: Envelope) -> Rows:
    """All rows of an event. Of a message that is no event: none."""
    event = envelope.body
    if not isinstance(event, Event):
        return {}
    cluster, proc = job_of(event)
    body = event.model_dump(mode="json", exclude=set(_ELSEWHERE.get(event.type, ())))
    for name in _ELSEWHERE.get(event.type, ()):
        body[name] = len(getattr(event, name))
    rows: Rows = {
        "events": [
            {
                "id": envelope.id,
                "at": event.at,
                "type": event.type,
                "sender": envelope.sender,
                "cluster": cluster,
                "proc": proc,
                "body": _json(body),
            }
        ]
    }
    if isinstance(event, JobsSorted):
        _kinds(event, rows)
    elif isinstance(event, ReasonsChanged):
        rows["reasons"] = list(_reasons(event))
    elif isinstance(event, MatchesMade):
        rows["matches"] = list(_matches(event))
    elif isinstance(event, StandingsTold):
        rows["standings"] = list(_standings(event))
    return rows


def job_of(event: Event) -> tuple[int | None, int | None]:
    """(cluster, proc) that an event is about; proc -1: the whole cluster; None, None: no job."""
    if isinstance(event, JobsSubmitted):
        return (event.cluster, -1) if 0 <= event.cluster <= _MOST else (None, None)
    if isinstance(event, JobEvent):
        return job_id(event.job_id)
    return None, None


def job_id(text: str) -> tuple[int, int] | tuple[None, None]:
    """(cluster, proc) of "12.3"; of "12" proc -1; None, None for what is no job's id."""
    cluster, dot, proc = text.partition(".")
    if not _is_number(cluster) or (dot and not _is_number(proc)):
        return None, None
    return int(cluster), int(proc) if dot else -1


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 19 and int(text) <= _MOST


def _kinds(event: JobsSorted, rows: Rows) -> None:
    common = {"at": event.at, "schedd": event.schedd}
    rows["kinds"] = [
        {
            **common,
            "autocluster": kind.autocluster,
            "submitter": kind.submitter,
            "cluster": cluster,
            "first": first,
            "last": last,
        }
        for kind in event.kinds
        for cluster, first, last in (part for part in kind.jobs if len(part) == 3)
    ]
    rows["kind_ads"] = [{**common, "autocluster": kind.autocluster, "ad": kind.ad} for kind in event.kinds if kind.ad]


def _reasons(event: ReasonsChanged) -> Iterable[Row]:
    common = {"at": event.at, "shard": event.shard, "epoch": event.epoch, "cycle": event.cycle}
    if event.whole:  # what was told before is over
        nothing = {"schedd": "", "submitter": "", "autocluster": -1, "code": "", "text": "", "left": 0, "counts": "{}"}
        yield {**common, **nothing}
    for reason in event.reasons:
        yield {
            **common,
            "schedd": reason.schedd,
            "submitter": reason.submitter,
            "autocluster": reason.autocluster,
            "code": reason.code,
            "text": reason.text,
            "left": reason.left,
            "counts": _json({"slots": reason.counts, "details": reason.details} if reason.code else {}),
        }


def _matches(event: MatchesMade) -> Iterable[Row]:
    for group in event.groups:
        ranks = group.ranks or [0.0] * len(group.slots)
        for slot, jobs, weight, rank in zip(group.slots, group.counts, group.weights, ranks, strict=False):
            yield {
                "at": event.at,
                "shard": event.shard,
                "epoch": event.epoch,
                "cycle": event.cycle,
                "schedd": group.schedd,
                "submitter": group.submitter,
                "autocluster": group.autocluster,
                "slot": slot,
                "jobs": jobs,
                "weight": weight,
                "rank": rank,
            }


def _standings(event: StandingsTold) -> Iterable[Row]:
    told: list[tuple[str, str, SubmitterStanding | GroupStanding]] = [
        *(("submitter", one.submitter, one) for one in event.submitters),
        *(("group", one.group, one) for one in event.groups),
    ]
    common = {"at": event.at, "shard": event.shard}
    for kind, name, standing in told:
        body = {**standing.model_dump(), "pool": event.pool, "half_life": event.half_life}
        yield {**common, "kind": kind, "name": name, "body": _json(body)}
    for name in event.gone:
        yield {**common, "kind": "submitter", "name": name, "body": _json({"gone": True})}


def _json(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))
