"""The files that a machine keeps for its jobs: by content, bounded, and never what they should not be."""

import asyncio
import hashlib
import os
import shutil

import pytest
import structlog

from services.startd.run.reuse_directory import ReuseDirectory


def digest_of(content):
    return hashlib.sha256(content).hexdigest()


class Got:
    """Fills the directory, and counts how often. content: what it brings, where that is not what was asked for."""

    def __init__(self, path, most=1000):
        self.reuse = ReuseDirectory(structlog.get_logger())
        self.reuse.open(path, most)
        self.fills = 0

    async def have(self, content, brings=None, fails=None):
        async def fill(folder):
            self.fills += 1
            await asyncio.sleep(0)
            if fails:
                raise fails
            (folder / digest_of(content)).write_bytes(content if brings is None else brings)

        return await self.reuse.have(digest_of(content), len(content), fill)

    async def copy(self, content, tmp_path):
        target = tmp_path / "copy"
        with target.open("wb") as file:
            size = await self.reuse.copy(digest_of(content), file.fileno())
        return None if size is None else target.read_bytes()


@pytest.fixture
def kept(tmp_path):
    return Got(tmp_path / "reuse")


async def test_many_that_ask_at_once_get_it_once(kept, tmp_path):
    assert await asyncio.gather(*(kept.have(b"data") for _ in range(20))) == [True] * 20
    assert kept.fills == 1
    assert await kept.copy(b"data", tmp_path) == b"data"
    assert (tmp_path / "reuse").stat().st_mode & 0o077 == 0


async def test_one_that_gives_up_leaves_it_to_the_next(kept):
    first = asyncio.create_task(kept.have(b"data"))
    await asyncio.sleep(0)
    second = asyncio.create_task(kept.have(b"data"))
    await asyncio.sleep(0)
    first.cancel()
    assert await second is True
    assert kept.reuse.bytes == 4


async def test_what_fails_keeps_nothing(kept, tmp_path):
    with pytest.raises(OSError, match="gone"):
        await kept.have(b"data", fails=OSError("gone"))
    assert await kept.have(b"data", brings=b"other size") is False
    assert await kept.copy(b"data", tmp_path) is None
    assert [one.name for one in (tmp_path / "reuse").iterdir()] == ["incoming"]
    assert not list((tmp_path / "reuse/incoming").iterdir())
    assert await kept.have(b"data") is True


async def test_content_that_is_another_is_thrown_away(kept, tmp_path):
    """Whoever brought it: an access point that says one thing and sends another, a disk, another program."""
    await kept.have(b"data", brings=b"evil")
    assert await kept.copy(b"data", tmp_path) is None
    assert await kept.have(b"data") is True
    (tmp_path / "reuse" / digest_of(b"data")).write_bytes(b"evil")
    assert await kept.copy(b"data", tmp_path) is None
    (tmp_path / "reuse" / digest_of(b"data")).symlink_to("/etc/passwd")
    kept.reuse.open(tmp_path / "reuse", 1000)
    assert await kept.copy(b"data", tmp_path) is None
    assert await kept.have(b"data") is True
    assert await kept.copy(b"data", tmp_path) == b"data"


async def test_what_was_used_longest_ago_goes_first(tmp_path):
    kept = Got(tmp_path / "reuse", most=100)
    files = [bytes([number]) * 40 for number in range(3)]
    await kept.have(files[0])
    await kept.have(files[1])
    await kept.copy(files[0], tmp_path)
    await kept.have(files[2])
    assert [await kept.copy(one, tmp_path) is not None for one in files] == [True, False, True]
    assert kept.reuse.bytes == 80
    assert await kept.have(b"x" * 101) is False
    assert kept.reuse.bytes == 80  # nothing went for what does not fit at all


async def test_those_that_come_count(tmp_path):
    kept = Got(tmp_path / "reuse", most=100)
    assert sorted(await asyncio.gather(kept.have(b"a" * 60), kept.have(b"b" * 60))) == [False, True]


async def test_the_next_life_finds_them(kept, tmp_path):
    await kept.have(b"one")
    await kept.have(b"two")
    os.utime(tmp_path / "reuse" / digest_of(b"one"))
    (tmp_path / "reuse/incoming/half").mkdir()
    (tmp_path / "reuse/other").write_text("")
    again = Got(tmp_path / "reuse", most=4)
    assert await again.copy(b"one", tmp_path) == b"one"
    assert await again.copy(b"two", tmp_path) is None  # used longest ago, and too much now
    assert not list((tmp_path / "reuse/incoming").iterdir())
    again.reuse.open(tmp_path / "reuse", 0)
    assert not (tmp_path / "reuse").exists()
    assert await again.have(b"one") is False


async def test_a_directory_that_can_not_be_had(tmp_path):
    (tmp_path / "file").write_text("")
    kept = Got(tmp_path / "file/reuse")
    assert await kept.have(b"data") is False
    shutil.rmtree(tmp_path / "reuse", ignore_errors=True)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "reuse").symlink_to(tmp_path / "elsewhere")
    kept.reuse.open(tmp_path / "reuse", 100)
    assert await kept.have(b"data") is False
