"""What the slots' ads say of the launchers: whether each works, and what it offers (HasDocker, HasSingularity, HasVM).

Each launcher is tried by itself (`Launcher.watch`), and says by `LauncherHost.changed` that its attributes are others.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from typing import Any

from services.startd.context import Component, StartdContext
from services.startd.core.slots.model import Slot
from services.startd.exec.api import LauncherKind
from services.startd.exec.registry import KINDS
from services.startd.run.run import Run


class LauncherAds(Component):
    def __init__(self, startd: StartdContext) -> None:
        super().__init__(startd)
        for kind in KINDS:
            startd.ads.add_source(kind.name, self._attributes_of(kind))

    def _attributes_of(self, kind: LauncherKind) -> Callable[[Slot], Mapping[str, object]]:
        def attributes(slot: Slot) -> Mapping[str, object]:
            launcher = self.startd.launchers.get(kind.name)
            if launcher is None:
                return kind.absent
            if not kind.counts_jobs:
                return launcher.attributes(())
            runs = self.startd.runs.by_key.values()
            return launcher.attributes([run.job for run in runs if run.record.launcher == kind.name and not run.ended])

        return attributes

    def tasks(self) -> Mapping[str, Coroutine[Any, Any, None]]:
        return {f"launcher-{name}": launcher.watch() for name, launcher in self.startd.launchers.items()}

    def reread(self) -> None:
        for launcher in self.startd.launchers.values():
            launcher.reread()

    def run_started(self, run: Run) -> None:
        if any(kind.counts_jobs and kind.name == run.record.launcher for kind in KINDS):
            self.startd.publisher.attributes_changed()

    def run_over(self, run: Run) -> None:
        self.run_started(run)
