"""DOCKER_EXTRA_ARGUMENTS, from the words of a command line to the engine's request (DKR-09)."""

import contextlib
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.startd.exec.docker.extra_arguments import OPTIONS, BadArguments, read_arguments

HOST = "HostConfig"


@pytest.mark.parametrize(
    ("text", "body"),
    [
        ("", {}),
        ("--cpuset-cpus 0-1", {HOST: {"CpusetCpus": "0-1"}}),
        ("--cpus=1.5 --cpu-shares 7", {HOST: {"NanoCpus": 1_500_000_000, "CpuShares": 7}}),
        ("-m 2g --memory-swap -1", {HOST: {"Memory": 2**31, "MemorySwap": -1}}),
        ("--shm-size=64M --memory-reservation 100kb", {HOST: {"ShmSize": 64 * 2**20, "MemoryReservation": 102400}}),
        ("--cap-add A --cap-add B", {HOST: {"CapAdd": ["A", "B"]}}),
        ("--privileged --read-only=false --init", {HOST: {"Privileged": True, "ReadonlyRootfs": False, "Init": True}}),
        (
            "--dns 1.1.1.1 --dns-opt a --dns-search b",
            {HOST: {"Dns": ["1.1.1.1"], "DnsOptions": ["a"], "DnsSearch": ["b"]}},
        ),
        ("-e A=b=c -h box -u 5:6", {"Env": ["A=b=c"], "Hostname": "box", "User": "5:6"}),
        ("--label a=b -l c", {"Labels": {"a": "b", "c": ""}}),
        ("--sysctl net.x=1 --storage-opt size=9G", {HOST: {"Sysctls": {"net.x": "1"}, "StorageOpt": {"size": "9G"}}}),
        ("--tmpfs /run:size=1m --tmpfs /x", {HOST: {"Tmpfs": {"/run": "size=1m", "/x": ""}}}),
        (
            "--device /dev/fuse --device=/dev/a:/dev/b:r",
            {
                HOST: {
                    "Devices": [
                        {"PathOnHost": "/dev/fuse", "PathInContainer": "/dev/fuse", "CgroupPermissions": "rwm"},
                        {"PathOnHost": "/dev/a", "PathInContainer": "/dev/b", "CgroupPermissions": "r"},
                    ]
                }
            },
        ),
        ("--ulimit core=0", {HOST: {"Ulimits": [{"Name": "core", "Soft": 0, "Hard": 0}]}}),
        ("--device-write-bps /dev/sda:1mb", {HOST: {"BlkioDeviceWriteBps": [{"Path": "/dev/sda", "Rate": 2**20}]}}),
        ("--net vpn --add-host a:1.2.3.4", {HOST: {"NetworkMode": "vpn", "ExtraHosts": ["a:1.2.3.4"]}}),
        (
            "--mount type=bind,src=/a,dst=/b,readonly --mount type=tmpfs,target=/t,tmpfs-size=1m",
            {
                HOST: {
                    "Mounts": [
                        {"Type": "bind", "Source": "/a", "Target": "/b", "ReadOnly": True},
                        {"Type": "tmpfs", "Target": "/t", "TmpfsOptions": {"SizeBytes": 2**20}},
                    ]
                }
            },
        ),
        ("--gpus all", {HOST: {"DeviceRequests": [{"Driver": "", "Capabilities": [["gpu"]], "Count": -1}]}}),
        (
            '--gpus "device=0,2"',
            {HOST: {"DeviceRequests": [{"Driver": "", "Capabilities": [["gpu"]], "DeviceIDs": ["0", "2"]}]}},
        ),
        (
            "--log-driver local --log-opt max-size=9m",
            {HOST: {"LogConfig": {"Type": "local", "Config": {"max-size": "9m"}}}},
        ),
        ("--no-healthcheck", {"Healthcheck": {"Test": ["NONE"]}}),
        ("\"--label 'a=two words' --env ''X=1\"", {"Labels": {"a": "two words"}, "Env": ["X=1"]}),
    ],
)
def test_each_kind_of_argument(text, body):
    assert read_arguments(text).apply({}) == body


def test_single_values_replace_and_lists_grow():
    ours = {HOST: {"Memory": 1, "CapDrop": ["ALL"], "LogConfig": {"Type": "json-file", "Config": {"max-size": "-1"}}}}
    added = read_arguments("--memory 2k --cap-drop X --log-opt compress=true").apply(ours)
    assert added[HOST]["Memory"] == 2048
    assert added[HOST]["CapDrop"] == ["ALL", "X"]
    assert added[HOST]["LogConfig"]["Config"] == {"max-size": "-1", "compress": "true"}
    assert ours[HOST]["Memory"] == 1  # as it was
    assert ours[HOST]["CapDrop"] == ["ALL"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("--frob", "argument 1, --frob, is not known"),
        ("--cap-add A --mem 1g", "argument 3, --mem, is not known (is it --memory?)"),
        ("--name x", "argument 1, --name, can not be given: a container's name follows"),
        ("--init --rm", "argument 2, --rm, can not be given"),
        ("-it", "argument 1, -it, is not known"),
        ("debian", "argument 1, 'debian', is no option"),
        ("--memory", "argument 1, --memory, has no value"),
        ("--memory lots", "argument 1, --memory: 'lots' is no size"),
        ("--pids-limit 1.5", "no whole number"),
        ("--cpus many", "no number of cores"),
        ("--init=perhaps", "neither true nor false"),
        ("--env HOME", "NAME=value"),
        ("--device a:b:c:d", "host[:inside[:rwm]]"),
        ("--ulimit nofile", "name=soft[:hard]"),
        ("--volume /a", "host:inside[:options]"),
        ("--log-driver syslog", "json-file, local or journald"),
        ("--mount type=bind,src=/a", "not understood"),
        ("--mount type=bind,src=/a,dst=/b,frob=1", "frob"),
        ("--gpus frob=1", "frob"),
        ("--cap-add=", "argument 1, --cap-add: it needs a value"),
        ('"--label \'a"', "never closed"),
    ],
)
def test_what_can_not_be_is_refused_with_its_place(text, words):
    with pytest.raises(BadArguments) as caught:
        read_arguments(text)
    assert words in str(caught.value)


@given(
    st.text(max_size=60) | st.lists(st.sampled_from([*OPTIONS, "=", "1", "a=b", ":", "/x"]), max_size=6).map(" ".join)
)
@settings(max_examples=150)
def test_any_text_is_read_or_refused(text):
    with contextlib.suppress(BadArguments):
        assert isinstance(read_arguments(text).apply({}), dict)


def test_the_page_lists_every_argument():
    page = (Path(__file__).parents[3] / "docs/execution/containers.md").read_text()
    assert [name for name in OPTIONS if f"`{name}`" not in page] == []
