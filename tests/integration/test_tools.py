"""An administrator's commands, through a whole pool: TLS-06 to TLS-09, TLS-11."""

import json
import re

import pytest

from shared.classad import UNDEFINED
from shared.daemon.off_daemon import OffDaemon
from tests.integration.inside import InsidePool
from tests.spec import spec
from tests.waiting import wait_until

#: Nothing but the events under test may start a negotiation cycle.
SELDOM = {"NEGOTIATOR_INTERVAL": "36000", "UPDATE_INTERVAL": "36000"}


class Inside(InsidePool):
    """With jobs that run until they are told, and slots by what they do."""

    def submit(self, folder, jobs=1, first="", **commands) -> str:
        """Jobs that run until there is a file `go`; the cluster."""
        (folder / "job").write_text(f"#!/bin/sh\n{first}\necho $$ >> pids\nwhile [ ! -e go ]; do sleep 0.05; done\n")
        (folder / "job").chmod(0o755)
        lines = {
            "executable": folder / "job",
            "initialdir": folder,
            "should_transfer_files": "NO",
            "request_cpus": 1,
            "request_memory": 64,
            "request_disk": 1024,
            **commands,
        }
        file = folder / "job.sub"
        file.write_text("".join(f"{name} = {value}\n" for name, value in lines.items()) + f"queue {jobs}\n")
        return self.roost("submit", str(file)).rpartition("cluster ")[2].strip().rstrip(".")

    def statuses(self, cluster) -> list[int]:
        with self.client() as client:
            return [ad.eval("JobStatus") for ad in client.jobs(cluster, projection=["JobStatus"])]

    def until_running(self, cluster, jobs=1) -> None:
        wait_until(lambda: self.statuses(cluster).count(2) == jobs, what=f"{jobs} running jobs")

    def slots(self) -> dict[str, str]:
        with self.client() as client:
            ads = client.ads("Machine", projection=["Name", "State", "Activity"])
            return {str(ad.eval("Name")).partition("@")[0]: f"{ad.eval('State')}/{ad.eval('Activity')}" for ad in ads}

    def until_slots(self, **expected) -> None:
        wait_until(lambda: self.slots() == expected, what=f"slots {expected}")

    @property
    def startd(self):
        return self.runner("startd").daemon

    @property
    def host(self) -> str:
        return self.startd.context.name

    def show(self, name: str):
        with self.client() as client:
            return [ad.eval(name) for ad in client.ads("Machine")]


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    pool = Inside(tmp_path_factory.mktemp("tools") / "pool", **SELDOM)
    yield pool
    pool.close()


@pytest.fixture
def pool(shared):
    """One pool for all, put in order after each test."""
    yield shared
    shared.roost("on", "-all")
    shared.roost("undrain", "-all")
    with shared.client() as client:
        client.act("remove-force", constraint="true")
    wait_until(lambda: shared.startd and not shared.startd.shared.slot_manager.claims, what="the end of all claims")
    shared.until_slots(slot1="Unclaimed/Idle")


@pytest.fixture
def own(tmp_path):
    """A pool that a test may break."""
    pool = Inside(tmp_path / "pool", **SELDOM)
    yield pool
    (tmp_path / "go").touch()  # jobs that ran on would keep their fork server for 2,400 s
    wait_until(lambda: pool.startd and not pool.startd.shared.slot_manager.claims, what="the end of all claims")
    pool.close()


@spec("TLS-06")
def test_vacated_jobs_run_again_and_their_claims_are_gone(pool, tmp_path):
    cluster = pool.submit(tmp_path, jobs=2)
    pool.until_running(cluster, 2)
    claims = set(pool.startd.shared.slot_manager.claims)
    slot = min(claim.slot for claim in pool.startd.shared.slot_manager.claims.values())
    told = pool.roost("vacate", slot)
    assert told.startswith(f"startd {pool.host}: {slot}: ")
    wait_until(lambda: len(claims & set(pool.startd.shared.slot_manager.claims)) == 1, what="the end of one claim")
    wait_until(lambda: len((tmp_path / "pids").read_text().split()) == 3, what="the job's second run")
    pool.until_running(cluster, 2)
    with pool.client() as client:
        starts = sorted(ad.eval("NumShadowStarts") for ad in client.jobs(cluster))
    assert starts == [1, 2]


@spec("TLS-06")
def test_a_fast_vacate_kills_what_will_not_leave(pool, tmp_path):
    """-fast is a hard kill, of all slots of the machine."""
    cluster = pool.submit(tmp_path, first="trap '' TERM")
    pool.until_running(cluster)
    (claim,) = pool.startd.shared.slot_manager.claims
    pool.roost("vacate", "-fast", pool.host)
    wait_until(lambda: claim not in pool.startd.shared.slot_manager.claims, what="the end of the claim")
    (tmp_path / "go").touch()


def test_what_is_not_there_is_told(pool):
    told = pool.roost("vacate", "slot7@nowhere", ok=False)
    assert "slot7@nowhere" in told
    assert pool.host in told
    assert "nowhere" in pool.roost("drain", "nowhere", ok=False)
    assert "no ad" in pool.roost("vacate", "-constraint", "Cpus > 1000000", ok=False)
    assert "ParseError" not in pool.roost("vacate", "-constraint", "Cpus >", ok=False)


@spec("TLS-07")
def test_a_drained_machine_takes_no_job_until_it_is_undrained_and_then_at_once(pool, tmp_path):
    """A drain ends by itself only where that was asked for. The end of it starts a cycle."""
    told = json.loads(pool.roost("drain", pool.host, "-reason", "new kernel", "-json"))
    (request_id,) = {answer["request_id"] for answer in told}
    pool.until_slots(slot1="Drained/Idle")
    cluster = pool.submit(tmp_path)
    assert "cancel it first" in pool.roost("drain", pool.host, ok=False)
    assert "no drain 7 is under way" in pool.roost("undrain", pool.host, "-request-id", "7", ok=False)
    assert pool.statuses(cluster) == [1]
    assert not (tmp_path / "pids").exists()
    pool.roost("undrain", pool.host, "-request-id", request_id)
    pool.until_running(cluster)


@spec("TLS-07")
def test_a_drain_that_resumes_lets_jobs_end_and_takes_the_next(pool, tmp_path):
    """-quick asks them to leave now; the machine is back by itself."""
    first = pool.submit(tmp_path)
    pool.until_running(first)
    other = tmp_path / "other"
    other.mkdir()
    second = pool.submit(other)
    pool.until_running(second)
    pool.roost("drain", "-quick", "-resume-on-completion", pool.host)
    for folder in (tmp_path, other):
        wait_until(lambda at=folder: len((at / "pids").read_text().split()) == 2, what="a second run of each")
    pool.until_running(first)
    pool.until_running(second)
    assert pool.startd.shared.slot_manager.machine_orders.drain is None


@spec("TLS-07", "TLS-09")
def test_a_drain_that_ends_the_startd_leaves_it_off(pool, tmp_path):
    cluster = pool.submit(tmp_path)
    pool.until_running(cluster)
    pool.roost("drain", "-fast", "-exit-on-completion", pool.host)
    wait_until(lambda: pool.startd.shared.slot_manager.machine_orders.off is not None, what="the end of the draining")
    assert pool.startd.shared.slot_manager.machine_orders.drain is None
    pool.until_slots(slot1="Drained/Idle")
    wait_until(lambda: pool.statuses(cluster) == [1], what="the job, idle again")
    assert "is on already" not in pool.roost("on", "-startd", pool.host)
    pool.until_running(cluster)


@spec("TLS-07")
def test_a_drain_that_restarts_the_startd_has_it_take_jobs_again(pool, tmp_path):
    before = pool.startd
    pool.roost("drain", "-restart-on-completion", pool.host)
    wait_until(lambda: pool.startd not in (None, before) and not pool.startd.ready(), what="another life")
    assert pool.runner("startd").deaths == 0
    pool.until_running(pool.submit(tmp_path))


def test_a_check_that_is_false_drains_nothing(pool):
    assert "Cpus > 1000" in pool.roost("drain", "-check", "Cpus > 1000", pool.host, ok=False)
    assert "start" in pool.roost("drain", "-start", "Cpus >", pool.host, ok=False)
    assert pool.startd.shared.slot_manager.machine_orders.drain is None
    assert pool.slots() == {"slot1": "Unclaimed/Idle"}


@spec("TLS-09", "TLS-08")
def test_off_is_kept_over_a_restart_and_on_runs_jobs_at_once(pool, tmp_path):
    """For a startd, whose jobs leave first."""
    cluster = pool.submit(tmp_path)
    pool.until_running(cluster)
    assert "takes no jobs" in pool.roost("off", "-startd", "-fast", pool.host)
    wait_until(lambda: not pool.startd.shared.slot_manager.claims, what="the end of the claim")
    pool.until_slots(slot1="Drained/Idle")
    before = pool.startd
    assert "restarts" in pool.roost("restart", "-startd", pool.host)
    wait_until(lambda: pool.startd not in (None, before) and not pool.startd.ready(), what="another life")
    assert pool.runner("startd").deaths == 0
    pool.until_slots(slot1="Drained/Idle")
    wait_until(lambda: pool.statuses(cluster) == [1], what="the job, idle again")
    pool.roost("on", "-startd", pool.host)
    pool.until_running(cluster)


@spec("TLS-08")
def test_a_restart_loses_no_job(pool, tmp_path):
    """Restart -startd restarts that daemon only."""
    cluster = pool.submit(tmp_path)
    pool.until_running(cluster)
    startd, schedd = pool.startd, pool.runner("schedd").daemon
    pool.roost("restart", "-startd", pool.host)
    wait_until(lambda: pool.startd not in (None, startd) and not pool.startd.ready(), what="another life")
    assert pool.runner("schedd").daemon is schedd
    (tmp_path / "go").touch()
    with pool.client() as client:
        client.wait([cluster], timeout=110)
        (ad,) = client.jobs(cluster, history=True)
    assert (ad.eval("ExitCode"), ad.eval("NumShadowStarts")) == (0, 1)


@spec("TLS-11")
def test_attributes_set_by_hand_match_jobs_at_once(pool, tmp_path):
    """Are kept until they are removed, or the startd restarts."""
    cluster = pool.submit(tmp_path, requirements="TARGET.HasVM && Room == 17")
    (tmp_path / "ad").write_text("HasVM = True\nRoom = 10 + 7\n")
    assert pool.statuses(cluster) == [1]
    assert "HasVM, Room" in pool.roost("update-machine-ad", "-name", pool.host, str(tmp_path / "ad"))
    pool.until_running(cluster)
    pool.roost("rm", cluster)
    pool.roost("update-machine-ad", "-name", pool.host, "-remove", "Room", "HasVM")
    wait_until(lambda: set(pool.show("Room")) == {UNDEFINED}, what="no Room")
    (tmp_path / "ad").write_text('State = "Owner"\n')
    assert "State" in pool.roost("update-machine-ad", "-name", pool.host, str(tmp_path / "ad"), ok=False)


@spec("TLS-08")
def named(own, told: str) -> list[str]:
    """The daemons of this machine that an answer is of: several that say alike have one line."""
    return sorted(re.findall(rf"(\w+) {re.escape(own.host)}\b", told))


def test_reconfiguring_keeps_claims_and_tells_what_changed(own, tmp_path):
    """START takes effect, the claim stays; a broken file is refused with its place."""
    cluster = own.submit(tmp_path, jobs=2)
    own.until_running(cluster, 2)
    claims = set(own.startd.shared.slot_manager.claims)
    config = own.directory / "config"
    config.write_text("START = false\nSLOT_TYPE_1 = cpus=1\n")
    told = own.roost("reconfig", "-startd", own.host)
    assert told.startswith(f"startd {own.host}: reconfigured; in force: START; after a restart: SLOT_TYPE_1\n")
    assert "line 2: SLOT_TYPE_1 makes no slot: NUM_SLOTS_TYPE_1 is not set" in told
    assert set(own.startd.shared.slot_manager.claims) == claims
    assert "nothing has changed" in own.roost("reconfig", "-startd", own.host)
    config.write_text("START = true\nSTART = (\n")
    told = own.roost("reconfig", "-startd", own.host, ok=False)
    assert "START" in told
    config.write_text("START = true\nif true\n")
    told = own.roost("reconfig", "-all", ok=False)
    assert told.count(f"{config}, line 2") == 7
    wait_until(lambda: own.show("Start")[0] is False, what="the START that was understood")
    config.write_text("MAX_JOBS_RUNNING = 7\n")
    told = [line for line in own.roost("reconfig", "-all").splitlines() if not line.startswith("WARNING: ")]
    assert len(named(own, "\n".join(told))) == 7
    assert any(f"schedd {own.host}" in line and "in force: MAX_JOBS_RUNNING" in line for line in told)
    assert own.runner("schedd").daemon.settings.max_jobs_running == 7
    assert own.runner("schedd").daemon.claims.updates.settings.max_jobs_running == 7


@spec("TLS-09")
def test_a_negotiator_that_is_off_makes_no_matches(own, tmp_path):
    """Off -all -neg, then on -neg."""
    own.roost("off", "-all", "-neg")
    wait_until(lambda: not hasattr(own.runner("negotiator").daemon, "conduct"), what="the daemon to be off")
    cluster = own.submit(tmp_path)
    assert own.statuses(cluster) == [1]
    own.roost("on", "-neg", own.host)
    own.until_running(cluster)
    assert own.runner("negotiator").deaths == 0


@spec("TLS-09")
def test_a_whole_machine_off_and_on(own, tmp_path):
    """All daemons but the collector and the gateway, also where nobody knows of those that are off yet."""
    told = own.roost("off", own.host)
    assert named(own, told) == ["had", "journal", "negotiator", "schedd", "startd"]

    def off() -> list[bool]:
        return [isinstance(own.runner(kind).daemon, OffDaemon) for kind in ("schedd", "negotiator", "had")]

    def all_on() -> bool:
        """The order reaches who is known to be off; the ad of one may be on its way, so it is said again."""
        own.roost("on", own.host)
        return not any(off())

    wait_until(lambda: all(off()), what="the daemons to be off")
    wait_until(all_on, what="the daemons to be on")
    wait_until(lambda: own.runner("schedd").daemon and hasattr(own.runner("schedd").daemon, "runs"), what="the schedd")
    wait_until(lambda: own.host in own.roost("status", "-schedd"), what="the schedd's ad")
    cluster = own.submit(tmp_path)
    own.until_running(cluster)


def test_a_collector_that_is_off_is_switched_on_by_name(own, tmp_path):
    own.roost("off", "-collector", own.host)
    wait_until(lambda: not hasattr(own.runner("collector").daemon, "directory"), what="the daemon to be off")
    own.roost("on", "-collector", own.host)
    wait_until(lambda: own.runner("collector").daemon and hasattr(own.runner("collector").daemon, "directory"))
    own.until_slots(slot1="Unclaimed/Idle")


def test_a_gateway_is_never_off(pool):
    assert "could not be switched on" in pool.roost("off", "-gateway", pool.host, ok=False)


@pytest.mark.parametrize(
    "path",
    [
        "daemons/reconfig",
        "daemons/restart",
        "daemons/off",
        "daemons/on",
        "machines/drain",
        "machines/cancel-drain",
        "machines/vacate",
        "machines/update-ad",
    ],
)
def test_only_administrators_give_orders(pool, path):
    with pool.client() as client:
        token = client.create_token("alice@x", "WRITE")
    status, _, answer = pool.ask("POST", f"/v1/{path}", body={"all": True}, token=token)
    assert status == 403, answer
    status, _, answer = pool.ask("POST", f"/v1/{path}", body={})
    assert status == 400
    assert "say who is meant" in str(answer)
    assert (
        pool.startd.shared.slot_manager.machine_orders.off
        is pool.startd.shared.slot_manager.machine_orders.drain
        is None
    )


@spec("TLS-05")
def test_queued_jobs_are_edited_within_their_owners_rights(pool, tmp_path):
    """Who may change what is the schedd's to say; nobody becomes somebody else."""
    cluster = pool.submit(tmp_path, 2, requirements="false")
    with pool.client() as client:
        (owner,) = {ad.eval("Owner") for ad in client.jobs(cluster)}
        other = client.create_token("mallory@elsewhere", "WRITE")
    assert pool.roost("qedit", cluster, "Color", '"blue"', "JobPrio=3") == (
        'Set attribute "Color" for 2 matching jobs.\nSet attribute "JobPrio" for 2 matching jobs.\n'
    )
    assert pool.roost("prio", "+4", f"{cluster}.1") == "Changed the priority of 1 job.\n"
    assert pool.roost("q", cluster, "-af", "Color", "JobPrio").splitlines() == ["blue 3", "blue 7"]
    for name, value in (("Owner", '"mallory"'), ("User", '"root@x"'), ("JobStatus", "4"), ("ClusterId", "1")):
        assert f"{name}: the schedd keeps this attribute itself" in pool.roost("qedit", cluster, name, value, ok=False)
    with pool.client(other) as client:
        assert client.edit([f"{cluster}.0"], {"Color": '"red"'}) == {f"{cluster}.0": "denied"}
    assert pool.roost("q", cluster, "-af", "Color", "Owner").splitlines() == [f"blue {owner}"] * 2


@spec("TLS-10")
def test_the_pool_says_who_you_are_what_runs_and_what_daemons_go_by(pool, tmp_path):
    """config_val of a running daemon, too."""
    assert "ADMINISTRATOR command succeeded" in pool.roost("ping", "ADMINISTRATOR", "-verbose")
    assert pool.roost("config-val", "-startd", "UPDATE_INTERVAL") == "36000\n"
    assert "Not defined: NO_SUCH_KNOB" in pool.roost(
        "config-val", "-name", pool.host, "-startd", "NO_SUCH_KNOB", ok=False
    )
    assert "No jobs run" in pool.roost("who", "-all")
    cluster = pool.submit(tmp_path)
    pool.until_running(cluster)
    wait_until(lambda: f" {cluster}.0 " in pool.roost("who", "-name", pool.host), what="the job at its machine")
