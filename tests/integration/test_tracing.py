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
from tests.waiting import eventually
from tests.wholepool import USER, WholePool

FORGED = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
ALL = {
    "schedd.submit", "job", "job.attempt", "job.wait", "claim.request", "handle claim.request", "activation",
    "transfer.input", "run", "transfer.output",
}  # fmt: skip


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
