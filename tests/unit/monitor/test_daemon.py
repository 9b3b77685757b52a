"""The monitor at work: it asks a collector, and gives on what it finds, to Prometheus and to Ganglia's socket."""

import asyncio
import contextlib
import socket
from pathlib import Path

import aiohttp
import pytest
from prometheus_client import generate_latest

from services.collector.daemon import Collector
from services.monitor.daemon import Monitor
from shared.bus.memory import MemoryHub
from shared.classad import ClassAd
from shared.config import ConfigError, load_config
from shared.daemon.advertiser import Advertiser
from shared.daemon.lifecycle import run_daemon
from shared.state.embedded import EmbeddedStore
from tests.daemons import make_context
from tests.servers import free_port
from tests.spec import spec
from tests.waiting import eventually

SLOTS = {
    f"slot{number}@{machine}": ClassAd(
        {
            "MyType": "Machine", "Name": f"slot{number}@{machine}", "Machine": machine, "SlotID": number,
            "State": "Claimed" if number == 1 else "Unclaimed", "Activity": "Busy" if number == 1 else "Idle",
            "Cpus": 4, "TotalCpus": 8, "MyAddress": f"<10.0.0.{place}:9618>",
        }
    )
    for place, machine in enumerate(("ep1", "ep2", "ep3"), 1)
    for number in (1, 2)
}  # fmt: skip
SCHEDD = ClassAd(
    {"MyType": "Scheduler", "Name": "ap", "Machine": "ap", "TotalIdleJobs": 3, "TotalRunningJobs": 4, "Note": "hello"}
)


class Pool:
    """A collector that knows six slots of three machines and a schedd, and a socket that takes for gmond."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.hub, self.store = MemoryHub(), EmbeddedStore()
        self.gmond = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.gmond.bind(("127.0.0.1", 0))
        self.gmond.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
        self.gmond.setblocking(False)
        self.contexts = []

    async def __aenter__(self):
        await self.store.start()
        collector = Collector(await self.context("COLLECTOR", "cm"))
        started = asyncio.Event()
        self.life = asyncio.create_task(run_daemon(collector, started=started.set))
        self.collector = collector
        await started.wait()
        for subsystem, my_type, ads in (("STARTD", "Machine", SLOTS), ("SCHEDD", "Scheduler", {"ap": SCHEDD})):
            await Advertiser(await self.context(subsystem, "x"), my_type).publish(ads)
        return self

    async def context(self, subsystem, name, **config):
        context = make_context(
            subsystem, name, hub=self.hub, store=self.store, config=config, directory=self.directory / name
        )
        context.spool.mkdir(parents=True, exist_ok=True)
        await context.bus.start()
        self.contexts.append(context)
        return context

    async def monitor(self, **config):
        """A monitor that knows all ads, and has looked once."""
        config = {
            "GANGLIAD_METRICS_CONFIG_DIR": self.directory / "ganglia.d",
            "GANGLIA_CONFIG": "/nonexistent",
        } | config
        monitor = Monitor(await self.context("GANGLIAD", f"m{len(self.contexts)}", **config))
        await monitor.setup()

        async def all_there():
            await monitor.run_pass()
            values = {metric.name: metric.value for metric in monitor.result.metrics}
            return values.get("SlotsTotal", 6) == 6 and "SchedulersTotal" in values

        await eventually(all_there)
        return monitor

    def received(self):
        found = []
        with contextlib.suppress(BlockingIOError):
            while True:
                found.append(self.gmond.recv(9000))
        return found

    async def __aexit__(self, *exc):
        self.collector.context.stopping.set()
        await self.life
        for context in self.contexts:
            await context.bus.stop()
        await self.store.stop()
        self.gmond.close()


@pytest.fixture
async def pool(tmp_path):
    async with Pool(tmp_path) as found:
        yield found


async def test_the_default_metrics_of_a_pool(pool):
    monitor = await pool.monitor()
    assert monitor.result.problems == []
    values = {(metric.name, metric.machine): metric.value for metric in monitor.result.metrics}
    for name, value in (
        ("SlotsTotal", 6), ("SlotsClaimed", 3), ("SlotsBusy", 3), ("CpusClaimed", 12), ("CpusTotal", 24.0),
        ("MachinesTotal", 3), ("JobsIdle", 3), ("JobsRunning", 4), ("SchedulersTotal", 1),
    ):  # fmt: skip
        assert values[name, "cm"] == value, name
    assert values["TotalRunningJobs", "ap"] == 4
    text = generate_latest(monitor.context.metrics).decode()
    assert 'roost_pool_slots_claimed{cluster="",group="HTCondor Pool",machine="cm",metric="SlotsClaimed"} 3.0' in text
    assert monitor.unsent == ""
    assert pool.received() == []  # no Ganglia here


async def test_a_pool_of_one_process_shows_metrics_on_a_port_of_their_own(pool):
    port = free_port()
    monitor = await pool.monitor(ROOST_GANGLIAD_PORT=port)
    second = Monitor(await pool.context("GANGLIAD", "second", ROOST_GANGLIAD_PORT=port))
    async with aiohttp.ClientSession() as http, http.get(f"http://127.0.0.1:{port}/metrics") as answer:
        assert "roost_pool_slots_total{" in await answer.text()
    with pytest.raises(ConfigError, match=f"ROOST_GANGLIAD_PORT: {port}: "):
        await second.setup()
    await second.close()
    await monitor.close()


@spec("MON-01")
async def test_definitions_of_an_administrator(pool):
    """Files are read again by reconfig; a bad definition is told with its place, and the others count."""
    directory = pool.directory / "ganglia.d"
    directory.mkdir()
    (directory / "50_mine").write_text(
        '[ Name = "Note"; TargetType = "Scheduler" ]\n[ Name = "Bad"; Verbosity = "x" ]\n'
    )
    monitor = await pool.monitor()
    assert monitor.problems == [f"{directory}/50_mine, line 2: Verbosity: want an integer; the definition is left out"]
    assert {m.name: m.value for m in monitor.result.metrics}["Note"] == "hello"
    assert 'value="hello"' in generate_latest(monitor.context.metrics).decode()
    (directory / "50_mine").write_text('[ Name = "Notes"; Regex = "^Not(.)$"; Value = strcat(Regex, "!") ]')
    await monitor.reconfigure()
    await monitor.run_pass()
    assert {m.name: m.value for m in monitor.result.metrics}["Notes"] == "hello!"
    assert monitor.problems == []


@spec("MON-15")
async def test_nodes_can_be_left_out_and_ads_limited(pool):
    """GANGLIAD_REQUIREMENTS limits what sums cover."""
    monitor = await pool.monitor(GANGLIAD_VERBOSITY=1)
    assert {m.machine for m in monitor.result.metrics if m.name == "MachineCpusInUse"} == {"ep1", "ep2", "ep3"}
    (pool.directory / "ganglia.d").mkdir()
    (pool.directory / "ganglia.d" / "50_mine").write_text('[ Name = "Cpus"; TargetType = "Machine_slot1" ]')
    monitor = await pool.monitor()
    assert [m.ip for m in monitor.result.metrics if m.name == "Cpus"] == ["10.0.0.1", "10.0.0.2", "10.0.0.3"]
    monitor = await pool.monitor(GANGLIAD_PER_EXECUTE_NODE_METRICS="false")
    assert {m.name for m in monitor.result.metrics} >= {"SlotsTotal", "TotalIdleJobs"}
    assert "Cpus" not in {m.name for m in monitor.result.metrics}
    monitor = Monitor(await pool.context("GANGLIAD", "limited", GANGLIAD_REQUIREMENTS='Machine != "ep3"'))
    await monitor.setup()
    await monitor.run_pass()
    assert {m.name: m.value for m in monitor.result.metrics}["SlotsTotal"] == 4


@spec("MON-14")
async def test_ganglia_gets_what_it_watches(pool):
    """Others are skipped, unless GANGLIA_SEND_DATA_FOR_ALL_HOSTS; then they live by our heartbeats."""
    gstat = pool.directory / "gstat"
    gstat.write_text('#!/bin/sh\necho ap:4\necho "$1" >&2\n')
    gstat.chmod(0o755)
    channel = f"127.0.0.1:{pool.gmond.getsockname()[1]}"
    monitor = await pool.monitor(ROOST_GANGLIA_CHANNELS=channel, GANGLIA_GSTAT_COMMAND=f"{gstat} --all")
    assert (monitor.unsent, monitor.ganglia.hosts) == ("", {"ap"})
    data = b"".join(pool.received())
    assert b"TotalRunningJobs" in data
    assert b"SlotsTotal" not in data
    everybody = await pool.monitor(
        ROOST_GANGLIA_CHANNELS=channel, GANGLIA_GSTAT_COMMAND="/nonexistent", GANGLIA_SEND_DATA_FOR_ALL_HOSTS="true"
    )
    packets = pool.received()
    assert everybody.unsent == ""
    assert any(b"SlotsTotal" in packet and b"spoof" not in packet for packet in packets)
    assert any(b"SPOOF_HEARTBEAT" in packet for packet in packets)
    await everybody.run_pass()
    assert not any(b"GROUP" in packet for packet in pool.received())  # what a metric is is not said each time


async def test_trouble_with_ganglia_is_told_and_prometheus_has_the_metrics_all_the_same(pool):
    monitor = await pool.monitor(ROOST_GANGLIA_CHANNELS="127.0.0.1:9", GANGLIA_GSTAT_COMMAND="/nonexistent/gstat --all")
    assert monitor.unsent == "GANGLIA_GSTAT_COMMAND: there is no program /nonexistent/gstat"
    assert monitor.ready() != ""  # no task has looked yet
    assert monitor.result.metrics


async def test_gmetric_can_do_it(pool):
    said = pool.directory / "said"
    gmetric = pool.directory / "gmetric"
    gmetric.write_text(f'#!/bin/sh\necho "$@" >> {said}\n')
    gmetric.chmod(0o755)
    monitor = await pool.monitor(
        GANGLIA_GMETRIC=str(gmetric), GANGLIA_GSTAT_COMMAND="true", GANGLIA_SEND_DATA_FOR_ALL_HOSTS="true"
    )
    assert monitor.unsent == ""
    assert "--name=SlotsTotal --value=6 --type=int32 --units=slots" in said.read_text()
    gmetric.write_text("#!/bin/sh\necho no gmond >&2; exit 3\n")
    await monitor.run_pass()
    assert monitor.unsent.endswith("gmetric ended with 3: no gmond")


@spec("MON-13")
async def test_lifetimes_follow_the_interval(pool):
    for interval, least, expected in ((60, "", 86400), (60, 10, 360), (100_000, "", 600_000)):
        config = {"GANGLIAD_MIN_METRIC_LIFETIME": least} if least else {}
        monitor = await pool.monitor(GANGLIAD_INTERVAL=interval, **config)
        assert {m.lifetime for m in monitor.result.metrics} == {expected}


async def test_a_configuration_that_can_not_be_used_changes_nothing(pool):
    monitor = await pool.monitor()
    before = monitor.settings
    wrong = {"_CONDOR_ROOST_GANGLIA_CHANNELS": "host:port"}
    monitor.context.config = load_config([], subsystem="GANGLIAD", env=wrong)
    with pytest.raises(ConfigError, match="ROOST_GANGLIA_CHANNELS: 'host:port': want host or host:port"):
        await monitor.reconfigure()
    assert monitor.settings is before
