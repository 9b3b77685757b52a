"""The private Docker engine and its images."""

import re

import pytest

from tests.containers.engine import Engine
from tests.containers.images import BASES, BUILDS, recipe_of


def test_a_container_runs_and_tells_its_exit_status(docker_engine: Engine):
    container = docker_engine.client.containers.create(
        docker_engine.image("debian:bookworm-slim"), ["sh", "-c", "echo out; exit 7"], network_mode="none"
    )
    try:
        container.start()
        assert container.wait()["StatusCode"] == 7
        assert container.logs() == b"out\n"
    finally:
        container.remove(force=True)


def test_the_docker_command_has_compose_and_speaks_to_the_same_engine(docker_engine: Engine):
    assert re.search(r"version v?2\.", docker_engine.docker("compose", "version"))
    here = docker_engine.client.info()["ID"]
    assert docker_engine.docker("info", "--format", "{{.ID}}").strip() == here


def test_an_image_that_nobody_made_a_stand_in_for_is_an_error_that_lists_them(docker_engine: Engine):
    if not docker_engine.private:
        pytest.skip("this engine pulls images from a registry")
    with pytest.raises(KeyError, match=r"python:3\.11-slim"):
        docker_engine.image("no/such:image")


def test_a_changed_base_changes_the_recipe_of_what_is_built_on_it(monkeypatch):
    before = {name: recipe_of(name) for name in BUILDS}
    monkeypatch.setitem(BASES, "debian:trixie-slim", "sid")
    changed = {name for name in BUILDS if recipe_of(name) != before[name]}
    assert changed == {name for name, (_, base) in BUILDS.items() if base == "debian:trixie-slim"}
