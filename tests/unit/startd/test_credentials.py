"""Where the credentials of a job lie."""

import os
from pathlib import Path

from services.startd.exec.docker.credentials import credentials_inside, credentials_mounts, credentials_outside
from services.startd.isolation.job_view import private_places
from services.startd.run.credentials import file_system_of
from shared.config import load_config
from tests.unit.startd.test_docker_plan import launch

MOUNTS = """\
24 30 0:22 / /proc rw,nosuid shared:12 - proc proc rw
30 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
31 30 0:27 / /dev/shm rw,nosuid,nodev shared:4 master:2 - tmpfs tmpfs rw,size=64m
99 30 0:99
"""


def test_the_file_system_of_a_device_is_found():
    kinds = [file_system_of(MOUNTS, os.makedev(*device)) for device in ((0, 27), (8, 1), (0, 99), (0, 2))]
    assert kinds == ["tmpfs", "ext4", "", ""]


def test_credentials_elsewhere_are_mounted_over_their_place_in_the_container():
    here = launch()
    assert credentials_mounts(here, str) == []
    assert credentials_outside(here) == here.scratch / ".condor_creds"
    there = launch(credentials="/dev/shm/roost/dir_1", env={"_CONDOR_CREDS": f"{here.scratch}/.condor_creds"})
    (mount,) = credentials_mounts(there, lambda path: f"/inside{path}")
    assert mount == {
        "Type": "bind",
        "Source": "/dev/shm/roost/dir_1",
        "Target": f"/inside{here.scratch}/.condor_creds",
        "ReadOnly": True,
    }
    assert credentials_outside(there) == Path("/dev/shm/roost/dir_1")
    assert credentials_inside({"Env": ["A=b", "_CONDOR_CREDS=/x"]}) == "/x"


def test_jobs_that_are_processes_do_not_see_where_they_lie(tmp_path):
    written = tmp_path / "condor_config"
    written.write_text("ROOST_CREDENTIALS_DIR = /dev/shm/roost\n")
    config = load_config([written], subsystem="STARTD", env={})
    assert "/dev/shm/roost" in private_places(config, {}, ())
