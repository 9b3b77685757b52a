"""What the container suites take from Debian's archive, by the mirror that this machine's apt uses."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"
# Documentation that a base image does without.
LEFT_OUT = (
    "./var/cache/apt/*",
    "./var/lib/apt/lists/*",
    "./usr/share/doc/*",
    "./usr/share/man/*",
    "./usr/share/locale/*",
)


def run(*command: str | Path, **options: Any) -> str:
    """Standard output; RuntimeError with all that the command said, if it fails."""
    done = subprocess.run(
        [str(part) for part in command],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        **options,
    )
    if done.returncode:
        said = f"{done.stdout[-4000:]}\n{done.stderr[-4000:]}".strip()
        raise RuntimeError(f"{' '.join(map(str, command))}: exit status {done.returncode}\n{said}")
    return done.stdout


def mirror() -> str:
    """Where this machine's apt gets Debian's main component from."""
    targets = run("apt-get", "indextargets", "--format", "$(REPO_URI) $(COMPONENT) $(ORIGIN)", "Created-By: Packages")
    for line in targets.splitlines():
        address, *rest = line.split()
        if rest == ["main", "Debian"]:
            return address
    raise RuntimeError("apt knows no Debian archive: is /etc/apt/sources.list empty? Run apt-get update.")


def root_file_system(suite: str, archive: Path) -> None:
    """Write the smallest Debian of a suite, as debootstrap makes it, to a tar archive. 22 s."""
    with tempfile.TemporaryDirectory(prefix="roost-debootstrap-") as scratch:
        root = Path(scratch, "root")
        run("debootstrap", "--variant=minbase", suite, root, mirror())
        run("tar", "-C", root, "-cf", archive, *(f"--exclude={pattern}" for pattern in LEFT_OUT), ".")


def command_line_plugins(suite: str, directory: Path) -> None:
    """Put the Docker command's compose and buildx plugins of a Debian suite into a directory. 2 s.

    Debian 12 has neither. The plugins of later suites need no more than its libc.
    """
    with tempfile.TemporaryDirectory(prefix="roost-plugins-") as name:
        scratch = Path(name)
        for part in ("lists/partial", "cache/archives/partial", "debs"):
            (scratch / part).mkdir(parents=True)
        (scratch / "sources.list").write_text(f"deb [signed-by={KEYRING}] {mirror()} {suite} main\n")
        # Directories of its own: an update with another list would throw away the machine's package lists.
        (scratch / "apt.conf").write_text(
            f'Dir::State::lists "{scratch}/lists";\nDir::Cache "{scratch}/cache";\n'
            f'Dir::Etc::sourcelist "{scratch}/sources.list";\nDir::Etc::sourceparts "/dev/null";\n'
            'APT::Sandbox::User "root";\n'
        )
        env = dict(os.environ, APT_CONFIG=str(scratch / "apt.conf"))
        run("apt-get", "update", "-qq", env=env)
        run("apt-get", "download", "-qq", "docker-compose", "docker-buildx", env=env, cwd=scratch / "debs")
        directory.mkdir(parents=True, exist_ok=True)
        for plugin in ("docker-compose", "docker-buildx"):
            (package,) = (scratch / "debs").glob(f"{plugin}_*.deb")
            run("dpkg-deb", "--extract", package, scratch / plugin)
            new = directory / f"{plugin}.new"
            new.write_bytes((scratch / plugin / "usr/libexec/docker/cli-plugins" / plugin).read_bytes())
            new.chmod(0o755)
            new.rename(directory / plugin)


#: Of unpacked packages, what no program needs.
_PAGES = ("usr/share/doc", "usr/share/man", "usr/share/locale", "usr/share/info")


def unpack(
    packages: Sequence[str],
    suites: Sequence[Sequence[str]],
    root: Path,
    scratch: Path,
    *,
    left_out: Sequence[str] = (),
) -> None:
    """Packages, and all that they depend on, without their scripts. Nothing is installed, and root is not needed.
    suites: choices, of which the first that has them all is taken; each is one suite, or several of which a later one
    has what the earlier ones lack. left_out: of what is unpacked. Raises RuntimeError."""
    failure = ""
    for number, choice in enumerate(suites):
        try:
            archives = _download(packages, choice, scratch / str(number))
            break
        except RuntimeError as error:
            failure = str(error)
    else:
        raise RuntimeError(failure)
    # Where /bin, /lib and /sbin are links, packages that still use these names unpack through them.
    for part in ("bin", "lib", "lib64", "sbin"):
        (root / "usr" / part).mkdir(parents=True, exist_ok=True)
        (root / part).symlink_to(f"usr/{part}")
    for archive in archives:
        unpacked = scratch / "unpacked.tar"
        with unpacked.open("wb") as file:
            subprocess.run(["dpkg-deb", "--fsys-tarfile", archive], stdout=file, check=True)
        run("tar", "-C", root, "-xf", unpacked, "--keep-directory-symlink", "--no-same-owner")
    for part in (*_PAGES, *left_out):
        shutil.rmtree(root / part, ignore_errors=True)


def _download(packages: Sequence[str], suites: Sequence[str], scratch: Path) -> list[Path]:
    for part in ("lists/partial", "cache/archives/partial"):
        (scratch / part).mkdir(parents=True)
    source = f"[signed-by={KEYRING}] {mirror()}"
    (scratch / "sources.list").write_text("".join(f"deb {source} {suite} main\n" for suite in suites))
    # With two suites, only what the first lacks comes from the second.
    pins = f"Package: *\nPin: release n={suites[-1]}\nPin-Priority: 100\n" if len(suites) > 1 else ""
    (scratch / "preferences").write_text(pins)
    (scratch / "status").touch()  # nothing is installed: apt fetches every dependency
    (scratch / "apt.conf").write_text(
        f'Dir::State::lists "{scratch}/lists";\nDir::State::status "{scratch}/status";\nDir::Cache "{scratch}/cache";\n'
        f'Dir::Etc::sourcelist "{scratch}/sources.list";\nDir::Etc::sourceparts "/dev/null";\n'
        f'Dir::Etc::preferences "{scratch}/preferences";\nDir::Etc::preferencesparts "/dev/null";\n'
        'APT::Sandbox::User "root";\nAPT::Install-Recommends "false";\n'
        # A mirror may be a picture of the past.
        'Acquire::Check-Valid-Until "false";\nDebug::NoLocking "true";\n'
    )
    env = dict(os.environ, APT_CONFIG=str(scratch / "apt.conf"))
    run("apt-get", "update", "-qq", env=env)
    run("apt-get", "install", "-qq", "--yes", "--download-only", *packages, env=env)
    return sorted((scratch / "cache/archives").glob("*.deb"))
