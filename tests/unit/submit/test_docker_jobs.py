"""Jobs of the docker universe, as they are submitted (DKR-02, DKR-10)."""

from pathlib import Path

import pytest

from roost.cli.main import main
from tests.spec import spec


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x.sh").write_text("#!/bin/sh\n")
    return tmp_path


def ad_of(folder: Path, capsys, text: str) -> dict[str, str]:
    (folder / "job.sub").write_text(f"executable = x.sh\nuniverse = docker\n{text}\nqueue\n")
    assert main(["submit", "-dry-run", "-", "job.sub"]) == 0
    lines = capsys.readouterr().out.splitlines()
    return dict(line.split("=", 1) for line in lines if "=" in line)


@spec("DKR-02")
def test_the_docker_universe_is_vanilla_and_needs_docker(folder, capsys):
    ad = ad_of(folder, capsys, "docker_image = debian:12")
    assert (ad["JobUniverse"], ad["WantDocker"], ad["DockerImage"]) == ("5", "true", '"debian:12"')
    assert "TARGET.HasDocker" in ad["Requirements"]
    assert "DockerNetworks" not in ad["Requirements"]


@spec("DKR-02")
def test_an_image_is_required(folder, capsys):
    (folder / "job.sub").write_text("executable = x.sh\nuniverse = docker\nqueue\n")
    assert main(["submit", "-dry-run", "-", "job.sub"]) != 0
    assert "docker_image" in capsys.readouterr().err


@spec("DKR-10")
@pytest.mark.parametrize("network", ["host", "none"])
def test_networks_that_every_machine_has_are_no_requirement(folder, capsys, network):
    ad = ad_of(folder, capsys, f"docker_image = debian\ndocker_network_type = {network}")
    assert ad["DockerNetworkType"] == f'"{network}"'
    assert "DockerNetworks" not in ad["Requirements"]


@spec("DKR-10")
def test_another_network_is_a_requirement(folder, capsys):
    """The job matches machines that advertise it only."""
    ad = ad_of(folder, capsys, "docker_image = debian\ndocker_network_type = vpn")
    assert "StringListMember(My.DockerNetworkType,TARGET.DockerNetworks)" in ad["Requirements"].replace(", ", ",")
