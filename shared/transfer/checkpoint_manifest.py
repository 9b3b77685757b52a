"""Checkpoints that lie at a URL (checkpoint_destination): where each of their files lies, and the manifest that the
access point keeps in place of them. Pure.

A manifest is what `sha256sum` prints of the files, and as its last line that of all lines before, so that one that was
not written whole is known.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from typing import Final
from urllib.parse import quote

from shared.transfer.errors import TransferError
from shared.transfer.members import check_name
from shared.transfer.urls import SIGNED, scheme_of

#: How the name of a manifest begins; behind it stands what tells one checkpoint of a job from the others.
PREFIX: Final = "_condor_checkpoint_MANIFEST."
_NAME: Final = re.compile(re.escape(PREFIX) + r"(\d{4,}\.\d{4,})")
_LINE: Final = re.compile(r"([0-9a-f]{64}) \*(.+)")


def manifest_name(attempt: int, number: int) -> str:
    """Of the checkpoint with this number that a run of the job makes. A run that is taken for dead can so never write
    into what the next one makes."""
    return f"{PREFIX}{attempt:04}.{number:04}"


def is_manifest(name: str) -> bool:
    return _NAME.fullmatch(name) is not None


def base_of(destination: str, manifest: str) -> str:
    """The URL that the names of the files of a checkpoint follow. destination: of `urls.destination_of`. Raises
    TransferError."""
    found = _NAME.fullmatch(manifest)
    if found is None:
        raise TransferError(f"{manifest} is no name of a checkpoint's manifest")
    return f"{destination}{found[1]}/"


def url_of(base: str, name: str) -> str:
    """Where a file lies. In stores of objects names are keys as they are."""
    return base + (name if scheme_of(base) in SIGNED else quote(name, errors="surrogateescape"))


def written(manifest: str, files: Iterable[tuple[str, str]]) -> bytes:
    """files: (SHA-256 as a text, name from the scratch directory). Raises TransferError for a name that has no line."""
    lines = []
    for checksum, name in files:
        if "\n" in name or "\r" in name:
            raise TransferError(f"{name!r}: the name of a file of a checkpoint is one line")
        lines.append(f"{checksum} *{name}\n")
    text = "".join(lines).encode("utf-8", "surrogateescape")
    return text + f"{hashlib.sha256(text).hexdigest()} *{manifest}\n".encode()


def read(manifest: str, data: bytes) -> list[tuple[str, str]]:
    """What `written` was given. Raises TransferError for what was changed, is not whole, or names a file outside of the
    scratch directory."""
    lines = data.decode("utf-8", "surrogateescape").split("\n")
    last = _LINE.fullmatch(lines[-2]) if len(lines) > 1 and not lines[-1] else None
    text = "".join(f"{line}\n" for line in lines[:-2]).encode("utf-8", "surrogateescape")
    if last is None or last[2] != manifest or last[1] != hashlib.sha256(text).hexdigest():
        raise TransferError(f"{manifest} is not as it was written")
    found = []
    for line in lines[:-2]:
        one = _LINE.fullmatch(line)
        if one is None:
            raise TransferError(f"{manifest} is not as it was written")
        check_name(one[2])
        found.append((one[1], one[2]))
    return found
