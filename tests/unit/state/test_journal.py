"""What a crash leaves of the journal, and what is read of it."""

import os
import signal
import subprocess
import sys

import pytest

from shared.state import ScriptError, StoreUnavailable, keys
from shared.state.append_log import Journal
from shared.state.embedded import EmbeddedStore
from shared.state.recording import absolute
from tests.waiting import wait_until

ONE, TWO = [[b"SET", b"a", b"1"]], [[b"SET", b"b", b"\x00"], [b"DEL", b"a"]]


def written(path, *records):
    journal = Journal(path)
    assert list(journal.open()) == []
    for record in records:
        journal.append(record)
    journal.close()


def read(path):
    journal = Journal(path)
    records = list(journal.open())
    journal.close()
    return records, journal


def test_records_are_read_as_written(tmp_path):
    written(tmp_path / "j", ONE, TWO)
    assert read(tmp_path / "j")[0] == [ONE, TWO]


@pytest.mark.parametrize("cut", range(1, 20))
def test_write_cut_short_is_left_out_and_written_over(tmp_path, cut):
    path = tmp_path / "j"
    written(path, ONE, TWO)
    whole = path.read_bytes()
    path.write_bytes(whole[:-cut])
    journal = Journal(path)
    assert list(journal.open()) == [ONE]
    assert journal.damaged is None
    journal.append(TWO)
    journal.close()
    assert path.read_bytes() == whole


def test_damage_inside_is_set_aside(tmp_path):
    path = tmp_path / "j"
    written(path, ONE, TWO, ONE)
    data = bytearray(path.read_bytes())
    first = len(data) // 3
    data[first + 20] ^= 0xFF
    path.write_bytes(bytes(data))
    records, journal = read(path)
    assert len(records) < 3
    assert journal.damaged is not None
    assert path.read_bytes() + journal.damaged.read_bytes() == bytes(data)


def test_strange_file_is_set_aside_whole(tmp_path):
    path = tmp_path / "j"
    path.write_bytes(b"something else")
    records, journal = read(path)
    assert records == []
    assert journal.damaged.read_bytes() == b"something else"


def test_rewritten_journal_has_only_the_new_records(tmp_path):
    journal = Journal(tmp_path / "j")
    list(journal.open())
    for _ in range(100):
        journal.append(TWO)
    journal.rewrite([ONE])
    journal.append(TWO)
    journal.close()
    assert read(tmp_path / "j")[0] == [ONE, TWO]


@pytest.mark.parametrize(
    ("command", "kept"),
    [
        ([b"SET", b"k", b"v", b"PX", b"1500"], [b"SET", b"k", b"v", b"PXAT", b"11500"]),
        ([b"set", b"k", b"v", b"NX", b"EX", b"2"], [b"set", b"k", b"v", b"PXAT", b"12000"]),
        ([b"SET", b"k", b"PX"], [b"SET", b"k", b"PX"]),
        ([b"SET", b"k", b"v", b"XX"], [b"SET", b"k", b"v"]),
        ([b"EXPIRE", b"k", b"3"], [b"PEXPIREAT", b"k", b"13000"]),
        ([b"PSETEX", b"k", b"5", b"v"], [b"SET", b"k", b"v", b"PXAT", b"10005"]),
        ([b"HSET", b"k", b"f", b"EX"], [b"HSET", b"k", b"f", b"EX"]),
    ],
)
def test_lifetimes_are_kept_as_points_in_time(command, kept):
    assert absolute(command, 10_000) == kept


async def test_script_is_not_run_again_at_another_time(tmp_path):
    """A lease that was given to the second HAD because the first one's had run out stays with the second."""
    now = [1000.0]

    async def lease(store, name):
        args = [name, name, 1, 1000, 0, 1, "", "0 0", 0, 0]
        names = [keys.had_lease(), keys.had_epoch(), keys.had_present(), keys.accountant_version("")]
        return await store.run("had_lease", names, args)

    store = EmbeddedStore(tmp_path, now=lambda: now[0])
    await store.start()
    await lease(store, "a")
    now[0] = 1002.0
    assert (await lease(store, "b"))[1:4:2] == [b"b", 2]
    crashed = (tmp_path / "state.journal").read_bytes()
    await store.stop()
    (tmp_path / "state.journal").write_bytes(crashed)
    now[0] = 5000.0
    again = EmbeddedStore(tmp_path, now=lambda: now[0])
    await again.start()
    assert await again.get(keys.had_epoch()) == b"2"
    assert await again.hget(keys.had_lease(), "owner") == b"b"
    await again.stop()


async def test_what_a_failing_script_had_written_is_kept_too(tmp_path):
    store = EmbeddedStore(tmp_path)
    await store.start()
    books = keys.accountant("n")
    await store.set("groups", "no hash")
    names = [keys.had_epoch(), keys.accountant_version("n"), books, "groups", "claims", "aside"]
    with pytest.raises(ScriptError):
        await store.run("accountant_write", names, [0, "0 0", "", 0, 1, 1, "1 1 ax", "1 1 by"])
    before = await store.hgetall(books)
    crashed = (tmp_path / "state.journal").read_bytes()
    await store.stop()
    (tmp_path / "state.journal").write_bytes(crashed)
    again = EmbeddedStore(tmp_path)
    await again.start()
    assert await again.hgetall(books) == before == {b"a": b"x"}
    await again.stop()


async def test_journal_is_rewritten_before_it_grows_without_bound(tmp_path, monkeypatch):
    monkeypatch.setattr("shared.state.embedded.COMPACT_BYTES", 10_000)
    store = EmbeddedStore(tmp_path)
    await store.start()
    for number in range(2000):
        await store.hset("h", {"counter": number})
        assert (tmp_path / "state.journal").stat().st_size < 12_000
    await store.stop()


async def test_full_disk_is_unavailability_and_mends_itself(tmp_path, monkeypatch):
    store = EmbeddedStore(tmp_path)
    await store.start()
    real = os.write

    def full(fd, data):
        real(fd, data[:3])
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr("shared.state.append_log.os.write", full)
        with pytest.raises(StoreUnavailable, match="No space"):
            await store.set("a", "1")
    assert "No space" in store.health.waiting_for
    await store.set("b", "2")
    assert store.health.waiting_for == ""
    crashed = (tmp_path / "state.journal").read_bytes()
    await store.stop()
    (tmp_path / "state.journal").write_bytes(crashed)
    again = EmbeddedStore(tmp_path)
    await again.start()
    assert await again.mget(["a", "b"]) == [b"1", b"2"]
    await again.stop()


WRITER = """
import asyncio, sys
from pathlib import Path
from shared.state.embedded import EmbeddedStore

async def main():
    store = EmbeddedStore(Path(sys.argv[1]))
    await store.start()
    number = 0
    while True:
        number += 1
        await store.hset("h", {str(number): number})
        sys.stdout.write(f"{number}\\n")
        sys.stdout.flush()

asyncio.run(main())
"""


def writer_killed_after(count, pool, output):
    with output.open("wb") as out:
        writer = subprocess.Popen([sys.executable, "-c", WRITER, str(pool)], stdout=out)
        try:
            wait_until(lambda: output.read_bytes().count(b"\n") > count)
        finally:
            writer.send_signal(signal.SIGKILL)
            writer.wait()
    return output.read_bytes().rpartition(b"\n")[0].split()


async def test_kill_9_loses_nothing_acknowledged(tmp_path):
    acknowledged = writer_killed_after(300, tmp_path / "pool", tmp_path / "acknowledged")
    store = EmbeddedStore(tmp_path / "pool")
    await store.start()
    assert {n: n for n in acknowledged}.items() <= (await store.hgetall("h")).items()
    await store.stop()
