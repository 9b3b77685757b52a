"""Knobs of the journal, and of what daemons tell it. One line adds another."""

from __future__ import annotations

from typing import ClassVar

from shared.config.knobs.base import declared, knob
from shared.config.knobs.common import CommonSettings


@declared
class JournalSettings(CommonSettings):
    """What the journal reads of its configuration."""

    SUBSYSTEM: ClassVar[str] = "JOURNAL"

    roost_journal_url: str | None = knob(
        "ROOST_JOURNAL_URL",
        meaning="where it is kept: postgresql://user:password@host/database; unset: in SQLite, $(SPOOL)/journal.db",
    )
    roost_journal_keep: float = knob(
        "ROOST_JOURNAL_KEEP", "2592000", unit="s", least=60, meaning="what is older is forgotten (30 days)"
    )
    roost_journal_max_size: int = knob(
        "ROOST_JOURNAL_MAX_SIZE",
        "4096",
        unit="MiB",
        least=8,
        meaning="the oldest is forgotten when the journal is larger than this",
    )
    roost_journal_sample_interval: float = knob(
        "ROOST_JOURNAL_SAMPLE_INTERVAL",
        "15",
        unit="s",
        least=0.1,
        meaning="between looks at how many slots and jobs there are in each state",
    )
    roost_journal_slots_interval: float = knob(
        "ROOST_JOURNAL_SLOTS_INTERVAL",
        "60",
        unit="s",
        least=0.1,
        meaning="between looks for slots that came, went, or changed what they offer",
    )
