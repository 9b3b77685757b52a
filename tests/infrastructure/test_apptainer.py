"""The Apptainer that tests run, and its images."""

import os
from pathlib import Path

import pytest

from tests.containers import apptainer as had
from tests.containers.apptainer import Apptainer
from tests.servers import ServerError


def test_it_runs_what_is_in_its_images_and_tells_the_exit_status(apptainer: Apptainer):
    for image in (apptainer.sandbox, apptainer.sif):
        done = apptainer("exec", "-C", image, "sh", "-c", "cat /etc/image; exit 7")
        assert (done.returncode, done.stdout) == (7, "debian\n"), done.stderr


def test_the_image_has_what_jobs_of_tests_run(apptainer: Apptainer):
    done = apptainer("exec", "-C", apptainer.sandbox, "sh", "-c", "ps -o pid= -p 1; python3 -c 'print(6 * 7)'")
    assert done.stdout.split() == ["1", "42"], done.stderr


def test_everybody_may_read_it(apptainer: Apptainer):
    for path in (apptainer.program, apptainer.sandbox, apptainer.sif):
        assert all(folder.stat().st_mode & 0o001 for folder in path.resolve().parents), path
        assert path.stat().st_mode & 0o004
    assert Path(apptainer.env["PATH"].split(os.pathsep)[0], "squashfuse_ll").exists()


def test_a_machine_that_can_not_have_it_is_told_how_to_go_on(monkeypatch, tmp_path):
    monkeypatch.setattr(had, "PLACE", tmp_path / "place")
    monkeypatch.setattr(had.shutil, "which", lambda _: None)
    with pytest.raises(ServerError, match="--without apptainer"):
        Apptainer.ensure()
