"""Exchanges, queues and bindings of the pool, declared here and nowhere else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, Literal

from shared.bus.api import Exchange

#: AMQP's own limit for routing keys and queue names.
MAX_KEY_BYTES: Final = 255

#: How long a one-way message waits in an inbox while its owner is away: what was worth confirming, and what
#: was not.
INBOX_DURABLE_WAIT_S: Final = 3600.0
INBOX_TRANSIENT_WAIT_S: Final = 60.0
#: An inbox nobody has served for so long is forgotten, with what is in it. Longer than any machine's repair.
INBOX_EXPIRES_S: Final = 7 * 86400.0

#: A listener that can not keep up loses the oldest messages, rather than filling the broker's memory.
#: Sequence numbers of ads tell the loss; of events nobody needs every one.
PRIVATE_MAX_BYTES: Final = 256 * 1024 * 1024

#: The oldest dead letters go when there are more: a flood of them must not fill the broker's disk.
MAX_DEAD_LETTERS: Final = 100_000

KINDS: Final[Mapping[Exchange, Literal["topic", "direct", "fanout"]]] = MappingProxyType(
    {
        Exchange.ADS: "topic",
        Exchange.PRIVATE: "topic",
        Exchange.RPC: "topic",  # so that the broker checks which inboxes a user binds and sends to
        Exchange.EVENTS: "topic",
        Exchange.DEAD: "fanout",
    }
)

#: The direct exchange that earlier versions used in place of Exchange.RPC: RabbitMQ checks no keys of those. A broker
#: that ran one has it still, and inboxes bound to it; nothing is published there any more.
FORMER_RPC: Final = "roost.rpc"


@dataclass(frozen=True, slots=True)
class WorkQueue:
    """A durable queue whose consumers compete. It exists from its first consumer on; the oldest messages go
    when it holds more than `max_length`, so that consumers who never come back can not fill the broker."""

    name: str
    exchange: Exchange
    patterns: tuple[str, ...]
    max_length: int
    ttl_s: float


WORK_QUEUES: Final[Mapping[str, WorkQueue]] = MappingProxyType(
    {
        queue.name: queue
        for queue in (
            # Every ad once, for one of the collectors. An ad that waited longer than CLASSAD_LIFETIME has
            # expired.
            WorkQueue("roost.collector", Exchange.ADS, ("#",), max_length=200_000, ttl_s=900),
            # Every fact once, for whoever keeps the history of the pool.
            WorkQueue("roost.view", Exchange.EVENTS, ("#",), max_length=1_000_000, ttl_s=7 * 86400),
        )
    }
)

#: A sender is called "<role>.<name>", and so is the broker's user of one daemon; all of a role may share the user
#: "<role>".
ROLES: Final = (
    *("collector", "negotiator", "schedd", "startd", "had", "gateway", "journal"),
    *("defrag", "gangliad", "adstash", "rooster", "registrar"),
)

#: Roles that a pool may do without, and users of theirs with it.
OPTIONAL_ROLES: Final = ("registrar",)

#: Inboxes of a role rather than of one daemon: they exist always, so that requests can wait for whoever takes
#: it.
SHARED_INBOXES: Final = ("collector", "negotiator")


def role_of(user: str) -> str:
    """The role of a user or sender; "" for one that is no daemon's."""
    role = user.partition(".")[0]
    return role if role in ROLES else ""


def work_queue(name: str) -> WorkQueue:
    """Raises ValueError for a queue that is not declared here."""
    found = WORK_QUEUES.get(name)
    if found is None:
        raise ValueError(f"queue {name!r} is not declared in shared/bus/topology.py; there are {sorted(WORK_QUEUES)}")
    return found


def negotiator_inbox(shard: str) -> str:
    """Where the active one of the negotiators called `shard` (NEGOTIATOR_NAME) is spoken to; "" is the shard without a
    name."""
    return f"negotiator.active.{shard}" if shard else "negotiator"


def inbox_queue(inbox: str) -> str:
    """The name of the queue behind an inbox."""
    return f"roost.inbox.{inbox}"


#: How often the broker may deliver a message of a quorum queue: never the limit, since the bus counts itself
#: (handling.py), and looking at dead letters counts as a delivery too. RabbitMQ 4 would drop after 20.
NO_DELIVERY_LIMIT: Final = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Queue:
    """A queue as RabbitMQ is told of it."""

    name: str
    bindings: tuple[tuple[Exchange, str], ...]
    arguments: Mapping[str, str | int]
    durable: bool = True
    exclusive: bool = False
    auto_delete: bool = False
    counted: bool = False  # the broker counts deliveries (header x-delivery-count)


def dead_letter_queue() -> Queue:
    return Queue(
        name=Exchange.DEAD,
        bindings=((Exchange.DEAD, ""),),
        arguments={
            "x-queue-type": "quorum",
            "x-delivery-limit": NO_DELIVERY_LIMIT,
            "x-max-length": MAX_DEAD_LETTERS,
        },
        counted=True,
    )


def work_queue_declaration(name: str) -> Queue:
    """Raises ValueError for a queue that is not declared here."""
    queue = work_queue(name)
    return Queue(
        name=name,
        bindings=tuple((queue.exchange, pattern) for pattern in queue.patterns),
        arguments={
            "x-queue-type": "quorum",
            "x-delivery-limit": NO_DELIVERY_LIMIT,
            "x-max-length": queue.max_length,
            "x-message-ttl": round(queue.ttl_s * 1000),
        },
        counted=True,
    )


def inbox_declaration(inbox: str, *, clustered: bool = False) -> Queue:
    """Durable, since RabbitMQ 4 refuses what is neither durable nor exclusive. Classic on a single broker, since most
    of what it carries are calls, which need no copy on disk. In a cluster a quorum queue: a classic one lies on one
    node, and while that is away nobody can use it, nor make it anew."""
    arguments: dict[str, str | int] = {"x-queue-type": "classic"}
    if clustered:
        arguments = {"x-queue-type": "quorum", "x-delivery-limit": NO_DELIVERY_LIMIT}
    if inbox not in SHARED_INBOXES:
        arguments["x-expires"] = round(INBOX_EXPIRES_S * 1000)
    return Queue(name=inbox_queue(inbox), bindings=((Exchange.RPC, inbox),), arguments=arguments, counted=clustered)


def private_declaration(name: str, exchange: Exchange, patterns: Sequence[str]) -> Queue:
    """The queue of one listener; it goes with its connection."""
    return Queue(
        name=name,
        bindings=tuple((exchange, pattern) for pattern in patterns),
        arguments={"x-max-length-bytes": PRIVATE_MAX_BYTES},
        durable=False,
        exclusive=True,
        auto_delete=True,
    )


#: Queues of those who only read events (roost.consumer) begin so; each such user has those that begin with its name.
CONSUMER: Final = "consumer"
#: First words of the types of events that such a user may read; those of the gateway are for administrators.
CONSUMER_READS: Final = ("job", "slot", "claim", "negotiation", "accountant", "had", "defrag", "rooster", "daemon")
#: What a consumer that stays away can not fill the broker with: a policy holds whatever its queue asks for to this.
CONSUMER_MAX_LENGTH: Final = 1_000_000
CONSUMER_MAX_BYTES: Final = 1 << 30
CONSUMER_TTL_S: Final = 7 * 86400.0
CONSUMER_EXPIRES_S: Final = 30 * 86400.0


def consumer_declaration(name: str, patterns: Sequence[str], *, durable: bool, max_length: int) -> Queue:
    """The queue of a consumer of events. Durable: it holds what is said while the consumer is away, the newest
    `max_length` events of the last week, for a month. Else it goes with its connection."""
    bindings = tuple((Exchange.EVENTS, pattern) for pattern in patterns)
    if not durable:
        return Queue(
            name=name,
            bindings=bindings,
            arguments={"x-max-length": max_length},
            durable=False,
            exclusive=True,
            auto_delete=True,
        )
    return Queue(
        name=name,
        bindings=bindings,
        arguments={
            "x-queue-type": "quorum",
            "x-delivery-limit": NO_DELIVERY_LIMIT,
            "x-max-length": max_length,
            "x-message-ttl": round(CONSUMER_TTL_S * 1000),
            "x-expires": round(CONSUMER_EXPIRES_S * 1000),
        },
        counted=True,
    )


def standing_queues(*, clustered: bool = False) -> list[Queue]:
    """What exists whether or not somebody has ever used it."""
    return [dead_letter_queue(), *(inbox_declaration(inbox, clustered=clustered) for inbox in SHARED_INBOXES)]
