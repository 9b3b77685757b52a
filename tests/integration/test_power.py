"""A machine goes to sleep, is matched with a job, is woken and runs it: a whole pool, with stand-ins for the switch of
the machine and for what wakes it (PWR-01, PWR-02, PWR-05 to PWR-07, ABS-07)."""

import pytest

from services.startd.components.hibernation import Hibernation
from shared.classad import ClassAd, parse_ads
from shared.messages.events import OfflineMatched, RoosterRound
from tests.integration.inside import InsidePool
from tests.waiting import wait_until

#: As the manual's sample, with a shorter time to wait: any claimed slot vetoes.
WHEN_IDLE = 'ifThenElse(State == "Unclaimed" && (time() - EnteredCurrentState) >= 3, "{}", "NONE")'


@pytest.fixture
def machine(tmp_path):
    """The switch: what it was told is in `told`; suspended, it sleeps until `woken` is there. And what wakes it."""
    switch, waker = tmp_path / "switch", tmp_path / "waker"
    switch.write_text(f"""#!/bin/sh
case "$1" in
ad) echo 'HibernationSupportedStates = "S3,S5"';;
set) echo "$2" >> {tmp_path}/told
     if [ "$2" = S3 ]; then
         while [ ! -e {tmp_path}/woken ]; do sleep 0.1; done
         rm {tmp_path}/woken
     fi;;
esac
""")
    waker.write_text(
        f"#!/bin/sh\ncat > {tmp_path}/ad.new && mv {tmp_path}/ad.new {tmp_path}/ad && touch {tmp_path}/woken\n"
    )
    for program in (switch, waker):
        program.chmod(0o755)
    return tmp_path


@pytest.fixture
def pool(tmp_path, machine, monkeypatch):
    monkeypatch.setattr(Hibernation, "settle_s", 0.0)
    inside = InsidePool(
        tmp_path / "pool",
        DAEMON_LIST="$(DAEMON_LIST), ROOSTER",
        NEGOTIATOR_CYCLE_DELAY="0",
        NEGOTIATOR_INTERVAL="1",
        COLLECTOR_PERSISTENT_AD_LOG="$(SPOOL)/offline",
        HIBERNATE_CHECK_INTERVAL="1",
        HIBERNATE=WHEN_IDLE.format("RAM"),
        HIBERNATION_PLUGIN=str(machine / "switch"),
        HIBERNATION_OVERRIDE_WOL="true",
        ROOSTER_INTERVAL="1",
        ROOSTER_WAKEUP_CMD=str(machine / "waker"),
    )
    yield inside
    (machine / "woken").touch()  # the switch must not wait for ever
    inside.close()


def test_a_job_wakes_the_machine_that_it_needs(pool, machine):
    told = machine / "told"
    name = pool.runner("startd").daemon.context.name

    def sleeps(state):
        with pool.client() as client:
            ads = list(client.ads("Machine"))
        return (
            told.exists()
            and told.read_text().split()[-1] == state
            and all(ad.eval("Offline") is True and ad.eval("HibernationState") == state for ad in ads)
            and len(ads) == 1
        )

    def events(kind):
        with pool.client() as client:
            found = client.journal("events", type=kind.type, limit=1000)["events"]
        return [kind.model_validate(one) for one in found]

    def submit():
        ad = {"Cmd": "/bin/true", "Iwd": "/tmp", "TransferExecutable": False, "ShouldTransferFiles": "NO"}
        with pool.client() as client:
            (job,) = client.submit(ClassAd({**ad, "RequestMemory": 16, "RequestDisk": 16}), [ClassAd()]).ids()
        return job

    def done(job):
        with pool.client() as client:
            return [one.eval("JobStatus") for one in client.jobs(job)] in ([], [4])

    # It is suspended when it was idle for long enough, and not woken while nobody waits for it.
    wait_until(lambda: sleeps("S3"), what="the machine to sleep", timeout_s=60)
    assert not (machine / "ad").exists()
    with pool.client() as client:
        (ad,) = client.ads("Machine")
    assert (ad.eval("State"), ad.eval("LoadAvg"), ad.eval("HibernationLevel")) == ("Unclaimed", 0.0, 3)
    assert ad.eval("HibernationSupportedStates") == "S3,S5"

    job = submit()
    wait_until(lambda: done(job), what="the job, on the machine that it woke", timeout_s=120)
    (woken,) = parse_ads((machine / "ad").read_text())
    assert (woken.eval("Machine"), woken.eval("Offline")) == (name, True)
    assert woken.eval("MachineLastMatchTime") > 1_500_000_000
    assert {event.slots[0] for event in events(OfflineMatched)} == {woken.eval("Name")}
    wait_until(lambda: [name] in [event.woken for event in events(RoosterRound)], what="the rooster's event")

    # It is switched off: the startd ends with it, and its ads stay; what wakes it starts another startd.
    pool.pool.plan.knobs["HIBERNATE"] = WHEN_IDLE.format("SHUTDOWN")
    pool.roost("reconfig", "-startd")
    (machine / "woken").touch()  # it may have gone to sleep again meanwhile
    wait_until(lambda: sleeps("S5"), what="the machine to be switched off", timeout_s=120)
    pool.stop_daemon("startd")
    (machine / "woken").unlink(missing_ok=True)
    assert sleeps("S5")
    pool.pool.plan.knobs["HIBERNATE"] = '"NONE"'
    job = submit()
    wait_until((machine / "woken").exists, what="the machine to be woken", timeout_s=60)
    assert not done(job)
    with pool.client() as client:
        (report,) = client.analysis(job)["jobs"]
    assert report["outcomes"] == {"waking": 1}
    assert report["verdict"].endswith("1 slot that sleeps is to be woken: the job waits for that.")
    pool.stop_daemon("rooster")
    with pool.client() as client:
        assert client.analysis(job)["jobs"][0]["verdict"].endswith(
            "(ROOSTER in DAEMON_LIST): wake it with `roost power`."
        )
    pool.start_daemon("startd")
    wait_until(lambda: done(job), what="the job on the machine that was started", timeout_s=120)
    with pool.client() as client:
        assert all(ad.eval("Offline") is not True for ad in client.ads("Machine"))
