"""HTCondor's own daemons and tools, to be asked about made-up cases: unpacked from Debian's archive, run in a root of
their own (chroot), with two file systems of fixed size and a name of its own for the machine.

Debian 12 has none of them; later suites have. They take root, apt-get and dpkg-deb; where they can not be had, families
go by what was recorded (each family says where that is).
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any, Final

from tests.containers import debian
from tests.reference.asked import Missing

PLACE: Final = Path(f"/var/tmp/roost-reference-daemons-{os.getuid()}")
SUITES: Final = [("trixie",), ("trixie", "sid")]
PACKAGES: Final = ("condor", "bash", "coreutils", "dash", "grep", "sed", "base-files", "perl-base")
#: Free in the file systems that cases name, KiB.
DISKS: Final = {"one": 40_000_000, "two": 10_000_000}
HOST: Final = "refhost.ref"
#: Seconds that a daemon has to say what it made of its configuration, and that a tool may take.
PATIENCE_S: Final = 20.0
#: Where the account of the reference's daemons is.
_PASSWD: Final = "root:x:0:0:root:/root:/bin/sh\ncondor:x:64:64::/var/lib/condor:/bin/sh\n"
_ENTER: Final = """
set -e
mount --make-rprivate /
mount --rbind /proc "$1/proc"
mount --rbind /dev "$1/dev"
mount -t tmpfs -o size=$2k,mode=755 tmpfs "$1/disk/one"
mount -t tmpfs -o size=$3k,mode=755 tmpfs "$1/disk/two"
chown 64:64 "$1/disk/one" "$1/disk/two"
hostname refhost
root=$1
shift 3
exec chroot "$root" "$@"
"""
#: Of every configuration of the unpacked reference; with {libexec}.
PLACES: Final = """
RELEASE_DIR = /usr
LOCAL_DIR = /pool
LOG = /pool/log
SPOOL = /pool/spool
LOCK = /pool/log
RUN = /pool/log
SBIN = /usr/sbin
BIN = /usr/bin
LIBEXEC = {libexec}
CONDOR_HOST = 127.0.0.1
"""
_CONFIG: Final = f"""{PLACES}
EXECUTE = /disk/one
COLLECTOR_HOST = 127.0.0.1:9
NETWORK_INTERFACE = 127.0.0.1
NETWORK_HOSTNAME = refhost.ref
ALLOW_READ = *
ALLOW_WRITE = *
USE_SHARED_PORT = False
USE_PROCD = False
BASE_CGROUP =
RunBenchmarks = False
BENCHMARKS_JOBLIST =
STARTD_ADDRESS_FILE = /pool/log/startd_address
STARTD_PRINT_ADS_ON_SHUTDOWN = True
ENABLE_URL_TRANSFERS = False
FILETRANSFER_PLUGINS =
HIBERNATION_PLUGIN =
DOCKER =
SINGULARITY =
"""
#: What it writes into its log when it ends.
_ENDED: Final = "*** END AD DUMP ***"
_SLOT: Final = re.compile(r"\*\* BEGIN CLASSAD \*\* \S+\n(.*?)^[^\n]*\*\* END CLASSAD \*\*", re.DOTALL | re.MULTILINE)
_ERROR: Final = re.compile(r'ERROR ("[^"]*")')


class Daemons:
    """The unpacked reference. A context manager. Raises Missing.

    alone: others are locked out meanwhile, as `tool` and `slots` use its directories, one case at a time; who uses it
    only by shells with directories of their own (`pool`) does not mind others that do so.
    """

    def __init__(self, *, alone: bool = True) -> None:
        self._alone = alone
        self.root = PLACE / _recipe()
        self._lock: int | None = None

    def __enter__(self) -> Daemons:
        if os.geteuid() != 0:
            raise Missing("the reference's daemons are run in a root of their own, which takes root")
        for program in ("apt-get", "dpkg-deb", "unshare", "chroot"):
            if shutil.which(program) is None:
                raise Missing(f"the reference's daemons are unpacked from Debian's archive, which takes {program}")
        PLACE.mkdir(mode=0o755, exist_ok=True)
        self._lock = os.open(PLACE / "lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        made = (self.root / "ready").exists()
        fcntl.flock(self._lock, fcntl.LOCK_EX if self._alone or not made else fcntl.LOCK_SH)
        if not (self.root / "ready").exists():
            try:
                _make(self.root)
            except RuntimeError as error:
                self.__exit__()
                raise Missing(f"the reference's daemons can not be had: {error}") from error
        if not self._alone:
            fcntl.flock(self._lock, fcntl.LOCK_SH)
        return self

    def __exit__(self, *_: object) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def version(self) -> str:
        return self.tool(["condor_version"]).stdout.splitlines()[0]

    def tool(self, command: list[str], files: dict[str, bytes] | None = None) -> subprocess.CompletedProcess[str]:
        """What one of its tools prints. files: in its directory, by name."""
        work = self.root / "work"
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir()
        for name, content in (files or {}).items():
            (work / name).parent.mkdir(parents=True, exist_ok=True)
            (work / name).write_bytes(content)
        self._configure([])
        line = ["sh", "-c", 'cd /work && exec "$@"', "sh", *command]
        try:
            return subprocess.run(
                self._entered(line),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="surrogateescape",
                timeout=PATIENCE_S,
                env=environment(),
                check=False,
            )
        except subprocess.TimeoutExpired:
            return subprocess.CompletedProcess(command, 124, "", "")

    def slots(self, config: list[str], outputs: dict[str, str]) -> list[dict[str, str]] | str | None:
        """The ads of a startd's slots by this configuration, attributes as texts; or why it refuses it; or None where
        it says neither. outputs: what programs in LOCAL_DIR print, by their names."""
        self._configure(config)
        for name, text in outputs.items():
            program = self.root / "pool" / name
            program.write_text(f"#!/bin/sh\ncat <<'END'\n{text}END\n")
            program.chmod(0o755)
        log, address = self.root / "pool/log/StartLog", self.root / "pool/log/startd_address"
        process = subprocess.Popen(
            self._entered(["/usr/sbin/condor_startd", "-f"]),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=environment(),
        )
        try:
            _until(lambda: address.exists() or process.poll() is not None)
            process.send_signal(signal.SIGTERM)
            process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            return None
        finally:
            process.kill()
            process.wait()
        text = log.read_text(errors="surrogateescape") if log.exists() else ""
        if _ENDED in text:
            return [ad for block in _SLOT.findall(text) if "SlotID" in (ad := _ad(block))]
        error = _ERROR.search(text)
        return f"ERROR {error[1]}" if error is not None else None

    def _configure(self, lines: list[str]) -> None:
        pool = self.root / "pool"
        shutil.rmtree(pool, ignore_errors=True)
        for part in ("log", "spool"):
            (pool / part).mkdir(parents=True)
            os.chown(pool / part, 64, 64)
        (libexec,) = [
            path for path in ("/usr/libexec/condor", "/usr/lib/condor/libexec") if (self.root / path[1:]).is_dir()
        ][:1]
        text = "\n".join([_CONFIG.format(libexec=libexec), *lines]) + "\n"
        (self.root / "pool/condor_config").write_text(text)

    def _entered(self, command: list[str]) -> list[str]:
        sizes = [str(DISKS[name]) for name in ("one", "two")]
        return ["unshare", "--mount", "--uts", "sh", "-c", _ENTER, "sh", str(self.root), *sizes, *command]


def environment() -> dict[str, str]:
    """Of its processes."""
    return {
        "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
        "TZ": "UTC",
        "LANG": "C.UTF-8",
        "CONDOR_CONFIG": "/pool/condor_config",
    }


def _ad(block: str) -> dict[str, str]:
    pairs = (line.split(" = ", 1) for line in block.splitlines() if " = " in line)
    return {name.strip(): value for name, value in pairs}


def _until(condition: Any) -> None:
    end = time.monotonic() + PATIENCE_S
    while not condition() and time.monotonic() < end:
        time.sleep(0.01)


def _recipe() -> str:
    text = Path(__file__).read_text()
    begin = text.index("SUITES: Final"), text.index("#: Free in")
    made = text[text.index("def _make(") :]
    return hashlib.sha256((text[slice(*begin)] + made).encode()).hexdigest()[:12]


def _make(root: Path) -> None:
    for old in PLACE.iterdir():
        if old.is_dir():
            shutil.rmtree(old)
    before = os.umask(0o022)
    try:
        with tempfile.TemporaryDirectory(prefix="roost-reference-") as name:
            debian.unpack(PACKAGES, SUITES, root, Path(name))
    finally:
        os.umask(before)
    for part in ("dev", "proc", "sys", "tmp", "root", "disk/one", "disk/two", "pool", "work", "var/lib/condor"):
        (root / part).mkdir(parents=True, exist_ok=True)
    (root / "tmp").chmod(0o1777)
    (root / "etc/passwd").write_text(_PASSWD)
    (root / "etc/group").write_text("root:x:0:\ncondor:x:64:\n")
    (root / "etc/hosts").write_text("127.0.0.1 refhost.ref refhost localhost\n")
    (root / "etc/nsswitch.conf").write_text("passwd: files\ngroup: files\nhosts: files\n")
    (root / "ready").touch()
