"""What the audit log tells, and its file."""

import asyncio
import json
import os

import pytest
import structlog

from services.gateway.auth import audit as module
from services.gateway.auth.audit import AuditLog, AuditPolicy, append, turn_over
from services.gateway.auth.caller import CALLER, MOST_ITEMS, Caller, note, short
from services.gateway.core.authorization import Identity
from shared.bus.api import BusUnavailable, Exchange
from shared.messages.base import Envelope
from shared.operations import Level
from tests.waiting import eventually

ALICE = Identity("alice@x", Level.WRITE, "0123456789ab")


def caller(status, identity=ALICE, **more):
    return Caller("r1", "192.0.2.7", identity, status=status, **more)


@pytest.mark.parametrize(
    ("method", "path", "status", "identity", "outcome"),
    [
        ("POST", "/v1/jobs/action", 200, ALICE, "done"),
        ("POST", "/v1/jobs/action", 400, ALICE, "refused"),
        ("POST", "/v1/jobs/action", 403, ALICE, "refused"),
        ("PUT", "/v1/jobs/1.0/files", 502, ALICE, "failed"),
        ("DELETE", "/v1/tokens/01234567", 0, ALICE, "broke off"),
        ("POST", "/v1/tokens", 401, None, "refused"),
        ("GET", "/v1/pool", 401, None, "refused"),
        ("GET", "/v1/tokens", 403, ALICE, "refused"),
        ("GET", "/v1/pool", 429, ALICE, "refused"),
        ("GET", "/v1/pool", 200, ALICE, None),
        ("GET", "/v1/jobs", 400, ALICE, None),
        ("POST", "/nowhere", 404, None, None),
        ("POST", "/v1/visits/c2VjcmV0/input", 200, ALICE, None),
    ],
)
def test_what_is_on_record(method, path, status, identity, outcome):
    record = AuditPolicy("gw").record(caller(status, identity), method, path, 5.0, 0.25)
    assert (record.outcome if record is not None else None) == outcome
    if record is not None:
        assert (record.user, record.token) == ((identity.user, identity.token) if identity else ("", ""))
        assert (record.address, record.request_id, record.at) == ("192.0.2.7", "r1", 5.0)


def test_the_name_of_a_visit_is_its_key_and_is_not_told():
    record = AuditPolicy("gw").record(caller(403), "POST", "/v1/visits/c2VjcmV0/input", 5.0, 0.0)
    assert "c2VjcmV0" not in record.model_dump_json()


def test_refusals_do_not_flood_it_and_their_number_is_told():
    auditor = AuditPolicy("gw")
    told = [auditor.record(caller(401, None), "GET", "/v1/pool", 100.0, 0.0) for _ in range(1000)]
    assert len([one for one in told if one is not None]) == 20
    # A deed is always told, and says how much is not.
    assert auditor.record(caller(200), "POST", "/v1/jobs/action", 100.0, 0.0).untold == 980
    assert auditor.record(caller(200), "POST", "/v1/jobs/action", 100.0, 0.0).untold == 0
    assert auditor.record(caller(401, None), "GET", "/v1/pool", 102.0, 0.0) is not None


def test_what_was_asked_is_cut_where_it_is_long():
    one = caller(200)
    mark = CALLER.set(one)
    try:
        note(
            ids=[str(n) for n in range(1000)],
            constraint="x" * 10_000,
            reason="",
            half="\ud800",
            nested={"a": ["b"] * 99},
        )
    finally:
        CALLER.reset(mark)
    assert len(one.what["ids"]) == MOST_ITEMS + 1
    assert one.what["ids"][-1] == "and 980 more"
    assert len(one.what["constraint"]) < 600
    assert "reason" not in one.what
    assert len(json.dumps(one.what)) < 5000
    assert short({str(n): n for n in range(100)})["..."] == "80 more"
    note(nobody="listens")  # outside of a request


# --- the file


class Bus:
    def __init__(self):
        self.published = []
        self.away = False

    async def publish_many(self, messages):
        if self.away:
            raise BusUnavailable("away")
        self.published += messages


def make(tmp_path, bus, **more):
    settings = {"most": 0, "files": 2, **more}
    return AuditLog("gw", tmp_path / "deep" / "audit.log", bus, structlog.get_logger(), **settings)


@pytest.fixture
async def running():
    tasks = []

    def run(audit):
        tasks.append(asyncio.create_task(audit.run()))

    yield run
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


async def test_a_record_is_a_line_an_event_and_kept(tmp_path, running):
    bus = Bus()
    audit = make(tmp_path, bus)
    running(audit)
    audit.request(caller(200, what={"action": "hold"}), "POST", "/v1/jobs/action", 5.0, 0.1)
    path = tmp_path / "deep" / "audit.log"
    await eventually(lambda: bus.published, what="the event")
    (line,) = lines(path)
    assert (line["type"], line["user"], line["what"]) == ("gateway.audit", "alice@x", {"action": "hold"})
    assert path.stat().st_mode & 0o077 == 0
    (sent,) = bus.published
    assert (sent.exchange, sent.key) == (Exchange.EVENTS, "gateway.audit")
    # Another gateway's is shown too, one's own not twice.
    theirs = sent.body.model_copy(update={"gateway": "other"})
    audit.heard(Envelope(theirs))
    audit.heard(Envelope(sent.body))
    assert [record.gateway for record in audit.kept] == ["gw", "other"]


async def test_an_absent_bus_and_a_full_disk_hold_up_nobody(tmp_path, running, monkeypatch):
    bus = Bus()
    bus.away = True
    audit = make(tmp_path, bus)
    (tmp_path / "deep").write_text("in the way")  # its directory can not be made
    running(audit)
    for _ in range(3):
        audit.request(caller(200), "POST", "/v1/jobs/action", 5.0, 0.1)
    await eventually(lambda: not audit._waiting, what="the records to go")
    (tmp_path / "deep").unlink()
    bus.away = False
    audit.request(caller(200), "POST", "/v1/jobs/action", 6.0, 0.1)
    await eventually(lambda: bus.published, what="the event")
    assert [line["at"] for line in lines(tmp_path / "deep" / "audit.log")] == [6.0]


async def test_more_than_can_be_written_is_counted(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "WAITING", 5)
    audit = make(tmp_path, Bus())
    for _ in range(9):
        audit.request(caller(200), "POST", "/v1/jobs/action", 5.0, 0.1)
    with structlog.testing.capture_logs() as logged:
        audit._log = structlog.get_logger()
        await audit.close()
    assert [line["count"] for line in logged if line["event"] == "audit_records_lost"] == [4]
    assert len(lines(tmp_path / "deep" / "audit.log")) == 5


def test_a_large_log_is_turned_over(tmp_path):
    path = tmp_path / "audit.log"
    record = AuditPolicy("gw").record(caller(200), "POST", "/v1/jobs/action", 5.0, 0.1)
    for number in range(6):
        append(path, [record.model_copy(update={"at": float(number)})], most=10, files=3)
    assert [lines(tmp_path / name)[0]["at"] for name in sorted(os.listdir(tmp_path))] == [5.0, 4.0, 3.0, 2.0]
    turn_over(path, 0)
    assert not path.exists()
