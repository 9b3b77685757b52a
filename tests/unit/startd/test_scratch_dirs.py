"""Scratch directories."""

import os

import pytest

from services.startd.isolation import scratch_dirs


def test_a_scratch_directory_is_private_and_goes_with_everything(tmp_path):
    path = scratch_dirs.make(tmp_path, scratch_dirs.name_of("node1", "unique"))
    assert path.stat().st_mode & 0o777 == 0o700
    (path / "a/b").mkdir(parents=True)
    (path / "a/b/f").write_text("x")
    (path / "link").symlink_to(tmp_path)
    os.chmod(path / "a/b", 0)
    os.chmod(path / "a", 0)
    os.chmod(path, 0)
    assert scratch_dirs.remove(path)
    assert tmp_path.exists()


@pytest.mark.parametrize("files", [0, 3, scratch_dirs.SMALL, scratch_dirs.SMALL + 1])
def test_small_directories_go_at_once(tmp_path, files):
    path = scratch_dirs.make(tmp_path, scratch_dirs.name_of("node1", "unique"))
    for number in range(files):
        (path / str(number)).write_text("x")
    assert scratch_dirs.remove_small(path) is (files <= scratch_dirs.SMALL)
    assert path.exists() is (files > scratch_dirs.SMALL)


def test_a_link_to_a_directory_is_removed_not_followed(tmp_path):
    kept = tmp_path / "kept"
    kept.mkdir()
    (kept / "file").write_text("x")
    path = scratch_dirs.make(tmp_path, scratch_dirs.name_of("node1", "unique"))
    (path / "link").symlink_to(kept)
    assert scratch_dirs.remove_small(path) or scratch_dirs.remove(path)
    assert (kept / "file").exists()


def test_sweeping_leaves_other_startds_and_known_runs_alone(tmp_path):
    mine, kept = (scratch_dirs.make(tmp_path, scratch_dirs.name_of("node1", name)) for name in ("old", "kept"))
    other = scratch_dirs.make(tmp_path, scratch_dirs.name_of("node2", "old"))
    assert scratch_dirs.sweep(tmp_path, "node1", [kept.name]) == []
    assert not mine.exists()
    assert kept.exists()
    assert other.exists()
