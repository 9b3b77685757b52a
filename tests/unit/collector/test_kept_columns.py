"""Columns outlive a restart of the collector, and say what the ads say, whatever changed since (COL-05)."""

import numpy as np
import pytest
import structlog

from services.collector import search as module
from services.collector.core.acceptance import AbsentPolicy
from services.collector.core.queries import read
from services.collector.directory import AdIndex, Directory, StoredColumns
from services.collector.search import Search
from shared.classad import parse_expr
from shared.classad.columnar import Table, keeping
from shared.daemon.ad_rows import pack
from shared.messages.ads import AdDelta, AdInvalidate, AdUpdate
from shared.state import keys
from shared.state.embedded import EmbeddedStore
from tests.unit.collector.test_listing import Clock, pool, texts

QUESTIONS = [
    ("Memory > 0", ["Name", "Memory"]),
    ("Flag && Load >= 0", ["Name", "Load", "Start"]),
    ('State == "claimed"', ["Name", "State", "Odd"]),
    ("Start", ["Name"]),
    ("Large > 3 && Nested =!= undefined", ["Name", "Large"]),
]


@pytest.fixture
async def store(monkeypatch):
    monkeypatch.setattr(module, "LEAST_KEPT", 300)
    made = EmbeddedStore()
    await made.start()
    yield made
    await made.stop()


class Life:
    """A collector from its start to its end."""

    def __init__(self, store):
        index, self.stored = AdIndex(900.0), StoredColumns(store)
        self.search = Search(index.table, index.order, {}, Clock(), self.stored)
        self.directory = Directory(store, Clock(), structlog.get_logger(), index, AbsentPolicy(), self.search.note)

    async def begin(self):
        """As the root task `follow` begins."""
        await self.directory.load()
        kind = self.search._kind("Machine")
        async with kind.at_work:
            await self.search._take_over(kind)
        return self

    def hear(self, message):
        self.search.changed(self.directory.apply(message))

    async def written(self):
        while self.directory.writer.waiting:
            await self.directory.writer.write_some()

    async def ask(self, constraint, projection):
        found, after = [], ""
        while True:
            page = await self.search.answer(read(["Machine"], constraint, projection, 0, after, absent=False))
            found += [texts(packed) for packed in page.ads]
            if not page.next:
                return found
            after = page.next

    async def says(self):
        return [await self.ask(*question) for question in QUESTIONS]


async def full(store):
    life = Life(store)
    for group in pool().groups():
        ads = {name: row.packed() for name, row in group.rows.items()}
        life.hear(
            AdUpdate(
                my_type="Machine",
                daemon=group.daemon,
                start_time=7,
                sequence=1,
                names=list(ads),
                ads=list(ads.values()),
            )
        )
    await life.written()
    await life.says()
    await life.search.keep()
    return life


def change(daemon, base, sequence):
    return AdDelta(
        my_type="Machine",
        daemon=f"startd@{daemon}",
        start_time=7,
        base=base,
        sequence=sequence,
        names=[f"slot3@{daemon}", f"new@{daemon}"],
        changes=[pack({"State": "Claimed", "Memory": 4}), pack({"Name": f"new@{daemon}", "State": "CLAIMED"})],
        removed_attrs=[["Flag"], []],
        gone=[f"slot4@{daemon}"],
    )


async def test_a_restart_reads_nothing_again_and_says_the_same(store):
    before = await full(store)
    after = await Life(store).begin()
    kind = after.search._kinds["Machine"]
    assert after.search.taken_over == 500
    assert kind.columns.behind == 0
    assert {"large", "nested"} <= set(kind.columns.attributes)  # what was asked for before is there
    assert await after.says() == await before.says()


async def test_what_changed_before_or_after_the_restart_is_read(store):
    before = await full(store)
    before.hear(change("n2", 1, 2))
    before.hear(AdInvalidate(my_type="Machine", daemon="startd@n3", start_time=7, sequence=2))
    await before.written()
    after = await Life(store).begin()
    assert after.search.taken_over == 450
    assert await after.says() == await before.says()
    for life in (before, after):
        life.hear(change("n7", 1, 2))
        life.hear(change("n2", 2, 3))
    assert await after.says() == await before.says()


async def test_what_changes_while_columns_are_taken_over_is_read(store):
    before = await full(store)
    after = Life(store)
    await after.directory.load()
    kind = after.search._kind("Machine")
    held = keeping.unpack(await after.stored.get("Machine"))
    unchanged = kind.columns.unchanged(held)
    for life in (before, after):
        life.hear(change("n9", 1, 2))
    kind.columns.take_over(held, unchanged)
    assert kind.columns.settle(held, unchanged) == 475
    assert await after.says() == await before.says()


async def test_changes_that_were_not_read_yet_are_not_kept_as_read(store):
    before = await full(store)
    before.hear(change("n4", 1, 2))
    await before.written()
    before.search._kinds["Machine"].stood = -1
    await before.search.keep()  # the columns have the old state of n4, Redis the new one
    after = await Life(store).begin()
    assert after.search.taken_over == 475
    assert await after.says() == await before.says()


@pytest.mark.parametrize(
    "held",
    [
        b"",
        b"nonsense",
        keeping.pack({}),
        keeping.pack({"stands": {}, "spellings": {}}),
        keeping.pack(
            {"stands": [], "spellings": {"a": ["A"]}, "v": 1, "keys": [], "texts": [], "exprs": [], "columns": {}}
        ),
        keeping.pack({"stands": {}, "spellings": {}, "v": 2, "keys": [], "texts": [], "exprs": [], "columns": {}}),
        keeping.pack(
            {"stands": {}, "spellings": {}, "v": 1, "keys": ["a"], "texts": [], "exprs": [b"("], "columns": {}}
        ),
    ],
)
async def test_what_is_none_is_left_alone_and_all_is_read(store, held):
    before = await full(store)
    await before.stored.put("Machine", held)
    after = await Life(store).begin()
    assert after.search.taken_over == 0
    assert await after.says() == await before.says()
    await store.hset(keys.ADS_COLUMNS, {"Machine": b"not compressed"})
    assert await after.stored.get("Machine") is None


def table():
    made = Table(policies=())
    made.want(["a", "b", "name"])
    for number in range(50):
        b = parse_expr(f"a > {number % 3}") if number % 2 else 2**60 + number
        made.put(f"k{number}", pack({"Name": f"K{number}"}) if number % 7 else made_ad(number, b))
    made.flush()
    return made


def made_ad(number, b):
    from shared.classad import ClassAd

    return ClassAd({"a": number, "b": b, "Name": f"N{number}"}).pack()


def test_a_table_comes_back_as_it_was():
    before = table()
    held = keeping.unpack(keeping.pack(keeping.kept(before)))
    after = Table(policies=())
    after.want(["a", "c"])
    rows = {key: before._ads[before.row(key)] for key in before.keys if key != "k7"}
    keeping.restored(after, held, rows)
    assert list(after.keys) == [key for key in before.keys if key != "k7"]
    for name in ("a", "b", "name"):
        for key in after.keys:
            was = before.columns[name].cell(before.row(key), before.codes)
            now = after.columns[name].cell(after.row(key), after.codes)
            assert (now, type(now)) == (was, type(was)) or str(now) == str(was)
    assert "c" in after.columns  # what is wanted now and was not then is read
    after.put("k8", made_ad(8, True))
    after.remove("k9")
    after.flush()
    assert after.columns["b"].cell(after.row("k8"), after.codes) is True
    assert "k9" not in after


@pytest.mark.parametrize("field", range(5))
def test_columns_that_do_not_fit_are_refused(field):
    held = keeping.kept(table())
    fields = held["columns"]["b"]
    fields[field] = np.full(50, 9, (np.uint8, np.float64, np.int32, np.int32, np.int64)[field]).tobytes()[
        : -8 if field in (1, 4) else None
    ]
    if field in (2, 3):
        fields[field] = np.full(50, 10**6, np.int32).tobytes()
    after = Table(policies=())
    with pytest.raises(ValueError, match="no columns"):
        keeping.restored(after, held, {})
    assert not after.keys
    assert not after.columns


class Steps(Clock):
    """Each sleep of the task is one step; after so many it ends."""

    def __init__(self, steps):
        self.at, self.left = 0.0, steps

    def monotonic(self):
        return self.at

    async def sleep(self, seconds):
        if not self.left:
            raise EOFError
        self.left -= 1
        self.at += max(seconds, module.FORGOTTEN_AFTER_S)


async def test_machines_are_followed_before_anybody_asks_and_other_columns_forgotten(store):
    life = await full(store)
    search = Search(life.directory.table, life.directory.order, {}, Steps(1), life.stored)
    with pytest.raises(EOFError):
        await search.follow()
    kind = search._kinds["Machine"]
    assert len(kind.columns) == 500
    assert kind.columns.behind == 0
    assert {"large", "nested"} <= set(kind.columns.attributes)
    search._clock = Steps(3)
    with pytest.raises(EOFError):
        await search.follow()
    assert search._kinds["Machine"].columns.attributes == []
    assert len(search._kinds["Machine"].columns) == 500


async def test_machines_that_come_later_are_followed_too(store):
    life = Life(store)
    life.search._clock = Steps(1)
    message = next(iter(pool().groups()))
    for number in range(20):
        ads = {f"{name}.{number}": row.packed() for name, row in message.rows.items()}
        life.directory.apply(
            AdUpdate(
                my_type="Machine",
                daemon=f"startd@x{number}",
                start_time=1,
                sequence=1,
                names=list(ads),
                ads=list(ads.values()),
            )
        )
    with pytest.raises(EOFError):
        await life.search.follow()
    assert len(life.search._kinds["Machine"].columns) == 500
