"""DOCKER_EXTRA_ARGUMENTS: arguments of `docker create`, as the engine's interface has them (DKR-09). Pure.

There is no command line to append them to, so a table says what each option is in the body of the engine's
`POST /containers/create`. They come after our own, as HTCondor appends them: a single value replaces ours, a list is
added to.

| option | is |
|---|---|
| one value: --cpuset-cpus, --user, --ipc, --runtime, --shm-size, ... | put in its place |
| a list: --cap-add, --device, --dns, --volume, --ulimit, ... | added to the list |
| a map: --label, --sysctl, --tmpfs, --log-opt, --storage-opt | added to the map |
| --mount, --gpus, --network | as the command reads them |
| --name, --workdir, --rm, --detach, ... | refused: they are ours |
"""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

from shared.job_text import BadJobText, arguments, quoted

Body = dict[str, Any]


class BadArguments(ValueError):
    """An argument that can not be carried out: which, where, and the mend."""


@dataclass(frozen=True, slots=True)
class Additions:
    """Options in their order, each with the path in the body, how it gets there, and the value."""

    entries: tuple[tuple[tuple[str, ...], str, Any], ...] = ()

    def apply(self, body: Mapping[str, Any]) -> Body:
        """The body with the additions; the given one stays as it is."""
        made = deepcopy(dict(body))
        for path, how, value in self.entries:
            place = made
            for step in path[:-1]:
                place = place.setdefault(step, {})
            _put(place, path[-1], how, value)
        return made


def _put(place: Body, key: str, how: str, value: Any) -> None:
    if how == "list":
        place[key] = [*(place.get(key) or []), value]
    elif how == "map":
        place[key] = {**(place.get(key) or {}), value[0]: value[1]}
    else:
        place[key] = value


# ---------------------------------------------------------------- values

_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([bkmgt]?)(?:i?b)?", re.IGNORECASE)
_UNITS = {"": 1, "b": 1, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}


def _text(value: str) -> str:
    if not value:
        raise BadArguments("it needs a value")
    return value


def _whole(value: str) -> int:
    if not re.fullmatch(r"-?\d{1,18}", value):
        raise BadArguments(f"{value!r} is no whole number")
    return int(value)


def _size(value: str) -> int:
    found = _SIZE.fullmatch(value.strip())
    if found is None:
        raise BadArguments(f"{value!r} is no size: write bytes, or a number with k, m or g")
    return int(float(found[1]) * _UNITS[found[2].lower()])


def _size_or_all(value: str) -> int:
    return -1 if value == "-1" else _size(value)


def _nano_cpus(value: str) -> int:
    if not re.fullmatch(r"\d{1,6}(\.\d{1,9})?", value):
        raise BadArguments(f"{value!r} is no number of cores")
    return round(float(value) * 1e9)


def _flag(value: str) -> bool:
    if value.lower() not in ("true", "false", "1", "0", "t", "f"):
        raise BadArguments(f"{value!r} is neither true nor false")
    return value.lower() in ("true", "1", "t")


def _pair(value: str) -> tuple[str, str]:
    name, _, text = value.partition("=")
    return _text(name), text


def _variable(value: str) -> str:
    name, equals, _ = value.partition("=")
    if not name or not equals:
        raise BadArguments(f"{value!r}: write NAME=value; there is no environment of a command to take it from")
    return value


def _tmpfs(value: str) -> tuple[str, str]:
    path, _, options = value.partition(":")
    return _text(path), options


def _device(value: str) -> Body:
    parts = _text(value).split(":")
    rights = "rwm"
    if len(parts) > 1 and re.fullmatch(r"[rwm]{1,3}", parts[-1]):
        rights = parts.pop()
    if len(parts) > 2:
        raise BadArguments(f"{value!r}: write host[:inside[:rwm]]")
    return {"PathOnHost": parts[0], "PathInContainer": parts[-1], "CgroupPermissions": rights}


def _ulimit(value: str) -> Body:
    found = re.fullmatch(r"([a-z]+)=(-?\d{1,18})(?::(-?\d{1,18}))?", value)
    if found is None:
        raise BadArguments(f"{value!r}: write name=soft[:hard]")
    soft = int(found[2])
    return {"Name": found[1], "Soft": soft, "Hard": int(found[3]) if found[3] else soft}


def _rate(value: str) -> Body:
    path, _, rate = value.rpartition(":")
    return {"Path": _text(path), "Rate": _size(rate)}


def _weight(value: str) -> Body:
    path, _, weight = value.rpartition(":")
    return {"Path": _text(path), "Weight": _whole(weight)}


def _bind(value: str) -> str:
    parts = value.split(":")
    if not 2 <= len(parts) <= 3 or not parts[1].startswith("/"):
        raise BadArguments(f"{value!r}: write host:inside[:options]")
    return value


def _log_driver(value: str) -> str:
    if value not in ("json-file", "local", "journald"):
        raise BadArguments(f"{value!r}: a job's output is read from the log, so take json-file, local or journald")
    return value


def _fields(value: str) -> dict[str, str]:
    """`a=1,"b=2,3",c` as --mount and --gpus have it."""
    try:
        (row,) = csv.reader([value], strict=True)
    except (ValueError, csv.Error) as error:
        raise BadArguments(f"{value!r}: {error}") from error
    return {name.strip().lower(): text for name, _, text in (field.partition("=") for field in row)}


def _mount(value: str) -> Body:
    fields = _fields(_text(value))
    kind = fields.pop("type", "volume")
    body: Body = {"Type": kind}
    for names, key in ((("source", "src"), "Source"), (("target", "destination", "dst"), "Target")):
        for name in names:
            if name in fields:
                body[key] = fields.pop(name)
    for name in ("readonly", "ro"):
        if name in fields:
            body["ReadOnly"] = _flag(fields.pop(name) or "true")
    if kind == "bind" and "bind-propagation" in fields:
        body["BindOptions"] = {"Propagation": fields.pop("bind-propagation")}
    if kind == "tmpfs" and "tmpfs-size" in fields:
        body["TmpfsOptions"] = {"SizeBytes": _size(fields.pop("tmpfs-size"))}
    if fields or kind not in ("bind", "volume", "tmpfs") or "Target" not in body:
        wrong = ", ".join(fields) or f"type={kind}, target={body.get('Target', '')}"
        raise BadArguments(f"{value!r}: not understood: {wrong}")
    return body


def _gpus(value: str) -> Body:
    request: Body = {"Driver": "", "Capabilities": [["gpu"]]}
    fields = {"count": value} if re.fullmatch(r"all|\d+", value) else _fields(_text(value))
    if "device" in fields:
        request["DeviceIDs"] = fields.pop("device").split(",")
    else:
        count = fields.pop("count", "all")
        request["Count"] = -1 if count == "all" else _whole(count)
    if "capabilities" in fields:
        request["Capabilities"] = [["gpu", *fields.pop("capabilities").split(",")]]
    if "driver" in fields:
        request["Driver"] = fields.pop("driver")
    if fields:
        raise BadArguments(f"{value!r}: not understood: {', '.join(fields)}")
    return request


# ---------------------------------------------------------------- the table


@dataclass(frozen=True, slots=True)
class _Option:
    path: tuple[str, ...]
    read: Callable[[str], Any] = _text
    how: str = "value"  # value, list, map

    @property
    def is_flag(self) -> bool:
        return self.read is _flag


def _host(name: str, read: Callable[[str], Any] = _text, how: str = "value") -> _Option:
    return _Option(("HostConfig", name), read, how)


def _own(name: str, read: Callable[[str], Any] = _text, how: str = "value") -> _Option:
    return _Option((name,), read, how)


OPTIONS: Mapping[str, _Option] = {
    "--add-host": _host("ExtraHosts", how="list"),
    "--blkio-weight": _host("BlkioWeight", _whole),
    "--blkio-weight-device": _host("BlkioWeightDevice", _weight, "list"),
    "--cap-add": _host("CapAdd", how="list"),
    "--cap-drop": _host("CapDrop", how="list"),
    "--cgroup-parent": _host("CgroupParent"),
    "--cgroupns": _host("CgroupnsMode"),
    "--cpu-period": _host("CpuPeriod", _whole),
    "--cpu-quota": _host("CpuQuota", _whole),
    "--cpu-rt-period": _host("CpuRealtimePeriod", _whole),
    "--cpu-rt-runtime": _host("CpuRealtimeRuntime", _whole),
    "--cpu-shares": _host("CpuShares", _whole),
    "--cpus": _host("NanoCpus", _nano_cpus),
    "--cpuset-cpus": _host("CpusetCpus"),
    "--cpuset-mems": _host("CpusetMems"),
    "--device": _host("Devices", _device, "list"),
    "--device-cgroup-rule": _host("DeviceCgroupRules", how="list"),
    "--device-read-bps": _host("BlkioDeviceReadBps", _rate, "list"),
    "--device-read-iops": _host("BlkioDeviceReadIOps", _rate, "list"),
    "--device-write-bps": _host("BlkioDeviceWriteBps", _rate, "list"),
    "--device-write-iops": _host("BlkioDeviceWriteIOps", _rate, "list"),
    "--dns": _host("Dns", how="list"),
    "--dns-option": _host("DnsOptions", how="list"),
    "--dns-search": _host("DnsSearch", how="list"),
    "--domainname": _own("Domainname"),
    "--env": _own("Env", _variable, "list"),
    "--gpus": _host("DeviceRequests", _gpus, "list"),
    "--group-add": _host("GroupAdd", how="list"),
    "--hostname": _own("Hostname"),
    "--init": _host("Init", _flag),
    "--ipc": _host("IpcMode"),
    "--label": _own("Labels", _pair, "map"),
    "--log-driver": _Option(("HostConfig", "LogConfig", "Type"), _log_driver),
    "--log-opt": _Option(("HostConfig", "LogConfig", "Config"), _pair, "map"),
    "--mac-address": _own("MacAddress"),
    "--memory": _host("Memory", _size),
    "--memory-reservation": _host("MemoryReservation", _size),
    "--memory-swap": _host("MemorySwap", _size_or_all),
    "--memory-swappiness": _host("MemorySwappiness", _whole),
    "--mount": _host("Mounts", _mount, "list"),
    "--network": _host("NetworkMode"),
    "--no-healthcheck": _Option(("Healthcheck", "Test"), _flag),
    "--oom-kill-disable": _host("OomKillDisable", _flag),
    "--oom-score-adj": _host("OomScoreAdj", _whole),
    "--pid": _host("PidMode"),
    "--pids-limit": _host("PidsLimit", _whole),
    "--privileged": _host("Privileged", _flag),
    "--read-only": _host("ReadonlyRootfs", _flag),
    "--runtime": _host("Runtime"),
    "--security-opt": _host("SecurityOpt", how="list"),
    "--shm-size": _host("ShmSize", _size),
    "--stop-signal": _own("StopSignal"),
    "--storage-opt": _host("StorageOpt", _pair, "map"),
    "--sysctl": _host("Sysctls", _pair, "map"),
    "--tmpfs": _host("Tmpfs", _tmpfs, "map"),
    "--ulimit": _host("Ulimits", _ulimit, "list"),
    "--user": _own("User"),
    "--userns": _host("UsernsMode"),
    "--uts": _host("UTSMode"),
    "--volume": _host("Binds", _bind, "list"),
    "--volumes-from": _host("VolumesFrom", how="list"),
}
_ALIASES = {
    "-c": "--cpu-shares",
    "-e": "--env",
    "-h": "--hostname",
    "-l": "--label",
    "-m": "--memory",
    "-u": "--user",
    "-v": "--volume",
    "--dns-opt": "--dns-option",
    "--net": "--network",
}
#: Ours to say, with the reason.
_REFUSED = {
    "--attach": "the job's streams are its files",
    "-a": "the job's streams are its files",
    "--cidfile": "the container is known by its label roost.run",
    "--detach": "the startd waits for the container",
    "-d": "the startd waits for the container",
    "--entrypoint": "the job's submit file says it (docker_override_entrypoint)",
    "--interactive": "the job's input is a file",
    "-i": "the job's input is a file",
    "--name": "a container's name follows from the run's",
    "--platform": "the image's platform is the machine's",
    "--publish": "a job's submit file says it (container_service_names)",
    "-p": "a job's submit file says it (container_service_names)",
    "--pull": "the job's submit file says it (docker_pull_policy)",
    "--restart": "a job is started again by its access point only",
    "--rm": "the startd removes the container when it knows how the job ended",
    "--tty": "a job has no terminal",
    "-t": "a job has no terminal",
    "--workdir": "a job starts in its scratch directory",
    "-w": "a job starts in its scratch directory",
}


def read_arguments(text: str) -> Additions:
    """What to add to every container. Words are separated by blanks; the new form of a job's arguments, with quotes, is
    understood when the whole is within double quotes. Raises BadArguments."""
    try:
        words = arguments(quoted(text), text)
    except BadJobText as error:
        raise BadArguments(str(error)) from error
    entries = []
    position = 0
    while position < len(words):
        place, word = position + 1, words[position]
        position += 1
        name, equals, value = word.partition("=")
        name = _ALIASES.get(name, name)
        option = OPTIONS.get(name)
        if option is None:
            raise BadArguments(_unknown(name, place))
        if option.is_flag and not equals:
            value = "true"
        elif not equals:
            if position == len(words):
                raise BadArguments(f"argument {place}, {name}, has no value: write {name}=VALUE")
            value = words[position]
            position += 1
        try:
            read = option.read(value)
        except BadArguments as error:
            raise BadArguments(f"argument {place}, {name}: {error}") from error
        if name == "--no-healthcheck":
            read = ["NONE"] if read else []
        entries.append((option.path, option.how, read))
    return Additions(tuple(entries))


def _unknown(name: str, place: int) -> str:
    if name in _REFUSED:
        return f"argument {place}, {name}, can not be given: {_REFUSED[name]}"
    if not name.startswith("-"):
        return f"argument {place}, {name!r}, is no option: an image and a command come from the job"
    near = [known for known in OPTIONS if known.startswith(name.rstrip("s")) or name.startswith(known)]
    hint = f" (is it {near[0]}?)" if near else ""
    return (
        f"argument {place}, {name}, is not known{hint}: take it out; docs/execution/containers.md lists what there is"
    )
