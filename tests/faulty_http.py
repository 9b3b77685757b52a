"""A web server whose faults a test orders: for what fetches and sends files by URL."""

from __future__ import annotations

import base64
import hashlib
import http.server
import threading
from dataclasses import dataclass, field


@dataclass
class Fault:
    """What the next requests of a path get. times: so many; then it is as it should be.

    kind: status (answers `value`, with `headers`), short (half of the body, and the whole length), reset (the
    connection ends at once), hang (no answer until the server ends), redirect (to `value`), digest (says a wrong
    checksum)."""

    kind: str
    value: object = 0
    times: int = 10**9
    headers: dict[str, str] = field(default_factory=dict)


class FaultyServer:
    """Serves `files` by their paths, and keeps what is PUT there. asked: (method, path) in order. A context."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.faults: dict[str, Fault] = {}
        self.asked: list[tuple[str, str]] = []
        self.headers: list[dict[str, str]] = []
        self.digests = False  # tells Repr-Digest of what it sends
        self.over = threading.Event()
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *args):
                pass

            def do_GET(self):
                outer._answer(self)

            do_PUT = do_GET

        class Server(http.server.ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, request, client_address):
                pass  # who asked went away

        self._server = Server(("127.0.0.1", 0), Handler)
        self.port = self._server.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *exc):
        self.over.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def count(self, path: str) -> int:
        return sum(asked == path for _, asked in self.asked)

    def _answer(self, request: http.server.BaseHTTPRequestHandler) -> None:
        path = request.path.partition("?")[0]
        self.asked.append((request.command, path))
        self.headers.append(dict(request.headers))
        body = b""
        if request.command == "PUT":
            body = request.rfile.read(int(request.headers["Content-Length"]))
        fault = self.faults.get(path)
        if fault is not None and fault.times > 0:
            fault.times -= 1
            if self._fail(request, fault, self.files.get(path, b"x" * 1000)):
                return
        if request.command == "PUT":
            self.files[path] = body
            self._say(request, 201, b"")
        elif path in self.files:
            self._say(request, 200, self.files[path], self._digest(self.files[path]) if self.digests else {})
        else:
            self._say(request, 404, b"no such file here", {"Content-Type": "text/plain"})

    def _fail(self, request: http.server.BaseHTTPRequestHandler, fault: Fault, content: bytes) -> bool:
        request.close_connection = True
        if fault.kind == "status":
            self._say(request, int(str(fault.value)), b"out of order", {"Content-Type": "text/plain", **fault.headers})
        elif fault.kind == "short":
            request.send_response(200)
            request.send_header("Content-Length", str(len(content)))
            request.end_headers()
            request.wfile.write(content[: len(content) // 2])
        elif fault.kind == "hang":
            self.over.wait()
        elif fault.kind == "redirect":
            self._say(request, 302, b"", {"Location": str(fault.value)})
        elif fault.kind == "digest":
            self._say(request, 200, content, self._digest(content + b"?"))
        elif fault.kind != "reset":
            raise ValueError(fault.kind)
        return True

    @staticmethod
    def _digest(content: bytes) -> dict[str, str]:
        return {"Repr-Digest": f"sha-256=:{base64.b64encode(hashlib.sha256(content).digest()).decode()}:"}

    @staticmethod
    def _say(request, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        request.send_response(status)
        for name, value in (headers or {}).items():
            request.send_header(name, value)
        request.send_header("Content-Length", str(len(body)))
        request.end_headers()
        request.wfile.write(body)
