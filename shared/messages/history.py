"""What the catalogue for people (docs/events.md) says of events beyond their models: when each is sent, and what
changed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

#: By type: when it is sent. An event that is not here is told by its docstring.
WHEN: Final[Mapping[str, str]] = {
    "job.submitted": "A submit is committed: all jobs of the cluster are in the queue.",
    "job.matched": "The negotiator gave the job a slot, and the schedd asks the slot's startd for a claim.",
    "job.started": "The job's program runs: the slot is claimed and the input files are there.",
    "job.ended": "The program ended by itself, and the job is completed.",
    "job.evicted": "The run was ended from outside: preempted, vacated, drained, or its machine was lost.",
    "job.held": "The job was put on hold, by a user, a policy, or something that failed; `code` is HTCondor's.",
    "job.released": "A held job may run again.",
    "job.removed": "Somebody, or a policy, removed the job.",
    "slot.changed": "A slot's state or activity is another than was told last.",
    "claim.made": "A startd granted a slot to a schedd.",
    "claim.ended": "A claim was released, lost its lease, or was taken away.",
    "negotiation.cycle": "A negotiation cycle is over.",
    "daemon.started": "A daemon is set up and does its work.",
    "daemon.reconnected": "A daemon has a connection to the broker again, and has told what it could not meanwhile.",
    "daemon.gone": "A collector misses an execution point at the broker for COLLECTOR_PRESENCE_GRACE.",
    "daemon.stopped": "A daemon ends in good order, or is about to die of an error.",
}


@dataclass(frozen=True, slots=True)
class Change:
    """Something that was added to messages of a type within a version."""

    release: str
    types: str  # a type, or a pattern: job.*
    what: str


#: Oldest first. What is not told here is as it was in the first release, 0.1.0.
CHANGES: Final = (
    Change(
        "0.1.0",
        "job.matched job.started job.ended job.evicted job.held job.released job.removed",
        "`submitter` was added before the release; recordings from before have none.",
    ),
)


def changes_of(name: str) -> list[Change]:
    """Those of one type."""
    return [change for change in CHANGES if name in change.types.split()]
