"""From a launch and the rules to the body of the engine's `POST /containers/create`. Pure."""

from __future__ import annotations

import posixpath
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from services.startd.launchers.api import Launch
from services.startd.launchers.apptainer.plan import inside_path
from services.startd.launchers.docker.rules import (
    BadRequest,
    Rules,
    drops_capabilities,
    is_directory_name,
    network_mode,
    shm_size,
    volumes_for,
)

#: Labels of every container of ours: whose it is, and which run's.
STARTD_LABEL, RUN_LABEL = "roost.startd", "roost.run"
#: What an engine may call a service's port once the container runs: `<name>_HostPort` of the job.
HOST_PORT = "_HostPort"
PULL_POLICIES = ("missing", "always", "never")
_MIB = 2**20


@dataclass(frozen=True, slots=True)
class Plan:
    """One job's container. services: name of each, and its port inside."""

    body: dict[str, Any]
    services: Mapping[str, int] = field(default_factory=dict)
    pull: str = "missing"
    image_id: str = ""  # where it is known


def make_plan(launch: Launch, rules: Rules, startd: str, scratch_on_host: str, user: str, groups: list[str]) -> Plan:
    """scratch_on_host: the scratch directory as the engine's host sees it. user: uid:gid of the job, with its further
    groups. Raises BadRequest."""
    job, machine = launch.job_ad, launch.machine_ad
    scratch = str(launch.scratch)
    target = _target(job.eval_string("ContainerTargetDir"))

    def inside(path: str) -> str:
        return inside_path(path, scratch, target)

    mounts: list[dict[str, Any]] = [{"Type": "bind", "Source": scratch_on_host, "Target": target or scratch}]
    for volume in volumes_for(rules, machine, job):
        mounts.append({"Type": "bind", "Source": volume.host, "Target": volume.inside, "ReadOnly": volume.read_only})
    network = network_mode(rules, launch.network)
    services = _services(launch, network)
    host: dict[str, Any] = {
        "Mounts": mounts,
        "Init": True,
        "Memory": launch.memory_mib * _MIB,
        "NanoCpus": int(launch.cpus * 1e9),
        "CpuShares": max(2, int(100 * launch.cpus)),
        # Nothing of the output may be lost to the engine's own limit on logs.
        "LogConfig": {"Type": "json-file", "Config": {"max-size": "1000t"}},
    }
    if not rules.swap:
        host["MemorySwap"] = host["Memory"]
    if rules.processes:
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
    if "RLIMIT_CORE" in launch.limits:
        core = launch.limits["RLIMIT_CORE"]
        host["Ulimits"] = [{"Name": "core", "Soft": core, "Hard": core}]
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
    return Plan(rules.additions.apply(body), services, _pull_policy(job.eval_string("DockerPullPolicy")))


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


def host_ports(plan: Plan, ports: Mapping[str, Any]) -> dict[str, int]:
    """Attributes of the job that tell where its services are, from NetworkSettings.Ports of the engine's answer."""
    found = {}
    for name, port in plan.services.items():
        bound = ports.get(f"{port}/tcp") or []
        numbers = [int(one["HostPort"]) for one in bound if str(one.get("HostPort", "")).isdigit()]
        if numbers:
            found[f"{name}{HOST_PORT}"] = numbers[0]
    return found
