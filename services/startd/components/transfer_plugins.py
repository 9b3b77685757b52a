"""Asks the file transfer plug-ins of this machine what they can, and tells it in the slots' ads."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Mapping
from typing import Final

from services.startd.context import Component
from services.startd.core.run.plugins import BadPlugin, Plugin, builtin, by_scheme, read_offer
from services.startd.core.slots.model import Slot
from services.startd.run.hook_runner import objection
from shared.subprocess_runner import ProgramFailed, clean_environment, run
from shared.transfer.urls import SIGNED

#: For the answer to -classad, seconds.
ANSWER_S: Final = 20.0


def _pelican() -> str:
    return shutil.which("pelican") or ""


class TransferPlugins(Component):
    async def setup(self) -> None:
        self.startd.ads.add_source("transfer-plugins", self._attributes)
        await self._ask()

    def reread(self) -> None:
        self.startd.background.spawn(self._ask_again(), "transfer-plugins")

    async def _ask_again(self) -> None:
        await self._ask()
        self.startd.ads.renew()
        self.startd.publisher.attributes_changed(urgent=True)

    async def _ask(self) -> None:
        paths = self.startd.settings.plugins
        if paths is None:
            self.startd.plugins.by_scheme = {}
            return
        found = await asyncio.gather(*map(self._offer_of, paths))
        own = builtin(await asyncio.to_thread(_pelican))
        self.startd.plugins.by_scheme = by_scheme([own, *(one for one in found if one is not None)])

    async def _offer_of(self, path: str) -> Plugin | None:
        """None: it can not be used, which is in the log."""
        try:
            if why := await asyncio.to_thread(objection, path):
                raise BadPlugin(why)
            ended = await run([path, "-classad"], env=clean_environment(os.environ), timeout_s=ANSWER_S)
            if not ended.good:
                raise BadPlugin(f"asked with -classad: {ended}")
            return read_offer(path, ended.stdout.decode("utf-8", "replace"))
        except (BadPlugin, ProgramFailed) as error:
            self.startd.context.log.error("transfer_plugin_refused", path=path, reason=str(error))
            return None

    def _attributes(self, slot: Slot) -> Mapping[str, object]:
        has = self.startd.plugins.by_scheme
        if not has:
            return {}
        # What the access point signs is https here.
        signed = SIGNED if has.get("https") else ()
        methods = sorted({*has, *signed})
        return {"HasFileTransferPluginMethods": ",".join(methods), "HasJobTransferPlugins": True}
