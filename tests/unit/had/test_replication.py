"""A HAD's copies of the books, and Redis given them back (HA-13 to HA-18)."""

import asyncio

import pytest

from services.had.replication import Replication
from shared.accounting_version import NOTHING, Version
from shared.bus.api import Exchange
from shared.bus.memory import MemoryBus, MemoryHub
from shared.config.knobs import KNOBS, HadSettings
from shared.messages.events import BooksRestored, SnapshotRefused
from shared.state import StaleEpoch, keys
from shared.state.accounting import StoredRecords, begin_records, read_records, restore_records, write_records
from shared.state.embedded import EmbeddedStore
from tests.daemons import make_context
from tests.spec import spec
from tests.waiting import eventually


class Here:
    """One HAD's replication on a store and bus of its own."""

    def __init__(self, tmp_path):
        self.tmp_path = tmp_path
        self.hub, self.events = MemoryHub(), []

    async def start(self):
        self.store = EmbeddedStore()
        await self.store.start()
        self.bus = MemoryBus(self.hub, sender="had.cm1")
        await self.bus.start()

        async def note(envelope):
            self.events.append(envelope.body)

        await self.bus.listen(Exchange.EVENTS, ["had.#"], note)
        return self

    async def stop(self):
        await self.bus.stop()
        await self.store.stop()

    def made(self, **config):
        config = {"HAD_USE_REPLICATION": "true", "SPOOL": str(self.tmp_path)} | config
        context = make_context("HAD", "cm1", bus=self.bus, store=self.store, config=config, directory=self.tmp_path)
        return Replication(context, HadSettings.from_config(context.config), "")

    async def write(self, epoch, name, row=b"row", base=NOTHING):
        return await write_records(self.store, "", epoch, base, submitters=[(name.encode(), row)])

    async def empty(self):
        await self.store.delete(
            keys.accountant(""), keys.accountant_groups(""), keys.accountant_version(""), keys.had_epoch()
        )


@pytest.fixture
async def here(tmp_path):
    made = await Here(tmp_path).start()
    yield made
    await made.stop()


@spec("HA-15", "HA-11", "HA-14")
def test_replication_is_off_by_default():
    """The other defaults of HTCondor's."""
    defaults = {name: KNOBS[name.lower()].default for name in (
        "HAD_USE_REPLICATION", "REPLICATION_INTERVAL", "MAX_TRANSFER_LIFETIME", "HAD_CONNECTION_TIMEOUT",
        "HAD_UPDATE_INTERVAL", "HAD_CONTROLLEE", "HAD_USE_PRIMARY",
    )}  # fmt: skip
    assert defaults == {
        "HAD_USE_REPLICATION": "false",
        "REPLICATION_INTERVAL": "300",
        "MAX_TRANSFER_LIFETIME": "300",
        "HAD_CONNECTION_TIMEOUT": "5",
        "HAD_UPDATE_INTERVAL": "300",
        "HAD_CONTROLLEE": "NEGOTIATOR",
        "HAD_USE_PRIMARY": "false",
    }


@spec("HA-15")
async def test_without_replication_nothing_is_copied(here):
    copies = here.made(HAD_USE_REPLICATION="false")
    await copies.start()
    await here.write(1, "a")
    await copies.copy()
    assert not copies.disk.state_file.exists()
    await copies.remember(5)
    assert here.made(HAD_USE_REPLICATION="false").disk.read().epoch == 5  # epochs are


@spec("HA-13")
async def test_emptied_redis_gets_the_copy_back(here):
    copies = here.made()
    await copies.start()
    await here.write(3, "a", b"1")
    version = await here.write(3, "b", b"2")
    await copies.copy()
    assert copies.version == version
    await here.empty()

    later = here.made()
    assert await later.start() == 3  # the copy's epoch: Redis has none
    assert later.version == version
    await later.restore(4, Version(-1, 0), NOTHING, version)
    books = await read_records(here.store, "")
    assert books.submitters == {b"a": b"1", b"b": b"2"}
    assert books.version == Version(4, version.count + 1)
    await eventually(lambda: here.events)
    (event,) = here.events
    assert isinstance(event, BooksRestored)
    assert (event.source, event.restored, event.newest_known) == ("snapshot", version.text, version.text)


@spec("HA-13", "ACC-16")
async def test_a_copy_has_the_claims_that_were_charged(here):
    copies = here.made()
    await copies.start()
    rows = [(b"1.5 slot1@ep", b"row")]
    version = await write_records(here.store, "", 3, NOTHING, until=12.0, submitters=[(b"a@p", b"1")], claims=rows)
    await copies.copy()
    await here.empty()
    await here.store.delete(keys.accountant_claims(""))
    await copies.restore(4, Version(-1, 0), NOTHING, version)
    books = await read_records(here.store, "")
    assert (books.until, books.claims[b"1.5 slot1@ep"]) == (12.0, b"row")


@spec("HA-16")
async def test_older_books_are_replaced_as_a_whole_and_newer_ones_never(here):
    await here.write(3, "old")
    new = StoredRecords(Version(3, 9), {b"new": b"1"}, {b"g": b"2"})
    after = await restore_records(here.store, "", 4, new)
    assert after == Version(4, 10)
    books = await read_records(here.store, "")
    assert (books.submitters, books.groups) == (new.submitters, new.groups)
    # Asked again, as when the answer was lost: nothing is done.
    assert await restore_records(here.store, "", 4, new) == after
    # And an older copy of somebody's changes nothing.
    assert await restore_records(here.store, "", 4, StoredRecords(Version(3, 8), {}, {})) == after
    assert (await read_records(here.store, "")) == books
    assert await here.store.hgetall(keys.accountant_aside("")) == {}


async def test_nobody_restores_under_an_epoch_that_is_over(here):
    await here.store.set(keys.had_epoch(), 7)
    with pytest.raises(StaleEpoch):
        await restore_records(here.store, "", 6, StoredRecords(Version(9, 9), {b"a": b"b"}, {}))
    with pytest.raises(StaleEpoch):
        await begin_records(here.store, "", 6, NOTHING)
    assert (await read_records(here.store, "")) == StoredRecords()


async def test_books_of_many_records_are_restored_in_parts(here):
    many = {f"u{i}@p".encode(): b"x" * 10 for i in range(12_001)}
    await restore_records(here.store, "", 1, StoredRecords(Version(1, 5), many, {}))
    assert (await read_records(here.store, "")).submitters == many


async def test_a_crash_in_the_middle_of_restoring_leaves_the_books_as_they_were(here):
    await here.write(3, "old")
    before = await read_records(here.store, "")
    staged = [keys.had_epoch(), keys.accountant_aside("")]
    await here.store.run("books_stage", staged, [4, 1, "half", b"x"])
    assert await read_records(here.store, "") == before
    await restore_records(here.store, "", 5, StoredRecords(Version(3, 9), {b"whole": b"1"}, {}))
    assert (await read_records(here.store, "")).submitters == {b"whole": b"1"}


async def test_write_on_books_that_went_back_in_time_is_refused(here):
    first = await here.write(3, "a")
    second = await here.write(3, "b", base=first)
    await here.store.set(keys.accountant_version(""), first.arg)
    with pytest.raises(StaleEpoch, match=r"version 3\.2 was written, here is 3\.1"):
        await here.write(3, "c", base=second)
    assert b"c" not in await here.store.hgetall(keys.accountant(""))


@spec("HA-16")
async def test_damaged_copy_is_refused_and_told(here):
    copies = here.made()
    await copies.start()
    await here.write(1, "a")
    await copies.copy()
    await here.write(1, "b")
    await copies.copy()
    copies.disk.state_file.write_bytes(copies.disk.state_file.read_bytes()[:-3])
    later = here.made()
    await later.start()
    assert later.version == Version(1, 1)  # the one before
    await eventually(lambda: here.events)
    (event,) = here.events
    assert isinstance(event, SnapshotRefused)
    assert "wrong checksum" in event.problem


async def test_books_that_redis_has_are_kept_when_nobody_has_newer_ones(here):
    copies = here.made()
    await copies.start()
    await here.write(1, "a")
    await copies.restore(2, Version(1, 1), NOTHING, known=Version(1, 9))
    books = await read_records(here.store, "")
    assert (books.submitters, books.version) == ({b"a": b"row"}, Version(2, 10))
    await eventually(lambda: here.events)
    assert (here.events[0].source, here.events[0].newest_known) == ("nothing newer", "1.9")


async def test_what_the_negotiator_has_in_memory_is_left_to_it(here):
    copies = here.made()
    await copies.start()
    await here.write(1, "a")
    await copies.copy()
    await here.empty()
    await copies.restore(2, Version(-1, 0), memory=Version(1, 5), known=Version(1, 5))
    assert (await read_records(here.store, "")).version == Version(-1, 0)


async def test_failed_copy_is_told_and_tried_again(here):
    copies = here.made()
    await copies.start()
    await here.write(1, "a")
    copies.disk.state_file.parent.joinpath(copies.disk.state_file.name + ".new").mkdir()
    await copies.copy()
    assert "IsADirectoryError" in copies.problem
    copies.disk.state_file.parent.joinpath(copies.disk.state_file.name + ".new").rmdir()
    await copies.copy()
    assert (copies.problem, copies.version) == ("", Version(1, 1))


@spec("HA-14", "HA-17", "HA-18")
async def test_copies_are_made_as_the_books_change(here):
    """Each HAD wakes up by itself and copies from Redis; no process is started, no other central
    manager is asked."""
    copies = here.made(REPLICATION_INTERVAL="1")
    await copies.start()
    task = asyncio.create_task(copies.keep_copying())
    version = await here.write(1, "a")
    await eventually(lambda: copies.version == version)
    version = await here.write(1, "b")
    copies.soon()
    await eventually(lambda: copies.version == version)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_each_shard_has_copies_of_its_own(here):
    context = make_context("HAD", "cm1", bus=here.bus, store=here.store)
    settings = HadSettings.from_config(context.config)
    one, other = Replication(context, settings, ""), Replication(context, settings, "gpus")
    assert one.disk.state_file != other.disk.state_file
    assert one.disk.epoch_file != other.disk.epoch_file
