"""Which distribution a Linux machine runs, in HTCondor's words: OpSysName, OpSysLongName and their versions."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

#: Files whose first line tells it, in the order in which HTCondor asks them.
_FILES = ("issue", "redhat-release", "system-release", "issue.net")
#: Words of that line, in lower case, that all have to be there -> HTCondor's name. The first that fits counts.
_NAMES = (
    (("red", "hat"), "RedHat"),
    (("fedora",), "Fedora"),
    (("ubuntu",), "Ubuntu"),
    (("debian",), "Debian"),
    (("scientific", "cern"), "SLCern"),
    (("scientific", "slf"), "SLFermi"),
    (("scientific",), "SL"),
    (("almalinux",), "AlmaLinux"),
    (("centos",), "CentOS"),
    (("rocky",), "Rocky"),
    (("amazon linux",), "AmazonLinux"),
    (("opensuse",), "openSUSE"),
    (("suse",), "SUSE"),
)
_VERSION = re.compile(r"([0-9]+)(?:\.([0-9]{1,2}))?")


@dataclass(frozen=True, slots=True)
class LinuxRelease:
    """version: 100 x major + minor, 2204 for 22.04. Without anything known major and version are 0."""

    name: str = "LINUX"
    long_name: str = "Unknown"
    major: int = 0
    version: int = 0

    @property
    def versioned(self) -> str:
        """OpSysAndVer, such as Debian12."""
        return f"{self.name}{self.major}"


def parse_release(line: str) -> LinuxRelease | None:
    """What the first line of such a file says; None if it names no distribution that HTCondor has a name for."""
    text = re.sub(r"(?:\s|\\[nl])+\Z", "", line.strip())
    lowered = text.lower()
    name = next((name for words, name in _NAMES if all(word in lowered for word in words)), None)
    return None if name is None else _release(name, text, text)


def parse_os_release(text: str) -> LinuxRelease | None:
    """What an os-release file says, for a distribution without one of the other files; None if it names none."""
    pairs = (line.partition("=") for line in text.splitlines() if "=" in line)
    said = {key.strip(): value.strip().strip("\"'") for key, _, value in pairs}
    long_name = said.get("PRETTY_NAME") or said.get("NAME") or ""
    known = parse_release(long_name)
    name = known.name if known is not None else said.get("ID", "").capitalize()
    return _release(name, long_name or name, said.get("VERSION_ID", "")) if name else None


@lru_cache(4)
def linux_release(etc: Path = Path("/etc")) -> LinuxRelease:
    """That of this machine. It is read once."""
    for file in _FILES:
        lines = _read(etc / file).splitlines()
        found = parse_release(lines[0]) if lines else None
        if found is not None:
            return found
    return parse_os_release(_read(etc / "os-release")) or LinuxRelease()


def _release(name: str, long_name: str, version: str) -> LinuxRelease:
    match = _VERSION.search(version)
    major, minor = (int(match[1]), int(match[2] or 0)) if match is not None else (0, 0)
    return LinuxRelease(name, long_name, major, major * 100 + minor)


def _read(path: Path) -> str:
    try:
        with path.open(errors="replace") as file:
            return file.read(1 << 16)
    except OSError:
        return ""
