"""The journal's tables, and the steps that bring an older journal to this version.

Everything is appended, nothing is changed: a fact that comes twice or late finds its place by its id and its time.
Times are seconds since 1970. The same tables in SQLite and PostgreSQL.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    Float,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
    UniqueConstraint,
)

METADATA: Final = MetaData()

#: The version of the tables, and other facts about the journal itself.
META: Final = Table("meta", METADATA, Column("key", Text, primary_key=True), Column("value", Text, nullable=False))

_SERIAL: Final = BigInteger().with_variant(Integer, "sqlite")

#: Every event. cluster, proc: of events about a job; proc -1 where a whole cluster is meant. body: JSON.
EVENTS: Final = Table(
    "events",
    METADATA,
    Column("seq", _SERIAL, primary_key=True, autoincrement=True),
    Column("id", Text, nullable=False, unique=True),
    Column("at", Float, nullable=False),
    Column("type", Text, nullable=False),
    Column("sender", Text, nullable=False),
    Column("cluster", BigInteger),
    Column("proc", BigInteger),
    Column("body", Text, nullable=False),
    Index("events_at", "at", "id"),
    Index("events_job", "cluster", "proc"),
    Index("events_type", "type", "at"),
)


#: Which jobs came to which autocluster: procs first to last of a cluster.
KINDS: Final = Table(
    "kinds",
    METADATA,
    Column("at", Float, nullable=False),
    Column("schedd", Text, nullable=False),
    Column("autocluster", BigInteger, nullable=False),
    Column("submitter", Text, nullable=False),
    Column("cluster", BigInteger, nullable=False),
    Column("first", BigInteger, nullable=False),
    Column("last", BigInteger, nullable=False),
    Index("kinds_job", "cluster", "schedd"),
    Index("kinds_at", "at"),
)

#: What slots and policies look at in the jobs of an autocluster: a packed ad.
KIND_ADS: Final = Table(
    "kind_ads",
    METADATA,
    Column("at", Float, nullable=False),
    Column("schedd", Text, nullable=False),
    Column("autocluster", BigInteger, nullable=False),
    Column("ad", LargeBinary, nullable=False),
    Index("kind_ads_of", "schedd", "autocluster", "at"),
)

#: Why an autocluster waits from this cycle on; an empty code ends it.
REASONS: Final = Table(
    "reasons",
    METADATA,
    Column("at", Float, nullable=False),
    Column("shard", Text, nullable=False),
    Column("epoch", BigInteger, nullable=False),
    Column("cycle", BigInteger, nullable=False),
    Column("schedd", Text, nullable=False),
    Column("submitter", Text, nullable=False),
    Column("autocluster", BigInteger, nullable=False),
    Column("code", Text, nullable=False),
    Column("text", Text, nullable=False),
    Column("left", BigInteger, nullable=False),
    Column("counts", Text, nullable=False),
    Index("reasons_of", "schedd", "autocluster", "at"),
    Index("reasons_at", "at"),
)

#: How submitters (kind "submitter") and groups (kind "group") stood. body: JSON.
STANDINGS: Final = Table(
    "standings",
    METADATA,
    Column("at", Float, nullable=False),
    Column("shard", Text, nullable=False),
    Column("kind", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("body", Text, nullable=False),
    Index("standings_of", "name", "at"),
    Index("standings_at", "at"),
)

#: Slots that were given, a row for each match.
MATCHES: Final = Table(
    "matches",
    METADATA,
    Column("at", Float, nullable=False),
    Column("shard", Text, nullable=False),
    Column("epoch", BigInteger, nullable=False),
    Column("cycle", BigInteger, nullable=False),
    Column("schedd", Text, nullable=False),
    Column("submitter", Text, nullable=False),
    Column("autocluster", BigInteger, nullable=False),
    Column("slot", Text, nullable=False),
    Column("jobs", BigInteger, nullable=False),
    Column("weight", Float, nullable=False),
    Column("rank", Float, nullable=False),
    Index("matches_slot", "slot", "at"),
    Index("matches_at", "at"),
)

#: Numbers of the pool at a moment: slots by state, jobs by state.
SAMPLES: Final = Table(
    "samples",
    METADATA,
    Column("name", Text, nullable=False),
    Column("label", Text, nullable=False),
    Column("at", Float, nullable=False),
    Column("value", Float, nullable=False),
    UniqueConstraint("name", "at", "label", name="samples_once"),
    Index("samples_at", "at"),
)

#: What slots offer, as long as it stays so: a packed ad without what changes all the time; empty: the slot is gone.
SLOTS: Final = Table(
    "slots",
    METADATA,
    Column("slot", Text, nullable=False),
    Column("at", Float, nullable=False),
    Column("ad", LargeBinary, nullable=False),
    UniqueConstraint("slot", "at", name="slots_once"),
    Index("slots_at", "at"),
)

#: Tables whose rows go by their age. Of SLOTS the newest of each slot stays: it may be true still.
AGING: Final = (EVENTS, KINDS, KIND_ADS, REASONS, STANDINGS, MATCHES, SAMPLES)


def _first(connection: Connection) -> None:
    METADATA.create_all(connection)


#: Step n brings a journal from version n to n + 1. A released step is never changed: what comes later is added.
STEPS: Final[tuple[Callable[[Connection], None], ...]] = (_first,)
VERSION: Final = len(STEPS)
