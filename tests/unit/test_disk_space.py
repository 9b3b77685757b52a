import errno
import sqlite3

import pytest

from shared import disk_space

MIB = 1 << 20


@pytest.mark.parametrize(
    ("free", "total", "wanted", "lacks"),
    [
        (100 * MIB, 1000 * MIB, 1, False),
        (100 * MIB, 1000 * MIB, 60 * MIB, True),  # a twentieth is kept back
        (49 * MIB, 1000 * MIB, 0, True),
        (100 * MIB, 10_000_000 * MIB, 1, False),  # but never more than 64 MiB
        (65 * MIB, 10_000_000 * MIB, 2 * MIB, True),
        (0, 8 * MIB, 0, True),
    ],
)
def test_some_room_is_kept_back(free, total, wanted, lacks):
    assert bool(disk_space.shortage(free, total, wanted)) is lacks


def test_what_says_that_a_disk_is_full(tmp_path):
    assert disk_space.is_full(OSError(errno.ENOSPC, "no room"))
    assert disk_space.is_full(OSError(errno.EDQUOT, "quota"))
    assert not disk_space.is_full(PermissionError(errno.EACCES, "no"))
    assert not disk_space.is_full(ValueError())
    database = sqlite3.connect(tmp_path / "small.db")
    database.execute("PRAGMA max_page_count = 2")
    with pytest.raises(sqlite3.OperationalError) as full:
        database.executescript("CREATE TABLE a (b); CREATE TABLE c (d); CREATE TABLE e (f)")
    assert disk_space.is_full(full.value)
    with pytest.raises(sqlite3.OperationalError) as other:
        database.execute("nonsense")
    assert not disk_space.is_full(other.value)
    database.close()


def test_the_room_of_a_directory(tmp_path):
    assert "are needed" in disk_space.shortage_in(tmp_path, 1 << 60)
