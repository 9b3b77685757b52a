"""The files of a HAD on its machine's own disk: copies of the accountant's records, and the highest epoch it has seen.

Both outlive Redis. There are two copies, the newest and the one before it: a file is complete and on disk before it
replaces the other, so a crash leaves a complete one. All methods block: call them in a thread.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

from services.had.core.snapshot import Damaged, Snapshot, decode, encode
from shared import private_files
from shared.accounting_version import NOTHING, Version
from shared.files import beside, replace_on_disk, sync_directory, write_on_disk
from shared.state import keys

#: Damaged files that are kept for whoever wants to look.
MOST_DAMAGED = 5


@dataclass(slots=True)
class Found:
    """What was on disk at the start."""

    snapshot: Snapshot | None = None
    epoch: int = 0
    problems: list[str] = field(default_factory=list)  # files that were refused, and why


class SnapshotFiles:
    """The files of one HAD."""

    def __init__(self, state_file: Path, epoch_file: Path, shard: str) -> None:
        self.state_file = state_file
        self.epoch_file = epoch_file
        self.shard = shard

    def read(self) -> Found:
        """The newest whole copy, and the epoch. Files that can not be read are set aside and told of."""
        found = Found()
        for path in (self.state_file, _before(self.state_file)):
            try:
                snapshot = decode(path.read_bytes(), self.shard)
            except FileNotFoundError:
                continue
            except OSError as error:
                found.problems.append(f"{path}: {error.strerror}")
            except Damaged as damage:
                found.problems.append(f"{path}: {damage}; {self._set_aside(path)}")
            else:
                if found.snapshot is None or snapshot.version > found.snapshot.version:
                    found.snapshot = snapshot
        found.epoch = self._read_epoch(found.problems)
        if found.snapshot is not None:
            found.epoch = max(found.epoch, found.snapshot.version.epoch)
        return found

    def close_files(self) -> private_files.Closed:
        """Take the copies from all but their owner: they tell who used what."""
        return private_files.close_all((self.state_file, _before(self.state_file), self.epoch_file))

    def write(self, snapshot: Snapshot) -> None:
        """Replace the older of the two copies. Raises OSError."""
        private_files.make_directory(self.state_file.parent)
        fresh = beside(self.state_file, ".new")
        write_on_disk(fresh, encode(snapshot))
        if self.state_file.exists():
            os.replace(self.state_file, _before(self.state_file))
        os.replace(fresh, self.state_file)
        sync_directory(self.state_file.parent)

    def newest(self) -> Version:
        """Version of the newest whole copy; nothing is set aside."""
        versions = [NOTHING]
        for path in (self.state_file, _before(self.state_file)):
            try:
                versions.append(decode(path.read_bytes(), self.shard).version)
            except (OSError, Damaged):
                continue
        return max(versions)

    def write_epoch(self, epoch: int) -> None:
        """Remember the highest epoch. Raises OSError."""
        replace_on_disk(self.epoch_file, f"{epoch}\n".encode())

    def _read_epoch(self, problems: list[str]) -> int:
        try:
            text = self.epoch_file.read_text("ascii", "replace").strip()
        except FileNotFoundError:
            return 0
        except OSError as error:
            problems.append(f"{self.epoch_file}: {error.strerror}")
            return 0
        if not (text.isascii() and text.isdigit() and len(text) < 20 and int(text) <= keys.MAX_EPOCH):
            problems.append(f"{self.epoch_file}: {text[:40]!r} is no epoch; it is written anew")
            return 0
        return int(text)

    def _set_aside(self, path: Path) -> str:
        for number in range(1, MOST_DAMAGED + 1):
            target = beside(self.state_file, f".damaged-{number}")
            if not target.exists():
                break
        try:
            os.replace(path, target)
        except OSError as error:
            return f"not set aside: {error.strerror}"
        return f"set aside as {target}"


def _before(path: Path) -> Path:
    return beside(path, ".before")
