"""The counts of the pool that a collector's own ad tells, as HTCondor's does: slots by State, and the jobs of all
submitters. No I/O."""

from __future__ import annotations

from collections.abc import Mapping

from services.collector.core.columns import Plain

#: What slots are counted by, and what is told of which first letter of it, as in HTCondor.
STATE = "State"
_HOSTS = {"C": "HostsClaimed", "U": "HostsUnclaimed", "O": "HostsOwner"}
#: What the ads of submitters have.
JOBS = ("RunningJobs", "IdleJobs")


def pool_counts(by_state: Mapping[tuple[Plain, ...], int], by_jobs: Mapping[tuple[Plain, ...], int]) -> dict[str, int]:
    """by_state: slots by (State,); by_jobs: submitters by (RunningJobs, IdleJobs)."""
    counts = {"HostsTotal": 0, **dict.fromkeys(_HOSTS.values(), 0), **dict.fromkeys(JOBS, 0)}
    for (state,), slots in by_state.items():
        if isinstance(state, str) and state:
            counts["HostsTotal"] += slots
            if (name := _HOSTS.get(state[0].upper())) is not None:
                counts[name] += slots
    for values, submitters in by_jobs.items():
        for name, value in zip(JOBS, values, strict=True):
            if isinstance(value, int | float) and 0 <= value < _MOST:
                counts[name] += int(value) * submitters
    return counts


#: More jobs than that no submitter has.
_MOST = 1e12
