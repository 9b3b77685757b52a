"""What a job's manifest is called, and that nothing in its scratch directory leads its writer elsewhere."""

import os

import pytest

from services.startd.core.run.failures import RunFailed
from services.startd.core.run.manifest import directory_of
from services.startd.run.manifest import list_environment, list_scratch
from shared.classad import parse_ad


@pytest.mark.parametrize(
    ("ad", "name"),
    [
        ("", ""),
        ("ManifestDesired = false", ""),
        ("ManifestDesired = true", "7_2_manifest"),
        ('ManifestDir = "told"', "told"),
        ('ManifestDir = "told"; ManifestDesired = true', "told"),
    ],
)
def test_its_directory(ad, name):
    assert directory_of(parse_ad(f"[ClusterId = 7; ProcId = 2; {ad}]")) == name


@pytest.mark.parametrize("name", ["a/b", "..", ".", "/etc", "x" * 256])
def test_its_directory_lies_in_the_scratch_directory(name):
    with pytest.raises(RunFailed, match="plain name"):
        directory_of(parse_ad(f'[ManifestDir = "{name}"]'))


def test_what_is_written(tmp_path):
    (tmp_path / "data").write_text("x")
    list_scratch(tmp_path, "told", "in")
    list_environment(tmp_path, "told", "environment", [("B", "2"), ("A", "1")])
    assert (tmp_path / "told" / "in").read_text() == "data\ntold\n"
    assert (tmp_path / "told" / "environment").read_text() == "A=1\nB=2\n"
    list_scratch(tmp_path, "told", "in")  # again, as after a restart


def test_links_lead_nowhere(tmp_path):
    scratch, elsewhere = tmp_path / "scratch", tmp_path / "elsewhere"
    scratch.mkdir()
    elsewhere.mkdir()
    (elsewhere / "out").write_text("mine")
    (scratch / "told").symlink_to(elsewhere)
    with pytest.raises(OSError, match="told"):
        list_scratch(scratch, "told", "out")
    (scratch / "told").unlink()
    (scratch / "told").mkdir()
    (scratch / "told" / "out").symlink_to(elsewhere / "out")
    list_scratch(scratch, "told", "out")
    assert (elsewhere / "out").read_text() == "mine"
    assert not (scratch / "told" / "out").is_symlink()
    (scratch / "file").write_text("")
    with pytest.raises(NotADirectoryError):
        list_scratch(scratch, "file", "out")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has files of others")
def test_all_of_it_belongs_to_the_jobs_account(tmp_path):
    os.chown(tmp_path, 12345, 12345)
    list_scratch(tmp_path, "told", "out")
    assert {path.stat().st_uid for path in (tmp_path / "told", tmp_path / "told" / "out")} == {12345}
    os.chown(tmp_path / "told", 54321, 54321)
    with pytest.raises(PermissionError):
        list_scratch(tmp_path, "told", "out")
