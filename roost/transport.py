"""Carries the requests of `roost.client` to a gateway. What a request and its answer say is made and read in
`roost.protocol`; `roost.aio_transport` does the same for asyncio.

Standard library only (http.client), because the command imports this and starts often: 20 ms instead of 150 ms with an
HTTP framework.
"""

from __future__ import annotations

import http.client
import io
import socket
import threading
import time
from collections.abc import AsyncIterator, Generator, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import BinaryIO
from urllib.parse import urlsplit

from roost import protocol
from roost.errors import ClientError
from roost.locate import tls_context
from roost.protocol import Call
from shared.local_sockets import connect_local

#: The bytes of a bundle of files, as `Client.upload` takes them.
Bundle = Iterable[bytes]
#: An answer that is read by whoever asked.
Body = BinaryIO
#: One file, the same.
Content = BinaryIO


class Transport:
    """One connection to a gateway, made when it is needed. Raises ClientError for everything that goes wrong.
    others: further gateways of the pool. A request that the one in use does not answer goes to the next one that does:
    every request may be sent again but one whose body has been read."""

    def __init__(
        self,
        url: str,
        token: str,
        timeout: float,
        local_socket: str = "",
        ca_file: str = "",
        others: Sequence[str] = (),
    ) -> None:
        self._gateways = (url, *others)
        self._use(url)
        self._token = token
        self._timeout = timeout
        self._local_socket = local_socket
        self._ca_file = ca_file
        self.connection: http.client.HTTPConnection | None = None

    def _use(self, url: str) -> None:
        parts = urlsplit(url)
        self.url = url
        self._host = parts.netloc
        self._base = parts.path.rstrip("/")

    def another(self) -> Transport:
        """A connection of its own to the same gateways."""
        others = [url for url in self._gateways if url != self.url]
        return Transport(self.url, self._token, self._timeout, self._local_socket, self._ca_file, others)

    def close(self) -> None:
        if self.connection is not None:
            self.connection.close()
            self.connection = None

    def read(self, call: Call, bundle: Bundle | AsyncIterator[bytes] | None = None) -> bytes:
        """The whole answer. bundle: the body of the request, sent as it comes."""
        response = self.body(call, bundle=bundle)
        try:
            return response.read()
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise self._broken(error) from error

    def stream(self, call: Call) -> Generator[bytes, None, None]:
        """The answer as it comes."""
        response = self.body(call)
        try:
            reader = io.BufferedReader(response, 1 << 20)
            while data := reader.read1(1 << 20):
                yield data
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise self._broken(error) from error
        finally:
            if not response.isclosed():  # its reader stopped early: what is left must not be the next answer
                self.close()

    def lines(self, call: Call, read_s: float) -> Generator[bytes, None, None]:
        """The answer line by line, on a connection that is closed afterwards. read_s: the longest silence."""
        response = self.body(call, read_s=read_s)
        try:
            yield from response
        except (OSError, http.client.HTTPException) as error:
            raise ClientError(f"the event stream broke: {error}", "unavailable", retryable=True) from error
        finally:
            self.close()

    def content(self, call: Call) -> Content:
        """A file, to be read to its end."""
        return self.body(call)

    def body(
        self,
        call: Call,
        read_s: float | None = None,
        *,
        bundle: Bundle | AsyncIterator[bytes] | None = None,
    ) -> http.client.HTTPResponse:
        """An answer that is no refusal, to be read to its end. Who is told to come later does, for a while."""
        body: bytes | Iterator[bytes] | None = call.body
        headers = dict(call.headers)
        if bundle is not None:
            body = synchronous(bundle) if isinstance(bundle, AsyncIterator) else iter(bundle)
            headers["Transfer-Encoding"] = "chunked"
        for tried in range(protocol.TRIES + 1):
            response = self._ask_any(call.method, call.path, body, headers, self._timeout if read_s is None else read_s)
            if response.status < 400:
                return response
            text = response.read()
            retry_after = response.headers.get("Retry-After")
            wait = protocol.patience(response.status, retry_after, tried) if bundle is None else 0.0
            if not wait:
                break
            time.sleep(wait)
        raise protocol.refused(self.url, response.status, response.reason, text)

    def _ask_any(
        self, method: str, path: str, body: bytes | Iterator[bytes] | None, headers: dict[str, str], timeout: float
    ) -> http.client.HTTPResponse:
        """Of the gateway in use, or of the next one that answers."""
        for _ in self._gateways:
            watch = _Watch(self) if len(self._gateways) > 1 else None
            try:
                return self._ask(method, path, body, headers, timeout, watch)
            except ClientError as error:
                if watch is None or error.code != "unavailable":
                    raise
                another = watch.another or self.next_that_answers()
                if another:
                    self._use(another)
                if not another or "Transfer-Encoding" in headers:
                    raise
            finally:
                if watch is not None:
                    watch.end()
        return self._ask(method, path, body, headers, timeout)

    def answers(self, url: str) -> bool:
        """Whether this gateway answers a look at once."""
        look = Transport(url, "", protocol.LOOK_S, "", self._ca_file)
        try:
            look._ask(protocol.LOOK.method, protocol.LOOK.path, None, {}, protocol.LOOK_S)
        except ClientError:
            return False
        finally:
            look.close()
        return True

    def next_that_answers(self) -> str:
        """Another gateway that answers, where the one in use does not; empty: it does, or none does."""
        if self.answers(self.url):
            return ""
        return next((url for url in self._gateways if url != self.url and self.answers(url)), "")

    def _ask(
        self,
        method: str,
        path: str,
        body: bytes | Iterator[bytes] | None,
        headers: dict[str, str],
        timeout: float,
        watch: _Watch | None = None,
    ) -> http.client.HTTPResponse:
        all_headers = {**protocol.credentials(self._token), **headers}
        chunked = all_headers.get("Transfer-Encoding") == "chunked"
        for fresh in (chunked, True):
            reused = self.connection is not None and self.connection.sock is not None
            connection = self._connect(fresh, timeout)
            try:
                if watch is not None:
                    watch.begin(_connected(connection, timeout))
                connection.request(method, self._base + path, body, all_headers, encode_chunked=chunked)
                return connection.getresponse()
            except (OSError, http.client.HTTPException) as error:
                # The gateway closes connections that are not used for some seconds. Every request may be sent again
                # (a submit has its id, an action its outcome) but for a body that has been read.
                stale = not fresh and reused and isinstance(error, (ConnectionError, http.client.BadStatusLine))
                stale = stale and (watch is None or not watch.another)
                self.close()
                if not stale or chunked:
                    raise protocol.away(self.url, error) from error
        raise AssertionError("the second try returns or raises")

    def _connect(self, fresh: bool, timeout: float) -> http.client.HTTPConnection:
        if fresh:
            self.close()
        if self.connection is None and self._local_socket:
            self.connection = _LocalConnection(self._host, self._local_socket, timeout)
        elif self.connection is None:
            context = tls_context(self.url, self._ca_file)
            self.connection = (
                http.client.HTTPConnection(self._host, timeout=timeout)
                if context is None
                else http.client.HTTPSConnection(self._host, timeout=timeout, context=context)
            )
        elif self.connection.sock is not None:
            self.connection.sock.settimeout(timeout)
        return self.connection

    def _broken(self, error: Exception) -> ClientError:
        self.close()
        return protocol.broken(self.url, error)


def _connected(connection: http.client.HTTPConnection, timeout: float) -> socket.socket:
    """Its socket, connected soon or not at all: there is another gateway."""
    if connection.sock is None:
        connection.timeout = min(timeout, protocol.CONNECT_S)
        connection.connect()
    made: socket.socket = connection.sock
    made.settimeout(timeout)
    return made


class _Watch:
    """Looks at the gateway in use while an answer does not begin, and ends the connection where another one answers and
    this one does not. A thread of its own: whoever asks waits for the answer meanwhile."""

    def __init__(self, transport: Transport) -> None:
        self.another = ""  # gateway to go to
        self._transport = transport
        self._over = threading.Event()
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None
        self._thread: threading.Thread | None = None

    def begin(self, connection: socket.socket) -> None:
        self._socket = connection
        if self._thread is None:
            self._thread = threading.Thread(target=self._look, name="gateway-watch", daemon=True)
            self._thread.start()

    def end(self) -> None:
        """The connection may be another request's from now on: it is not ended any more."""
        with self._lock:
            self._over.set()

    def _look(self) -> None:
        while not self._over.wait(protocol.LOOK_AFTER_S):
            another = self._transport.next_that_answers()
            with self._lock:
                if another and self._socket is not None and not self._over.is_set():
                    self.another = another
                    with suppress(OSError):
                        self._socket.shutdown(socket.SHUT_RDWR)
                    return


class _LocalConnection(http.client.HTTPConnection):
    """A connection over a Unix socket. host: what is said of it in the request."""

    def __init__(self, host: str, path: str, timeout: float) -> None:
        super().__init__(host, timeout=timeout)
        self._path = path

    def connect(self) -> None:
        self.sock = connect_local(self._path, self.timeout)


def synchronous(bundle: AsyncIterator[bytes]) -> Iterator[bytes]:
    """An asynchronous stream for a synchronous reader. Its loop has a thread of its own: the reader's may run one
    already, as in a notebook."""
    import asyncio  # both are what most commands do without
    from concurrent.futures import ThreadPoolExecutor

    loop = asyncio.new_event_loop()
    with ThreadPoolExecutor(1, thread_name_prefix="bundle") as thread:
        try:
            while True:
                try:
                    yield thread.submit(loop.run_until_complete, anext(bundle)).result()
                except StopAsyncIteration:
                    return
        finally:
            loop.close()
