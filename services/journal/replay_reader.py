"""Reads all that a replay of an interval needs, part by part: configuration and standings, slots, jobs."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Sequence
from typing import Any, Final

import sqlalchemy as sa

from services.journal.core.explain import RecordedEvent
from services.journal.core.replay import by_job, offers_of
from services.journal.core.rows import job_id
from services.journal.store import EVENTS, KIND_ADS, KINDS, SLOTS, STANDINGS
from shared.bus.api import RemoteFailure
from shared.messages.journal import AskInterval

#: Clusters, and slots, in one part.
_CLUSTERS: Final = 500
_SLOTS: Final = 1000
#: Offers in one part, and ranges of jobs of one cluster that are looked through one by one.
_OFFERS: Final = 10_000
_RANGES: Final = 50
#: A job that began longer before the interval is not looked for.
_BACK_S: Final = 14 * 86400.0

Data = dict[str, Any]


def interval_part(connection: sa.Connection, asked: AskInterval) -> Data:
    """The part that comes after `asked.after`: "" the first, "slots/<name>", "jobs/<job>". Raises RemoteFailure."""
    what, _, place = asked.after.partition("/")
    parts: dict[str, Callable[[sa.Connection, AskInterval, str], Data]] = {"": _first, "slots": _slots, "jobs": _jobs}
    part = parts.get(what)
    if part is None or (what == "jobs" and place and job_id(place)[0] is None):
        raise RemoteFailure("bad-request", f"after: want the `next` of a part, not {asked.after[:40]!r}")
    return part(connection, asked, place)


def _first(connection: sa.Connection, asked: AskInterval, _: str) -> Data:
    since = connection.scalar(sa.select(sa.func.min(EVENTS.c.at)))
    if since is None or since >= asked.end:
        raise RemoteFailure("not-found", "the journal has nothing of that time")
    shard = _shard(connection, asked)
    policies = _policies(connection, shard, asked.end)
    before = [one for one in policies if one["at"] <= asked.start]
    in_force: Data = before[-1] if before else policies[0] if policies else {"at": 0.0, "knobs": {}}
    return {
        "start": asked.start,
        "end": asked.end,
        "recorded_since": since,
        "shard": shard,
        "policy": in_force,
        "policy_changes": [one for one in policies if one["at"] > max(asked.start, in_force["at"])],
        "standings": _standings(connection, shard, asked.start, asked.end),
        "cycles": _cycle_count(connection, asked),
        "start_s": _start_latency(connection, asked),
        "next": "slots/",
    }


def _shard(connection: sa.Connection, asked: AskInterval) -> str:
    """The negotiator that is meant; raises RemoteFailure where that is not clear."""
    chosen = sa.select(STANDINGS.c.shard).where(STANDINGS.c.at <= asked.end).distinct().limit(20)
    known = sorted(set(connection.scalars(chosen)))
    if asked.negotiator in known:
        return asked.negotiator
    if asked.negotiator or len(known) > 1:
        raise RemoteFailure("bad-request", f"name one negotiator of {', '.join(known) or 'none'}")
    return known[0] if known else ""


def _policies(connection: sa.Connection, shard: str, end: float) -> list[Data]:
    chosen = sa.select(EVENTS.c.at, EVENTS.c.body).where(EVENTS.c.type == "negotiation.policy", EVENTS.c.at < end)
    found: list[Data] = []
    for at, body in connection.execute(chosen.order_by(EVENTS.c.at, EVENTS.c.seq)):
        event = json.loads(body)
        if event["shard"] == shard and (not found or found[-1]["knobs"] != event["knobs"]):
            found.append({"at": at, "knobs": event["knobs"]})
    return found


def _standings(connection: sa.Connection, shard: str, start: float, end: float) -> Data:
    """By submitter: how it stood as the interval began; else, of those who came later, how they were first seen."""
    table = STANDINGS
    mine = sa.and_(table.c.kind == "submitter", table.c.shard == shard)
    found: Data = {}
    later = sa.select(table.c.name, table.c.at, table.c.body).where(mine, table.c.at > start, table.c.at < end)
    for name, at, body in connection.execute(later.order_by(table.c.at.desc())):
        known = json.loads(body)
        if not known.get("gone"):
            found[name] = {"at": at, **known, "in_use": 0.0, "slots": 0}
    before = sa.select(table.c.name, table.c.at, table.c.body).where(
        mine, table.c.at <= start, table.c.at > start - _BACK_S
    )
    for name, at, body in connection.execute(before.order_by(table.c.at)):
        known = json.loads(body)
        if not known.get("gone"):
            found[name] = {"at": at, **known}
        elif name in found:
            found[name] = {**found[name], "in_use": 0.0, "slots": 0}
    return found


def _cycle_count(connection: sa.Connection, asked: AskInterval) -> int:
    chosen = sa.select(sa.func.count()).where(
        EVENTS.c.type == "negotiation.cycle", EVENTS.c.at >= asked.start, EVENTS.c.at < asked.end
    )
    return int(connection.scalar(chosen) or 0)


def _start_latency(connection: sa.Connection, asked: AskInterval) -> float:
    """Median seconds from a match, or a claim that goes on, to a running job."""
    chosen = sa.select(EVENTS.c.body).where(
        EVENTS.c.type == "job.started", EVENTS.c.at >= asked.start, EVENTS.c.at < asked.end
    )
    bodies = (json.loads(body) for body in connection.scalars(chosen.limit(5000)))
    took = sorted(max(0.0, body["at"] - body["began"]) for body in bodies if body.get("began"))
    return took[len(took) // 2] if took else 0.0


def _slots(connection: sa.Connection, asked: AskInterval, after: str) -> Data:
    """Slots by name: what each offered as the interval began, and what changed in it; an empty ad: it was gone."""
    table = SLOTS
    listed = sa.select(table.c.slot).where(table.c.slot > after, table.c.at < asked.end).distinct()
    names = list(connection.scalars(listed.order_by(table.c.slot).limit(_SLOTS)))
    found: dict[str, list[list[Any]]] = {}
    if names:
        chosen = sa.select(table.c.slot, table.c.at, table.c.ad).where(
            table.c.slot >= names[0], table.c.slot <= names[-1], table.c.at < asked.end
        )
        for name, at, ad in connection.execute(chosen.order_by(table.c.slot, table.c.at)):
            offers = found.setdefault(name, [])
            if at <= asked.start and offers:
                offers.clear()  # only the last one before the beginning counts
            offers.append([max(at, asked.start), base64.b64encode(ad).decode()])
    return {"slots": found, "next": f"slots/{names[-1]}" if len(names) == _SLOTS else "jobs/"}


def _jobs(connection: sa.Connection, asked: AskInterval, after: str) -> Data:
    """Offers of work: [schedd, cluster, proc, submitter, kind, *Offer.row()]; kinds: the ad by "schedd/autocluster"."""
    table = EVENTS
    cluster, proc = job_id(after)
    done = (cluster if cluster is not None else -1, proc if proc is not None else -1)
    found = sa.select(table.c.cluster).where(
        table.c.cluster >= done[0],
        table.c.at < asked.end,
        table.c.at > asked.start - _BACK_S,
        table.c.cluster.is_not(None),
    )
    clusters = list(connection.scalars(found.distinct().order_by(table.c.cluster).limit(_CLUSTERS)))
    if not clusters:
        return {"offers": [], "kinds": {}, "next": None}
    which = _Kinds(connection, clusters)
    jobs = by_job(_facts(connection, clusters))
    offers: list[list[Any]] = []
    kinds: dict[tuple[str, int], str] = {}
    last = done
    cut = False
    for (schedd, number, proc), events in sorted(jobs.items(), key=lambda one: (one[0][1:], one[0][0])):
        if (number, proc) <= done:
            continue
        if len(offers) >= _OFFERS and (number, proc) != last:
            cut = True
            break
        last = (number, proc)
        for offer in offers_of(events, asked.start, asked.end):
            autocluster, submitter = which.of(schedd, number, proc, offer.at)
            if autocluster is not None:
                kinds.setdefault((schedd, autocluster), "")
            offers.append([schedd, number, proc, submitter, autocluster, *offer.row()])
    ads = {f"{schedd}/{number}": _ad(connection, schedd, number, asked.end) for schedd, number in kinds}
    more = cut or len(clusters) == _CLUSTERS
    return {"offers": offers, "kinds": ads, "next": f"jobs/{last[0]}.{last[1]}" if more else None}


def _facts(connection: sa.Connection, clusters: Sequence[int]) -> list[tuple[int, int, RecordedEvent]]:
    """All job events of these clusters, later ones too: they tell how long jobs ran."""
    table = EVENTS
    chosen = sa.select(table.c.cluster, table.c.proc, table.c.at, table.c.type, table.c.body).where(
        table.c.cluster >= clusters[0], table.c.cluster <= clusters[-1]
    )
    return [
        (row.cluster, row.proc, RecordedEvent(row.at, row.type, json.loads(row.body)))
        for row in connection.execute(chosen.order_by(table.c.at, table.c.seq))
    ]


class _Kinds:
    """Of which autocluster jobs were."""

    def __init__(self, connection: sa.Connection, clusters: Sequence[int]) -> None:
        table = KINDS
        chosen = sa.select(table).where(table.c.cluster >= clusters[0], table.c.cluster <= clusters[-1])
        self._by: dict[tuple[str, int], list[Any]] = {}
        for row in connection.execute(chosen.order_by(table.c.at)):
            self._by.setdefault((row.schedd, row.cluster), []).append(row)
        #: By proc, of clusters whose jobs differ: looking through all ranges for each job would take for ever.
        self._procs: dict[tuple[str, int], dict[int, list[Any]]] = {}
        for key, rows in self._by.items():
            if len(rows) > _RANGES:
                procs = self._procs[key] = {}
                for row in rows:
                    for proc in range(row.first, row.last + 1):
                        procs.setdefault(proc, []).append(row)

    def of(self, schedd: str, cluster: int, proc: int, at: float) -> tuple[int | None, str]:
        """(autocluster, submitter) at a time: the last that was told before, or soon after; None where nothing was."""
        key = (schedd, cluster)
        if key in self._procs:
            mine = self._procs[key].get(proc, [])
        else:
            mine = [row for row in self._by.get(key, ()) if row.first <= proc <= row.last]
        if not mine:
            return None, ""
        before = [row for row in mine if row.at <= at + 5.0]
        row = before[-1] if before else mine[0]
        return row.autocluster, row.submitter


def _ad(connection: sa.Connection, schedd: str, autocluster: int, end: float) -> str:
    table = KIND_ADS
    chosen = sa.select(table.c.ad).where(table.c.schedd == schedd, table.c.autocluster == autocluster, table.c.at < end)
    ad = connection.scalar(chosen.order_by(table.c.at.desc()).limit(1))
    return base64.b64encode(ad).decode() if ad is not None else ""
