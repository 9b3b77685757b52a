"""Keeps HasDocker and DockerVersion true, and the watch over containers alive (DKR-01)."""

from __future__ import annotations

from collections.abc import Coroutine, Mapping
from typing import Any

from services.startd.book.slots import Slot
from services.startd.launchers.docker.launcher import DockerLauncher
from services.startd.parts import Inside, Part


class DockerWatch(Part):
    def __init__(self, inside: Inside) -> None:
        super().__init__(inside)
        self.version = ""  # empty: no engine answers
        inside.showcase.add_source("docker", self._attributes)

    def _attributes(self, slot: Slot) -> Mapping[str, object]:
        if not self.version:
            return {"HasDocker": False}
        return {"HasDocker": True, "DockerVersion": self.version, "HasContainer": True}

    def tasks(self) -> Mapping[str, Coroutine[Any, Any, None]]:
        return {"docker": self._watch()} if self.inside.settings.docker else {}

    async def _watch(self) -> None:
        inside = self.inside
        docker = inside.launchers["docker"]
        assert isinstance(docker, DockerLauncher)
        while True:
            version = await docker.probe()
            if version != self.version:
                inside.context.log.info("docker", version=version, reason=docker.trouble)
                self.version = version
                inside.changed(urgent=True)
            await docker.wait_for_trouble(inside.settings.docker_probe)
