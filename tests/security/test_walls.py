"""What jobs try against the startd that runs them: each attempt is a real job on a real startd, once as root and once
as a plain account. Needs root, to be either.
"""

import asyncio
import json
import os
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from roost.up import PersonalPool, Plan
from services.startd.core import separation
from services.startd.core.separation import find_separation
from services.startd.forkserver import kernel
from services.startd.isolation import host_capabilities, job_view
from shared.classad import ClassAd, evaluate
from shared.config import load_config
from tests.integration.isolated_pool import NOBODY, IsolatedPool, open_directory
from tests.nannies import both, knobs_of
from tests.spec import spec

pytestmark = pytest.mark.mounts
ROOT = Path(__file__).parents[2]
PYTHON = "/usr/bin/python3"  # not this process's own, which may lie in root's home
PASSWORD = "the-brokers-password"
OWN_PLACE = "/var/lib"  # no place that jobs are granted: all of it is the daemon's, whatever it is called
needs_landlock = pytest.mark.skipif(
    kernel.landlock_version() < kernel.LANDLOCK_SIGNALS, reason="this kernel's Landlock does not keep signals in"
)

#: Runs as the job. Every attempt prints what it got, or the error's name.
ATTACK = """
import ctypes, errno, glob, json, os, signal, socket, subprocess, sys
at = json.loads(open("at.json").read())
libc = ctypes.CDLL(None, use_errno=True)
found = {}

def tried(name, attempt):
    try:
        found[name] = attempt()
    except OSError as error:
        found[name] = errno.errorcode.get(error.errno, str(error))

def call(*arguments):
    ctypes.set_errno(0)
    answer = libc.syscall(*(ctypes.c_long(one) if isinstance(one, int) else one for one in arguments))
    return "done" if answer >= 0 else errno.errorcode.get(ctypes.get_errno(), "?")

def read(path):
    return open(path, "rb").read(4096).decode("latin-1")

def connect(path):
    link = socket.socket(socket.AF_UNIX)
    link.settimeout(5)
    link.connect(path)
    try:
        return "connected " + link.recv(100).decode("latin-1")
    finally:
        link.close()

startd, server = at["startd"], at["server"]
for name in ("credential", "config", "journal", "secret", "anothers"):
    tried(f"read {name}", lambda: read(at[name]))
for name in ("spool", "keys", "execute"):
    tried(f"list {name}", lambda: " ".join(os.listdir(at[name])))
for name in ("environ", "mem", "maps"):
    tried(f"startd {name}", lambda: read(f"/proc/{startd}/{name}"))
    tried(f"server {name}", lambda: read(f"/proc/{server}/{name}"))
tried("startd root", lambda: read(f"/proc/{startd}/root{at['credential']}"))
tried("startd cwd", lambda: " ".join(os.listdir(f"/proc/{startd}/cwd")))
tried("startd fd", lambda: " ".join(os.listdir(f"/proc/{startd}/fd")))
tried("signal startd", lambda: os.kill(startd, signal.SIGCONT) or "done")
tried("signal server", lambda: os.kill(server, signal.SIGCONT) or "done")
tried("signal another", lambda: os.kill(at["another"], signal.SIGCONT) or "done")
tried("write spool", lambda: open(at["spool"] + "/made", "w").write("x") and "done")
os.symlink(at["credential"], "link")
tried("read by a link", lambda: read("link"))
tried("hard link", lambda: os.link(at["credential"], "second") or "done")
found["ptrace startd"] = call(101, 16, startd, 0, 0)
found["ptrace another"] = call(101, 16, at["another"], 0, 0)
tried("fork server", lambda: connect(at["socket"]))
found["user namespace"] = call(272, 0x10000000)
found["clone a namespace"] = call(56, 0x10000000 | 17, 0, 0, 0, 0)
found["clone3"] = call(435, 0, 0)
found["mount"] = call(165, b"none", b"/tmp", b"tmpfs", 0, 0)
found["umount"] = call(166, b"/proc", 2)
found["keyctl"] = call(250, 0, -3, 0)
found["add_key"] = call(248, b"user", b"x", b"y", 1, -3)
found["bpf"] = call(321, 0, 0, 0)
found["perf"] = call(298, 0, 0, -1, -1, 0)
found["userfaultfd"] = call(323, 0)
found["open_by_handle_at"] = call(304, 0, 0, 0)
found["setns"] = call(308, 0, 0)
found["io_uring"] = call(425, 1, 0)
found["kexec"] = call(246, 0, 0, 0, 0)
found["too new"] = call(900)
found["setuid program"] = subprocess.run([at["setuid"], "-u"], capture_output=True, text=True).stdout.strip()
status = dict(line.split(":", 1) for line in read("/proc/self/status").splitlines())
for name in ("NoNewPrivs", "Seccomp", "CapBnd", "CapEff", "CapPrm", "CapInh", "CapAmb", "Uid"):
    found[name] = status[name].split()[0]
# What has to go on working.
import threading
thread = threading.Thread(target=found.__setitem__, args=("thread", "ran"))
thread.start(); thread.join()
found["child"] = subprocess.run(["/bin/sh", "-c", "echo ran"], capture_output=True, text=True).stdout.strip()
tried("shared data", lambda: read(at["data"]))
tried("own file", lambda: open("own", "w").write("x") and read("own"))
tried("system", lambda: "root" in read("/etc/passwd"))
print(json.dumps(found))
"""

#: Runs as the startd.
POOL = """
import asyncio, glob, json, os, sys
from pathlib import Path
from tests.integration.isolated_pool import IsolatedPool

async def main():
    at = json.loads(Path(sys.argv[1]).read_text())
    place = Path(at["place"])
    knobs = {"ROOST_JOB_WRITE_PATHS": f"{at['data']}, {at['setuid']}, /tmp, /dev, /proc"} | at["knobs"]
    async with IsolatedPool(place / "pool", **knobs) as pool:
        another, _ = await pool.begin("echo its own > secret; touch ready; exec sleep 1000")
        await pool.running(another)
        run = pool.run_of(another)
        while not (pool.scratch_of(another) / "ready").exists():
            await asyncio.sleep(0.01)
        folder, = glob.glob(str(pool.execute / ".starter-*"))
        at |= {
            "startd": os.getpid(),
            "server": pool.startd.shared.fork_server.pid,
            "another": run.record.pid,
            "anothers": str(run.scratch / "secret"),
            "spool": str(place / "pool/spool"),
            "execute": str(pool.execute),
            "journal": glob.glob(str(place / "pool/spool/startd/*.db"))[0],
            "secret": folder + "/secret",
            "socket": folder + "/socket",
        }
        report, out = await pool.run(
            f"exec {at['python']} attack.py", {"attack.py": at["attack"], "at.json": json.dumps(at)}
        )
        lives = os.path.exists(f"/proc/{run.record.pid}/fd")
        ad = pool.startd.shared.runs.machine_ad("slot1@node1")
        print(json.dumps({
            "out": out,
            "exit": str(report.exit),
            "lives": lives,
            "native": pool.startd.shared.fork_server.native,
            "reason": ad.eval_string("ProcessJobsReason"),
            "requirements": str(ad.get("Requirements")),
        }))

asyncio.run(main())
"""


async def attack(place: Path, user: int, **knobs):
    """What a job gets that attacks a startd of this account."""
    keys, tools, data = place / "keys", place / "tools", place / "data"
    for folder in (keys, tools, data):
        folder.mkdir()
    (keys / "amqp_url").write_text(PASSWORD)
    (keys / "condor_config").write_text(f"ROOST_AMQP_URL = {PASSWORD}")
    (data / "shared").write_text("the data of everybody")
    shutil.copy("/usr/bin/id", tools / "id")
    (tools / "id").chmod(0o4755)
    for path in (place, keys, *keys.iterdir()):
        shutil.chown(path, user, user)
    for path in keys.iterdir():
        path.chmod(0o600)
    at = {
        "place": str(place),
        "python": PYTHON,
        "attack": ATTACK,
        "knobs": knobs,
        "credential": str(keys / "amqp_url"),
        "config": str(keys / "condor_config"),
        "keys": str(keys),
        "setuid": str(tools / "id"),
        "data": str(data / "shared"),
    }
    plan = place / "plan.json"
    plan.write_text(json.dumps(at))
    ids = [f"--reuid={user}", f"--regid={user}", "--clear-groups"]
    # A plain account may not read root's interpreter: that much, and no more, it is given.
    rights = ["--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search"] if user else []
    command = ["setpriv", *ids, *rights] if user else []
    process = await asyncio.create_subprocess_exec(
        *(*command, sys.executable, "-B", "-c", POOL, str(plan)),
        cwd=place,
        env=os.environ | {"PYTHONPATH": str(ROOT), "ROOST_AMQP_URL": f"amqp://startd:{PASSWORD}@broker/"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    out, err = await asyncio.wait_for(process.communicate(), 240)
    assert process.returncode == 0, err.decode()[-3000:]
    return json.loads(out.decode().splitlines()[-1])


@cache
def attacked(user: int, nannies: str):
    """What `attack` told, once for the tests of it: each is a startd in a fresh interpreter."""
    with open_directory(OWN_PLACE) as place:
        return asyncio.run(attack(place, user, **knobs_of(nannies)))


CLOSED = ("EPERM", "EACCES", "ENOENT", "ESRCH", "EXDEV")


@spec("ISO-15", "ISO-23")
@needs_landlock
@both
@pytest.mark.parametrize("user", [0, NOBODY], ids=["root", "plain account"])
@pytest.mark.xdist_group("attacked")
def test_a_job_gets_nothing_of_the_startds(user, nannies):
    told = attacked(user, nannies)
    assert told["out"], told
    found = json.loads(told["out"])
    assert PASSWORD not in told["out"]
    for name, got in found.items():
        kind = name.partition(" ")[0]
        if kind in ("read", "startd", "server", "signal", "ptrace", "write") or name == "hard link":
            assert got in CLOSED, (name, got)
    if user:  # root's own view shows a job no more than its own directory
        assert [found[f"list {name}"] for name in ("spool", "keys", "execute")] == ["EACCES"] * 3
    else:
        assert ".starter" not in found["list execute"]
    # The socket is there for who has the account, and tells nobody anything below the server (`test_fork_server`).
    assert found["fork server"] in (*CLOSED, "connected ", "ECONNRESET"), found["fork server"]
    assert told["lives"]


@spec("ISO-16", "ISO-23")
@needs_landlock
@pytest.mark.skipif(os.uname().machine != "x86_64", reason="the numbers of the calls are of x86-64")
@both
@pytest.mark.parametrize("user", [0, NOBODY], ids=["root", "plain account"])
@pytest.mark.xdist_group("attacked")
def test_a_job_gains_no_rights_and_calls_nothing_dangerous(user, nannies):
    told = attacked(user, nannies)
    assert told["native"] == (nannies == "native")
    found = json.loads(told["out"])
    refused = ("user namespace", "clone a namespace", "mount", "umount", "keyctl", "add_key", "bpf", "perf", "setns")
    refused += ("userfaultfd", "open_by_handle_at", "kexec")
    assert {name: found[name] for name in refused} == dict.fromkeys(refused, "EPERM")
    assert (found["clone3"], found["io_uring"], found["too new"]) == ("ENOSYS",) * 3
    assert found["setuid program"] == str(NOBODY)
    assert (found["NoNewPrivs"], found["Seccomp"], found["Uid"]) == ("1", "2", str(NOBODY))
    for name in ("CapEff", "CapPrm", "CapInh", "CapAmb", *(() if user else ("CapBnd",))):
        assert int(found[name], 16) == 0, name
    assert (found["thread"], found["child"], found["own file"], found["system"]) == ("ran", "ran", "x", True)
    assert found["shared data"] == "the data of everybody"


def test_what_a_setting_names_is_nobodys_but_the_daemons(tmp_path):
    """Also where it lies in a place that is granted."""
    granted, url, token = tmp_path / "granted", tmp_path / "granted/roost/url", tmp_path / "granted/token"
    (granted / "roost").mkdir(parents=True)
    (granted / "data/deep").mkdir(parents=True)
    for path in (url, token, granted / "roost/harmless", granted / "file"):
        path.write_text("x")
    (granted / "link").symlink_to(url)
    written = tmp_path / "condor_config"
    written.write_text(f"SEC_TOKEN_FILE = {token}\nNUM_CPUS = 1\n")
    config = load_config([written], subsystem="STARTD", env={})
    private = job_view.private_places(config, {"ROOST_AMQP_URL_FILE": str(url), "HOME": "/"}, [tmp_path / "spool"])
    assert {str(url), str(token), str(written), str(tmp_path / "spool")} <= set(private)
    grants = job_view.find_grants([str(granted)], [str(granted / "data")], private)
    real = os.path.realpath(granted)
    assert set(grants) == {("w", f"{real}/data"), ("r", f"{real}/file"), ("r", f"{real}/roost/harmless")}
    assert job_view.find_grants([str(tmp_path / "spool"), "/no/such"], [str(url)], private) == ()


FOUND = {"root": False, "closed_to_others": "", "landlock": 7, "landlock_wanted": True, "needed": 6, "sockets": ()}
NOTHING = {
    "no Landlock": ({"landlock": 0}, "no Landlock"),
    "an old Landlock": ({"landlock": 5}, "Landlock of version 5"),
    "Landlock switched off": ({"landlock_wanted": False}, "ROOST_LANDLOCK is false"),
    "an engine's socket": ({"sockets": ("/run/docker.sock",)}, "/run/docker.sock"),
    "root's own directory": ({"root": True, "closed_to_others": "/root"}, "/root"),
}


@spec("ISO-17", "ISO-19")
@pytest.mark.parametrize("why", NOTHING)
def test_where_nothing_separates_them_only_own_users_and_containers_are_taken(why):
    found, reason = NOTHING[why]
    here = find_separation(**(FOUND | found))
    assert here.by == ""
    assert reason in separation.refusal(here, (), "alice@pool")
    assert separation.refusal(here, ("me@pool",), "me@pool") == ""
    assert separation.refusal(here, ("*",), "alice@pool") == ""
    assert reason in separation.refusal(here, ("me@pool",), "me@elsewhere")
    assert reason in separation.refusal(here, ("me@pool",), "")
    ad = ClassAd(separation.attributes(here, ("me@pool",), "TARGET.Boxed"))
    assert reason in ad.eval_string("ProcessJobsReason")

    def takes(**job):
        return evaluate(ad["WithinSeparation"], ad, ClassAd({"User": "alice@pool", "JobUniverse": 5} | job)) is True

    assert not takes()
    assert takes(User="me@pool")
    assert takes(WantDocker=True)
    assert takes(WantContainer=True)
    assert takes(ContainerImage="x.sif")
    assert takes(JobUniverse=13)
    assert takes(Boxed=True)
    assert not takes(WantDocker=False, Boxed=False)
    assert separation.attributes(here, ("*",), "false") == {}


def test_where_something_does_all_are_taken():
    for found in ({}, {"root": True, "landlock": 0}):
        here = find_separation(**(FOUND | found))
        assert here.by
        assert separation.refusal(here, (), "alice@pool") == ""
        assert separation.attributes(here, (), "false") == {}


# ---------------------------------------------------------------- where nothing separates jobs


#: Runs as a startd whose account may connect to an engine's socket (a plain one that listens is enough to be counted).
UNSEPARATED = """
import asyncio, json, os, socket, sys
from pathlib import Path
from services.startd.isolation import manager
from tests.integration.isolated_pool import IsolatedPool

async def main():
    place, knobs = Path(sys.argv[1]), json.loads(sys.argv[2])
    engine = socket.socket(socket.AF_UNIX)

    def listen():
        engine.bind(str(place / "engine.sock"))
        engine.listen()

    late = bool(knobs.pop("late", False))
    if late:
        manager.LOOK_S = float("inf")  # slots say whose jobs they take by what was so at some time
    else:
        listen()
    os.environ["DOCKER_HOST"] = f"unix://{place}/engine.sock"
    async with IsolatedPool(place / "pool", **knobs) as pool:
        ad = pool.startd.shared.runs.machine_ad("slot1@node1")
        if late:
            listen()
        answer = await pool.pool.call(pool.pool.request(pool.pool.activation(cmd="/bin/true")))
        told = {"reason": ad.eval_string("ProcessJobsReason"), "answer": str(answer)}
        if answer.type == "claim.granted":
            report = await pool.pool.schedd.end_of("1.0")
            told["end"] = f"{report.exit.reason} {report.exit.exit_code} {report.exit.message}"
        print(json.dumps(told))
    engine.close()

asyncio.run(main())
"""


async def unseparated(place: Path, **knobs):
    shutil.chown(place, NOBODY, NOBODY)
    ids = [f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
    process = await asyncio.create_subprocess_exec(
        *("setpriv", *ids, "--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search"),
        *(sys.executable, "-B", "-c", UNSEPARATED, str(place), json.dumps(knobs)),
        cwd=place,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    out, err = await asyncio.wait_for(process.communicate(), 240)
    assert process.returncode == 0, err.decode()[-3000:]
    return json.loads(out.decode().splitlines()[-1])


@spec("ISO-19")
async def test_a_startd_that_holds_an_engines_socket_takes_no_process_jobs():
    with open_directory("/var/lib") as place:
        told = await unseparated(place)
    assert "engine.sock" in told["reason"]
    assert "jobs in containers only" in told["reason"]
    assert "Requirements" in told["answer"]
    assert "end" not in told


@needs_landlock
@spec("ISO-19")
async def test_nor_starts_one_that_a_slot_took_before():
    """Slots look every few seconds, and a job's input may take long to come: each start looks for itself."""
    with open_directory("/var/lib") as place:
        told = await unseparated(place, late=True)
    assert told["reason"] == ""
    assert "exited" not in told["end"]
    assert "engine.sock" in told["end"]


@spec("ISO-17")
@pytest.mark.parametrize(
    "knobs", [{"ROOST_LANDLOCK": "false"}, {"ROOST_LANDLOCK": "false", "ROOST_OWN_USERS": "bob@pool"}]
)
async def test_without_landlock_and_root_the_jobs_of_others_are_refused(knobs):
    with open_directory("/var/lib") as place:
        told = await unseparated(place, **knobs)
    assert "ROOST_LANDLOCK is false" in told["reason"]
    assert "end" not in told


@spec("ISO-17")
@pytest.mark.parametrize("users", ["alice@pool", "*"])
async def test_and_those_of_own_users_run(users):
    with open_directory("/var/lib") as place:
        told = await unseparated(place, ROOST_LANDLOCK="false", ROOST_OWN_USERS=users)
    assert told["end"] == "exited 0 "


@spec("ISO-20")
async def test_in_roots_own_pool_the_jobs_of_others_are_not_roots():
    with open_directory() as place:
        async with IsolatedPool(place, ROOST_OWN_USERS="root@pool") as pool:
            uids = [
                (await pool.run("id -u", User=user, Owner="root"))[1].strip()
                for user in ("root@pool", "alice@pool", "root@evil.example")
            ]
    assert uids == ["0", str(NOBODY), str(NOBODY)]


@spec("ISO-20")
async def test_where_only_root_can_enter_the_jobs_of_others_are_refused():
    """As `roost up` makes root's own pool."""
    with open_directory() as place:
        place.chmod(0o700)
        async with IsolatedPool(place, ROOST_OWN_USERS="root@pool") as pool:
            ad = pool.startd.shared.runs.machine_ad("slot1@node1")
            assert f"can not enter {place}" in ad.eval_string("ProcessJobsReason")
            answer = await pool.pool.call(pool.pool.request(pool.pool.activation(cmd="/bin/true")))
            assert "Requirements" in str(answer)
            own = pool.pool.activation(cmd="/bin/sh", User="root@pool", Owner="root")
            assert (await pool.pool.call(pool.pool.request(own))).type == "claim.granted"
            assert (await pool.pool.schedd.end_of(own.job_id)).exit.exit_code == 0


def test_a_personal_pool_is_its_users_own(tmp_path, monkeypatch):
    monkeypatch.delenv("CONDOR_CONFIG", raising=False)
    (tmp_path / "config").touch()

    def own(**knobs):
        return PersonalPool(Plan(tmp_path, knobs=knobs)).config("STARTD").get("ROOST_OWN_USERS")

    # After `su` the environment still has the name of who called it: he is not root for that.
    monkeypatch.setenv("LOGNAME", "alice")
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert own(UID_DOMAIN="here") == "root@here"
    assert own(UID_DOMAIN="here", ROOST_TOKEN_USER="alice@here") == "root@here"
    monkeypatch.undo()
    monkeypatch.delenv("CONDOR_CONFIG", raising=False)
    monkeypatch.setattr(os, "geteuid", lambda: NOBODY)
    assert own(UID_DOMAIN="here", ROOST_TOKEN_USER="bob") == "nobody@here, bob@here"
    assert not own(ROOST_OWN_USERS="")
    assert not own(ROOST_JOBS_AS_ROOT="false")


# ---------------------------------------------------------------- how many processes


FORKS = """
made = 0
import os, sys, time
for _ in range(int(sys.argv[1])):
    try:
        if os.fork() == 0:
            time.sleep(60)
            os._exit(0)
        made += 1
    except OSError:
        break
print(made)
"""

FORKING = """
import asyncio, sys
from pathlib import Path
from tests.integration.isolated_pool import IsolatedPool

async def main():
    async with IsolatedPool(Path(sys.argv[1]) / "pool", ROOST_JOB_MAX_PROCESSES="60", BASE_CGROUP="") as pool:
        print((await pool.run(f"exec /usr/bin/python3 forks.py {sys.argv[2]}", {"forks.py": FORKS}))[1].strip())

asyncio.run(main())
"""


@spec("ISO-18")
@pytest.mark.parametrize("user", [0, 12345], ids=["root", "plain account"])
async def test_a_fork_bomb_ends_at_a_limit_without_cgroups_too(user):
    """The kernel counts all threads of the account; what the machine has of others is given on top."""
    with open_directory("/var/lib") as place:
        shutil.chown(place, user, user)
        wanted = host_capabilities.threads() + 400
        ids = [f"--reuid={user}", f"--regid={user}", "--clear-groups"] if user else []
        rights = ["--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search"] if user else []
        process = await asyncio.create_subprocess_exec(
            *(*(("setpriv", *ids, *rights) if user else ()), sys.executable, "-B", "-c"),
            *(f"FORKS = {FORKS!r}\n{FORKING}", str(place), str(wanted)),
            cwd=place,
            env=os.environ | {"PYTHONPATH": str(ROOT)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        out, err = await asyncio.wait_for(process.communicate(), 240)
    assert process.returncode == 0, err.decode()[-3000:]
    assert 30 < int(out.decode().splitlines()[-1]) < wanted
