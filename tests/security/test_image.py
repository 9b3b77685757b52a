"""What the image of the compose pool is made of, and what it leaves out."""

import json
from urllib.parse import unquote

from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

from tests.containers.pool import ComposePool

INSTALLED = "from importlib.metadata import distributions\nfor d in distributions(): print(d.name, d.version)"


def inside(pool: ComposePool, *command: str) -> str:
    done = pool.container("collector").exec_run(list(command))
    assert done.exit_code == 0, done.output
    return done.output.decode()


def installed(pool: ComposePool) -> dict[str, str]:
    """Python distributions in the image: versions by name."""
    return dict(line.split() for line in inside(pool, "python3", "-c", INSTALLED).splitlines())


def test_the_image_tells_all_its_parts(compose_pool: ComposePool):
    text = inside(compose_pool, "cat", "/usr/share/roost/sbom.cdx.json")
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(text) is None
    told = {part["purl"] for part in json.loads(text)["components"]}
    assert all(part["version"] for part in json.loads(text)["components"])
    python = installed(compose_pool)
    assert {"roost-pool", "aio-pika", "redis", "docker"} <= set(python)
    told_python = {purl.removeprefix("pkg:pypi/") for purl in told if purl.startswith("pkg:pypi/")}
    assert told_python == {f"{name.lower().replace('_', '-')}@{version}" for name, version in python.items()}
    packages = inside(compose_pool, "dpkg-query", "-W", "-f", "${Package} ${db:Status-Abbrev}\n").splitlines()
    there = {line.split()[0] for line in packages if line.split()[1] == "ii"}
    told_debian = {purl.removeprefix("pkg:deb/debian/").partition("@")[0] for purl in told if "pkg:deb/" in purl}
    assert {unquote(name) for name in told_debian} == there


def test_no_tool_of_builds_or_tests_is_in_the_image(compose_pool: ComposePool):
    names = {name.lower() for name in installed(compose_pool)}
    assert not names & {"pip", "setuptools", "wheel", "pytest", "mypy", "ruff", "hypothesis", "uv", "htcondor"}
    assert not names & {"cyclonedx-python-lib", "schemathesis", "playwright"}
    found = inside(compose_pool, "sh", "-c", "for c in pip gcc cc make git curl wget; do command -v $c; done; true")
    assert found.split() == []


def test_daemons_can_write_nothing_of_the_image(compose_pool: ComposePool):
    for folder in ("/opt/roost", "/usr", "/etc", "/var/lib/roost"):
        refused = compose_pool.container("collector").exec_run(["touch", f"{folder}/x"])
        assert refused.exit_code == 1
        assert b"Read-only file system" in refused.output or b"Permission denied" in refused.output
