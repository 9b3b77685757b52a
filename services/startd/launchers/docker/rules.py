"""What the administrator lets containers have: volumes, networks, rights, further arguments, from knobs. Pure.

Expressions are evaluated with MY the slot's ad and TARGET the job's, as HTCondor does (spec rows DKR-04 to DKR-11).
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING

from services.startd.launchers.docker.arguments import Additions, BadArguments, read_arguments
from shared.classad import UNDEFINED, ClassAd, Expr, evaluate
from shared.errors import PermanentError

if TYPE_CHECKING:
    from shared.config.knobs import StartdSettings

#: Networks that every machine with an engine has; `nat` is the engine's default one.
COMMON_NETWORKS = ("host", "none", "nat")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_NETWORK = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")


class BadRule(PermanentError):
    """A knob says what can not be carried out: its name and the mend."""


class BadRequest(Exception):
    """The job asks for what this machine does not have, or can not be read."""


@dataclass(frozen=True, slots=True)
class Volume:
    """A directory of this machine, to be mounted into containers (DKR-04)."""

    name: str
    host: str
    inside: str
    read_only: bool = False
    mount_if: Expr | None = None  # none: always


@dataclass(frozen=True, slots=True)
class Rules:
    """Seconds unless the name says otherwise."""

    enabled: bool
    probe: float
    test: bool  # a probe also runs a container
    pull_silence: float
    execute_on_host: str  # EXECUTE as the engine's host sees it; empty: the same path
    user: str  # uid:gid of jobs in containers; empty: the startd's own, or nobody's when that is root
    volumes: tuple[Volume, ...]  # all that have a name
    mounted: tuple[str, ...]  # names of those that containers get
    networks: tuple[str, ...]
    drop_capabilities: Expr
    shm_size: Expr | None  # bytes
    additions: Additions
    cached_images: int
    processes: int  # most of a container; 0: as many as the engine lets it have
    swap: bool


def read_rules(knobs: StartdSettings) -> Rules:
    """Raises BadRule."""
    volumes = tuple(_volume(name, knobs) for name in knobs.docker_volumes)
    known = {volume.name.lower() for volume in volumes}
    for name in knobs.docker_mount_volumes:
        if name.lower() not in known:
            raise BadRule(f"DOCKER_MOUNT_VOLUMES lists {name}, which DOCKER_VOLUMES does not: add it there")
    for name in knobs.docker_networks:
        if not _NETWORK.fullmatch(name):
            raise BadRule(f"DOCKER_NETWORKS lists {name!r}: write names of the engine's networks (docker network ls)")
    try:
        additions = read_arguments(knobs.docker_extra_arguments or "")
    except BadArguments as error:
        raise BadRule(f"DOCKER_EXTRA_ARGUMENTS = {knobs.docker_extra_arguments}: {error}") from error
    return Rules(
        enabled=knobs.roost_docker,
        probe=knobs.roost_docker_probe_interval,
        test=knobs.docker_perform_test,
        pull_silence=knobs.roost_docker_pull_timeout,
        execute_on_host=knobs.roost_execute_on_host or "",
        user=knobs.roost_docker_user or "",
        volumes=volumes,
        mounted=knobs.docker_mount_volumes,
        networks=knobs.docker_networks,
        drop_capabilities=knobs.docker_drop_all_capabilities,
        shm_size=knobs.docker_shm_size,
        additions=additions,
        cached_images=knobs.docker_image_cache_size,
        processes=knobs.roost_job_max_processes,
        swap=not knobs.disable_swap_for_job,
    )


def _volume(name: str, knobs: StartdSettings) -> Volume:
    if not _NAME.fullmatch(name):
        raise BadRule(f"DOCKER_VOLUMES lists {name!r}: a name has letters, digits and _, for it becomes an attribute's")
    text = (knobs.docker_volume_dir_by_name.get(name.lower()) or "").strip()
    knob = f"DOCKER_VOLUME_DIR_{name}"
    if not text:
        raise BadRule(f"DOCKER_VOLUMES lists {name}, but {knob} is not defined: give it host[:inside[:ro]]")
    parts = [part.strip() for part in text.split(":")]
    read_only = len(parts) == 3 and parts[2] == "ro"
    if len(parts) > 3 or (len(parts) == 3 and parts[2] not in ("ro", "rw")):
        raise BadRule(f"{knob} = {text}: write host[:inside[:ro]]")
    host, inside = parts[0], parts[1] if len(parts) > 1 else parts[0]
    for path in (host, inside):
        if not is_directory_name(path):
            raise BadRule(f"{knob} = {text}: {path or 'nothing'} is no absolute path other than / and without ..")
    mount_if = knobs.docker_volume_dir_mount_if_by_name.get(name.lower())
    return Volume(name, posixpath.normpath(host), posixpath.normpath(inside), read_only, mount_if)


def is_directory_name(path: str) -> bool:
    """Whether a directory may be mounted there: absolute, not /, without .. and a zero byte."""
    parts = path.split("/")
    return (
        path.startswith("/")
        and any(parts)
        and ".." not in parts
        and "\0" not in path
        and posixpath.normpath(path) not in ("/", "//")
    )


# ---------------------------------------------------------------- one job


def volumes_for(rules: Rules, machine: ClassAd, job: ClassAd) -> list[Volume]:
    """The volumes that this job's container gets (DKR-04, DKR-06): only TRUE mounts one that has a condition."""
    listed = {name.lower() for name in rules.mounted}
    return [
        volume
        for volume in rules.volumes
        if volume.name.lower() in listed
        and (volume.mount_if is None or evaluate(volume.mount_if, machine, job) is True)
    ]


def drops_capabilities(rules: Rules, machine: ClassAd, job: ClassAd) -> bool:
    """DKR-08: everything but FALSE drops them; an expression that goes wrong must not give a job more rights."""
    value = evaluate(rules.drop_capabilities, machine, job)
    return not (value is False or (isinstance(value, int | float) and value == 0))


def shm_size(rules: Rules, machine: ClassAd, job: ClassAd) -> int | None:
    """Bytes of /dev/shm, or none for the engine's own default (DKR-11). Raises BadRequest for what is no size: the
    expression may stand on what the job says."""
    if rules.shm_size is None:
        return None
    value = evaluate(rules.shm_size, machine, job)
    if value is UNDEFINED:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 2**62:
        raise BadRequest(f"DOCKER_SHM_SIZE gives {value} for this job on this machine: it must be a number of bytes")
    return int(value)


def network_mode(rules: Rules, wanted: str) -> str:
    """The engine's name of the network that a job asks for; empty: its default one (DKR-10). Raises BadRequest."""
    if not wanted or wanted.lower() == "nat":
        return ""
    if wanted.lower() in COMMON_NETWORKS:
        return wanted.lower()
    if wanted in rules.networks:
        return wanted
    offered = ", ".join((*COMMON_NETWORKS, *rules.networks))
    raise BadRequest(f"docker_network_type = {wanted}: this machine offers {offered}")


def advertised(rules: Rules, missing: Collection[str] = ()) -> dict[str, object]:
    """What of the rules jobs may match by (DKR-05, DKR-10). missing: networks that turned out not to be there."""
    found: dict[str, object] = {f"HasDockerVolume{volume.name}": True for volume in rules.volumes}
    networks = [name for name in rules.networks if name not in missing]
    if networks:
        found["DockerNetworks"] = ", ".join(networks)
    return found
