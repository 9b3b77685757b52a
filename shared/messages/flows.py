"""Who may send which message to whom: one table. The published catalogue (docs/asyncapi.json, docs/events.md) shows it,
and every bus holds what arrives to it (shared/bus/senders.py): a message that has no row here is obeyed by nobody, and
fails the tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Final

#: The answers any request may get besides its own.
ANY_REQUEST: Final = ("failure",)
#: In place of roles: each of them.
EVERY: Final = "every daemon"


class Named(StrEnum):
    """How a field of a message names the one who sent it. Of the sender startd.node1:"""

    NAME = "name"  # node1
    DAEMON = "daemon"  # startd@node1
    INBOX = "inbox"  # startd.node1
    SHARD = "shard"  # what its `shard` says, else node1


#: Fields that must name the sender.
Names = tuple[tuple[str, Named], ...]


def sent_by(roles: Sequence[str]) -> str:
    """Who may send a message, for people."""
    return ", ".join(roles)


@dataclass(frozen=True, slots=True)
class Published:
    """Messages on a topic exchange. key: the routing key, with parameters in braces. by: roles. names: fields that name
    the sender, where a message has them."""

    exchange: str
    key: str
    types: tuple[str, ...]
    by: tuple[str, ...]
    about: str
    names: Names = ()


@dataclass(frozen=True, slots=True)
class Request:
    """A message to an inbox on roost.requests, and the answers it gets. by: roles. names: fields that name the sender.

    person: a gateway sends it for somebody, who has at least this level; its fields `user` and `by` are that one's
    name, `level` is the level, and `admin` takes an administrator. Where READ is enough it may be for nobody. Other
    roles that send it act for themselves."""

    type: str
    inbox: str
    by: tuple[str, ...]
    answers: tuple[str, ...]
    names: Names = ()
    person: str = ""


#: Levels of people, each includes those before.
LEVELS: Final = ("READ", "WRITE", "ADMINISTRATOR")
_READ, _WRITE, _ADMIN = LEVELS
#: A daemon speaks of itself.
_AD: Final[Names] = (("daemon", Named.DAEMON),)
_BY: Final[Names] = (("by", Named.INBOX),)
_STARTD: Final[Names] = (("startd", Named.NAME),)
_SCHEDD: Final[Names] = (("schedd", Named.NAME),)
_HAD: Final[Names] = (("had", Named.NAME),)
_NEGOTIATOR: Final[Names] = (("negotiator", Named.SHARD),)

PUBLISHED: Final = (
    Published("roost.ads", "update.{my_type}.{daemon}", ("ads.update",), (EVERY,), "Ads, whole.", _AD),
    Published("roost.ads", "delta.{my_type}.{daemon}", ("ads.delta",), (EVERY,), "What changed in ads.", _AD),
    Published("roost.ads", "heartbeat.{my_type}.{daemon}", ("ads.heartbeat",), (EVERY,), "Ads live on.", _AD),
    Published("roost.ads", "invalidate.{my_type}.{daemon}", ("ads.invalidate",), (EVERY,), "Ads taken back.", _AD),
    Published(
        "roost.ads",
        "forward.{my_type}.{daemon}",
        ("ads.forwarded",),
        ("collector",),
        "Ads for the collectors of other pools, which view several.",
        _BY,
    ),
    Published("roost.ads", "ask.all", ("ads.ask",), ("collector", "negotiator"), "Somebody begins to listen.", _BY),
    Published("roost.private", "{daemon}", ("ads.private",), ("startd",), "Claim ids, for central managers only.", _AD),
    Published(
        "roost.events",
        "{type}",
        (
            "job.submitted",
            "job.matched",
            "job.started",
            "job.ended",
            "job.evicted",
            "job.held",
            "job.released",
            "job.removed",
            "job.unmatched",
            "job.sorted",
            "job.limit",
        ),
        ("schedd",),
        "What happens to jobs.",
        _SCHEDD,
    ),
    Published(
        "roost.events",
        "{type}",
        ("slot.changed", "claim.made", "claim.ended"),
        ("startd",),
        "What happens to slots and claims.",
        _STARTD,
    ),
    Published(
        "roost.events",
        "{type}",
        (
            "negotiation.cycle",
            "negotiation.matched",
            "negotiation.reasons",
            "negotiation.offline",
            "negotiation.policy",
            "negotiation.preemption-loop",
            "accountant.standing",
            "accountant.changed",
            "accountant.restored",
        ),
        ("negotiator",),
        "What the negotiator decides.",
    ),
    Published(
        "roost.events",
        "{type}",
        ("had.leader", "had.books-restored", "had.snapshot-refused"),
        ("had",),
        "Who is the active negotiator, and what became of the books.",
        _HAD,
    ),
    Published(
        "roost.events", "{type}", ("defrag.round",), ("defrag",), "Which machines are drained, and why no others."
    ),
    Published("roost.events", "{type}", ("rooster.round",), ("rooster",), "Which sleeping machines were woken."),
    Published(
        "roost.events",
        "{type}",
        ("gateway.audit", "gateway.tokens-changed"),
        ("gateway",),
        "What people changed through a gateway, and whom it turned away. The gateway tells administrators only.",
        (("gateway", Named.NAME),),
    ),
    Published(
        "roost.events",
        "{type}",
        ("daemon.started", "daemon.stopped", "daemon.reconnected"),
        (EVERY,),
        "Daemons come and go, and were without the broker.",
        _AD,
    ),
)

REQUESTS: Final[Mapping[str, Request]] = MappingProxyType(
    {
        request.type: request
        for request in (
            Request("ads.send", "{subsystem}.{name}", ("collector", "negotiator"), ("ack",)),
            Request(
                "collector.query",
                "collector",
                ("gateway", "negotiator", "journal", "defrag", "gangliad", "adstash", "rooster"),
                ("collector.page",),
            ),
            Request("collector.count", "collector", ("gateway", "journal", "startd"), ("collector.counts",)),
            Request("poolhistory.ask", "poolhistory", ("gateway",), ("poolhistory.answer",)),
            Request(
                "negotiation.get-requests", "schedd.{name}", ("negotiator",), ("negotiation.requests",), _NEGOTIATOR
            ),
            Request("negotiation.matches", "schedd.{name}", ("negotiator",), ("negotiation.taken",), _NEGOTIATOR),
            Request("negotiation.reschedule", "negotiator", ("schedd", "startd", "gateway"), ()),
            Request("accounting.get", "negotiator", ("gateway",), ("accounting.table",)),
            Request("accounting.set", "negotiator", ("gateway",), ("ack",), person=_ADMIN),
            Request("negotiation.analyze", "negotiator", ("gateway",), ("negotiation.analysis",)),
            Request("negotiation.match-notice", "startd.{name}", ("negotiator",), ("ack",), _NEGOTIATOR),
            Request(
                "claim.request",
                "startd.{name}",
                ("schedd",),
                ("claim.granted", "claim.waiting", "claim.refused"),
                _SCHEDD,
            ),
            Request("claim.ready", "schedd.{name}", ("startd",), ("ack",), _STARTD),
            Request("claim.activate", "startd.{name}", ("schedd",), ("claim.activated",)),
            Request("claim.deactivate", "startd.{name}", ("schedd",), ("ack",)),
            Request("claim.release", "startd.{name}", ("schedd",), ("ack",)),
            Request("claim.alive", "startd.{name}", ("schedd",), ("claim.alive-reply",), _SCHEDD),
            Request("job.report", "schedd.{name}", ("startd",), ("job.report-ack",), _STARTD),
            Request("claim.lost", "schedd.{name}", ("startd",), ("ack",), _STARTD),
            Request("had.lead", "{subsystem}.{name}", ("had",), ("had.following",), _HAD),
            Request("had.step-down", "{subsystem}.{name}", ("had",), ("had.following",), _HAD),
            Request("had.ask", "had.{name}", ("gateway",), ("had.standing",)),
            Request("had.handed-over", "had.{name}", ("had",), ("ack",), _HAD),
            Request("daemon.reconfigure", "{subsystem}.{name}", ("gateway",), ("daemon.reconfigured",), person=_ADMIN),
            Request("daemon.config", "{subsystem}.{name}", ("gateway",), ("daemon.config-told",)),
            Request("daemon.set-config", "{subsystem}.{name}", ("gateway",), ("daemon.order-taken",), person=_WRITE),
            Request("daemon.restart", "{subsystem}.{name}", ("gateway",), ("daemon.order-taken",), person=_ADMIN),
            Request("daemon.off", "{subsystem}.{name}", ("gateway",), ("daemon.order-taken",), person=_ADMIN),
            Request("daemon.on", "{subsystem}.off.{name}", ("gateway",), ("daemon.order-taken",), person=_ADMIN),
            Request("machine.drain", "startd.{name}", ("gateway", "defrag"), ("daemon.order-taken",), person=_ADMIN),
            Request(
                "machine.cancel-drain", "startd.{name}", ("gateway", "defrag"), ("daemon.order-taken",), person=_ADMIN
            ),
            Request("machine.vacate", "startd.{name}", ("gateway",), ("machine.vacated",), person=_ADMIN),
            Request("machine.update-ad", "startd.{name}", ("gateway",), ("daemon.order-taken",), person=_ADMIN),
            Request("queue.submit", "schedd.{name}", ("gateway",), ("queue.submitted",), person=_WRITE),
            Request("queue.query", "schedd.{name}", ("gateway", "adstash"), ("queue.page",), person=_READ),
            Request("queue.act", "schedd.{name}", ("gateway",), ("queue.acted",), person=_WRITE),
            Request("queue.fetch-files", "schedd.{name}", ("gateway",), ("queue.file-access",), person=_WRITE),
            Request("visit.job", "schedd.{name}", ("gateway",), ("visit.started",), person=_WRITE),
            Request("visit.start", "startd.{name}", ("schedd",), ("visit.started",)),
            Request("visit.read", "startd.{name}/visits", ("gateway",), ("visit.output",), person=_WRITE),
            Request("visit.write", "startd.{name}/visits", ("gateway",), ("visit.input",), person=_WRITE),
            Request("visit.steer", "startd.{name}/visits", ("gateway",), ("ack",), person=_WRITE),
            Request("queue.describe", "schedd.{name}", ("gateway",), ("queue.description",)),
            Request("registrar.create-token", "registrar", ("gateway",), ("registrar.token-made",), person=_ADMIN),
            Request("registrar.enroll", "registrar", ("gateway",), ("registrar.enrolled",)),
            Request("registrar.ask", "registrar", ("gateway",), ("registrar.identities",), person=_ADMIN),
            Request("registrar.revoke", "registrar", ("gateway",), ("registrar.revoked",), person=_ADMIN),
            Request("journal.job", "journal", ("gateway",), ("journal.answer",)),
            Request("journal.user", "journal", ("gateway",), ("journal.answer",)),
            Request("journal.cycles", "journal", ("gateway",), ("journal.answer",)),
            Request("journal.cycle", "journal", ("gateway",), ("journal.answer",)),
            Request("journal.series", "journal", ("gateway",), ("journal.answer",)),
            Request("journal.leaders", "journal", ("gateway",), ("journal.answer",)),
            Request("journal.events", "journal", ("gateway",), ("journal.answer",)),
            Request("journal.interval", "journal", ("gateway",), ("journal.answer",)),
        )
    }
)
