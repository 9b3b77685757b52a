"""Late materialization: clusters whose jobs come into the queue some at a time (manual: "Submitting lots of jobs").

    max_materialize = 1000      JobMaterializeLimit: jobs of the cluster that are in the queue at most
    max_idle = 100              JobMaterializeMaxIdle: of these, so many at most that do not run (idle or held)

The jobs of such a cluster are read and checked by the submit like all others. The schedd keeps them packed in its
database (`pack_items`), and the cluster's factory makes jobs of them in the order of their numbers as others leave the
queue or start. What a factory's cluster shows has HTCondor's names; an item is a job here, so JobMaterializeNextRow is
JobMaterializeNextProcId. Pure.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Final, NamedTuple

import msgpack

from shared.classad import ClassAd
from shared.classad.expr import fold

LIMIT: Final = "JobMaterializeLimit"
MAX_IDLE: Final = "JobMaterializeMaxIdle"
ITEM_COUNT: Final = "JobMaterializeItemCount"
NEXT_PROC: Final = "JobMaterializeNextProcId"
NEXT_ROW: Final = "JobMaterializeNextRow"
PAUSED: Final = "JobMaterializePaused"
PAUSE_REASON: Final = "JobMaterializePauseReason"
DIGEST: Final = "JobMaterializeDigestFile"
#: What edits of the whole cluster changed: later jobs do not bring their own of these (names, separated by commas).
EDITED: Final = "RoostMaterializeEdited"

#: No limit of its own.
UNLIMITED: Final = (1 << 31) - 1
#: Jobs, and bytes of their ads, that are stored as one piece.
PIECE_JOBS: Final = 250
PIECE_BYTES: Final = 1 << 20


class Mode(IntEnum):
    """JobMaterializePaused, in HTCondor's numbers."""

    ERROR = -1  # its stored jobs can not be read
    RUNNING = 0
    HELD = 1  # the whole cluster was put on hold
    DONE = 2  # all its jobs are or were in the queue
    REMOVED = 3  # the whole cluster was removed


class BadLimit(ValueError):
    """A limit that is none: the text names the attribute and the mend."""


class Item(NamedTuple):
    """A job that is not materialized yet: what is its own, as `Submission` accepted it."""

    ad: bytes
    priority: int
    submitter: str


@dataclass(slots=True)
class Factory:
    """The factory of one cluster. Its place in the sequence is Cluster.next_proc."""

    total: int  # jobs in all
    limit: int = UNLIMITED
    max_idle: int = UNLIMITED
    mode: Mode = Mode.RUNNING
    reason: str = ""
    edited: frozenset[str] = frozenset()  # folded names, see EDITED

    @property
    def over(self) -> bool:
        """Whether it will never give a job again."""
        return self.mode in (Mode.DONE, Mode.REMOVED)


@dataclass(frozen=True, slots=True)
class Bounds:
    """What the pool lets be in the queue: MAX_JOBS_PER_SUBMISSION of one cluster, MAX_JOBS_PER_OWNER of one user."""

    cluster: int
    owner: int


def limits_of(ad: ClassAd, *, least: int = 1) -> tuple[int, int] | None:
    """(JobMaterializeLimit, JobMaterializeMaxIdle) of a cluster's ad; None: all its jobs are queued at once. Raises
    BadLimit for what is no whole number of at least `least`."""
    if LIMIT not in ad and MAX_IDLE not in ad:
        return None
    return _limit(ad, LIMIT, "max_materialize", least), _limit(ad, MAX_IDLE, "max_idle", least)


def _limit(ad: ClassAd, name: str, command: str, least: int) -> int:
    if name not in ad:
        return UNLIMITED
    value = ad.eval(name)
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        text = (ad.text(name) or "")[:100]
        want = f"set {command} to a whole number of {least} or more, or leave it out"
        raise BadLimit(f"{name}: {text} is no number of jobs; {want}")
    return min(value, UNLIMITED)


def restored(ad: ClassAd, next_proc: int) -> Factory | None:
    """The factory that a stored cluster's ad tells of; None: it has none."""
    total = ad.eval(ITEM_COUNT)
    if isinstance(total, bool) or not isinstance(total, int):
        return None
    try:
        limit, max_idle = limits_of(ad, least=0) or (UNLIMITED, UNLIMITED)
    except BadLimit as error:  # no schedd wrote that
        return Factory(total, mode=Mode.ERROR, reason=str(error))
    paused = ad.eval(PAUSED)
    mode = Mode(paused) if isinstance(paused, int) and paused in list(Mode) else Mode.RUNNING
    if next_proc >= total and mode is not Mode.REMOVED:
        mode = Mode.DONE
    edited = frozenset(name for name in ad.eval_string(EDITED).split(",") if name)
    return Factory(total, limit, max_idle, mode, ad.eval_string(PAUSE_REASON), edited)


def describe(ad: ClassAd, factory: Factory, next_proc: int) -> None:
    """Write into a cluster's ad where its factory stands."""
    # As numbers: they may have been expressions, which say something else another time.
    for name, limit in ((LIMIT, factory.limit), (MAX_IDLE, factory.max_idle)):
        if name in ad:
            ad[name] = limit
    ad[ITEM_COUNT] = factory.total
    ad[NEXT_PROC] = ad[NEXT_ROW] = next_proc
    ad[PAUSED] = int(factory.mode)
    if factory.reason:
        ad[PAUSE_REASON] = factory.reason
    elif PAUSE_REASON in ad:
        del ad[PAUSE_REASON]
    if factory.edited:
        ad[EDITED] = ",".join(sorted(factory.edited))


def room(factory: Factory, bounds: Bounds, *, next_proc: int, present: int, waiting: int, queued: int) -> int:
    """How many jobs a factory gives now. present, waiting: jobs of its cluster that are in the queue, and those of them
    that are idle or held; queued: jobs of its user."""
    if factory.mode is not Mode.RUNNING:
        return 0
    return max(
        0,
        min(
            factory.total - next_proc,
            min(factory.limit, bounds.cluster) - present,
            factory.max_idle - waiting,
            bounds.owner - queued,
        ),
    )


def pieces(items: Sequence[Item]) -> Iterator[Sequence[Item]]:
    """Items in portions that are stored as one each."""
    start = size = 0
    for position, item in enumerate(items):
        if position > start and (position - start >= PIECE_JOBS or size + len(item.ad) > PIECE_BYTES):
            yield items[start:position]
            start, size = position, 0
        size += len(item.ad)
    if start < len(items):
        yield items[start:]


def pack_items(items: Iterable[Item], submitter: str) -> bytes:
    """One piece as it is stored. The jobs of a cluster are nearly alike: a tenth of their size is left. submitter: the
    cluster's, which need not be said again."""
    rows = [(item.ad, item.priority, "" if item.submitter == submitter else item.submitter) for item in items]
    return zlib.compress(msgpack.packb(rows), 1)


def unpack_items(packed: bytes, submitter: str) -> list[Item]:
    """Raises ValueError for what `pack_items` did not make."""
    try:
        rows: list[Any] = msgpack.unpackb(zlib.decompress(packed))
        return [Item(ad, priority, name or submitter) for ad, priority, name in rows]
    except (zlib.error, TypeError, msgpack.UnpackException) as error:
        raise ValueError(f"stored jobs can not be read: {error}") from error


def without(ad: ClassAd, names: frozenset[str]) -> None:
    """Take out of a job's own ad what was edited in its whole cluster."""
    for name in names.intersection(ad.table()):
        del ad[name]


def shown(cluster_ad: ClassAd, present: Sequence[int]) -> ClassAd:
    """The ad of a factory's cluster as questions see it: no job's, so it has no ProcId and no JobStatus. present: the
    JobStatus of each of its jobs that are in the queue."""
    ad = ClassAd.from_table({key: entry for key, entry in cluster_ad.table().items() if key != _STATUS})
    ad["JobsPresent"] = len(present)
    ad["JobsIdle"] = present.count(1)
    ad["JobsRunning"] = sum(status in _RUNNING for status in present)
    ad["JobsHeld"] = present.count(5)
    return ad


_STATUS: Final = fold("JobStatus")
_RUNNING: Final = (2, 6, 7)
