"""GANGLIAD and ADSTASH as processes on RabbitMQ and Redis, with the rights they have in a compose pool."""

import asyncio
import os
import sys
import urllib.request

import pytest

from shared import bus as transport
from shared.bus.definitions import definitions
from shared.bus.topology import ROLES
from shared.classad import ClassAd
from shared.messages.ads import AdPage
from shared.messages.queue import JobPage
from tests.integration.pools import ROOT
from tests.servers import Leashed, free_port
from tests.spec import spec
from tests.unit.adstash.server import Search
from tests.waiting import eventually

SECRETS = {user: f"secret-of-{user}" for user in (*ROLES, "roost")}
JOBS, BUNCH = 60, 10


@pytest.fixture
async def place(rabbit_server, amqp_url):
    """A virtual host as in the compose pool, and no Redis, as these need none. Gives URLs of the broker for a role."""
    vhost = amqp_url.rpartition("/")[2]
    await asyncio.to_thread(rabbit_server.api, "POST", "/api/definitions", definitions(vhost, SECRETS))
    yield lambda role: rabbit_server.url_of(vhost, role, SECRETS[role])
    for user in SECRETS:
        await asyncio.to_thread(rabbit_server.api, "DELETE", f"/api/users/{user}")


@spec("MON-19", "MON-20")
async def test_a_killed_exporter_repeats_nothing_and_metrics_go_on(place, tmp_path):
    """SIGKILL in the middle of an export. And the monitor does its work with its own rights."""
    amqp = place
    buses, processes = [], []
    schedd = ClassAd({"MyType": "Scheduler", "Name": "ap", "MyAddress": "schedd.ap", "TotalIdleJobs": 5})
    history = [
        ClassAd({"GlobalJobId": f"ap#{n}.0#1", "ClusterId": n, "ProcId": 0, "CompletionDate": 1_700_000_000 + n}).pack()
        for n in range(JOBS, 0, -1)
    ]

    async def serve(sender, inbox, answer):
        buses.append(transport.connect(amqp(sender.partition(".")[0]), sender))
        await buses[-1].start()
        await buses[-1].serve(inbox, answer)

    async def collector(envelope):
        return AdPage(ads=[schedd.pack()] if "Collector" not in envelope.body.my_types else [])

    async def jobs(envelope):
        at = int(envelope.body.after or 0)
        return JobPage(ads=history[at : at + 7], next=str(at + 7) if at + 7 < JOBS else "")

    def start(module, **knobs):
        role = {"monitor": "gangliad"}.get(module, module)
        knobs = {"ROOST_AMQP_URL": amqp(role), "ROOST_HEALTH_PORT": "0"} | knobs
        knobs |= {"SPOOL": str(tmp_path / role), "LOG": str(tmp_path / role), "GANGLIA_CONFIG": "/nonexistent"}
        kept = {name: text for name, text in os.environ.items() if not name.startswith(("ROOST_", "_CONDOR_"))}
        env = {**kept, **{f"_CONDOR_{knob}": text for knob, text in knobs.items()}, "PYTHONPATH": str(ROOT)}
        words = [sys.executable, "-m", f"services.{module}", "-name", "one"]
        processes.append(Leashed(words, log=tmp_path / f"{len(processes)}.log", env=env, cwd=ROOT))
        return processes[-1]

    def shown(port):
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
                return answer.read().decode()
        except OSError:
            return ""

    async with Search() as search:
        try:
            await serve("collector.cm", "collector", collector)
            await serve("schedd.ap", "schedd.ap", jobs)
            port = free_port()
            start("monitor", ROOST_HEALTH_PORT=str(port))
            search.gate = (2, asyncio.Event())
            knobs = {"ADSTASH_SE_HOST": search.host, "ADSTASH_SE_BUNCH_SIZE": str(BUNCH)}
            exporter = start("adstash", **knobs)
            await eventually(lambda: search.asked["POST /_bulk"] == 3, timeout_s=90, what="half of the export")
            await asyncio.to_thread(exporter.kill)
            search.gate[1].set()
            assert not (tmp_path / "adstash" / "adstash_checkpoint.json").exists()
            start("adstash", **knobs)
            checkpoint = tmp_path / "adstash" / "adstash_checkpoint.json"
            await eventually(checkpoint.exists, timeout_s=90, what="the whole export")
            assert len(search.documents) == JOBS
            assert set(search.created.values()) == {1}

            async def measured():
                return "roost_pool_jobs_idle{" in await asyncio.to_thread(shown, port)

            await eventually(measured, timeout_s=90, what="the pool's metrics")
        finally:
            for process in processes:
                process.close()
            for one in buses:
                await one.stop()
