"""Runs the backfill client while slots are in Backfill (STM-26 to STM-29, BKF-04 to BKF-06).

There is one client for the machine, however many slots it fills. Whatever ends the backfill of a slot ends the client
with all of its descendants first; where other slots are still in Backfill, it is started again for them.
"""

from __future__ import annotations

import asyncio
import os
from typing import Final

from services.startd.context import Component, StartdContext
from services.startd.core.backfill_client import GOOD_LIFE_S, BackfillClient, BadBackfill, backfill_client, wait_s
from services.startd.core.slots.effects import SlotEffects
from services.startd.core.slots.model import Slot
from services.startd.core.slots.transitions import Activity, State
from services.startd.forkserver.client import ForkServerGone, SpawnFailed
from services.startd.isolation.host_capabilities import find_login
from shared.config.knobs import StartdSettings
from shared.subprocess_runner import clean_environment

#: How long the end of the startd waits for the client's, seconds.
LAST_S: Final = 5.0
#: Of the startd's environment, what the client gets.
_INHERITED: Final = ("PATH", "LANG", "LC_ALL", "TZ")


class Backfill(Component):
    """The backfill client of this machine."""

    def __init__(self, startd: StartdContext) -> None:
        super().__init__(startd)
        self._client: BackfillClient | None = None
        self._run = ""  # the fork server's name of the client that runs, or is being started
        self._runs = False  # it does run
        self._ending = False  # and is to end
        self._short = 0  # lives in a row that were short
        self._wakes: asyncio.TimerHandle | None = None
        self._closed = False
        self._read()

    def _read(self) -> None:
        knobs = StartdSettings.from_config(self.startd.context.config)
        try:
            self._client = backfill_client(knobs, root=os.geteuid() == 0)
        except BadBackfill as error:
            self._client = None
            self.startd.context.log.error("backfill_impossible", problem=str(error))

    def reread(self) -> None:
        before = self._client
        self._read()
        if self._client != before:
            self._short = 0
            self._end()
            self._look()

    async def close(self) -> None:
        self._closed = True
        if self._wakes is not None:
            self._wakes.cancel()
        if self._run:
            self.startd.fork_server.kill(self._run)
            try:
                async with asyncio.timeout(LAST_S):
                    await self.startd.fork_server.end_of(self._run)
                self.startd.fork_server.forget(self._run)
            except (TimeoutError, ForkServerGone):
                self.startd.context.log.warning("backfill_client_resists")

    def on_changes(self, changes: SlotEffects) -> None:
        if self._client is not None or self._run:
            self._look()

    def _look(self) -> None:
        """Bring the client to where the slots want it."""
        filled = self._filled()
        if any(slot.activity is Activity.KILLING for slot in filled) or (self._run and not filled):
            if self._run:
                self._end()
            else:
                self._tell_gone()
        elif any(slot.activity is Activity.IDLE for slot in filled):
            if self._runs and not self._ending:
                self._tell_running()
            elif not self._run and self._wakes is None and self._client is not None:
                self._start()

    def _filled(self) -> list[Slot]:
        return [slot for slot in self.startd.slot_manager.slots.values() if slot.state is State.BACKFILL]

    def _start(self) -> None:
        if not self._closed:
            self._run = f"{self.startd.name}/backfill/{self.startd.context.new_id()}"
            self.startd.background.spawn(self._live(self._run), "backfill")

    def _end(self) -> None:
        if self._run and not self._ending:
            self._ending = True
            self.startd.fork_server.kill(self._run)

    def _tell_running(self) -> None:
        """Tell the slot manager for every slot that waits for it. It was started for nobody where nobody wants it
        now."""
        startd = self.startd
        names = [one.name for one in self._filled() if one.activity is Activity.IDLE]
        effects = SlotEffects()
        for name in names:
            effects.add(startd.slot_manager.backfilled(name, startd.now())[1])
        if names:
            startd.effects.carry_out(effects)

    def _tell_gone(self) -> None:
        startd = self.startd
        names = [one.name for one in self._filled() if one.activity is not Activity.IDLE]
        effects = SlotEffects()
        for name in names:
            effects.add(startd.slot_manager.backfill_gone(name, startd.now()))
        if names:
            startd.effects.carry_out(effects)

    async def _live(self, run: str) -> None:
        """One life of the client."""
        startd, spec = self.startd, self._client
        assert spec is not None
        began = startd.context.clock.monotonic()
        log = startd.context.log
        try:
            process = await startd.fork_server.spawn(run, _request(spec))
            log.info("backfill_client", pid=process.pid, executable=spec.executable)
            if self._ending:
                startd.fork_server.kill(run)  # it was not there yet to be killed
            else:
                self._runs = True
                self._tell_running()
            end = await startd.fork_server.end_of(run)
            startd.fork_server.forget(run)
            log.info("backfill_client_gone", status=end.status, asked=self._ending)
        except (SpawnFailed, ForkServerGone, BadBackfill) as error:
            log.error("backfill_client_failed", reason=str(error))
        asked, self._ending = self._ending, False
        self._run, self._runs = "", False
        lived = startd.context.clock.monotonic() - began
        wait = 0.0
        if not asked:
            wait = wait_s(self._short, lived)
            self._short = self._short + 1 if lived < GOOD_LIFE_S else 0
        if wait and not self._closed:
            self._wakes = asyncio.get_running_loop().call_later(wait, self._wake)
        self._tell_gone()
        self._look()

    def _wake(self) -> None:
        self._wakes = None
        self._look()


def _request(spec: BackfillClient) -> dict[str, object]:
    """The request to the fork server. Raises BadBackfill."""
    env = {name: value for name, value in clean_environment(os.environ).items() if name in _INHERITED}
    request: dict[str, object] = {
        "executable": spec.executable,
        "argv": [spec.executable, *spec.arguments],
        "cwd": spec.directory,
        "stdin": "",
        "stdout": spec.stdout,
        "stderr": spec.stderr,
        "append_stdout": True,
        "append_stderr": True,
    }
    if os.geteuid() == 0:
        login = find_login(spec.owner)
        if login is None:
            raise BadBackfill(f"BOINC_Owner = {spec.owner}: there is no such account")
        request["account"] = {"uid": login.uid, "gid": login.gid, "groups": list(login.groups)}
        env |= {"HOME": login.home, "USER": login.name, "LOGNAME": login.name}
    return request | {"env": env | dict(spec.env)}
