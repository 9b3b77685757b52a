"""Which engine a startd takes, what it makes of it, and as whom jobs run there (DKR-12, DKR-13)."""

import os
import resource
import subprocess
from dataclasses import replace

import pytest

from services.startd.core.run.job_launch import Account
from services.startd.exec.docker.container_run import ContainerEvents, ContainerState, finished_of, what_init_said
from services.startd.exec.docker.engine import (
    EVENTS,
    Engine,
    EngineAway,
    EngineErrorKind,
    kind_of_create_error,
    kind_of_start_error,
)
from services.startd.exec.docker.engines import (
    EngineFacts,
    addresses,
    container_user,
    engine_attributes,
    read_facts,
    read_podman_facts,
    unusable,
)
from services.startd.exec.docker.granted import put_limits
from services.startd.exec.docker.plan import BadDockerSetting
from services.startd.exec.docker.usage import group_of
from services.startd.isolation import host_capabilities
from tests.spec import spec
from tests.unit.startd.test_docker_plan import plan, rules

DOCKER, PODMAN = "unix:///var/run/docker.sock", "unix:///run/podman/podman.sock"
OURS = EngineFacts("Podman", "podman version 4.3.1", rootless=True, lacks=("memory", "cpus", "processes"))


@spec("DKR-12")
def test_what_is_named_is_the_only_one():
    assert addresses("tcp://a:1", {"DOCKER_HOST": "unix:///b"}, 0, "unix:///c") == ("tcp://a:1",)
    assert addresses("", {"DOCKER_HOST": "unix:///b"}, 7, "unix:///c") == ("unix:///b",)


@spec("DKR-12")
def test_engines_are_looked_for_at_their_sockets():
    """Root's Docker first, as ever; then the account's own, Podman's last. What an earlier life used comes before."""
    own = ("unix:///run/user/7/docker.sock", "unix:///run/user/7/podman/podman.sock")
    assert addresses("", {}, 7) == (DOCKER, *own, PODMAN)
    assert addresses("", {}, 7, own[1]) == (own[1], DOCKER, own[0], PODMAN)
    assert addresses("", {"XDG_RUNTIME_DIR": "/r"}, 7)[1:3] == ("unix:///r/docker.sock", "unix:///r/podman/podman.sock")
    assert addresses("", {"XDG_RUNTIME_DIR": "/run/user/0"}, 0) == (DOCKER, PODMAN)


async def test_where_there_is_none_every_place_is_told(tmp_path):
    engine = Engine(lambda: (f"unix://{tmp_path}/a", f"unix://{tmp_path}/b"), lambda event: None, lambda news: None)
    with pytest.raises(EngineAway) as refused:
        await engine.ask(lambda api: api)
    assert f"{tmp_path}/a, {tmp_path}/b" in str(refused.value)
    await engine.close()


@pytest.mark.parametrize("host", ["/run/podman/podman.sock", "http://x", "unix://run/x.sock", "ssh://me@there"])
def test_an_address_is_a_socket_or_a_port(host):
    with pytest.raises(BadDockerSetting, match="ROOST_DOCKER_HOST"):
        rules(ROOST_DOCKER_HOST=host)


def test_the_named_socket_counts_as_a_way_out_of_the_walls(tmp_path):
    """As that of DOCKER_HOST does: who may connect there gets processes that nothing keeps in."""
    import socket

    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "engine.sock"))
        assert str(tmp_path / "engine.sock") in host_capabilities.find_sockets(f"unix://{tmp_path}/engine.sock")
        assert str(tmp_path / "engine.sock") not in host_capabilities.find_sockets("")


#: What real engines said of themselves, less what is not read.
DOCKERS = {"Components": [{"Name": "Engine"}], "Version": "20.10.24+dfsg1", "GitCommit": "5d6db84"}
NOTHING = ("memory", "cpus", "processes")
OF_ACCOUNT = {"SecurityOptions": ["name=seccomp,profile=default", "name=rootless"]}
ALL = {"MemoryLimit": True, "CpuCfsQuota": True, "PidsLimit": True}
NONE = dict.fromkeys(ALL, False)


@spec("DKR-12")
@pytest.mark.parametrize(
    ("info", "rootless", "lacks"),
    [
        (ALL | {"SecurityOptions": ["name=seccomp,profile=default"]}, False, ()),
        (NONE | OF_ACCOUNT, True, NOTHING),
        (ALL | {"CpuCfsQuota": False} | OF_ACCOUNT, True, ("cpus",)),
    ],
)
def test_what_docker_says_of_itself(info, rootless, lacks):
    assert read_facts(DOCKERS, info) == EngineFacts(
        "Docker", "Docker version 20.10.24+dfsg1, build 5d6db84", rootless, lacks
    )


@spec("DKR-12")
@pytest.mark.parametrize(
    ("rootless", "controllers", "lacks"),
    [
        (False, [], ()),
        (True, [], NOTHING),
        (True, None, NOTHING),
        (True, ["memory", "pids"], ("cpus",)),
        (True, ["cpu", "memory", "pids"], ()),
    ],
)
def test_what_podman_says_of_itself(rootless, controllers, lacks):
    """What it says elsewhere of limits is what the machine has, not its account."""
    info = {"host": {"security": {"rootless": rootless}, "cgroupControllers": controllers}}
    facts = read_podman_facts(info | {"version": {"Version": "4.3.1"}})
    binds = not rootless or "cpuset" in (controllers or ())
    assert facts == EngineFacts("Podman", "podman version 4.3.1", rootless, lacks, binds)


@spec("DKR-12")
def test_the_ad_says_what_the_engine_can_not_limit():
    assert engine_attributes(OURS) == {
        "DockerVersion": "podman version 4.3.1",
        "DockerEngine": "Podman",
        "DockerRootless": True,
        "DockerLacksLimits": "memory, cpus, processes",
    }
    assert "DockerLacksLimits" not in engine_attributes(EngineFacts())


@spec("DKR-13")
def test_who_runs_in_a_container():
    account = Account("slot1", 1001, 1002, (1003,), "/")
    ordinary = EngineFacts()
    assert container_user(OURS, 7, 8, 7, "", None) == ("0:0", [])
    assert container_user(ordinary, 7, 8, 0, "", None) == ("7:8", [])
    assert container_user(ordinary, 0, 0, 0, "", None) == ("65534:65534", [])
    assert container_user(ordinary, 0, 0, 0, "", account) == ("1001:1002", ["1003"])
    assert container_user(ordinary, 0, 0, 0, "5:6", account) == ("5:6", [])
    # A startd in a container of a rootless engine: the other containers have the same ids.
    assert container_user(OURS, 0, 0, 0, "", None) == ("65534:65534", [])
    assert container_user(OURS, 7, 8, 0, "", None) == ("7:8", [])


@spec("DKR-13")
@pytest.mark.parametrize(
    ("facts", "uid", "owner", "named", "words"),
    [
        (OURS, 7, 7, "", ""),
        (OURS, 7, 7, "0:0", ""),
        (OURS, 7, 7, "1000:1000", "ROOST_DOCKER_USER"),
        (OURS, 7, 8, "", "uid 8"),
        (OURS, 0, 8, "", "uid 8"),
        (OURS, 0, 0, "", ""),
        (OURS, 7, None, "", "Unix socket"),
        (EngineFacts(), 7, None, "1000:1000", ""),
        (EngineFacts(), 0, 8, "", ""),
    ],
)
def test_a_rootless_engine_of_another_account_is_not_used(facts, uid, owner, named, words):
    why = unusable(facts, "unix:///x", uid, owner, named, 0)
    assert words in why
    assert bool(why) is bool(words)


@spec("DKR-13")
def test_where_nothing_limits_the_number_of_processes_no_job_runs():
    """The startd does it for its own account's Podman, if it sees the processes."""
    docker, all_groups = replace(OURS, name="Docker"), replace(OURS, lacks=())
    assert "ROOST_JOB_MAX_PROCESSES" in unusable(OURS, "unix:///x", 7, 0, "", 4096)
    for facts, owner, most in ((OURS, 7, 4096), (OURS, 0, 0), (docker, 0, 4096), (all_groups, 0, 4096)):
        assert not unusable(facts, "unix:///x", 7, owner, "", most)


def test_limits_are_put_on_a_process():
    with subprocess.Popen(["sleep", "1000"]) as process:
        most = resource.prlimit(process.pid, resource.RLIMIT_NPROC)[1]
        put_limits(process.pid, {"core": 0, "nproc": 50})
        assert resource.prlimit(process.pid, resource.RLIMIT_NPROC) == (50, 50)
        assert resource.prlimit(process.pid, resource.RLIMIT_CORE) == (0, 0)
        put_limits(process.pid, {"nproc": 60})
        assert resource.prlimit(process.pid, resource.RLIMIT_NPROC) == (50, 50) != (most, most)
        process.kill()
    with pytest.raises(OSError, match="No such process"):
        put_limits(process.pid, {"nproc": 60})


def test_limits_that_the_engine_does_not_have_are_not_asked_for():
    """The number of processes is then the account's: no more than the machine has and so many more."""
    settings = rules(DISABLE_SWAP_FOR_JOB="true", ROOST_JOB_MAX_PROCESSES="50")
    found = plan(settings, facts=OURS)
    assert (
        not {"Memory", "MemorySwap", "NanoCpus", "CpuShares", "PidsLimit", "Ulimits"} & found.body["HostConfig"].keys()
    )
    assert found.rlimits == {"nproc": 250}
    found = plan(settings, facts=replace(OURS, name="Docker"))
    assert found.body["HostConfig"]["Ulimits"] == [{"Name": "nproc", "Soft": 250, "Hard": 250}]
    assert not found.rlimits
    found = plan(rules(ROOST_JOB_MAX_PROCESSES="0"), facts=OURS)
    assert not found.rlimits
    assert "Ulimits" not in found.body["HostConfig"]
    host = plan(rules(ROOST_JOB_MAX_PROCESSES="50"), facts=EngineFacts("Podman")).body["HostConfig"]
    assert (host["PidsLimit"], host["Memory"]) == (50, 128 * 2**20)


def test_podman_is_told_all_limits_where_it_is_told_any():
    """It would give the container more files and processes than some roots may."""
    host = plan(rules(), facts=EngineFacts("Podman"), limits={"RLIMIT_CORE": 0}).body["HostConfig"]
    assert {one["Name"]: one["Hard"] for one in host["Ulimits"]} == {"core": 0, "nofile": 4096, "nproc": 9000}
    host = plan(rules(), limits={"RLIMIT_CORE": 0}).body["HostConfig"]
    assert {one["Name"]: one["Hard"] for one in host["Ulimits"]} == {"core": 0}


@pytest.mark.parametrize(
    ("of", "status", "text", "kind"),
    [
        (
            kind_of_create_error,
            500,
            'container create: creating container storage: the container name "x" is already in use by 1. You have to',
            EngineErrorKind.EXISTS,
        ),
        (
            kind_of_create_error,
            500,
            "container create: unable to find network with name or ID x: network not found",
            EngineErrorKind.NO_NETWORK,
        ),
        (kind_of_create_error, 404, "no such image: x/y:1: image not known", EngineErrorKind.NO_IMAGE),
        (
            kind_of_create_error,
            500,
            "normalizing image: normalizing name for compat API: invalid reference format",
            EngineErrorKind.NO_IMAGE,
        ),
        (
            kind_of_create_error,
            500,
            "make cli opts(): making volume mountpoint for volume /x: mkdir /x: permission denied",
            EngineErrorKind.NO_VOLUME,
        ),
        (kind_of_start_error, 500, "failed to mount runtime directory for rootless netns", EngineErrorKind.OTHER),
    ],
)
def test_podmans_words_are_understood(of, status, text, kind):
    assert of(status, text) is kind


@pytest.mark.parametrize(
    ("code", "said", "told"),
    [
        (127, "[FATAL tini (7)] exec /x failed: No such file or directory", True),
        (1, "ERROR (catatonit:6): failed to exec pid1: No such file or directory", True),
        (1, "ERROR (catatonit:6): something else", False),
        (1, "[FATAL tini (7)] exec /x failed", False),
        (1, "it went wrong", False),
        (126, "ERROR (catatonit:6): failed to exec pid1: Permission denied", False),
    ],
)
def test_what_either_init_says_of_a_program_that_is_not_there(code, said, told):
    assert what_init_said(code, f"{said}\n") == (said if told else "")
    assert what_init_said(code, f"the job's own\n{said}\n") == ""
    assert what_init_said(code, f"{said}\nthe job's own\n") == ""


@pytest.mark.parametrize(
    ("code", "unnamed", "sent", "ours", "lost"),
    [
        (137, 1, 0, set(), True),  # somebody's, and none of ours
        (137, 1, 1, {9}, False),
        (137, 2, 1, {15}, True),  # ours was another one, and there was one more
        (137, 1, 1, {15}, False),  # by itself, after ours
        (137, 0, 0, set(), False),
        (1, 1, 0, set(), False),  # it outlived somebody's signal, and failed
    ],
)
def test_signals_that_podman_does_not_name_are_counted(code, unnamed, sent, ours, lost):
    events = ContainerEvents(ours=ours, sent=sent, unnamed=unnamed, witnessed=True)
    assert bool(finished_of(ContainerState(code, 10.0, 20.0), events).trouble) is lost


def test_podmans_own_names_of_events_are_asked_for():
    assert {"died", "remove", "die", "destroy"} <= set(EVENTS["event"])


@pytest.mark.parametrize(
    "place",
    [
        "memory/libpod_parent/libpod-abc",
        "machine.slice/libpod-abc.scope/container",
        f"user.slice/user-{os.geteuid()}.slice/user@{os.geteuid()}.service/user.slice/libpod-abc.scope",
    ],
)
def test_groups_of_podmans_containers_are_found(tmp_path, place):
    (tmp_path / place).mkdir(parents=True)
    (tmp_path / place / "cgroup.procs").write_text("1\n")
    assert group_of("abc", tmp_path) == tmp_path / place
