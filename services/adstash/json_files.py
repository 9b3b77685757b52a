"""Exports documents as lines of JSON, in a directory: for sites that load them in their own way.

Each pass of a source that has anything new makes one file, `<source>-<number>.jsonl`, which appears complete. The
number is that of the pass, and the checkpoint is written after the file: an exporter that is killed between the two
makes the same file again, so no record is in two files.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import IO

from services.adstash.core.documents import Document
from services.adstash.target import Counts, TargetRefuses, TargetUnavailable
from shared import private_files
from shared.files import sync_directory


class JsonFiles:
    """The directory as a target."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.counts = Counts()
        self._path = directory / "none"
        self._file: IO[bytes] | None = None
        self._lines = 0

    async def open(self) -> None:
        try:
            await asyncio.to_thread(private_files.make_directory, self.directory)
        except OSError as error:
            raise TargetRefuses(f"{self.directory} can not be made: {error.strerror}; set ADSTASH_JSON_DIR") from error

    async def begin(self, source: str, number: int) -> None:
        self._drop()
        safe = re.sub(r"[^A-Za-z0-9_.@-]", "_", source)
        self._path = self.directory / f"{safe}-{number + 1:06}.jsonl"

    async def put(self, documents: Sequence[Document]) -> None:
        lines = [json.dumps({"_id": one.id, **one.fields}, allow_nan=False).encode() + b"\n" for one in documents]
        try:
            await asyncio.to_thread(self._write, b"".join(lines))
        except OSError as error:
            self._drop()
            raise TargetUnavailable(f"{self._new()}: {error.strerror}") from error
        self._lines += len(lines)

    def _write(self, data: bytes) -> None:
        if self._file is None and data:
            # Whoever opened the directory to others wants them to read what is in it.
            closed = not self.directory.stat().st_mode & 0o077
            flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
            self._file = os.fdopen(os.open(self._new(), flags, private_files.FILE if closed else 0o666), "wb")
        if self._file is not None:
            self._file.write(data)

    async def commit(self) -> None:
        try:
            await asyncio.to_thread(self._commit)
        except OSError as error:
            self._drop()
            raise TargetUnavailable(f"{self._path}: {error.strerror}") from error
        self.counts.exported += self._lines
        self._drop()

    def _commit(self) -> None:
        if self._file is None:
            return
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        os.replace(self._new(), self._path)
        sync_directory(self.directory)

    async def close(self) -> None:
        self._drop()

    def _new(self) -> Path:
        return self._path.with_name(f"{self._path.name}.new")

    def _drop(self) -> None:
        """Begin anew; a file that was not committed is written over."""
        file, self._file, self._lines = self._file, None, 0
        if file is not None:
            with contextlib.suppress(OSError):  # a full disk: what is left in its buffer is not wanted
                file.close()
