"""What jobs try that are not friendly: each attempt is a real job, on a startd that is root. Needs root."""

import asyncio
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from services.startd.forkserver import kernel
from services.startd.forkserver.client import ForkServer
from tests.integration.isolated_pool import NOBODY, IsolatedPool, alive, has_cgroups, open_directory
from tests.nannies import KINDS, use_nannies
from tests.waiting import eventually

pytestmark = pytest.mark.mounts
SECRET = "the secret of another job"
VICTIM = f"echo '{SECRET}' > secret; export HIDDEN='{SECRET}'; chmod 644 secret; touch ready; exec sleep 1000"


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


@pytest.fixture
async def victim(pool):
    """Another job of the same account, in its scratch directory."""
    job_id, _ = await pool.begin(VICTIM)
    await pool.running(job_id)
    await eventually((pool.scratch_of(job_id) / "ready").exists)
    assert pool.scratch_of(job_id).stat().st_uid == NOBODY
    return job_id


LOOKS = {
    "its directory, by name": "cat {scratch}/secret; ls {scratch}",
    "all of EXECUTE": "find {execute} -name secret -exec cat {{}} +; grep -rs secret {execute}",
    "its directory through /proc": "cat /proc/*/cwd/secret /proc/*/root/{scratch}/secret",
    "its directory through the startd": "cat /proc/{startd}/cwd/secret /proc/{startd}/root{scratch}/secret",
    "its environment": "cat /proc/{pid}/environ /proc/*/environ | tr '\\0' '\\n' | grep HIDDEN",
    "its open files": "cat /proc/{pid}/fd/* < /dev/null",
    "links made for it": "ln -s {scratch}/secret one; cat one; ln {scratch}/secret two; cat two",
    "the mounts below": "umount {execute}; umount -l {execute}; cat {scratch}/secret",
    "its memory": "cat /proc/{pid}/mem; cat /proc/{pid}/maps",
    "the startd's memory": "cat /proc/{startd}/environ; cat /proc/{startd}/maps; cat /proc/{startd}/mem",
    "the journal": "cat {spool}/startd/*; find {spool} -type f -exec cat {{}} +",
    "the fork server": "ls {execute}/.starter*; cat {execute}/.starter*/results/*; cat {execute}/.starter*/log",
}


@pytest.mark.parametrize("how", LOOKS)
async def test_a_job_can_not_look_at(pool, victim, how):
    run = pool.run_of(victim)
    around = {
        "scratch": pool.scratch_of(victim),
        "execute": pool.execute,
        "pid": run.record.pid,
        "startd": os.getpid(),
        "spool": pool.path / "spool",
    }
    script = LOOKS[how].format(**around)
    # The shell prints errors too; they may name what was asked for, never what is in it.
    _, out = await pool.run(f"({script}) 2>/dev/null; echo end")
    assert out == "end\n" or ("end" in out and not _tells(out, run.record.claim_id)), out[:2000]
    assert SECRET not in out
    assert alive(run.record.pid)


def _tells(out: str, claim_id: str) -> bool:
    return SECRET in out or claim_id in out or "SQLite" in out or "PATH=" in out


STRIKES = {
    "everybody": "kill -9 -1",
    "by number": "kill -9 {pid}; kill -9 {nanny}; kill -9 {startd}",
    "by stopping": "kill -STOP {pid} {nanny}; kill -TSTP {pid}",
    "through the cgroup": "for f in /sys/fs/cgroup/*/htcondor/*/cgroup.kill; do echo 1 > $f; done; "
    "for f in /sys/fs/cgroup/freezer/htcondor/*/freezer.state; do echo FROZEN > $f; done",
}


@pytest.mark.parametrize("how", STRIKES)
async def test_a_job_can_not_strike_at(pool, victim, how):
    run = pool.run_of(victim)
    main = psutil.Process(run.record.pid)
    script = STRIKES[how].format(pid=main.pid, nanny=main.ppid(), startd=os.getpid())
    report, _ = await pool.run(f"({script}) 2>/dev/null; echo end")
    assert report.exit.reason in ("exited", "hold")
    assert main.status() in (psutil.STATUS_SLEEPING, psutil.STATUS_RUNNING, psutil.STATUS_IDLE)
    again, out = await pool.run("echo well")
    assert (again.exit.exit_code, out) == (0, "well\n")


async def test_jobs_have_no_common_directories_or_shared_memory(pool, victim):
    script = (
        "for d in /tmp /var/tmp /dev/shm; do echo x > $d/mine && ls -A $d; done; ipcmk -M 1000 > /dev/null; ipcs -m"
    )
    _, first = await pool.run(script)
    _, second = await pool.run("ls -A /tmp /var/tmp /dev/shm; ipcs -m | grep -c nobody")
    assert first.count("mine") == 3
    assert "mine" not in second
    assert second.splitlines()[-1] == "0"


async def test_a_job_has_no_descriptors_but_its_streams(pool):
    _, out = await pool.run("ls /proc/self/fd")
    assert sorted(out.split()) == ["0", "1", "2", "3"]  # the last is of ls itself


THEFTS = {
    "a link": ("ln -s {secret} stolen", {}),
    "a link that is listed": ("ln -s {secret} stolen", {"TransferOutput": "stolen"}),
    "a link in a directory": ("mkdir d; ln -s {secret} d/stolen", {"TransferOutput": "d"}),
    "a directory that is a link": ("ln -s {folder} d", {"TransferOutput": "d"}),
    "a path through a link": ("ln -s {folder} d", {"TransferOutput": "d/secret"}),
    "a path that leads out": ("true", {"TransferOutput": "../../../../../../..{secret}"}),
    "its standard output": ("rm -f _condor_stdout; ln -s {secret} _condor_stdout", {}),
    "its standard error": ("rm -f _condor_stderr; ln -s {secret} _condor_stderr", {}),
    "a link to the journal": ("ln -s {journal} stolen", {"TransferOutput": "stolen"}),
}


@pytest.mark.parametrize("how", THEFTS)
async def test_the_startd_fetches_nothing_for_a_job_from_outside(pool, how):
    folder = pool.path / "private"
    folder.mkdir(mode=0o700)
    secret = folder / "secret"
    secret.write_text(SECRET)
    script, attrs = THEFTS[how]
    journal = next((pool.path / "spool" / "startd").glob("*.db"))
    job_id, endpoint = await pool.begin(script.format(secret=secret, folder=folder, journal=journal), **attrs)
    report = await pool.pool.schedd.end_of(job_id)
    for path in endpoint.output.rglob("*"):
        assert not path.is_file() or SECRET not in path.read_text(errors="replace")
        assert not path.is_symlink()
    # What is not asked for by name is left alone; what is asked for holds the job.
    if attrs or "standard" in how:
        assert (report.exit.reason, report.exit.hold_code) == ("hold", 12), report.exit
    else:
        assert report.exit.reason == "exited"


async def test_a_second_name_of_anothers_file_is_no_output(pool):
    """Where the system lets links be made to files of others (fs.protected_hardlinks 0), or a helper makes them."""
    secret = pool.path / "secret"
    secret.write_text(SECRET)
    secret.chmod(0o600)
    job_id, endpoint = await pool.begin("touch ready; while [ ! -e go ]; do sleep 0.05; done")
    await pool.running(job_id)
    scratch = pool.scratch_of(job_id)
    os.link(secret, scratch / "stolen")
    (scratch / "go").touch()
    report = await pool.pool.schedd.end_of(job_id)
    assert (report.exit.reason, report.exit.hold_code) == ("hold", 12)
    assert not (endpoint.output / "stolen").exists()


async def test_an_output_file_is_written_as_the_account_not_as_root(pool):
    """Without file transfer, Out may name anything: the job's account must be able to write it."""
    target = pool.path / "target"
    target.write_text("precious")
    target.chmod(0o644)
    folder = pool.path / "open"
    folder.mkdir()
    folder.chmod(0o777)
    (folder / "link").symlink_to(target)
    for out in (str(target), "link"):
        activation, _ = await pool.pool.run("/bin/echo", Arguments="spoiled", Iwd=str(folder), Out=out)
        report = await pool.pool.schedd.end_of(activation.job_id)
        assert (report.exit.reason, report.exit.hold_code) == ("hold", 7), report.exit
        assert target.read_text() == "precious"


@pytest.mark.parametrize("knobs", [{}, {"BASE_CGROUP": ""}], ids=["cgroup", "no cgroup"])
async def test_a_fork_bomb_is_bounded_and_killed_whole(place, knobs):
    """Also one whose processes ignore signals and leave their session."""
    async with IsolatedPool(place, ROOST_JOB_MAX_PROCESSES="60", **knobs) as pool:
        assert has_cgroups(pool) == (not knobs)
        bomb = "import os, signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\nopen('ready', 'w')\n"
        # Without a limit it must be slow enough for the machine of the test.
        bomb += "while True:\n try:\n  if os.fork() == 0: os.setsid()\n except OSError: pass\n time.sleep(%s)\n"
        job_id, _ = await pool.begin("exec python3 bomb", {"bomb": bomb % ("0" if not knobs else "0.3")})
        await pool.running(job_id)
        run = pool.run_of(job_id)
        await eventually((run.scratch / "ready").exists)
        init = psutil.Process(run.record.pid).parent()
        await eventually(lambda: len(init.children(recursive=True)) > 10)
        family = init.children(recursive=True)
        assert knobs or len(family) <= 61
        run.stop("killed", "remove", "the test", fast=True)
        await pool.pool.schedd.end_of(job_id)
        assert not any(alive(process.pid) for process in family)
        assert not alive(init.pid)


async def test_ten_thousand_processes_are_measured_and_killed(pool):
    count = 1500  # as many as a test may take of a small machine; the walk is the same
    script = f"import os, time\nfor i in range({count}):\n if os.fork() == 0: time.sleep(1000)\nopen('ready', 'w')\n"
    job_id, _ = await pool.begin("exec python3 many", {"many": script + "time.sleep(1000)"}, RequestMemory=2048)
    await pool.running(job_id)
    run = pool.run_of(job_id)
    await eventually((run.scratch / "ready").exists, 60)
    seen = await run.launcher.measure(run.record.name)
    assert seen.procs >= count
    run.stop("killed", "remove", "the test", fast=True)
    await pool.pool.schedd.end_of(job_id, timeout=60)


DIRT = {
    "deep": "i=0; while [ $i -lt 1500 ]; do mkdir dddddddddddddddddddd; cd dddddddddddddddddddd; i=$((i+1)); done; > f",
    "no permissions": "mkdir -p a/b/c; touch a/b/c/d; chmod 0 a/b/c a/b a; chmod 0 .",
    "strange names": r"touch \"$(printf '\\377\\376')\"; mkdir \"$(printf 'd\\001\\n\\377')\"; touch -- -rf '*' ' '",
    "special files": "mkfifo pipe; python3 -c \"import socket; socket.socket(socket.AF_UNIX).bind('s')\"",
    "a link in place of a directory": "mkdir d; ln -s /etc d/etc; ln -s .. up; ln -s / root",
    "many": "seq 3000 | xargs touch",
}


@pytest.mark.parametrize("how", DIRT)
async def test_a_scratch_directory_goes_whatever_the_job_did_to_it(pool, how):
    folder = pool.path / "beside"
    folder.mkdir()
    (folder / "kept").touch()
    job_id, _ = await pool.begin(DIRT[how], TransferOutput="")
    await pool.pool.schedd.end_of(job_id)
    await eventually(lambda: not [name for name in os.listdir(pool.execute) if name.startswith("dir_")])
    assert (folder / "kept").exists()
    assert "passwd" in os.listdir("/etc")
    report, _ = await pool.run("true")
    assert report.exit.exit_code == 0


async def test_strange_names_come_back_as_output(pool):
    script = "printf x > \"$(printf '\\377\\376')\"; printf y > \"$(printf 'new\\nline')\""
    job_id, endpoint = await pool.begin(script)
    report = await pool.pool.schedd.end_of(job_id)
    assert report.exit.reason in ("exited", "hold"), report.exit
    if report.exit.reason == "exited":
        assert b"\xff\xfe" in os.listdir(os.fsencode(endpoint.output))


async def test_files_made_unremovable_by_root_go(pool):
    job_id, _ = await pool.begin("touch ready kept; while [ ! -e go ]; do sleep 0.05; done")
    await pool.running(job_id)
    scratch = pool.scratch_of(job_id)
    await eventually((scratch / "kept").exists)
    done = await asyncio.to_thread(subprocess.run, ["chattr", "+i", str(scratch / "kept")], check=False)
    if done.returncode:
        pytest.skip("this file system has no attributes")
    (scratch / "go").touch()
    await pool.pool.schedd.end_of(job_id)
    await eventually(lambda: not scratch.exists())


# ---------------------------------------------------------------- a startd that is not root


async def test_landlock_alone_walls_jobs_that_share_an_account():
    """What the jobs of a startd without root have between them: nothing but this."""
    version = kernel.landlock_version()
    if version < 6:
        pytest.skip(f"Landlock of version {version} here: 6 is the first that keeps signals in")
    with open_directory("/opt") as place:
        keys, own, other = place / "keys", place / "execute/own", place / "execute/other"
        for folder in (keys, own, other):
            folder.mkdir(parents=True)
            (folder / "secret").write_text(SECRET)
            shutil.chown(folder, NOBODY, NOBODY)
        server = ForkServer(place / "server", orphan_s=60, now=time.time)
        server.directory.mkdir(mode=0o700)
        await server.start()

        def request(script, **walls):
            base = {"executable": "/bin/sh", "argv": ["/bin/sh", "-c", script], "env": {"PATH": os.defpath}}
            base |= {"cwd": str(own), "stdin": "", "stdout": str(own / "out"), "stderr": ""}
            return base | {"account": {"uid": NOBODY, "gid": NOBODY, "groups": []}} | walls

        victim = await server.spawn("victim", request("exec sleep 1000", stdout=""))
        look = (
            f"cat {keys}/secret {other}/secret {place}/execute/../keys/secret; ls -l {keys} | cut -c1;"
            f"cat /proc/{victim.pid}/cwd/secret /proc/{victim.pid}/environ; ln -s {keys}/secret link; cat link;"
            f"kill -9 {victim.pid}; echo x > {keys}/made; rm -f {other}/secret; mv {own}/secret {place}/gone;"
        )
        script = f"({look}) 2>/dev/null; echo mine > made; cat made; cat /etc/passwd > copy && ls -d /usr"
        system = [["r", path] for path in ("/bin", "/usr", "/lib", "/lib64", "/etc")]
        confined = {"grants": [["w", str(own)], *system, ["w", "/dev"], ["w", "/proc"]]}
        try:
            await server.spawn("hostile", request(script, landlock=confined))
            assert (await server.end_of("hostile")).status == 0
            out = (own / "out").read_text()
            assert SECRET not in out
            assert out.endswith("mine\n/usr\n")
            assert alive(victim.pid)
            assert (other / "secret").exists()
            assert not (keys / "made").exists()
            # And without: it would have seen all of it.
            await server.spawn("free", request(f"cat {keys}/secret {other}/secret"))
            await server.end_of("free")
            assert (own / "out").read_text().count(SECRET) == 2
        finally:
            await server.stop(end_server=True)


AS_NOBODY = """
import asyncio, os
from pathlib import Path
from tests.integration.isolated_pool import has_cgroups, IsolatedPool

async def main():
    path = Path("{place}")
    (path / "keys").mkdir()
    (path / "keys/password").write_text("the broker's password")
    async with IsolatedPool(path, ROOST_HIDDEN_FROM_JOBS=f"{{path}}/spool, {{path}}/keys") as pool:
        victim, _ = await pool.begin("echo it > secret; export HIDDEN=it; touch ready; exec sleep 1000")
        await pool.running(victim)
        while not (pool.scratch_of(victim) / "ready").exists():
            await asyncio.sleep(0.01)
        run = pool.run_of(victim)
        look = (
            f"cat {{path}}/keys/* {{path}}/spool/startd/* {{run.scratch}}/secret /proc/*/cwd/secret;"
            f"cat /proc/{{os.getpid()}}/environ /proc/{{run.record.pid}}/environ;"
            f"kill -9 {{run.record.pid}} {{os.getpid()}} {{pool.startd.shared.fork_server.pid}}"
        )
        report, out = await pool.run(f"({{look}}) 2>/dev/null; id -u; echo mine > own; cat own")
        print(report.exit.reason, out.split(), os.path.exists(f"/proc/{{run.record.pid}}/cwd"))

asyncio.run(main())
"""


async def test_a_startd_that_is_not_root_has_landlock_around_its_jobs():
    if kernel.landlock_version() < 6:
        pytest.skip("no Landlock of version 6 here")
    root = Path(__file__).parents[2]
    with open_directory("/opt") as place:
        shutil.chown(place, NOBODY, NOBODY)
        # Nobody may not read root's interpreter: that much, and no more, it is given.
        ids = [f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
        rights = ["--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search"]
        process = await asyncio.create_subprocess_exec(
            *("setpriv", *ids, *rights, sys.executable, "-B", "-c", AS_NOBODY.format(place=place)),
            cwd=place,
            env=os.environ | {"PYTHONPATH": str(root)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        out, err = await asyncio.wait_for(process.communicate(), 240)
        assert process.returncode == 0, err.decode()[-3000:]
        assert out.decode().splitlines()[-1] == f"exited ['{NOBODY}', 'mine'] True"  # the victim lives
