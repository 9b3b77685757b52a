"""What compose/prepare.py makes for a pool, with directories of a test in place of volumes."""

import importlib.util
import sys
from functools import cache
from pathlib import Path
from types import ModuleType

import pytest
import yaml

COMPOSE = Path(__file__).parents[1] / "compose"
#: Where prepare has the volumes of all daemons, and each of them its own.
ALL, OWN = "/run/roost/keys/", "/run/roost/key"
MODULE = "services."


class Loader(yaml.SafeLoader):
    """Knows `!override` of the second file: what is given replaces instead of being added."""


Loader.add_constructor("!override", lambda loader, node: loader.construct_sequence(node))


@cache
def services(*, ha: bool) -> dict[str, dict]:
    """Those of a pool, with what they extend, as far as these tests look: volumes are added up, by their targets.
    Nobody changes what comes back."""
    found = yaml.load((COMPOSE / "compose.yaml").read_text(), Loader)["services"]
    if not ha:
        return dict(found)
    second = yaml.load((COMPOSE / "compose.ha.yaml").read_text(), Loader)["services"]
    whole = dict(found)
    for name, more in second.items():
        base = found[more["extends"]["service"] if "extends" in more else name]
        targets = {volume.split(":")[-2 if volume.endswith(":ro") else -1]: volume for volume in _volumes(base, more)}
        environment = {**(base.get("environment") or {}), **(more.get("environment") or {})}
        whole[name] = base | more | {"volumes": list(targets.values()), "environment": environment}
    return whole


def _volumes(*services: dict) -> list[str]:
    return [volume for service in services for volume in service.get("volumes", [])]


def volumes_of_prepare(*, ha: bool) -> dict[str, str]:
    """Directory below ALL -> volume."""
    mounts = [volume.split(":") for volume in services(ha=ha)["prepare"]["volumes"] if f":{ALL}" in volume]
    return {target.removeprefix(ALL): volume for volume, target in mounts}


def load(
    directory: Path, monkeypatch: pytest.MonkeyPatch, *, ha: bool = False, compose: bool = True, **environment: str
) -> ModuleType:
    """The program, with `directory` in place of the volumes' place. environment: of its service. compose: its volumes
    are there."""
    for name in ("SCHEME", "GATEWAY_HOSTS", "GATEWAY_ADDRESS", "GATEWAY_TLS", "CONSUMERS", "OUTSIDE_HOST"):
        monkeypatch.delenv(f"ROOST_{name}", raising=False)
    monkeypatch.setenv("ROOST_HA", "true" if ha else "")
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    spec = importlib.util.spec_from_file_location("prepare", COMPOSE / "prepare.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    for volume in volumes_of_prepare(ha=ha) if compose else ():
        (directory / volume).mkdir(exist_ok=True)
    monkeypatch.setattr(module, "KEYS", directory)
    # Other accounts take root, other directories a pool's machine; and nothing here outlives a crash.
    for name in ("chown", "fchown", "fsync"):
        monkeypatch.setattr(module.os, name, lambda *_: None)
    monkeypatch.setattr(module, "check_docker_group", lambda: None)
    monkeypatch.setattr(module, "share_execute_directory", lambda: None)
    return module


def load_for_kubernetes(directory: Path, monkeypatch: pytest.MonkeyPatch, **environment: str) -> ModuleType:
    """compose/kubernetes_secrets.py, with `directory` where prepare makes its files."""
    monkeypatch.setitem(sys.modules, "prepare", load(directory, monkeypatch, compose=False, **environment))
    spec = importlib.util.spec_from_file_location("kubernetes_secrets", COMPOSE / "kubernetes_secrets.py")
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "kubernetes_secrets", module)
    spec.loader.exec_module(module)
    return module


def knobs(directory: Path) -> dict[str, str]:
    """What a daemon's `config` says, with its directory where it is here."""
    lines = (directory / "config").read_text().splitlines()
    pairs = (line.split(" = ", 1) for line in lines if not line.startswith("#"))
    return {name: value.replace(OWN, str(directory)) for name, value in pairs}
