"""Images that we pulled: which go when there are more than DOCKER_IMAGE_CACHE_SIZE (DKR-07). Pure.

Only what this startd pulled is ever removed; what an administrator loaded or built stays. The list outlives the startd.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any


def repository_and_tag(image: str) -> tuple[str, str]:
    """Repository and tag or digest; `latest` when neither is given."""
    if "@" in image:
        repository, _, digest = image.partition("@")
        return repository, digest
    head, colon, tag = image.rpartition(":")
    if colon and "/" not in tag:
        return head, tag
    return image, "latest"


def full_name(image: str) -> str:
    """The image with its tag: two ways to write it are one image."""
    repository, tag = repository_and_tag(image)
    return f"{repository}@{tag}" if ":" in tag else f"{repository}:{tag}"


class Cache:
    """By full name: when an image was used last, seconds since the epoch."""

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
