"""What a machine needs to be an execution point: its configuration and the unit by which systemd starts its startd.
Text only; roost.setup.machine writes it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Final

CONFIGURATION: Final = PurePosixPath("/etc/condor/condor_config")
LOCAL: Final = PurePosixPath("/etc/condor/config.d/00-roost-execution-point")
AUTHORITY: Final = PurePosixPath("/etc/condor/pool-ca.pem")
IDENTITIES: Final = PurePosixPath("/etc/condor/identities")
STATE: Final = PurePosixPath("/var/lib/condor")
UNIT: Final = "roost-startd.service"
UNITS: Final = PurePosixPath("/etc/systemd/system")
#: Exit statuses after which starting it again does not help: wrong arguments, wrong configuration.
_HOPELESS: Final = "2 78"


@dataclass(frozen=True, slots=True)
class ExecutionPoint:
    """name: of the startd in the pool. python: the interpreter that Roost is installed for. keys: file of the gateways'
    public keys, empty for none. authority: whether the pool's certificates are of an authority of its own."""

    name: str
    python: str
    keys: str = ""
    authority: bool = False


@dataclass(frozen=True, slots=True)
class File:
    """once: left alone where there is one."""

    path: PurePosixPath
    text: str
    mode: int = 0o644
    once: bool = False


def files(machine: ExecutionPoint, url: str) -> list[File]:
    """All that is written, in order. url: of the broker, with the startd's password."""
    return [
        File(CONFIGURATION, _first(), once=True),
        File(LOCAL, _local(machine)),
        File(environment(machine), f"ROOST_AMQP_URL={url}\n", 0o600),
        File(UNITS / UNIT, unit(machine)),
    ]


def identity(name: str) -> PurePosixPath:
    """The directory of a startd's user of the broker, where enrolling puts it."""
    return IDENTITIES / f"startd.{name}"


def environment(machine: ExecutionPoint) -> PurePosixPath:
    """The file of what nobody else is to read."""
    return identity(machine.name) / "environment"


def _first() -> str:
    return f"""\
# What HTCondor's manual says of its configuration goes for Roost too. Files of this directory are read in the order of
# their names; a later one wins.
LOCAL_CONFIG_DIR = {LOCAL.parent}
LOCAL_DIR = {STATE}
"""


def _local(machine: ExecutionPoint) -> str:
    lines = [
        "# Written by `roost setup execution-point`, each time anew: your own settings go beside it.",
        f"STARTD.STARTD_NAME = {machine.name}",
    ]
    if machine.keys:
        lines.append(f"STARTD.ROOST_GATEWAY_KEYS = {machine.keys}")
    if machine.authority:
        lines.append(f"STARTD.AUTH_SSL_CLIENT_CAFILE = {AUTHORITY}")
    return "\n".join(lines) + "\n"


def unit(machine: ExecutionPoint) -> str:
    """Root starts it: only root gives each job an account, namespaces and limits of its own. It takes none of systemd's
    walls itself, as its jobs would live behind the same ones."""
    return f"""\
[Unit]
Description=Roost execution point (startd)
Wants=network-online.target
After=network-online.target time-sync.target docker.service
StartLimitIntervalSec=0

[Service]
Type=notify
NotifyAccess=main
ExecStart={machine.python} -m services.startd
ExecReload=/bin/kill -HUP $MAINPID
Environment=CONDOR_CONFIG={CONFIGURATION} PYTHONUNBUFFERED=1 PYTHONSAFEPATH=1
EnvironmentFile={environment(machine)}
WorkingDirectory=/
StateDirectory=condor
StateDirectoryMode=0755
UMask=0022
# It waits for the broker for as long as that takes.
TimeoutStartSec=infinity
TimeoutStopSec=40
WatchdogSec=60
Restart=always
RestartSec=1
RestartPreventExitStatus={_HOPELESS}
# Jobs outlive their startd, which finds them again: systemd ends the startd alone, and leaves their cgroups to it.
KillMode=process
SendSIGKILL=yes
Delegate=yes
TasksMax=infinity
OOMPolicy=continue
OOMScoreAdjust=-500

[Install]
WantedBy=multi-user.target
"""
