"""Answers queries about the past: reads rows from the database, and has the pure modules explain them."""

from __future__ import annotations

import difflib
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final

import sqlalchemy as sa

from services.journal.core import fair_share, series
from services.journal.core.explain import (
    CAUSES,
    GONE,
    WAITING,
    clip,
    describe_event,
    hours_of,
    moment_map,
    seconds_by,
    span_map,
    spans_of,
    state_of,
)
from services.journal.core.rows import job_id
from services.journal.job_records import read_job
from services.journal.replay_reader import interval_part
from services.journal.store import EVENTS, MATCHES, REASONS, SAMPLES, STANDINGS, Store, in_budget
from shared.bus.api import RemoteFailure
from shared.daemon.clock import Clock
from shared.messages.base import Message
from shared.messages.journal import (
    AskCycle,
    AskCycles,
    AskEvents,
    AskInterval,
    AskJob,
    AskLeaders,
    AskSeries,
    AskUser,
)

#: Seconds of an interval that is open at its beginning.
DAY_S: Final = 86400.0
#: Events of one job that are told.
_EVENTS: Final = 2000
#: Rows that one picture is made of.
_ROWS: Final = 500_000
#: Names among which one like what was asked for is looked for.
_MOST_NAMES: Final = 20_000
#: Characters of events in one page: an event of somebody else may be as large as a message, and whoever asks about a
#: job reads three lists at once (60 to 110 ms for three of 2 MiB).
PAGE_BYTES: Final = 1 << 19

Data = dict[str, Any]


class JournalQueries:
    """Answers each kind of question, as docs/journal.md describes. Raises RemoteFailure, JournalUnavailable."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self.store = store
        self.clock = clock
        #: By type of the question.
        self.of: Final[Mapping[type[Message], Callable[[Any], Awaitable[Data]]]] = {
            AskJob: self.job,
            AskUser: self.user,
            AskCycles: self.cycles,
            AskCycle: self.cycle,
            AskLeaders: self.leaders,
            AskEvents: self.events,
            AskSeries: self.series,
            AskInterval: self.interval,
        }

    async def job(self, asked: AskJob) -> Data:
        now = self.clock.now()
        cluster, proc = job_id(asked.job_id)
        if cluster is None or proc is None:
            raise RemoteFailure("bad-request", f"{asked.job_id!r:.60} is no job's id: want cluster.proc, such as 12.0")
        _interval(asked.start, asked.end)
        return await self.store.read(lambda connection: _job(connection, asked, cluster, max(0, proc), now))

    async def user(self, asked: AskUser) -> Data:
        start, end = self._interval(asked.start, asked.end)
        return await self.store.read(lambda connection: _user(connection, asked.submitter, start, end, asked.points))

    async def cycles(self, asked: AskCycles) -> Data:
        return await self.store.read(lambda connection: _cycles(connection, asked.before, asked.limit))

    async def cycle(self, asked: AskCycle) -> Data:
        return await self.store.read(lambda connection: _cycle(connection, asked))

    async def leaders(self, asked: AskLeaders) -> Data:
        return await self.store.read(lambda connection: _leaders(connection, asked.limit))

    async def events(self, asked: AskEvents) -> Data:
        _interval(asked.start, asked.end)
        return await self.store.read(lambda connection: _events(connection, asked))

    async def series(self, asked: AskSeries) -> Data:
        start, end = self._interval(asked.start, asked.end)
        lines = await self.store.read(lambda connection: _series(connection, asked.name, start, end, asked.points))
        return {"times": series.times_of(start, end, asked.points), "series": lines}

    async def interval(self, asked: AskInterval) -> Data:
        _interval(asked.start, asked.end)
        return await self.store.read(lambda connection: interval_part(connection, asked))

    def _interval(self, start: float, end: float) -> tuple[float, float]:
        """A day where nothing else is said."""
        _interval(start, end)
        end = end or self.clock.now()
        return start or end - DAY_S, end


def _interval(start: float, end: float) -> None:
    if start and end and start >= end:
        raise RemoteFailure("bad-request", f"the interval ends ({end:.3f}) before it begins ({start:.3f})")


def _job(connection: sa.Connection, asked: AskJob, cluster: int, proc: int, now: float) -> Data:
    facts, about = read_job(connection, cluster, proc, asked.schedd, now)
    state = state_of(facts)
    whole = spans_of(facts, now)
    spans = clip(whole, asked.start, asked.end)
    matches = facts.matches
    events = [
        {
            "at": fact.at,
            "type": fact.type,
            "text": describe_event(fact, matches.get(_match_key(fact.body))),
            **({"slot": fact.body["slot"]} if fact.body.get("slot") else {}),
        }
        for fact in facts.events
        if (not asked.start or fact.at >= asked.start) and (not asked.end or fact.at < asked.end)
    ]
    answer: Data = {
        "job_id": f"{cluster}.{proc}",
        **about,
        "state": state,
        "gone": state in GONE,
        "events": newest_in_page(events[-_EVENTS:]),
        "spans": newest_in_page([span_map(span) for span in spans]),
        "hours": newest_in_page(hours_of(spans)),
        "waited": seconds_by(spans, lambda span, piece: piece.code if span.state in WAITING else None),
        "causes": dict(CAUSES),
    }
    if asked.at:
        answer["moment"] = moment_map(whole, asked.at)
    return answer


def newest_in_page(told: Sequence[Data], most: int = PAGE_BYTES) -> list[Data]:
    """The last of these, in order: as many as come to no more than so many characters of JSON."""
    kept: list[Data] = []
    for one in reversed(told):
        most -= len(json.dumps(one))
        if most < 0:
            break
        kept.append(one)
    return kept[::-1]


def _match_key(body: Mapping[str, Any]) -> tuple[str, int]:
    """The slot and the cycle of an event about a match."""
    return str(body.get("slot", "")), int(body.get("cycle", 0) or 0)


def _user(connection: sa.Connection, asked: str, start: float, end: float, points: int) -> Data:
    name = _full_name(connection, asked)
    rows = _standing_rows(connection, "submitter", [name], start, end)
    before = _standing_at(connection, "submitter", name, start)
    found = [fair_share.point_of(at, body) for at, _, body in rows]
    first = fair_share.point_of(start, before) if before is not None else (found[0] if found else None)
    last = found[-1] if found else ({**first, "at": end} if first is not None else None)
    at_rest = last["at"] if last is not None and last["priority"] is None else 0.0
    if at_rest:  # what it was like while it was there says more
        last = next((point for point in (*reversed(found), first) if point and point["priority"] is not None), last)
    others = [
        (who, fair_share.point_of(end, body))
        for who, body in _all_at(connection, "submitter", end).items()
        if who != name
    ]
    group = None
    if last is not None and last.get("group"):
        group = _standing_at(connection, "group", str(last["group"]), end)
    if before is not None:
        found.insert(0, fair_share.point_of(start, before))
    return {
        "submitter": name,
        "now": last or {},
        "first": first or {},
        "points": series.thinned(found, points),
        "others": [{"submitter": who, **one} for who, one in others],
        "group": dict(group) if group is not None else {},
        "text": fair_share.text_of(name, first, last, others, group, _changes(connection, name, start, end), at_rest),
    }


def _full_name(connection: sa.Connection, asked: str) -> str:
    """The submitter that somebody means who may leave out the domain. Raises RemoteFailure."""
    names = STANDINGS.c.name
    kind = STANDINGS.c.kind == "submitter"
    if connection.scalar(sa.select(names).where(kind, names == asked).limit(1)) is not None:
        return asked
    begin = sa.select(names).where(kind, names.startswith(f"{asked}@", autoescape=True)).distinct().limit(5)
    found = list(connection.scalars(begin))
    if len(found) == 1:
        return str(found[0])
    if found:
        raise RemoteFailure("bad-request", f"{asked[:80]} may be {', '.join(found)}: name one of them")
    known = list(connection.scalars(sa.select(names).where(kind).distinct().limit(_MOST_NAMES)))
    by_owner = {name.partition("@")[0]: name for name in known}
    near = difflib.get_close_matches(asked, [*known, *by_owner], 1, 0.75)
    mend = f"; did you mean {by_owner.get(near[0], near[0])}?" if near else ""
    raise RemoteFailure("not-found", f"the journal knows no submitter {asked[:80]}{mend}")


def _standing_rows(
    connection: sa.Connection, kind: str, names: Sequence[str] | None, start: float, end: float
) -> list[tuple[float, str, Mapping[str, Any]]]:
    table = STANDINGS
    chosen = sa.select(table.c.at, table.c.name, table.c.body).where(
        table.c.kind == kind, table.c.at >= start, table.c.at <= end
    )
    if names is not None:
        chosen = chosen.where(table.c.name.in_(names))
    rows = connection.execute(chosen.order_by(table.c.at).limit(_ROWS))
    return [(at, name, json.loads(body)) for at, name, body in in_budget(rows)]


def _standing_at(connection: sa.Connection, kind: str, name: str, at: float) -> Mapping[str, Any] | None:
    table = STANDINGS
    chosen = sa.select(table.c.body).where(table.c.kind == kind, table.c.name == name, table.c.at <= at)
    body = connection.scalar(chosen.order_by(table.c.at.desc()).limit(1))
    return dict(json.loads(body)) if body is not None else None


def _all_at(connection: sa.Connection, kind: str, at: float, back: float = DAY_S) -> dict[str, Mapping[str, Any]]:
    """By name: how each of them stood at a moment, of those who were told in the time before."""
    table = STANDINGS
    newest = (
        sa.select(table.c.name, sa.func.max(table.c.at).label("at"))
        .where(table.c.kind == kind, table.c.at <= at, table.c.at > at - back)
        .group_by(table.c.name)
        .subquery()
    )
    chosen = sa.select(table.c.name, table.c.body).join(
        newest, sa.and_(table.c.name == newest.c.name, table.c.at == newest.c.at)
    )
    found = {name: json.loads(body) for name, body in connection.execute(chosen.where(table.c.kind == kind))}
    return {name: body for name, body in sorted(found.items()) if not body.get("gone")}


def _changes(connection: sa.Connection, name: str, start: float, end: float) -> list[str]:
    """What administrators changed about a submitter."""
    table = EVENTS
    chosen = sa.select(table.c.body).where(
        table.c.type.in_(("accountant.changed", "accountant.restored")), table.c.at >= start, table.c.at <= end
    )
    lines = []
    for (body,) in connection.execute(chosen.order_by(table.c.at)):
        event = json.loads(body)
        if event["submitter"] == name:
            by = f"{event['by']} set" if event.get("by") else "there came back"
            lines.append(f"{by} its {event['what']} to {event['value']}")
    return lines


def _cycles(connection: sa.Connection, before: float, limit: int) -> Data:
    table = EVENTS
    chosen = sa.select(table.c.at, table.c.body).where(table.c.type == "negotiation.cycle")
    if before:
        chosen = chosen.where(table.c.at < before)
    shown: list[Data] = []
    last, left = 0.0, PAGE_BYTES
    for at, body in in_budget(connection.execute(chosen.order_by(table.c.at.desc()).limit(limit + 1))):
        left -= len(body)
        if len(shown) == limit or (left < 0 and shown):
            return {"cycles": shown, "next": last}
        shown.append(json.loads(body))
        last = at
    return {"cycles": shown, "next": None}


def _cycle(connection: sa.Connection, asked: AskCycle) -> Data:
    table = EVENTS
    numbers = f'%"epoch":{asked.epoch},"cycle":{asked.cycle},%'  # as rows.py writes them: few bodies are read
    chosen = sa.select(table.c.body).where(table.c.type == "negotiation.cycle", table.c.body.like(numbers))
    events = (json.loads(body) for body in connection.scalars(chosen.order_by(table.c.at.desc())))
    number = (asked.negotiator, asked.epoch, asked.cycle)
    found = next((one for one in events if (one["negotiator"], one["epoch"], one["cycle"]) == number), None)
    if found is None:
        raise RemoteFailure(
            "not-found", f"the journal has no cycle {asked.cycle} of {asked.negotiator[:80]} in epoch {asked.epoch}"
        )
    at = float(found["at"])
    reasons = _reasons_at(connection, at)
    matches = MATCHES
    given = sa.select(
        matches.c.submitter, sa.func.count(), sa.func.sum(matches.c.jobs), sa.func.sum(matches.c.weight)
    ).where(matches.c.epoch == asked.epoch, matches.c.cycle == asked.cycle, matches.c.at == at)
    by_submitter = [
        {"submitter": name, "slots": slots, "jobs": int(jobs), "weight": weight}
        for name, slots, jobs, weight in connection.execute(given.group_by(matches.c.submitter))
    ]
    return {**found, "matched": by_submitter, "reasons": reasons}


def _reasons_at(connection: sa.Connection, at: float, back: float = DAY_S) -> list[Data]:
    """The reasons in force at a moment, with how many autoclusters and jobs each stands for."""
    table = REASONS
    since = sa.select(sa.func.max(table.c.at)).where(table.c.autocluster == -1, table.c.at <= at)
    begin = max(connection.scalar(since) or 0.0, at - back)
    newest = (
        sa.select(table.c.schedd, table.c.autocluster, table.c.shard, sa.func.max(table.c.at).label("at"))
        .where(table.c.at <= at, table.c.at >= begin, table.c.autocluster >= 0)
        .group_by(table.c.schedd, table.c.autocluster, table.c.shard)
        .subquery()
    )
    same = [table.c[name] == newest.c[name] for name in ("schedd", "autocluster", "shard", "at")]
    chosen = sa.select(table).join(newest, sa.and_(*same)).where(table.c.code != "")
    found: dict[tuple[str, str], Data] = {}
    for row in connection.execute(chosen):
        one = found.setdefault(
            (row.submitter, row.code),
            {
                "submitter": row.submitter,
                "code": row.code,
                "text": row.text,
                "autoclusters": 0,
                "jobs": 0,
                "since": row.at,
                "counts": json.loads(row.counts).get("slots", {}),
            },
        )
        one["autoclusters"] += 1
        one["jobs"] += row.left
        one["since"] = min(one["since"], row.at)
    return sorted(found.values(), key=lambda one: (one["submitter"], -one["jobs"], one["code"]))


def _leaders(connection: sa.Connection, limit: int) -> Data:
    table = EVENTS
    chosen = sa.select(table.c.body).where(table.c.type == "had.leader").order_by(table.c.at.desc(), table.c.seq.desc())
    rows: list[Data] = []
    left = PAGE_BYTES
    for (body,) in in_budget(connection.execute(chosen.limit(limit + 1))):
        left -= len(body)
        if left < 0 and rows:
            break
        rows.append(json.loads(body))
    changes = []
    for number, event in enumerate(rows[:limit]):
        gap = None
        if event["state"] == "leader":
            before = next((one for one in rows[number + 1 :] if one["shard"] == event["shard"]), None)
            gap = max(0.0, event["at"] - before["at"]) if before is not None and before["state"] != "leader" else 0.0
        names = ("at", "had", "negotiator", "epoch", "state", "reason", "shard")
        changes.append({**{name: event[name] for name in names}, "gap_s": gap})
    return {"changes": changes}


def _events(connection: sa.Connection, asked: AskEvents) -> Data:
    table = EVENTS
    chosen = sa.select(table.c.id, table.c.at, table.c.type, table.c.sender, table.c.body)
    if asked.types.endswith("*"):
        chosen = chosen.where(table.c.type.startswith(asked.types.rstrip("*"), autoescape=True))
    elif asked.types:
        chosen = chosen.where(table.c.type == asked.types)
    if asked.job_id:
        cluster, proc = job_id(asked.job_id)
        if cluster is None or proc is None:
            raise RemoteFailure("bad-request", f"{asked.job_id!r:.60} is no job's id: want cluster.proc, such as 12.0")
        chosen = chosen.where(table.c.cluster == cluster)
        if proc >= 0:
            chosen = chosen.where(table.c.proc.in_((proc, -1)))
    if asked.start:
        chosen = chosen.where(table.c.at >= asked.start)
    if asked.end:
        chosen = chosen.where(table.c.at < asked.end)
    if asked.after:
        at, _, last = asked.after.partition("/")
        try:
            moment = float(at)
        except ValueError:
            raise RemoteFailure("bad-request", "after: want the `next` of a page before") from None
        chosen = chosen.where(sa.or_(table.c.at > moment, sa.and_(table.c.at == moment, table.c.id > last)))
    shown: list[Data] = []
    last, left, more = "", PAGE_BYTES, False
    for row in in_budget(connection.execute(chosen.order_by(table.c.at, table.c.id).limit(asked.limit + 1))):
        left -= len(row.body)
        more = len(shown) == asked.limit or (left < 0 and bool(shown))
        if more:
            break
        shown.append({"id": row.id, "type": row.type, "sender": row.sender, **json.loads(row.body)})
        last = f"{row.at!r}/{row.id}"
    return {"events": shown, "next": last if more else None}


def _series(
    connection: sa.Connection, name: str, start: float, end: float, points: int
) -> dict[str, list[float | None]]:
    if name == "waits":
        table = EVENTS
        chosen = sa.select(table.c.at, table.c.body).where(
            table.c.type == "job.started", table.c.at > start, table.c.at <= end
        )
        waits = (
            (at, float(json.loads(body)["waited_s"])) for at, body in in_budget(connection.execute(chosen.limit(_ROWS)))
        )
        return series.quantiles(waits, start, end, points, {"median": 0.5, "p95": 0.95})
    if name == "shares":
        told = [(start, who, body["in_use"]) for who, body in _all_at(connection, "submitter", start).items()]
        rows = _standing_rows(connection, "submitter", None, start, end)
        told += [(at, who, 0.0 if body.get("gone") else body["in_use"]) for at, who, body in rows]
        return series.largest(series.held(told, start, end, points))
    table = SAMPLES
    chosen = sa.select(table.c.at, table.c.label, table.c.value).where(
        table.c.name == name, table.c.at > start, table.c.at <= end
    )
    samples = ((row.at, row.label, row.value) for row in in_budget(connection.execute(chosen.limit(_ROWS))))
    return series.averaged(samples, start, end, points)
