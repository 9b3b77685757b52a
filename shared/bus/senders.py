"""Who may send what: holds every message that arrives to the one table of senders (shared/messages/flows.py), before a
handler sees it, on every transport. Closed: a message without a row is refused, whoever sends it.

A row says which roles may send a message, where it may arrive (at an inbox, on one exchange, or as the answer to a
call), and which of its fields must name the sender. The sender is whom the broker vouches for where every daemon has a
user of its role, "startd", or one of its own, "startd.node1". Where the daemon's own user is no role (guest, a broker
without users of roles) nobody vouches: then the sender's word is all there is, and what it says of itself is held to
the table all the same."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Final

import structlog

from shared.bus.api import BusHealth, Exchange
from shared.bus.definitions import RIGHTS
from shared.bus.statements import Believer, NotBelieved, Replayed
from shared.bus.topology import ROLES, WORK_QUEUES, role_of
from shared.errors import PermanentError
from shared.messages.base import Envelope, Head, Message, Person
from shared.messages.flows import ANY_REQUEST, EVERY, PUBLISHED, REQUESTS, Named, Names, Permit, sent_by
from shared.operations import NEEDS, Level, in_scope, level_of

Log = structlog.stdlib.BoundLogger

#: Refusals that are logged, by who and what; what comes after so many of them is only counted.
LOGGED: Final = 1000
#: Whose role it is to speak for people.
GATEWAY: Final = "gateway"
#: Roles that serve an inbox which is not named after one.
_SERVED_BY: Final[Mapping[str, str]] = {"poolhistory": "collector"}


class Denied(PermanentError):
    """This message may not come from who sent it. The reason says who may."""

    def __init__(self, reason: str, who: str, kind: str) -> None:
        super().__init__(reason)
        self.who = who  # who sent it, as far as known
        self.kind = kind
        self.answered = False  # a copy of a message that came before: whoever sent that is answered, and nobody else


@dataclass(frozen=True, slots=True)
class Row:
    """One kind of message. by: roles that may send it, none: nobody. answers: roles that may send it as an answer to a
    call. exchanges: where it arrives when it is none, RPC for inboxes. advertises: it is about ads of the sender, of a
    type that its role has. permit: as a Request has it."""

    by: tuple[str, ...] = ()
    answers: tuple[str, ...] = ()
    exchanges: tuple[Exchange, ...] = ()
    names: Names = ()
    advertises: bool = False
    permit: Permit | None = None


@dataclass(frozen=True, slots=True)
class Arrival:
    """How a message came. exchange: RPC for whatever comes to an inbox; None: it is the answer to a call. user: whom
    the broker knows its publisher as; None: nobody vouches for that. copy: others have it too. inbox: which, of what
    comes to one. again: the broker delivers it a second time."""

    exchange: Exchange | None
    user: str | None = None
    copy: bool = False
    inbox: str = ""
    again: bool = False


#: Exchanges of which a work queue has everything (shared/bus/topology.py), so that listeners have copies.
COPIED: Final = frozenset(queue.exchange for queue in WORK_QUEUES.values())
#: An answer to a call on a transport where nobody vouches.
ANSWER: Final = Arrival(None)

Table = Mapping[str, Row]


def _roles(by: Sequence[str]) -> tuple[str, ...]:
    return ROLES if EVERY in by else tuple(by)


def _serving(inbox: str) -> tuple[str, ...]:
    """Roles that answer at an inbox."""
    role = inbox.partition(".")[0]
    return ROLES if role == "{subsystem}" else (_SERVED_BY.get(role, role),)


def table() -> Table:
    """The rows, from the flows. Raises ValueError for a message that is told of in two places."""
    rows: dict[str, Row] = {}
    for entry in PUBLISHED:
        for kind in entry.types:
            if kind in rows:
                raise ValueError(f"{kind}: it is told of twice in shared/messages/flows.py")
            exchange = Exchange(entry.exchange)
            advertises = exchange is Exchange.ADS and (EVERY in entry.by)
            rows[kind] = Row(_roles(entry.by), (), (exchange,), entry.names, advertises)
    answers: dict[str, dict[str, None]] = {}
    for request in REQUESTS.values():
        if request.type in rows:
            raise ValueError(f"{request.type}: it is published, and a request")
        rows[request.type] = Row(_roles(request.by), (), (Exchange.RPC,), request.names, permit=request.permit)
        for answer in (*request.answers, *ANY_REQUEST):
            answers.setdefault(answer, {}).update(dict.fromkeys(_serving(request.inbox)))
    for kind, roles in answers.items():
        row = rows.get(kind, Row())
        rows[kind] = replace(row, answers=tuple(roles))
    return MappingProxyType(rows)


def speaks_for_somebody(body: Message, permit: Permit | None) -> bool:
    """Whether a message of a gateway is for a person, so that a statement must say who that is. A question that takes
    no more than READ is for nobody as long as it names nobody: its answer is the same for all."""
    if permit is None:
        return False
    if min(NEEDS[operation] for operation in permit.of(body)) > Level.READ:
        return True
    return bool(getattr(body, "user", "") or getattr(body, "admin", False))


def beyond(body: Message, person: Person, permit: Permit) -> str:
    """Why a message asks for more than the statement says of the person; empty: it does not."""
    who, level, operations = repr(person.user[:80]), level_of(person.level), permit.of(body)
    least = min(NEEDS[operation] for operation in operations)
    if level < least:
        return f"{body.type}: it takes {least.name}, and {who} has {person.level[:20]!r}"
    if not any(level >= NEEDS[one] and in_scope(one, person.scopes) for one in operations):
        wanted, scopes = " or ".join(operations), ", ".join(person.scopes)[:200]
        return f"{body.type}: it takes the operation {wanted}, and {who} has a token for {scopes} only"
    for_others = permit.for_others and level >= Level.ADMINISTRATOR
    for attribute in ("by",) if for_others else ("user", "by"):
        said = getattr(body, attribute, person.user)
        if said != person.user and (said or least > Level.READ):
            return f"{body.type}: it says it is from {str(said)[:80]!r}, its statement from {who}"
    if getattr(body, "admin", False) and level < Level.ADMINISTRATOR:
        return f"{body.type}: {who} is no administrator"
    if (said := getattr(body, "level", person.level)) != person.level:
        return f"{body.type}: it says {str(said)[:20]!r}, its statement {person.level[:20]!r}"
    return ""


#: The table of this release.
TABLE: Final[Table] = table()


def vouched(user: str, sender: str) -> bool:
    """Whether a user of the broker may say it is this sender: one of a role for all of them, else only for itself."""
    return sender == user if "." in user else sender.partition(".")[0] == user


def why_not(envelope: Envelope, arrival: Arrival, rows: Table = TABLE) -> str:
    """Empty when the message may come from who sent it, the way it came; else the reason. Pure."""
    reason = why_not_from(envelope.body.type, envelope.sender, arrival, rows)
    if reason or arrival.exchange is None:
        return reason
    return _misnamed(envelope, rows[envelope.body.type], role_of(envelope.sender))


def why_not_from(kind: str, sender: str, arrival: Arrival, rows: Table = TABLE) -> str:
    """The same as far as it can be told before the body is read. Pure."""
    if arrival.user is not None and not vouched(arrival.user, sender):
        return (
            f"{kind}: says it is from {sender[:80]!r}, but the broker knows its publisher as user {arrival.user[:80]!r}"
        )
    row = rows.get(kind)
    if row is None:
        return f"{kind}: nobody may send it: it has no row in the table of senders (shared/messages/flows.py)"
    answered = arrival.exchange is None
    allowed = row.answers if answered else row.by
    if not allowed or (not answered and arrival.exchange not in row.exchanges):
        return f"{kind}: it does not come {_place(arrival)}: {_where(row)}"
    role = role_of(sender)
    if role not in allowed:
        may = EVERY if allowed == ROLES else sent_by(allowed)
        return f"{kind}: from {sender[:80] or 'nobody'!r}, but {may} may send it, and nobody else"
    return ""


def _misnamed(envelope: Envelope, row: Row, role: str) -> str:
    """Why a message that speaks for somebody else than its sender is refused."""
    body, sender = envelope.body, envelope.sender
    name = sender.partition(".")[2]
    for attribute, form in row.names:
        said = getattr(body, attribute, None)
        want = sender if form is Named.INBOX else f"{role}@{name}" if form is Named.DAEMON else name
        if form is Named.SHARD:
            want = getattr(body, "shard", "") or name
        if said is not None and said != want:
            return f"{body.type} of {str(said)[:80]!r} from {sender[:80]!r}: a daemon speaks for itself only"
    if row.advertises:
        kind = getattr(body, "my_type", "")
        if kind not in RIGHTS[role].ads:  # as the broker has it for routing keys, which bodies need not follow
            return f"{body.type}: a {role} has no ads of type {kind[:80]!r}"
    return ""


def _place(arrival: Arrival) -> str:
    if arrival.exchange is None:
        return "as an answer"
    return "to an inbox" if arrival.exchange is Exchange.RPC else f"on {arrival.exchange}"


def _where(row: Row) -> str:
    places = [_place(Arrival(exchange)) for exchange in row.exchanges]
    if row.answers:
        places.append(_place(ANSWER))
    return f"it comes {' or '.join(places)} only"


@dataclass(slots=True)
class Senders:
    """Holds what one daemon's bus receives to a table, counts what it refuses, and logs each sender's first refusal of
    each type: who goes on sending what it may not must not fill the log.

    believer: checks what gateways say of people. None: on the in-process bus without keys, where nobody but this
    process speaks. large: held by who reads a large message, one in a turn of the loop."""

    health: BusHealth
    log: Log
    rows: Table
    believer: Believer | None = None
    large: asyncio.Lock = field(default_factory=asyncio.Lock)
    _logged: set[tuple[str, str]] = field(default_factory=set)

    def admit(self, envelope: Envelope, arrival: Arrival) -> None:
        """Raises Denied for a message that may not come from who sent it."""
        if reason := why_not(envelope, arrival, self.rows):
            raise self.denied(reason, envelope.body.type, envelope.sender, arrival)

    def admit_head(self, head: Head, arrival: Arrival) -> None:
        """The same for a message that is not read yet, as far as its head tells. Raises Denied."""
        if reason := why_not_from(head.type, head.sender, arrival, self.rows):
            raise self.denied(reason, head.type, head.sender, arrival)

    def asks_who(self, envelope: Envelope, arrival: Arrival) -> bool:
        """Whether a message that was admitted is obeyed only with a statement: then it goes on to `believe`."""
        if self.believer is None or arrival.exchange is None or role_of(envelope.sender) != GATEWAY:
            return False
        return speaks_for_somebody(envelope.body, self.rows[envelope.body.type].permit)

    def believe(self, envelope: Envelope, arrival: Arrival, digest: bytes) -> Envelope:
        """The message with the person it is for. digest: of its content. Raises Denied."""
        permit = self.rows[envelope.body.type].permit
        assert self.believer is not None
        assert permit is not None
        try:
            person = self.believer.believe(envelope, arrival.inbox, digest, again=arrival.again)
        except NotBelieved as error:
            reason = f"{envelope.body.type} from {envelope.sender[:80]!r}: {error}"
            denied = self.denied(reason, envelope.body.type, envelope.sender, arrival)
            denied.answered = isinstance(error, Replayed)
            raise denied from error
        if reason := beyond(envelope.body, person, permit):
            raise self.denied(reason, envelope.body.type, envelope.sender, arrival)
        return replace(envelope, person=person, content=b"")

    def denied(self, reason: str, kind: str, sender: str, arrival: Arrival) -> Denied:
        """A refusal, counted and logged."""
        who = (arrival.user if arrival.user is not None else sender)[:80]
        self.health.denied.add(kind)
        if (who, kind) not in self._logged and len(self._logged) <= LOGGED:
            self._logged.add((who, kind))
            if len(self._logged) > LOGGED:
                self.log.warning("bus.denied", reason=f"{LOGGED} kinds of refusals are logged; others are counted only")
            else:
                self.log.warning("bus.denied", type=kind, sender=sender[:80], user=arrival.user, reason=reason)
        return Denied(reason, who, kind)
