"""Copies of the books and epochs on a HAD's disk: what is damaged is refused, what is whole is found (HA-13, HA-16)."""

import hashlib
import os

import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.had.core.snapshot import LEAST_S, MAGIC, Damaged, Snapshot, decode, encode, next_after
from services.had.snapshot_file import MOST_DAMAGED, SnapshotFiles
from shared.accounting_version import NONE, NOTHING, BadVersion, Version, parse
from shared.state import keys
from tests.spec import spec

ROWS = st.dictionaries(st.binary(max_size=20), st.binary(max_size=20), max_size=5)


def snapshot(count, epoch=3, shard=""):
    return Snapshot(
        Version(epoch, count), 1000.5, shard, {b"alice@p": b"\x00" * count}, {b"g": b"x"}, {b"": b"1 2 3.0"}
    )


@pytest.fixture
def disk(tmp_path):
    return SnapshotFiles(tmp_path / "spool" / "Accountantnew.log", tmp_path / "spool" / "had.epoch", "")


def test_versions_are_ordered_by_epoch_first():
    assert NONE < NOTHING < Version(1, 900) < Version(2, 1)
    assert (Version(7, 50).text, Version(7, 50).arg, NONE.text) == ("7.50", "7 50", "-")
    assert parse(b"7 50") == parse("7.50") == Version(7, 50)
    assert parse(b"") == parse(None) == parse(NONE.text) == NONE


@pytest.mark.parametrize("text", ["7", "7 5 0", "a b", "-1 5", f"{2**60} 1", "1 nan", "\x00"])
def test_text_that_is_no_version_is_refused(text):
    with pytest.raises(BadVersion, match="is no version of books"):
        parse(text)


@settings(max_examples=50)
@given(submitters=ROWS, groups=ROWS, claims=ROWS, epoch=st.integers(0, 2**52), shard=st.text(max_size=5))
def test_what_was_kept_is_found(submitters, groups, claims, epoch, shard):
    kept = Snapshot(Version(epoch, 5), 12.5, shard, submitters, groups, claims)
    assert decode(encode(kept), shard) == kept


def test_a_copy_of_the_release_before_is_read_and_has_no_claims():
    body = msgpack.packb([3, 7, 1000.5, "", {b"alice@p": b"x"}, {}])
    kept = decode(b"ROOST-BOOKS-1\n" + hashlib.sha256(body).digest() + body, "")
    assert kept == Snapshot(Version(3, 7), 1000.5, "", {b"alice@p": b"x"}, {})
    whole = encode(kept)
    with pytest.raises(Damaged, match="not what a snapshot holds"):
        decode(whole.replace(b"BOOKS-2", b"BOOKS-1", 1), "")


@spec("HA-16")
@settings(max_examples=100)
@given(data=st.data())
def test_torn_or_changed_copy_is_refused(data):
    """A torn transfer is never taken for a good file."""
    whole = encode(snapshot(30))
    cut = data.draw(st.integers(0, len(whole) - 1))
    with pytest.raises(Damaged):
        decode(whole[:cut], "")
    with pytest.raises(Damaged):
        decode(whole[:cut] + bytes([whole[cut] ^ data.draw(st.integers(1, 255))]) + whole[cut + 1 :], "")


def test_copy_of_another_shard_is_refused():
    with pytest.raises(Damaged, match="books of negotiator 'gpus'"):
        decode(encode(snapshot(1, shard="gpus")), "")


@spec("HA-16")
def test_the_copy_before_takes_the_place_of_a_damaged_one(disk):
    disk.write(snapshot(1))
    disk.write(snapshot(2))
    assert disk.read().snapshot == snapshot(2)
    whole = disk.state_file.read_bytes()
    disk.state_file.write_bytes(whole[: len(whole) // 2])
    found = disk.read()
    assert found.snapshot == snapshot(1)
    (problem,) = found.problems
    assert "wrong checksum" in problem
    assert "set aside as" in problem
    assert disk.read().problems == []  # told once
    assert len(list(disk.state_file.parent.glob("*.damaged-*"))) == 1
    disk.write(snapshot(3))
    assert (disk.read().snapshot, disk.newest()) == (snapshot(3), Version(3, 3))


def test_files_of_another_program_are_kept_for_who_wants_them(disk):
    """STATE_FILE has the name of HTCondor's accounting log: one that is there is not written over."""
    disk.state_file.parent.mkdir()
    for number in range(MOST_DAMAGED + 2):
        disk.state_file.write_bytes(b"28 CondorAccounting\n")
        (problem,) = disk.read().problems
        assert "no snapshot" in problem, number
    assert len(list(disk.state_file.parent.glob("*.damaged-*"))) == MOST_DAMAGED
    assert disk.newest() == NOTHING


def test_crash_while_writing_leaves_a_whole_copy(disk, monkeypatch):
    disk.write(snapshot(1))
    real = os.replace
    for crash_at in (1, 2):
        calls = []

        def replace(source, target, calls=calls, crash_at=crash_at):
            calls.append(target)
            if len(calls) == crash_at:
                raise KeyboardInterrupt
            real(source, target)

        monkeypatch.setattr(os, "replace", replace)
        with pytest.raises(KeyboardInterrupt):
            disk.write(snapshot(2))
        monkeypatch.setattr(os, "replace", real)
        found = disk.read()
        assert (found.snapshot, found.problems) == (snapshot(1), [])


def test_epoch_is_remembered(disk):
    assert disk.read().epoch == 0
    disk.write_epoch(41)
    disk.write_epoch(42)
    assert disk.read().epoch == 42
    disk.write(snapshot(1, epoch=50))
    assert disk.read().epoch == 50  # a copy tells of an epoch too


@pytest.mark.parametrize("text", ["", "abc", "-5", str(keys.MAX_EPOCH + 1), "9" * 30])
def test_impossible_epoch_on_disk_is_refused_and_told(disk, text):
    disk.write_epoch(1)
    disk.epoch_file.write_text(text)
    found = disk.read()
    assert found.epoch == 0
    assert "is no epoch" in found.problems[0]


@spec("HA-14")
def test_next_copy_comes_soon_where_copies_are_quick_and_at_the_interval_where_not():
    """REPLICATION_INTERVAL (300 s) is the longest wait, not the usual one."""
    assert next_after(0.01, 300.0) == LEAST_S
    assert next_after(1.0, 300.0) == pytest.approx(50.0)
    assert next_after(100.0, 300.0) == 300.0
    assert next_after(100.0, 2.0) == 2.0


def test_magic_is_not_that_of_another_format():
    assert encode(snapshot(1)).startswith(MAGIC)
