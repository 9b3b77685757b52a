"""Versions of what daemons keep, by its name: what a release writes. It reads these and earlier ones, and refuses later
ones, so that going back to an earlier release harms nothing."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

JOB_QUEUE: Final = 2  # user_version of job_queue.db
STARTD_JOURNAL: Final = 1  # user_version of the startd's database
JOURNAL: Final = 1  # `version` in the table meta
IDENTITIES: Final = 1  # `version` in registrar.json
BACKUP: Final = 1  # `format` in a backup's manifest
#: Of records in Redis (shared.state.versions). 1 is how they were before versions were written down.
ADS: Final = "ads"
CLAIM_IDS: Final = "claim ids"
ABSENT: Final = "absent machines"
TOKENS: Final = "tokens"
ELECTION: Final = "election"
ACCOUNTING: Final = "accounting records"
DEFRAG: Final = "lead of defrag"
ROOSTER: Final = "lead of rooster"
IN_REDIS: Final = (ADS, CLAIM_IDS, ABSENT, TOKENS, ELECTION, ACCOUNTING, DEFRAG, ROOSTER)

VERSIONS: Final[Mapping[str, int]] = MappingProxyType(
    {
        "job queue": JOB_QUEUE,
        "startd journal": STARTD_JOURNAL,
        "journal": JOURNAL,
        "identities": IDENTITIES,
        "backup": BACKUP,
        **dict.fromkeys(IN_REDIS, 1),
    }
)


def newer(found: Mapping[str, int]) -> list[str]:
    """What of this is of a later release, in words; empty: this release reads all of it."""
    return [
        f"{name} of version {version}, of which this release reads {VERSIONS.get(name, 0)}"
        for name, version in sorted(found.items())
        if version > VERSIONS.get(name, 0)
    ]
