"""What a job says of the container that it wants, whichever launcher makes it. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from shared.classad import ClassAd

#: Of an image that a registry has.
REGISTRY: Final = "docker://"


@dataclass(frozen=True, slots=True)
class ContainerRequest:
    docker_image: str
    image: str  # container_image
    wants_docker: bool
    wants_container: bool

    @property
    def registry_image(self) -> str:
        """The name of the image at its registry; empty: it is a file or a directory."""
        if self.image and not self.image.startswith(REGISTRY):
            return ""
        return self.docker_image or self.image.removeprefix(REGISTRY)


def container_request(job: ClassAd) -> ContainerRequest:
    docker, image = job.eval_string("DockerImage"), job.eval_string("ContainerImage")
    container = job.eval("WantContainer") is True or bool(image)
    wants_docker = job.eval("WantDocker") is True or bool(docker and not container)
    return ContainerRequest(docker, image, wants_docker, container)


def inside_path(path: str, scratch: str, target: str) -> str:
    """The name inside of a path in the scratch directory; others are what they are."""
    if target and (path == scratch or path.startswith(scratch + "/")):
        return target + path[len(scratch) :]
    return path
