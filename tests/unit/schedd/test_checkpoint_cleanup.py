"""What becomes of checkpoints at a URL that are not wanted any more."""

import pytest

from engine.queue.jobs import JobId
from services.schedd.io import checkpoints
from services.schedd.io.checkpoint_cleanup import command_for
from services.schedd.io.cleanup_locally_mounted_checkpoint import main
from shared.transfer.checkpoint_manifest import manifest_name

JOB = JobId(7, 0)


def test_the_longest_beginning_in_the_map_says_what_removes(tmp_path):
    mapfile = tmp_path / "map"
    assert command_for(mapfile, "/libexec", "s3://b/x/") == []
    mapfile.write_text(
        "* s3://b/ remove,-url,\\0\n* s3://b/x/ /opt/other\n* file:///p/ cleanup_locally_mounted_checkpoint,-path,/p\n"
    )
    assert command_for(mapfile, "/libexec", "s3://b/y/job/") == ["/libexec/remove", "-url", "s3://b/"]
    assert command_for(mapfile, "/libexec", "s3://b/x/job/") == ["/opt/other"]
    assert command_for(mapfile, "/libexec", "file:///p/job/")[-2:] == ["-path", "/p"]
    assert command_for(mapfile, "/libexec", "https://h/") == []
    assert command_for(mapfile, "/libexec", "s3://b/x/%2e%2e/y/job/") == []


def saved(spool, manifest):
    staging = spool / "staging"
    staging.mkdir()
    if manifest:
        (staging / manifest).write_text(manifest)
    (staging / "_condor_stdout").write_text("said")
    checkpoints.put_by(spool, JOB, staging, "ClusterId = 7\n")
    staging.rmdir()


def waiting(spool):
    return sorted(str(one.relative_to(spool / "checkpoint-cleanup")) for one in checkpoints.awaiting_cleanup(spool))


def test_older_checkpoints_and_those_of_jobs_that_left_wait_to_be_removed(tmp_path):
    saved(tmp_path, manifest_name(1, 1))
    saved(tmp_path, "")  # as ON_EXIT_OR_EVICT does
    saved(tmp_path, manifest_name(2, 1))
    assert checkpoints.keep_only(tmp_path, JOB, 2)
    assert waiting(tmp_path) == ["7.0.0"]
    assert sorted(one.name for one in (tmp_path / "checkpoint-cleanup" / "7.0.0").iterdir()) == [
        manifest_name(1, 1),
        "job.ad",
    ]
    assert not checkpoints.keep_only(tmp_path, JOB, 2)
    checkpoints.sweep(tmp_path, lambda job: job == JOB)
    assert waiting(tmp_path) == ["7.0.0"]
    checkpoints.sweep(tmp_path, lambda job: False)
    assert waiting(tmp_path) == ["7.0", "7.0.0"]
    assert not checkpoints.folder_of(tmp_path, JOB).exists()


def test_a_checkpoint_that_was_sent_twice_stays(tmp_path):
    """A startd that was killed sends it again, to the same place."""
    saved(tmp_path, manifest_name(1, 1))
    saved(tmp_path, manifest_name(1, 1))
    assert not checkpoints.keep_only(tmp_path, JOB, 1)
    assert waiting(tmp_path) == []


def test_checkpoints_of_the_access_point_leave_nothing(tmp_path):
    saved(tmp_path, "")
    assert not checkpoints.drop(tmp_path, JOB)
    assert not checkpoints.folder_of(tmp_path, JOB).exists()


def removed(path, base, name):
    return main(["-prefix", "file:///p/", "-path", str(path), "-from", base, "-file", name, "-jobad", "/x"])


def test_a_file_goes_with_the_directories_that_are_empty_then(tmp_path):
    for name in ("a", "d/b"):
        (tmp_path / "job x" / "0001.0001" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "job x" / "0001.0001" / name).write_text("x")
    base = "file:///p/job%20x/0001.0001/"
    assert removed(tmp_path, base, "d/b") == 0
    assert sorted(one.name for one in tmp_path.rglob("*")) == ["0001.0001", "a", "job x"]
    assert removed(tmp_path, base, "a") == 0
    assert list(tmp_path.iterdir()) == []
    assert removed(tmp_path, base, "a") == 0


@pytest.mark.parametrize(("base", "name"), [("file:///p/../q/", "a"), ("file:///p/j/", "../../a"), ("file:///q/", "a")])
def test_nothing_is_removed_outside(tmp_path, base, name):
    (tmp_path / "a").write_text("x")
    (tmp_path / "p").mkdir()
    assert removed(tmp_path / "p", base, name) == 2
    assert (tmp_path / "a").exists()


def test_a_link_is_not_followed(tmp_path, capsys):
    (tmp_path / "p").mkdir()
    (tmp_path / "q").mkdir()
    (tmp_path / "q" / "a").write_text("x")
    (tmp_path / "p" / "j").symlink_to(tmp_path / "q")
    assert removed(tmp_path / "p", "file:///p/j/", "a") == 1
    assert (tmp_path / "q" / "a").exists()
    assert "j/a: " in capsys.readouterr().err
