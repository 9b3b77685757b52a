"""ping, send_command, versions, and functions for daemons' children, which are refused."""

from __future__ import annotations

import platform as machine
from typing import Any

from roost_htcondor import API_VERSION
from roost_htcondor.class_ad import ClassAd
from roost_htcondor.constants import DaemonCommand
from roost_htcondor.gateway import POOL, HTCondorException, SecurityContext, gateway, refuse, refused, subsystems_of
from shared.version import VERSION

#: From the least to the most.
_LEVELS = ("READ", "WRITE", "ADMINISTRATOR")
#: Order -> (path, further fields).
_ORDERS: dict[DaemonCommand, tuple[str, dict[str, Any]]] = {
    DaemonCommand.Reconfig: ("reconfig", {}),
    DaemonCommand.Restart: ("restart", {}),
    DaemonCommand.RestartPeaceful: ("restart", {}),
    DaemonCommand.OffGraceful: ("off", {"how": "graceful"}),
    DaemonCommand.OffPeaceful: ("off", {"how": "peaceful"}),
    DaemonCommand.OffFast: ("off", {"how": "fast"}),
}


def version() -> str:
    """The version of the interface, and Roost's."""
    return f"$CondorVersion: {API_VERSION} Roost {VERSION} $"


def platform() -> str:
    """Of this machine."""
    return f"$CondorPlatform: {machine.machine().upper()}-{machine.system()} $"


def ping(
    location: str | ClassAd | None = None, authz: str | None = None, security: SecurityContext | None = None
) -> ClassAd:
    """What the gateway takes this program for. location: an ad of `Collector.locate`, or the gateway's address; authz:
    READ, WRITE, ...: a level that the token must have. Raises HTCondorException."""
    pool = location.get(POOL) if isinstance(location, ClassAd) else location
    with gateway(pool, security) as client:
        told = client.whoami()
    user, level = str(told["user"]), str(told["level"])
    if authz is not None:
        wanted = authz.upper()
        if wanted not in _LEVELS:
            raise ValueError(f"{authz} is none of {', '.join(_LEVELS)}")
        if level not in _LEVELS or _LEVELS.index(level) < _LEVELS.index(wanted):
            raise HTCondorException(f"{user} has {level} here, and not {wanted}")
    return ClassAd({"MyRemoteUserName": user, "Authorization": level})


def send_command(ad: ClassAd, dc: DaemonCommand, target: str | None = None) -> None:
    """Reconfigure, restart or switch off the daemon of an ad. Raises HTCondorException."""
    command = DaemonCommand(dc)
    if target is not None:
        refuse("a target behind a daemon", "every daemon is ordered by its own ad")
    if command not in _ORDERS:
        refuse(f"DaemonCommand.{command.name}", "`roost on` and `roost off` take daemons' names")
    path, body = _ORDERS[command]
    with gateway(ad.get(POOL)) as client:
        whom = {"names": [str(ad["Name"])], "subsystems": subsystems_of(ad), "all": False, "constraint": ""}
        answers = client.order(f"/v1/daemons/{path}", {**whom, **body})
    for answer in answers:
        if not answer["done"]:
            raise HTCondorException(f"{ad['Name']}: {answer['said']}")
    if not answers:
        raise HTCondorException(f"no daemon {ad['Name']}")


class Placementd:
    """Refused: there is no such daemon."""

    def __init__(self, location: ClassAd | None = None) -> None:
        refuse("Placementd", "`roost token create` gives a user a token, and enrolling a machine its credentials")

    userLogin = refused("Placementd.userLogin", "`roost token create` gives a user a token")
    queryUsers = queryTokens = queryAuthorizations = userLogin


send_alive = refused("send_alive", "daemons tell by heartbeats on the bus that they live")
set_ready_state = refused("set_ready_state", "see send_alive")
reload_config_usermaps = refused("reload_config_usermaps", "reload_config reads everything again")
load_a_config_usermap_file = refused("load_a_config_usermap_file", "CLASSAD_USER_MAP_NAMES of the daemons names files")
