"""Inputs that a job calls public (public_input_files): a machine may keep them for other jobs, of anybody, that name
the same content. Pure."""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final
from urllib.parse import urlsplit

from shared.classad import ClassAd
from shared.transfer.errors import TransferError
from shared.transfer.members import check_name
from shared.transfer.sandbox import split_list
from shared.transfer.urls import is_url

#: As it names a file: the SHA-256 of its content, in hexadecimal.
DIGEST: Final = re.compile(r"[0-9a-f]{64}")
#: Of one job; and bytes of their list.
MOST_FILES: Final = 1000
MOST_LISTING: Final = 1 << 20
_MOST_BYTES: Final = 1 << 60


@dataclass(frozen=True, slots=True)
class PublicFile:
    """One that the access point has. name: in the scratch directory. mode: its permissions."""

    name: str
    sha256: str
    size: int
    mode: int


def public_names(job: ClassAd) -> frozenset[str]:
    """What public files that lie at the access point are called in the scratch directory. Directories, and what is to
    lie in one, travel as other files do."""
    listed = (name for name in split_list(job.eval_string("PublicInputFiles")) if not is_url(name))
    keep = job.eval("PreserveRelativePaths") is True
    return frozenset(
        os.path.basename(name)
        for name in listed
        if not name.endswith("/") and not (keep and not name.startswith("/") and "/" in os.path.normpath(name))
    )


def public_urls(job: ClassAd) -> dict[str, str]:
    """Public inputs by URL that say what they are (`#sha256=...`): the digest of each."""
    found = {}
    for name in split_list(job.eval_string("PublicInputFiles")):
        if is_url(name):
            for part in urlsplit(name).fragment.split("&"):
                key, _, value = part.partition("=")
                if key == "sha256" and DIGEST.fullmatch(value.lower()):
                    found[name] = value.lower()
    return found


def is_kept(status: os.stat_result) -> bool:
    """Whether machines may keep such a file: a plain one that everybody may read."""
    return stat.S_ISREG(status.st_mode) and bool(status.st_mode & stat.S_IROTH)


def listing(files: Iterable[PublicFile]) -> list[dict[str, Any]]:
    """For JSON."""
    return [asdict(one) for one in files]


def read_listing(body: bytes) -> list[PublicFile]:
    """Raises TransferError."""
    try:
        told = json.loads(body) if len(body) <= MOST_LISTING else None
    except (ValueError, RecursionError):
        told = None
    if not isinstance(told, list) or len(told) > MOST_FILES:
        raise TransferError(f"no list of up to {MOST_FILES} public files")
    return [_read(one) for one in told]


def _read(told: Any) -> PublicFile:
    if not isinstance(told, Mapping):
        raise TransferError("a public file is a name with its digest, size and mode")
    name, sha256, size, mode = (told.get(key) for key in ("name", "sha256", "size", "mode"))
    if not isinstance(name, str) or check_name(name) != (name,):
        raise TransferError("a public file lies in no directory")
    if not isinstance(sha256, str) or not DIGEST.fullmatch(sha256):
        raise TransferError(f"{name}: its digest is no SHA-256")
    if not isinstance(size, int) or isinstance(size, bool) or not 0 <= size <= _MOST_BYTES:
        raise TransferError(f"{name}: its size is no number of bytes")
    if not isinstance(mode, int) or isinstance(mode, bool):
        raise TransferError(f"{name}: its mode is no number")
    return PublicFile(name, sha256, size, mode & 0o777)
