"""Which launcher starts a job."""

from __future__ import annotations

from services.startd.launchers.api import Launch


def launcher_of(launch: Launch) -> str:
    """The launcher's name, as in `parts.Inside.launchers`."""
    return "docker" if launch.image else "process"
