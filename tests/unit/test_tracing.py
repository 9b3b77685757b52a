"""What traces are made of, and that they cost nothing while nobody wants them."""

import asyncio
import subprocess
import sys

import pytest
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from shared import tracing
from tests.otlp import Receiver

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.fixture
def spans():
    exporter = InMemorySpanExporter()
    tracing.use("test", SimpleSpanProcessor(exporter))
    yield exporter.get_finished_spans
    tracing.stop()


def test_off_imports_nothing_and_makes_nothing():
    # Others may import OpenTelemetry's API where it is installed; the SDK and the exporter are ours alone.
    code = (
        "import sys; from shared import tracing\n"
        "def loaded(): return [n for n in sys.modules if n.startswith('opentelemetry')]\n"
        "assert not tracing.start('x', None, {})\n"
        f"with tracing.span('a', {PARENT!r}), tracing.handling('b', {PARENT!r}): assert tracing.current() is None\n"
        f"tracing.told('c', {PARENT!r}, 1.0, 2.0, {{}})\n"
        "assert not loaded(), loaded()\n"
        "import services.schedd.daemon, services.gateway.daemon, shared.daemon.main\n"
        "bad = [n for n in loaded() if n.startswith(('opentelemetry.sdk', 'opentelemetry.exporter'))]\n"
        "assert not bad, bad"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert ran.returncode == 0, ran.stderr


def test_without_the_extra_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http.trace_exporter", None)
    with pytest.raises(tracing.NoTracing, match=r"roost-pool\[otel\]"):
        tracing.start("x", "http://127.0.0.1:1", {})
    assert not tracing.on()


def test_spans_nest_and_errors_show(spans):
    def fail():
        with tracing.span("inner"):
            assert tracing.current() != PARENT
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"), tracing.span("outer", PARENT, user="alice"):
        fail()
    inner, outer = spans()
    assert inner.parent.span_id == outer.context.span_id
    assert f"{outer.parent.span_id:016x}" == PARENT[36:52]
    assert {s.context.trace_id for s in (inner, outer)} == {int(PARENT[3:35], 16)}
    assert outer.status.status_code is StatusCode.ERROR
    assert "no" in outer.status.description
    assert inner.status.status_code is not StatusCode.ERROR
    assert outer.attributes["user"] == "alice"
    assert tracing.current() is None


@pytest.mark.parametrize(
    "forged",
    ["", "garbage", PARENT.replace("b7ad6b7169203331", "0" * 16), "ff" + PARENT[2:], PARENT + "\n", PARENT * 99],
)
def test_what_is_no_traceparent_counts_as_none(spans, forged):
    with tracing.span("a", forged):
        pass
    with tracing.handling("b", forged):
        pass
    tracing.told("c", forged, 1.0, 2.0, {})
    (only,) = spans()
    assert only.parent is None


def test_what_the_caller_does_not_want_recorded_is_not(spans):
    with tracing.span("a", PARENT[:-2] + "00"):
        assert tracing.current().endswith("-00")
    assert not spans()


def test_derived_ids_are_always_the_same(spans):
    wanted = tracing.derived(PARENT, "job", "7.0")
    assert wanted == tracing.derived(PARENT, "job", "7.0") != tracing.derived(PARENT, "job", "7.1")
    assert tracing.proper(wanted) == wanted
    tracing.told("job", PARENT, 10.0, 12.5, {}, id_of=wanted, error="broken")
    tracing.told("next", PARENT, 10.0, 9.0, {})
    job, after = spans()
    assert f"{job.context.span_id:016x}" == wanted[36:52]
    assert (job.start_time, job.end_time) == (10_000_000_000, 12_500_000_000)
    assert job.status.status_code is StatusCode.ERROR
    assert after.context.span_id != job.context.span_id, "an id is wanted for one span only"
    assert after.end_time == after.start_time


def test_a_collector_gets_the_spans():
    with Receiver() as receiver:
        try:
            assert tracing.start("roost-test", f"{receiver.url}/", {}, instance="node1")
            with tracing.span("gateway.submit", user="alice"):
                submit = tracing.current()
                tracing.note(jobs=3)
            tracing.told("job", submit, 10.0, 12.5, {"job_id": "7.0"}, error="broken", link=PARENT)
        finally:
            tracing.stop()  # sends what waits
    assert not receiver.problems
    first, job = receiver.spans
    assert (first.service, first.instance, first.name, first.parent) == ("roost-test", "node1", "gateway.submit", "")
    assert first.attributes == {"user": "alice", "jobs": 3}
    assert (job.trace, job.parent) == (first.trace, first.id) == (submit[3:35], submit[36:52])
    assert (job.began, job.ended, job.failed) == (10.0, 12.5, True)
    assert job.links == ((PARENT[3:35], PARENT[36:52]),)


@pytest.mark.parametrize(
    ("variables", "sent"),
    [
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "{}", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": ""}, True),
        (
            {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "{}/v1/traces"},
            True,
        ),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": " "}, False),
        ({}, False),
    ],
)
def test_the_variables_of_the_standard_say_where_spans_go(monkeypatch, variables, sent):
    with Receiver() as receiver:
        variables = {name: value.format(receiver.url) for name, value in variables.items()}
        for name, value in variables.items():
            monkeypatch.setenv(name, value)  # the exporter looks too
        try:
            assert tracing.start("roost-test", None, variables) == sent
            with tracing.span("a"):
                pass
        finally:
            tracing.stop()
    assert [span.name for span in receiver.spans] == (["a"] if sent else [])
    assert not receiver.problems


def test_what_is_noted_when_the_span_is_over_is_dropped(spans):
    async def outlives(over):
        await over.wait()
        assert tracing.current() is None
        tracing.note(late=True)

    async def main():
        over = asyncio.Event()
        with tracing.span("a"):
            task = asyncio.create_task(outlives(over))
        over.set()
        await task

    asyncio.run(main())
    tracing.note(nowhere=True)
    (only,) = spans()
    assert not only.attributes
