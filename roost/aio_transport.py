"""Carries the requests of `roost.aio` to a gateway, with aiohttp. What a request and its answer say is made and read in
`roost.protocol`; `roost.transport` does the same for programs without asyncio."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Sequence

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
    wrong. others: further gateways of the pool. A request that the one in use does not answer goes to the next one that
    does: every request may be sent again but one whose body has been read."""

    def __init__(
        self,
        url: str,
        token: str,
        timeout: float,
        socket: str = "",
        ca_file: str = "",
        others: Sequence[str] = (),
    ) -> None:
        self.url = url
        self.gateways = (url, *others)
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
                secure = next((url for url in self.gateways if url.startswith("https:")), self.url)
                connector = aiohttp.TCPConnector(ssl=tls_context(secure, self._ca_file) or True)
            self._session = aiohttp.ClientSession(connector=connector, headers=protocol.credentials(self._token))
        return _Answer(self, self._session, call, bundle, read_s or self._timeout)


async def _one_by_one(parts: Iterable[bytes]) -> AsyncIterator[bytes]:
    for one in parts:
        yield one


def _hang_up(asking: asyncio.Future[aiohttp.ClientResponse]) -> None:
    """Nobody takes this answer."""
    if not asking.cancelled() and asking.exception() is None:
        asking.result().close()


class _Answer:
    """`async with` it: an answer that is no refusal. Who is told to come later does, for a while."""

    def __init__(
        self,
        transport: AsyncTransport,
        session: aiohttp.ClientSession,
        call: Call,
        bundle: AsyncIterator[bytes] | None,
        read_s: float,
    ) -> None:
        self._transport = transport
        self._session = session
        self._call = call
        self._bundle = bundle
        connect_s = min(read_s, protocol.CONNECT_S) if len(transport.gateways) > 1 else read_s
        self._timeout = aiohttp.ClientTimeout(total=None, sock_connect=connect_s, sock_read=read_s)
        self._response: aiohttp.ClientResponse | None = None

    async def __aenter__(self) -> aiohttp.ClientResponse:
        transport = self._transport
        for tried in range(protocol.TRIES + 1):
            try:
                response = await self._asked()
                text = b"" if response.status < 400 else await response.read()
            except _TROUBLE as error:
                raise protocol.away(transport.url, error) from error
            if response.status < 400:
                self._response = response
                return response
            retry_after = response.headers.get("Retry-After")
            wait = protocol.patience(response.status, retry_after, tried) if self._bundle is None else 0.0
            if not wait:
                break
            await asyncio.sleep(wait)
        raise protocol.refused(transport.url, response.status, response.reason or "", text)

    async def _asked(self) -> aiohttp.ClientResponse:
        """Of the gateway in use, or of the next one that answers."""
        transport = self._transport
        for _ in transport.gateways:
            used = transport.url
            asking = asyncio.ensure_future(self._ask(used))
            taken = False
            try:
                another = await self._another(asking, used)
                if not another:
                    taken = True
                    return await asking
                if transport.url == used:
                    transport.url = another
                if self._bundle is not None:
                    raise TimeoutError("the gateway does not answer; another one does")
            finally:
                if not taken:  # there may be an answer by now: whoever waited was cancelled, or has gone elsewhere
                    asking.cancel()
                    asking.add_done_callback(_hang_up)
                    await asyncio.gather(asking, return_exceptions=True)
        return await self._ask(transport.url)

    async def _another(self, asking: asyncio.Future[aiohttp.ClientResponse], used: str) -> str:
        """Waits for the answer. Returns another gateway to go to, where this one is away; empty: there is an answer, or
        nowhere to go to."""
        others = [url for url in self._transport.gateways if url != used]
        over = False
        while not over:
            over = bool((await asyncio.wait((asking,), timeout=protocol.LOOK_AFTER_S if others else None))[0])
            if over and not isinstance(asking.exception(), _TROUBLE):
                return ""
            if others and not await self._answers(used) and (another := await self._first_of(others)):
                return another
        return ""

    async def _first_of(self, gateways: Iterable[str]) -> str:
        for url in gateways:
            if await self._answers(url):
                return url
        return ""

    async def _answers(self, url: str) -> bool:
        """Whether this gateway answers a look at once."""
        look = protocol.LOOK
        try:
            timeout = aiohttp.ClientTimeout(total=protocol.LOOK_S)
            async with self._session.request(look.method, url + look.path, timeout=timeout, allow_redirects=False):
                return True
        except _TROUBLE:
            return False

    async def _ask(self, url: str) -> aiohttp.ClientResponse:
        call = self._call
        return await self._session.request(
            call.method,
            url + call.path,
            data=self._bundle if self._bundle is not None else call.body,
            headers=dict(call.headers),
            timeout=self._timeout,
            allow_redirects=False,
        )

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        assert self._response is not None
        if kind is None and self._response.content.at_eof():
            self._response.release()
        else:
            self._response.close()  # its reader stopped early: what is left must not be the next answer
