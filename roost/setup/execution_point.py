"""What a machine needs to be an execution point: its configuration and the unit by which systemd starts its startd.
Text only; roost.setup.machine writes it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Final

from roost.setup import layout
from roost.setup.layout import AUTHORITY, File

KIND: Final = "execution-point"
ROLE: Final = "startd"
UNIT: Final = layout.unit_name(ROLE)


@dataclass(frozen=True, slots=True)
class ExecutionPoint:
    """name: of the startd in the pool. python: the interpreter that Roost is installed for. keys: file of the gateways'
    public keys, empty for none. authority: whether the pool's certificates are of an authority of its own."""

    name: str
    python: str
    keys: str = ""
    authority: bool = False


def files(machine: ExecutionPoint, url: str) -> list[File]:
    """All that is written, in order. url: of the broker, with the startd's password."""
    return [
        layout.first_configuration(),
        _local(machine),
        layout.environment_file(ROLE, machine.name, url),
        layout.unit_file(ROLE, unit(machine)),
    ]


def environment(machine: ExecutionPoint) -> PurePosixPath:
    """The file of what nobody else is to read."""
    return layout.environment(ROLE, machine.name)


def _local(machine: ExecutionPoint) -> File:
    knobs: list[tuple[str, object]] = [("STARTD.STARTD_NAME", machine.name)]
    if machine.keys:
        knobs.append(("STARTD.ROOST_GATEWAY_KEYS", machine.keys))
    if machine.authority:
        knobs.append(("STARTD.AUTH_SSL_CLIENT_CAFILE", AUTHORITY))
    return layout.local_configuration(KIND, knobs)


def unit(machine: ExecutionPoint) -> str:
    """Root starts it: only root gives each job an account, namespaces and limits of its own. It takes none of systemd's
    walls itself, as its jobs would live behind the same ones."""
    lines = (
        "StateDirectory=condor",
        "StateDirectoryMode=0755",
        "UMask=0022",
        "# Jobs outlive their startd, which finds them again: systemd ends it alone, and leaves their cgroups to it.",
        "KillMode=process",
        "SendSIGKILL=yes",
        "Delegate=yes",
        "TasksMax=infinity",
        "OOMPolicy=continue",
        "OOMScoreAdjust=-500",
    )
    start = f"{machine.python} -m services.startd"
    return layout.unit(ROLE, "execution point", start, environment(machine), ("docker.service",), lines)
