"""The startd as a real process on a real broker, killed without warning."""

import asyncio
import contextlib

import psutil
import pytest

from shared.bus import connect
from shared.bus.api import CallTimeout, Exchange
from shared.messages.ads import PrivateAds, SendAds
from shared.messages.claims import Activation, Alive, ClaimGranted, DeactivateClaim, ReleaseClaim, RequestClaim
from tests.processes import DaemonProcess
from tests.speakers import Speakers
from tests.spec import spec
from tests.startd_pool import Schedd, end_fork_server, job_ad
from tests.waiting import eventually


class StartdProcess(DaemonProcess):
    """Its jobs live on when it is crashed."""

    def __init__(self, *args, **options):
        super().__init__(*args, **options)
        self.lives = []

    def crash(self):
        self.process.kill()
        self.lives.append(self.process)
        self.process = None

    def close(self):
        super().close()
        while self.lives:
            self.lives.pop().close()


@pytest.fixture
async def startd(tmp_path, amqp_url, redis_url):
    knobs = {"NUM_CPUS": 4, "MEMORY": 4096, "ROOST_DOCKER": "false"}
    process = StartdProcess("startd", "node1", tmp_path, amqp_url=amqp_url, redis_url=redis_url, config=knobs)
    await asyncio.to_thread(process.start)
    yield process
    process.close()
    for socket in tmp_path.rglob(".starter-*/socket"):
        await end_fork_server(socket.parent)


@pytest.fixture
async def schedd(amqp_url):
    schedd = Schedd(None)
    schedd.claims = {}
    schedd.bus = connect(amqp_url, sender="schedd.schedd1")
    await schedd.bus.start()
    await schedd.bus.serve("schedd.schedd1", schedd.on)

    async def take(envelope):
        if isinstance(envelope.body, PrivateAds):
            schedd.claims = envelope.body.claims
            schedd.heard.set()

    manager = connect(amqp_url, sender="negotiator.cm")
    await manager.start()
    await manager.listen(Exchange.PRIVATE, ["#"], take)
    schedd.speakers = Speakers.on_broker(amqp_url)
    yield schedd
    await schedd.speakers.stop()
    await manager.stop()
    await schedd.bus.stop()


async def claim(schedd, activation):
    await schedd.speakers.call("startd.node1", SendAds(my_type="Machine"))
    offer = await schedd.until(lambda: schedd.claims.get("slot1@node1"))
    request = RequestClaim(
        request_id=f"request-{activation.job_id}",
        claim_id=offer,
        slot="slot1@node1",
        schedd="schedd1",
        submitter="alice@pool",
        job_ad=activation.job_ad,
        lease_s=2400,
        alive_interval_s=300,
        epoch=1,
        activation=activation,
    )
    granted = await schedd.speakers.call("startd.node1", request)
    assert isinstance(granted, ClaimGranted), granted
    assert granted.activated
    return granted


async def test_a_job_that_leaves_while_nobody_looks_was_told_to(startd, schedd, tmp_path):
    """Its end is our signal's, and not its own."""
    job = tmp_path / "job"
    job.write_text(
        "#!/bin/sh\ntrap 'touch asked; while [ ! -e go ]; do sleep 0.02; done; touch gone; exit 0' TERM\n"
        "touch begun\nwhile :; do sleep 0.02; done\n"
    )
    job.chmod(0o755)
    ad = job_ad(str(job), Iwd=str(tmp_path), JobMaxVacateTime=600)
    granted = await claim(schedd, Activation(job_id="1.0", attempt=1, job_ad=ad.pack()))
    await eventually(lambda: (tmp_path / "begun").exists())
    order = DeactivateClaim(claim_id=granted.claim_id, job_id="1.0", attempt=1, how="graceful", why="vacate")
    await schedd.speakers.call("startd.node1", order, sender="schedd.schedd1")
    await eventually(lambda: (tmp_path / "asked").exists())
    await asyncio.to_thread(startd.crash)
    (tmp_path / "go").touch()
    await eventually(lambda: (tmp_path / "gone").exists())
    await asyncio.to_thread(startd.start)
    end = (await schedd.end_of("1.0")).exit
    assert (end.reason, end.exit_code, end.message) == ("evicted", 0, "stopped by the schedd: vacate")


async def test_killed_in_the_middle_it_adopts_its_jobs_and_loses_nothing(startd, schedd, tmp_path):
    job = tmp_path / "job"
    job.write_text(
        "#!/bin/sh\necho $$ >> pids$1\nwhile [ ! -e go$1 ]; do sleep 0.02; done\necho done >> out$1\nexit $1\n"
    )
    job.chmod(0o755)
    claims = {}
    for number in (1, 2, 3):
        ad = job_ad(str(job), Iwd=str(tmp_path), Arguments=str(number))
        activation = Activation(job_id=f"{number}.0", attempt=1, job_ad=ad.pack())
        claims[number] = await claim(schedd, activation)
    await schedd.until(lambda: all((tmp_path / f"pids{number}").exists() for number in claims))
    offer = schedd.claims["slot1@node1"]

    await asyncio.to_thread(startd.crash)
    (tmp_path / "go1").touch()
    await eventually(lambda: (tmp_path / "out1").exists())
    await asyncio.to_thread(startd.start)

    assert (await schedd.end_of("1.0")).exit.exit_code == 1
    ids = [granted.claim_id for granted in claims.values()]
    answer = await schedd.speakers.call("startd.node1", Alive(schedd="schedd1", sequence=1, claim_ids=ids))
    assert answer.unknown == []

    await asyncio.to_thread(startd.crash)
    await asyncio.to_thread(startd.start)
    for number in (2, 3):
        (tmp_path / f"go{number}").touch()
        assert (await schedd.end_of(f"{number}.0")).exit.exit_code == number
    for number in claims:
        # Each ran once: one process, one line of output.
        assert len((tmp_path / f"pids{number}").read_text().split()) == 1
        assert (tmp_path / f"out{number}").read_text() == "done\n"
        await schedd.speakers.call(
            "startd.node1", ReleaseClaim(claim_id=claims[number].claim_id), sender="schedd.schedd1"
        )
    schedd.claims = {}
    await schedd.speakers.call("startd.node1", SendAds(my_type="Machine"))
    # A request to the first life would open nothing.
    assert (await schedd.until(lambda: schedd.claims))["slot1@node1"] != offer
    await eventually(lambda: not list(tmp_path.rglob("dir_*")))


async def test_killed_together_with_its_fork_server_it_says_that_the_job_must_run_again(startd, schedd):
    ad = job_ad("/bin/sleep", Arguments="1000")
    await claim(schedd, Activation(job_id="1.0", attempt=1, job_ad=ad.pack()))
    running = await schedd.until(lambda: next((report for report in schedd.reports if report.phase == "running"), None))
    nanny = psutil.Process(running.pid).parent()
    server = nanny.parent()
    await asyncio.to_thread(startd.crash)
    server.kill()
    await eventually(lambda: not psutil.pid_exists(running.pid))
    await asyncio.to_thread(startd.start)
    end = await schedd.end_of("1.0")
    assert end.exit.reason == "evicted"


@spec("LEA-02")
async def test_a_job_that_is_removed_while_its_startd_is_dead_ends_as_soon_as_the_next_one_lives(startd, schedd):
    """Its processes live on under the fork server. The order waits in the inbox, as the access point repeats it."""
    ad = job_ad("/bin/sh", Arguments="-c 'trap : TERM; while :; do sleep 0.1; done'")
    granted = await claim(schedd, Activation(job_id="1.0", attempt=1, job_ad=ad.pack()))
    running = await schedd.until(lambda: next((report for report in schedd.reports if report.phase == "running"), None))
    await asyncio.to_thread(startd.crash)
    order = DeactivateClaim(claim_id=granted.claim_id, job_id="1.0", attempt=1, how="fast", why="remove")

    async def tell():
        while True:
            with contextlib.suppress(CallTimeout):
                return await schedd.speakers.call("startd.node1", order, sender="schedd.schedd1")

    told = asyncio.ensure_future(tell())
    await asyncio.to_thread(startd.start)
    end = (await schedd.end_of("1.0")).exit
    assert (end.reason, end.message) == ("killed", "stopped by the schedd: remove")
    assert not psutil.pid_exists(running.pid)
    await told
