"""What components hear of slots and runs."""

from __future__ import annotations

from services.startd.core.slots.effects import SlotEffects
from services.startd.run.run import Run
from shared.messages.claims import JobReport


class Observer:
    """Hears what it overrides. It is registered in the one list of observers that the daemon keeps."""

    def on_changes(self, changes: SlotEffects) -> None:
        """Slots changed, and it is written down."""

    def run_started(self, run: Run) -> None:
        """A run was adopted: it is new, or of an earlier life."""

    def run_reported(self, run: Run, report: JobReport) -> None:
        """A run of fetched work, which no access point hears of, goes on or has ended."""

    def run_over(self, run: Run) -> None:
        """The processes of a run are gone and its end is written down."""
