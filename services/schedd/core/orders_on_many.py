"""What an order makes of many packed jobs that are in one state: it is worked out for one of them, and holds for all.

Where jobs differ in what an order looks at, or more is to be done for each of them, they are ordered one by one
(`job_changes.apply_event`). No I/O.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgpack

from engine.queue.jobs import Cluster, JobId, JobStatus, unpacked, write_status
from engine.queue.packed_jobs import WRITTEN, PackedJobs, joined, merging, split
from services.schedd.core.job_changes import log_event, ordered
from services.schedd.core.job_states import JobEvent, transition
from shared import job_log
from shared.classad import UNDEFINED
from shared.classad.expr import fold
from shared.messages.events import JobHeld, JobReleased, JobRemoved

#: Orders that are worked out so.
REMOVALS: Final = frozenset((JobEvent.REMOVE, JobEvent.FORCE))
ORDERS: Final = frozenset((JobEvent.HOLD, JobEvent.RELEASE, *REMOVALS))
#: Attributes (folded) of jobs for which more is to be done: mail is sent, other jobs go with them, ...
_MORE_HELD: Final = frozenset(["jobnotification"])
_MORE_REMOVED: Final = frozenset(["leavejobinqueue", "otherjobremoverequirements", "checkpointnumber", "roosttrace"])
#: What no ad has stored, and histories have.
_DERIVED: Final = frozenset(["procid", "globaljobid", "servertime", "autoclusterid"])
#: Where a job's events are logged, and how.
_LOGS: Final = frozenset(
    ["userlog", "iwd", "userlogusexml", "jobadinformationattrs", "dagmannodeslog", "dagmannodesmask"]
)


@dataclass(frozen=True, slots=True)
class Ordered:
    """The new state of packed jobs. state: as PackedJobs has it; told: what is published, of one of them."""

    status: JobStatus
    state: bytes
    told: JobHeld | JobReleased | JobRemoved


def are_alike(cluster: Cluster, packed: PackedJobs, event: JobEvent) -> bool:
    """Whether this order is the same for all jobs of a group, and nothing else is to be done for one of them."""
    names, shared = packed.names, cluster.ad.table()
    if cluster.spool or not names.isdisjoint(WRITTEN | _DERIVED):
        return False
    if event in REMOVALS:
        # LeaveJobInQueue = false is in most ads.
        more = {name for name in _MORE_REMOVED if name in shared and cluster.ad.find(name) is not False}
        return names.isdisjoint(_MORE_REMOVED) and not more
    if event == JobEvent.HOLD:
        return names.isdisjoint(_MORE_HELD) and cluster.ad.eval("JobNotification") in (0, UNDEFINED)
    return True


def logged_alike(cluster: Cluster, packed: PackedJobs) -> bool:
    """Whether all of them are logged in the same places, in the same way, and nothing besides is told of them."""
    shared = cluster.ad.table()
    written = all(isinstance(cluster.ad.find(name), str) for name in ("userlog", "iwd") if name in shared)
    return written and packed.names.isdisjoint(_LOGS) and "jobadinformationattrs" not in shared


def order_all(
    schedd: str, cluster: Cluster, packed: PackedJobs, proc: int, event: JobEvent, now: float, reason: str, code: int
) -> Ordered | None:
    """What an order that these jobs take (job_states.transition) makes of them. proc: of one of them. None: they are to
    be ordered one by one."""
    job = unpacked(cluster, packed, proc, packed.ad(proc))
    old = job.status
    status = transition(old, event).status
    write_status(job.ad, old, status, now)
    job.status = status
    told = ordered(schedd, job, event, old, now, reason, code, 0)
    rest, state = split(job.ad.pack())
    if told is None or rest != split(packed.ads[proc])[0]:
        return None
    return Ordered(status, state, told)


def log_texts(
    cluster: int, procs: Sequence[int], event: JobEvent, now: float, reason: str, code: int, form: job_log.Form
) -> Iterator[bytes]:
    """What a log that is text says of each of them."""
    one = log_event(event, JobId(cluster, 0), now, reason, code, 0)
    head = f"{one.number:03d} ({cluster:03d}.".encode()
    rest = job_log.written(one, form).removeprefix(head + b"000")
    for proc in procs:
        yield b"%b%03d%b" % (head, proc, rest)


def ranges(procs: Sequence[int]) -> list[list[int]]:
    """[first, last] of those that follow each other. procs: ascending."""
    if procs and procs[-1] - procs[0] == len(procs) - 1:
        return [[procs[0], procs[-1]]]
    found: list[list[int]] = []
    for proc in procs:
        if found and found[-1][1] == proc - 1:
            found[-1][1] = proc
        else:
            found.append([proc, proc])
    return found


def own_ads(ads: Mapping[int, bytes], state: bytes) -> Callable[[int], bytes]:
    """What is each job's own, by proc. ads: less the state."""
    merge = merging(state)
    return lambda proc: merge(ads[proc])


@dataclass(frozen=True, slots=True)
class HistoryRows:
    """Rows of the history: (cluster, proc, owner, when, whole packed ad). Made anew each time they are read, which a
    thread may do. shared: the cluster's cells (Cluster.packed_cells); ads: by proc, less the state; autocluster: 0:
    none."""

    schedd: str
    cluster: int
    owner: str
    qdate: int
    now: float
    shared: Mapping[str, Any]
    ads: Mapping[int, bytes]
    state: bytes
    autocluster: int
    hidden: frozenset[str]

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        now = int(self.now)
        known: dict[tuple[str, ...], bytes] = {}
        for proc, ad in self.ads.items():
            names = tuple(msgpack.unpackb(ad, unicode_errors="surrogateescape"))
            rest = known.get(names)
            if rest is None:
                rest = known[names] = self._rest(names)
            own = {"ProcId": proc, "GlobalJobId": f"{self.schedd}#{self.cluster}.{proc}#{self.qdate}"}
            whole = joined(rest, [ad, msgpack.packb(own, unicode_errors="surrogateescape")])
            yield self.cluster, proc, self.owner, now, whole

    def _rest(self, names: Iterable[str]) -> bytes:
        """What jobs that have these names of their own have besides."""
        state = msgpack.unpackb(self.state, unicode_errors="surrogateescape")
        gone = {*map(fold, names), *map(fold, state), *_DERIVED, *self.hidden}
        body = dict(entry for key, entry in self.shared.items() if key not in gone)
        body["ServerTime"] = int(self.now)
        if self.autocluster:
            body["AutoClusterId"] = self.autocluster
        packed: bytes = msgpack.packb({**body, **state}, unicode_errors="surrogateescape")
        return packed
