"""Where a personal pool lives, and what is said of a place where it can not."""

import pwd
import subprocess
import sys

import pytest

from roost import locate, up
from roost.errors import ClientError


def test_a_directory_that_can_not_be_made_is_named_with_the_mend(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(ClientError, match=r"file/pool can not be .*Not a directory; name another one with -dir"):
        up.prepare(tmp_path / "file" / "pool")


def test_the_command_says_it_in_one_line(tmp_path):
    (tmp_path / "file").write_text("in the way")
    command = [sys.executable, "-m", "roost", "up", "-dir", str(tmp_path / "file")]
    said = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert said.returncode == 1
    assert said.stderr.startswith(f"roost: {tmp_path}/file can not be this pool's directory: ")
    assert said.stderr.count("\n") == 1


def test_two_pools_do_not_share_a_directory(tmp_path):
    with (
        up.only_one(tmp_path / "pool"),
        pytest.raises(ClientError, match=r"is up in .*pool already"),
        up.only_one(tmp_path / "pool"),
    ):
        pytest.fail("two pools in one directory")


def test_a_user_without_a_home_is_asked_for_a_directory(monkeypatch):
    def nobody(uid):
        raise KeyError(uid)

    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.delenv("ROOST_POOL_DIR", raising=False)
    monkeypatch.setattr(pwd, "getpwuid", nobody)
    with pytest.raises(ClientError, match="ROOST_POOL_DIR"):
        locate.pool_dir()


def test_a_given_directory_needs_no_home(monkeypatch, tmp_path):
    monkeypatch.setenv("ROOST_POOL_DIR", str(tmp_path / "pool"))
    assert locate.pool_dir() == tmp_path / "pool"
    assert locate.pool_dir(tmp_path / "other") == tmp_path / "other"
