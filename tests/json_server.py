"""A small HTTP server for tests, which answers JSON with JSON, in a thread of its own."""

from __future__ import annotations

import contextlib
import json
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

#: (method, path without its query, headers, body; None without one) -> (status, body)
Answer = Callable[[str, str, Mapping[str, str], Any], tuple[int, dict[str, Any]]]


@contextlib.contextmanager
def serving(
    answer: Answer, *, address: str = "127.0.0.1", port: int = 0, context: ssl.SSLContext | None = None
) -> Iterator[int]:
    """Within the block the server is there, at the port that it has."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            said = self._body()
            status, found = answer(
                self.command, urlsplit(self.path).path, self.headers, json.loads(said) if said else None
            )
            data = json.dumps(found).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_POST = do_PUT = do_GET

        def _body(self) -> bytes:
            if self.headers.get("Transfer-Encoding") != "chunked":
                return self.rfile.read(int(self.headers.get("Content-Length") or 0))
            said = b""
            while size := int(self.rfile.readline(), 16):
                said += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
            return said

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer((address, port), Handler)
    if context is not None:
        server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
