"""Several queue statements of a parallel job: its machines in groups, each with what its statement asks of them. In the
queue they are one job, since they start together or not at all (engine.queue.parallel)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from engine.queue.parallel import GROUPS, group_attribute, may_differ
from roost.submit.commands import Attributes
from shared.classad import UNDEFINED

_COUNTS = ("MinHosts", "MaxHosts")
_OF_JOB = ("ProcId", "JobStatus", *_COUNTS)


def together(attributes: Attributes, procs: Sequence[Mapping[str, Any]]) -> tuple[Attributes, Attributes]:
    """The common attributes of the one job that these procs are, and those that it has of its own."""
    first = procs[0]
    sizes = [proc.get("MaxHosts", attributes.get("MaxHosts")) for proc in procs]
    common: Attributes = {**attributes, **dict.fromkeys(_COUNTS, sum(sizes)), GROUPS: ",".join(map(str, sizes))}
    for number, proc in enumerate(procs):
        for name in proc:
            if name not in _OF_JOB and number and proc[name] != first.get(name, attributes.get(name)):
                common[group_attribute(number, name)] = proc[name]
        for name in first:
            if name not in _OF_JOB and name not in proc and number:
                common[group_attribute(number, name)] = attributes.get(name, UNDEFINED)
    return common, {name: value for name, value in first.items() if name not in _COUNTS}


def problem(attributes: Attributes, procs: Sequence[Mapping[str, Any]]) -> str:
    """Why these procs can not be one job; empty: they can."""
    for number, proc in enumerate(procs[1:], 2):
        for name in sorted({*proc, *procs[0]} - set(_OF_JOB)):
            values = [one.get(name, attributes.get(name)) for one in (procs[0], proc)]
            if values[0] != values[1] and not may_differ(name):
                return (
                    f"the machines of a parallel job are one job, and {name} is the job's: machines {number} of its "
                    "queue statements say another one; say the same of it before each queue"
                )
    return ""
