"""Connecting to an engine by the SDK, which is slow to import: most machines have no engine."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from typing import Any

#: The version of the interface in which an engine is asked for the newest one that it speaks.
_OLDEST = "1.41"


def connect(address: str, timeout: float | None) -> Any:
    """The SDK's client for an engine, with what else the environment says (TLS). Raises the SDK's errors, OSError."""
    import docker

    environment = os.environ | {"DOCKER_HOST": address}
    # Asked by ourselves: at every connection the SDK would ask for `/version`, which takes Podman seconds.
    with contextlib.closing(docker.from_env(version=_OLDEST, timeout=timeout, environment=environment)) as first:
        version = ping(first.api).get("api-version", "auto")
    return docker.from_env(version=version, timeout=timeout, environment=environment)


def ping(api: Any) -> Mapping[str, str]:
    """The headers of the engine's answer, by their names in small letters. Raises the SDK's errors, OSError."""
    with contextlib.closing(api._get(f"{api.base_url}/_ping")) as answer:
        api._raise_for_status(answer)
        return {str(name).lower(): str(value) for name, value in answer.headers.items()}
