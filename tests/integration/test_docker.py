"""Jobs in containers, on a real engine."""

import asyncio
import errno
import os

import pytest

from services.startd.exec.docker import streams
from services.startd.exec.docker.container_run import container_name
from services.startd.exec.docker.extra_arguments import OPTIONS
from services.startd.exec.docker.streams import write_all
from shared.messages.claims import DeactivateClaim
from tests.integration.container_jobs import (
    IMAGE,
    PATIENCE_S,
    USER,
    containers,
    end_of,
    launcher,
    machine,
    run,
    running_pool,
    start,
    told,
    up,
    use_engine,
)
from tests.spec import spec
from tests.startd_pool import Endpoint, Pool
from tests.waiting import eventually

pytestmark = pytest.mark.timeout(600)


@pytest.fixture
def engine(docker_engine, monkeypatch):
    return use_engine(docker_engine, monkeypatch)


@pytest.fixture
async def pool(engine, tmp_path):
    async with running_pool(tmp_path) as pool:
        yield pool


@pytest.fixture
async def files(tmp_path):
    async with Endpoint(tmp_path) as endpoint:
        yield endpoint


@spec("DKR-01")
async def test_the_ad_tells_of_the_engine(pool):
    ad = machine(pool)
    assert ad.eval("HasDocker") is True
    assert ad.eval("HasContainer") is True
    assert ad.eval("HasDockerURL") is True
    assert ad.eval("DockerVersion").startswith("Docker version ")


@spec("DKR-03")
async def test_a_job_runs_in_its_container_and_leaves_nothing(pool, files, engine):
    """The scratch directory is the job's directory inside; the container goes."""
    (files.input / "data").write_text("input\n")
    text = "cat /etc/os-release | grep ^ID=; cat data; id -u; echo bad >&2; echo x > made; exit 3"
    activation, _ = await start(pool, files, text)
    end = await end_of(pool, activation)
    assert (end.exit.reason, end.exit.exit_code, end.exit.output_committed) == ("exited", 3, True), end.exit
    assert files.text("_condor_stdout") == f"ID=debian\ninput\n{USER}\n"
    assert files.text("_condor_stderr") == "bad\n"
    assert files.text("made") == "x\n"
    assert told(pool, activation, "ContainerID")
    assert told(pool, activation, "DockerImageID").startswith("sha256:")
    await eventually(lambda: not containers(engine, pool))
    await eventually(lambda: not list(pool.execute.glob("dir_*")))


@spec("DKR-08")
async def test_a_job_may_do_little_in_its_container(pool, files):
    text = "grep -E 'CapEff|NoNewPrivs' /proc/self/status; echo $OMP_NUM_THREADS"
    await run(pool, files, text, RequestCpus=2)
    assert files.text("_condor_stdout").split() == ["CapEff:", "0000000000000000", "NoNewPrivs:", "1", "2"]


async def test_standard_input_reaches_the_container(pool, files):
    (files.input / "typed").write_text("one\ntwo\n" * 200_000)
    await run(pool, files, "wc -l", In="typed")
    assert files.text("_condor_stdout").strip() == "400000"


async def test_a_program_of_the_image_can_be_the_job(pool, files):
    attrs = {"cmd": "/bin/echo", "Arguments": "'a b' c", "TransferExecutable": False}
    await run(pool, files, **attrs, DockerImage=f"docker://{IMAGE}")
    assert files.text("_condor_stdout") == "a b c\n"


async def test_all_of_a_large_output_arrives_while_the_job_runs(pool, files):
    text = "echo first; echo up > up; while [ ! -e go ]; do sleep 0.05; done; seq 300000; seq 300000 >&2; printf end"
    activation, _ = await start(pool, files, text)
    path = await up(pool)
    stdout = path.with_name("_condor_stdout")
    await eventually(lambda: stdout.exists() and stdout.read_text() == "first\n")
    path.with_name("go").touch()
    await end_of(pool, activation)
    numbers = "".join(f"{n}\n" for n in range(1, 300_001))
    assert files.text("_condor_stdout") == f"first\n{numbers}end"
    assert files.text("_condor_stderr") == numbers


async def test_output_and_errors_may_go_into_one_file(pool, files):
    await run(pool, files, "echo a; sleep 0.1; echo b >&2; sleep 0.1; echo c", Out="both", Err="both")
    assert files.text("_condor_stdout") == "a\nb\nc\n"


@pytest.mark.parametrize(
    ("attrs", "code", "words"),
    [
        ({"DockerImage": "Not A Name"}, 35, "Not A Name"),
        ({"cmd": "/no/such/program", "TransferExecutable": False}, 6, "/no/such/program"),
        ({"cmd": "/etc", "TransferExecutable": False}, 6, "/etc"),
        ({"cmd": "frobnicate", "TransferExecutable": False, "DockerOverrideEntrypoint": True}, 6, "frobnicate"),
        ({"DockerNetworkType": "container:another"}, 6, "host, none, nat"),
        ({"ContainerTargetDir": "relative"}, 6, "container_target_dir"),
        ({"DockerPullPolicy": "never", "DockerImage": "roost.invalid/x"}, 35, "docker_pull_policy"),
    ],
)
async def test_what_can_not_be_started_is_held(pool, files, engine, attrs, code, words):
    end = await run(pool, files, "exit 0", **attrs)
    assert (end.exit.reason, end.exit.hold_code) == ("hold", code), end.exit
    assert words in end.exit.message
    await eventually(lambda: not containers(engine, pool))
    assert machine(pool).eval("HasDocker") is True


async def test_a_container_that_ends_before_its_first_report_has_what_all_its_processes_used(engine, tmp_path):
    """Nobody can ask when it has ended: it is looked at soon after its start."""
    each = 30 * 2**20
    hold = f"{{ head -c {each} /dev/zero; while [ ! -e go ]; do sleep 0.05; done; }} | tail -c {each} >/dev/null &"
    async with Endpoint(tmp_path) as files, running_pool(tmp_path, STARTER_INITIAL_UPDATE_INTERVAL="3000") as pool:
        text = f"for i in 1 2 3; do {hold} done; echo > up; while [ ! -e go ]; do sleep 0.05; done; wait"
        activation, _ = await start(pool, files, text, RequestMemory=512)
        path = await up(pool)
        (one,) = pool.startd.shared.run_table.by_key.values()
        used = one.record.usage
        await eventually(lambda: used.get("resident_set_kib", 0) * 1024 > 3 * each, PATIENCE_S, "its memory")
        path.with_name("go").touch()
        end = await end_of(pool, activation)
    assert end.exit.exit_code == 0
    assert end.usage.resident_set_kib * 1024 > 3 * each
    assert end.usage.memory_mib > 90
    assert end.usage.user_cpu_s + end.usage.sys_cpu_s > 0


async def test_too_much_memory_holds_the_job_with_use_and_limit(pool, files):
    end = await run(pool, files, "exec tail /dev/zero", RequestMemory=64)
    assert (end.exit.reason, end.exit.hold_code, end.exit.hold_subcode) == ("hold", 34, 102), end.exit
    assert "its limit is 128 MiB" in end.exit.message


async def test_a_child_over_the_memory_does_not_hold_a_job_that_goes_on(pool, files):
    end = await run(pool, files, "tail /dev/zero; exit 5", RequestMemory=64)
    assert (end.exit.reason, end.exit.exit_code) == ("exited", 5), end.exit


async def test_a_stopped_container_is_asked_then_killed(pool, files, engine):
    text = "trap 'echo asked' TERM; echo up > up; while :; do sleep 0.1; done"
    activation, granted = await start(pool, files, text, JobMaxVacateTime=1)
    await up(pool)
    stop = DeactivateClaim(claim_id=granted.claim_id, job_id=activation.job_id, attempt=1, why="hold", want_output=True)
    await pool.call(stop)
    end = await end_of(pool, activation)
    assert end.exit.reason == "killed"
    assert "asked" in files.text("_condor_stdout")
    await eventually(lambda: not containers(engine, pool))


async def test_a_container_stands_still_and_goes_on(pool, files, engine):
    text = "echo up > up; while [ ! -e go ]; do sleep 0.05; done; exit 4"
    activation, _ = await start(pool, files, text)
    path = await up(pool)
    (name,) = [record["name"] for record in pool.startd.shared.journal_writer.journal.load("runs").values()]
    await launcher(pool).suspend(name)
    await launcher(pool).suspend(name)  # it stands already
    assert containers(engine, pool)[0].status == "paused"
    path.with_name("go").touch()
    for _ in range(3):  # with nothing in between, and the last word counts
        await launcher(pool).continue_(name)
        await launcher(pool).suspend(name)
    await launcher(pool).continue_(name)
    end = await end_of(pool, activation)
    assert (end.exit.reason, end.exit.exit_code) == ("exited", 4)


async def test_a_container_that_stands_still_can_be_killed(pool, files, engine):
    activation, granted = await start(pool, files, "echo up > up; sleep 600")
    await up(pool)
    (name,) = [record["name"] for record in pool.startd.shared.journal_writer.journal.load("runs").values()]
    await launcher(pool).suspend(name)
    await pool.call(
        DeactivateClaim(claim_id=granted.claim_id, job_id=activation.job_id, attempt=1, why="remove", fast=True)
    )
    assert (await end_of(pool, activation)).exit.reason == "killed"
    await eventually(lambda: not containers(engine, pool))


@pytest.mark.parametrize("how", ["kill", "stop", "remove"])
async def test_a_container_that_somebody_else_ends_is_run_again(pool, files, engine, how):
    """Neither held nor taken for a job that ended by itself."""
    activation, _ = await start(pool, files, "echo up > up; sleep 600")
    await up(pool)
    (container,) = containers(engine, pool)
    work = {
        "kill": container.kill,
        "stop": lambda: container.stop(timeout=1),
        "remove": lambda: container.remove(force=True),
    }
    await asyncio.to_thread(work[how])
    end = await end_of(pool, activation)
    assert (end.exit.reason, end.exit.hold_code) == ("evicted", 0), end.exit
    assert "somebody else" in end.exit.message


async def test_a_job_that_kills_itself_ended_by_itself(pool, files):
    end = await run(pool, files, "kill -9 $$")
    assert (end.exit.reason, end.exit.exit_code) == ("exited", 137), end.exit


async def test_a_restarted_startd_adopts_its_containers(pool, files, engine):
    text = "echo up > up; while [ ! -e go ]; do sleep 0.05; done; echo done; exit 4"
    activation, _ = await start(pool, files, text)
    await pool.running(activation.job_id)
    path = await up(pool)
    labels = {"roost.startd": launcher(pool).startd, "roost.run": "stranger"}
    create = engine.client.containers.create
    stranger = create(IMAGE, "true", name=container_name(str(path)), labels=labels)
    labels = {"roost.startd": "node1-of-another-pool", "roost.run": "neighbour"}
    neighbour = create(IMAGE, "true", name=container_name(f"neighbour of {path}"), labels=labels)
    await pool.restart()
    path.with_name("go").touch()
    end = await end_of(pool, activation)
    assert (end.exit.reason, end.exit.exit_code, end.exit.output_committed) == ("exited", 4, True)
    assert files.text("_condor_stdout") == "done\n"
    await eventually(lambda: stranger.id not in [c.id for c in containers(engine, pool)])
    neighbour.remove(force=True)  # it is still there: not ours to remove


@spec("LEA-02")
async def test_a_job_that_is_removed_while_its_startd_is_away_ends_when_the_next_one_is_there(pool, files, engine):
    activation, granted = await start(pool, files, "while :; do sleep 0.1; done")
    await pool.running(activation.job_id)
    await pool.stop()
    about = {"claim_id": granted.claim_id, "job_id": activation.job_id, "attempt": activation.attempt}
    order = DeactivateClaim(**about, how="fast", why="remove")
    told = asyncio.ensure_future(pool.schedd.bus.call("startd.node1", order, timeout=PATIENCE_S))
    await pool.start()
    end = (await end_of(pool, activation)).exit
    assert (end.reason, end.message) == ("killed", "stopped by the schedd: remove")
    await eventually(lambda: not containers(engine, pool))
    await told


async def test_what_ended_while_the_startd_was_away_is_known(pool, files, engine):
    activation, _ = await start(
        pool, files, "echo up > up; while [ ! -e go ]; do sleep 0.05; done; echo done; exit 137"
    )
    await pool.running(activation.job_id)
    path = await up(pool)
    (container,) = containers(engine, pool)
    await pool.stop()
    path.with_name("go").touch()
    await asyncio.to_thread(container.wait)
    await pool.start()
    end = await end_of(pool, activation)
    assert (end.exit.reason, end.exit.exit_code) == ("exited", 137), end.exit
    assert files.text("_condor_stdout") == "done\n"


async def test_a_pipe_in_the_place_of_the_output_holds_nobody_up(pool, files):
    """A restarted startd writes the output anew; the job may have put anything there meanwhile."""
    text = "rm _condor_stdout; mkfifo _condor_stdout; echo up > up; while [ ! -e go ]; do sleep 0.05; done; echo done"
    activation, _ = await start(pool, files, text)
    await pool.running(activation.job_id)
    path = await up(pool)
    await pool.restart()
    path.with_name("go").touch()
    end = await end_of(pool, activation)
    assert (end.exit.reason, end.exit.hold_code) == ("hold", 7), end.exit


@spec("DKR-04", "DKR-05", "DKR-06")
async def test_volumes_are_mounted(engine, files, tmp_path):
    """With another name inside, read-only, and where the condition is true."""
    for name in ("plain", "renamed", "fixed", "never"):
        (tmp_path / name).mkdir(mode=0o777)
        (tmp_path / name).chmod(0o777)
        (tmp_path / name / "there").write_text(f"{name}\n")
    macros = {
        "DOCKER_VOLUMES": "plain, renamed, fixed, never",
        "DOCKER_VOLUME_DIR_plain": tmp_path / "plain",
        "DOCKER_VOLUME_DIR_plain_MOUNT_IF": 'Owner == "alice" && MY.HasDocker',
        "DOCKER_VOLUME_DIR_renamed": f"{tmp_path}/renamed:/other",
        "DOCKER_VOLUME_DIR_fixed": f"{tmp_path}/fixed:/fixed:ro",
        "DOCKER_VOLUME_DIR_never": tmp_path / "never",
        "DOCKER_VOLUME_DIR_never_MOUNT_IF": "TARGET.NoSuchThing",
        "DOCKER_MOUNT_VOLUMES": "plain renamed fixed never",
    }
    plain, never = tmp_path / "plain", tmp_path / "never"
    text = f"cat {plain}/there /other/there /fixed/there; echo x > /other/new; echo x > /fixed/new; cat {never}/there"
    async with running_pool(tmp_path, **macros) as pool:
        assert machine(pool).eval("HasDockerVolumeplain") is True
        await run(pool, files, text)
    assert files.text("_condor_stdout") == "plain\nrenamed\nfixed\n"
    assert (tmp_path / "renamed/new").read_text() == "x\n"
    assert not (tmp_path / "fixed/new").exists()
    assert "Read-only" in files.text("_condor_stderr")


@spec("DKR-08", "DKR-09", "DKR-11")
async def test_rights_arguments_and_shared_memory(engine, files, tmp_path):
    """Expressions see slot and job; further arguments come last."""
    macros = {
        "DOCKER_DROP_ALL_CAPABILITIES": 'TARGET.Owner != "alice"',
        "DOCKER_SHM_SIZE": "ifThenElse(isInteger(DevShmSize), DevShmSize, Memory * 1024 * 1024 / 2)",
        "DOCKER_EXTRA_ARGUMENTS": "--hostname box --env SITE=north --tmpfs /quick:size=1m --memory-swappiness 0",
    }
    text = "grep NoNewPrivs /proc/self/status; hostname; echo $SITE; df -k /dev/shm /quick | awk 'NR > 1 {print $2}'"
    async with running_pool(tmp_path, **macros) as pool:
        await run(pool, files, text, DevShmSize=8 * 2**20)
        assert files.text("_condor_stdout").split() == ["NoNewPrivs:", "0", "box", "north", "8192", "1024"]
        await run(pool, files, text, Owner="bob", RequestMemory=256)
        assert files.text("_condor_stdout").split() == ["NoNewPrivs:", "1", "box", "north", str(128 * 1024), "1024"]


@spec("DKR-10")
async def test_networks(engine, files, tmp_path):
    """One of the administrator's, none, and one that the engine lacks: another machine may have it."""
    network = engine.client.networks.create(f"roost-{tmp_path.name}"[:60])
    try:
        async with running_pool(tmp_path, DOCKER_NETWORKS=f"{network.name}, no-such-network") as pool:
            assert machine(pool).eval("DockerNetworks") == f"{network.name}, no-such-network"
            await run(pool, files, "ls /sys/class/net", DockerNetworkType="none")
            assert files.text("_condor_stdout").split() == ["lo"]
            await run(pool, files, "ls /sys/class/net", DockerNetworkType=network.name)
            assert files.text("_condor_stdout").split() == ["eth0", "lo"]
            end = await run(pool, files, "true", DockerNetworkType="no-such-network")
            assert (end.exit.reason, end.exit.hold_code) == ("failed", 0), end.exit
            await eventually(lambda: machine(pool).eval("DockerNetworks") == network.name)
            assert machine(pool).eval("HasDocker") is True
    finally:
        network.remove()


async def test_services_and_another_name_of_the_scratch_directory(pool, files):
    text = "echo $_CONDOR_SCRATCH_DIR $PWD; echo up > up; while [ ! -e go ]; do sleep 0.05; done"
    services = {"ContainerServiceNames": "web", "web_ContainerPort": 80}
    activation, _ = await start(pool, files, text, ContainerTargetDir="/srv/job", **services)
    path = await up(pool)
    port = await eventually(lambda: told(pool, activation, "web_HostPort"))
    assert 0 < port < 2**16
    path.with_name("go").touch()
    await end_of(pool, activation)
    assert files.text("_condor_stdout") == "/srv/job /srv/job\n"


async def test_what_a_job_uses_is_told(engine, files, tmp_path):
    async with running_pool(tmp_path, STARTER_INITIAL_UPDATE_INTERVAL="1", STARTER_UPDATE_INTERVAL="1") as pool:
        text = "while [ ! -e go ]; do :; done & dd if=/dev/zero of=x bs=1M count=8 conv=fsync; echo up > up; wait"
        activation, _ = await start(pool, files, text)
        path = await up(pool)
        reports = pool.schedd.reports
        await eventually(lambda: [r for r in reports if r.usage.user_cpu_s > 0.5 and r.usage.procs > 1], 120)
        await eventually(lambda: told(pool, activation, "NetworkInputMb") is not None, 120)
        assert told(pool, activation, "BlockWriteKbytes") is not None
        path.with_name("go").touch()
        end = await end_of(pool, activation)
    assert end.usage.user_cpu_s > 0.5
    assert 0 < end.usage.resident_set_kib < 128 * 1024
    assert told(pool, activation, "NetworkOutputMb") is not None


async def test_a_full_disk_holds_the_job_whose_output_does_not_fit(pool, files, engine, monkeypatch):
    written = 0

    def write_some(fd, data):
        nonlocal written
        written += len(data)
        if written > 100_000:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        write_all(fd, data)

    monkeypatch.setattr(streams, "write_all", write_some)
    end = await run(pool, files, "seq 300000; sleep 600")
    assert (end.exit.reason, end.exit.hold_code, end.exit.hold_subcode) == ("hold", 34, 104), end.exit
    assert "No space left" in end.exit.message
    await eventually(lambda: not containers(engine, pool))


@spec("DKR-01")
async def test_without_an_engine_the_machine_says_so_and_jobs_go_elsewhere(tmp_path, files, monkeypatch):
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/nothing.sock")
    async with Pool(tmp_path, ROOST_DOCKER="true") as pool:
        assert machine(pool).eval("HasDocker") is False
        end = await run(pool, files, "exit 0")
        assert end.exit.reason == "failed"
        assert "nothing.sock" in end.exit.message
        await eventually(lambda: "nothing.sock" in str(machine(pool).eval("DockerOfflineReason")))


def test_every_argument_in_the_table_is_one_of_the_commands(engine):
    said = engine.docker("create", "--help")
    assert "--cap-add" in said
    assert [name for name in OPTIONS if f"{name} " not in said] == []


@spec("SUB-14")
async def test_jobs_ask_over_the_network_that_they_have(engine, files, tmp_path):
    """By the gateway of the network; without a network there is nobody to ask, and no file that names one."""
    ask = (
        "[ -e $_CONDOR_SCRATCH_DIR/.chirp.config ] || exit 4; "
        "exec bash -c 'read host port cookie < $_CONDOR_CHIRP_CONFIG; "
        'exec 3<>/dev/tcp/$host/$port; printf "cookie %s\\nset_job_attr_delayed ChirpX $1\\n" $cookie >&3; '
        "read one <&3; read two <&3; echo $one $two' job "
    )
    async with running_pool(tmp_path) as pool:
        for number, network in enumerate(("", "host", "none")):
            wanted = {"DockerNetworkType": network} if network else {}
            activation, _ = await start(pool, files, f"{ask} {number}", **wanted)
            end = await end_of(pool, activation)
            assert end.exit.exit_code == (4 if network == "none" else 0), (network, end.exit)
            if network != "none":
                assert files.text("_condor_stdout") == "0 0\n", network
                assert told(pool, activation, "ChirpX") == number
