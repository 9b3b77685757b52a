"""Jobs of one pool on the slots of another, on two in-process buses: the daemons round the schedd are scripted, but for
the last test, where both pools are whole."""

import pytest

from services.schedd.io import flocking as shell
from shared.bus.api import Exchange, RemoteFailure
from shared.bus.memory import MemoryBus, MemoryHub
from shared.classad import ClassAd
from shared.daemon.ad_table import AdTable
from shared.messages.claims import ClaimLost
from shared.messages.negotiation import GetRequests, Match, Matches, Rejection
from shared.messages.queue import ActOnJobs, QueryJobs, SubmitJobs
from tests.scheddpool import USER, FakeStartd, Pool, job_ad, slot_ad
from tests.speakers import Speakers
from tests.waiting import eventually
from tests.wholepool import WholePool

OTHER = "other.example.org"


class Other:
    """The pool that jobs flock to."""

    def __init__(self):
        self.hub = MemoryHub()
        self.speakers = Speakers.on_hub(self.hub)
        self.startd = FakeStartd(self.hub)
        self.ads = AdTable(900.0)
        self.collector = MemoryBus(self.hub, sender="collector.other")

    async def __aenter__(self):
        await self.collector.start()
        await self.collector.listen(Exchange.ADS, ["*.Submitter.#"], self._on_ads)
        await self.startd.start()
        return self

    async def __aexit__(self, *exc):
        await self.startd.bus.stop()
        await self.speakers.stop()
        await self.collector.stop()

    async def _on_ads(self, envelope):
        self.ads.apply(envelope.body, 0.0)

    def submitter(self):
        row = self.ads.row("Submitter", "schedd@ap", USER)
        return ClassAd.unpack(row.packed()) if row is not None else None

    async def call(self, message):
        return await self.speakers.call("schedd.ap", message, timeout=30.0)

    async def requests(self, epoch=7):
        asked = GetRequests(negotiator="n2", cycle=1, submitters=[USER], epoch=epoch)
        return (await self.call(asked)).requests.get(USER, [])

    async def match(self, count=1, epoch=7):
        """One cycle of its negotiator."""
        (request,) = await self.requests(epoch)
        match = Match(
            submitter=USER,
            autocluster=request.autocluster,
            count=count,
            slot="slot1@ep",
            startd=self.startd.inbox,
            claim_id="<ep>#1#0#pslot",
            slot_ad=slot_ad().pack(),
        )
        return await self.call(Matches(negotiator="n2", matches=[match], epoch=epoch, cycle=1))


@pytest.fixture
async def other(monkeypatch):
    async with Other() as pool:
        monkeypatch.setattr(shell, "connect", lambda context, _rules, _pool: MemoryBus(pool.hub, sender="schedd.ap"))
        yield pool


@pytest.fixture
async def pool(tmp_path, other):
    async with Pool(tmp_path, FLOCK_TO=OTHER, ROOST_SCHEDD_FLOCK_AFTER="1000000") as pool:
        await eventually(lambda: not pool.schedd.troubles(), what="the other pool")
        yield pool


async def rejected(pool):
    """The own negotiator has no slot for the first request."""
    await eventually(lambda: pool.submitter() is not None and pool.submitter()["IdleJobs"])
    request = (await pool.requests()).requests[USER][0]
    no = Rejection(submitter=USER, autocluster=request.autocluster, code="no-slots", reason="no slot is free")
    await pool.call(Matches(negotiator="n", matches=[], rejections=[no], epoch=1, cycle=1))


async def test_a_job_without_a_slot_at_home_runs_in_the_other_pool(pool, other):
    await pool.submit(procs=2)
    assert other.submitter() is None
    assert await other.requests() == []  # as long as it did not flock, its jobs are not offered there
    await rejected(pool)
    await eventually(lambda: other.submitter() is not None and other.submitter()["IdleJobs"] == 2)
    assert other.submitter()["ScheddIpAddr"] == "schedd.ap"
    await other.match()
    await eventually(lambda: other.startd.activations)
    (run,) = other.startd.activations
    assert other.startd.asked[0].shard == ""  # its own negotiators' name, not ours for it
    await other.startd.report(run, "running", started_at=5.0)
    job = await pool.job("1.0")
    assert (job["JobStatus"], job["RemoteHost"], job["RemotePool"]) == (2, "slot1_1@ep", OTHER)
    await eventually(lambda: pool.submitter()["FlockedJobs"] == 1)
    assert (pool.submitter()["RunningJobs"], pool.submitter()["WeightedRunningJobs"]) == (0, 0)
    await eventually(lambda: other.submitter()["RunningJobs"] == 1)
    assert other.submitter()["FlockedJobs"] == 0
    ack = await other.startd.finish(run)
    assert ack.known
    assert ack.next is not None  # the other job of the same user goes on there
    (ad,) = await pool.history()
    assert (ad["JobStatus"], ad["LastRemotePool"], "RemotePool" in ad) == (4, OTHER, False)


async def test_jobs_that_wait_flock_though_no_negotiator_speaks(tmp_path, other):
    async with Pool(tmp_path, FLOCK_TO=OTHER, ROOST_SCHEDD_FLOCK_AFTER="0") as pool:
        await pool.submit()
        await eventually(lambda: other.submitter() is not None and other.submitter()["IdleJobs"] == 1)


async def test_who_does_not_want_to_flock_stays_at_home(pool, other):
    await pool.submit(job_ad(WantFlocking=False))
    await pool.submit(job_ad())
    await pool.submit(job_ad(WantFlocking=False))
    await rejected(pool)
    await eventually(lambda: other.submitter() is not None)
    await other.match()
    await eventually(lambda: other.startd.activations)
    (run,) = other.startd.activations
    assert run.job_id == "2.0"
    ack = await other.startd.finish(run)
    assert ack.next is None  # nor on a claim that is there already
    assert ack.release


async def test_a_negotiator_there_gets_no_job_by_guessing_that_stays_at_home(pool, other):
    await pool.submit(job_ad(WantFlocking=False))
    await rejected(pool)
    autocluster = (await pool.requests()).requests[USER][0].autocluster
    guess = Match(
        submitter=USER,
        autocluster=autocluster,
        slot="slot1@ep",
        startd=other.startd.inbox,
        claim_id="<ep>#1#0#pslot",
        slot_ad=slot_ad().pack(),
    )
    taken = await other.call(Matches(negotiator="n2", matches=[guess], epoch=7, cycle=1))
    assert taken.begun == [0]
    await pool.match()
    await eventually(lambda: pool.startd.activations)
    assert other.startd.asked == []


async def test_where_the_next_pool_has_no_slot_either_the_one_after_it_is_asked(tmp_path, other, monkeypatch):
    third = "third.example.org"
    hubs = {OTHER: other.hub, third: MemoryHub()}
    monkeypatch.setattr(shell, "connect", lambda context, _rules, pool: MemoryBus(hubs[pool], sender="schedd.ap"))
    async with Pool(tmp_path, FLOCK_TO=f"{OTHER}, {third}", ROOST_SCHEDD_FLOCK_AFTER="1000000") as pool:
        await pool.submit()
        await rejected(pool)
        await eventually(lambda: other.submitter() is not None)
        assert pool.schedd.pools.flocks(USER) == 1
        (request,) = await other.requests()
        no = Rejection(submitter=USER, autocluster=request.autocluster, code="no-slots", reason="no slot is free")
        await rejected(pool)  # at home again: that asks nobody else
        assert pool.schedd.pools.flocks(USER) == 1
        await other.call(Matches(negotiator="n2", matches=[], rejections=[no], epoch=7, cycle=1))
        assert pool.schedd.pools.flocks(USER) == 2


async def test_epochs_of_the_pools_do_not_meet(pool, other):
    """An old epoch there is refused, whatever negotiates at home, and the other way round."""
    await pool.submit(procs=3)
    await rejected(pool)
    await eventually(lambda: other.submitter() is not None)
    await other.match(epoch=900)
    await pool.match(epoch=1)
    await eventually(lambda: pool.startd.activations and other.startd.activations)
    with pytest.raises(RemoteFailure, match="epoch 899 is over"):
        await other.match(epoch=899)


async def test_a_restarted_schedd_finds_its_runs_in_the_other_pool(pool, other):
    await pool.submit()
    await rejected(pool)
    await eventually(lambda: other.submitter() is not None)
    await other.match()
    await eventually(lambda: other.startd.activations)
    (run,) = other.startd.activations
    await other.startd.report(run, "running", started_at=5.0)
    await pool.restart()
    await eventually(lambda: other.startd.alive, what="keep-alives of the next life")
    ack = await other.startd.finish(run)
    assert ack.known
    assert len(other.startd.activations) == 1
    assert (await pool.history())[0]["JobStatus"] == 4


@pytest.mark.parametrize(
    "message",
    [
        SubmitJobs(cluster_ad=job_ad().pack(), procs=[ClassAd().pack()], user=USER, submit_id="x"),
        QueryJobs(user=USER),
        ActOnJobs(user=USER, action="remove", ids=["1.0"]),
    ],
    ids=lambda message: message.type,
)
async def test_nobody_in_the_other_pool_gets_at_the_queue(pool, other, message):
    await pool.submit()
    with pytest.raises(RemoteFailure, match="takes none from it"):
        await other.call(message)
    assert len(await pool.jobs()) == 1


async def test_an_execution_point_there_can_not_speak_for_one_of_the_same_name_here(pool, other):
    run = await pool.run_one()
    await pool.startd.report(run, "running", started_at=5.0)
    claim, slot = pool.startd.claim_of[run.job_id, run.attempt]
    with pytest.raises(RemoteFailure, match=f"is not one on ep%{OTHER}"):
        await other.startd.bus.call("schedd.ap", ClaimLost(startd="ep", slot=slot, claim_id=claim, reason="gone"))
    assert (await pool.job("1.0"))["JobStatus"] == 2


async def test_a_pool_without_an_identity_is_told_with_its_mend(tmp_path):
    options = {"FLOCK_TO": OTHER, "ROOST_SCHEDD_FLOCK_DIRECTORY": str(tmp_path / "flock")}
    async with Pool(tmp_path, **options) as pool:
        await eventually(lambda: any("roost enroll" in trouble for trouble in pool.schedd.troubles()))
        run = await pool.run_one()  # jobs at home do not wait for it
        await pool.startd.finish(run)


async def test_what_finds_no_slot_at_home_runs_on_a_whole_pool(tmp_path, monkeypatch):
    async with WholePool(tmp_path / "home", cpus=1) as home, WholePool(tmp_path / "there", cpus=2) as there:
        monkeypatch.setattr(shell, "connect", lambda context, _rules, _pool: MemoryBus(there.hub, sender="schedd.fl"))
        await home.begin("schedd", "fl", key="flocks", FLOCK_TO=OTHER)
        go, ran = tmp_path / "go", tmp_path / "ran"
        script = f"while [ ! -e {go} ]; do sleep 0.05; done; echo x >> {ran}"
        job = home.job("/bin/sh", Arguments=f"'-c' '{script}'")
        asked = SubmitJobs(cluster_ad=job.pack(), procs=[ClassAd().pack()] * 3, user=USER, submit_id="three")
        await home.call("schedd.fl", asked)

        async def places():
            page = await home.call("schedd.fl", QueryJobs(user=USER))
            ads = map(ClassAd.unpack, page.ads)
            return sorted(ad.eval_string("RemotePool") or "home" for ad in ads if ad.eval("JobStatus") == 2)

        async def spread():
            return len(found := await places()) == 3 and set(found) == {"home", OTHER}

        await eventually(spread, what="jobs at home and in the other pool")
        go.touch()
        await eventually(lambda: ran.exists() and len(ran.read_text().split()) == 3)


@pytest.mark.parametrize("believed", [True, False], ids=["believed", "strange"])
async def test_files_pass_between_pools_of_two_authorities(tmp_path, monkeypatch, believed):
    """Where the other pool does not believe the authority of this one, the run ends at once and says so."""

    def authority(name):
        files = {"TRUST_DOMAIN_CAFILE": "ca.pem", "TRUST_DOMAIN_CAKEY": "ca.key"}
        return {"ROOST_OWN_AUTHORITY": "true"} | {knob: str(tmp_path / name / file) for knob, file in files.items()}

    at_home, elsewhere = authority("authority of home"), authority("authority of there")
    if believed:
        elsewhere["AUTH_SSL_CLIENT_CAFILE"] = at_home["TRUST_DOMAIN_CAFILE"]
    home = WholePool(tmp_path / "home", cpus=1, **at_home)
    there = WholePool(tmp_path / "there", cpus=1, **elsewhere, FILESYSTEM_DOMAIN="there")
    async with home, there:
        monkeypatch.setattr(shell, "connect", lambda context, _rules, _pool: MemoryBus(there.hub, sender="schedd.fl"))
        await home.begin("schedd", "fl", key="flocks", FLOCK_TO=OTHER, ROOST_SCHEDD_FLOCK_AFTER="0")
        (home.directory / "in.txt").write_text("from home\n")
        job = home.job(
            "/bin/sh",
            Arguments="'-c' 'cat in.txt > out.txt'",
            ShouldTransferFiles="YES",
            WhenToTransferOutput="ON_EXIT",
            TransferInput="in.txt",
            TransferOutput="out.txt",
            Requirements='=FileSystemDomain == "there"',
            UserLog=str(home.directory / "log"),
        )
        asked = SubmitJobs(cluster_ad=job.pack(), procs=[ClassAd().pack()], user=USER, submit_id="one")
        await home.call("schedd.fl", asked)
        came, log = home.directory / "out.txt", home.directory / "log"
        if believed:
            await eventually(came.exists, what="the output")
            assert came.read_text() == "from home\n"
        else:
            said = "its certificate is of no authority that is known here"
            await eventually(lambda: log.exists() and said in log.read_text(), what="the reason in the job's log")
            assert not came.exists()
