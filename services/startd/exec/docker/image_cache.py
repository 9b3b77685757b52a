"""The images of Docker jobs: pulled when they are wanted, and removed when there are more than DOCKER_IMAGE_CACHE_SIZE
(DKR-07).

Only what this startd pulled is ever removed; what an administrator loaded or built stays. The list outlives the startd.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from services.startd.core.run.failures import Fault, RunFailed
from services.startd.exec.docker.engine import (
    Engine,
    EngineAway,
    EngineErrorKind,
    EngineRefused,
    kind_of_pull_error,
    repository_and_tag,
)
from services.startd.journal_writer import JournalWriter


def full_name(image: str) -> str:
    """The image with its tag: two ways to write it are one image."""
    repository, tag = repository_and_tag(image)
    return f"{repository}@{tag}" if ":" in tag else f"{repository}:{tag}"


class CacheContents:
    """When each image was used last, seconds since the epoch, by its full name."""

    def __init__(self, kept: Mapping[str, Mapping[str, Any]]) -> None:
        """kept: as `records` gave it to an earlier life."""
        self._used = {name: float(record.get("used", 0.0)) for name, record in kept.items()}
        self.size = 8

    def __contains__(self, image: str) -> bool:
        return full_name(image) in self._used

    def pulled(self, image: str, now: float) -> None:
        """It came here by us."""
        self._used[full_name(image)] = now

    def used(self, image: str, now: float) -> bool:
        """A job uses it. False: it is none of ours."""
        name = full_name(image)
        if name in self._used:
            self._used[name] = now
        return name in self._used

    def gone(self, image: str) -> None:
        self._used.pop(full_name(image), None)

    def record(self, image: str) -> Mapping[str, Any] | None:
        """What is to be written down of an image."""
        used = self._used.get(full_name(image))
        return None if used is None else {"used": used}

    def surplus(self, in_use: Iterable[str], *, all_of_them: bool = False) -> list[str]:
        """Images to remove, longest unused first; those in use stay and count. all_of_them: room is needed."""
        busy: Collection[str] = {full_name(image) for image in in_use}
        names = sorted(self._used, key=lambda name: self._used[name])
        idle = [name for name in names if name not in busy]
        return idle if all_of_them else idle[: max(0, len(names) - self.size)]


#: Between attempts to pull from a registry that is away, seconds.
PULL_AGAIN_S = (1.0, 4.0)


class EngineFull(Exception):
    """The engine's disk has no room, also after all images were removed that nobody uses."""


class ImageCache:
    """in_use: gives the names of images that runs have, or are about to have."""

    def __init__(
        self,
        engine: Engine,
        store: JournalWriter,
        kept: Mapping[str, Mapping[str, Any]],
        in_use: Callable[[], set[str]],
    ) -> None:
        """kept: what an earlier life has put into the store's table `images`."""
        self.pull_silence_s = 900.0
        self._engine = engine
        self._store = store
        self._cache = CacheContents(kept)
        self._in_use = in_use
        self._present: dict[str, str] = {}  # ids of images that the engine is known to have, by full name
        self._pulls: dict[str, tuple[asyncio.Task[None], list[None]]] = {}  # with one item for each who waits
        self._removing: dict[str, asyncio.Event] = {}  # by full name

    def adopt(self, *, size: int, pull_silence_s: float) -> None:
        """Go by these settings: so many images stay; a pull may be silent for so long."""
        self._cache.size = size
        self.pull_silence_s = pull_silence_s

    def changed(self) -> None:
        """The engine's images are others than they were, or may be."""
        self._present.clear()

    def used(self, image: str) -> None:
        """A job has started in it."""
        if self._cache.used(image, time.time()):
            self._remember(image)

    async def have(self, image: str, policy: str) -> str:
        """Make sure that the engine has an image; its id. policy: of `plan.PULL_POLICIES`. Cancelling gives a pull up
        if nobody else waits for it. Raises RunFailed, EngineAway, EngineFull."""
        name = full_name(image)
        while name in self._removing:  # an engine that pulls what it removes ends up with half of it
            await self._removing[name].wait()
        if policy != "always" and (image_id := self._present.get(name) or await self._id_of(image, name)):
            return image_id
        if policy == "never":
            raise Fault.NO_IMAGE.failure(f"image {image} is not on this machine, and docker_pull_policy is never")
        await self._pull_together(image, name)
        return await self._id_of(image, name)

    async def _id_of(self, image: str, name: str) -> str:
        """Empty: the engine does not have it."""
        try:
            found = await self._engine.ask(lambda api: api.inspect_image(image))
        except EngineRefused as error:
            if error.status == 404:
                return ""
            raise Fault.NO_IMAGE.failure(f"image {image} can not be had: {error}") from error
        self._present[name] = str(found.get("Id", ""))
        return self._present[name]

    async def _pull_together(self, image: str, name: str) -> None:
        """One pull for all who want the image; it goes on as long as anybody waits."""
        if name not in self._pulls:
            self._pulls[name] = asyncio.create_task(self._pull(image), name=f"pull:{name}"), []
        task, waiting = self._pulls[name]
        waiting.append(None)
        try:
            await asyncio.shield(task)
        finally:
            waiting.pop()
            if not waiting:
                task.cancel()
                if self._pulls.get(name, (None,))[0] is task:
                    del self._pulls[name]
                with contextlib.suppress(asyncio.CancelledError, RunFailed, EngineAway, EngineFull):
                    await task

    async def _pull(self, image: str) -> None:
        attempt = 0
        cleared = False
        while True:
            try:
                await self._engine.pull(image, self.pull_silence_s)
                break
            except EngineRefused as error:
                kind = kind_of_pull_error(error.status, error.message)
                if kind is EngineErrorKind.TRANSIENT and attempt < len(PULL_AGAIN_S):
                    await asyncio.sleep(PULL_AGAIN_S[attempt])
                    attempt += 1
                elif kind is EngineErrorKind.DISK_FULL and not cleared:
                    cleared = True
                    await self.make_room(all_of_them=True)
                elif kind is EngineErrorKind.DISK_FULL:
                    raise EngineFull(error.message) from error
                else:
                    raise Fault.NO_IMAGE.failure(f"image {image} can not be had: {error}") from error
        self._cache.pulled(image, time.time())
        self._remember(image)

    def _remember(self, image: str) -> None:
        self._store.put("images", full_name(image), self._cache.record(image))
        self._store.write_soon()

    async def make_room(self, *, all_of_them: bool = False) -> None:
        """Remove images that are too many, or (room is needed) all that nobody uses."""
        if not self._cache.surplus((), all_of_them=all_of_them):
            return
        for image in self._cache.surplus(self._in_use() | self._pulls.keys(), all_of_them=all_of_them):
            if image in self._removing:
                continue
            self._removing[image] = done = asyncio.Event()
            try:
                await self._engine.ask(lambda api, image=image: api.remove_image(image))  # type: ignore[misc]
            except EngineAway:
                return
            except EngineRefused as error:
                if error.status != 404:
                    continue  # in use by somebody else's container, say
            finally:
                del self._removing[image]
                done.set()
            self._cache.gone(image)
            self._remember(image)

    async def close(self) -> None:
        for task, _ in list(self._pulls.values()):
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
