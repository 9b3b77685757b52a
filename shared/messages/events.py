"""Facts on roost.events for whoever wants them. The routing key is the type, e.g. `job.started`; every event names its
subject, and says nothing secret."""

from __future__ import annotations

from typing import ClassVar

from shared.messages.base import Message, message


class Event(Message):
    """Base of all facts. `at` is seconds since 1970 by the clock of the daemon that saw it happen."""

    at: float


class JobEvent(Event):
    schedd: str
    job_id: str  # "cluster.proc"
    owner: str


@message
class JobsSubmitted(Event):
    """One cluster was committed to the queue."""

    type: ClassVar[str] = "job.submitted"
    schedd: str
    owner: str
    submitter: str
    cluster: int
    first_proc: int
    count: int


@message
class JobMatched(JobEvent):
    type: ClassVar[str] = "job.matched"
    slot: str
    negotiator: str
    cycle: int


@message
class JobStarted(JobEvent):
    type: ClassVar[str] = "job.started"
    slot: str
    attempt: int
    waited_s: float  # since it became idle


@message
class JobEnded(JobEvent):
    """The job left the machine by itself."""

    type: ClassVar[str] = "job.ended"
    slot: str
    attempt: int
    exit_code: int | None = None
    exit_signal: int | None = None
    ran_s: float
    user_cpu_s: float = 0.0
    sys_cpu_s: float = 0.0
    memory_mib: int = 0


@message
class JobEvicted(JobEvent):
    """The run was ended from outside; the job is idle again."""

    type: ClassVar[str] = "job.evicted"
    slot: str
    attempt: int
    reason: str


@message
class JobHeld(JobEvent):
    type: ClassVar[str] = "job.held"
    code: int
    subcode: int
    reason: str


@message
class JobReleased(JobEvent):
    type: ClassVar[str] = "job.released"
    reason: str


@message
class JobRemoved(JobEvent):
    type: ClassVar[str] = "job.removed"
    reason: str


@message
class SlotChanged(Event):
    """A slot's state or activity changed."""

    type: ClassVar[str] = "slot.changed"
    startd: str
    slot: str
    state: str
    activity: str
    from_state: str = ""
    from_activity: str = ""
    owner: str = ""
    job_id: str = ""


@message
class ClaimMade(Event):
    type: ClassVar[str] = "claim.made"
    startd: str
    slot: str
    schedd: str
    submitter: str


@message
class ClaimEnded(Event):
    type: ClassVar[str] = "claim.ended"
    startd: str
    slot: str
    schedd: str
    submitter: str
    reason: str


@message
class CycleDone(Event):
    """One negotiation cycle, summed up."""

    type: ClassVar[str] = "negotiation.cycle"
    negotiator: str
    epoch: int
    cycle: int
    trigger: str  # new-jobs, free-slots, periodic, requested
    duration_s: float
    slots: int
    submitters: int
    requests: int
    matches: int
    rejections: int


@message
class PreemptionLoop(Event):
    """A slot goes to and fro between users: each of them took it from another and lost it again. The policy that lets
    them (PREEMPTION_REQUIREMENTS, RANK) wastes their work."""

    type: ClassVar[str] = "negotiation.preemption-loop"
    negotiator: str
    slot: str
    users: list[str]
    times: int  # preemptions
    window_s: float  # within this time


@message
class LeaderChanged(Event):
    """A negotiator became the active one, or ceased to be."""

    type: ClassVar[str] = "had.leader"
    had: str
    negotiator: str
    epoch: int
    state: str  # leader, passive
    shard: str = ""  # NEGOTIATOR_NAME, where a pool has several
    reason: str = ""  # why it ceased to be


@message
class BooksRestored(Event):
    """Redis came back without some of the accountant's books, and got what there was of them elsewhere."""

    type: ClassVar[str] = "had.books-restored"
    had: str
    epoch: int
    source: str  # snapshot: a copy on the HAD's disk; memory: its negotiator's; nothing newer: what Redis had
    restored: str  # version of the books that are in force again, epoch.count
    newest_known: str  # what lies between the two is lost
    shard: str = ""


@message
class SnapshotRefused(Event):
    """A HAD's copy of the books is damaged: it is set aside, and another one used."""

    type: ClassVar[str] = "had.snapshot-refused"
    had: str
    problem: str  # the file, and what is wrong with it
    shard: str = ""


@message
class PriorityChanged(Event):
    """An administrator changed something about a submitter."""

    type: ClassVar[str] = "accountant.changed"
    submitter: str
    what: str
    value: float | None
    by: str
    until: float = 0.0  # the old value comes back then (s since 1970); 0: never


@message
class PriorityRestored(Event):
    """A change for a while is over: `value` is back."""

    type: ClassVar[str] = "accountant.restored"
    submitter: str
    what: str  # factor, floor, ceiling
    value: float


@message
class DaemonStarted(Event):
    type: ClassVar[str] = "daemon.started"
    daemon: str
    subsystem: str
    release: str  # Roost version


@message
class DaemonStopped(Event):
    type: ClassVar[str] = "daemon.stopped"
    daemon: str
    subsystem: str
    reason: str
