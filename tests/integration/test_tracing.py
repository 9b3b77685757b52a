"""One job is one trace, from its submit to its output, over restarts of the schedd."""

import asyncio
import urllib.request

import msgpack
import pytest
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from shared import tracing
from shared.bus.api import RemoteFailure
from shared.classad import ClassAd
from shared.messages.queue import ActOnJobs, SubmitJobs
from tests.integration.inside import InsidePool
from tests.otlp import Receiver, orphans
from tests.waiting import eventually
from tests.wholepool import USER, WholePool

FORGED = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
ALL = {
    "schedd.submit", "job", "job.attempt", "job.wait", "match", "claim.request", "handle claim.request", "activation",
    "transfer.input", "run", "transfer.output",
}  # fmt: skip
#: Of a cycle, in their order.
PARTS = ("trigger", "requests", "snapshot", "decide", "charge", "tell")


@pytest.fixture
def spans():
    exporter = InMemorySpanExporter()
    tracing.use("test", SimpleSpanProcessor(exporter))
    yield exporter.get_finished_spans
    tracing.stop()


@pytest.fixture
async def pool(tmp_path):
    async with WholePool(tmp_path) as pool:
        yield pool


def of_job(spans, job_id):
    return {span.name: span for span in spans() if span.attributes.get("job_id") == job_id}


async def test_a_job_is_one_trace_over_a_restart_of_its_schedd(pool, spans, tmp_path):
    begun = tmp_path / "begun"
    script = f"touch {begun}; while [ ! -e {tmp_path}/go ]; do sleep 0.1; done; echo done; exit 3"
    ad = pool.job(
        "/bin/sh", ShouldTransferFiles="YES", Arguments=f"-c '{script}'", Out="out", TransferExecutable=False,
        RoostTrace=FORGED,
    )  # fmt: skip
    with tracing.span("gateway.submit"):
        asked = tracing.current()
        cluster = (
            await pool.call(
                "schedd.ap",
                SubmitJobs(
                    cluster_ad=ad.pack(), procs=[ClassAd({"RoostTrace": FORGED}).pack()], user=USER, submit_id="traced"
                ),
            )
        ).cluster
    job_id = f"{cluster}.0"
    await eventually(begun.exists, 60, "the job to run")
    await pool.end("schedd")
    await pool.begin("schedd", "ap")
    edits = ClassAd({"RoostTrace": FORGED}).pack()
    with pytest.raises(RemoteFailure, match="RoostTrace"):
        await pool.call("schedd.ap", ActOnJobs(action="edit", ids=[job_id], edits=edits, user=USER, admin=True))
    await asyncio.to_thread((tmp_path / "go").touch)
    (done,) = await pool.rests(cluster)
    assert done.eval("ExitCode") == 3
    await eventually(lambda: {"job", "run"} <= set(of_job(spans, job_id)), 60, "the spans of its end")
    trace = [span for span in spans() if f"{span.context.trace_id:032x}" == asked[3:35]]
    by_name = {span.name: span for span in trace}
    assert set(by_name) >= ALL, ALL - set(by_name)
    assert len({span.context.span_id for span in trace}) == len(trace)
    assert not [span for span in spans() if f"{span.context.trace_id:032x}" == FORGED[3:35]]
    assert {span.context.trace_id for span in of_job(spans, job_id).values()} == {int(asked[3:35], 16)}

    def parent(name):
        return next(span.name for span in trace if span.context.span_id == by_name[name].parent.span_id)

    assert {name: parent(name) for name in ALL} == {
        "schedd.submit": "handle queue.submit",
        "job": "schedd.submit",
        "job.attempt": "job",
        "job.wait": "job.attempt",
        "match": "job.attempt",
        "claim.request": "job.attempt",
        "handle claim.request": "claim.request",
        "activation": "job.attempt",
        "transfer.input": "job.attempt",
        "run": "job.attempt",
        "transfer.output": "job.attempt",
    }
    run = by_name["run"]
    assert run.attributes["exit_code"] == 3
    assert run.attributes["owner"] == USER.partition("@")[0]
    assert run.attributes["attempt"] == 1
    assert run.attributes["slot"].endswith("ep")
    starts = [by_name[name].start_time for name in ("job.wait", "claim.request", "activation", "run")]
    assert starts == sorted(starts)
    assert run.end_time <= by_name["job"].end_time


async def test_a_collector_gets_a_job_and_the_cycle_that_matched_it_as_connected_traces(pool):
    with Receiver() as receiver:
        try:
            assert tracing.start("roost-pool", receiver.url, {})
            with tracing.span("gateway.submit"):
                trace = tracing.current()[3:35]
                cluster = await pool.submit(pool.job("/bin/true", ShouldTransferFiles="YES", TransferExecutable=False))
            await pool.rests(cluster)
            await eventually(lambda: pool.negotiator.counts.matches, 60, "the end of the cycle")
        finally:
            await asyncio.to_thread(tracing.stop)  # sends what waits
    assert not receiver.problems
    mine = receiver.trace(trace)
    assert {span.name for span in mine} == {"gateway.submit", "handle queue.submit"} | ALL
    assert not orphans(mine)
    (match,) = (span for span in mine if span.name == "match")
    ((other, linked),) = match.links
    theirs = receiver.trace(other)
    assert not orphans(theirs)
    by_id = {span.id: span for span in theirs}
    path = [by_id[linked]]
    while path[-1].parent:
        path.append(by_id[path[-1].parent])
    assert [span.name for span in path] == ["handle negotiation.matches", "cycle.tell", "cycle"]
    cycle = path[-1]
    assert cycle.attributes["cycle"] == match.attributes["cycle"]
    assert (cycle.attributes["jobs"], cycle.attributes["matches"]) == (1, 1)
    assert "new-jobs" in cycle.attributes["trigger"].split(",")
    parts = [span for span in theirs if span.parent == cycle.id]
    assert {span.name for span in parts} == {f"cycle.{part}" for part in PARTS}
    began = {span.name: span.began for span in parts}
    assert [began[f"cycle.{part}"] for part in PARTS] == sorted(began.values())
    decide = next(span for span in parts if span.name == "cycle.decide")
    assert decide.attributes["set_up_s"] >= 0
    assert decide.attributes["evaluate_s"] >= 0
    names = {by_id[span.parent].name: span.name for span in theirs if span.name.startswith("handle")}
    assert names == {"cycle.requests": "handle negotiation.get-requests", "cycle.tell": "handle negotiation.matches"}


async def test_a_run_that_fails_shows_it(pool, spans):
    cluster = await pool.submit(pool.job("/no/such/program", OnExitHold=True))
    job_id = f"{cluster}.0"
    await eventually(lambda: "job.attempt" in of_job(spans, job_id), 60, "the end of the first attempt")
    await pool.call("schedd.ap", ActOnJobs(action="remove", ids=[job_id], user=USER))
    await eventually(lambda: "job" in of_job(spans, job_id), 60, "the span of the job")
    found = of_job(spans, job_id)
    assert found["job.attempt"].status.status_code is StatusCode.ERROR
    assert found["job"].attributes["status"] == "removed"
    assert "run" not in found, "nothing ran"


def test_a_submit_over_http_joins_the_trace_of_its_caller(spans, tmp_path):
    wanted = "00-11111111111111111111111111111111-2222222222222222-01"
    inside = InsidePool(tmp_path)
    try:
        ad = ClassAd({"Cmd": "/bin/true", "Iwd": "/tmp", "ShouldTransferFiles": "NO", "JobStatus": 5})
        body = {
            "submit_id": "http",
            "cluster_ad": ad.pack(),
            "procs": [ClassAd().pack()],
            "spool": False,
            "more": False,
        }
        token = inside.token
        request = urllib.request.Request(
            f"{inside.url}/v1/jobs",
            msgpack.packb(body),
            {"Authorization": f"Bearer {token}", "Content-Type": "application/x-msgpack", "traceparent": wanted},
        )
        with urllib.request.urlopen(request, timeout=60) as answer:
            assert answer.status == 200
    finally:
        inside.close()
    found = {span.name: span for span in spans() if f"{span.context.trace_id:032x}" == wanted[3:35]}
    assert set(found) == {"gateway.submit", "handle queue.submit", "schedd.submit"}
    assert f"{found['gateway.submit'].parent.span_id:016x}" == wanted[36:52]
    assert found["handle queue.submit"].parent.span_id == found["gateway.submit"].context.span_id
    assert found["schedd.submit"].parent.span_id == found["handle queue.submit"].context.span_id
