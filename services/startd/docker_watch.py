"""Offers Docker to jobs while its engine works: HasDocker and what goes with it (DKR-01, DKR-05, DKR-10)."""

from __future__ import annotations

from collections.abc import Coroutine, Mapping
from typing import Any

from services.startd.launchers.docker.launcher import DockerLauncher
from services.startd.launchers.docker.rules import advertised
from services.startd.parts import Inside, Part


class DockerWatch(Part):
    def __init__(self, inside: Inside) -> None:
        super().__init__(inside)
        self._shown: Mapping[str, object] = {}
        inside.showcase.add_source("docker", lambda slot: self.attributes())

    @property
    def launcher(self) -> DockerLauncher | None:
        """None: this startd stands for a machine that has no such thing."""
        found = self.inside.launchers.get("docker")
        return found if isinstance(found, DockerLauncher) else None

    def attributes(self) -> Mapping[str, object]:
        docker = self.launcher
        if docker is None or not docker.rules.enabled:
            return {"HasDocker": False}
        if docker.health.reason:
            return {"HasDocker": False, "DockerOfflineReason": docker.health.reason[:1000]}
        found = {"HasDocker": True, "DockerVersion": docker.version, "HasContainer": True, "HasDockerURL": True}
        return found | advertised(docker.rules, docker.missing_networks)

    def tasks(self) -> Mapping[str, Coroutine[Any, Any, None]]:
        return {"docker": self._watch()} if self.launcher is not None else {}

    def reread(self) -> None:
        if self.launcher is not None:
            self.launcher.adopt_rules(self.inside.settings.docker)

    async def _watch(self) -> None:
        """Probe at the start, regularly, and when a launcher that does not work is to be tried again."""
        docker, clock = self.launcher, self.inside.context.clock
        assert docker is not None
        due = clock.monotonic()
        while True:
            now = clock.monotonic()
            if docker.health.reason:
                due = docker.health.until
            if docker.rules.enabled and now >= due:
                await docker.probe()
                now = clock.monotonic()
                due = now + docker.health.wait_s(now, docker.rules.probe)
            self._tell()
            await docker.wait_for_trouble(max(0.0, due - now) if docker.rules.enabled else docker.rules.probe)

    def _tell(self) -> None:
        """The pool, if the slots' ads say something else now."""
        now = self.attributes()
        if now != self._shown:
            self._shown = now
            reason = now.get("DockerOfflineReason", "")
            self.inside.context.log.info("docker", version=now.get("DockerVersion", ""), reason=reason)
            self.inside.changed(urgent=True)
