"""Backups: what is copied while somebody writes, what a manifest holds it to, and what is refused before any harm."""

import asyncio
import json
import sqlite3
import threading
from contextlib import closing

import pytest

from roost.backup import manifest, stored_state
from roost.backup.manifest import MANIFEST, Manifest
from roost.backup.restore import Target, restore
from roost.backup.stored_state import StoredState
from roost.backup.take import Source, copy_database, take
from roost.errors import ClientError
from services.journal.store import VERSION as JOURNAL_VERSION
from services.registrar.core.registry import VERSION as IDENTITIES_VERSION
from services.schedd.io.queue_db import SCHEMA as QUEUE_VERSION
from services.startd.journal import SCHEMA as STARTD_VERSION
from shared import stored_versions
from shared.accounting_version import Version
from shared.state import keys, open_store
from shared.state.accounting import begin_records, read_records, write_records
from shared.state.versions import LaterRecords
from shared.stored_versions import TOKENS

ABOUT = Manifest("0.1.0", 1_800_000_000.0, "cm", True, names={"SCHEDD": "ap1"})


def queue(path, rows=3, version=QUEUE_VERSION):
    path.parent.mkdir(parents=True, exist_ok=True)
    with closing(sqlite3.connect(path)) as database:
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("CREATE TABLE jobs (id INTEGER PRIMARY KEY, twin INTEGER)")
        database.executemany("INSERT INTO jobs VALUES (?, ?)", [(n, n) for n in range(rows)])
        database.execute(f"PRAGMA user_version = {version}")
        database.commit()


@pytest.fixture
def pool(tmp_path):
    """A personal pool's directory as it lies there when it is down."""
    place = tmp_path / "pool"
    queue(place / "spool" / "schedd" / "ap1" / "job_queue.db")
    sandbox = place / "spool" / "schedd" / "ap1" / "sandboxes" / "1.0"
    sandbox.mkdir(parents=True)
    (sandbox / "input").write_text("data")
    (sandbox / "link").symlink_to("input")
    (place / "spool" / "history").write_text("x = 1\n")
    (place / "spool" / "startd").mkdir()
    (place / "spool" / "startd" / "node.db").write_text("not copied")
    (place / "spool" / "schedd.ap1.lock").write_text("")
    (place / "config").write_text("NUM_CPUS = 2\n")
    (place / "token").write_text("secret\n")
    (place / "token").chmod(0o600)
    return place


def taken(pool, tmp_path, name="backup"):
    made = take(Source(pool / "spool", pool), tmp_path / name, ABOUT)
    return tmp_path / name, made


@pytest.mark.parametrize("name", ["mine.db", "run.lock", "out.new", "incoming/part", "startd/x.pid"])
def test_files_of_jobs_have_any_names_and_are_copied_as_they_are(pool, tmp_path, name):
    file = pool / "spool" / "schedd" / "ap1" / "sandboxes" / "1" / "proc0" / "in" / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("no database")
    directory, _ = taken(pool, tmp_path)
    assert manifest.check(directory, manifest.read(directory)) == []
    assert (directory / "spool" / file.relative_to(pool / "spool")).read_text() == "no database"


def test_the_versions_are_those_that_daemons_write():
    assert (QUEUE_VERSION, STARTD_VERSION) == (stored_versions.JOB_QUEUE, stored_versions.STARTD_JOURNAL)
    assert (JOURNAL_VERSION, IDENTITIES_VERSION) == (stored_versions.JOURNAL, stored_versions.IDENTITIES)


def test_a_backup_holds_what_a_pool_keeps_and_comes_back_alike(pool, tmp_path):
    directory, made = taken(pool, tmp_path)
    assert directory.stat().st_mode & 0o777 == 0o700
    assert made.keeps == {"job queue": QUEUE_VERSION}
    assert not any("startd/" in name or name.endswith(".lock") for name in made.files)
    assert manifest.check(directory, manifest.read(directory)) == []
    place = tmp_path / "restored"
    said = restore(directory, manifest.read(directory), Target(pool=place), {"SCHEDD": "ap1"})
    assert any("not in it" in line for line in said)
    with closing(sqlite3.connect(place / "spool" / "schedd" / "ap1" / "job_queue.db")) as database:
        assert database.execute("SELECT count(*) FROM jobs").fetchone() == (3,)
    sandbox = place / "spool" / "schedd" / "ap1" / "sandboxes" / "1.0"
    assert (sandbox / "input").read_text() == "data"
    assert str((sandbox / "link").readlink()) == "input"
    assert (place / "token").stat().st_mode & 0o777 == 0o600
    assert (place / "config").read_text() == "NUM_CPUS = 2\n"


def test_on_a_machine_of_another_name_the_queue_keeps_its_name(pool, tmp_path):
    directory, made = taken(pool, tmp_path)
    restore(directory, made, Target(pool=tmp_path / "restored"), {"SCHEDD": "other"})
    assert "SCHEDD_NAME = ap1\n" in (tmp_path / "restored" / "config").read_text()


def test_a_database_is_copied_whole_while_it_is_written_to(tmp_path):
    path = tmp_path / "job_queue.db"
    queue(path, 0)
    stop, begun = threading.Event(), threading.Event()

    def write():
        with closing(sqlite3.connect(path, isolation_level=None, timeout=30)) as database:
            number = 0
            while not stop.is_set():
                number += 1
                database.execute("BEGIN IMMEDIATE")  # two rows in each transaction: one without the other is none
                database.execute("INSERT INTO jobs VALUES (?, ?)", (2 * number, number))
                database.execute("INSERT INTO jobs VALUES (?, ?)", (2 * number + 1, number))
                database.execute("COMMIT")
                begun.set()

    writer = threading.Thread(target=write)
    writer.start()
    try:
        begun.wait(30)
        for number in range(5):
            copy_database(path, tmp_path / f"copy{number}.db")
    finally:
        stop.set()
        writer.join()
    for number in range(5):
        with closing(sqlite3.connect(tmp_path / f"copy{number}.db")) as copy:
            (total,) = copy.execute("SELECT count(*) FROM jobs").fetchone()
            (twins,) = copy.execute("SELECT count(DISTINCT twin) FROM jobs").fetchone()
        assert total == 2 * twins > 0


def test_a_file_that_changed_since_is_noticed_and_nothing_is_restored(pool, tmp_path):
    directory, made = taken(pool, tmp_path)
    (directory / "spool" / "history").write_text("y")
    assert manifest.check(directory, made) == ["spool/history is not as it was written"]
    with pytest.raises(ClientError, match="spool/history"):
        restore(directory, made, Target(pool=tmp_path / "restored"), {})
    assert not (tmp_path / "restored").exists()


def test_a_damaged_database_makes_no_backup(pool, tmp_path):
    path = pool / "spool" / "schedd" / "ap1" / "job_queue.db"
    path.write_bytes(b"SQLite format 3\0" + b"\1" * 5000)
    with pytest.raises(ClientError, match=r"job_queue\.db"):
        taken(pool, tmp_path)
    assert not [one.name for one in tmp_path.iterdir() if "backup" in one.name]


def test_a_backup_of_a_later_release_is_refused(pool, tmp_path):
    queue(pool / "spool" / "schedd" / "later" / "job_queue.db", version=QUEUE_VERSION + 1)
    directory, made = taken(pool, tmp_path)
    with pytest.raises(ClientError, match=f"job queue of version {QUEUE_VERSION + 1}"):
        restore(directory, made, Target(pool=tmp_path / "restored"), {})
    told = json.loads((directory / MANIFEST).read_text()) | {"format": stored_versions.BACKUP + 1}
    (directory / MANIFEST).write_text(json.dumps(told))
    with pytest.raises(ClientError, match="use the Roost that took it"):
        manifest.read(directory)


def test_what_is_there_is_never_written_over(pool, tmp_path):
    directory, made = taken(pool, tmp_path)
    with pytest.raises(ClientError, match="is there already"):
        take(Source(pool / "spool", pool), directory, ABOUT)
    with pytest.raises(ClientError, match="is not empty"):
        restore(directory, made, Target(pool=pool), {})
    with pytest.raises(ClientError, match="is of a machine of a larger pool"):
        restore(directory, Manifest("0.1.0", 0.0, "x", False, files=made.files), Target(pool=tmp_path / "p"), {})
    machine = Manifest("0.1.0", 0.0, "x", False, files=made.files)
    with pytest.raises(ClientError, match=r"job_queue\.db is there already"):
        restore(directory, machine, Target(spool=pool / "spool"), {})


def test_files_of_a_machines_configuration_come_back_only_where_there_are_none(pool, tmp_path):
    first = tmp_path / "etc" / "condor_config"
    first.parent.mkdir()
    first.write_text("A = 1\n")
    source = Source(pool / "spool", configuration=[str(first)])
    made = take(source, tmp_path / "backup", Manifest("0.1.0", 0.0, "x", False))
    assert any("ROOST_REDIS_URL" in line for line in made.left_out)
    first.write_text("A = 2\n")
    said = restore(tmp_path / "backup", made, Target(spool=tmp_path / "spool1", configuration=True), {})
    assert first.read_text() == "A = 2\n"
    assert any("left" in line and str(first) in line for line in said)
    first.unlink()
    restore(tmp_path / "backup", made, Target(spool=tmp_path / "spool2", configuration=True), {})
    assert first.read_text() == "A = 1\n"


def test_no_manifest_is_no_backup(tmp_path):
    with pytest.raises(ClientError, match="holds no manifest"):
        manifest.read(tmp_path)
    (tmp_path / MANIFEST).write_text("[]")
    with pytest.raises(ClientError, match="none of a backup"):
        manifest.read(tmp_path)


def test_accounting_records_tokens_and_epochs_come_back_and_leases_do_not(tmp_path):
    async def story():
        source = open_store("embedded:")
        await source.start()
        for shard in ("", "gpu"):
            await source.set(keys.had_epoch(shard), "7")
            version = await begin_records(source, shard, 7, Version(6, 0))
            await write_records(source, shard, 7, version, submitters=[(b"ada@pool", b"record")], groups=[(b"g", b"r")])
        await source.hset(keys.TOKENS, {"digest": "whose"})
        await source.hset(keys.had_lease(), {"owner": "cm1", "until": "1"})
        found = StoredState.unpack((await stored_state.read(source, ["gpu"])).pack())
        before = [await read_records(source, shard) for shard in ("", "gpu")]
        await source.stop()
        target = open_store("embedded:", tmp_path)
        await target.start()
        assert await stored_state.occupied(target, found) == ""
        await stored_state.write(target, found)
        assert [await read_records(target, shard) for shard in ("", "gpu")] == before
        assert await target.hgetall(keys.TOKENS) == {b"digest": b"whose"}
        assert await target.hgetall(keys.had_lease()) == {}
        assert await target.get(keys.had_epoch("gpu")) == b"7"
        assert "accounting records" in await stored_state.occupied(target, found)
        await target.hset(keys.had_lease(), {"owner": "cm1", "until": "99999999999999"})
        assert "holds its lease" in await stored_state.occupied(target, found)
        await target.stop()

    asyncio.run(story())


def test_records_of_a_later_release_are_neither_taken_nor_put_back_nor_written_over(tmp_path):
    async def told(part):
        store = open_store("embedded:", tmp_path / part)
        await store.start()
        try:
            await store.set(keys.version(TOKENS), 2)
            with pytest.raises(LaterRecords, match="tokens of version 2, and this one reads 1"):
                await (stored_state.read(store, ()) if part == "read" else stored_state.occupied(store, StoredState()))
        finally:
            await store.stop()

    asyncio.run(told("read"))
    asyncio.run(told("occupied"))
    later = StoredState(strings={keys.version(TOKENS): b"2"}).pack()
    with pytest.raises(
        ClientError, match=r"can not be restored: a later release of Roost has written tokens of version 2"
    ):
        StoredState.unpack(later)
    alike = StoredState(strings={keys.version(TOKENS): b"1"}).pack()
    assert StoredState.unpack(alike).versions() == {TOKENS: "1"}


def test_what_is_no_stored_state_is_refused():
    for data in (b"", b"\xc1", StoredState().pack()[:-1], b"\x93\x02\x80\x80"):
        with pytest.raises(ClientError, match=r"state\.msgpack"):
            StoredState.unpack(data)
