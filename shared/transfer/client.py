"""The client's end of file transfer: the startd's starter (input, output) and `roost` (spooling) use it.

A capability token says which run or sandbox is meant and is all the authority there is: it comes with the job
(`Activation.transfer_token`, `Submitted.upload_token`, `FileAccess.token`) and must never be logged.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

import aiohttp
from tenacity import (
    AsyncRetrying,
    retry_if_exception,
    stop_after_delay,
    wait_exponential_jitter,
)

from shared.transfer.bundle import CHUNK, FEW, Entry, Source, check_sources, read_bundle, write_bundle
from shared.transfer.errors import CertificateTrouble, OutOfStep, TransferError, TransferRefused, TransferUnavailable
from shared.transfer.public import MOST_LISTING, PublicFile, read_listing
from shared.transfer.streams import OUT_OF_STEP, SIZE_HEADER
from shared.transfer.tls import TransferTls, broken_off

#: How long a transfer is repeated while the endpoint is away (a schedd that restarts is back in a few seconds).
PATIENCE_S: Final = 60.0
#: No byte for so long: the connection is dead.
STALL_S: Final = 60.0
_TIMEOUT: Final = aiohttp.ClientTimeout(total=None, sock_connect=10, sock_read=STALL_S)
#: For what a job does not wait for.
_SHORT: Final = aiohttp.ClientTimeout(total=5)
#: As where nothing is configured.
_DEFAULT: Final = TransferTls()
_RETRY_STATUS: Final = frozenset((408, 425, 429, 500, 502, 503, 504))

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Received:
    """What `fetch` put into the directory."""

    entries: list[Entry]
    bytes: int  # content, without the wrapping


@dataclass(frozen=True, slots=True)
class Sent:
    """What `send` delivered; the other side has verified and stored it."""

    bytes: int  # on the wire
    repeated: bool = False  # it was there already: an earlier attempt had arrived, only its answer was lost


async def fetch(
    session: aiohttp.ClientSession,
    url: str,
    token: str,
    root: Path,
    *,
    what: str = "input",
    limit_bytes: int | None = None,
    patience_s: float = PATIENCE_S,
    tls: TransferTls = _DEFAULT,
) -> Received:
    """GET `<url>/<what>` into the directory root, all or nothing (see read_bundle).

    Raises TransferRefused when the endpoint refuses (a file that can not be read, a token that is no longer good),
    TransferError for a bad bundle, TooLarge for one of more than limit_bytes of content, TransferUnavailable when it
    could not be had within patience_s, CertificateTrouble at once, InTheClear for another machine without TLS, where
    `tls` does not allow it.
    """

    async def once() -> Received:
        way = await tls.way(url)
        async with session.get(f"{url}/{what}", headers=_headers(token), timeout=_TIMEOUT, ssl=way) as response:
            await _check(response)
            entries = await read_bundle(response.content.iter_chunked(CHUNK), root, limit_bytes=limit_bytes)
            return Received(entries, sum(entry.size for entry in entries))

    # Another machine may believe it, and the job has lost nothing yet.
    return await _patiently(once, patience_s, but=CertificateTrouble)


async def send(
    session: aiohttp.ClientSession,
    url: str,
    token: str,
    sources: Sequence[Source],
    *,
    what: str = "output",
    limit_bytes: int | None = None,
    patience_s: float = PATIENCE_S,
    tls: TransferTls = _DEFAULT,
) -> Sent:
    """PUT these sources to `<url>/<what>`. When it returns, the other side has them all, verified and for good.

    Sending the same again changes nothing twice. Raises as `fetch`, and TransferError for a source that can
    not be sent, TooLarge for one that exceeds limit_bytes.
    """

    async def once() -> Sent:
        count = 0
        failed: list[TransferError] = []

        async def body() -> AsyncIterator[bytes]:
            nonlocal count
            try:
                async for chunk in write_bundle(sources, limit_bytes=limit_bytes):
                    count += len(chunk)
                    yield chunk
            except TransferError as error:
                # aiohttp makes a connection error of it, which would be taken for a reason to try again.
                failed.append(error)
                raise

        way = await tls.way(url)
        headers = _headers(token) | {SIZE_HEADER: str(await _size_of(sources))}
        try:
            async with session.put(
                f"{url}/{what}", headers=headers, data=body(), timeout=_TIMEOUT, ssl=way
            ) as response:
                await _check(response)
                return Sent(count, repeated=response.headers.get("X-Roost-Repeated") == "1")
        except (aiohttp.ClientError, OSError, TransferError):
            if failed:
                raise failed[0] from None
            raise

    return await _patiently(once, patience_s)


async def _size_of(sources: Sequence[Source]) -> int:
    """Bytes of these files. What can not be looked at is told of when it is sent."""
    try:
        if len(sources) > FEW or any(source.path.is_dir() for source in sources):
            return await asyncio.to_thread(check_sources, sources)
        return sum(source.path.stat().st_size for source in sources)
    except (OSError, TransferError):
        return 0


async def send_piece(
    session: aiohttp.ClientSession,
    url: str,
    token: str,
    stream: str,
    at: int,
    piece: bytes,
    *,
    last: bool = False,
    tls: TransferTls = _DEFAULT,
) -> None:
    """PUT one piece of a stream to `<url>/stream/<stream>`, once. at: how many bytes come before it. last: the other
    side shall have all of it on its disk then. Raises OutOfStep, and else as `send`."""
    try:
        way = await tls.way(url)
        async with session.put(
            f"{url}/stream/{stream}",
            params={"at": str(at), "last": str(int(last))},
            headers=_headers(token),
            data=piece,
            timeout=_TIMEOUT,
            ssl=way,
        ) as response:
            if response.status == OUT_OF_STEP and (size := response.headers.get(SIZE_HEADER, "")).isdigit():
                raise OutOfStep(int(size))
            await _check(response)
    except (aiohttp.ClientError, TimeoutError, OSError) as error:
        raise broken_off(error) from error


async def list_public(
    session: aiohttp.ClientSession, url: str, token: str, *, tls: TransferTls = _DEFAULT
) -> list[PublicFile]:
    """GET `<url>/public`: the public files of a run. Raises as `fetch`; TransferRefused also where an earlier release
    has no such list."""
    try:
        way = await tls.way(url)
        async with session.get(f"{url}/public", headers=_headers(token), timeout=_TIMEOUT, ssl=way) as response:
            await _check(response)
            body = await response.content.read(MOST_LISTING + 1)
    except (aiohttp.ClientError, TimeoutError, OSError) as error:
        raise broken_off(error) from error
    return read_listing(body)


async def tell_progress(
    session: aiohttp.ClientSession, url: str, token: str, told: Mapping[str, Any], *, tls: TransferTls = _DEFAULT
) -> None:
    """POST to `<url>/progress` how far other files of the run are, once. Raises as `send`."""
    try:
        way = await tls.way(url)
        async with session.post(
            f"{url}/progress", json=told, headers=_headers(token), timeout=_SHORT, ssl=way
        ) as response:
            await _check(response)
    except (aiohttp.ClientError, TimeoutError, OSError) as error:
        raise broken_off(error) from error


async def _patiently(
    once: Callable[[], Awaitable[T]], patience_s: float, *, but: type[TransferUnavailable] | tuple[()] = ()
) -> T:
    """but: what is not tried again."""

    async def mapped() -> T:
        try:
            return await once()
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise broken_off(error) from error

    retrying = AsyncRetrying(
        retry=retry_if_exception(lambda error: isinstance(error, TransferUnavailable) and not isinstance(error, but)),
        stop=stop_after_delay(patience_s),
        wait=wait_exponential_jitter(multiplier=0.1, max=5.0, jitter=0.2),
        reraise=True,
    )
    return await retrying(mapped)


async def _check(response: aiohttp.ClientResponse) -> None:
    if response.status < 300:
        return
    reason = (await response.content.read(4096)).decode("utf-8", "replace").strip()
    if response.status in _RETRY_STATUS:
        raise TransferUnavailable(f"file transfer: {response.status}: {reason}")
    raise TransferRefused(response.status, reason or f"file transfer refused with status {response.status}")


def _headers(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}
