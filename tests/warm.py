"""Daemons and commands as processes of their own, without reading a thousand modules for each of them.

Half a second to three of processor time go by until a fresh interpreter has read what a daemon imports, and the suites
start some thousand. So one process for a whole session of tests reads all of it, once somebody needs it, and forks
itself for each worker, and that into whatever
`python -m services.<daemon>` or `python -m roost` a test starts: with the environment, directory, standard files and
process group that a fresh interpreter would have, and its end. What runs is a process like any other, to be killed,
frozen and looked at, except that its command line is this program's.

Only pytest's sessions do this (tests/conftest.py): benchmarks measure what starts as it does for users.

Interpreters that are started with a setting of their own (`PYTHON...`, a locale), or to run anything else, are fresh
ones: `takes` tells. tests/infrastructure/test_warm.py starts every daemon in a fresh one.
"""

import atexit
import contextlib
import gc
import importlib
import io
import marshal
import os
import pkgutil
import runpy
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests import leash
from tests.waiting import stretch

ROOT = Path(__file__).parents[1]
PACKAGES = ("services", "roost", "shared.daemon")
#: Read by the interpreter or by libraries as they start, so what the warm process began with counts.
EARLY = ("PYTHON", "LC_", "LANG", "LD_", "MALLOC_", "OPENBLAS_", "OMP_", "GLIBC_")
#: Environment variable: the socket of a warm process for all that the one who set it begins.
SHARED = "ROOST_TEST_WARM"
OURS = ("services", "roost", "shared", "bench")
_STANDARD = 3
#: The command `roost` for shells and other programs: hands its surroundings and files to the process that is forked for
#: it, passes signals on, and ends as that does. Where something else is set early, a fresh interpreter takes over.
PROGRAM = """\
#!{python} -IS
import marshal, os, signal, sys
import _socket

env = dict(os.environ)
early = {{name: text for name, text in env.items() if name.startswith({early!r}) and name != "PYTHONPATH"}}
try:
    server = _socket.socket(_socket.AF_UNIX)
    server.connect({socket!r})
except OSError:
    early = None
if early != {surroundings!r} or env.get("PYTHONPATH", "") not in ("", {root!r}):
    os.execv({python!r}, [{python!r}, "-m", "roost", *sys.argv[1:]])
umask = os.umask(0)
os.umask(umask)
said, says = os.pipe()
request = dict(umask=umask, command=["roost", *sys.argv[1:]], env=env, cwd=os.getcwd())
body = marshal.dumps(request)
files = b"".join(number.to_bytes(4, sys.byteorder) for number in (0, 1, 2, says))
server.sendmsg([len(body).to_bytes(4, "big")], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, files)])
server.sendall(body)
os.close(says)
answers = open(said, "rb", buffering=0)
pid = int(answers.readline())
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
    signal.signal(number, lambda number, _: os.kill(pid, number))
status = int(answers.readline())
if status < 0:
    signal.signal(-status, signal.SIG_DFL)
    os.kill(os.getpid(), -status)
sys.exit(status)
"""


def _early(env: Mapping[str, str]) -> dict[str, str]:
    return {name: text for name, text in env.items() if name.startswith(EARLY) and name != "PYTHONPATH"}


class _Warm:
    """The process that is forked, seen from the tests. Made for the first that needs it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._control: socket.socket | None = None
        self._surroundings: dict[str, str] = {}
        self._owner = 0
        self._used = False
        self._shared = ""
        self._programs: Path | None = None

    def use(self) -> None:
        """From now on commands are forked where they can be: where they are to begin as an interpreter would now.

        The test that starts the first may have set a locale or a path for itself, so what counts is read here.
        """
        self._used = True
        self._shared = os.environ.pop(SHARED, "")  # no business of what tests start
        self._surroundings = {name: text for name, text in os.environ.items() if name != "PYTHONPATH"}

    def alone(self) -> None:
        """Not of the process that all workers share: what is forked is this one's descendant."""
        self._shared = ""

    def takes(self, command: Sequence[str], env: Mapping[str, str] | None) -> bool:
        if not self._used or list(command[:2]) != [sys.executable, "-m"] or command[2].partition(".")[0] not in OURS:
            return False
        surroundings = os.environ if env is None else env
        return _early(surroundings) == _early(self._surroundings) and surroundings.get("PYTHONPATH", "") in (
            "",
            str(ROOT),
        )

    def share(self) -> None:
        """One process for all workers that this one begins from now on. It ends with this one."""
        directory = tempfile.mkdtemp(prefix="roost-warm-")  # nobody else's: what asks there runs as who runs the tests
        path = f"{directory}/socket"
        atexit.register(shutil.rmtree, directory, ignore_errors=True)
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(path)
            listener.listen(64)
            self._start(listener)
        os.environ[SHARED] = path

    def _start(self, *files: socket.socket) -> socket.socket:
        """Begin a process with these files; it ends when what is returned is closed, at the latest with this one."""
        ours, its = socket.socketpair()
        numbers = [file.fileno() for file in (its, *files)]
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.warm", *map(str, numbers)],
            cwd=ROOT,
            env=self._surroundings,
            stdin=subprocess.DEVNULL,
            pass_fds=numbers,
            start_new_session=True,
        )
        its.close()

        def end() -> None:
            ours.close()
            process.wait()

        atexit.register(end)
        return ours

    def _begin(self) -> None:
        with self._lock:
            if self._control is not None and self._owner == os.getpid():
                return
            if self._shared:
                self._control = socket.socket(socket.AF_UNIX)
                atexit.register(self._control.close)
                self._control.connect(self._shared)
            else:
                self._control = self._start()
            self._owner = os.getpid()

    def ask(self, files: Sequence[int], **request: Any) -> None:
        """Have it fork. files: descriptors that become the new process's standard files, and more."""
        body = marshal.dumps({"umask": _umask(), **request})
        self._begin()
        with self._lock:
            assert self._control is not None
            socket.send_fds(self._control, [len(body).to_bytes(4, "big")], list(files))
            self._control.sendall(body)

    def programs(self) -> Path:
        """A directory for PATH in which `roost` is forked too."""
        if not self._used:
            return Path(sys.executable).parent
        if self._programs is None or self._owner != os.getpid():
            directory = Path(tempfile.mkdtemp(prefix="roost-warm-"))
            atexit.register(shutil.rmtree, directory, ignore_errors=True)
            words = {"python": sys.executable, "early": EARLY, "surroundings": _early(self._surroundings)}
            words["root"] = str(ROOT)
            program = directory / "bin" / "roost"
            program.parent.mkdir()
            program.write_text(PROGRAM.format(socket=str(directory / "socket"), **words))
            program.chmod(0o755)
            with socket.socket(socket.AF_UNIX) as listener:
                listener.bind(str(directory / "socket"))
                listener.listen(64)
                self.ask([listener.fileno()], listen=True)
            self._programs = program.parent
        return self._programs


def _umask() -> int:
    status = Path("/proc/self/status").read_text()
    return int(status.partition("Umask:")[2].split()[0], 8)


_warm = _Warm()
use, takes, share, alone, programs = _warm.use, _warm.takes, _warm.share, _warm.alone, _warm.programs


def _place(env: Mapping[str, str] | None, cwd: str | os.PathLike[str] | None) -> dict[str, Any]:
    return {"env": dict(os.environ if env is None else env), "cwd": os.path.abspath(cwd or os.getcwd())}


def leashed(
    command: Sequence[str],
    directory: str,
    log: str | os.PathLike[str],
    env: Mapping[str, str] | None,
    cwd: str | os.PathLike[str] | None,
) -> tuple[io.FileIO, io.FileIO]:
    """Start a command that `takes` on a leash: the leash's standard input and output (leash.py)."""
    its_input, our_end = os.pipe()
    our_output, its_output = os.pipe()
    try:
        words = {"directory": directory, "log": os.path.abspath(log)}
        _warm.ask([its_input, its_output], leash=words, command=list(command[2:]), **_place(env, cwd))
    finally:
        os.close(its_input)
        os.close(its_output)
    return io.FileIO(our_end, "w"), io.FileIO(our_output, "r")


def run(
    command: Sequence[str],
    *,
    env: Mapping[str, str] | None = None,
    cwd: str | os.PathLike[str] | None = None,
    input: str = "",
    timeout: float | None = None,
    check: bool = False,
) -> subprocess.CompletedProcess[str]:
    """What subprocess.run does with capture_output and text. timeout: where others have the machine, in proportion."""
    timeout = None if timeout is None else timeout * stretch()
    if not takes(command, env):
        return subprocess.run(
            command, env=env, cwd=cwd, input=input, timeout=timeout, check=check, capture_output=True, text=True
        )
    with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        given.write(input.encode())
        given.seek(0)
        said, says = os.pipe()
        with os.fdopen(said, "rb", buffering=0) as answers:
            try:
                files = [given.fileno(), out.fileno(), err.fileno(), says]
                _warm.ask(files, command=list(command[2:]), **_place(env, cwd))
            finally:
                os.close(says)
            pid = int(_line(answers, None))
            try:
                status = int(_line(answers, timeout))
            except BaseException:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                raise
        texts = []
        for file in (out, err):
            file.seek(0)
            texts.append(io.TextIOWrapper(io.BytesIO(file.read())).read())
    done = subprocess.CompletedProcess(command, status, *texts)
    if check:
        done.check_returncode()
    return done


def _line(file: io.FileIO, timeout: float | None) -> bytes:
    if not select.select([file], [], [], timeout)[0]:
        raise subprocess.TimeoutExpired("a command of python", timeout or 0)
    return file.readline()


# From here on: the process that is forked.


def _modules() -> list[str]:
    """All that daemons and commands may import, but for what runs as it is imported, and what takes an extra."""
    names = []
    for package in PACKAGES:
        path = [str(ROOT / package.replace(".", "/"))]
        names += [package, *(found.name for found in pkgutil.walk_packages(path, f"{package}."))]
    return [name for name in names if not name.endswith("__main__") and name not in EXTRAS]


def _receive(control: socket.socket) -> tuple[dict[str, Any], list[int]] | None:
    header, files, _, _ = socket.recv_fds(control, 4, 8)
    if not header:
        return None
    while len(header) < 4:
        header += control.recv(4 - len(header))
    body = b""
    while len(body) < int.from_bytes(header, "big"):
        body += control.recv(int.from_bytes(header, "big") - len(body))
    return marshal.loads(body), files


def _serve(control: socket.socket) -> dict[str, Any] | None:
    """Fork for each request, until nobody can make any. Returns in the forked process: what it is to run."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # whoever is forked is nobody's concern here
    listeners: list[socket.socket] = []
    while True:
        for ready in select.select([control, *listeners], [], [])[0]:
            if ready is not control:  # a program asks, which says what it wants once it is alone with its fork
                asking, _ = ready.accept()
            elif (received := _receive(control)) is None:
                return None
            elif "listen" in received[0]:
                listeners += [socket.socket(fileno=file) for file in received[1]]
                continue
            else:
                asking = None
            if os.fork() == 0:
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                control.detach()
                for listener in listeners:
                    listener.detach()
                wanted = received if asking is None else _receive(asking)
                return None if wanted is None else _become(*wanted)
            if asking is not None:
                asking.close()
            else:
                for file in received[1]:
                    os.close(file)


def _become(request: dict[str, Any], files: list[int]) -> dict[str, Any]:
    os.umask(request["umask"])
    if "leash" in request:
        os.setsid()
        for place, file in enumerate(files):
            os.dup2(file, place)
        os.closerange(_STANDARD, 1024)
        if leash.hold(request["leash"]["directory"], request["leash"]["log"], lambda output: _forked(output)):
            return request
        os._exit(0)
    *standard, says = files
    pid = os.fork()
    if pid:
        with contextlib.suppress(BrokenPipeError):  # whoever asked has gone
            os.write(says, b"%d\n" % pid)
            os.write(says, b"%d\n" % os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
        os._exit(0)
    for place, file in enumerate(standard):
        os.dup2(file, place)
    os.closerange(_STANDARD, 1024)
    return request


def _forked(output: int) -> int:
    """What a leash holds: the pid, and 0 in the process itself, which has a session and standard files of its own."""
    pid = os.fork()
    if pid == 0:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.setsid()
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(output, 1)
        os.dup2(output, 2)
        os.closerange(_STANDARD, 1024)
    return pid


def _run(request: dict[str, Any]) -> None:
    """As `python -m` does it, up to where the module returns or raises."""
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["env"])
    time.tzset()
    search = [request["cwd"], *filter(None, request["env"].get("PYTHONPATH", "").split(os.pathsep))]
    sys.path[:1] = search  # the first was the directory that the warm process began in
    encoding = sys.stdout.encoding
    sys.stdin = sys.__stdin__ = open(0, encoding=encoding, closefd=False)  # noqa: SIM115
    sys.stdout = sys.__stdout__ = open(1, "w", encoding=encoding, closefd=False)  # noqa: SIM115
    sys.stderr = sys.__stderr__ = open(2, "w", encoding=encoding, errors="backslashreplace", closefd=False)  # noqa: SIM115
    at_once = bool(os.environ.get("PYTHONUNBUFFERED"))
    sys.stdout.reconfigure(write_through=at_once)
    sys.stderr.reconfigure(write_through=at_once, line_buffering=not at_once)
    module, *sys.argv[1:] = request["command"]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def _shared(owner: socket.socket, listener: socket.socket) -> socket.socket | None:
    """Fork for each that connects, until the owner has gone. Returns in the forked process: whom it serves."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    warm = False
    while owner not in select.select([owner, listener], [], [])[0]:
        control, _ = listener.accept()
        if not warm:
            _read_all()
            warm = True
        if os.fork() == 0:
            owner.close()
            listener.close()
            return control
        control.close()
    return None


#: What imports packages that only an extra of the distribution has.
EXTRAS = ("roost.dask", "roost.dask_worker")
#: What daemons import in the middle of their work.
LATER = (
    *("anyio._backends._asyncio", "encodings.idna", "numpy.ma", "uvicorn.loops.auto", "uvicorn.protocols.http.auto"),
    *("uvicorn.lifespan.on", "uvicorn.protocols.websockets.websockets_sansio_impl", "uvloop", "websockets.server"),
)


def _read_all() -> None:
    """What is the same in all that is forked is done before: modules, and tables of knobs that are made once."""
    for name in (*_modules(), *LATER):
        importlib.import_module(name)
    from shared.config import effects

    effects.place("")
    gc.collect()
    gc.freeze()


def main() -> dict[str, Any] | None:
    control, *listener = (socket.socket(fileno=int(number)) for number in sys.argv[1:])
    if not listener:
        _read_all()
        return _serve(control)
    client = _shared(control, *listener)
    return None if client is None else _serve(client)


def _end(error: BaseException | None) -> None:
    """End as an interpreter does, except that it does not take all modules apart: they are shared with the others."""
    status = 0
    if isinstance(error, SystemExit):
        status = error.code if isinstance(error.code, int) else int(error.code is not None)
        if error.code is not None and not isinstance(error.code, int):
            print(error.code, file=sys.stderr)
    elif error is not None:
        sys.excepthook(type(error), error, error.__traceback__)
        status = 1
    threading._shutdown()
    atexit._run_exitfuncs()
    for file in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError):
            file.flush()
    if isinstance(error, KeyboardInterrupt):
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    os._exit(status & 0xFF)


if __name__ == "__main__":
    if (wanted := main()) is not None:
        ended: BaseException | None = None
        try:
            _run(wanted)
        except BaseException as raised:
            ended = raised
        _end(ended)
