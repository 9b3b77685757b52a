"""Going back to an earlier release harms nothing: what a later one wrote is refused, and left as it is."""

import sqlite3
from contextlib import closing

import pytest

from services.collector.daemon import Collector
from services.defrag.daemon import Defrag
from services.gateway.daemon import Gateway
from services.had.daemon import Had
from services.negotiator.daemon import Negotiator
from services.registrar.core.registry import Registry, from_json
from services.rooster.daemon import Rooster
from services.schedd.io.queue_db import QueueDamaged, QueueDatabase
from services.startd.journal import Journal
from shared import stored_versions
from shared.state.versions import later_than
from shared.stored_versions import IDENTITIES, JOB_QUEUE, STARTD_JOURNAL


def database(path, version):
    with closing(sqlite3.connect(path)) as made:
        made.execute("CREATE TABLE later (x)")
        made.execute(f"PRAGMA user_version = {version}")
        made.commit()
    return path


def tables(path):
    with closing(sqlite3.connect(path)) as made:
        (version,) = made.execute("PRAGMA user_version").fetchone()
        return version, [row[0] for row in made.execute("SELECT name FROM sqlite_master")]


async def test_a_queue_of_a_later_release(tmp_path):
    path = database(tmp_path / "job_queue.db", JOB_QUEUE + 1)
    with pytest.raises(QueueDamaged, match=f"is of version {JOB_QUEUE + 1}.*Run the Roost that wrote it"):
        await QueueDatabase(path).open()
    assert tables(path) == (JOB_QUEUE + 1, ["later"])


def test_a_startds_database_of_a_later_release(tmp_path):
    path = database(tmp_path / "node.db", STARTD_JOURNAL + 1)
    with pytest.raises(ValueError, match=f"written by another release .schema {STARTD_JOURNAL + 1}"):
        Journal(path)
    assert tables(path) == (STARTD_JOURNAL + 1, ["later"])


def test_identities_of_a_later_release():
    with pytest.raises(ValueError, match=f"its version is {IDENTITIES + 1}"):
        from_json({**Registry().to_json(), "version": IDENTITIES + 1})


def test_records_in_redis_of_a_later_release_are_told_by_kind():
    assert later_than(dict.fromkeys(stored_versions.IN_REDIS, "1")) == ""
    assert later_than({}) == ""
    told = later_than({stored_versions.ADS: "1", stored_versions.TOKENS: "2", stored_versions.ABSENT: "x"})
    assert "tokens of version 2, and this one reads 1, absent machines of version x, and this one reads 1" in told
    assert later_than({stored_versions.TOKENS: "2"}, {stored_versions.TOKENS: 2}) == ""


def test_every_daemon_with_a_store_says_what_it_writes():
    writes = [kind for daemon in (Collector, Negotiator, Had, Gateway, Defrag, Rooster) for kind in daemon.writes]
    assert set(writes) == set(stored_versions.IN_REDIS)


def test_what_is_newer_is_told_by_name():
    found = {"job queue": JOB_QUEUE, "journal": 99, "something": 1}
    assert stored_versions.newer(found) == [
        f"journal of version 99, of which this release reads {stored_versions.JOURNAL}",
        "something of version 1, of which this release reads 0",
    ]
