"""What ends, refusals and figures of containers mean, and which images go."""

import pytest

from services.startd.exec.docker import engine, usage
from services.startd.exec.docker.container_run import (
    ContainerEvents,
    ContainerState,
    finished_of,
    note_signal,
    seconds,
    state_of,
)
from services.startd.exec.docker.engine import EngineErrorKind, repository_and_tag
from services.startd.exec.docker.image_cache import CacheContents, full_name
from tests.spec import spec


def end(code, *, oom=False, **events):
    return finished_of(
        ContainerState(code, 10.0, 20.0, oom), ContainerEvents(**({"witnessed": True, "limit_mib": 64} | events))
    )


@pytest.mark.parametrize("code", [0, 1, 3, 126, 127, 137, 143, 255])
def test_a_witnessed_end_is_the_jobs_own(code):
    found = end(code)
    assert (found.exit_code, found.hold_code, found.trouble) == (code, 0, "")
    assert (found.started_at, found.at) == (10.0, 20.0)


@pytest.mark.parametrize(
    ("oom", "events", "held"),
    [
        (True, {}, True),
        (False, {"out_of_memory": True}, True),  # the engine's event came, its state lags behind
        (False, {}, False),
        (True, {"foreign": {9}}, False),
        (True, {"ours": {9}}, False),
    ],
)
def test_only_a_kill_by_the_kernel_is_too_much_memory(oom, events, held):
    assert bool(end(137, oom=oom, **events).hold_code) is held


@pytest.mark.parametrize("code", [0, 3])
def test_a_child_killed_for_memory_does_not_hold_a_job_that_went_on(code):
    found = end(code, oom=True)
    assert (found.exit_code, found.hold_code) == (code, 0)


def test_too_much_memory_tells_use_and_limit():
    found = end(137, oom=True, peak_kib=80 * 1024)
    assert (found.hold_code, found.hold_subcode) == (34, 102)
    assert found.hold_message == "the job used 80 MiB of memory, its limit is 64 MiB"
    assert end(137, oom=True).max_rss_kib == 64 * 1024


@pytest.mark.parametrize(
    ("code", "foreign", "ours", "lost"),
    [
        (137, {9}, set(), True),  # docker kill
        (143, {15}, set(), True),  # docker stop
        (137, {15, 9}, set(), True),  # docker stop, and its patience was over
        (0, {15}, set(), False),  # the job ended well when it was asked to
        (3, {9}, set(), False),
        (129, {1}, {1}, False),  # we sent it
        (138, {12}, set(), False),  # another signal than it ended by
    ],
)
def test_a_container_killed_from_outside_is_a_lost_run(code, foreign, ours, lost):
    found = end(code, foreign=foreign, ours=ours)
    assert bool(found.trouble) is lost
    assert (found.exit_code is None) is lost
    assert not found.hold_code


@pytest.mark.parametrize(
    ("code", "lost"), [(255, True), (137, True), (143, True), (0, False), (1, False), (139, False)]
)
def test_an_end_that_nobody_saw_may_be_the_engines(code, lost):
    assert bool(end(code, witnessed=False).trouble) is lost


def test_an_end_that_nobody_saw_after_our_own_signal_is_the_jobs():
    assert end(143, witnessed=False, ours={15}).exit_code == 143


def test_a_program_that_the_init_can_not_execute():
    found = end(127, init_said="[FATAL tini (7)] exec /x failed: No such file or directory")
    assert (found.hold_code, found.hold_subcode) == (6, 2)
    assert "/x failed" in found.hold_message
    assert end(3, init_said="anything").hold_code == 0


def test_no_room_for_the_output():
    found = end(137, ours={9}, bad_output="the job's output could not be written: full", no_room=True)
    assert (found.hold_code, found.hold_subcode, found.hold_message) == (
        34,
        104,
        "the job's output could not be written: full",
    )


def test_output_that_can_not_be_written():
    assert (end(137, ours={9}, bad_output="why").hold_code, end(137, ours={9}, bad_output="why").hold_message) == (
        7,
        "why",
    )


def test_signals_of_events():
    events = ContainerEvents(ours={15})
    for text in ("9", "15", "", "KILL"):
        note_signal(events, text)
    assert events.foreign == {9}


def test_the_engines_times():
    assert seconds("2026-01-02T03:04:05.123456789Z") == pytest.approx(1767323045.123456)
    assert seconds("2026-01-02T03:04:05Z") == 1767323045.0
    state = state_of(
        {
            "ExitCode": 3,
            "StartedAt": "0001-01-01T00:00:00Z",
            "FinishedAt": "2026-01-02T03:04:05Z",
            "OOMKilled": True,
        }
    )
    assert state == ContainerState(3, 0.0, 1767323045.0, True)


@pytest.mark.parametrize(
    ("of", "status", "text", "kind"),
    [
        (engine.kind_of_create_error, 404, "No such image: debian:none", EngineErrorKind.NO_IMAGE),
        (engine.kind_of_create_error, 400, "invalid reference format", EngineErrorKind.NO_IMAGE),
        (
            engine.kind_of_create_error,
            409,
            'Conflict. The container name "/x" is already in use',
            EngineErrorKind.EXISTS,
        ),
        (
            engine.kind_of_create_error,
            500,
            "mkdir /var/lib/docker/x: no space left on device",
            EngineErrorKind.DISK_FULL,
        ),
        (
            engine.kind_of_create_error,
            400,
            'invalid mount config for type "bind": bind source path does not exist: /x',
            EngineErrorKind.NO_VOLUME,
        ),
        (engine.kind_of_create_error, 500, "something else", EngineErrorKind.OTHER),
        (engine.kind_of_start_error, 404, "network vpn not found", EngineErrorKind.NO_NETWORK),
        (
            engine.kind_of_start_error,
            400,
            'OCI runtime create failed: exec: "/x": stat /x: no such file or directory: unknown',
            EngineErrorKind.NO_PROGRAM,
        ),
        (
            engine.kind_of_start_error,
            400,
            'exec: "frob": executable file not found in $PATH',
            EngineErrorKind.NO_PROGRAM,
        ),
        (
            engine.kind_of_start_error,
            500,
            "OCI runtime create failed: unable to apply cgroup configuration",
            EngineErrorKind.OTHER,
        ),
        (engine.kind_of_start_error, 500, "write /x: no space left on device", EngineErrorKind.DISK_FULL),
        (engine.kind_of_pull_error, 404, "manifest for x:y not found: manifest unknown", EngineErrorKind.NO_IMAGE),
        (
            engine.kind_of_pull_error,
            404,
            "pull access denied for x, repository does not exist",
            EngineErrorKind.NO_IMAGE,
        ),
        (
            engine.kind_of_pull_error,
            500,
            "Get https://x/v2/: dial tcp 1.2.3.4:443: connect: connection refused",
            EngineErrorKind.TRANSIENT,
        ),
        (
            engine.kind_of_pull_error,
            500,
            "received unexpected HTTP status: 503 Service Unavailable",
            EngineErrorKind.TRANSIENT,
        ),
        (
            engine.kind_of_pull_error,
            500,
            "toomanyrequests: You have reached your pull rate limit",
            EngineErrorKind.TRANSIENT,
        ),
        (engine.kind_of_pull_error, 0, "unexpected EOF", EngineErrorKind.TRANSIENT),
        (
            engine.kind_of_pull_error,
            0,
            "failed to register layer: write /x: no space left on device",
            EngineErrorKind.DISK_FULL,
        ),
        (engine.kind_of_pull_error, 0, "filesystem layer verification failed for digest", EngineErrorKind.NO_IMAGE),
    ],
)
def test_refusals_are_told_apart(of, status, text, kind):
    assert of(status, text) is kind


# ---------------------------------------------------------------- images


@pytest.mark.parametrize(
    ("image", "parts"),
    [
        ("debian", ("debian", "latest")),
        ("debian:12", ("debian", "12")),
        ("host:5000/a/b", ("host:5000/a/b", "latest")),
        ("host:5000/a/b:c", ("host:5000/a/b", "c")),
        ("a@sha256:00", ("a", "sha256:00")),
    ],
)
def test_names_of_images(image, parts):
    assert repository_and_tag(image) == parts
    assert repository_and_tag(full_name(image)) == parts


@spec("DKR-07")
def test_the_images_used_longest_ago_go():
    """The 8 most recently used stay, of those that we pulled."""
    cache = CacheContents({})
    for number in range(10):
        cache.pulled(f"image{number}", float(number))
    assert not cache.used("debian", 99.0)  # not ours: never removed
    cache.used("image0", 50.0)
    assert cache.surplus(()) == ["image1:latest", "image2:latest"]
    assert cache.surplus(["image1"]) == ["image2:latest", "image3:latest"]
    cache.gone("image2")
    assert cache.surplus(["image1"]) == ["image3:latest"]
    assert len(cache.surplus(["image1"], all_of_them=True)) == 8
    cache.size = 0
    assert len(cache.surplus(())) == 9


def test_the_list_of_images_outlives_the_startd():
    cache = CacheContents({})
    cache.pulled("a", 1.0)
    later = CacheContents({"a:latest": cache.record("a")})
    later.size = 0
    assert "a" in later
    assert later.surplus(()) == ["a:latest"]
    later.gone("a:latest")
    assert later.record("a") is None


# ---------------------------------------------------------------- usage


def write(folder, **files):
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(text)


NET = (
    "Inter-| Receive | Transmit\n face |bytes packets\n"
    "    lo: 9 1 0 0 0 0 0 0 9 1 0 0 0 0 0 0\n  eth0: 3000000 1 0 0 0 0 0 0 1500000 1 0 0 0 0 0 0\n"
)


def test_usage_from_groups_of_version_1(tmp_path):
    root, proc = tmp_path / "cgroup", tmp_path / "proc"
    write(
        root / "memory/docker/abc",
        cgroup__procs="77\n78\n",
        memory__usage_in_bytes="20971520\n",
        memory__max_usage_in_bytes="52428800\n",
        memory__stat="cache 1\ntotal_cache 12582912\ntotal_shmem 2097152\ntotal_inactive_file 10485760\n",
    )
    write(root / "cpuacct/docker/abc", cpuacct__stat="user 150\nsystem 50\n")
    write(root / "pids/docker/abc", pids__current="3\n")
    write(
        root / "blkio/docker/abc",
        blkio__throttle__io_service_bytes_recursive="8:0 Read 4096\n8:0 Write 8192\n8:16 Read 4096\nTotal 16384\n",
    )
    write(proc / "77/net", dev=NET)
    assert usage.main_pid("abc", root) == 77
    found = usage.from_files("abc", True, root, proc)
    assert (found.user_cpu_s, found.sys_cpu_s, found.procs) == (1.5, 0.5, 3)
    assert (found.image_size_kib, found.resident_set_kib, found.resident_peak_kib) == (20480, 10240, 40960)
    assert found.attributes == {
        "BlockReadKbytes": 8,
        "BlockWriteKbytes": 8,
        "NetworkInputMb": 3.0,
        "NetworkOutputMb": 1.5,
    }
    assert "NetworkInputMb" not in usage.from_files("abc", False, root, proc).attributes


@pytest.mark.parametrize("place", ["docker/abc", "system.slice/docker-abc.scope"])
def test_usage_from_groups_of_version_2(tmp_path, place):
    write(
        tmp_path / place,
        cgroup__procs="5\n",
        memory__current="20971520\n",
        memory__stat="inactive_file 10485760\nfile 12582912\nshmem 2097152\n",
        cpu__stat="usage_usec 9\nuser_usec 1500000\nsystem_usec 500000\n",
        pids__current="3\n",
        io__stat="8:0 rbytes=8192 wbytes=1024 rios=1 wios=1\n",
    )
    found = usage.from_files("abc", False, tmp_path)
    assert (found.user_cpu_s, found.sys_cpu_s, found.procs, found.resident_set_kib) == (1.5, 0.5, 3, 10240)
    assert found.resident_peak_kib == 0  # before Linux 5.19
    assert found.attributes == {"BlockReadKbytes": 8, "BlockWriteKbytes": 1}
    write(tmp_path / place, memory__peak="52428800\n")
    assert usage.from_files("abc", False, tmp_path).resident_peak_kib == 40960


def test_groups_that_are_not_there_or_end_meanwhile(tmp_path):
    assert usage.from_files("abc", True, tmp_path) is None
    assert usage.main_pid("abc", tmp_path) == 0
    write(tmp_path / "memory/docker/abc", cgroup__procs="", memory__usage_in_bytes="1")
    assert usage.from_files("abc", True, tmp_path) is None


def test_usage_from_the_engines_statistics():
    found = usage.from_statistics(
        {
            "cpu_stats": {"cpu_usage": {"usage_in_usermode": 1_500_000_000, "usage_in_kernelmode": 500_000_000}},
            "memory_stats": {"usage": 20971520, "stats": {"inactive_file": 10485760}},
            "pids_stats": {"current": 3},
            "blkio_stats": {
                "io_service_bytes_recursive": [{"op": "Read", "value": 8192}, {"op": "write", "value": 1024}]
            },
            "networks": {"eth0": {"rx_bytes": 3_000_000, "tx_bytes": 1_500_000}},
        }
    )
    assert (found.user_cpu_s, found.sys_cpu_s, found.procs, found.resident_set_kib) == (1.5, 0.5, 3, 10240)
    assert found.attributes == {
        "BlockReadKbytes": 8,
        "BlockWriteKbytes": 1,
        "NetworkInputMb": 3.0,
        "NetworkOutputMb": 1.5,
    }
    assert usage.from_statistics({"blkio_stats": {"io_service_bytes_recursive": None}}).attributes == {}
