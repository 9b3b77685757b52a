"""Keeps HasSingularity and its companions true (SNG-01): the runtime is tried at the start, when the configuration is
read again, and when a container did not come into being; while it does not work, again and again."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Coroutine, Mapping
from typing import Any

from services.startd.book.slots import Slot
from services.startd.launchers.api import LaunchFailed
from services.startd.launchers.apptainer.launcher import ApptainerLauncher
from services.startd.launchers.apptainer.probe import Found, Probe
from services.startd.parts import Inside, Part
from services.startd.sandbox import directories
from services.startd.starter.faults import LONGEST_S, Health
from shared.classad import ClassAd


class ApptainerWatch(Part):
    def __init__(self, inside: Inside) -> None:
        super().__init__(inside)
        self.found: Found | None = None  # None: not tried yet
        self.health = Health()
        self._again = asyncio.Event()
        self._trying = asyncio.Lock()
        inside.showcase.add_source("apptainer", self.attributes)
        launcher = inside.launchers.get("apptainer")
        self._launcher = launcher if isinstance(launcher, ApptainerLauncher) else None
        if self._launcher is not None:
            self._launcher.doubt = self.doubt

    def attributes(self, slot: Slot) -> Mapping[str, object]:
        return attributes_of(self.found)

    def tasks(self) -> Mapping[str, Coroutine[Any, Any, None]]:
        return {"apptainer": self._watch()} if self._launcher is not None else {}

    def reread(self) -> None:
        self._again.set()

    async def doubt(self) -> str:
        """Why the runtime does not work, asked anew; the pool hears of it before the answer."""
        worked = self.found is not None and self.found.works
        found = await self._try()
        if worked and not found.works:
            self._again.set()  # from now on it is tried again and again
        return "" if found.works else found.trouble or "it is gone"

    async def _watch(self) -> None:
        while True:
            self._again.clear()
            found = await self._try()
            pause = None
            if not found.works:
                # One may be installed while we run.
                pause = self.health.wait_s(time.monotonic(), LONGEST_S) if found.version else LONGEST_S
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._again.wait()

    async def _try(self) -> Found:
        """One at a time: the image that is tried is made anew for each."""
        assert self._launcher is not None
        async with self._trying:
            context = self.inside.context
            place = context.execute / f".apptainer-{directories.prefix(self.inside.name).strip('_')}"
            try:
                # As the jobs' own account has it, if it has one.
                account = self.inside.warden.account(f"slot1@{self.inside.name}", ClassAd())
                found = await Probe(self._launcher, place, account)()
            except LaunchFailed as error:
                found = Found("unknown", trouble=error.message)
            if found.works:
                self.health.proved()
            else:
                self.health.broke(found.trouble, time.monotonic())
            if found != self.found:
                self.found = found
                context.log.info("apptainer", version=found.version, reason=found.trouble, works=found.works)
                self.inside.changed(urgent=True)
            return found


def attributes_of(found: Found | None) -> dict[str, object]:
    """What slots say of the runtime."""
    if found is None or not found.version:
        return {"HasSingularity": False}
    if not found.works:
        return {"HasSingularity": False, "SingularityOfflineReason": found.trouble}
    ad: dict[str, object] = {
        "HasSingularity": True,
        "SingularityVersion": found.version,
        "HasSandboxImage": found.sandbox,
        "HasSIF": found.sif,
        "HasContainer": True,
    }
    if found.sif:
        ad["HasDockerURL"] = True  # it fetches a registry's image and makes a file of it
    return ad
