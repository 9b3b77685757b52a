"""Log lines: one shape for whoever writes them (docs/daemons.md)."""

import ast
import asyncio
import io
import json
import logging
from pathlib import Path

import pytest
import structlog
from aiohttp import web
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from shared import tracing
from shared.daemon import logs
from tests.infrastructure.imports import SOURCE, house_of

ROOT = Path(__file__).parents[2]
EVERY = {"at", "level", "event", "daemon", "name"}
#: What a line must not use for anything else; and other words for what has a name already.
TAKEN = {*EVERY, "trace_id", "span_id", "exception", "timestamp", "logger"}
OTHER_WORDS = {"job", "jobid", "job_ids", "id", "claim_id", "host_name", "err", "msg", "why"}
LEVELS = {"debug", "info", "warning", "error", "critical", "exception"}


@pytest.fixture
def lines(monkeypatch):
    """What was logged so far, as JSON has it."""
    root, before = logging.getLogger(), structlog.get_config()
    handlers, level = root.handlers, root.level
    monkeypatch.setattr(logs, "_who", {})
    stream = io.StringIO()
    logs.configure("DEBUG", stream=stream)
    yield lambda: [json.loads(line) for line in stream.getvalue().splitlines()]
    root.handlers = handlers
    root.setLevel(level)
    structlog.configure(**before)


async def test_requests_that_can_not_be_read_fill_no_log_and_show_no_token(lines):
    """What aiohttp says of them has the header that was wrong."""

    async def broken(request):
        raise ValueError("ours")

    app = web.Application()
    app.add_routes([web.get("/", broken)])
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        port = runner.addresses[0][1]
        for said, status in (
            (b"GET / HTTP/1.1\r\nHost: localhost\nAuthorization: Bearer secret\r\n\r\n", b" 400 "),
            (b"GET / HTTP/1.1\r\nHost: a\r\nHost: Bearer secret\r\n\r\n", b" 400 "),
            (b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", b" 500 "),
        ):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(said)
            assert status in (await reader.read()).splitlines()[0]
            writer.close()
    finally:
        await runner.cleanup()
    (line,) = lines()
    assert "ValueError: ours" in line["exception"]


def fail():
    try:
        raise ValueError("no\nway")
    except ValueError:
        structlog.stdlib.get_logger("failing").exception("broken", job_id="7.0", path=Path("/tmp/x"))


def test_whoever_logs_writes_one_shape(lines):
    logs.identify("schedd", "ap1")
    structlog.get_logger().bind(sender="schedd.ap1").info("bus.connected", consumers=3)
    logging.getLogger("asyncio").warning("Executing %s took %.1f seconds", "a\nb", 0.25)
    fail()
    bus, library, failed = lines()
    for line in (bus, library, failed):
        assert line.keys() >= EVERY
        assert (line["daemon"], line["name"]) == ("schedd", "ap1")
        assert line["at"].endswith("Z")
    assert (bus["event"], bus["level"], bus["consumers"]) == ("bus.connected", "info", 3)
    assert (library["event"], library["level"]) == ("Executing a\nb took 0.2 seconds", "warning")
    assert failed["level"] == "error"
    assert "ValueError: no\nway" in failed["exception"]
    assert "trace_id" not in bus


def test_of_several_daemons_in_one_process_each_says_who_it_is(lines):
    logs.identify("pool", "here")
    structlog.stdlib.get_logger().bind(daemon="startd", name="ep1").info("claimed")
    structlog.get_logger("store").info("redis_started")
    assert [(line["daemon"], line["name"]) for line in lines()] == [("startd", "ep1"), ("pool", "here")]


def test_lines_within_a_span_say_which(lines):
    exporter = InMemorySpanExporter()
    tracing.use("test", SimpleSpanProcessor(exporter))
    try:
        with tracing.span("a"):
            parent = tracing.current()
            structlog.get_logger().info("inside")
        structlog.get_logger().info("outside")
        assert tracing.trace_of(parent) == {"trace_id": parent[3:35]}
        assert tracing.trace_of("garbage") == tracing.trace_of(None) == {}
    finally:
        tracing.stop()
    assert tracing.trace_of(parent) == {}
    inside, outside = lines()
    assert (inside["trace_id"], inside["span_id"]) == (parent[3:35], parent[36:52])
    assert {"trace_id", "span_id"}.isdisjoint(outside)


def calls():
    """(where, keywords, event) of all that is logged."""
    for module in house_of().modules.values():
        for node in module.nodes:
            if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
                continue
            if node.func.attr in LEVELS and "log" in ast.unparse(node.func.value).lower():
                words = {keyword.arg for keyword in node.keywords if keyword.arg}
                yield f"{module.path.relative_to(ROOT)}:{node.lineno}", words, node.args[0] if node.args else None


#: Others' programs log there.
LIBRARIES = ("roost/consumer", "roost/dask")


@pytest.mark.xdist_group(SOURCE)
def test_no_line_says_with_another_word_what_has_a_name():
    seen = 0
    for where, words, event in calls():
        seen += 1
        assert not words & TAKEN, where
        assert not words & OTHER_WORDS, where
        if isinstance(event, ast.Constant) and not where.startswith(LIBRARIES):
            assert event.value.replace("_", "").replace(".", "").isalnum(), where
            assert event.value == event.value.lower(), where
    assert seen > 100
