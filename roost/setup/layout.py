"""What every machine of a pool has, whatever it does there: where its configuration and its secrets lie, and what the
unit of a daemon says. Text only; roost.setup.machine writes it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Final

ETC: Final = PurePosixPath("/etc/condor")
CONFIGURATION: Final = ETC / "condor_config"
LOCAL: Final = ETC / "config.d"
AUTHORITY: Final = ETC / "pool-ca.pem"
IDENTITIES: Final = ETC / "identities"
STATE: Final = PurePosixPath("/var/lib/condor")
UNITS: Final = PurePosixPath("/etc/systemd/system")
#: Exit statuses after which starting it again does not help: wrong arguments, wrong configuration.
_HOPELESS: Final = "2 78"


@dataclass(frozen=True, slots=True)
class File:
    """owner: account and group of the file, "account:group"; empty: whoever writes it. once: left alone where there is
    one."""

    path: PurePosixPath
    text: str
    mode: int = 0o644
    once: bool = False
    owner: str = ""


def first_configuration() -> File:
    """The file that every daemon of the machine begins with; one that is there stays."""
    return File(
        CONFIGURATION,
        f"""\
# What HTCondor's manual says of its configuration goes for Roost too. Files of this directory are read in the order of
# their names; a later one wins.
LOCAL_CONFIG_DIR = {LOCAL}
LOCAL_DIR = {STATE}
""",
        once=True,
    )


def local_configuration(kind: str, knobs: Iterable[tuple[str, object]]) -> File:
    """What `roost setup KIND` says to the daemons."""
    lines = [f"# Written by `roost setup {kind}`, each time anew: your own settings go beside it."]
    lines += [f"{name} = {value}" for name, value in knobs]
    return File(local_path(kind), "\n".join(lines) + "\n")


def local_path(kind: str) -> PurePosixPath:
    """Before the administrator's own files, which win."""
    return LOCAL / f"00-roost-{kind}"


def identity(role: str, name: str) -> PurePosixPath:
    """The directory of a daemon's user of the broker, where enrolling puts it."""
    return IDENTITIES / f"{role}.{name}"


def environment(role: str, name: str) -> PurePosixPath:
    """The file of what nobody else is to read."""
    return identity(role, name) / "environment"


def environment_file(role: str, name: str, url: str, store: str = "") -> File:
    """url: of the broker, with the daemon's password; store: of Redis, likewise, where it needs that."""
    lines = [f"ROOST_AMQP_URL={url}", *([f"ROOST_REDIS_URL={store}"] if store else [])]
    return File(environment(role, name), "\n".join(lines) + "\n", 0o600)


def unit_name(role: str) -> str:
    return f"roost-{role}.service"


def unit_file(role: str, text: str) -> File:
    return File(UNITS / unit_name(role), text)


def unit(
    role: str, words: str, start: str, environment: PurePosixPath, after: Sequence[str], lines: Sequence[str]
) -> str:
    """The unit of a daemon. words: what it is; start: its command; after: units that come before it; lines: what this
    one alone has in [Service]."""
    return f"""\
[Unit]
Description=Roost {words} ({role})
Wants=network-online.target
After={" ".join(("network-online.target", "time-sync.target", *after))}
StartLimitIntervalSec=0

[Service]
Type=notify
NotifyAccess=main
ExecStart={start}
ExecReload=/bin/kill -HUP $MAINPID
Environment=CONDOR_CONFIG={CONFIGURATION} PYTHONUNBUFFERED=1 PYTHONSAFEPATH=1
EnvironmentFile={environment}
WorkingDirectory=/
# It waits for the broker for as long as that takes.
TimeoutStartSec=infinity
TimeoutStopSec=40
WatchdogSec=60
Restart=always
RestartSec=1
RestartPreventExitStatus={_HOPELESS}
{_lines(lines)}
[Install]
WantedBy=multi-user.target
"""


def _lines(lines: Sequence[str]) -> str:
    return "".join(f"{line}\n" for line in lines)


def walls(account: str, state: str) -> list[str]:
    """Lines of the unit of a daemon that runs no jobs: an account of its own, and nothing of the machine but what it
    needs. state: its directory below /var/lib."""
    return [
        f"User={account}",
        f"Group={account}",
        f"StateDirectory={state}",
        "StateDirectoryMode=0750",
        "UMask=0077",
        "LimitNOFILE=65536",
        "CapabilityBoundingSet=",
        "NoNewPrivileges=yes",
        # Not strict: HISTORY, EVENT_LOG and the like may name places beside its own.
        "ProtectSystem=full",
        "ProtectHome=yes",
        "PrivateTmp=yes",
        "PrivateDevices=yes",
        "ProtectClock=yes",
        "ProtectControlGroups=yes",
        "ProtectKernelLogs=yes",
        "ProtectKernelModules=yes",
        "ProtectKernelTunables=yes",
        "RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6 AF_NETLINK",
        "RestrictNamespaces=yes",
        "RestrictRealtime=yes",
        "RestrictSUIDSGID=yes",
        "LockPersonality=yes",
        "SystemCallArchitectures=native",
    ]


def domain_of(host: str) -> str:
    """The domain that users have where nobody names one: that of this host, or itself."""
    domain = host.partition(".")[2]
    return domain if domain and not host.replace(".", "").isdigit() and ":" not in host else host
