"""Stand-ins for a registry's images, made from Debian's packages and named as the originals are.

Dockerfiles and compose files written for the real images then work unchanged where there is no registry. An
image carries the digest of its recipe and is made anew when the recipe has changed.
"""

import hashlib
import tempfile
from pathlib import Path

import docker
from docker.errors import BuildError, ImageNotFound

from tests.containers.debian import root_file_system

RECIPES = Path(__file__).parent / "recipes"
RECIPE_LABEL = "roost.recipe"
# Name: suite of the root file system.
BASES = {"debian:bookworm-slim": "bookworm", "debian:trixie-slim": "trixie"}
# Name: (folder of the Dockerfile, name of the image it starts from).
BUILDS = {
    "python:3.11-slim": ("python", "debian:bookworm-slim"),
    "rabbitmq:4.0-management": ("rabbitmq", "debian:trixie-slim"),
    "redis:8.0": ("redis", "debian:trixie-slim"),
    "prom/prometheus:v3.5.0": ("prometheus", "debian:trixie-slim"),
}
IMAGES = (*BASES, *BUILDS)


def recipe_of(name: str) -> str:
    """Digest of everything that an image is made from."""
    if name in BASES:
        source = (Path(__file__).with_name("debian.py")).read_bytes() + BASES[name].encode()
    else:
        folder, base = BUILDS[name]
        source = (RECIPES / folder / "Dockerfile").read_bytes() + recipe_of(base).encode()
    return hashlib.sha256(source).hexdigest()


def ensure_image(client: docker.DockerClient, name: str) -> None:
    """Make the stand-in, and what it starts from, unless the engine has it. KeyError for an unknown name."""
    if name not in IMAGES:
        raise KeyError(f"there is no stand-in for {name}; there are {', '.join(IMAGES)}")
    recipe = recipe_of(name)
    try:
        if client.images.get(name).labels.get(RECIPE_LABEL) == recipe:
            return
    except ImageNotFound:
        pass
    if name in BASES:
        _import(client, name, recipe)
    else:
        folder, base = BUILDS[name]
        ensure_image(client, base)
        try:
            client.images.build(path=str(RECIPES / folder), tag=name, labels={RECIPE_LABEL: recipe}, rm=True)
        except BuildError as error:
            said = "".join(line.get("stream", "") for line in error.build_log)
            raise RuntimeError(f"{name}: {error}\n{said[-4000:]}") from None


def _import(client: docker.DockerClient, name: str, recipe: str) -> None:
    repository, tag = name.split(":")
    changes = ['CMD ["bash"]', "ENV LANG=C.UTF-8", f"LABEL {RECIPE_LABEL}={recipe}"]
    with tempfile.TemporaryDirectory(prefix="roost-image-") as scratch:
        archive = Path(scratch, "root.tar")
        root_file_system(BASES[name], archive)
        client.api.import_image(str(archive), repository=repository, tag=tag, changes=changes)
