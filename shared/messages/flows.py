"""Who may send which message to whom: one table. The published catalogue (docs/asyncapi.json, docs/events.md) shows it,
and every bus holds what arrives to it (shared/bus/senders.py): a message that has no row here is obeyed by nobody, and
fails the tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Final

#: The answers any request may get besides its own.
ANY_REQUEST: Final = ("failure", "call.taken")
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
class Permit:
    """What a person must be let do, for whom a gateway sends a message: one of these operations (shared/operations.py).
    attribute: a field of the message that says which, where that depends: `where` has the operations by its text.
    for_others: an administrator may name somebody else in the field `user`."""

    operations: tuple[str, ...]
    attribute: str = ""
    where: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    for_others: bool = False

    def of(self, body: object) -> tuple[str, ...]:
        """The operations for this message."""
        if not self.attribute:
            return self.operations
        return self.where.get(str(getattr(body, self.attribute, "")), self.operations)


@dataclass(frozen=True, slots=True)
class Request:
    """A message to an inbox on roost.requests, and the answers it gets. by: roles. names: fields that name the sender.

    permit: a gateway sends it for somebody, who is let do that; its fields `user` and `by` are that one's name, `level`
    is the level, and `admin` takes an administrator. A question that everybody with READ may ask may be for nobody:
    what is told then is the same for all. Other roles that send it act for themselves."""

    type: str
    inbox: str
    by: tuple[str, ...]
    answers: tuple[str, ...]
    names: Names = ()
    permit: Permit | None = None


def _may(*operations: str) -> Permit:
    return Permit(operations)


_SUBMIT: Final = Permit(("jobs.submit",), for_others=True)
#: Who submits takes back what could be queued in part only.
_ACT: Final = Permit(
    ("jobs.act",), "action", MappingProxyType({"edit": ("jobs.edit",), "remove": ("jobs.act", "jobs.submit")})
)
#: Who submits brings the input along.
_FILES: Final = Permit(("jobs.files", "jobs.submit"), "credentials", MappingProxyType({"True": ("credentials",)}))
_QUOTAS: Final = ("quotas.set",)
_ACCOUNTS: Final = Permit(
    ("priorities.set",),
    "what",
    MappingProxyType({"quota": _QUOTAS, "dynamic-quota": _QUOTAS, "no-quota": _QUOTAS}),
)
_VISIT: Final = _may("jobs.visit")
_RECONFIG: Final = _may("reconfig")
_TAKEN: Final = ("daemon.order-taken",)
_IDENTITIES: Final = _may("identities")
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
            "job.transferring",
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
    Published(
        "roost.events",
        "{type}",
        ("daemon.gone",),
        ("collector",),
        "Execution points that are not at the broker.",
        (("collector", Named.NAME),),
    ),
)

REQUESTS: Final[Mapping[str, Request]] = MappingProxyType(
    {
        request.type: request
        for request in (
            Request("call.ended", "{subsystem}.{name}", ("gateway",), ()),
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
            Request("accounting.set", "negotiator", ("gateway",), ("ack",), permit=_ACCOUNTS),
            Request(
                "accounting.import",
                "negotiator",
                ("gateway",),
                ("accounting.imported",),
                permit=_may("priorities.set"),
            ),
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
            Request("claim.suspend", "startd.{name}", ("schedd",), ("ack",)),
            Request("claim.release", "startd.{name}", ("schedd",), ("ack",)),
            Request("claim.alive", "startd.{name}", ("schedd",), ("claim.alive-reply",), _SCHEDD),
            Request("job.report", "schedd.{name}", ("startd",), ("job.report-ack",), _STARTD),
            Request("job.reports", "schedd.{name}", ("startd",), ("job.reports-ack",), _STARTD),
            Request("claim.lost", "schedd.{name}", ("startd",), ("ack",), _STARTD),
            Request("had.lead", "{subsystem}.{name}", ("had",), ("had.following",), _HAD),
            Request("had.step-down", "{subsystem}.{name}", ("had",), ("had.following",), _HAD),
            Request("had.ask", "had.{name}", ("gateway",), ("had.standing",)),
            Request("had.handed-over", "had.{name}", ("had",), ("ack",), _HAD),
            Request(
                "daemon.reconfigure",
                "{subsystem}.{name}",
                ("gateway",),
                ("daemon.reconfigured",),
                permit=_may("reconfig"),
            ),
            Request("daemon.config", "{subsystem}.{name}", ("gateway",), ("daemon.config-told",)),
            Request(
                "daemon.set-config",
                "{subsystem}.{name}",
                ("gateway",),
                ("daemon.order-taken",),
                permit=_may("config.set"),
            ),
            Request("daemon.restart", "{subsystem}.{name}", ("gateway",), _TAKEN, permit=_may("restart")),
            Request("daemon.off", "{subsystem}.{name}", ("gateway",), _TAKEN, permit=_may("off")),
            Request("daemon.on", "{subsystem}.off.{name}", ("gateway",), _TAKEN, permit=_may("on")),
            Request("machine.drain", "startd.{name}", ("gateway", "defrag"), _TAKEN, permit=_may("drain")),
            Request(
                "machine.cancel-drain",
                "startd.{name}",
                ("gateway", "defrag"),
                ("daemon.order-taken",),
                permit=_may("drain"),
            ),
            Request("machine.vacate", "startd.{name}", ("gateway",), ("machine.vacated",), permit=_may("vacate")),
            Request(
                "machine.update-ad",
                "startd.{name}",
                ("gateway",),
                ("daemon.order-taken",),
                permit=_may("update-machine-ad"),
            ),
            Request("queue.submit", "schedd.{name}", ("gateway",), ("queue.submitted",), permit=_SUBMIT),
            Request(
                "queue.import",
                "schedd.{name}",
                ("gateway",),
                ("queue.imported",),
                permit=Permit(("jobs.import",), for_others=True),
            ),
            Request("queue.query", "schedd.{name}", ("gateway", "adstash"), ("queue.page",), permit=_may("jobs.query")),
            Request("queue.act", "schedd.{name}", ("gateway",), ("queue.acted",), permit=_ACT),
            Request("queue.fetch-files", "schedd.{name}", ("gateway",), ("queue.file-access",), permit=_FILES),
            Request("visit.job", "schedd.{name}", ("gateway",), ("visit.started",), permit=_VISIT),
            Request("visit.start", "startd.{name}", ("schedd",), ("visit.started",)),
            Request("visit.read", "startd.{name}/visits", ("gateway",), ("visit.output",), permit=_VISIT),
            Request("visit.write", "startd.{name}/visits", ("gateway",), ("visit.input",), permit=_VISIT),
            Request("visit.steer", "startd.{name}/visits", ("gateway",), ("ack",), permit=_VISIT),
            Request("queue.describe", "schedd.{name}", ("gateway",), ("queue.description",)),
            Request("registrar.create-token", "registrar", ("gateway",), ("registrar.token-made",), permit=_IDENTITIES),
            Request("registrar.enroll", "registrar", ("gateway",), ("registrar.enrolled",)),
            Request("registrar.ask", "registrar", ("gateway",), ("registrar.identities",), permit=_IDENTITIES),
            Request("registrar.revoke", "registrar", ("gateway",), ("registrar.revoked",), permit=_IDENTITIES),
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
