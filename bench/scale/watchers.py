"""Streams of all events that somebody reads and throws away."""

from __future__ import annotations

import selectors
import socket
import threading
from urllib.parse import urlsplit

from roost import protocol


class Watchers:
    """`count` of them, read by one thread until they are closed. What is read is not taken apart."""

    def __init__(self, url: str, token: str, count: int) -> None:
        self.bytes = 0
        self._selector = selectors.DefaultSelector()
        self._closed = threading.Event()
        place = urlsplit(url)
        call = protocol.events((), "")
        headers = {"Host": place.netloc, **protocol.credentials(token), **call.headers}
        head = f"{call.method} {call.path} HTTP/1.1\r\n" + "".join(f"{n}: {v}\r\n" for n, v in headers.items())
        for _ in range(count):
            stream = socket.create_connection((place.hostname or "", place.port or 80), 60)
            stream.sendall(f"{head}\r\n".encode())
            status = stream.recv(65536)
            assert status.startswith(b"HTTP/1.1 200 "), status
            self._selector.register(stream, selectors.EVENT_READ)
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        while not self._closed.is_set():
            for key, _ in self._selector.select(0.1):
                stream = key.fileobj
                assert isinstance(stream, socket.socket)
                self.bytes += len(stream.recv(1 << 16))

    def close(self) -> None:
        self._closed.set()
        self._thread.join()
        for key in list(self._selector.get_map().values()):
            assert isinstance(key.fileobj, socket.socket)
            key.fileobj.close()
        self._selector.close()
