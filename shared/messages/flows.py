"""Who sends which message to whom: what the published catalogue (docs/asyncapi.json, docs/events.md) says
beyond the models. A message that is not told of here fails the tests, so the catalogue stays complete."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

#: The answers any request may get besides its own.
ANY_REQUEST: Final = ("failure",)


@dataclass(frozen=True, slots=True)
class Published:
    """Messages on a topic exchange. key: the routing key, with parameters in braces."""

    exchange: str
    key: str
    types: tuple[str, ...]
    by: str
    about: str


@dataclass(frozen=True, slots=True)
class Request:
    """A message to an inbox on roost.requests, and the answers it gets."""

    type: str
    inbox: str
    by: str
    answers: tuple[str, ...]


PUBLISHED: Final = (
    Published("roost.ads", "update.{my_type}.{daemon}", ("ads.update",), "every daemon", "Ads, whole."),
    Published("roost.ads", "delta.{my_type}.{daemon}", ("ads.delta",), "every daemon", "What changed in ads."),
    Published("roost.ads", "heartbeat.{my_type}.{daemon}", ("ads.heartbeat",), "every daemon", "Ads live on."),
    Published("roost.ads", "invalidate.{my_type}.{daemon}", ("ads.invalidate",), "every daemon", "Ads taken back."),
    Published(
        "roost.ads",
        "forward.{my_type}.{daemon}",
        ("ads.forwarded",),
        "collector",
        "Ads for the collectors of other pools, which view several.",
    ),
    Published("roost.ads", "ask.all", ("ads.ask",), "collector, negotiator", "Somebody begins to listen."),
    Published("roost.private", "{daemon}", ("ads.private",), "startd", "Claim ids, for central managers only."),
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
        "schedd",
        "What happens to jobs.",
    ),
    Published(
        "roost.events",
        "{type}",
        ("slot.changed", "claim.made", "claim.ended"),
        "startd",
        "What happens to slots and claims.",
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
        "negotiator",
        "What the negotiator decides.",
    ),
    Published(
        "roost.events",
        "{type}",
        ("had.leader", "had.books-restored", "had.snapshot-refused"),
        "had",
        "Who is the active negotiator, and what became of the books.",
    ),
    Published("roost.events", "{type}", ("defrag.round",), "defrag", "Which machines are drained, and why no others."),
    Published("roost.events", "{type}", ("rooster.round",), "rooster", "Which sleeping machines were woken."),
    Published(
        "roost.events",
        "{type}",
        ("gateway.audit", "gateway.tokens-changed"),
        "gateway",
        "What people changed through a gateway, and whom it turned away. The gateway tells administrators only.",
    ),
    Published(
        "roost.events",
        "{type}",
        ("daemon.started", "daemon.stopped", "daemon.reconnected"),
        "every daemon",
        "Daemons come and go, and were without the broker.",
    ),
)

REQUESTS: Final[Mapping[str, Request]] = MappingProxyType(
    {
        request.type: request
        for request in (
            Request("ads.send", "{subsystem}.{name}", "collector, negotiator", ("ack",)),
            Request(
                "collector.query",
                "collector",
                "gateway, negotiator, journal, defrag, gangliad, adstash, rooster",
                ("collector.page",),
            ),
            Request("collector.count", "collector", "gateway, journal, startd", ("collector.counts",)),
            Request("poolhistory.ask", "poolhistory", "gateway", ("poolhistory.answer",)),
            Request("negotiation.get-requests", "schedd.{name}", "negotiator", ("negotiation.requests",)),
            Request("negotiation.matches", "schedd.{name}", "negotiator", ("negotiation.taken",)),
            Request("negotiation.reschedule", "negotiator", "schedd, startd", ()),
            Request("accounting.get", "negotiator", "gateway", ("accounting.table",)),
            Request("accounting.set", "negotiator", "gateway", ("ack",)),
            Request("negotiation.analyze", "negotiator", "gateway", ("negotiation.analysis",)),
            Request("negotiation.match-notice", "startd.{name}", "negotiator", ("ack",)),
            Request("claim.request", "startd.{name}", "schedd", ("claim.granted", "claim.waiting", "claim.refused")),
            Request("claim.ready", "schedd.{name}", "startd", ("ack",)),
            Request("claim.activate", "startd.{name}", "schedd", ("claim.activated",)),
            Request("claim.deactivate", "startd.{name}", "schedd", ("ack",)),
            Request("claim.release", "startd.{name}", "schedd", ("ack",)),
            Request("claim.alive", "startd.{name}", "schedd", ("claim.alive-reply",)),
            Request("job.report", "schedd.{name}", "startd", ("job.report-ack",)),
            Request("claim.lost", "schedd.{name}", "startd", ("ack",)),
            Request("had.lead", "negotiator.{name}", "had", ("had.following",)),
            Request("had.step-down", "negotiator.{name}", "had", ("had.following",)),
            Request("had.ask", "had.{name}", "gateway", ("had.standing",)),
            Request("had.handed-over", "had.{name}", "had", ("ack",)),
            Request("daemon.reconfigure", "{subsystem}.{name}", "gateway", ("daemon.reconfigured",)),
            Request("daemon.config", "{subsystem}.{name}", "gateway", ("daemon.config-told",)),
            Request("daemon.set-config", "{subsystem}.{name}", "gateway", ("daemon.order-taken",)),
            Request("daemon.restart", "{subsystem}.{name}", "gateway", ("daemon.order-taken",)),
            Request("daemon.off", "{subsystem}.{name}", "gateway", ("daemon.order-taken",)),
            Request("daemon.on", "{subsystem}.off.{name}", "gateway", ("daemon.order-taken",)),
            Request("machine.drain", "startd.{name}", "gateway, defrag", ("daemon.order-taken",)),
            Request("machine.cancel-drain", "startd.{name}", "gateway, defrag", ("daemon.order-taken",)),
            Request("machine.vacate", "startd.{name}", "gateway", ("machine.vacated",)),
            Request("machine.update-ad", "startd.{name}", "gateway", ("daemon.order-taken",)),
            Request("queue.submit", "schedd.{name}", "gateway", ("queue.submitted",)),
            Request("queue.query", "schedd.{name}", "gateway, adstash", ("queue.page",)),
            Request("queue.act", "schedd.{name}", "gateway", ("queue.acted",)),
            Request("queue.fetch-files", "schedd.{name}", "gateway", ("queue.file-access",)),
            Request("visit.job", "schedd.{name}", "gateway", ("visit.started",)),
            Request("visit.start", "startd.{name}", "schedd", ("visit.started",)),
            Request("visit.read", "startd.{name}/visits", "gateway", ("visit.output",)),
            Request("visit.write", "startd.{name}/visits", "gateway", ("visit.input",)),
            Request("visit.steer", "startd.{name}/visits", "gateway", ("ack",)),
            Request("queue.describe", "schedd.{name}", "gateway", ("queue.description",)),
            Request("journal.job", "journal", "gateway", ("journal.answer",)),
            Request("journal.user", "journal", "gateway", ("journal.answer",)),
            Request("journal.cycles", "journal", "gateway", ("journal.answer",)),
            Request("journal.cycle", "journal", "gateway", ("journal.answer",)),
            Request("journal.series", "journal", "gateway", ("journal.answer",)),
            Request("journal.leaders", "journal", "gateway", ("journal.answer",)),
            Request("journal.events", "journal", "gateway", ("journal.answer",)),
            Request("journal.interval", "journal", "gateway", ("journal.answer",)),
        )
    }
)
