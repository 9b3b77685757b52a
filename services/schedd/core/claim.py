"""A claim of the schedd: a slot that was given to one of its submitters, with the run on it and the terms of its lease.

It is stored in the queue's database whenever a loss would matter, so that a schedd that was killed finds its running
jobs again. No I/O.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

import msgpack

from engine.queue.jobs import JobId, Shadow
from shared.classad import ClassAd

#: A heavier slot is a mistake, and counts as one.
MAX_WEIGHT: Final = 1e6


@dataclass(slots=True)
class Claim:
    """A slot that was given to a submitter of ours."""

    id: str  # ours: names it in the database, and the request for it
    claim_id: str  # the startd's: a secret
    startd: str  # its inbox
    slot: str
    slot_ad: bytes
    submitter: str
    epoch: int
    lease_s: int  # 0: none was asked for
    alive_s: int
    shard: str = ""  # of the negotiator whose epoch that is
    preempts: list[str] = field(default_factory=list)  # dynamic slots that are to be emptied for it
    preempt_claims: list[str] = field(default_factory=list)  # their claim ids: secrets too
    concurrency_limits: str = ""  # as matched; jobs with others do not get this claim
    match_exprs: bytes = b""  # packed: what the negotiator tells every job on this claim (NEG-32); empty: nothing
    #: It waits: for its slot to be emptied for this job, or, once granted, for the other nodes of this node's job.
    waits: JobId | None = None
    waits_as: str = ""  # claim id by which the startd knows it meanwhile: a secret
    granted: bool = False
    granted_at: float = 0.0  # wall clock
    shadow: Shadow | None = None
    previous: tuple[str, int] | None = (
        None  # (job, attempt) that ran before: its repeated last report is answered again
    )
    #: Wall clock: so long it is kept without a run (SUB-11); where it has one, its startd has not taken that yet.
    idle_until: float = 0.0
    # Not stored:
    heard: float = 0.0  # monotonic: when the startd last proved that it has this claim
    told_until: float = 0.0  # monotonic: when a keep-alive that was not answered may have arrived at the latest
    unanswered: bool = False  # the last keep-alive was not answered: further ones only ask
    kept: bool = False  # a keep-alive was answered: the startd knows that we know of the claim
    disconnected: bool = False
    fits: dict[int, bool] = field(default_factory=dict)  # autocluster -> whether it suits the slot
    generation: int = -1  # of the autoclusters in `fits`
    ad: ClassAd | None = None
    autocluster: int = -1  # of the job it waits with: another of these will do
    start_in_s: float = 0.0  # the request waits so long: JOB_START_DELAY
    exceptions: int = 0  # runs on it that did not count: they could not start, or their output was lost
    asked: float = 0.0  # of its job in cores: the weight of a slot that is still to be carved; 0: not known
    looked_at: int = -1  # while it is kept: jobs of its submitter that had become ready when none was found to fit

    @property
    def has_taken_run(self) -> bool:
        """Whether its startd has taken the run, or takes it together with the news of the last one's end."""
        return self.granted and not self.idle_until

    def of(self, startd: str) -> bool:
        """Whether it is a claim on this startd, named as in its messages."""
        return self.startd.partition(".")[2] == startd

    def slot_classad(self) -> ClassAd:
        if self.ad is None:
            self.ad = ClassAd.unpack(self.slot_ad)
        return self.ad

    def weight(self) -> float:
        """SlotWeight of the slot; its cores where it does not say. Of a partitionable slot only what its job asks for
        is its own, once that is carved."""
        if self.asked and self.slot_classad().eval("PartitionableSlot") is True:
            return self.asked
        for name in ("SlotWeight", "Cpus"):
            value = self.slot_classad().eval(name)
            if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= MAX_WEIGHT:
                return float(value)
        return 1.0

    def pack(self) -> bytes:
        run = self.shadow
        body: dict[str, Any] = {
            "claim_id": self.claim_id,
            "startd": self.startd,
            "slot": self.slot,
            "slot_ad": self.slot_ad,
            "submitter": self.submitter,
            "epoch": self.epoch,
            "shard": self.shard,
            "lease_s": self.lease_s,
            "alive_s": self.alive_s,
            "preempts": self.preempts,
            "preempt_claims": self.preempt_claims,
            "waits": None if self.waits is None else _stored(self.waits),
            "waits_as": self.waits_as,
            "concurrency_limits": self.concurrency_limits,
            "match_exprs": self.match_exprs,
            "granted": self.granted,
            "granted_at": self.granted_at,
            "previous": self.previous,
            "idle_until": self.idle_until,
        }
        if run is not None:
            body["run"] = {
                "job": _stored(run.job),
                "attempt": run.attempt,
                "token": run.token,
                "transfer": run.transfer,
                "started": run.started,
                "sequence": run.sequence,
                "executing": run.executing,
                "suspended": run.suspended,
                "stop": run.stop,
                "how": run.how,
                "output": run.output,
                "suspended_by_user": run.suspended_by_user,
                "suspension_due": run.suspension_due,
            }
        packed: bytes = msgpack.packb(body)
        return packed

    @classmethod
    def unpack(cls, key: str, packed: bytes) -> Claim:
        body = msgpack.unpackb(packed)
        run = body.pop("run", None)
        previous = body.pop("previous", None)
        waits = body.pop("waits", None)
        claim = cls(id=key, **body)
        claim.previous = (previous[0], previous[1]) if previous else None
        claim.waits = JobId(*waits) if waits else None
        if run is not None:
            claim.shadow = Shadow(job=JobId(*run.pop("job")), **run)
        return claim


def _stored(job: JobId) -> list[int]:
    return [job.cluster, job.proc] if job.node < 0 else list(job)


#: A longer JobLeaseDuration counts as this: ten years.
MAX_LEASE_S: Final = 10 * 366 * 86400


#: What is added to a lease before the schedd gives a claim up: for the end of the processes, and for clocks of which
#: one goes faster than the other (the kernel slews them by 0.05 % at most).
LEASE_SLACK_S: Final = 5.0
LEASE_DRIFT: Final = 0.001


def given_up_at(heard: float, told_until: float, lease: float) -> float:
    """When a silent startd's claim has ended for sure, by the clock of `heard` (LEA-09). heard: when it last answered,
    so that it had renewed the lease before; told_until: when a keep-alive may have arrived that it did not answer."""
    return max(heard, told_until) + lease * (1.0 + LEASE_DRIFT) + LEASE_SLACK_S


#: Keep-alives come no more often than this for the sake of a short lease (LEA-04).
LEAST_ALIVE_S: Final = 10


def lease_s(duration: float) -> int:
    """How long a claim lives without a word from us, by JobLeaseDuration (LEA-01); 0: the job has none (LEA-05)."""
    return int(min(duration, MAX_LEASE_S)) if duration >= 1 else 0


def alive_s(interval: int, lease: int) -> int:
    """Seconds between keep-alives from now on: of the interval so far and a third of the lease, but never more than
    before (LEA-04)."""
    return min(interval, max(LEAST_ALIVE_S, lease // 3)) if lease else interval
