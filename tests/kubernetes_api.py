"""The part of Kubernetes' API server that prepare speaks to: Secrets of one namespace, over HTTP or HTTPS.

It answers as the real one does: 404 for what is not there, 409 for what is there already or was changed meanwhile, 401
without the token. A version of each object counts up.
"""

from __future__ import annotations

import json
import ssl
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self
from urllib.parse import urlsplit

TOKEN = "the-pods-token"


class KubernetesApi:
    """Within the block. secrets: by name, as the API gives them. asked: "METHOD name" of each request. refuse: statuses
    of the next answers, instead of what they would be."""

    def __init__(self, namespace: str, *, address: str = "127.0.0.1", context: ssl.SSLContext | None = None) -> None:
        self.namespace = namespace
        self.secrets: dict[str, dict[str, Any]] = {}
        self.asked: list[str] = []
        self.refuse: list[int] = []
        self._version = 0
        self._lock = threading.Lock()
        self._server = ThreadingHTTPServer((address, 0), self._handler())
        if context is not None:
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self.port = self._server.server_address[1]

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05})
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def answer(self, method: str, name: str, body: dict[str, Any] | None) -> tuple[int, dict[str, Any]]:
        """Status and body."""
        with self._lock:
            self.asked.append(f"{method} {name or (body or {})['metadata']['name']}")
            if self.refuse:
                return self.refuse.pop(0), {"message": "not now"}
            if method == "GET":
                return (200, self.secrets[name]) if name in self.secrets else (404, {"reason": "NotFound"})
            assert body is not None
            given = body["metadata"]
            there = self.secrets.get(given["name"])
            if method == "POST" and there is not None:
                return 409, {"reason": "AlreadyExists"}
            if method == "PUT" and (there is None or given["name"] != name):
                return 404, {"reason": "NotFound"}
            if method == "PUT" and there["metadata"]["resourceVersion"] != given.get("resourceVersion"):
                return 409, {"reason": "Conflict"}
            self._version += 1
            self.secrets[given["name"]] = {**body, "metadata": {**given, "resourceVersion": str(self._version)}}
            return 200 if method == "PUT" else 201, self.secrets[given["name"]]

    def _handler(api) -> type[BaseHTTPRequestHandler]:
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self._answer()

            do_POST = do_PUT = do_GET

            def _answer(self) -> None:
                length = int(self.headers.get("Content-Length") or 0)
                body = json.loads(self.rfile.read(length)) if length else None
                path = urlsplit(self.path).path
                start = f"/api/v1/namespaces/{api.namespace}/secrets"
                if self.headers.get("Authorization") != f"Bearer {TOKEN}":
                    status, said = 401, {"reason": "Unauthorized"}
                elif path != start and not path.startswith(f"{start}/"):
                    status, said = 403, {"reason": "Forbidden"}
                else:
                    status, said = api.answer(self.command, path.removeprefix(start).lstrip("/"), body)
                data = json.dumps(said).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_: object) -> None:
                pass

        return Handler
