"""Orders to a running QEMU by its control socket (QMP: JSON, one object a line)."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

#: For its answer, seconds.
ANSWER_S = 10.0
#: One line of it.
_MOST_BYTES = 1 << 20


class NoMonitor(Exception):
    """There is nobody at the socket, or it does not answer as QEMU does."""


async def order(folder: Path, socket: str, *commands: str) -> list[Any]:
    """Give these orders, and return what was answered to each. The socket is named within its folder, whose path may be
    longer than a socket's name can be. Raises NoMonitor."""
    try:
        async with asyncio.timeout(ANSWER_S), _talk(folder, socket) as (reader, writer):
            if "QMP" not in await _read(reader):
                raise NoMonitor("no greeting")
            return [await _one(reader, writer, command) for command in ("qmp_capabilities", *commands)][1:]
    except (OSError, ValueError, EOFError, TimeoutError, RecursionError) as error:
        raise NoMonitor(f"{type(error).__name__}: {error}") from error


@contextlib.asynccontextmanager
async def _talk(folder: Path, socket: str) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    place = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        reader, writer = await asyncio.open_unix_connection(f"/proc/self/fd/{place}/{socket}", limit=_MOST_BYTES)
    finally:
        os.close(place)
    try:
        yield reader, writer
    finally:
        writer.close()


async def _one(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, command: str) -> Any:
    writer.write(json.dumps({"execute": command}).encode() + b"\n")
    await writer.drain()
    while True:
        said = await _read(reader)
        if "error" in said:
            raise NoMonitor(f"{command}: {str(said['error'])[:200]}")
        if "return" in said:
            return said["return"]


async def _read(reader: asyncio.StreamReader) -> dict[str, Any]:
    """The next object; events come between answers."""
    line = await reader.readline()
    if not line:
        raise EOFError("it hung up")
    said = json.loads(line)
    if not isinstance(said, dict):
        raise ValueError(f"not an object: {line[:80]!r}")
    return said
