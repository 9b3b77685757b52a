"""Carries the requests of `roost.aio` to a gateway, with aiohttp. What a request and its answer say is made and read in
`roost.protocol`; `roost.transport` does the same for programs without asyncio."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, AsyncIterator, Iterable

import aiohttp

from roost import protocol
from roost.errors import ClientError
from roost.locate import tls_context
from roost.protocol import Call

#: The bytes of a bundle of files, as `AsyncClient.upload` takes them.
AsyncBundle = AsyncIterator[bytes] | Iterable[bytes]
#: An answer that is read by whoever asked.
AsyncBody = AsyncIterator[bytes]
#: One file.
AsyncContent = bytes

_TROUBLE = (aiohttp.ClientError, OSError, TimeoutError)


class AsyncTransport:
    """Connections to a gateway, for any number of requests at a time. Raises ClientError for everything that goes
    wrong."""

    def __init__(self, url: str, token: str, timeout: float, socket: str = "", ca_file: str = "") -> None:
        self.url = url
        self._socket = socket
        self._token = token
        self._timeout = timeout
        self._directory = -1  # of the socket, where there is one
        self._ca_file = ca_file
        self._session: aiohttp.ClientSession | None = None

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None
        if self._directory >= 0:
            os.close(self._directory)
            self._directory = -1

    async def read(self, call: Call, bundle: AsyncBundle | None = None) -> bytes:
        """The whole answer. bundle: the body of the request, sent as it comes."""
        parts = _one_by_one(bundle) if isinstance(bundle, Iterable) else bundle
        async with self._asked(call, bundle=parts) as answer:
            try:
                return await answer.read()
            except _TROUBLE as error:
                raise protocol.broken(self.url, error) from error

    async def stream(self, call: Call, read_s: float | None = None) -> AsyncGenerator[bytes, None]:
        """The answer as it comes. read_s: the longest silence."""
        async with self._asked(call, read_s) as answer:
            try:
                async for data in answer.content.iter_any():
                    yield data
            except _TROUBLE as error:
                raise protocol.broken(self.url, error) from error

    async def lines(self, call: Call, read_s: float) -> AsyncGenerator[bytes, None]:
        """The answer line by line. read_s: the longest silence."""
        async with self._asked(call, read_s) as answer:
            try:
                async for raw in answer.content:
                    yield raw
            except _TROUBLE as error:
                raise ClientError(f"the event stream broke: {error}", "unavailable", retryable=True) from error

    async def content(self, call: Call) -> AsyncContent:
        """A file."""
        return await self.read(call)

    def body(self, call: Call, read_s: float | None = None) -> AsyncBody:
        """An answer that is no refusal, to be read to its end."""
        return self.stream(call, read_s)

    def _asked(self, call: Call, read_s: float | None = None, *, bundle: AsyncIterator[bytes] | None = None) -> _Answer:
        if self._session is None:  # made in the loop that uses it first
            connector: aiohttp.BaseConnector
            if self._socket:
                # By a descriptor of its directory: a socket's path may have 107 characters only.
                folder, name = os.path.split(self._socket)
                self._directory = os.open(folder or ".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
                connector = aiohttp.UnixConnector(f"/proc/self/fd/{self._directory}/{name}")
            else:
                connector = aiohttp.TCPConnector(ssl=tls_context(self.url, self._ca_file) or True)
            self._session = aiohttp.ClientSession(connector=connector, headers=protocol.credentials(self._token))
        return _Answer(self._session, self.url, call, bundle, read_s or self._timeout)


async def _one_by_one(parts: Iterable[bytes]) -> AsyncIterator[bytes]:
    for one in parts:
        yield one


class _Answer:
    """`async with` it: an answer that is no refusal. Who is told to come later does, for a while."""

    def __init__(
        self,
        session: aiohttp.ClientSession,
        url: str,
        call: Call,
        bundle: AsyncIterator[bytes] | None,
        read_s: float,
    ) -> None:
        self._session = session
        self._url = url
        self._call = call
        self._bundle = bundle
        self._timeout = aiohttp.ClientTimeout(total=None, sock_connect=read_s, sock_read=read_s)
        self._response: aiohttp.ClientResponse | None = None

    async def __aenter__(self) -> aiohttp.ClientResponse:
        call, url = self._call, self._url
        for tried in range(protocol.TRIES + 1):
            try:
                response = await self._session.request(
                    call.method,
                    url + call.path,
                    data=self._bundle if self._bundle is not None else call.body,
                    headers=dict(call.headers),
                    timeout=self._timeout,
                    allow_redirects=False,
                )
                text = b"" if response.status < 400 else await response.read()
            except _TROUBLE as error:
                raise protocol.away(url, error) from error
            if response.status < 400:
                self._response = response
                return response
            retry_after = response.headers.get("Retry-After")
            wait = protocol.patience(response.status, retry_after, tried) if self._bundle is None else 0.0
            if not wait:
                break
            await asyncio.sleep(wait)
        raise protocol.refused(url, response.status, response.reason or "", text)

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        assert self._response is not None
        if kind is None and self._response.content.at_eof():
            self._response.release()
        else:
            self._response.close()  # its reader stopped early: what is left must not be the next answer
