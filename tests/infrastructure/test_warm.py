"""A command that is forked from the warm process is what a fresh interpreter makes of it (tests/warm.py)."""

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests import warm
from tests.servers import Leashed
from tests.waiting import PATIENCE_S, wait_until

DAEMONS = sorted(path.parent.name for path in Path("services").glob("*/__main__.py"))
#: What a process says of itself.
TELL = """
import json, os, signal, sys, time
print(json.dumps({
    "words": sys.argv[1:], "name": __name__, "main": sys.modules["__main__"].__file__ == __file__,
    "environment": dict(os.environ), "directory": os.getcwd(), "search": sys.path, "zone": time.tzname,
    "umask": os.umask(0), "files": sorted(os.listdir("/proc/self/fd"))[:3], "open": len(os.listdir("/proc/self/fd")),
    "leader": os.getsid(0) == os.getpid(), "handled": str(signal.getsignal(signal.SIGCHLD)),
    "encoding": [sys.stdin.encoding, sys.stdout.encoding, sys.stderr.encoding, sys.stderr.errors],
    "buffered": [sys.stdout.line_buffering, sys.stderr.line_buffering],
    "given": sys.stdin.read(),
}))
"""


@pytest.fixture(autouse=True)
def no_modules_from_elsewhere(monkeypatch):
    """Who has others by PYTHONPATH gets a fresh interpreter."""
    monkeypatch.delenv("PYTHONPATH", raising=False)


@pytest.fixture
def roost_of_the_test(tmp_path, monkeypatch):
    """A module `bench.tell` cannot be had from here, so the test's directory goes before."""
    (tmp_path / "tell.py").write_text(TELL)
    monkeypatch.setattr(warm, "OURS", (*warm.OURS, "tell"))
    return tmp_path


def both(*words, **more):
    """The same in a fresh interpreter and forked."""
    command = [sys.executable, "-m", *words]
    fresh = subprocess.run(command, capture_output=True, text=True, check=False, **more)
    assert warm.takes(command, more.get("env"))
    return fresh, warm.run(command, **more)


def test_it_is_given_what_a_fresh_interpreter_is_given(roost_of_the_test):
    env = {**os.environ, "TZ": "Asia/Tokyo", "MARK": "ä"}
    fresh, forked = both("tell", "a", "b c", cwd=roost_of_the_test, env=env, input="some\nlines")
    assert json.loads(forked.stdout) == json.loads(fresh.stdout)
    assert forked.stderr == fresh.stderr == ""


@pytest.mark.parametrize(
    "end",
    [
        "sys.exit(3)",
        "sys.exit('why')",
        "sys.exit()",
        "raise ValueError('no')",
        "os.kill(os.getpid(), 9)",
        "raise KeyboardInterrupt",
        "os._exit(300 & 255)",
        "import atexit; atexit.register(print, 'at the end'); print('before')",
        "import threading, time; threading.Thread(target=lambda: (time.sleep(0.01), print('waited for'))).start()",
    ],
)
def test_it_ends_as_a_fresh_interpreter_does(roost_of_the_test, end):
    (roost_of_the_test / "tell.py").write_text(f"import os, sys\n{end}\n")
    fresh, forked = both("tell", cwd=roost_of_the_test, env=dict(os.environ), input="")
    assert (forked.returncode, forked.stdout) == (fresh.returncode, fresh.stdout)
    assert forked.stderr.splitlines()[-1:] == fresh.stderr.splitlines()[-1:]


def test_who_takes_too_long_is_killed(roost_of_the_test):
    (roost_of_the_test / "tell.py").write_text(
        "import os, time\nopen('pid', 'w').write(str(os.getpid()))\ntime.sleep(600)\n"
    )
    with pytest.raises(subprocess.TimeoutExpired):
        warm.run([sys.executable, "-m", "tell"], cwd=roost_of_the_test, timeout=1)
    pid = roost_of_the_test / "pid"
    # Where the machine is so busy that it has not begun, it was killed all the same.
    if pid.exists() and pid.read_text():
        wait_until(lambda: not Path(f"/proc/{pid.read_text()}").exists(), what="its end")


def test_on_a_leash_it_leads_a_session_and_is_ended_with_all_that_it_started(roost_of_the_test):
    (roost_of_the_test / "tell.py").write_text(
        TELL.replace("sys.stdin.read()", "[os.spawnlp(os.P_NOWAIT, 'setsid', 'setsid', 'sleep', '600')]")
        + "sys.stdout.flush(); time.sleep(600)\n"
    )
    log = roost_of_the_test / "log"
    process = Leashed([sys.executable, "-m", "tell"], log=log, cwd=roost_of_the_test)
    wait_until(lambda: log.read_text().endswith("\n"), what="what it says")
    told = json.loads(log.read_text())
    assert (told["leader"], told["files"], told["handled"]) == (True, ["0", "1", "2"], str(signal.SIG_DFL))
    assert os.getsid(process.pid) == process.pid
    process.freeze()
    process.thaw()
    (child,) = told["given"]
    process.kill()
    assert process.returncode == 128 + signal.SIGKILL
    process.close()
    assert not Path(f"/proc/{process.pid}").exists()
    assert not Path(f"/proc/{child}").exists()


def test_roost_of_a_shell_is_forked_too_and_says_the_same(tmp_path):
    env = {**os.environ, "PATH": f"{warm.programs()}:{os.environ['PATH']}", "ROOST_POOL_DIR": str(tmp_path / "none")}
    text = "roost version; echo 'executable = a b' | roost submit -dry-run - - | grep ^Cmd; roost 'a b' 2>&1; echo $?"
    forked, fresh = (
        subprocess.run(
            ["sh", "-c", text], env={**env, **more}, cwd=tmp_path, capture_output=True, text=True, check=True
        )
        for more in ({}, {"PYTHONUTF8": "1"})
    )
    assert (forked.stdout, forked.stderr) == (fresh.stdout, fresh.stderr)
    assert "unknown command 'a b'" in forked.stdout
    assert forked.stdout.endswith("\n1\n")


def test_who_ends_roost_ends_what_was_forked(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        env = {**os.environ, "ROOST_URL": url, "ROOST_TOKEN": "t", "ROOST_POOL_DIR": str(tmp_path)}
        asking = subprocess.Popen([warm.programs() / "roost", "q"], env=env)
        silent.settimeout(PATIENCE_S)
        connection, _ = silent.accept()
        asking.terminate()
        assert asking.wait(PATIENCE_S) == -signal.SIGTERM
        with connection:
            connection.settimeout(PATIENCE_S)
            while connection.recv(4096):
                pass  # what it asked, and its end


@pytest.mark.parametrize("env", [{"PYTHONUTF8": "1"}, {"LC_ALL": "C"}, {"PYTHONPATH": "/elsewhere"}])
def test_an_interpreter_with_a_setting_of_its_own_is_a_fresh_one(env):
    command = [sys.executable, "-m", "roost"]
    assert warm.takes(command, dict(os.environ))
    assert not warm.takes(command, {**os.environ, **env})
    assert not warm.takes([sys.executable, "-B", "-m", "roost"], dict(os.environ))


def test_a_test_with_a_setting_of_its_own_does_not_decide_for_those_after_it(monkeypatch):
    """The first that starts anything may be one of those."""
    command = [sys.executable, "-m", "roost"]
    process = warm._Warm()
    process.use()
    with monkeypatch.context() as meanwhile:
        meanwhile.setenv("PYTHONHASHSEED", "7")
        assert not process.takes(command, None)
    assert process.takes(command, None)


#: What Roost stands on, and takes longest to read.
STOOD_ON = "aio_pika aiohttp.web cryptography.x509 docker fastapi jwt numpy pydantic redis.asyncio sqlalchemy uvicorn"
#: Begins each of some modules in a process of its own, where nothing but that has been imported.
BEGIN = """
import gc, os, runpy, sys
gc.disable()  # nothing of what is read here is garbage
stood_on, *modules = sys.argv[1:]
for name in stood_on.split():
    __import__(name)
assert not {"engine", "roost", "services", "shared"} & {name.partition(".")[0] for name in sys.modules}
for module in modules:
    if not os.fork():
        sys.argv[1:] = ["-h"]
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    if os.wait()[1]:
        sys.exit(f"{module} failed")
"""


def test_every_daemon_and_the_command_begin_without_anybody_elses_imports():
    """Each for itself. What Roost stands on is read once, as that is most of what a fresh interpreter does; the compose
    pool's daemons begin with nothing at all."""
    modules = [*(f"services.{name}" for name in DAEMONS), "roost"]
    assert len(modules) >= 13
    command = [sys.executable, "-c", BEGIN, STOOD_ON, *modules]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # pytest's timeout ends it, too
    assert done.returncode == 0, done.stderr
    begun = [line for line in done.stdout.splitlines() if line.startswith("usage: ")]
    assert begun[:-1] == [line for line in begun if line.startswith("usage: python -m services.")]
    assert len(begun) == len(modules), done.stdout


#: Runs a command in each of two processes that it begins, as workers of pytest-xdist would, and says whose children
#: the commands were.
WORKERS = """
import os, subprocess, sys
from tests import warm
if sys.argv[1:] == ["worker"]:
    warm.OURS = (*warm.OURS, "tell")
    warm.use()
    assert warm.SHARED not in os.environ
    print(warm.run([sys.executable, "-m", "tell"], cwd=os.environ["TELL"]).stdout)
else:
    warm.use()
    warm.share()
    command = [sys.executable, "-c", sys.argv[1], "worker"]
    workers = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    print(*(worker.communicate()[0] for worker in workers))
"""


def test_workers_share_one_that_ends_with_who_began_it(tmp_path):
    (tmp_path / "tell.py").write_text(
        "import os, psutil\nprint(*(parent.pid for parent in psutil.Process().parents()[:3]))\n"
    )
    env = {**os.environ, "PYTHONPATH": "", "TELL": str(tmp_path), "TMPDIR": str(tmp_path)}
    command = [sys.executable, "-c", WORKERS, WORKERS]
    done = subprocess.run(command, cwd=warm.ROOT, env=env, capture_output=True, text=True, check=True)
    one, other = (list(map(int, line.split())) for line in done.stdout.splitlines() if line.strip())
    assert one[2] == other[2]  # who forked who forked who forked it
    assert one[1] != other[1]
    assert not Path(f"/proc/{one[2]}").exists()
    assert list(tmp_path.glob("roost-warm-*")) == []
