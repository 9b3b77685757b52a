"""A job's credentials in its container."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from services.startd.core.run.job_launch import CREDENTIALS, Launch

_NAME: Final = "_CONDOR_CREDS"


def credentials_mounts(launch: Launch, inside: Callable[[str], str]) -> list[dict[str, Any]]:
    """The mount of those that do not lie in the scratch directory, over their place there. inside: a path in the
    container. Pure."""
    if not launch.credentials:
        return []
    return [{"Type": "bind", "Source": launch.credentials, "Target": inside(launch.env[_NAME]), "ReadOnly": True}]


def credentials_inside(body: Mapping[str, Any]) -> str:
    """Where the job finds its credentials; empty: it has none. body: of the request for its container. Pure."""
    return next((one.removeprefix(f"{_NAME}=") for one in body["Env"] if one.startswith(f"{_NAME}=")), "")


def credentials_outside(launch: Launch) -> Path:
    """Where the startd keeps them. Pure."""
    return Path(launch.credentials) if launch.credentials else launch.scratch / CREDENTIALS
