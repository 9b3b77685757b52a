"""From the knobs, the slot's ad and the job's to the body of the engine's `POST /containers/create`. Pure.

The knobs say which volumes, networks, rights and further arguments containers may have. Expressions are evaluated with
MY the slot's ad and TARGET the job's, as HTCondor does (spec rows DKR-04 to DKR-11).
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from services.startd.core.run.failures import Fault
from services.startd.core.run.job_launch import Choice, Launch
from services.startd.exec.container_request import REGISTRY, container_request, inside_path
from services.startd.exec.docker.credentials import credentials_mounts
from services.startd.exec.docker.engines import EngineFacts
from services.startd.exec.docker.extra_arguments import Additions, BadArguments, read_arguments
from shared.classad import UNDEFINED, ClassAd, Expr, evaluate
from shared.config.knobs import StartdSettings
from shared.errors import PermanentError

#: Networks that every machine with an engine has; `nat` is the engine's default one.
COMMON_NETWORKS = ("host", "none", "nat")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_ADDRESS = re.compile(r"unix:///\S+|tcp://\S+")
_NETWORK = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")


class BadDockerSetting(PermanentError):
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
class DockerSettings:
    """Seconds unless the name says otherwise."""

    enabled: bool
    host: str  # the engine's address; empty: where engines are found
    probe: float
    test: bool  # a probe also runs a container
    pull_silence: float
    execute_on_host: str  # EXECUTE as the engine's host sees it; empty: the same path
    user: str  # uid:gid of jobs in containers; empty: the startd's own, or nobody's when that is root
    volumes: tuple[Volume, ...]  # all that have a name
    mounted: tuple[str, ...]  # names of those that containers get
    networks: tuple[str, ...]
    init: bool  # an init of the engine's is the first process
    drop_capabilities: Expr
    shm_size: Expr | None  # bytes
    additions: Additions
    cached_images: int
    processes: int  # most of a container; 0: as many as the engine lets it have
    swap: bool


def read_docker_settings(knobs: StartdSettings) -> DockerSettings:
    """Raises BadDockerSetting."""
    host = (knobs.roost_docker_host or "").strip()
    if host and not _ADDRESS.fullmatch(host):
        raise BadDockerSetting(f"ROOST_DOCKER_HOST = {host}: write unix:///path/of/the.sock or tcp://host:port")
    volumes = tuple(_volume(name, knobs) for name in knobs.docker_volumes)
    known = {volume.name.lower() for volume in volumes}
    for name in knobs.docker_mount_volumes:
        if name.lower() not in known:
            raise BadDockerSetting(f"DOCKER_MOUNT_VOLUMES lists {name}, which DOCKER_VOLUMES does not: add it there")
    for name in knobs.docker_networks:
        if not _NETWORK.fullmatch(name):
            raise BadDockerSetting(
                f"DOCKER_NETWORKS lists {name!r}: write names of the engine's networks (docker network ls)"
            )
    try:
        additions = read_arguments(knobs.docker_extra_arguments or "")
    except BadArguments as error:
        raise BadDockerSetting(f"DOCKER_EXTRA_ARGUMENTS = {knobs.docker_extra_arguments}: {error}") from error
    return DockerSettings(
        enabled=knobs.roost_docker,
        host=host,
        probe=knobs.roost_docker_probe_interval,
        test=knobs.docker_perform_test,
        pull_silence=knobs.roost_docker_pull_timeout,
        execute_on_host=knobs.roost_execute_on_host or "",
        user=knobs.roost_docker_user or "",
        volumes=volumes,
        mounted=knobs.docker_mount_volumes,
        networks=knobs.docker_networks,
        init=knobs.docker_run_under_init,
        drop_capabilities=knobs.docker_drop_all_capabilities,
        shm_size=knobs.docker_shm_size,
        additions=additions,
        cached_images=knobs.docker_image_cache_size,
        processes=knobs.roost_job_max_processes,
        swap=not knobs.disable_swap_for_job,
    )


def _volume(name: str, knobs: StartdSettings) -> Volume:
    if not _NAME.fullmatch(name):
        raise BadDockerSetting(
            f"DOCKER_VOLUMES lists {name!r}: a name has letters, digits and _, for it becomes an attribute's"
        )
    text = (knobs.docker_volume_dir_by_name.get(name.lower()) or "").strip()
    knob = f"DOCKER_VOLUME_DIR_{name}"
    if not text:
        raise BadDockerSetting(f"DOCKER_VOLUMES lists {name}, but {knob} is not defined: give it host[:inside[:ro]]")
    parts = [part.strip() for part in text.split(":")]
    read_only = len(parts) == 3 and parts[2] == "ro"
    if len(parts) > 3 or (len(parts) == 3 and parts[2] not in ("ro", "rw")):
        raise BadDockerSetting(f"{knob} = {text}: write host[:inside[:ro]]")
    host, inside = parts[0], parts[1] if len(parts) > 1 else parts[0]
    for path in (host, inside):
        if not is_directory_name(path):
            raise BadDockerSetting(
                f"{knob} = {text}: {path or 'nothing'} is no absolute path other than / and without .."
            )
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


def volumes_for(rules: DockerSettings, machine: ClassAd, job: ClassAd) -> list[Volume]:
    """The volumes that this job's container gets (DKR-04, DKR-06): only TRUE mounts one that has a condition."""
    listed = {name.lower() for name in rules.mounted}
    return [
        volume
        for volume in rules.volumes
        if volume.name.lower() in listed
        and (volume.mount_if is None or evaluate(volume.mount_if, machine, job) is True)
    ]


def drops_capabilities(rules: DockerSettings, machine: ClassAd, job: ClassAd) -> bool:
    """DKR-08: everything but FALSE drops them; an expression that goes wrong must not give a job more rights."""
    value = evaluate(rules.drop_capabilities, machine, job)
    return not (value is False or (isinstance(value, int | float) and value == 0))


def shm_size(rules: DockerSettings, machine: ClassAd, job: ClassAd) -> int | None:
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


def network_mode(rules: DockerSettings, wanted: str) -> str:
    """The engine's name of the network that a job asks for; empty: its default one (DKR-10). Raises BadRequest."""
    if not wanted or wanted.lower() == "nat":
        return ""
    if wanted.lower() in COMMON_NETWORKS:
        return wanted.lower()
    if wanted in rules.networks:
        return wanted
    offered = ", ".join((*COMMON_NETWORKS, *rules.networks))
    raise BadRequest(f"docker_network_type = {wanted}: this machine offers {offered}")


def gateway_of(network: Mapping[str, Any]) -> str:
    """The address of its host in a network, as the engine tells of it; empty: it has none of version 4."""
    addresses = (network.get("IPAM") or {}).get("Config") or []
    found = (one.get("Gateway", "").partition("/")[0] for one in addresses)
    return next((one for one in found if one and ":" not in one), "")


def docker_attributes(rules: DockerSettings, missing: Collection[str] = ()) -> dict[str, object]:
    """What of the rules jobs may match by (DKR-05, DKR-10). missing: networks that turned out not to be there."""
    found: dict[str, object] = {f"HasDockerVolume{volume.name}": True for volume in rules.volumes}
    networks = [name for name in rules.networks if name not in missing]
    if networks:
        found["DockerNetworks"] = ", ".join(networks)
    return found


#: Labels of every container of ours: whose it is, and which run's.
STARTD_LABEL, RUN_LABEL = "roost.startd", "roost.run"
#: What an engine may call a service's port once the container runs: `<name>_HostPort` of the job.
HOST_PORT = "_HostPort"
PULL_POLICIES = ("missing", "always", "never")
_MIB = 2**20


@dataclass(frozen=True, slots=True)
class ContainerPlan:
    """One job's container. services: name of each, and its port inside."""

    body: dict[str, Any]
    services: Mapping[str, int] = field(default_factory=dict)
    pull: str = "missing"
    image_id: str = ""  # where it is known
    #: Limits that the startd puts on the container's first process itself, by their names without RLIMIT_.
    rlimits: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Limits:
    """What keeps jobs within bounds where an engine does not, or wants it said in another way: numbers of RLIMIT_NOFILE
    and RLIMIT_NPROC."""

    files: int
    processes: int  # of an account
    running: int  # processes that the machine has: never fewer than one account has


def make_plan(
    launch: Launch,
    rules: DockerSettings,
    startd: str,
    scratch_on_host: str,
    user: str,
    groups: list[str],
    *,
    facts: EngineFacts,
    limits: Limits,
) -> ContainerPlan:
    """scratch_on_host: the scratch directory as the engine's host sees it. user: uid:gid of the job, with its further
    groups. limits: this process's own, for an engine that is Podman or has no control groups. Raises BadRequest."""
    job, machine = launch.job_ad, launch.machine_ad
    scratch = str(launch.scratch)
    target = _target(job.eval_string("ContainerTargetDir"))

    def inside(path: str) -> str:
        return inside_path(path, scratch, target)

    mounts: list[dict[str, Any]] = [{"Type": "bind", "Source": scratch_on_host, "Target": target or scratch}]
    for volume in volumes_for(rules, machine, job):
        mounts.append({"Type": "bind", "Source": volume.host, "Target": volume.inside, "ReadOnly": volume.read_only})
    mounts += credentials_mounts(launch, inside)
    network = network_mode(rules, launch.network)
    services = _services(launch, network)
    host: dict[str, Any] = {
        "Mounts": mounts,
        "Init": rules.init,
        # Nothing of the output may be lost to the engine's own limit on logs.
        "LogConfig": {"Type": "json-file", "Config": {"max-size": "1000t"}},
    }
    if facts.limits("memory"):
        host["Memory"] = launch.memory_mib * _MIB
        if not rules.swap:
            host["MemorySwap"] = host["Memory"]
    if facts.limits("cpus"):
        host |= {"NanoCpus": int(launch.cpus * 1e9), "CpuShares": max(2, int(100 * launch.cpus))}
    if launch.cores and facts.binds:
        host["CpusetCpus"] = ",".join(map(str, launch.cores))
    if rules.processes and facts.limits("processes"):
        host["PidsLimit"] = rules.processes
    if network:
        host["NetworkMode"] = network
    if groups:
        host["GroupAdd"] = groups
    if drops_capabilities(rules, machine, job):
        host |= {"CapDrop": ["ALL"], "SecurityOpt": ["no-new-privileges"]}
    if (size := shm_size(rules, machine, job)) is not None:
        host["ShmSize"] = size
    if devices := _devices(launch.env):
        host["DeviceRequests"] = [{"Driver": "", "DeviceIDs": devices, "Capabilities": [["gpu"]]}]
    ulimits = _ulimits(launch, rules, facts, limits)
    if ulimits and not facts.forgets_ulimits:
        host["Ulimits"] = [{"Name": name, "Soft": most, "Hard": most} for name, most in ulimits.items()]
    body: dict[str, Any] = {
        "Image": launch.image,
        "Env": [f"{name}={inside(value)}" for name, value in launch.env.items()],
        "WorkingDir": inside(launch.cwd),
        "User": user,
        "Labels": {**launch.labels, STARTD_LABEL: startd, RUN_LABEL: launch.run},
        "OpenStdin": bool(launch.stdin),
        "StdinOnce": bool(launch.stdin),
        "AttachStdin": bool(launch.stdin),
        "AttachStdout": bool(launch.stdout),
        "AttachStderr": bool(launch.stderr),
        "Tty": False,
        "HostConfig": host,
    }
    words = [inside(launch.argv[0]), *launch.argv[1:]] if launch.executable else list(launch.argv)
    if launch.executable and job.eval("DockerOverrideEntrypoint") is True:
        body["Entrypoint"], words = words[:1], words[1:]
    if words:
        body["Cmd"] = words
    if services:
        ports = {f"{port}/tcp": [{"HostIp": "", "HostPort": ""}] for port in services.values()}
        body["ExposedPorts"] = {name: {} for name in ports}
        host["PortBindings"] = ports
    return ContainerPlan(
        rules.additions.apply(body),
        services,
        _pull_policy(job.eval_string("DockerPullPolicy")),
        rlimits=ulimits if facts.forgets_ulimits else {},
    )


def _ulimits(launch: Launch, rules: DockerSettings, facts: EngineFacts, limits: Limits) -> dict[str, int]:
    found: dict[str, int] = {}
    for name in ("core", "stack"):
        if (limit := launch.limits.get(f"RLIMIT_{name.upper()}")) is not None:
            found[name] = limit
    if facts.podman and found and not facts.rootless:
        # Podman gives containers with any limit of their own as many files and processes as there can be, which not
        # every root may: no more than this process may have.
        found |= {"nofile": limits.files, "nproc": limits.processes}
    if rules.processes and not facts.limits("processes"):
        found["nproc"] = min(limits.processes, limits.running + rules.processes)
    return found


def _target(path: str) -> str:
    if path and not is_directory_name(path):
        raise BadRequest(f"container_target_dir = {path}: write an absolute path other than / and without .. in it")
    return posixpath.normpath(path) if path else ""


def _pull_policy(text: str) -> str:
    policy = text.strip().lower() or "missing"
    if policy not in PULL_POLICIES:
        raise BadRequest(f"docker_pull_policy = {text}: write {', '.join(PULL_POLICIES)}")
    return policy


def _services(launch: Launch, network: str) -> dict[str, int]:
    """Ports that others reach from outside, by the names the job gives them (container_service_names)."""
    job = launch.job_ad
    names = [name for name in job.eval_string("ContainerServiceNames").replace(",", " ").split() if name]
    found = {}
    for name in names:
        port = job.eval(f"{name}_ContainerPort")
        if isinstance(port, bool) or not isinstance(port, int) or not 0 < port < 2**16:
            raise BadRequest(f"container service {name} has no port: set {name}_container_port to 1 ... 65535")
        found[name] = port
    if found and network in ("host", "none"):
        raise BadRequest(
            f"container services have no ports of their own on docker_network_type = {network}: leave one of them out"
        )
    return found


def _devices(env: Mapping[str, str]) -> list[str]:
    """The engine's names of the GPUs that the slot has: uuids, or numbers."""
    given = env.get("NVIDIA_VISIBLE_DEVICES") or env.get("_CONDOR_AssignedGPUs") or ""
    names = [name.strip() for name in given.split(",") if name.strip()]
    if names in (["none"], ["void"], ["10000"]):  # what stands there for no GPU at all
        return []
    return [name.removeprefix("CUDA") if name.removeprefix("CUDA").isdigit() else name for name in names]


def host_ports(plan: ContainerPlan, ports: Mapping[str, Any]) -> dict[str, int]:
    """Attributes of the job that tell where its services are, from NetworkSettings.Ports of the engine's answer."""
    found = {}
    for name, port in plan.services.items():
        bound = ports.get(f"{port}/tcp") or []
        numbers = [int(one["HostPort"]) for one in bound if str(one.get("HostPort", "")).isdigit()]
        if numbers:
            found[f"{name}{HOST_PORT}"] = numbers[0]
    return found


def choose_docker(job: ClassAd, machine: ClassAd, settings: DockerSettings) -> Choice | None:
    """Whether Docker runs the job. Raises RunFailed."""
    request = container_request(job)
    if request.wants_docker:
        image = request.docker_image or request.image
        if not image:
            raise Fault.NO_IMAGE.failure("the job wants Docker but names no image: set docker_image")
        return Choice("docker", image.removeprefix(REGISTRY))
    if not request.wants_container:
        return None
    if not request.image and not request.docker_image:
        raise Fault.NO_IMAGE.failure("the job wants a container but names no image: set container_image")
    if not request.registry_image:
        return None
    if machine.eval("HasSingularity") is True and machine.eval("HasDocker") is not True:
        return None
    return Choice("docker", request.registry_image)
