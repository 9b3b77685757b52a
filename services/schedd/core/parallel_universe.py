"""Jobs of the parallel universe: when one begins, what the end of a node means for the others, and how long machines
are kept that are too few. Pure.

Each node gets a claim as a job does, and keeps it without a run until every node has one (all or nothing). Two jobs
that each hold what the other lacks do not wait for each other for ever: whoever has waited for UNUSED_CLAIM_TIMEOUT
gives its machines back, and pauses. Both times vary with the job and the number of its tries, so that two do not give
back together, or come back together.

A run of the whole job begins with a run on every node. It is over as soon as node 0 has ended, or as all have
(ParallelShutdownPolicy); nodes that still run are stopped then. A node that is evicted, lost, held, or could not start
ends the run of all: the job runs again, or is held.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

import msgpack

from engine.queue.jobs import Job, JobId
from shared.classad import ClassAd
from shared.messages.claims import JobExit, Usage

#: The longest first pause of a job that gave its machines back, seconds; each further one is twice as long, up to
#: MOST_DOUBLINGS times.
PAUSE_S: Final = 60.0
MOST_DOUBLINGS: Final = 4


class Ending(StrEnum):
    """Why a run ends."""

    NO = ""  # it does not
    DONE = "done"  # by itself
    FAILED = "failed"  # the end of a node ended that of all
    STOPPED = "stopped"  # it was told to: hold, remove, vacate
    NOT_STARTED = "not-started"  # a machine was not to be had after all


@dataclass(slots=True)
class NodeEnd:
    """How the run on one node ended."""

    exit: JobExit
    usage: Usage = field(default_factory=Usage)
    at: float = 0.0  # wall clock
    ran_s: float = 0.0


@dataclass(slots=True)
class ParallelRun:
    """A run of a whole parallel job, as it is stored."""

    job: JobId
    attempt: int
    started: float  # wall clock
    hosts: list[str]  # the slot of each node
    taken: set[int] = field(default_factory=set)  # nodes whose execution points have them
    executing: set[int] = field(default_factory=set)  # nodes whose programs have begun
    began: float = 0.0  # wall clock, when the last of them had
    over: dict[int, NodeEnd] = field(default_factory=dict)
    ending: Ending = Ending.NO
    by: int = 0  # the node that brought the end about
    stop: str = ""  # what it was told: hold, remove, vacate
    how: str = "graceful"

    @property
    def size(self) -> int:
        return len(self.hosts)

    @property
    def has_begun(self) -> bool:
        """Whether every node was taken."""
        return len(self.taken) == self.size

    @property
    def is_over(self) -> bool:
        """Whether it ends, and no node has a run any more."""
        return bool(self.ending) and len(self.over) == self.size

    def pack(self) -> bytes:
        packed: bytes = msgpack.packb(
            {
                "job": [self.job.cluster, self.job.proc],
                "attempt": self.attempt,
                "started": self.started,
                "hosts": self.hosts,
                "taken": sorted(self.taken),
                "executing": sorted(self.executing),
                "began": self.began,
                "over": [
                    [node, end.exit.model_dump(), end.usage.model_dump(), end.at, end.ran_s]
                    for node, end in sorted(self.over.items())
                ],
                "ending": str(self.ending),
                "by": self.by,
                "stop": self.stop,
                "how": self.how,
            }
        )
        return packed

    @classmethod
    def unpack(cls, packed: bytes) -> ParallelRun:
        body: dict[str, Any] = msgpack.unpackb(packed)
        over = {
            node: NodeEnd(JobExit.model_validate(exit_), Usage.model_validate(usage), at, ran_s)
            for node, exit_, usage, at, ran_s in body.pop("over")
        }
        body["job"] = JobId(*body["job"])
        body["taken"], body["executing"] = set(body["taken"]), set(body["executing"])
        body["ending"] = Ending(body["ending"])
        return cls(**body, over=over)


# Machines that are too few


def gives_back_at(schedd: str, job: JobId, tries: int, since: float, timeout_s: float) -> float:
    """When a job that lacks machines gives back those it has. since: when it got the first of these; tries: how often
    it has given some back; timeout_s: UNUSED_CLAIM_TIMEOUT."""
    return since + timeout_s * (1.0 + 0.5 * _share(schedd, job, tries, "wait"))


def pause_s(schedd: str, job: JobId, tries: int, timeout_s: float) -> float:
    """How long a job that gave its machines back asks for none. tries: how often it has, this time too."""
    longest = min(timeout_s, PAUSE_S) * float(1 << min(tries - 1, MOST_DOUBLINGS))
    return longest * (0.5 + 0.5 * _share(schedd, job, tries, "pause"))


def _share(*of: object) -> float:
    """From 0 to 1, the same for the same: jobs of equal size and age must not do everything at the same time."""
    return zlib.crc32("/".join(map(str, of)).encode()) / float(1 << 32)


# Ends


def waits_for_all(ad: ClassAd) -> bool:
    """Whether a job is over only when all of its nodes are; else, when node 0 is."""
    return ad.eval_string("ParallelShutdownPolicy").upper() == "WAIT_FOR_ALL"


def on_node_end(run: ParallelRun, node: int, end: NodeEnd, *, counts: bool = True) -> None:
    """A node has no run any more. counts: its output, if there is any to come, has come home."""
    run.over[node] = end
    if not run.ending and (end.exit.reason != "exited" or not counts):
        run.ending, run.by = Ending.FAILED, node


def on_not_taken(run: ParallelRun, node: int, end: NodeEnd) -> None:
    """A node's machine, which was claimed, did not take its run."""
    run.over[node] = end
    if not run.ending:
        run.ending, run.by = Ending.NOT_STARTED, node


def settle(run: ParallelRun, *, wait_for_all: bool) -> None:
    """End a run that is done. One that did not begin everywhere is not: it must not count."""
    if not run.ending and run.has_begun and 0 in run.over and (not wait_for_all or len(run.over) == run.size):
        run.ending, run.by = Ending.DONE, 0


def stop_of(run: ParallelRun) -> tuple[str, str]:
    """Why and how the nodes are stopped that still run: as DeactivateClaim has it."""
    if run.ending is Ending.STOPPED:
        return run.stop, run.how
    return ("remove" if run.ending is Ending.DONE else "vacate"), "fast"


def exit_of(run: ParallelRun, *, wait_for_all: bool) -> JobExit:
    """How the whole job ended."""
    ended = run.has_begun and 0 in run.over and run.over[0].exit.reason == "exited"
    if ended and wait_for_all:
        ended = all(end.exit.reason == "exited" for end in run.over.values())
    if run.ending is Ending.DONE or (run.ending is Ending.STOPPED and run.stop == "vacate" and ended):
        return run.over[0].exit  # also of one that was told to leave, and was done before it heard of that
    if run.ending is Ending.STOPPED:
        reason = "evicted" if run.stop == "vacate" else "killed"
        return JobExit.model_validate({"reason": reason})
    first = run.over[run.by].exit
    what = first.message or {"exited": "its output did not arrive", "killed": "its run was killed"}.get(
        first.reason, "its run was evicted"
    )
    reason = {"exited": "failed", "killed": "evicted"}.get(first.reason, first.reason)
    told = f"node {run.by} of {run.size}, on {run.hosts[run.by]}: {what}"
    return first.model_copy(update={"reason": reason, "message": told, "exit_code": None, "exit_signal": None})


def usage_of(run: ParallelRun) -> Usage:
    """What all nodes used together; sizes are those of the largest."""
    ends = [end.usage for end in run.over.values()]
    sums = ("user_cpu_s", "sys_cpu_s", "bytes_sent", "bytes_received", "procs")
    return Usage(
        **{
            name: (sum if name in sums else max)(getattr(usage, name) for usage in ends)
            for name in Usage.model_fields
            if ends
        }
    )


# Attributes


def on_begin(job: Job, now: float, hosts: list[str]) -> None:
    """Every node was taken: the job runs."""
    ad, stamp = job.ad, int(now)
    if "JobStartDate" not in ad:
        ad["JobStartDate"] = stamp
    if (last := ad.find("jobcurrentstartdate")) is not None:
        ad["JobLastStartDate"] = last
    ad.update({"JobCurrentStartDate": stamp, "ShadowBday": stamp, "CurrentHosts": len(hosts)})
    ad.update({"RemoteHost": hosts[0], "AllRemoteHosts": ",".join(hosts)})
    job.count("JobRunCount")


def on_run_end(job: Job, run: ParallelRun, now: float) -> None:
    """The run is no more: nothing of it stays in the job's ad but its totals."""
    if run.has_begun:
        job.ad["RemoteWallClockTime"] = float(job.number("RemoteWallClockTime")) + max(0.0, now - run.started)
        job.ad["LastRemoteHost"] = run.hosts[0]
    job.ad["CurrentHosts"] = 0
    job.drop("RemoteHost", "AllRemoteHosts", "ShadowBday")
