"""A daemon as a process: what it says when it can not start, what it waits for, how it ends."""

import asyncio
import json
import os
import signal
import subprocess
import sys

import pytest
import redis

from shared import stored_versions
from shared.bus import connect
from shared.bus.api import RemoteFailure
from shared.messages.orders import Restart, SwitchOff, SwitchOn
from shared.state import keys
from tests.gateway_keys import gateway_bus
from tests.processes import DaemonProcess, daemons
from tests.servers import free_port
from tests.spec import spec
from tests.waiting import wait_until

pytestmark = pytest.mark.servers


def collector(tmp_path, amqp_url, redis_url, **config):
    return DaemonProcess("collector", "cm1", tmp_path, amqp_url=amqp_url, redis_url=redis_url, config=config)


def run(env, *arguments):
    command = [sys.executable, "-m", "services.collector", *arguments]
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=60, check=False)


def events(process):
    return [json.loads(line)["event"] for line in process.log.read_text().splitlines()]


def test_missing_address_is_a_configuration_error(tmp_path):
    env = collector(tmp_path, "", "redis://127.0.0.1:1").env
    done = run(env)
    assert done.returncode == 78
    assert "ROOST_AMQP_URL" in done.stderr


def test_bad_configuration_names_the_knob_and_the_mend(tmp_path):
    done = run(collector(tmp_path, "amqp://127.0.0.1:1", "redis://127.0.0.1:1", CLASSAD_LIFETIME="soon").env)
    assert done.returncode == 78
    assert "CLASSAD_LIFETIME" in done.stderr
    assert "Traceback" not in done.stderr


def test_wrong_arguments_exit_with_2(tmp_path):
    assert run(dict(os.environ), "--nonsense").returncode == 2


def test_it_waits_for_its_servers_and_says_so_and_can_be_stopped_meanwhile(tmp_path):
    process = collector(tmp_path, f"amqp://127.0.0.1:{free_port()}", f"redis://127.0.0.1:{free_port()}")
    try:
        process.start(wait=False)
        wait_until(lambda: process.ask("/readyz")[0] == 503, what="an answer from its health server")
        waiting = json.loads(process.ask("/readyz")[1])["waiting_for"]
        assert any(reason.startswith("bus") for reason in waiting)
        assert any(reason.startswith("store") for reason in waiting)
        second = run({**process.env, "_CONDOR_ROOST_HEALTH_PORT": "0"}, "-name", process.name)
        assert second.returncode == 1
        assert "another collector named cm1 uses" in second.stderr
        assert process.ask("/healthz")[0] == 200
        process.process.terminate()
        assert process.process.wait() == 0
        lines = [json.loads(line) for line in process.log.read_text().splitlines()]
        assert {"bus.unavailable", "stop_asked"} <= {line["event"] for line in lines}
        assert {(line["daemon"], line["name"]) for line in lines} == {("collector", "cm1")}
    finally:
        process.close()


def test_what_a_later_release_left_in_redis_is_waited_for_and_said_and_not_touched(tmp_path, amqp_url, redis_url):
    """Somebody goes back to an earlier release, and then on to the later one again, or puts a backup back."""
    with redis.Redis.from_url(redis_url) as store:
        store.set(keys.version(stored_versions.ADS), 2)
        before = set(store.scan_iter())
        process = collector(tmp_path, amqp_url, redis_url)
        try:
            process.start(wait=False)
            wait_until(lambda: "ads of version 2" in process.ask("/readyz")[1], what="the reason why it waits")
            status, said = process.ask("/readyz")
            assert status == 503
            (reason,) = json.loads(said)["waiting_for"]
            assert reason.startswith(
                "store: a later release of Roost has written ads of version 2, and this one reads 1"
            )
            assert process.ask("/healthz")[0] == 200
            assert set(store.scan_iter()) == before
            store.delete(keys.version(stored_versions.ADS))
            wait_until(process.ready, what="the collector, once the records are of its own release")
            assert events(process).count("store_not_used") == 1
        finally:
            process.close()


def test_container_health_check_tells_living_from_ready(tmp_path):
    process = collector(tmp_path, f"amqp://127.0.0.1:{free_port()}", f"redis://127.0.0.1:{free_port()}")

    def check(*arguments):
        command = [sys.executable, "-m", "shared.daemon.healthcheck", *arguments]
        env = os.environ | {"ROOST_HEALTH_PORT": str(process.port)}
        return subprocess.run(command, env=env, capture_output=True, text=True, timeout=30, check=False)

    try:
        assert check().returncode == 1
        process.start(wait=False)
        wait_until(lambda: check().returncode == 0, what="a living process")
        done = check("--ready")
        assert done.returncode == 1
        assert "waiting_for" in done.stderr
    finally:
        process.close()


def test_hangup_with_a_broken_configuration_keeps_the_old_one(tmp_path, amqp_url, redis_url):
    process = collector(tmp_path, amqp_url, redis_url)
    config = tmp_path / "condor_config"
    config.write_text("CLASSAD_LIFETIME = 700\n")
    process.env |= {"CONDOR_CONFIG": str(config)}
    with daemons(process):
        config.write_text("if nonsense\nCLASSAD_LIFETIME = 800\n")
        process.process.signal(signal.SIGHUP)
        wait_until(lambda: "configuration_kept" in events(process), what="word of the broken configuration")
        config.write_text("CLASSAD_LIFETIME = 800\n")
        process.process.signal(signal.SIGHUP)
        wait_until(lambda: "reconfigured" in events(process), what="word of the new configuration")
        assert process.ready()


@spec("TLS-08", "TLS-09")
async def test_a_process_that_is_told_to_restart_or_to_be_off_says_so_by_its_status(tmp_path, amqp_url, redis_url):
    """Status 75, and what is off stays so in the next life. Nobody but a gateway may say so."""
    process = collector(tmp_path, amqp_url, redis_url)
    gateway, stranger = gateway_bus(amqp_url, "gateway.node1"), connect(amqp_url, sender="schedd.node1")
    await gateway.start()
    await stranger.start()

    async def told(bus, inbox, order):
        return await bus.call(inbox, order, timeout=30)

    async def ended():
        assert await asyncio.to_thread(process.process.wait) == 75
        process.close()
        await asyncio.to_thread(process.start)

    try:
        await asyncio.to_thread(process.start)
        inbox = f"collector.{process.name}"
        with pytest.raises(RemoteFailure, match="gateway may send it"):
            await told(stranger, inbox, Restart())
        await told(gateway, inbox, Restart())
        await ended()
        await told(gateway, inbox, SwitchOff())
        await ended()
        await told(gateway, f"collector.off.{process.name}", SwitchOn())
        await ended()
        assert (await told(gateway, inbox, SwitchOn())).said == "it is on already"
    finally:
        await gateway.stop()
        await stranger.stop()
        await asyncio.to_thread(process.close)
