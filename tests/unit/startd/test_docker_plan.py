"""What the administrator lets containers have, and the body of the request that follows from it (DKR-03 to DKR-11)."""

from pathlib import Path

import pytest

from services.startd.core.run.job_launch import Launch
from services.startd.exec.docker.engines import EngineFacts
from services.startd.exec.docker.plan import (
    BadDockerSetting,
    BadRequest,
    Limits,
    docker_attributes,
    host_ports,
    make_plan,
    read_docker_settings,
    volumes_for,
)
from shared.classad import ClassAd, parse_expr
from shared.config import load_config
from shared.config.knobs import StartdSettings
from tests.spec import spec

MACHINE = ClassAd({"Memory": 2048, "Cpus": 2, "Name": "slot1@node1"})


def rules(**macros):
    env = {f"_CONDOR_{name}": text for name, text in macros.items()}
    return read_docker_settings(StartdSettings.from_config(load_config([], subsystem="STARTD", env=env)))


def launch(job=None, machine=MACHINE, **changes):
    values = {
        "run": "node1/1.0/1/abc",
        "executable": "/execute/dir_1/condor_exec.exe",
        "argv": ("/execute/dir_1/condor_exec.exe", "a b"),
        "env": {"_CONDOR_SCRATCH_DIR": "/execute/dir_1", "X": "/execute/dir_10"},
        "cwd": "/execute/dir_1",
        "stdin": "",
        "stdout": "/execute/dir_1/_condor_stdout",
        "stderr": "/execute/dir_1/_condor_stderr",
        "scratch": Path("/execute/dir_1"),
        "cpus": 2.0,
        "memory_mib": 128,
        "image": "debian",
        "job_ad": ClassAd(job or {}),
        "machine_ad": machine,
    }
    return Launch(**(values | changes))


def plan(rules_, job=None, facts=EngineFacts(), **changes):  # noqa: B008  it is frozen
    limits = Limits(files=4096, processes=9000, running=200)
    return make_plan(launch(job, **changes), rules_, "startd", "/outside/dir_1", "7:8", [], facts=facts, limits=limits)


def mounts(plan_):
    return [(one["Source"], one["Target"], one.get("ReadOnly", False)) for one in plan_.body["HostConfig"]["Mounts"]]


SAMPLE = {
    "DOCKER_VOLUMES": "SOME_DIR, ANOTHER_DIR, third, spare",
    "DOCKER_VOLUME_DIR_SOME_DIR": "/path1",
    "DOCKER_VOLUME_DIR_SOME_DIR_MOUNT_IF": 'WantSomeDirMounted && Owner == "smith"',
    "DOCKER_VOLUME_DIR_ANOTHER_DIR": "/path/to/no2 : /inside",
    "DOCKER_VOLUME_DIR_third": "/a:/b:ro",
    "DOCKER_VOLUME_DIR_spare": "/spare",
    "DOCKER_MOUNT_VOLUMES": "SOME_DIR, ANOTHER_DIR, THIRD",
}


@spec("DKR-04", "DKR-06", "DKR-03", "W-67")
@pytest.mark.parametrize(
    ("job", "some_dir"),
    [
        ({"Owner": "smith", "WantSomeDirMounted": True}, True),
        ({"Owner": "jones", "WantSomeDirMounted": True}, False),
        ({"Owner": "smith"}, False),
        ({"Owner": "smith", "WantSomeDirMounted": False}, False),
        ({"Owner": "smith", "WantSomeDirMounted": "yes"}, False),  # an error is not true
    ],
)
def test_volumes_are_mounted_where_their_condition_is_true(job, some_dir):
    """host[:inside[:ro]], of those in DOCKER_MOUNT_VOLUMES; MOUNT_IF must be TRUE."""
    found = mounts(plan(rules(**SAMPLE), job))
    expected = [("/outside/dir_1", "/execute/dir_1", False)]  # DKR-03
    expected += [("/path1", "/path1", False)] * some_dir
    expected += [("/path/to/no2", "/inside", False), ("/a", "/b", True)]
    assert found == expected


@spec("DKR-06")
def test_a_condition_sees_slot_and_job():
    """MY is the slot, TARGET the job."""
    some = rules(
        DOCKER_VOLUMES="a",
        DOCKER_VOLUME_DIR_a="/a",
        DOCKER_MOUNT_VOLUMES="a",
        DOCKER_VOLUME_DIR_a_MOUNT_IF="MY.Cpus == 2 && TARGET.Cpus == 7 && Memory == 2048",
    )
    assert [volume.name for volume in volumes_for(some, MACHINE, ClassAd({"Cpus": 7}))] == ["a"]
    assert not volumes_for(some, MACHINE, ClassAd({"Cpus": 6}))


@spec("DKR-05", "DKR-10")
def test_volumes_and_networks_are_advertised():
    """DKR-05: HasDockerVolume<NAME>; DKR-10: the networks of DOCKER_NETWORKS, but for those that turned out missing."""
    some = rules(**SAMPLE, DOCKER_NETWORKS="some_virtual_network, another_network")
    assert docker_attributes(some, {"some_virtual_network"}) == {
        "HasDockerVolumeSOME_DIR": True,
        "HasDockerVolumeANOTHER_DIR": True,
        "HasDockerVolumethird": True,
        "HasDockerVolumespare": True,
        "DockerNetworks": "another_network",
    }
    assert docker_attributes(some)["DockerNetworks"] == "some_virtual_network, another_network"
    assert docker_attributes(rules()) == {}


@pytest.mark.parametrize(
    ("macros", "words"),
    [
        ({"DOCKER_VOLUMES": "a"}, "DOCKER_VOLUME_DIR_a is not defined"),
        ({"DOCKER_VOLUMES": "a-b", "DOCKER_VOLUME_DIR_a-b": "/a"}, "a-b"),
        ({"DOCKER_VOLUMES": "a", "DOCKER_VOLUME_DIR_a": "a"}, "no absolute path"),
        ({"DOCKER_VOLUMES": "a", "DOCKER_VOLUME_DIR_a": "/a:/"}, "no absolute path"),
        ({"DOCKER_VOLUMES": "a", "DOCKER_VOLUME_DIR_a": "/a:/b/../c"}, "no absolute path"),
        ({"DOCKER_VOLUMES": "a", "DOCKER_VOLUME_DIR_a": "/a:/b:rx"}, "host[:inside[:ro]]"),
        ({"DOCKER_VOLUMES": "a", "DOCKER_VOLUME_DIR_a": "/a:/b:ro:x"}, "host[:inside[:ro]]"),
        ({"DOCKER_MOUNT_VOLUMES": "b"}, "DOCKER_MOUNT_VOLUMES lists b"),
        ({"DOCKER_NETWORKS": "container:x"}, "container:x"),
        ({"DOCKER_EXTRA_ARGUMENTS": "--frobnicate"}, "DOCKER_EXTRA_ARGUMENTS = --frobnicate: argument 1"),
    ],
)
def test_bad_rules_name_the_knob_and_the_mend(macros, words):
    with pytest.raises(BadDockerSetting) as caught:
        rules(**macros)
    assert words in str(caught.value)


@spec("DKR-08")
@pytest.mark.parametrize(
    ("expression", "job", "dropped"),
    [
        ("true", {}, True),
        ("false", {}, False),
        ("0", {}, False),
        ('TARGET.Owner != "root"', {"Owner": "root"}, False),
        ('TARGET.Owner != "root"', {"Owner": "smith"}, True),
        ("TARGET.NoSuchThing", {}, True),
        ('"false"', {}, True),
        ("MY.Cpus > 2", {"Cpus": 9}, False),
    ],
)
def test_capabilities_are_dropped_unless_the_expression_is_false(expression, job, dropped):
    """All capabilities and new privileges, with MY the slot and TARGET the job."""
    host = plan(rules(DOCKER_DROP_ALL_CAPABILITIES=expression), job).body["HostConfig"]
    assert host.get("CapDrop") == (["ALL"] if dropped else None)
    assert host.get("SecurityOpt") == (["no-new-privileges"] if dropped else None)


@pytest.mark.parametrize(("knobs", "init"), [({}, True), ({"DOCKER_RUN_UNDER_INIT": "false"}, False)])
def test_an_init_is_the_first_process_unless_DOCKER_RUN_UNDER_INIT_is_false(knobs, init):
    assert plan(rules(**knobs)).body["HostConfig"]["Init"] is init


HALF = "Memory * 1024 * 1024 / 2"
OWN = (
    "ifThenElse(DevShmSize isnt Undefined && isInteger(DevShmSize) && int(DevShmSize) <= (Memory * 1024 * 1024),"
    " int(DevShmSize), 2 * 1024 * 1024 * 1024)"
)


@spec("DKR-11", "W-68")
@pytest.mark.parametrize(
    ("expression", "job", "size"),
    [
        (None, {}, None),
        (HALF, {}, 1073741824),
        (OWN, {"DevShmSize": 500000000}, 500000000),
        (OWN, {"DevShmSize": 2048 * 2**20 + 1}, 2147483648),
        (OWN, {}, 2147483648),
        ("DevShmSize", {}, None),
    ],
)
def test_shared_memory(expression, job, size):
    """Bytes from slot and job; unset: the engine's own."""
    macros = {"DOCKER_SHM_SIZE": expression} if expression else {}
    assert plan(rules(**macros), job).body["HostConfig"].get("ShmSize") == size


@pytest.mark.parametrize("value", ['"much"', "-1", "true", "1/0", "1.0e30"])
def test_shared_memory_that_is_no_size_is_told(value):
    with pytest.raises(BadRequest, match="DOCKER_SHM_SIZE"):
        plan(rules(DOCKER_SHM_SIZE="Wanted"), {"Wanted": parse_expr(value)})


@spec("DKR-10")
@pytest.mark.parametrize(
    ("wanted", "mode"),
    [("", None), ("nat", None), ("host", "host"), ("None", "none"), ("vpn", "vpn")],
)
def test_networks(wanted, mode):
    assert plan(rules(DOCKER_NETWORKS="vpn"), network=wanted).body["HostConfig"].get("NetworkMode") == mode


@spec("DKR-10")
@pytest.mark.parametrize("wanted", ["other", "container:somebody", "bridge"])
def test_a_network_that_is_not_offered_is_refused(wanted):
    """Not even one that the engine would know."""
    with pytest.raises(BadRequest, match="host, none, nat, vpn"):
        plan(rules(DOCKER_NETWORKS="vpn"), network=wanted)


def test_limits():
    host = plan(rules()).body["HostConfig"]
    assert (host["Memory"], host["NanoCpus"], host["CpuShares"]) == (128 * 2**20, 2_000_000_000, 200)
    assert host["PidsLimit"] == 16384
    assert "CpusetCpus" not in host
    bound = plan(rules(), cores=(0, 3))
    assert bound.body["HostConfig"]["CpusetCpus"] == "0,3"
    assert "CpusetCpus" not in plan(rules(), facts=EngineFacts(binds=False), cores=(0, 3)).body["HostConfig"]
    assert plan(rules(DISABLE_SWAP_FOR_JOB="true")).body["HostConfig"]["MemorySwap"] == 128 * 2**20
    assert "MemorySwap" not in plan(rules(DISABLE_SWAP_FOR_JOB="false")).body["HostConfig"]
    assert "PidsLimit" not in plan(rules(ROOST_JOB_MAX_PROCESSES="0")).body["HostConfig"]


def test_program_arguments_and_entrypoint():
    job = "/execute/dir_1/condor_exec.exe"
    plain = plan(rules()).body
    assert (plain["Cmd"], "Entrypoint" in plain) == ([job, "a b"], False)
    own = plan(rules(), {"DockerOverrideEntrypoint": True}).body
    assert (own["Entrypoint"], own["Cmd"]) == ([job], ["a b"])
    image = plan(rules(), executable="", argv=("x",)).body
    assert (image["Cmd"], "Entrypoint" in image) == (["x"], False)
    assert "Cmd" not in plan(rules(), executable="", argv=()).body


def test_the_scratch_directory_may_have_another_name_inside():
    body = plan(rules(), {"ContainerTargetDir": "/srv/"}).body
    assert body["HostConfig"]["Mounts"][0] == {"Type": "bind", "Source": "/outside/dir_1", "Target": "/srv"}
    assert (body["WorkingDir"], body["Cmd"][0]) == ("/srv", "/srv/condor_exec.exe")
    assert body["Env"] == ["_CONDOR_SCRATCH_DIR=/srv", "X=/execute/dir_10"]  # another directory's name is left alone


@pytest.mark.parametrize(
    "job",
    [
        {"ContainerTargetDir": "srv"},
        {"ContainerTargetDir": "/"},
        {"ContainerTargetDir": "/a/../../b"},
        {"DockerPullPolicy": "sometimes"},
        {"ContainerServiceNames": "web"},
        {"ContainerServiceNames": "web", "web_ContainerPort": 0},
        {"ContainerServiceNames": "web", "web_ContainerPort": True},
    ],
)
def test_what_a_job_can_not_have(job):
    with pytest.raises(BadRequest):
        plan(rules(), job)


def test_services_get_ports_of_the_host():
    made = plan(rules(), {"ContainerServiceNames": "web, ssh", "web_ContainerPort": 80, "ssh_ContainerPort": 22})
    assert made.body["ExposedPorts"] == {"80/tcp": {}, "22/tcp": {}}
    assert made.body["HostConfig"]["PortBindings"]["22/tcp"] == [{"HostIp": "", "HostPort": ""}]
    told = {"80/tcp": [{"HostIp": "0.0.0.0", "HostPort": "49153"}], "22/tcp": None}
    assert host_ports(made, told) == {"web_HostPort": 49153}
    with pytest.raises(BadRequest, match="services"):
        plan(rules(), {"ContainerServiceNames": "web", "web_ContainerPort": 80}, network="host")


@pytest.mark.parametrize(
    ("env", "devices"),
    [
        ({}, None),
        ({"NVIDIA_VISIBLE_DEVICES": "GPU-c4a646d7, GPU-6a96bd13"}, ["GPU-c4a646d7", "GPU-6a96bd13"]),
        ({"_CONDOR_AssignedGPUs": "CUDA0,CUDA1"}, ["0", "1"]),
        ({"_CONDOR_AssignedGPUs": "10000", "NVIDIA_VISIBLE_DEVICES": "none"}, None),
    ],
)
def test_the_slots_gpus_go_into_the_container(env, devices):
    host = plan(rules(), env=env).body["HostConfig"]
    expected = None if devices is None else [{"Driver": "", "DeviceIDs": devices, "Capabilities": [["gpu"]]}]
    assert host.get("DeviceRequests") == expected


@spec("DKR-09")
def test_further_arguments_come_after_our_own():
    text = "--cap-add SYS_PTRACE --memory=1g --label site=north -v /data:/data:ro --ulimit nofile=10:20"
    body = plan(rules(DOCKER_EXTRA_ARGUMENTS=text)).body
    host = body["HostConfig"]
    assert (host["CapDrop"], host["CapAdd"], host["Memory"]) == (["ALL"], ["SYS_PTRACE"], 2**30)
    assert body["Labels"]["site"] == "north"
    assert body["Labels"]["roost.run"] == "node1/1.0/1/abc"
    assert host["Binds"] == ["/data:/data:ro"]
    assert host["Ulimits"] == [{"Name": "nofile", "Soft": 10, "Hard": 20}]


def test_the_jobs_labels_are_ours():
    body = plan(rules(), labels={"roost.run": "another's", "roost.job": "1.0"}).body
    assert body["Labels"] == {"roost.run": "node1/1.0/1/abc", "roost.startd": "startd", "roost.job": "1.0"}
