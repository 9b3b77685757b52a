"""Parallel jobs: a schedd with a scripted execution point, killed and started again; then a real pool."""

import pytest

from shared.bus.api import RemoteFailure
from shared.classad import ClassAd
from shared.messages.claims import ClaimLost, ClaimRefused, JobExit, Usage
from tests.integration.inside import InsidePool
from tests.integration.pools import ProcessPool
from tests.scheddpool import Pool, job_ad
from tests.servers import free_port
from tests.spec import spec
from tests.waiting import eventually, wait_until

EVICTED = JobExit(reason="evicted", message="the machine is wanted back")
KILLED = JobExit(reason="killed")


def parallel(count=2, **more):
    return job_ad(**{"JobUniverse": 11, "MinHosts": count, "MaxHosts": count, "NumJobStarts": 0, **more})


def claims_of(pool):
    return list(pool.schedd.claim_table.claims.values())


def table_is_sound(pool):
    return pool.schedd.updates.check_invariants() == []


async def has(pool, count):
    async def so() -> bool:
        return (await pool.job("1.0")).eval("CurrentHosts") == count

    await eventually(so, what=f"CurrentHosts = {count}")


async def run_parallel(pool, count=2, **more):
    """A job that runs on all of its nodes; its runs by node."""
    before = len(pool.startd.activations)
    await pool.submit(parallel(count, **more))
    await pool.match(count=count)
    await eventually(lambda: len(pool.startd.activations) == before + count, what="all nodes")
    runs = sorted(pool.startd.activations[before:], key=lambda run: run.job_id)
    for run in runs:
        await pool.startd.report(run, "running", started_at=pool.schedd.updates.now())
    return runs


@spec("SUB-15", "SUB-17")
async def test_a_job_starts_on_all_machines_together_and_ends_once(tmp_path):
    log = tmp_path / "log"
    async with Pool(tmp_path / "ap") as pool:
        await pool.submit(parallel(3, UserLog=str(log), Out="out.#pArAlLeLnOdE#"))
        await told_of(pool, IdleJobs=3)
        await pool.match(count=2)
        await eventually(lambda: sum(claim.granted for claim in claims_of(pool)) == 2, what="two claims")
        await has(pool, 2)
        assert pool.startd.activations == []  # nothing runs on two of three
        assert (await pool.job("1.0"))["JobStatus"] == 1
        assert [run.count for run in (await pool.requests()).requests[pool.user]] == [1]
        await pool.match()
        await eventually(lambda: len(pool.startd.activations) == 3, what="all three")
        runs = sorted(pool.startd.activations, key=lambda run: run.job_id)
        assert [(run.job_id, run.attempt) for run in runs] == [("1.0.0", 1), ("1.0.1", 1), ("1.0.2", 1)]
        ads = [ClassAd.unpack(run.job_ad) for run in runs]
        assert [(ad["Node"], ad["Out"], ad["CurrentHosts"], ad["ProcId"]) for ad in ads] == [
            (n, f"out.{n}", 3, 0) for n in range(3)
        ]
        assert ads[0]["Scheduler"] == "DedicatedScheduler@ap"
        for run in runs:
            assert "job.started" not in pool.event_types()
            await pool.startd.report(run, "running", started_at=pool.schedd.updates.now())
        await eventually(lambda: "job.started" in pool.event_types(), what="the start")
        ad = await pool.job("1.0")
        assert (ad["JobStatus"], ad["CurrentHosts"], len(ad["AllRemoteHosts"].split(","))) == (2, 3, 3)
        await told_of(pool, WeightedRunningJobs=3, RunningJobs=1)
        await pool.startd.finish(runs[1], code=9)
        assert (await pool.job("1.0"))["JobStatus"] == 2  # it goes by node 0
        await pool.startd.finish(runs[0], code=4, usage=Usage(user_cpu_s=2.0))
        await eventually(lambda: pool.startd.deactivated, what="the end of the others")
        assert [(one.job_id, one.how) for one in pool.startd.deactivated] == [("1.0.2", "fast")]
        assert await pool.jobs("1.0")  # not over before they are
        await pool.startd.finish(runs[2], exit=KILLED, usage=Usage(user_cpu_s=1.0))
        assert await pool.jobs("1.0") == []
        (past,) = await pool.history()
        assert (past["ExitCode"], past["NumShadowStarts"], past["NumJobStarts"], past["JobRunCount"]) == (4, 1, 1, 1)
        assert past["CumulativeRemoteUserCpu"] == 3.0
        assert past["CumulativeSlotTime"] >= past["RemoteWallClockTime"]
        assert "RemoteHost" not in past
        assert claims_of(pool) == []
        assert table_is_sound(pool)
        await eventually(lambda: "005 (" in log.read_text(), what="the log")
    numbers = [line[:3] for line in log.read_text().splitlines() if line[3:5] == " ("]
    assert numbers == ["000", "014", "014", "014", "001", "015", "015", "015", "005"]
    assert [event.type for event in pool.events].count("job.ended") == 1


async def told_of(pool, **wanted):
    def so():
        ad = pool.submitter()
        return ad is not None and all(ad.eval(name) == value for name, value in wanted.items())

    await eventually(so, what=f"a submitter ad with {wanted}")


@spec("SUB-17")
async def test_all_nodes_are_waited_for_where_the_job_says_so(tmp_path):
    async with Pool(tmp_path) as pool:
        runs = await run_parallel(pool, ParallelShutdownPolicy="WAIT_FOR_ALL")
        await pool.startd.finish(runs[0], code=2)
        assert (await pool.job("1.0"))["JobStatus"] == 2
        assert pool.startd.deactivated == []
        await pool.startd.finish(runs[1], code=1)
        assert [ad["ExitCode"] for ad in await pool.history()] == [2]


@spec("SUB-17")
@pytest.mark.parametrize("node", [0, 1])
async def test_the_eviction_of_one_node_is_that_of_all_and_the_job_runs_again(tmp_path, node):
    async with Pool(tmp_path) as pool:
        runs = await run_parallel(pool)
        await pool.startd.finish(runs[node], exit=EVICTED)
        await eventually(lambda: pool.startd.deactivated, what="the end of the other")
        other = runs[1 - node]
        assert [(one.job_id, one.why) for one in pool.startd.deactivated] == [(other.job_id, "vacate")]
        assert (await pool.requests()).requests == {}  # no node is asked for before the run of all is over
        await pool.startd.finish(other, exit=EVICTED)
        ad = await pool.job("1.0")
        assert (ad["JobStatus"], ad["CurrentHosts"]) == (1, 0)
        assert f"node {node} of 2" in ad["VacateReason"]
        await pool.match(count=2)
        await eventually(lambda: len(pool.startd.activations) == 4, what="both nodes again")
        assert {run.attempt for run in pool.startd.activations[2:]} == {2}
        assert table_is_sound(pool)
    assert pool.event_types().count("job.evicted") == 1


@spec("SUB-17")
async def test_a_claim_that_is_lost_under_way_ends_the_run_of_all(tmp_path):
    async with Pool(tmp_path) as pool:
        runs = await run_parallel(pool)
        claim, slot = pool.startd.claim_of[runs[1].job_id, 1]
        lost = ClaimLost(startd="ep", slot=slot, claim_id=claim, reason="its machine is drained")
        await pool.startd.bus.call("schedd.ap", lost, timeout=10.0)
        await eventually(lambda: pool.startd.deactivated, what="the end of node 0")
        await pool.startd.finish(runs[0], exit=EVICTED)
        assert "its machine is drained" in (await pool.job("1.0"))["VacateReason"]
        assert table_is_sound(pool)


@spec("SUB-17")
@pytest.mark.parametrize(("action", "status"), [("hold", 5), ("remove", 3), ("vacate", 1)])
async def test_orders_are_for_all_nodes(tmp_path, action, status):
    async with Pool(tmp_path) as pool:
        runs = await run_parallel(pool, 3)
        assert (await pool.act(action, "1.0")) == {"1.0": "done"}
        await eventually(lambda: len(pool.startd.deactivated) == 3, what="an order for every node")
        for run in runs:
            await pool.startd.finish(run, exit=EVICTED if action == "vacate" else KILLED)
        ads = await pool.history() if action == "remove" else await pool.jobs()
        assert [ad["JobStatus"] for ad in ads] == [status]
        assert claims_of(pool) == []
        assert table_is_sound(pool)


async def test_a_forced_removal_gives_all_claims_back(tmp_path):
    async with Pool(tmp_path) as pool:
        runs = await run_parallel(pool)
        await pool.act("remove-force", "1.0")
        await eventually(lambda: len(pool.startd.released) == 2, what="both claims back")
        assert (await pool.startd.finish(runs[0])).known is False
        assert len(await pool.history()) == 1
        assert table_is_sound(pool)


@pytest.mark.parametrize("action", ["hold", "remove"])
async def test_a_job_that_leaves_while_it_gathers_gives_its_machines_back(tmp_path, action):
    async with Pool(tmp_path) as pool:
        await pool.submit(parallel(3))
        await pool.match(count=2)
        await has(pool, 2)
        await pool.act(action, "1.0")
        await eventually(lambda: len(pool.startd.released) == 2, what="both claims back")
        assert claims_of(pool) == []
        assert table_is_sound(pool)


@spec("SUB-16")
async def test_machines_that_are_too_few_are_given_back_in_time(tmp_path):
    async with Pool(tmp_path, UNUSED_CLAIM_TIMEOUT="1") as pool:
        await pool.submit(parallel(3))
        await pool.match(count=2)
        await has(pool, 2)
        await eventually(lambda: len(pool.startd.released) == 2, what="both claims back")
        ad = await pool.job("1.0")
        assert (ad["JobStatus"], ad["CurrentHosts"]) == (1, 0)
        assert "had 2 of 3 machines" in ad["LastRejMatchReason"]
        # It asks for them again.
        await eventually(lambda: pool.schedd.table.idle[pool.user].total == 3, what="new requests")
        assert table_is_sound(pool)
    assert pool.event_types().count("job.unmatched") == 1


@spec("SUB-15")
async def test_one_machine_that_does_not_take_its_node_keeps_all_from_counting(tmp_path):
    async with Pool(tmp_path) as pool:
        pool.startd.refuse_runs = "no room for another job"
        await pool.submit(parallel(2))
        await pool.match(count=2)
        await eventually(lambda: len(pool.startd.released) == 2, what="both claims back")
        ad = await pool.job("1.0")
        assert (ad["JobStatus"], ad["NumJobStarts"]) == (1, 0)
        assert "no room for another job" in ad["LastRejMatchReason"]
        assert table_is_sound(pool)


async def test_a_refused_claim_is_asked_for_again(tmp_path):
    async with Pool(tmp_path) as pool:
        await pool.submit(parallel(2))
        await pool.match()
        await has(pool, 1)
        pool.startd.refuse = ClaimRefused(reason="taken", code="busy")
        await pool.match()
        await eventually(lambda: len(claims_of(pool)) == 1, what="the refusal")
        pool.startd.refuse = None
        await eventually(lambda: pool.schedd.table.idle[pool.user].total == 1, what="a request for it")
        await pool.match()
        await eventually(lambda: len(pool.startd.activations) == 2, what="both nodes")


@spec("SUB-15")
async def test_a_schedd_that_gathers_is_killed_and_goes_on(tmp_path):
    async with Pool(tmp_path) as pool:
        await pool.submit(parallel(3))
        await pool.match(count=2)
        await has(pool, 2)
        await pool.restart()
        await has(pool, 2)
        assert pool.startd.released == []
        await eventually(lambda: pool.startd.alive, what="a keep-alive for them")
        await pool.match()
        await eventually(lambda: len(pool.startd.activations) == 3, what="all nodes")
        assert len({pool.startd.claim_of[run.job_id, 1] for run in pool.startd.activations}) == 3


@spec("SUB-17")
async def test_a_run_survives_the_schedd_whatever_its_nodes_did(tmp_path):
    async with Pool(tmp_path) as pool:
        runs = await run_parallel(pool, 3, ParallelShutdownPolicy="WAIT_FOR_ALL")
        await pool.startd.finish(runs[1], code=1)
        await pool.restart()
        ad = await pool.job("1.0")
        assert (ad["JobStatus"], ad["CurrentHosts"]) == (2, 3)
        assert table_is_sound(pool)
        await pool.startd.finish(runs[0], code=6)
        await pool.restart()
        assert pool.startd.deactivated == []
        await pool.startd.finish(runs[2], code=0)
        assert [ad["ExitCode"] for ad in await pool.history()] == [6]
        assert len(pool.startd.activations) == 3
        assert table_is_sound(pool)


async def test_orders_that_nobody_took_are_given_again_by_the_next_life(tmp_path):
    async with Pool(tmp_path) as pool:
        await pool.submit(parallel(2))
        await pool.match()
        await has(pool, 1)
        await pool.match()
        await eventually(lambda: len(pool.startd.activations) == 2, what="both nodes")
        runs = sorted(pool.startd.activations, key=lambda run: run.job_id)
        pool.startd.mute = True
        await pool.startd.finish(runs[0], code=1)
        await pool.restart()
        pool.startd.mute = False
        await eventually(lambda: pool.startd.deactivated, what="the order to end node 1")
        await pool.startd.finish(runs[1], exit=KILLED)
        assert [ad["ExitCode"] for ad in await pool.history()] == [1]


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"MaxHosts": 3}, "MinHosts"),
        ({"NodeGroups": "1,2"}, "NodeGroups"),
        ({"NodeGroups": "1,1", "NodeGroup1_Owner": "root"}, "it is the job's"),
        ({"MinHosts": 0, "MaxHosts": 0}, "machine_count"),
        ({"JobMaterializeLimit": 1}, "max_materialize"),
        ({"WhenToTransferOutput": "ON_EXIT_OR_EVICT"}, "checkpoints"),
    ],
)
async def test_what_a_parallel_job_can_not_be_is_refused(tmp_path, more, said):
    async with Pool(tmp_path) as pool:
        with pytest.raises(RemoteFailure, match=said):
            await pool.submit(parallel(2, **more))
        with pytest.raises(RemoteFailure, match="has one job"):
            await pool.submit(parallel(2), procs=2)


async def test_each_queue_statement_asks_for_its_own_machines_and_all_start_together(tmp_path):
    rules = {"SUBMIT_REQUIREMENT_NAMES": "Small", "SUBMIT_REQUIREMENT_Small": "RequestCpus < 4"}
    rules |= {"JOB_TRANSFORM_NAMES": "More", "JOB_TRANSFORM_More": "EVALSET RequestMemory RequestMemory + 1"}
    groups = {"NodeGroups": "1,2", "NodeGroup1_RequestMemory": 20, "RequestMemory": 10}
    async with Pool(tmp_path, **rules) as pool:
        await pool.submit(parallel(3, **groups))
        requests = (await pool.requests()).requests[pool.user]
        asked = sorted((ClassAd.unpack(one.ad).eval("RequestMemory"), one.count) for one in requests)
        assert asked == [(11, 1), (21, 2)]
        await pool.match()
        await has(pool, 1)
        assert pool.startd.activations == []
        await pool.match(count=2)
        await eventually(lambda: len(pool.startd.activations) == 3, what="all three")
        ads = [ClassAd.unpack(run.job_ad) for run in sorted(pool.startd.activations, key=lambda run: run.job_id)]
        assert [(ad.eval("Node"), ad.eval("RequestMemory")) for ad in ads] == [(0, 11), (1, 21), (2, 21)]
        assert table_is_sound(pool)
        with pytest.raises(RemoteFailure, match="requirement Small"):
            await pool.submit(parallel(3, **groups, NodeGroup1_RequestCpus=4))


# A real pool


@pytest.fixture(scope="module")
def pool(tmp_path_factory):
    inside = InsidePool(tmp_path_factory.mktemp("pool"), NUM_CPUS="4")
    yield inside
    inside.close()


def submit(pool, directory, script, more="", **commands):
    program = directory / "run.sh"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    own = {"universe": "parallel", "executable": str(program), "output": "out.$(Node)", "log": "log"}
    lines = {**own, "should_transfer_files": "yes", "request_memory": "64", "request_disk": "1MB", **commands}
    (directory / "job.sub").write_text(
        "".join(f"{name} = {value}\n" for name, value in lines.items()) + more + "queue\n"
    )
    return pool.roost("submit", "job.sub", cwd=directory).rpartition("cluster ")[2].split(".")[0]


def past(pool, job):
    with pool.client() as client:
        wait_until(lambda: not [*client.jobs(job)], what=f"the end of job {job}")
        (ad,) = client.jobs(job, history=True)
    return ad


def test_nodes_run_at_the_same_time_with_their_own_output(pool, tmp_path):
    script = 'touch "$1/here.$_CONDOR_PROCNO"; while [ $(ls "$1" | grep -c here) -lt 3 ]; do sleep 0.1; done\n'
    script += "condor_chirp set_job_attr Host$_CONDOR_PROCNO '\"here\"'\n"
    script += 'until [ "$(condor_chirp get_job_attr Host0)" = \'"here"\' ]; do sleep 0.1; done\n'
    script += 'echo "$_CONDOR_PROCNO of $_CONDOR_NPROCS $2"'
    meeting = tmp_path / "meeting"
    meeting.mkdir(mode=0o777)
    policy = {"+ParallelShutdownPolicy": '"WAIT_FOR_ALL"'}
    job = submit(pool, tmp_path, script, machine_count="3", arguments=f"{meeting} $(Node)", **policy)
    ad = past(pool, job)
    assert (ad["JobStatus"], ad["ExitCode"], ad["NumShadowStarts"]) == (4, 0, 1)
    assert [ad[f"Host{n}"] for n in range(3)] == ["here"] * 3  # nodes share the job's ad, by Chirp
    assert [(tmp_path / f"out.{n}").read_text() for n in range(3)] == [f"{n} of 3 {n}\n" for n in range(3)]


def test_queue_statements_with_machines_of_their_own(pool, tmp_path):
    more = "request_memory = 65\narguments = worker $(Node)\nmachine_count = 2\n"
    commands = {"machine_count": "1", "arguments": "first $(Node)", "+ParallelShutdownPolicy": '"WAIT_FOR_ALL"'}
    job = submit(pool, tmp_path, 'echo "$* of $_CONDOR_NPROCS"', more="queue\n" + more, **commands)
    past(pool, job)
    said = [(tmp_path / f"out.{n}").read_text() for n in range(3)]
    assert said == ["first 0 of 3\n", "worker 1 of 3\n", "worker 2 of 3\n"]


def test_a_program_runs_beside_any_node(pool, tmp_path):
    job = submit(pool, tmp_path, "exec sleep 600", machine_count="2")
    wait_until(lambda: "001 (" in (tmp_path / "log").read_text(), what="both nodes")
    for name, node in (("0.1", "1"), ("0.0", "0"), ("0", "0")):
        assert pool.roost("exec", f"{job}.{name}", "printenv", "_CONDOR_PROCNO").strip() == node
    assert f"node 2 of job {job}.0 is not running" in pool.roost("exec", f"{job}.0.2", "true", ok=False)
    pool.roost("rm", job)
    with pool.client() as client:
        wait_until(lambda: not [*client.jobs(job)], what="the end")


def test_a_job_that_needs_more_than_there_is_says_what_it_has(pool, tmp_path):
    job = submit(pool, tmp_path, "sleep 600", machine_count="5")
    with pool.client() as client:
        wait_until(lambda: [ad.eval("CurrentHosts") for ad in client.jobs(job)] == [4], what="four of five machines")
    assert "has 4 of 5 machines" in pool.roost("analyze", f"{job}.0")
    pool.roost("rm", job)
    with pool.client() as client:
        wait_until(lambda: {ad["State"] for ad in client.ads("Machine")} == {"Unclaimed"}, what="all slots free")


@spec("SUB-15", "SUB-17")
@pytest.mark.timeout(300)
def test_whatever_daemon_is_killed_a_job_runs_once_on_all_machines(tmp_path, amqp_url, redis_server):
    """Processes on real servers: each dies while the job lacks a machine, and while it runs on all."""
    knobs = {"NUM_CPUS": "3", "MEMORY": "3000", "JOB_DEFAULT_LEASE_DURATION": "2400", "ALIVE_INTERVAL": "2"}
    killed = ProcessPool(tmp_path / "pool", amqp_url, redis_server.url, free_port(), **knobs)
    try:
        killed.start()
        meeting = tmp_path / "meeting"
        meeting.mkdir(mode=0o777)
        program = tmp_path / "run.sh"
        program.write_text(
            f'#!/bin/sh\necho "$1 began" >>{meeting}/$1\nwhile [ ! -e {meeting}/over ]; do sleep 0.1; done\n'
            f'echo "$1 ended" >>{meeting}/$1\nexit 7\n'
        )
        program.chmod(0o755)
        common = {"executable": str(program), "should_transfer_files": "no", "request_memory": "64", "log": "log"}
        with killed.client() as client:
            other = {**common, "executable": "/bin/sleep", "arguments": "1000", "log": "other"}
            blocks = client.submit(other, directory=tmp_path).cluster
            wait_until(lambda: [ad["JobStatus"] for ad in client.jobs(str(blocks))] == [2], what="the other job")
            wanted = {"universe": "parallel", "machine_count": "3", "arguments": "$(Node)", **common}
            wanted["+ParallelShutdownPolicy"] = '"WAIT_FOR_ALL"'
            job = str(client.submit(wanted, directory=tmp_path).cluster)

            def has(hosts, status):
                found = [(ad.eval("CurrentHosts"), ad["JobStatus"]) for ad in client.jobs(job)]
                return found == [(hosts, status)]

            wait_until(lambda: has(2, 1), what="two of three machines")
            for name in ("schedd", "negotiator", "startd"):
                killed.kill(name)
                killed.start_daemon(name)
            wait_until(lambda: has(2, 1), 60, "the same after all were killed")
            assert [*meeting.iterdir()] == []
            client.act("remove", [str(blocks)])
            wait_until(lambda: len([*meeting.iterdir()]) == 3, 60, "all three nodes")
            for name in ("startd", "schedd", "negotiator"):
                killed.kill(name)
                killed.start_daemon(name)
            wait_until(lambda: has(3, 2), 60, "the same after all were killed")
            (meeting / "over").touch()
            wait_until(lambda: not [*client.jobs(job)], 60, "the end")
            (ad,) = client.jobs(job, history=True)
        assert (ad["ExitCode"], ad["NumShadowStarts"], ad["NumJobStarts"]) == (7, 1, 1)
        assert [(meeting / str(n)).read_text() for n in range(3)] == [f"{n} began\n{n} ended\n" for n in range(3)]
    finally:
        killed.close()
