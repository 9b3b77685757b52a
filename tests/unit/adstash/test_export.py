"""Exports to a real HTTP server that refuses, is busy, and dies half-way (MON-17 to MON-20)."""

import asyncio
import json
import time
from pathlib import Path

import pytest
import structlog

from services.adstash.core.checkpoint import Checkpoint
from services.adstash.core.documents import Document
from services.adstash.daemon import Adstash
from services.adstash.elastic import ATTEMPTS, Elastic, Server
from services.adstash.exporter import Exporter
from services.adstash.json_files import JsonFiles
from services.adstash.sources import HistoryFile, ScheddHistory
from shared.bus.api import RemoteFailure
from shared.bus.memory import MemoryHub
from shared.classad import ClassAd, unparse_old
from shared.config import ConfigError
from shared.config.knobs import KNOBS, AdstashSettings
from shared.cooperative import SLICE_S
from shared.daemon.lifecycle import run_daemon
from shared.errors import PermanentError
from shared.messages.ads import AdPage
from shared.messages.queue import JobPage
from tests.daemons import make_context
from tests.spec import spec
from tests.unit.adstash.server import Search
from tests.waiting import eventually

LOG = structlog.stdlib.get_logger()


class Clock:
    """Pauses take no time, and are written down."""

    def __init__(self):
        self.slept = []

    async def sleep(self, seconds):
        self.slept.append(seconds)
        await asyncio.sleep(0)


def job(number, **more):
    return ClassAd(
        {
            "GlobalJobId": f"ap#{number}.0#1", "ClusterId": number, "ProcId": 0, "Owner": "ann", "JobStatus": 4,
            "CompletionDate": 1700000000 + number, "Environment": "SECRET=1",
        } | more
    )  # fmt: skip


class Schedd:
    """A history that grows."""

    def __init__(self, jobs=()):
        self.jobs = list(jobs)
        self.looked = 0

    def source(self):
        async def newest_first():
            for ad in reversed(list(self.jobs)):
                self.looked += 1
                yield ad

        return ScheddHistory("ap", newest_first)


@pytest.fixture
async def search():
    async with Search() as found:
        yield found


@pytest.fixture
async def made(search, tmp_path):
    """Makes an exporter, as a new process would; all are closed."""
    targets = []

    def make(bunch=10, **more):
        target = Elastic(Server(f"http://{search.host}", "htcondor-000001", **more), Clock(), LOG)
        targets.append(target)
        return Exporter(target, tmp_path / "checkpoint", bunch, LOG)

    yield make
    for target in targets:
        await target.close()


@spec("MON-17", "MON-19")
async def test_the_index_is_made_with_its_fields_and_each_record_exported_once(search, made):
    """MON-17: htcondor-000001 is made if it is missing. MON-19: a checkpoint tells what has been exported."""
    schedd = Schedd(job(number) for number in range(25))
    exporter = made()
    assert (await exporter.run([schedd.source()])).records == 25
    path, body = search.index
    assert path == "/htcondor-000001"
    assert body["mappings"]["properties"]["CompletionDate"]["type"] == "date"
    assert len(search.documents) == 25
    assert not any("Environment" in document for document in search.documents.values())
    schedd.looked = 0
    schedd.jobs.append(job(100))
    again = made()  # another process
    await again.read_checkpoint()
    assert (await again.run([schedd.source()])).records == 1
    assert schedd.looked == 2  # no more than what is new, and where it met what is not
    assert len(search.documents) == 26
    assert set(search.created.values()) == {1}
    assert search.mapped  # the index was there: its fields are brought up to date
    assert (await again.run([schedd.source()])).records == 0


@spec("MON-19")
async def test_a_killed_exporter_repeats_nothing(search, made):
    """What was sent before the checkpoint moved is sent again, and stays as it is."""
    schedd = Schedd(job(number) for number in range(25))
    exporter = made()
    search.plan["POST /_bulk"] = ["deaf"] * 2 + [None, "die"] + [503] * 100
    passed = await exporter.run([schedd.source()])
    assert "does not answer" in passed.problems["schedd-ap"]
    assert not exporter.checkpoint.exists()
    assert 0 < len(search.documents) < 25
    search.plan.clear()
    fresh = made()
    await fresh.read_checkpoint()
    assert not (await fresh.run([schedd.source()])).problems
    assert len(search.documents) == 25
    assert set(search.created.values()) == {1}
    assert fresh.target.counts.exported + fresh.target.counts.there == 25


async def test_a_busy_server_is_asked_again_with_longer_pauses(search, made):
    schedd = Schedd(job(number) for number in range(5))
    exporter = made()
    search.plan["POST /_bulk"] = [(429, {"Retry-After": "7"}), 503, "die"]
    search.plan["HEAD /htcondor-000001"] = [503]
    search.busy = {"ap#3.0#1#1700000003": [429, 429], "ap#4.0#1#1700000004": [503]}
    assert not (await exporter.run([schedd.source()])).problems
    assert len(search.documents) == 5
    assert any(pause >= 7 for pause in exporter.target.clock.slept)
    assert set(search.created.values()) == {1}


async def test_a_server_that_stays_busy_ends_the_pass_and_keeps_the_checkpoint(search, made):
    schedd = Schedd([job(1)])
    exporter = made()
    search.busy = {"ap#1.0#1#1700000001": [429] * 100}
    passed = await exporter.run([schedd.source(), ScheddHistory("other", Schedd([job(2)]).source)])
    assert "does not take 1 records: busy: full" in passed.problems["schedd-ap"]
    assert search.asked["POST /_bulk"] == ATTEMPTS
    assert exporter.marks.of == {}


async def test_what_a_server_refuses_is_sent_without_its_users_attributes_and_else_left_out(search, made):
    schedd = Schedd([job(1), job(2, Mine="x"), job(3, Owner="bad", Mine="x")])
    search.refuse = lambda document: "too many fields" if "Mine" in document or document["Owner"] == "bad" else ""
    exporter = made()
    assert not (await exporter.run([schedd.source()])).problems
    assert {document["Owner"] for document in search.documents.values()} == {"ann"}
    assert len(search.documents) == 2
    counts = exporter.target.counts
    assert (counts.exported, counts.bare, counts.refused) == (2, 1, 1)
    assert counts.reason == "mapper: too many fields"
    assert (await exporter.run([schedd.source()])).records == 0  # it does not come back for ever


async def test_requests_become_smaller_where_the_server_wants_that(search, made):
    schedd = Schedd(
        [*(job(number) for number in range(20)), job(98, Large="x" * 20_000), job(99, HoldReason="x" * 20_000)]
    )
    search.most = 4000
    exporter = made(bunch=100)
    assert not (await exporter.run([schedd.source()])).problems
    assert len(search.documents) == 21
    assert (exporter.target.counts.bare, exporter.target.counts.refused) == (1, 1)


@pytest.mark.parametrize(("status", "mend"), [(401, "ADSTASH_SE_PASSWORD_FILE"), (403, "grant create_index and write")])
async def test_who_is_not_let_in_is_told_how_to_mend_that(search, made, status, mend):
    search.plan["HEAD /htcondor-000001"] = [status]
    exporter = made(user="ann", password="x")
    passed = await exporter.run([Schedd([job(1)]).source()])
    assert mend in passed.problems["schedd-ap"]
    assert search.authorization[0].startswith("Basic ")
    assert exporter.target.clock.slept == []  # no use in asking again


async def test_answers_that_make_no_sense_end_the_pass(search, made):
    exporter = made()
    search._items = lambda body: [{"create": {}}]
    passed = await exporter.run([Schedd([job(1)]).source()])
    assert "has no status" in passed.problems["schedd-ap"]
    search._items = lambda body: []
    passed = await exporter.run([Schedd([job(1)]).source()])
    assert "want an answer of _bulk with 1 items" in passed.problems["schedd-ap"]


async def test_one_source_that_fails_does_not_keep_others_from_being_exported(search, made, tmp_path):
    async def broken():
        raise PermanentError("it is away")
        yield

    (tmp_path / "dir").mkdir()
    exporter = made()
    sources = [
        ScheddHistory("gone", broken),
        HistoryFile(tmp_path / "dir", "ad_file", "ep"),
        HistoryFile(tmp_path / "missing", "ad_file", "ep"),
        Schedd([job(1)]).source(),
    ]
    passed = await exporter.run(sources)
    assert passed.problems.keys() == {"schedd-gone", f"file-{tmp_path}/dir"}
    assert len(search.documents) == 1


@spec("MON-19")
async def test_history_files_are_followed_through_their_renaming(search, made, tmp_path):
    """Histories of execution points are files, which are renamed when they are long."""
    path = tmp_path / "startd_history"

    def text(*numbers):
        return "".join(f"{unparse_old(job(number)).rstrip()}\n*** Offset = 0\n" for number in numbers)

    path.write_text(text(1, 2) + "ClusterId = 3\n")
    exporter = made()

    def source():
        return HistoryFile(path, "startd_history", "ep")

    assert (await exporter.run([source()])).records == 2
    whole = path.read_text().replace("ClusterId = 3\n", "") + text(3)
    path.write_text(whole)  # the record is complete now
    assert (await exporter.run([source()])).records == 1
    path.rename(tmp_path / "startd_history.20260101T000000")
    path.write_text(text(4))
    assert (await made_again(made, exporter).run([source()])).records == 1
    assert sorted(document["ClusterId"] for document in search.documents.values()) == [1, 2, 3, 4]
    assert {document["SourceDaemon"] for document in search.documents.values()} == {"ep"}


def made_again(made, before):
    exporter = made()
    exporter.marks = Checkpoint.parse(before.checkpoint.read_text())
    return exporter


@spec("MON-19")
async def test_files_of_json_lines_have_each_record_once(tmp_path):
    """Also when the exporter is killed between its file and its checkpoint."""
    schedd = Schedd(job(number) for number in range(3))

    def exporter():
        found = Exporter(JsonFiles(tmp_path / "out"), tmp_path / "checkpoint", 2, LOG)
        if found.checkpoint.exists():
            found.marks = Checkpoint.parse(found.checkpoint.read_text())
        return found

    def exported():
        files = sorted((tmp_path / "out").glob("*.jsonl"))
        return [json.loads(line)["ClusterId"] for file in files for line in file.read_text().splitlines()]

    await exporter().run([schedd.source()])
    (tmp_path / "checkpoint").unlink()  # it was killed before it wrote this
    schedd.jobs.append(job(3))
    await exporter().run([schedd.source()])
    assert sorted(exported()) == [0, 1, 2, 3]
    await exporter().run([schedd.source()])
    schedd.jobs.append(job(4))
    await exporter().run([schedd.source()])
    assert sorted(exported()) == [0, 1, 2, 3, 4]
    assert len(list((tmp_path / "out").iterdir())) == 2


async def test_others_have_their_turn_while_records_are_read(tmp_path):
    """In a personal pool they are all daemons: a bunch of records takes half a second and more."""

    class Slow:
        name, unreadable = "slow", 0

        async def documents(self, mark):
            for number in range(60):
                until = time.perf_counter() + SLICE_S / 2
                while time.perf_counter() < until:
                    pass
                seen.add(turns)
                yield Document(str(number), {})

        def next(self, mark):
            return mark

    turns, seen = 0, set()

    async def other():
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    task = asyncio.create_task(other())
    await Exporter(JsonFiles(tmp_path), tmp_path / "checkpoint", 1000, LOG)._one(Slow())
    task.cancel()
    assert len(seen) > 10


async def test_a_full_disk_ends_the_pass_and_nothing_else(tmp_path, monkeypatch):
    """What is left in the file's buffer can not be written either."""
    target = JsonFiles(tmp_path)
    exporter = Exporter(target, tmp_path / "checkpoint", 2, LOG)
    schedd = Schedd(job(number) for number in range(3))
    with monkeypatch.context() as patch:
        patch.setattr(target, "_new", lambda: Path("/dev/full"))
        passed = await exporter.run([schedd.source()])
        assert "No space left" in " ".join(passed.problems.values())
        await target.close()
    assert not (await exporter.run([schedd.source()])).problems
    assert target.counts.exported == 3


async def test_a_checkpoint_that_can_not_be_read_is_for_a_person(made):
    exporter = made()
    exporter.checkpoint.write_text("{")
    with pytest.raises(PermanentError, match="mend it, or remove it to export all anew"):
        await exporter.read_checkpoint()


@spec("MON-17", "W-80")
def test_defaults():
    """Every 20 minutes, all schedds, localhost, htcondor-000001."""
    defaults = {name: KNOBS[f"adstash_{name}"].default for name in (
        "sample_interval", "read_schedds", "se_host", "se_index_name", "schedd_history", "startd_history"
    )}  # fmt: skip
    assert defaults == {
        "sample_interval": "1200", "read_schedds": "*", "se_host": "localhost:9200",
        "se_index_name": "htcondor-000001", "schedd_history": "true", "startd_history": "false",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("config", "url"),
    [
        ({}, "http://localhost:9200"),
        ({"ADSTASH_SE_HOST": "es", "ADSTASH_SE_USE_HTTPS": "true"}, "https://es:9200"),
        ({"ADSTASH_SE_HOST": "https://es.example.org/", "ADSTASH_SE_URL_PREFIX": "a/b/"}, "https://es.example.org/a/b"),
        ({"ADSTASH_SE_HOST": "[fd00::1]:1"}, "http://[fd00::1]:1"),
    ],
)
def test_where_the_server_is(config, url):
    from services.adstash.daemon import server_of

    context = make_context("ADSTASH", config=config)
    assert server_of(AdstashSettings.from_config(context.config)).url == url


@pytest.mark.parametrize(
    "config",
    [
        {"ADSTASH_SE_HOST": "http://ann:secret@es"},
        {"ADSTASH_SE_INDEX_NAME": "../x"},
        {"ADSTASH_SE_PASSWORD_FILE": "/nonexistent"},
        {"ADSTASH_INTERFACE": "mysql"},
    ],
)
def test_what_can_not_be_used_is_refused_by_name(config):
    from services.adstash.daemon import target_of

    context = make_context("ADSTASH", config=config)
    with pytest.raises(ConfigError, match=next(iter(config))):
        target_of(AdstashSettings.from_config(context.config), context.clock, LOG)


@spec("MON-17", "MON-20")
async def test_the_daemon_exports_all_schedds_of_the_collector(search, tmp_path):
    """The daemon's form."""
    hub = MemoryHub()
    config = {"ADSTASH_SE_HOST": search.host, "ADSTASH_CHECKPOINT_FILE": tmp_path / "checkpoint"}
    config["ADSTASH_SAMPLE_INTERVAL"] = 3600
    others = {}

    async def serve(subsystem, inbox, answer):
        context = others[inbox] = make_context(subsystem, inbox, hub=hub)
        await context.bus.start()

        async def on_request(envelope):
            return answer(envelope.body)

        await context.bus.serve(inbox, on_request)

    ads = [ClassAd({"MyType": "Scheduler", "Name": name, "MyAddress": f"schedd.{name}"}) for name in ("one", "two")]
    await serve("COLLECTOR", "collector", lambda body: AdPage(ads=[ad.pack() for ad in ads]))

    def pages(numbers):
        """A history of several pages, which ends with an empty one."""

        def answer(body):
            assert body.history
            at = int(body.after or 0)
            return JobPage(
                ads=[job(number).pack() for number in numbers[at : at + 2]],
                next=str(at + 2) if at + 2 <= len(numbers) else "",
            )

        return answer

    def history(schedd):
        def answer(body):
            if isinstance(histories[schedd], Exception):
                raise histories[schedd]
            return histories[schedd](body)

        return answer

    histories = {"one": pages([5, 4, 3, 2]), "two": pages([7])}
    await serve("SCHEDD", "schedd.one", history("one"))
    await serve("SCHEDD", "schedd.two", history("two"))
    context = make_context("ADSTASH", "cm", hub=hub, config=config, directory=tmp_path)
    await context.bus.start()
    adstash = Adstash(context)
    life = asyncio.create_task(run_daemon(adstash))
    await eventually(lambda: adstash.passes == 1)
    assert adstash.ready() == ""
    assert sorted(document["ClusterId"] for document in search.documents.values()) == [2, 3, 4, 5, 7]
    histories["two"] = RemoteFailure("busy", "not now")
    histories["one"] = pages([6, 5, 4, 3, 2])
    await adstash.reconfigure()  # which has it look again
    await eventually(lambda: adstash.passes == 2)
    assert adstash.ready() == "schedd-two: not now"
    assert len(search.documents) == 6
    context.stopping.set()
    await life
    await context.bus.stop()
    for other in others.values():
        await other.bus.stop()
