"""What a pool at work shows at /metrics, and a Prometheus that asks it with the rules that compose brings."""

import asyncio
import contextlib
import json
import socket
from pathlib import Path

import aiohttp
import pytest
from prometheus_client.parser import text_string_to_metric_families

from shared.daemon.health import HealthServer
from shared.messages.ads import QueryAds
from shared.messages.claims import RequestClaim
from shared.messages.queue import SubmitJobs
from tests.wholepool import FIRST, WholePool

ALERTS = Path(__file__).parents[2] / "compose" / "observability" / "alerts.yml"


class Watched:
    """A pool whose daemons answer over HTTP."""

    def __init__(self, pool, servers, http):
        self.pool, self.servers, self.http = pool, servers, http

    async def of(self, daemon):
        """(name, labels as a sorted tuple) -> value."""
        async with self.http.get(f"http://127.0.0.1:{self.servers[daemon].port}/metrics") as answer:
            assert answer.status == 200
            text = await answer.text()
        return {
            (sample.name, tuple(sorted(sample.labels.items()))): sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        }

    async def until(self, daemon, name, value, **labels):
        """Wait for this very value."""
        key, seen = (name, tuple(sorted(labels.items()))), []
        deadline = asyncio.get_running_loop().time() + 60
        while not seen or seen[-1] != value:
            assert asyncio.get_running_loop().time() < deadline, f"{key}: {seen[-1]}, not {value}"
            seen.append((await self.of(daemon)).get(key))
            await asyncio.sleep(0.05)


@pytest.fixture
async def watched(tmp_path):
    async with WholePool(tmp_path, cpus=2) as pool, aiohttp.ClientSession() as http:
        servers = {}
        for kind, _ in FIRST:
            servers[kind] = HealthServer(getattr(pool, kind), "127.0.0.1", 0)
            servers[kind].set_up = True
            await servers[kind].start()
        try:
            yield Watched(pool, servers, http)
        finally:
            for server in servers.values():
                await server.stop()


async def test_jobs_are_counted_where_they_pass(watched):
    pool = watched.pool
    cluster = await pool.submit(pool.job(ShouldTransferFiles="YES", TransferExecutable=False), procs=3)
    await pool.rests(cluster, 3)
    held = await pool.submit(pool.job("/nonexistent/program"))
    await pool.rests(held, 1)
    await watched.until("schedd", "roost_schedd_jobs_submitted_total", 4.0)
    await watched.until("schedd", "roost_schedd_job_run_seconds_count", 3.0)
    await watched.until("schedd", "roost_schedd_jobs", 1.0, status="Held")
    await watched.until("schedd", "roost_schedd_jobs_held_total", 1.0, by="system")
    await watched.until("schedd", "roost_schedd_shadows", 0.0)
    await watched.until("startd", "roost_startd_runs_ended_total", 3.0, reason="exited", hold_code="")
    shown = await watched.of("schedd")
    assert shown["roost_schedd_job_wait_seconds_count", ()] >= 3
    assert shown["roost_schedd_commit_duration_seconds_count", ()] > 0
    assert shown["roost_schedd_claim_duration_seconds_count", ()] >= 1
    assert shown["roost_schedd_job_launch_seconds_count", ()] == 3
    assert shown["roost_schedd_transfer_duration_seconds_count", (("what", "output"),)] == 3
    assert shown["roost_bus_call_duration_seconds_count", (("type", RequestClaim.type),)] >= 1
    assert shown["roost_schedd_events_waiting", ()] == 0
    assert shown["roost_bus_handler_duration_seconds_count", (("type", SubmitJobs.type),)] == 2
    started = (await watched.of("startd"))["roost_startd_runs_started_total", ()]
    assert started == 4  # of them one that could not be
    startd = await watched.of("startd")
    assert startd["roost_startd_launch_duration_seconds_count", (("launcher", "process"),)] == 3
    assert startd["roost_startd_transfer_duration_seconds_count", (("what", "input"),)] >= 3
    await watched.until("startd", "roost_startd_ends_untold", 0.0)
    assert startd["roost_startd_spool_full", ()] == 0
    negotiator = await watched.of("negotiator")
    assert negotiator["roost_negotiator_matches_total", ()] >= 1
    assert negotiator["roost_negotiator_cycle_duration_seconds_count", ()] >= 1
    assert negotiator["roost_negotiator_epoch", ()] >= 1
    cycles = negotiator["roost_negotiator_cycle_duration_seconds_count", ()]
    for phase in ("requests", "snapshot", "decide", "charge", "tell"):
        assert negotiator["roost_negotiator_phase_duration_seconds_count", (("phase", phase),)] == cycles
    assert 0 <= negotiator["roost_negotiator_books_behind_seconds", ()] < 60
    assert negotiator["roost_store_call_duration_seconds_count", (("call", "accountant_write"),)] >= 1
    assert (await watched.of("had"))["roost_had_state", (("state", "Leader"),)] == 1
    collector = await watched.of("collector")
    assert collector["roost_collector_ads", (("type", "Machine"),)] >= 1
    assert collector["roost_collector_updates_total", ()] > 0
    await pool.call("collector", QueryAds(my_types=["Machine"], constraint="true"))
    await watched.until("collector", "roost_collector_query_duration_seconds_count", 1.0, kind="constraint")
    await watched.until("had", "roost_bus_messages_in_hand", 0.0)
    assert (await watched.of("had"))["roost_daemon_loop_lag_seconds_count", ()] > 0
    assert shown["roost_daemon_disk_free_bytes", (("directory", "spool"),)] > 0


@contextlib.asynccontextmanager
async def prometheus(program, directory, targets):
    """A real one, asking these every second; yields its address."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    config = {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": [str(ALERTS)],
        "scrape_configs": [{"job_name": "roost", "static_configs": [{"targets": targets}]}],
    }
    (directory / "prometheus.yml").write_text(json.dumps(config))
    process = await asyncio.create_subprocess_exec(
        program,
        f"--config.file={directory / 'prometheus.yml'}",
        f"--storage.tsdb.path={directory / 'tsdb'}",
        f"--web.listen-address={address}",
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        yield f"http://{address}"
    finally:
        process.terminate()
        await process.wait()


async def test_a_prometheus_takes_what_all_daemons_say(watched, tmp_path, prometheus_program):
    targets = [f"127.0.0.1:{server.port}" for server in watched.servers.values()]
    async with prometheus(prometheus_program, tmp_path, targets) as url:

        async def ask(query):
            try:
                async with watched.http.get(f"{url}/api/v1/query", params={"query": query}) as answer:
                    found = (await answer.json())["data"]["result"] if answer.status == 200 else []
            except aiohttp.ClientError:
                return None  # it is still starting
            return float(found[0]["value"][1]) if found else None

        for query, wanted in (
            ("sum(up)", len(targets)),
            ("sum(roost_daemon_ready)", len(targets)),
            ('max(roost_had_state{state="Leader"})', 1),
        ):
            deadline = asyncio.get_running_loop().time() + 90
            while (seen := await ask(query)) != wanted:
                assert asyncio.get_running_loop().time() < deadline, f"{query}: {seen}"
                await asyncio.sleep(0.2)
        async with watched.http.get(f"{url}/api/v1/rules") as answer:
            rules = (await answer.json())["data"]["groups"][0]["rules"]
        assert len(rules) > 20
        assert [rule["lastError"] for rule in rules if rule.get("lastError")] == []
