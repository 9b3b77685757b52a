"""Whether the engine can be used: probed at the start, regularly, and when something went wrong; and whose fault an
error of it is."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import Callable, Mapping
from typing import Any

from services.startd.core.run.failures import Fault, Health, RunFailed
from services.startd.exec.api import LauncherHost
from services.startd.exec.docker.container_run import container_name
from services.startd.exec.docker.engine import Engine, EngineAway, EngineErrorKind, EngineRefused
from services.startd.exec.docker.engines import addresses, engine_attributes, path_of, unusable
from services.startd.exec.docker.plan import RUN_LABEL, STARTD_LABEL, DockerSettings, docker_attributes

_TEST_RUN = "test of the engine"
#: In the startd's own folder: the address of the engine that has its containers.
_USED = "docker.address"


class EngineHealth:
    """startd: what the startd's containers are labelled with. rules: the settings, as they are now. remove_strangers:
    removes containers that nobody knows, called in a thread; again after `strangers_left` was set."""

    def __init__(
        self,
        host: LauncherHost,
        startd: str,
        engine: Engine,
        rules: Callable[[], DockerSettings],
        remove_strangers: Callable[[Any], None],
    ) -> None:
        self._host, self._startd, self._engine, self._rules = host, startd, engine, rules
        self._remove_strangers = remove_strangers
        self._state = Health()
        self._uneasy = asyncio.Event()
        self._tested = False
        self._missing_networks: set[str] = set()
        self._shown: Mapping[str, object] = {}
        self.strangers_left = True

    def attributes(self) -> Mapping[str, object]:
        """HasDocker and what goes with it (DKR-01, DKR-05, DKR-10)."""
        rules = self._rules()
        if not rules.enabled:
            return {"HasDocker": False}
        if self._state.reason:
            return {"HasDocker": False, "DockerOfflineReason": self._state.reason[:1000]}
        found = {"HasDocker": True, "HasContainer": True, "HasDockerURL": True}
        return found | engine_attributes(self._engine.facts) | docker_attributes(rules, self._missing_networks)

    # ---------------------------------------------------------------- looking at it

    async def watch(self) -> None:
        clock = self._host.context.clock
        due = clock.monotonic()
        while True:
            rules = self._rules()
            now = clock.monotonic()
            if self._state.reason:
                due = self._state.until
            if rules.enabled and now >= due:
                await self.probe()
                now = clock.monotonic()
                due = now + self._state.wait_s(now, self._rules().probe)
            self._tell()
            await self._wait_for_trouble(max(0.0, due - now) if rules.enabled else rules.probe)

    def _tell(self) -> None:
        """The pool, if the slots' ads say something else now."""
        now = self.attributes()
        if now != self._shown:
            self._shown = now
            reason = now.get("DockerOfflineReason", "")
            facts = {
                "version": now.get("DockerVersion", ""),
                "rootless": now.get("DockerRootless", False),
                "lacks_limits": now.get("DockerLacksLimits", ""),
            }
            self._host.context.log.info("docker", **facts, address=self._engine.address, reason=reason)
            self._host.changed()

    async def probe(self) -> bool:
        """Whether the engine can be used: it answers, and a test container runs."""
        engine, rules = self._engine, self._rules()
        try:
            facts = await engine.look()
            if why := unusable(facts, engine.address, os.getuid(), engine.owner(), rules.user, rules.processes):
                self.broke(why)
                return False
            await asyncio.to_thread(self._remember)
            engine.listen()
            if self.strangers_left:
                await engine.ask(self._remove_strangers)
                self.strangers_left = False
            if rules.test and (not self._tested or self._state.reason):
                await self._test()
            if self._missing_networks:
                there = await engine.ask(lambda api: {one["Name"] for one in api.networks()})
                self._missing_networks -= there
        except (EngineAway, EngineRefused) as error:
            self.broke(str(error))
            return False
        self._state.passed()
        return True

    async def _test(self) -> None:
        """Raises EngineAway, EngineRefused."""
        labels = {STARTD_LABEL: self._startd, RUN_LABEL: _TEST_RUN}
        await self._engine.test(labels, container_name(f"{self._startd} {_TEST_RUN}"))
        self._tested = True

    async def _wait_for_trouble(self, timeout_s: float) -> None:
        """Return when something has changed about the engine, at the latest after timeout_s."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._uneasy.wait()
        self._uneasy.clear()

    # Where an engine is looked for, the startd goes back to the one that has its containers, whatever others there are
    # when it starts again.

    def addresses(self) -> tuple[str, ...]:
        used = ""
        with contextlib.suppress(OSError):
            used = (self._host.folder / _USED).read_text().strip()
        if used and not os.path.exists(path_of(used)):
            used = ""
        return addresses(self._rules().host, os.environ, os.getuid(), used)

    def _remember(self) -> None:
        if path_of(self._engine.address):
            with contextlib.suppress(OSError):
                (self._host.folder / _USED).write_text(self._engine.address)

    # ---------------------------------------------------------------- what is learned of it meanwhile

    def look_again(self) -> None:
        """Soon: something may be different."""
        self._uneasy.set()

    def broke(self, why: str) -> None:
        self._state.broke(why, time.monotonic())
        self._uneasy.set()

    def proved(self) -> None:
        """A container has started."""
        self._state.proved()

    async def check(self) -> None:
        """Before a job: raises RunFailed where the engine can not be used, and a new look, if one is due, says the
        same."""
        if not self._rules().enabled:
            raise Fault.ENGINE_AWAY.failure("this machine runs no Docker jobs: ROOST_DOCKER is false")
        if self._state.reason and (time.monotonic() < self._state.until or not await self.probe()):
            raise Fault.ENGINE_AWAY.failure(f"the Docker engine can not be used: {self._state.reason}")

    async def judge(self, kind: EngineErrorKind, error: EngineRefused, message: str, network: str) -> RunFailed:
        """The failure that an error of the engine means. One that does not say whose fault it is, is the job's if the
        test container runs. network: the one that the job wanted."""
        if kind is EngineErrorKind.DISK_FULL:
            return self.full(error.message)
        if kind is EngineErrorKind.NO_VOLUME:
            self.broke(message)
            return Fault.VOLUME_MISSING.failure(message)
        if kind is EngineErrorKind.NO_NETWORK:
            self._missing_networks.add(network)
            self._uneasy.set()
            return Fault.NETWORK_MISSING.failure(message)
        try:
            await self._test()
        except (EngineAway, EngineRefused) as worse:
            self.broke(f"{message}; {worse}")
            return Fault.ENGINE_AWAY.failure(f"{message}; nor does a container without a job: {worse}")
        return Fault.CONTAINER_REFUSED.failure(message)

    def away(self, error: EngineAway) -> RunFailed:
        self.broke(str(error))
        return Fault.ENGINE_AWAY.failure(f"the Docker engine went away: {error}")

    def full(self, why: str) -> RunFailed:
        self.broke(why)
        return Fault.ENGINE_FULL.failure(f"the Docker engine has no room: {why}")
