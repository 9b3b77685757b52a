"""A real Apptainer for tests, and images for it, from Debian's archive: nothing is installed, and root is not needed.

Only Debian's sid has Apptainer. Its packages, and the libraries that they want, are unpacked into a directory of
their own; its programs then get that directory's loader and libraries, so the machine's own libc does not matter.
Apptainer finds its configuration by the place of its program, so all of it works from there. No version is named
anywhere: whatever sid has when the directory is made is what tests run.

The directory is readable by everybody, and not below a home, because jobs of other accounts run what is in it.
"""

import contextlib
import fcntl
import hashlib
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from tests.containers import debian
from tests.containers.debian import run, unpack
from tests.servers import ServerError

PLACE = Path(f"/var/tmp/roost-apptainer-{os.getuid()}")
RUNTIME_SUITE, STABLE_SUITE = "sid", "trixie"
RUNTIME = ("apptainer", "squashfuse", "fuse3", "fuse-overlayfs", "patchelf")
#: Programs beside Apptainer's own two that are run from the directory.
HELPERS = ("mksquashfs", "unsquashfs", "squashfuse", "squashfuse_ll", "fusermount3", "fuse-overlayfs")
IMAGE = ("base-files", "bash", "coreutils", "dash", "findutils", "grep", "procps", "python3-minimal", "sed")
LEFT_OUT = ("usr/lib/python3/dist-packages",)
#: Another checkout's is left alone until it was not used for so long, seconds.
UNUSED_S = 86400.0
HELP = "Leave these tests out with --without apptainer."


class Apptainer:
    """program: what SINGULARITY names. env: what it needs to find its helpers (PATH). sandbox: an image, exploded: a
    Debian with a shell, coreutils, procps and python3. sif: the same as one file."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.program = place / "runtime/usr/bin/apptainer"
        self.sandbox = place / "debian"
        self.sif = place / "debian.sif"
        self.env = dict(os.environ, PATH=f"{self.program.parent}:{os.environ.get('PATH', os.defpath)}")

    def __call__(self, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
        """Run it, and say how that went."""
        command = [str(self.program), *map(str, arguments)]
        return subprocess.run(
            command, env=self.env, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
        )

    @classmethod
    def ensure(cls) -> "Apptainer":
        """The one of this recipe, made if it is not there (15 s). ServerError says what is missing for it."""
        place = PLACE / recipe()
        if not (place / "ready").exists():
            for program in ("apt-get", "dpkg-deb"):
                if shutil.which(program) is None:
                    raise ServerError(f"Apptainer for tests is unpacked from Debian's, which takes {program}. {HELP}")
            PLACE.mkdir(mode=0o755, exist_ok=True)
            if PLACE.stat().st_uid != os.getuid():
                raise ServerError(f"{PLACE} belongs to somebody else: remove it. {HELP}")
            with _locked(PLACE / "lock"):
                if not (place / "ready").exists():
                    before = os.umask(0o022)
                    try:
                        _make(place)
                    except RuntimeError as error:
                        raise ServerError(f"Apptainer can not be had: {error}\n{HELP}") from error
                    finally:
                        os.umask(before)
        (place / "ready").touch()  # it is in use: see _make
        return cls(place)


def recipe() -> str:
    """Digest of what says how it is made."""
    return hashlib.sha256(Path(__file__).read_bytes() + Path(debian.__file__).read_bytes()).hexdigest()[:12]


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _make(place: Path) -> None:
    for old in PLACE.iterdir():  # of former recipes, and what a killed session left half done
        ready = old / "ready"
        if old.is_dir() and not (ready.exists() and time.time() - ready.stat().st_mtime < UNUSED_S):
            shutil.rmtree(old)
    runtime, sandbox = place / "runtime", place / "debian"
    with tempfile.TemporaryDirectory(prefix="roost-apptainer-") as name:
        scratch = Path(name)
        # Of sid; where sid is at odds with itself, as it is at times, only what stable Debian lacks.
        suites = [(RUNTIME_SUITE,), (STABLE_SUITE, RUNTIME_SUITE)]
        unpack(RUNTIME, suites, runtime, scratch / "runtime", left_out=LEFT_OUT)
        unpack(IMAGE, [(STABLE_SUITE,)], sandbox, scratch / "image", left_out=LEFT_OUT)
    _settle(runtime)
    _furnish(sandbox)
    made = Apptainer(place)
    done = made("build", "--force", made.sif, made.sandbox)
    if done.returncode:
        raise RuntimeError(f"apptainer build: {done.stderr[-4000:]}")
    made.sif.chmod(0o644)
    (place / "ready").touch()


def _settle(runtime: Path) -> None:
    """Make the unpacked programs work where they are."""
    (starter,) = runtime.glob("usr/lib/*/apptainer/bin/starter")
    libraries = starter.parents[2]
    loader = next(iter((*runtime.glob("usr/lib64/ld-linux*"), *libraries.glob("ld-linux*")))).resolve()
    loaded = (loader, "--library-path", libraries)
    patchelf = (*loaded, runtime / "usr/bin/patchelf")
    for program in (runtime / "usr/bin/apptainer", starter, *(runtime / "usr/bin" / name for name in HELPERS)):
        run(*patchelf, "--set-interpreter", loader, "--force-rpath", "--set-rpath", libraries, program)
    # It looks for /etc and /var beside its programs; the starter, two directories further in, there.
    for beside in (runtime / "usr", runtime / "usr/lib"):
        for part in ("etc", "var"):
            (beside / part).symlink_to(os.path.relpath(runtime / part, beside))
    (runtime / "var/lib/apptainer/mnt/session").mkdir(parents=True, exist_ok=True)
    settings = runtime / "etc/apptainer/apptainer.conf"
    text = settings.read_text()
    # A container's root has not all capabilities, and no systemd: with these, root works there as well.
    for name, value in (("root default capabilities", "no"), ("systemd cgroups", "no")):
        lines = [line for line in text.splitlines() if not line.startswith(f"{name} =")]
        text = "\n".join([*lines, f"{name} = {value}", ""])
    settings.write_text(text)


def _furnish(sandbox: Path) -> None:
    """What the packages' scripts would have made, as far as a job needs it."""
    for part in ("dev", "proc", "sys", "tmp", "var/tmp", "root", "srv", "etc", "opt", "run"):
        (sandbox / part).mkdir(parents=True, exist_ok=True)
    (sandbox / "etc/passwd").write_text("root:x:0:0:root:/root:/bin/bash\nnobody:x:65534:65534::/:/usr/sbin/nologin\n")
    (sandbox / "etc/group").write_text("root:x:0:\nnogroup:x:65534:\n")
    for name in ("etc/hosts", "etc/localtime", "etc/resolv.conf"):
        if not (sandbox / name).exists():
            (sandbox / name).touch()
    (sandbox / "etc/image").write_text("debian\n")  # by which tests know that they are in it
    python = sandbox / "usr/bin/python3"
    if not python.exists():
        (minor,) = (sandbox / "usr/bin").glob("python3.*[0-9]")
        python.symlink_to(minor.name)
