"""Reads what is recorded of one job, and of what its schedd and the negotiators did meanwhile."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, Final

import sqlalchemy as sa

from services.journal.core.explain import (
    CAUSES,
    AutoclusterChange,
    JobHistory,
    Outage,
    RecordedEvent,
    WaitReason,
    with_hold,
)
from services.journal.store import EVENTS, KINDS, MATCHES, REASONS
from shared.bus.api import RemoteFailure

#: Changes of reasons that are read for one job.
_MOST: Final = 100_000
#: Characters that are read of a text: what events tell may be as large as a message, and one job has thousands.
TEXT_CHARACTERS: Final = 2000
#: Changes of the lead that are looked through for who led as a job came.
_LEADERS: Final = 200


def read_job(
    connection: sa.Connection, cluster: int, proc: int, schedd: str, now: float
) -> tuple[JobHistory, dict[str, Any]]:
    """The facts about a job; and its schedd, owner, submitter, and since when the journal records. Raises RemoteFailure
    for a job that it knows nothing of, or that may be one of several schedds."""
    events, schedds = _events(connection, cluster, proc, schedd)
    since = connection.scalar(sa.select(sa.func.min(EVENTS.c.at)))
    if not events:
        asked = f"job {cluster}.{proc}" + (f" of schedd {schedd[:80]}" if schedd else "")
        begins = ", as it is empty"
        if since is not None:
            begins = f"; it begins at {datetime.fromtimestamp(since, UTC):%Y-%m-%d %H:%M:%S} UTC"
        raise RemoteFailure("not-found", f"the journal knows nothing of {asked}{begins}")
    if len(schedds) > 1:
        raise RemoteFailure(
            "bad-request", f"job {cluster}.{proc} is in the queues of {', '.join(sorted(schedds))}: name one schedd"
        )
    (name,) = schedds
    begin = events[0].at
    kinds = _kinds(connection, name, cluster, proc)
    restarts = _restarts(connection, name, begin)
    facts = JobHistory(
        events=events,
        kinds=kinds,
        whys=_whys(connection, name, {kind.autocluster for kind in kinds}, begin),
        resets=sorted(
            [*_resets(connection, begin), *((at, None) for at, state in restarts if state == "daemon.started")],
            key=lambda one: one[0],
        ),
        outages=[
            *_downs(restarts),
            *_cut_off(connection, name, begin),
            *_leaderless(connection, begin),
            *_limits(connection, name, begin),
            *_silences(connection, name, begin),
        ],
        matches=_matches(connection, events),
    )
    first = events[0].body
    submitter = kinds[-1].submitter if kinds else str(first.get("submitter", ""))
    owner = next((str(fact.body["owner"]) for fact in events if fact.body.get("owner")), "")
    return facts, {"schedd": name, "owner": owner, "submitter": submitter, "recorded_since": since}


def _events(connection: sa.Connection, cluster: int, proc: int, schedd: str) -> tuple[list[RecordedEvent], set[str]]:
    table = EVENTS
    chosen = sa.select(table.c.at, table.c.type, table.c.body).where(
        table.c.cluster == cluster, table.c.proc.in_((proc, -1))
    )
    found: list[RecordedEvent] = []
    schedds: set[str] = set()
    for at, kind, text in connection.execute(chosen.order_by(table.c.at, table.c.seq)):
        body = {name: _short(value) for name, value in json.loads(text).items()}
        if schedd and body.get("schedd") != schedd:
            continue
        if kind == "job.submitted" and not body["first_proc"] <= proc < body["first_proc"] + body["count"]:
            continue
        facts = with_hold(RecordedEvent(at, kind, body), proc)
        if facts:
            schedds.add(str(body.get("schedd", "")))
        found += facts
    return found, schedds


def _short(value: Any) -> Any:
    if isinstance(value, str) and len(value) > TEXT_CHARACTERS:
        return f"{value[:TEXT_CHARACTERS]} (and {len(value) - TEXT_CHARACTERS} more characters)"
    return value


def _kinds(connection: sa.Connection, schedd: str, cluster: int, proc: int) -> list[AutoclusterChange]:
    table = KINDS
    chosen = sa.select(table.c.at, table.c.autocluster, table.c.submitter).where(
        table.c.cluster == cluster, table.c.schedd == schedd, table.c.first <= proc, table.c.last >= proc
    )
    return [AutoclusterChange(*row) for row in connection.execute(chosen.order_by(table.c.at))]


def _whys(connection: sa.Connection, schedd: str, autoclusters: set[int], begin: float) -> list[WaitReason]:
    table = REASONS
    found = []
    for autocluster in sorted(autoclusters):
        mine = sa.and_(table.c.schedd == schedd, table.c.autocluster == autocluster)
        before = sa.select(sa.func.max(table.c.at)).where(mine, table.c.at < begin)
        start = connection.scalar(before)
        chosen = sa.select(
            table.c.at, table.c.autocluster, table.c.code, table.c.text, table.c.counts, table.c.shard
        ).where(mine, table.c.at >= (begin if start is None else start))
        for at, kind, code, text, counts, shard in connection.execute(
            chosen.order_by(table.c.at, table.c.epoch, table.c.cycle).limit(_MOST)
        ):
            found.append(WaitReason(at, kind, _short(code), _short(text), json.loads(counts).get("slots", {}), shard))
    return sorted(found, key=lambda why: why.at)


def _resets(connection: sa.Connection, begin: float) -> Iterable[tuple[float, str | None]]:
    """When negotiators told all their reasons anew: rows without an autocluster."""
    table = REASONS
    chosen = sa.select(table.c.at, table.c.shard).where(
        table.c.schedd == "", table.c.autocluster == -1, table.c.at >= begin
    )
    return [(at, shard) for at, shard in connection.execute(chosen)]


def _since(connection: sa.Connection, types: tuple[str, ...], begin: float) -> list[tuple[float, str, dict[str, Any]]]:
    """Events of these types since `begin`, in order."""
    table = EVENTS
    chosen = sa.select(table.c.at, table.c.type, table.c.body).where(table.c.type.in_(types), table.c.at >= begin)
    return [
        (at, kind, json.loads(body)) for at, kind, body in connection.execute(chosen.order_by(table.c.at, table.c.seq))
    ]


def _restarts(connection: sa.Connection, schedd: str, begin: float) -> list[tuple[float, str]]:
    table = EVENTS
    chosen = sa.select(table.c.at, table.c.type).where(
        table.c.type.in_(("daemon.started", "daemon.stopped")),
        table.c.sender == f"schedd.{schedd}",
        table.c.at >= begin,
    )
    return [(at, kind) for at, kind in connection.execute(chosen.order_by(table.c.at, table.c.seq))]


def _downs(restarts: Iterable[tuple[float, str]]) -> Iterable[Outage]:
    down: float | None = None
    for at, kind in restarts:
        if kind == "daemon.stopped":
            down = at if down is None else down
        elif down is not None:
            yield Outage("schedd-down", down, at, CAUSES["schedd-down"])
            down = None
    if down is not None:
        yield Outage("schedd-down", down, None, CAUSES["schedd-down"])


def _cut_off(connection: sa.Connection, schedd: str, begin: float) -> Iterable[Outage]:
    """Times without a broker, of the schedd and of the negotiator that led; and times of which facts are lost. Where
    several negotiators lead, one that is cut off stops only its own part of the pool, and does not count."""
    leads: dict[str, str] = {}
    for event in _changes_of_lead(connection, begin):
        _lead(leads, event, earlier=True)
    for at, kind, event in _since(connection, ("had.leader", "daemon.reconnected"), begin):
        if kind == "had.leader":
            _lead(leads, event)
            continue
        own = event["daemon"] == f"schedd@{schedd}"
        if own and event["lost"]:
            text = f"{event['lost']} facts that its schedd told then are lost: it had no connection to the broker"
            yield Outage("unknown", event["lost_from"], max(event["lost_to"], event["lost_from"] + 0.001), text)
        if own or [event["daemon"]] == [f"negotiator@{name}" for name in leads.values() if name]:
            who = "its schedd" if own else "the negotiator"
            yield Outage("no-broker", event["since"], at, f"{who} had no connection to the broker")


def _changes_of_lead(connection: sa.Connection, begin: float) -> Iterable[dict[str, Any]]:
    """The last events of HADs before this, newest first."""
    known = sa.select(EVENTS.c.body).where(EVENTS.c.type == "had.leader", EVENTS.c.at < begin)
    for body in connection.scalars(known.order_by(EVENTS.c.at.desc()).limit(_LEADERS)):
        yield json.loads(body)


def _lead(leads: dict[str, str], event: Mapping[str, Any], *, earlier: bool = False) -> None:
    """Who leads each shard from this event on; "": nobody. earlier: it is older than what is known."""
    name = event["negotiator"] if event["state"] == "leader" else ""
    if earlier:
        leads.setdefault(event["shard"], name)
    elif name or leads.get(event["shard"]) == event["negotiator"]:
        leads[event["shard"]] = name


def _leaderless(connection: sa.Connection, begin: float) -> Iterable[Outage]:
    """Times in which no negotiator led, of any name. Before the first event of its HAD nothing is known."""
    leads: dict[str, bool] = {}
    for event in _changes_of_lead(connection, begin):
        leads.setdefault(event["shard"], event["state"] == "leader")
    nobody = begin if leads and not any(leads.values()) else None
    text = CAUSES["no-negotiator"]
    for at, _, event in _since(connection, ("had.leader",), begin):
        leads[event["shard"]] = event["state"] == "leader"
        if any(leads.values()):
            if nobody is not None:
                yield Outage("no-negotiator", nobody, at, text)
            nobody = None
        elif nobody is None:
            nobody = at
            text = f"{CAUSES['no-negotiator']}: {event.get('reason') or 'the last one stopped'}"
    if nobody is not None:
        yield Outage("no-negotiator", nobody, None, text)


def _limits(connection: sa.Connection, schedd: str, begin: float) -> Iterable[Outage]:
    table = EVENTS
    before = sa.select(table.c.body).where(
        table.c.type == "job.limit", table.c.sender == f"schedd.{schedd}", table.c.at < begin
    )
    last = connection.scalar(before.order_by(table.c.at.desc()).limit(1))
    full = begin if last is not None and json.loads(last)["limited"] else None
    text = CAUSES["schedd-limit"]
    for at, kind, event in _since(connection, ("job.limit", "daemon.started"), begin):
        if kind == "daemon.started" and event["daemon"] != f"schedd@{schedd}":
            continue
        if kind == "job.limit" and event["schedd"] != schedd:
            continue
        if kind == "job.limit" and event["limited"]:
            full = at if full is None else full
        elif full is not None:
            yield Outage("schedd-limit", full, at, text)
            full = None
    if full is not None:
        yield Outage("schedd-limit", full, None, text)


def _silences(connection: sa.Connection, schedd: str, begin: float) -> Iterable[Outage]:
    """Times in which the schedd did not answer a negotiator; each is told with the cycle in which that changed."""
    table = EVENTS
    reasons = sa.and_(table.c.type == "negotiation.reasons", table.c.at >= begin)
    told = sa.select(table.c.seq).where(reasons, table.c.body.not_like('%"silent":[]%')).limit(1)
    if connection.scalar(told) is None:
        return
    silent: dict[str, float] = {}
    for at, _, event in _since(connection, ("negotiation.reasons",), begin):
        shard = event.get("shard", "")
        if f"schedd.{schedd}" in event.get("silent", ()) or schedd in event.get("silent", ()):
            silent.setdefault(shard, at)
        elif shard in silent:
            yield Outage("schedd-silent", silent.pop(shard), at, CAUSES["schedd-silent"])
    for start in silent.values():
        yield Outage("schedd-silent", start, None, CAUSES["schedd-silent"])


def _matches(connection: sa.Connection, events: Iterable[RecordedEvent]) -> dict[tuple[str, int], Mapping[str, Any]]:
    """What else is known of the matches that a job got."""
    found: dict[tuple[str, int], Mapping[str, Any]] = {}
    for fact in events:
        if fact.type != "job.matched":
            continue
        slot, cycle = str(fact.body.get("slot", "")), int(fact.body.get("cycle", 0))
        row = connection.execute(
            sa.select(MATCHES.c.at, MATCHES.c.rank)
            .where(MATCHES.c.slot == slot, MATCHES.c.cycle == cycle, MATCHES.c.at <= fact.at + 60.0)
            .order_by(MATCHES.c.at.desc())
            .limit(1)
        ).one_or_none()
        if row is None:
            continue
        bodies = connection.scalars(
            sa.select(EVENTS.c.body).where(EVENTS.c.type == "negotiation.matched", EVENTS.c.at == row.at)
        )
        preempts = [
            (one["slot"], one["from_user"])
            for body in bodies
            for one in json.loads(body).get("preempted", ())
            if one["slot"] == slot
        ]
        found[slot, cycle] = {"rank": row.rank, "preempts": preempts}
    return found
