"""What a machine needs to be an access point: the configuration of its schedd, the certificate by which execution
points know it, the unit by which systemd starts it, and where the commands of its users find the pool. Text only;
roost.setup.machine writes it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Final

from roost.setup import layout
from roost.setup.layout import AUTHORITY, ETC, File

KIND: Final = "access-point"
ROLE: Final = "schedd"
UNIT: Final = layout.unit_name(ROLE)
#: An account of its own: where the central manager is on the same machine, it reads nothing of that.
ACCOUNT: Final = "condor-schedd"
STATE: Final = PurePosixPath("/var/lib/roost-schedd")
CERTIFICATE: Final = ETC / "access-point" / "server.pem"
KEYS: Final = ETC / "access-point" / "gateways.pem"
PROFILE: Final = PurePosixPath("/etc/profile.d/roost.sh")
#: Where execution points and gateways fetch and bring files of jobs.
PORT: Final = 9681


@dataclass(frozen=True, slots=True)
class AccessPoint:
    """name: of the schedd in the pool, by which other machines reach this one too. python: the interpreter that Roost
    is installed for. pool: URL of the gateway, for the commands of users; empty: theirs to say, or this machine's own.
    uid_domain: that of all users. authority: whether the pool's certificates are of an authority of its own."""

    name: str
    python: str
    pool: str
    uid_domain: str
    authority: bool = False


def files(machine: AccessPoint, url: str, certificate: str, keys: str) -> list[File]:
    """All that is written, in order. url: of the broker, with the schedd's password; certificate: PEM of its
    certificate, those above it, and its key; keys: public keys of the gateways, in PEM."""
    return [
        layout.first_configuration(),
        _local(machine, keys=bool(keys)),
        *([File(KEYS, keys)] if keys else []),
        File(CERTIFICATE, certificate, 0o400, owner=f"{ACCOUNT}:{ACCOUNT}"),
        layout.environment_file(ROLE, machine.name, url),
        *([_profile(machine)] if machine.pool else []),
        layout.unit_file(ROLE, unit(machine)),
    ]


def _local(machine: AccessPoint, *, keys: bool) -> File:
    knobs: list[tuple[str, object]] = [
        ("UID_DOMAIN", machine.uid_domain),
        ("SCHEDD.SCHEDD_NAME", machine.name),
        ("SCHEDD.SPOOL", STATE / "spool"),
        ("SCHEDD.AUTH_SSL_SERVER_CERTFILE", CERTIFICATE),
        ("SCHEDD.ROOST_SCHEDD_TRANSFER_HOST", machine.name),
        ("SCHEDD.ROOST_SCHEDD_TRANSFER_PORT", PORT),
    ]
    if keys:
        knobs.append(("SCHEDD.ROOST_GATEWAY_KEYS", KEYS))
    if machine.authority:
        knobs.append(("AUTH_SSL_CLIENT_CAFILE", AUTHORITY))
    return layout.local_configuration(KIND, knobs)


def _profile(machine: AccessPoint) -> File:
    text = f"""\
# Written by `roost setup {KIND}`: where commands find the pool, for users who name none themselves.
export ROOST_URL="${{ROOST_URL:-{machine.pool}}}"
"""
    return File(PROFILE, text)


def unit(machine: AccessPoint) -> str:
    lines = (
        *layout.walls(ACCOUNT, STATE.name),
        "# Programs of the scheduler universe outlive their schedd, which finds them again.",
        "KillMode=process",
        "SendSIGKILL=yes",
    )
    start = f"{machine.python} -m services.schedd"
    return layout.unit(ROLE, "access point", start, layout.environment(ROLE, machine.name), (), lines)
