"""The part of Kubernetes' API server that prepare speaks to: Secrets of one namespace, over HTTP or HTTPS.

It answers as the real one does: 404 for what is not there, 409 for what is there already or was changed meanwhile, 401
without the token. A version of each object counts up.
"""

from __future__ import annotations

import contextlib
import ssl
import threading
from collections.abc import Mapping
from typing import Any, Self

from tests.json_server import serving

TOKEN = "the-pods-token"


class KubernetesApi:
    """Within the block, at `port`. secrets: by name, as the API gives them. asked: "METHOD name" of each request.
    refuse: statuses of the next answers, instead of what they would be."""

    def __init__(self, namespace: str, *, address: str = "127.0.0.1", context: ssl.SSLContext | None = None) -> None:
        self._place = f"/api/v1/namespaces/{namespace}/secrets"
        self._serving = {"address": address, "context": context}
        self.secrets: dict[str, dict[str, Any]] = {}
        self.asked: list[str] = []
        self.refuse: list[int] = []
        self.port = 0
        self._version = 0
        self._lock = threading.Lock()
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> Self:
        self.port = self._stack.enter_context(serving(self._answer, **self._serving))
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _answer(self, method: str, path: str, headers: Mapping[str, str], body: Any) -> tuple[int, dict[str, Any]]:
        if headers.get("Authorization") != f"Bearer {TOKEN}":
            return 401, {"reason": "Unauthorized"}
        place, _, name = path.partition(f"{self._place}/") if path != self._place else ("", "", "")
        if place:
            return 403, {"reason": "Forbidden"}
        with self._lock:
            self.asked.append(f"{method} {name or body['metadata']['name']}")
            return (self.refuse.pop(0), {"message": "not now"}) if self.refuse else self.answer(method, name, body)

    def answer(self, method: str, name: str, body: dict[str, Any] | None) -> tuple[int, dict[str, Any]]:
        """Status and body."""
        if method == "GET":
            return (200, self.secrets[name]) if name in self.secrets else (404, {"reason": "NotFound"})
        assert body is not None
        given = body["metadata"]
        there = self.secrets.get(given["name"])
        if method == "POST" and there is not None:
            return 409, {"reason": "AlreadyExists"}
        if method == "PUT":
            if there is None or given["name"] != name:
                return 404, {"reason": "NotFound"}
            if there["metadata"]["resourceVersion"] != given.get("resourceVersion"):
                return 409, {"reason": "Conflict"}
        self._version += 1
        self.secrets[given["name"]] = {**body, "metadata": {**given, "resourceVersion": str(self._version)}}
        return 200 if method == "PUT" else 201, self.secrets[given["name"]]
