"""The files that this machine keeps for its jobs: DATA_REUSE_DIRECTORY and DATA_REUSE_BYTES."""

from __future__ import annotations

import asyncio
from pathlib import Path

from services.startd.context import Component


class Reuse(Component):
    async def setup(self) -> None:
        await self._open()

    def reread(self) -> None:
        if self._wanted() != self._had:
            self.startd.background.spawn(self._open(), "reuse-directory")

    def _wanted(self) -> tuple[Path, int]:
        startd = self.startd
        directory = startd.settings.reuse_directory
        path = Path(directory) / startd.name if directory else startd.context.spool / "startd" / f"{startd.name}.reuse"
        return path, startd.settings.reuse_bytes

    async def _open(self) -> None:
        self._had = self._wanted()
        await asyncio.to_thread(self.startd.reuse.open, *self._had)
