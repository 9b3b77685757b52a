"""What a bundle is made of and may hold: names, links, and the numbers both sides go by."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from shared.transfer.errors import TransferError

BLOCK: Final = 512
MAX_NAME: Final = 4096
MAX_PART: Final = 255
MAX_MEMBERS: Final = 1_000_000
#: Bytes of all names and targets of links of one bundle: both sides hold them in memory.
MAX_NAMES: Final = 64 * 1024 * 1024
#: Bytes of zeros behind the end: what tar programs fill their last record with, and then some.
MAX_TRAILER: Final = 64 * 1024
#: A pax header holds two names and a checksum: more is somebody's mischief.
MAX_PAX: Final = 64 * 1024
INCOMING: Final = ".roost-incoming-"

SHA_KEY: Final = "ROOST.sha256"
COUNT_KEY: Final = "ROOST.members"


@dataclass(frozen=True, slots=True)
class Source:
    """A file or directory to send, and its name at the other side.

    Symbolic links inside a directory are sent as links if they stay inside it. `path` itself is followed, but only to
    what lies within `within`; the default is the directory that `name` is relative to (so a job that leaves a link to
    /etc/shadow as its output is refused). With `follow` it may lead anywhere: for paths that a user named, of files
    that this process may read on that user's behalf. With `owner`, a uid, a file that has several names (hard links)
    and belongs to somebody else is refused: its other name may lie anywhere.
    """

    path: Path
    name: str
    follow: bool = False
    within: Path | None = None
    owner: int | None = None


@dataclass(frozen=True, slots=True)
class Entry:
    """A member that was received."""

    name: str  # relative, parts joined by "/"
    kind: Literal["file", "directory", "link"]
    size: int = 0  # bytes, of files
    mode: int = 0  # permission bits
    sha256: str = ""  # of files, hexadecimal
    target: str = ""  # of links


def wire_bytes(content: int) -> int:
    """The most bytes that a bundle of so much content may have on the wire, with headers of all the members and names
    there may be."""
    return content + MAX_MEMBERS * (8 * BLOCK) + 4 * MAX_NAMES + MAX_TRAILER


def check_name(name: str) -> tuple[str, ...]:
    """The parts of a member's name. Raises TransferError unless it is relative and stays inside."""
    if not name or name.startswith("/"):
        raise TransferError(f"{name[:200]!r}: a member's name must be relative to the sandbox, and not empty")
    if "\0" in name or len(name) > MAX_NAME:
        raise TransferError(f"{name[:200]!r}: a member's name has at most {MAX_NAME} characters and no NUL")
    parts = tuple(name.rstrip("/").split("/"))
    for part in parts:
        if part in ("", ".", ".."):
            raise TransferError(f"{name[:200]!r}: a member's name may not contain empty parts, '.' or '..'")
        if len(part.encode("utf-8", "surrogateescape")) > MAX_PART:
            raise TransferError(f"{name[:200]!r}: a part of the name is longer than {MAX_PART} bytes")
    if parts[0].startswith(INCOMING):
        raise TransferError(f"{name[:200]!r}: names that begin with {INCOMING} are kept for transfers under way")
    return parts


def check_link(name: str, target: str, depth: int | None = None) -> None:
    """Raises TransferError unless a symbolic link stays inside, whatever other members are.

    `..` may only stand in front: `a/../..` means something else when `a` is a link itself. depth: how many directories
    the link may climb; the default is down to the sandbox's top.
    """
    parts = check_name(name)
    allowed = len(parts) - 1 if depth is None else depth
    if not target or target.startswith("/") or "\0" in target or len(target) > MAX_NAME:
        raise TransferError(f"{name[:200]!r}: a link to {target[:200]!r} leaves the sandbox; use a relative one")
    steps = [part for part in target.split("/") if part not in ("", ".")]
    climbs = 0
    while climbs < len(steps) and steps[climbs] == "..":
        climbs += 1
    if climbs > allowed or ".." in steps[climbs:]:
        raise TransferError(f"{name[:200]!r}: a link to {target[:200]!r} leaves the sandbox; use a relative one")
