"""What the image of the compose pool is made of, and what it leaves out."""

import json
from urllib.parse import unquote

import pytest

from tests.containers.pool import DAEMONS, SERVERS, ComposePool
from tests.spec import spec

INSTALLED = "from importlib.metadata import distributions\nfor d in distributions(): print(d.name, d.version)"


def inside(pool: ComposePool, *command: str) -> str:
    done = pool.container("collector").exec_run(list(command))
    assert done.exit_code == 0, done.output
    return done.output.decode()


def found(pool: ComposePool, *expression: str) -> list[str]:
    """Files of the image for which find's expression is true, as seen by who sees all."""
    words = ("run", "--rm", "--network", "none", "--user", "0", "--entrypoint", "find", pool.env["ROOST_IMAGE"])
    return pool.engine.docker(*words, "/", "-xdev", *expression).split()


def installed(pool: ComposePool) -> dict[str, str]:
    """Python distributions in the image: versions by name."""
    return dict(line.split() for line in inside(pool, "python3", "-c", INSTALLED).splitlines())


def test_the_image_tells_all_its_parts(compose_pool: ComposePool):
    # Each worker reads this module, and to read these compiles a grammar for half a second.
    from cyclonedx.schema import SchemaVersion
    from cyclonedx.validation.json import JsonStrictValidator

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


def test_the_image_tells_its_interpreter(compose_pool: ComposePool):
    parts = json.loads(inside(compose_pool, "cat", "/usr/share/roost/sbom.cdx.json"))["components"]
    version = inside(compose_pool, "python3", "-c", "import platform; print(platform.python_version())").strip()
    assert [part["version"] for part in parts if part["purl"].startswith("pkg:generic/python@")] == [version]


def test_no_tool_of_builds_or_tests_is_in_the_image(compose_pool: ComposePool):
    names = {name.lower() for name in installed(compose_pool)}
    assert not names & {"pip", "setuptools", "wheel", "pytest", "mypy", "ruff", "hypothesis", "uv", "htcondor"}
    assert not names & {"cyclonedx-python-lib", "schemathesis", "playwright"}
    tools = inside(compose_pool, "sh", "-c", "for c in pip gcc cc make git curl wget; do command -v $c; done; true")
    assert tools.split() == []
    for module in ("ensurepip", "pip", "setuptools", "pytest", "test.regrtest", "tests"):
        done = compose_pool.container("collector").exec_run(["python3", "-c", f"import {module}"])
        assert b"ModuleNotFoundError" in done.output, module
    parts = ("-name", "*.whl", "-o", "-path", "/opt/*/tests", "-o", "-path", "/opt/*/test", "-o", "-name", "cc1*")
    assert found(compose_pool, *parts) == []


@spec("ISO-23")
def test_the_spawner_in_the_image_works_without_rights(compose_pool: ComposePool):
    code = "from services.startd.forkserver import build, native; native.start(str(build.PROGRAM)).close()"
    assert inside(compose_pool, "python3", "-c", code) == ""


def test_no_file_of_the_image_gives_rights_to_who_runs_it(compose_pool: ComposePool):
    assert found(compose_pool, "-type", "f", "-perm", "/6000") == []
    assert "/usr/bin/tini" in found(compose_pool, "-type", "f", "-perm", "/0111")  # it does look


def test_all_daemons_are_whole_in_the_image(compose_pool: ComposePool):
    """Nothing that was left out is needed."""
    modules = (
        *("collector", "negotiator", "schedd", "startd", "had", "gateway", "journal", "defrag", "rooster"),
        *("monitor", "adstash", "registrar"),
    )
    program = "".join(f"import services.{module}.daemon\n" for module in modules)
    inside(compose_pool, "python3", "-c", f"{program}import shared.daemon.load_functions, roost.cli, numpy.testing\n")


@pytest.mark.parametrize("service", [*SERVERS, *DAEMONS])
def test_a_container_runs_with_the_walls_of_its_file(service, compose_pool: ComposePool):
    """As the engine says it: what tests/unit/compose/test_hardening.py reads in the file has arrived."""
    container = compose_pool.container(service)
    host = container.attrs["HostConfig"]
    assert host["ReadonlyRootfs"] is True
    assert host["CapDrop"] == ["ALL"]
    assert not host["CapAdd"]
    assert not host["Privileged"]
    assert host["SecurityOpt"] == ["no-new-privileges:true"]
    assert host["PidsLimit"] > 0
    assert all("noexec" in options for options in host["Tmpfs"].values())
    assert container.attrs["Config"]["User"] not in ("", "0", "root", "0:0")
    status = compose_pool.status(container)
    assert "\nSeccomp:\t2\n" in status


def test_daemons_can_write_nothing_of_the_image(compose_pool: ComposePool):
    for folder in ("/opt/roost", "/usr", "/etc", "/var/lib/roost"):
        refused = compose_pool.container("collector").exec_run(["touch", f"{folder}/x"])
        assert refused.exit_code == 1
        assert b"Read-only file system" in refused.output or b"Permission denied" in refused.output
