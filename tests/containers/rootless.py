"""Engines other than Docker of root, each with a startd of the same account that runs jobs on it.

    python -m tests.containers.rootless PLAN.json     (as root, by `Box`)

Rootless engines need an account with ranges of ids, and devices that it may open. Nothing of that is done to the
machine: it is done in a mount namespace, by files over /etc/passwd and /etc/subuid that nobody else sees; and in a PID
namespace, so that nothing is left, whatever end it comes to. What such an engine is asked runs as a process in there.
"""

import contextlib
import importlib
import io
import json
import os
import shutil
import signal
import stat
import subprocess
import sys
import tarfile
import time
from pathlib import Path

from tests.containers.engine import answers
from tests.servers import ServerError
from tests.waiting import too_long

ROOT = Path(__file__).parents[2]
#: An account that is made up, with ids for its containers.
ACCOUNT, UID, FIRST_ID, IDS = "roost-test", 64123, 2_000_000_000, 65_536
IMAGE = "roost-busybox:1"
#: The version of the interface that is spoken: to ask which ones there are takes Podman seconds.
API = "1.41"
#: Of `busybox` or of `busybox-static`: they can not be installed both.
BUSYBOX = "/bin/busybox"
#: The engines start at the same time, each with a data base on a disk that others may keep busy.
START_TIMEOUT_S = 240.0
PATIENCE_S = 500.0
HELP = "Install it (bin/test does), or leave these tests out with --without podman."
NEEDED = ("podman", "runc", "newuidmap", "slirp4netns", "rootlesskit", "dockerd", "docker-init")
DOCKERD_ROOTLESS = Path("/usr/share/docker.io/contrib/dockerd-rootless.sh")
#: Engines, and whether an account has them.
ENGINES = {"podman": False, "rootless podman": True, "rootless docker": True}


def check() -> None:
    """Raises ServerError: what is missing."""
    if os.getuid() != 0:
        raise ServerError(
            "Engines for other accounts are started by root. Run as root, or leave out: --without podman."
        )
    for program in NEEDED:
        if shutil.which(program) is None:
            raise ServerError(f"{program} is not installed. {HELP}")
    if not Path(BUSYBOX).exists() or not DOCKERD_ROOTLESS.exists():
        raise ServerError(
            f"There is no {BUSYBOX}, of busybox or busybox-static, or no {DOCKERD_ROOTLESS} of docker.io. {HELP}"
        )


def run(place: Path, program: str, plans: dict[str, dict]) -> dict[str, dict]:
    """Run a program on each of these engines, with the plan as JSON in its argument: what it printed as JSON last."""
    plan = place / "plan.json"
    plan.write_text(json.dumps({"place": str(place), "program": program, "plans": plans}))
    namespaces = ["unshare", "--mount", "--propagation", "private", "--pid", "--fork", "--kill-child", "--mount-proc"]
    # As on any machine the first process must reap what nobody waits for: Podman waits for the end of its monitors.
    command = [*namespaces, "docker-init", "--"]
    with (place / "log").open("wb") as log:
        done = subprocess.run(
            [*command, sys.executable, "-m", "tests.containers.rootless", str(plan)],
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
            check=False,
            timeout=PATIENCE_S,
        )
    said = (place / "log").read_text(errors="replace")[-6000:]
    if done.returncode:
        raise RuntimeError(f"the engines' box ended with {done.returncode}\n{said}")
    return json.loads(done.stdout)


# ---------------------------------------------------------------- inside of the namespaces


def _mount(*words: str | Path) -> None:
    subprocess.run(["mount", *map(str, words)], check=True, stdout=subprocess.DEVNULL)


def _make_account(place: Path) -> None:
    """As far as this mount namespace goes."""
    lines = {
        "/etc/passwd": f"{ACCOUNT}:x:{UID}:{UID}::{place}/account:/bin/sh\n",
        "/etc/group": f"{ACCOUNT}:x:{UID}:\n",
        "/etc/subuid": f"{ACCOUNT}:{FIRST_ID}:{IDS}\n",
        "/etc/subgid": f"{ACCOUNT}:{FIRST_ID}:{IDS}\n",
    }
    for path, line in lines.items():
        mine = place / path.replace("/", "_")
        there = Path(path).read_text() if Path(path).exists() else ""
        mine.write_text(there + line)
        mine.chmod(0o644)
        Path(path).touch()
        _mount("--bind", mine, path)
    for path, major, minor in (("/dev/net/tun", 10, 200), ("/dev/fuse", 10, 229)):
        device = place / path.replace("/", "_")
        os.mknod(device, stat.S_IFCHR, os.makedev(major, minor))
        device.chmod(0o666)
        _mount("--bind", device, path)


def _environment(place: Path, home: Path, rootless: bool) -> dict[str, str]:
    """Of an engine and of its startd: nothing of this machine's own configuration of engines."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if name in ("PATH", "LANG", "HOME") or name.startswith(("_CONDOR_", "ROOST_"))
    }
    (home / "containers.conf").write_text(
        # Limits below any account's own: a root without CAP_SYS_RESOURCE may raise none.
        '[containers]\ndefault_ulimits = ["nofile=1024:1024", "nproc=1024:1024"]\n'
        '[engine]\nruntime = "runc"\ncgroup_manager = "cgroupfs"\nevents_logger = "file"\n'
    )
    (home / "storage.conf").write_text(
        f'[storage]\ndriver = "overlay"\nrunroot = "{home}/state"\ngraphroot = "{home}/storage"\n'
    )
    own = {"HOME": str(home), "XDG_RUNTIME_DIR": str(home / "run")} if rootless else {}
    conf = {"CONTAINERS_CONF": f"{home}/containers.conf", "CONTAINERS_STORAGE_CONF": f"{home}/storage.conf"}
    return {**kept, **own, **conf, "PATH": f"{kept.get('PATH', '')}:/usr/sbin:/sbin"}


def _as_account(*, read_all: bool) -> list[str]:
    """read_all: a plain account may not read root's interpreter; that much, and no more, it is given."""
    rights = ["--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search"] if read_all else []
    return ["setpriv", f"--reuid={UID}", f"--regid={UID}", "--clear-groups", *rights]


def _libraries() -> list[str]:
    """What the program needs, unless it is linked statically."""
    said = subprocess.run(["ldd", BUSYBOX], capture_output=True, text=True, check=False).stdout
    return [word for line in said.splitlines() for word in line.split() if word.startswith("/")]


def _image() -> bytes:
    """A root file system of one program."""
    buffer = io.BytesIO()
    applets = subprocess.run([BUSYBOX, "--list"], capture_output=True, text=True, check=True).stdout.split()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name in ("bin", "etc", "tmp", "proc", "sys", "dev", "run"):
            folder = tarfile.TarInfo(name)
            folder.type, folder.mode = tarfile.DIRTYPE, 0o1777 if name == "tmp" else 0o755
            archive.addfile(folder)
        archive.add(Path(BUSYBOX).resolve(), "bin/busybox")
        for library in _libraries():
            archive.add(Path(library).resolve(), library.lstrip("/"))
        for name in sorted({*applets} - {"busybox"}):
            link = tarfile.TarInfo(f"bin/{name}")
            link.type, link.linkname = tarfile.SYMTYPE, "busybox"
            archive.addfile(link)
        passwd = b"root:x:0:0:root:/:/bin/sh\n"
        entry = tarfile.TarInfo("etc/passwd")
        entry.size = len(passwd)
        archive.addfile(entry, io.BytesIO(passwd))
    return buffer.getvalue()


class _Engine:
    def __init__(self, name: str, place: Path, image: bytes) -> None:
        self.name = name
        self.rootless = ENGINES[name]
        # Short: Podman clears up behind no container where the path of its state is longer than 50 characters.
        self.home = place / "".join(word[0] for word in name.split())
        (self.home / "run/podman").mkdir(parents=True)
        self.environment = _environment(place, self.home, self.rootless)
        socket = "docker.sock" if name == "rootless docker" else "podman/podman.sock"
        self.url = f"unix://{self.home}/run/{socket}"
        if self.rootless:
            for path in (self.home, *self.home.rglob("*")):
                os.chown(path, UID, UID)
            (self.home / "run").chmod(0o700)
        self._image = image

    def start(self) -> None:
        if self.name == "rootless docker":
            command = ["sh", str(DOCKERD_ROOTLESS), "--data-root", f"{self.home}/docker", "--log-level", "warn"]
        else:
            command = ["podman", "system", "service", "--time=0", self.url]
        as_account = _as_account(read_all=False) if self.rootless else []
        # Podman's monitor leaves files where it was started.
        subprocess.Popen(
            [*as_account, *command],
            cwd=self.home,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=sys.stderr,
            stderr=sys.stderr,
        )

    def make_image(self) -> None:
        import docker

        began = time.monotonic()
        while not answers(self.url):
            if too_long(began, START_TIMEOUT_S):
                raise ServerError(f"{self.name} did not start")
            time.sleep(0.02)
        repository, tag = IMAGE.split(":")
        with contextlib.closing(docker.DockerClient(base_url=self.url, timeout=START_TIMEOUT_S, version=API)) as client:
            said = client.api.import_image_from_data(self._image, repository=repository, tag=tag)
            client.api.tag(json.loads(said.splitlines()[0])["status"], repository, tag)

    def begin(self, program: str, plan: dict) -> "subprocess.Popen[bytes]":
        as_account = _as_account(read_all=True) if self.rootless else []
        mine = self.home / "startd"
        mine.mkdir(mode=0o755)
        if self.rootless:
            os.chown(mine, UID, UID)
        # A rootless engine is to be found; there may be another one of root on this machine, which is none of ours.
        found = {} if self.rootless else {"DOCKER_HOST": self.url}
        return subprocess.Popen(
            [
                *as_account,
                sys.executable,
                "-B",
                "-m",
                program,
                json.dumps(plan | {"place": str(mine), "url": self.url}),
            ],
            cwd=mine,
            env=self.environment | found | {"PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=sys.stderr,
        )


def main(file: str) -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    told = json.loads(Path(file).read_text())
    place = Path(told["place"])
    # What engines mount must come to each other's view, and to nobody's else.
    _mount("--make-rshared", "/")
    _make_account(place)
    image = _image()
    engines = [_Engine(name, place, image) for name in told["plans"]]
    for engine in engines:
        engine.start()
    # Compiled here, while the engines start, and so once: an account can not write that down.
    importlib.import_module(told["program"])
    begun = []
    for engine in engines:
        engine.make_image()
        begun.append(engine.begin(told["program"], told["plans"][engine.name]))
    found = {}
    for engine, process in zip(engines, begun, strict=True):
        out, _ = process.communicate()
        sys.stderr.write(out.decode(errors="replace"))
        if process.returncode:
            raise RuntimeError(f"{engine.name}: {told['program']} ended with {process.returncode}")
        found[engine.name] = json.loads(out.decode().splitlines()[-1])
    print(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1])
