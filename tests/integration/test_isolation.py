"""Walls of process jobs on the real machine: accounts, cgroups, namespaces (rows ISO). Needs root."""

import asyncio
import errno
import os
import pwd
import re
import signal
import stat
from pathlib import Path

import psutil
import pytest

from services.startd.isolation import manager
from tests.integration.isolated_pool import NOBODY, IsolatedPool, alive, has_cgroups, open_directory
from tests.nannies import KINDS, use_nannies
from tests.spec import spec
from tests.startd_pool import Machine
from tests.waiting import eventually

pytestmark = pytest.mark.mounts
#: A script's last words, so that a test can wait for what it began.
READY = "touch ready; exec sleep 1000"


@pytest.fixture(autouse=True, params=KINDS)
def nannies(request, monkeypatch):
    return use_nannies(request.param, monkeypatch)


@pytest.fixture
def place():
    with open_directory() as path:
        yield path


@pytest.fixture
async def pool(place):
    async with IsolatedPool(place) as pool:
        yield pool


def login(number: int):
    """An ordinary account of this machine. Tests that run at the same time need different ones: some kill by it."""
    return sorted((entry for entry in pwd.getpwall() if 1 < entry.pw_uid < 1000), key=lambda e: e.pw_uid)[number]


def memory_cgroup(pool, job_id) -> Path:
    """Where the memory of a job is limited, of whichever version of cgroups."""
    described = described_cgroup(pool, job_id)
    return Path(described.get("memory") or described["unified"])


def described_cgroup(pool, job_id):
    manager = pool.startd.shared.isolation
    return manager.cgroups.describe(manager.runs[pool.run_of(job_id).record.name].group)


def cgroups_of(prefix: str) -> list[Path]:
    return list(Path("/sys/fs/cgroup").glob(f"*/htcondor/{prefix}*"))


def limit_of(folder: Path) -> int:
    for name in ("memory.limit_in_bytes", "memory.max"):
        if (folder / name).exists():
            return int((folder / name).read_text())
    pytest.fail(f"no limit in {folder}")


def soft_limit_of(folder: Path) -> int:
    name = "memory.soft_limit_in_bytes" if (folder / "memory.soft_limit_in_bytes").exists() else "memory.low"
    return int((folder / name).read_text())


async def ready(pool, job_id) -> Path:
    await pool.running(job_id)
    scratch = pool.scratch_of(job_id)
    await eventually((scratch / "ready").exists)
    return scratch


def pids_in(folder: Path) -> list[int]:
    return [int(word) for word in (folder / "cgroup.procs").read_text().split()]


async def test_a_job_of_a_root_startd_is_nobody_and_works_in_its_own_directory(pool):
    report, out = await pool.run("id -u; id -G; pwd; umask; touch made && echo yes; head -c 3 script.sh")
    assert report.exit.reason == "exited", report.exit
    uid, groups, cwd, mask, made, own = out.splitlines()[:6]
    assert int(uid) == NOBODY
    assert "0" not in groups.split()
    assert cwd.startswith(str(pool.execute))
    assert (mask, made, own) == ("0022", "yes", "id ")


@spec("ISO-02")
async def test_a_slot_has_its_own_user(place):
    account = login(0)
    knobs = {"SLOT1_1_USER": account.pw_name, "DEDICATED_EXECUTE_ACCOUNT_REGEXP": re.escape(account.pw_name)}
    async with IsolatedPool(place, **knobs) as pool:
        job_id, _ = await pool.begin(f"id -u > who; {READY}")
        scratch = await ready(pool, job_id)
        assert int((scratch / "who").read_text()) == account.pw_uid
        second, out = await pool.run("id -u")
        assert second.exit.reason == "exited"
        assert int(out) == NOBODY  # slot1_2 has none


async def test_root_by_another_name_and_unknown_users_are_refused_with_the_knob(place):
    for name in ("root", "no-such-account"):
        async with IsolatedPool(place / name, SLOT1_USER=name) as pool:
            report, _ = await pool.run("true")
            assert report.exit.reason == "failed"
            assert "SLOT1_USER" in report.exit.message


async def test_a_job_runs_as_its_owner_where_the_domain_is_this_ones(place):
    account = login(1)
    who = {"User": f"{account.pw_name}@here", "Owner": account.pw_name}
    async with IsolatedPool(place, UID_DOMAIN="here") as pool:
        assert int((await pool.run("id -u", **who))[1]) == account.pw_uid
        assert int((await pool.run("id -u", **(who | {"User": f"{account.pw_name}@there"})))[1]) == NOBODY
        assert int((await pool.run("id -u", User="root@here", Owner="root"))[1]) == NOBODY
    async with IsolatedPool(place / "second", UID_DOMAIN="here", STARTER_ALLOW_RUNAS_OWNER="false") as pool:
        assert int((await pool.run("id -u", **who))[1]) == NOBODY


@spec("ISO-01")
async def test_killing_pid_1_of_a_jobs_namespace_kills_all_of_it(place):
    async with IsolatedPool(place, USE_PID_NAMESPACES="true") as pool:
        job_id, _ = await pool.begin(f"echo $$ > pid; setsid sleep 1000 & {READY}")
        scratch = await ready(pool, job_id)
        assert int((scratch / "pid").read_text()) < 100  # of a namespace of its own
        run = pool.run_of(job_id)
        main = psutil.Process(run.record.pid)
        init = main.parent()
        family = [init, *init.children(recursive=True)]
        assert len(family) >= 3
        os.kill(init.pid, signal.SIGKILL)
        report = await pool.pool.schedd.end_of(job_id)
        assert report.exit.exit_signal == signal.SIGKILL
        await eventually(lambda: not any(alive(process.pid) for process in family))


@spec("ISO-01")
async def test_a_jobs_status_comes_through_its_namespace(pool):
    for script, code, number in (("exit 7", 7, None), ("kill -9 $$", None, 9), ("kill -TERM $$", None, 15)):
        report, _ = await pool.run(script)
        assert (report.exit.exit_code, report.exit.exit_signal) == (code, number)
    report, _ = await pool.run("", Cmd="/no/such", Arguments="")
    assert (report.exit.reason, report.exit.hold_code, report.exit.hold_subcode) == ("hold", 6, 2)


async def test_a_namespace_is_no_wall_for_signals_from_outside(pool):
    job_id, _ = await pool.begin("trap 'exit 5' TERM; touch ready; while :; do sleep 0.05; done")
    await ready(pool, job_id)
    pool.run_of(job_id).stop("evicted", "evict", "the test asks", fast=False)
    report = await pool.pool.schedd.end_of(job_id)
    assert (report.exit.reason, report.exit.exit_code) == ("evicted", 5)  # by its own hand


@spec("ISO-03")
async def test_gids_of_tracking_run_out_with_a_message(place):
    knobs = {"USE_GID_PROCESS_TRACKING": "true", "MIN_TRACKING_GID": "750", "MAX_TRACKING_GID": "751"}
    async with IsolatedPool(place, Machine(cpus=4), **knobs) as pool:
        jobs = [(await pool.begin(f"id -G > groups; {READY}"))[0] for _ in range(2)]
        found = {
            number
            for job_id in jobs
            for number in (await ready(pool, job_id) / "groups").read_text().split()
            if number in ("750", "751")
        }
        assert found == {"750", "751"}
        report, _ = await pool.run("true")
        assert report.exit.reason == "failed"
        assert "no more tracking GIDs" in report.exit.message
        pool.run_of(jobs[0]).stop("killed", "remove", "the test", fast=True)
        await pool.pool.schedd.end_of(jobs[0])
        report, _ = await pool.run("true")
        assert report.exit.reason == "exited"


@spec("ISO-04")
async def test_what_leaves_the_family_is_found_by_its_gid(place):
    """With USE_PROCD false too: the tracking by groups needs the process that tracks."""
    knobs = {"USE_GID_PROCESS_TRACKING": "true", "MIN_TRACKING_GID": "750", "MAX_TRACKING_GID": "750"}
    async with IsolatedPool(place, USE_PROCD="false", **knobs) as pool:
        job_id, _ = await pool.begin(READY)
        await ready(pool, job_id)
        # As if cron had started it for the job: no descendant, in no cgroup of the job's.
        stray = await asyncio.create_subprocess_exec(
            "sleep", "1000", user=NOBODY, group=NOBODY, extra_groups=[750], start_new_session=True
        )
        pool.run_of(job_id).stop("killed", "remove", "the test", fast=True)
        await pool.pool.schedd.end_of(job_id)
        assert await asyncio.wait_for(stray.wait(), 60) == -signal.SIGKILL


@spec("ISO-02")
async def test_what_a_dedicated_account_left_elsewhere_is_killed(place):
    account = login(2)
    uids = [process.info["uids"] for process in psutil.process_iter(["uids"])]  # None: gone meanwhile
    assert not [one for one in uids if one and one.real == account.pw_uid], "the test needs it for itself"
    knobs = {"SLOT1_1_USER": account.pw_name, "DEDICATED_EXECUTE_ACCOUNT_REGEXP": account.pw_name}
    async with IsolatedPool(place, **knobs) as pool:
        job_id, _ = await pool.begin(READY)
        await ready(pool, job_id)
        stray = await asyncio.create_subprocess_exec("sleep", "1000", user=account.pw_uid, start_new_session=True)
        pool.run_of(job_id).stop("killed", "remove", "the test", fast=True)
        await pool.pool.schedd.end_of(job_id)
        assert await asyncio.wait_for(stray.wait(), 60) == -signal.SIGKILL


@spec("ISO-05")
async def test_a_job_has_a_cgroup_named_from_execute_and_slot(pool):
    job_id, _ = await pool.begin(READY)
    await ready(pool, job_id)
    name = "condor" + str(pool.execute).replace("/", "_") + "_slot1_1"
    folder = memory_cgroup(pool, job_id)
    assert (folder.parent.name, folder.name) == ("htcondor", name)
    assert pool.run_of(job_id).record.pid in pids_in(folder)
    assert described_cgroup(pool, job_id)["unified"].endswith(f"/htcondor/{name}")


@spec("ISO-06", "ISO-07", "ISO-13")
@pytest.mark.parametrize(
    ("policy", "hard_mib", "soft_mib"), [("hard", 200, 180), ("soft", 8192 - 100, 200)], ids=["iso_06", "iso_07"]
)
async def test_memory_limits_follow_the_policy(place, policy, hard_mib, soft_mib):
    """The slot is a dynamic one, of what the job asked for."""
    knobs = {"CGROUP_MEMORY_LIMIT_POLICY": policy, "RESERVED_MEMORY": "100", "MEMORY": ""}
    knobs["MODIFY_REQUEST_EXPR_REQUESTMEMORY"] = "RequestMemory"
    async with IsolatedPool(place, Machine(memory_mib=8192), **knobs) as pool:
        job_id, _ = await pool.begin(READY, RequestMemory=200)
        await ready(pool, job_id)
        folder = memory_cgroup(pool, job_id)
        assert limit_of(folder) == hard_mib * 2**20
        assert soft_limit_of(folder) == soft_mib * 2**20


@spec("ISO-08")
async def test_without_a_policy_there_is_no_limit(place):
    async with IsolatedPool(place, CGROUP_MEMORY_LIMIT_POLICY="none") as pool:
        job_id, _ = await pool.begin(READY)
        await ready(pool, job_id)
        folder = memory_cgroup(pool, job_id)
        assert limit_of(folder) > 2**50 or (folder / "memory.max").read_text() == "max\n"


HOG = "python3 -c \"import time; x = []\nwhile True: x.append(b'x' * 1000000)\""


@spec("ISO-09")
async def test_a_job_over_its_memory_is_held(pool):
    """Also when the process that is killed is not the main one."""
    for script in (HOG, f"({HOG}) & sleep 1000"):
        report, _ = await pool.run(script, RequestMemory=64)
        assert (report.exit.reason, report.exit.hold_code, report.exit.hold_subcode) == ("hold", 34, 102), report.exit
        limit, peak = map(int, re.findall(r"(\d+) megabytes", report.exit.message))
        assert limit == 128  # what RequestMemory is rounded to
        assert 64 <= peak <= 129


@spec("ISO-10")
async def test_a_job_killed_for_the_machines_memory_goes_back_to_the_queue(place):
    """What is above the job's cgroup is the machine to it: here one that has less memory than the job was promised."""
    base = f"htcondor/{place.name}"
    async with IsolatedPool(place, BASE_CGROUP=base) as pool:
        job_id, _ = await pool.begin(f"touch ready; while [ ! -e go ]; do sleep 0.05; done; {HOG}", RequestMemory=512)
        scratch = await ready(pool, job_id)
        machine = memory_cgroup(pool, job_id).parent
        assert machine.name == place.name
        name = "memory.limit_in_bytes" if (machine / "memory.limit_in_bytes").exists() else "memory.max"
        (machine / name).write_text(str(96 * 2**20))
        (scratch / "go").touch()
        report = await pool.pool.schedd.end_of(job_id)
        assert (report.exit.reason, report.exit.hold_code) == ("evicted", 0), report.exit
        assert "ran out of memory" in report.exit.message


@spec("ISO-11")
async def test_cpu_shares_are_a_hundred_for_each_core(pool):
    for cpus, shares in ((1, "100"), (4, "400")):
        job_id, _ = await pool.begin(READY, RequestCpus=cpus)
        await ready(pool, job_id)
        group = pool.startd.shared.isolation.runs[pool.run_of(job_id).record.name].group
        found = pool.startd.shared.isolation.cgroups.hierarchies
        if "cpu" in found.old:
            assert (found.old["cpu"] / group / "cpu.shares").read_text().strip() == shares
        else:
            assert (found.unified / group / "cpu.weight").read_text().strip() == shares


@spec("ISO-12")
async def test_swap_can_be_forbidden(place):
    async with IsolatedPool(place, DISABLE_SWAP_FOR_JOB="true") as pool:
        job_id, _ = await pool.begin(READY)
        await ready(pool, job_id)
        folder = memory_cgroup(pool, job_id)
        if (folder / "memory.memsw.limit_in_bytes").exists():
            assert int((folder / "memory.memsw.limit_in_bytes").read_text()) == limit_of(folder)
        else:
            assert (folder / "memory.swap.max").read_text().strip() == "0"


CACHING = "head -c 48000000 /dev/zero > cached; sync cached; cat cached > /dev/null; " + READY


@pytest.mark.parametrize("ignored", ["true", "false"])
async def test_what_the_kernel_keeps_of_files_counts_where_that_is_wanted(place, ignored):
    async with IsolatedPool(place, CGROUP_IGNORE_CACHE_MEMORY=ignored) as pool:
        job_id, _ = await pool.begin(CACHING, RequestMemory=512)
        await ready(pool, job_id)
        run = pool.run_of(job_id)
        seen = await run.launcher.measure(run.record.name)
        assert (seen.resident_set_kib > 40_000) == (ignored == "false"), seen
        run.stop("killed", "remove", "the test", fast=True)
        report = await pool.pool.schedd.end_of(job_id)
        assert (report.usage.resident_set_kib > 40_000) == (ignored == "false"), report.usage


@spec("JHK-09")
async def test_hooks_are_in_the_cgroup_of_their_job_and_leave_nothing_behind(place):
    """Those that report on a running job are not."""
    hooks = place / "hooks"
    hooks.mkdir(mode=0o755)
    (hooks / "told").mkdir(mode=0o777)
    (hooks / "told").chmod(0o777)
    macros = {"STARTER_JOB_HOOK_KEYWORD": "X", "STARTER_INITIAL_UPDATE_INTERVAL": "1"}
    for name in ("PREPARE_JOB", "UPDATE_JOB_INFO", "JOB_EXIT"):
        hook = hooks / name
        left = f"(setsid sleep 1000.{os.getpid()} > /dev/null 2>&1 &)\n" if name != "UPDATE_JOB_INFO" else ""
        hook.write_text(
            f"#!/bin/sh\ncat > /dev/null\ncat /proc/self/cgroup > {hooks}/told/{name}\n{left}touch {name}\n"
        )
        hook.chmod(0o755)
        macros[f"X_HOOK_{name}"] = str(hook)
    async with IsolatedPool(place / "pool", **macros) as pool:
        job_id, _ = await pool.begin("while [ ! -e UPDATE_JOB_INFO ]; do sleep 0.05; done")
        report = await pool.pool.schedd.end_of(job_id)
        assert report.exit.reason == "exited", report.exit
        name = "condor" + str(pool.execute).replace("/", "_") + "_slot1_1"
        where = {hook.name: name in hook.read_text() for hook in (hooks / "told").iterdir()}
        assert where == {"PREPARE_JOB": True, "UPDATE_JOB_INFO": False, "JOB_EXIT": True}
        marker = f"1000.{os.getpid()}"
        assert not [p.pid for p in psutil.process_iter(["cmdline"]) if marker in str(p.info["cmdline"])]


ESCAPES = {
    "double fork": "(setsid sleep 1000 &) ; (setsid sh -c 'sleep 1000 & sleep 1000' &)",
    "ignores SIGTERM": "setsid sh -c 'trap \"\" TERM HUP INT; while :; do sleep 0.1; done' &",
    "stopped": "setsid sh -c 'kill -STOP $$; sleep 1000' &",
    "many": "for i in $(seq 200); do setsid sleep 1000 & done",
}


@spec("ISO-14")
@pytest.mark.parametrize("how", ESCAPES)
@pytest.mark.parametrize("knobs", [{}, {"BASE_CGROUP": ""}], ids=["cgroup", "no cgroup"])
async def test_no_process_of_a_job_outlives_it(place, how, knobs):
    async with IsolatedPool(place, SLOT1_1_USER="daemon", **knobs) as pool:  # without a PID namespace, that is
        assert has_cgroups(pool) == (not knobs)
        marker = f"{os.getpid()}.{len(how)}"
        script = ESCAPES[how].replace("1000", f"1000.{marker}") + "\nsleep 0.2; exit 3"
        report, _ = await pool.run(script)
        assert report.exit.exit_code == 3
        assert not [p.pid for p in psutil.process_iter(["cmdline"]) if f"1000.{marker}" in str(p.info["cmdline"])]


@pytest.mark.parametrize("knobs", [{}, {"BASE_CGROUP": ""}], ids=["freezer", "signals"])
async def test_suspending_stops_all_of_a_job_and_continuing_lets_it_go_on(place, knobs):
    async with IsolatedPool(place, **knobs) as pool:
        assert has_cgroups(pool) == (not knobs)
        counting = "i=0; while :; do i=$((i+1)); echo $i > {}; sleep 0.01; done"
        job_id, _ = await pool.begin(f"({counting.format('one')}) & touch ready; {counting.format('two')}")
        scratch = await ready(pool, job_id)
        run = pool.run_of(job_id)
        await eventually(lambda: (scratch / "one").exists() and (scratch / "two").exists())

        def seen():
            return (scratch / "one").read_text(), (scratch / "two").read_text()

        await run.launcher.suspend(run.record.name)
        last = [seen()]

        async def still():
            before = seen()
            await asyncio.sleep(0.15)  # fifteen steps of the job's, if it stepped
            last[0] = seen()
            return before == last[0]

        await eventually(still)
        await run.launcher.continue_(run.record.name)
        await eventually(lambda: seen()[0] != last[0][0] and seen()[1] != last[0][1])
        await run.launcher.suspend(run.record.name)
        run.stop("killed", "remove", "the test", fast=True)  # a run that stands can be killed
        await pool.pool.schedd.end_of(job_id)


async def test_a_restarted_startd_adopts_the_walls(pool):
    job_id, _ = await pool.begin(f"touch ready; while [ ! -e go ]; do sleep 0.05; done; {HOG}")
    scratch = await ready(pool, job_id)
    group = pool.startd.shared.isolation.runs[pool.run_of(job_id).record.name].group
    await pool.pool.restart()
    assert pool.startd.shared.isolation.runs[pool.run_of(job_id).record.name].group == group
    (scratch / "go").touch()
    report = await pool.pool.schedd.end_of(job_id)
    assert (report.exit.reason, report.exit.hold_code) == ("hold", 34)


async def test_cgroups_go_with_claims_and_the_startd(place):
    async with IsolatedPool(place) as pool:
        job_id, _ = await pool.begin(READY)
        await ready(pool, job_id)
        folder = memory_cgroup(pool, job_id)
        claim = pool.run_of(job_id).record.claim_id
        startd = pool.startd.shared
        _, effects = startd.slot_manager.vacate(claim, "the test", graceful=False, now=startd.now())
        startd.effects.carry_out(effects)
        await pool.pool.schedd.end_of(job_id)
        await eventually(lambda: not folder.exists())
        await pool.begin("exec sleep 1000")  # the startd ends, this goes on until the fork server ends
    prefix = "condor" + str(place).replace("/", "_")
    await eventually(lambda: not cgroups_of(prefix))


async def test_nice_address_space_and_private_directories(place):
    knobs = {"JOB_RENICE_INCREMENT": "TARGET.Niceness ?: 5", "STARTER_RLIMIT_AS": "TARGET.RequestMemory * 10"}
    async with IsolatedPool(place, **knobs) as pool:
        script = "nice; ulimit -v; ls -A /tmp /var/tmp /dev/shm | wc -w; echo x > /tmp/x; echo y > /dev/shm/y; ls /tmp"
        _, out = await pool.run(script, RequestMemory=100)
        nice, space, *_ = out.splitlines()
        assert (int(nice), int(space)) == (min(19, os.nice(0) + 5), 1000 * 1024)
        assert not {"x", "y"} & set(os.listdir("/tmp") + os.listdir("/dev/shm"))
        _, out = await pool.run("nice", Niceness=99)
        assert int(out) == 19


async def test_a_job_that_works_in_tmp_sees_the_machines(pool):
    """Private directories are not put over one that the job names files in."""
    with open_directory() as folder:
        folder.chmod(0o777)
        activation, _ = await pool.pool.run("/bin/sh", Arguments="-c 'pwd>seen'", Iwd=str(folder))
        report = await pool.pool.schedd.end_of(activation.job_id)
        assert report.exit.exit_code == 0, report.exit
        assert (folder / "seen").read_text().strip() == str(folder)
        assert (folder / "seen").stat().st_uid == NOBODY


async def test_no_directory_is_made_through_a_link_that_came_with_a_jobs_files(place, monkeypatch):
    """Its scratch directory lies in /tmp, which is its own: what leads there may be what its files brought along."""
    make = manager._make_private

    def make_with_a_link(scratch, name):
        make(scratch, name)
        if name == ".private/tmp":
            (scratch / name / place.relative_to("/tmp").parts[0]).symlink_to(outside)

    monkeypatch.setattr(manager, "_make_private", make_with_a_link)
    with open_directory("/run") as outside:
        async with IsolatedPool(place) as pool:
            report, _ = await pool.run("true")
            assert report.exit.reason == "failed"
            assert os.strerror(errno.ENOTDIR) in report.exit.message
            assert not list(outside.iterdir())


async def test_an_execute_that_the_account_can_not_enter_is_told(place):
    place.chmod(0o700)
    async with IsolatedPool(place) as pool:
        report, _ = await pool.run("true")
        assert report.exit.reason == "failed"
        assert str(place) in report.exit.message
        assert "chmod" in report.exit.message


async def test_signals_are_as_a_login_shell_has_them(place):
    previous = {number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGINT, signal.SIGQUIT)}
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
    try:
        async with IsolatedPool(place) as pool:
            _, out = await pool.run("grep -E 'Sig(Blk|Ign)' /proc/self/status")
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGUSR1])
        for number, handler in previous.items():
            signal.signal(number, handler)
    assert [line.split()[1] for line in out.splitlines()] == ["0" * 16, "0" * 16]


async def test_memory_is_that_of_all_processes_of_a_job_also_of_one_that_is_over_at_once(place):
    """Four processes of 60 MB each: the largest of them, which is all that wait4 tells, has 70."""
    async with IsolatedPool(place, Machine(memory_mib=8192)) as pool:
        report, _ = await pool.run(
            "python3 - <<'END'\n"
            "import os, sys\n"
            "pipes = []\n"
            "for _ in range(4):\n"
            "    reader, writer = os.pipe()\n"
            "    if os.fork() == 0:\n"
            "        held = b'x' * 60_000_000\n"
            "        os.write(writer, b'1')\n"
            "        sys.stdin.read(1)\n"
            "        os.kill(os.getpid(), 19)\n"
            "    pipes.append(reader)\n"
            "for reader in pipes:\n"
            "    os.read(reader, 1)\n"
            "END",
            RequestMemory=1024,
        )
        assert report.exit.reason == "exited", report.exit
        assert 4 * 57 < report.usage.memory_mib < 500
        assert report.usage.resident_set_kib >= 4 * 60_000_000 // 1024


@pytest.mark.parametrize("hides", [True, False])
async def test_gpus_of_other_slots_can_not_be_opened(place, hides):
    """Devices like any other stand for GPUs, as no machine of the tests has any. Not below /tmp, which is the job's."""
    knobs = {"MACHINE_RESOURCE_GPUs": "GPU-aaaa1111, GPU-bbbb2222", "STARTER_HIDE_GPU_DEVICES": str(hides)}
    with open_directory("/srv") as devices:
        found = {f"{devices}/gpu0": "GPU-aaaa1111-22-33", f"{devices}/gpu1": "GPU-bbbb2222-22-33"}
        for path in found:
            os.mknod(path, 0o666 | stat.S_IFCHR, os.makedev(1, 5))
            os.chmod(path, 0o666)
        async with IsolatedPool(place, **knobs) as pool:
            pool.startd.shared.isolation._find_gpus = lambda: found
            script = f"for n in 0 1; do head -c 4 {devices}/gpu$n 2>/dev/null | wc -c; done"
            _, out = await pool.run(script, RequestGPUs=1)
            assert out is not None
            assert out.split() == (["4", "0"] if hides else ["4", "4"])
            _, out = await pool.run(script)
            assert out is not None
            assert out.split() == (["0", "0"] if hides else ["4", "4"])
