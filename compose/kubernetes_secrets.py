"""Runs prepare where the pool's files are Secrets of Kubernetes: reads those that are there, makes what lacks, and
writes back what changed; safe to run again. Who runs this may get, create and replace Secrets of its own namespace.

Each directory of prepare's is a Secret of the same name, behind SECRET_PREFIX. A file's path is its key there, with
".." in place of "/", as a key has no slash.

Environment: SECRET_PREFIX, and what prepare reads. It speaks to the
API server by the account of its pod.
"""

import base64
import json
import os
import ssl
import sys
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import prepare
from tenacity import retry, retry_if_exception, stop_after_attempt, wait_exponential

from shared.bus.definitions import ADMINISTRATOR
from shared.state import acl

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
#: Directories beside those of the daemons.
SERVERS = ("authority", ADMINISTRATOR, acl.LOADER, prepare.JOIN, "rabbitmq", "redis", "sentinel", "consumers")
#: Nothing that is to be kept: a lock, and what prepare writes before it takes the place of what was there.
PASSING = ("lock", ".new")
#: How often the API server is asked again when it does not answer or is busy, and how long it may take.
TRIES, TIMEOUT_S = 10, 10.0
Files = dict[str, bytes]


class Refused(OSError):
    """The API server answered, and did not do it. `status` is HTTP's."""

    def __init__(self, status: int, said: str) -> None:
        super().__init__(f"{status} {said}")
        self.status = status


def _passing(error: BaseException) -> bool:
    """Whether the API server may answer otherwise in a while."""
    if isinstance(error, Refused):
        return error.status in (429, 500, 502, 503, 504)
    return isinstance(error, OSError)


def key_of(path: Path) -> str:
    return "..".join(path.parts)


def path_of(key: str) -> Path:
    """Raises ValueError for a key that is none of ours."""
    path = Path(*key.split(".."))
    if not key or path.is_absolute() or key_of(path) != key or "/" in key:
        raise ValueError(f"{key[:80]!r} names no file")
    return path


def files_in(directory: Path) -> Files:
    """What lies in a directory of prepare's, by key."""
    found = {}
    for path in sorted(directory.rglob("*")):
        if path.is_file() and not path.name.endswith(PASSING):
            found[key_of(path.relative_to(directory))] = path.read_bytes()
    return found


def lay_out(files: Mapping[str, bytes], directory: Path) -> None:
    """Write a Secret's files where prepare looks for them."""
    directory.mkdir(exist_ok=True)
    for key, data in files.items():
        path = directory / path_of(key)
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(data)
        path.chmod(0o400)


@dataclass
class Api:
    """The Secrets of one namespace. Raises OSError."""

    url: str
    namespace: str
    token: str
    context: ssl.SSLContext | None = None
    #: What tells whose Secrets these are.
    labels: dict[str, str] = field(default_factory=dict)

    @classmethod
    def of_pod(cls, labels: dict[str, str]) -> "Api":
        host, port = os.environ["KUBERNETES_SERVICE_HOST"], os.environ.get("KUBERNETES_SERVICE_PORT", "443")
        return cls(
            f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}",
            (ACCOUNT / "namespace").read_text().strip(),
            (ACCOUNT / "token").read_text().strip(),
            ssl.create_default_context(cafile=ACCOUNT / "ca.crt"),
            labels,
        )

    def secret(self, name: str) -> dict[str, Any] | None:
        """None: there is none of this name."""
        try:
            return self._ask("GET", f"/{name}")
        except Refused as error:
            if error.status == 404:
                return None
            raise

    def write(self, name: str, files: Files, before: dict[str, Any] | None) -> None:
        """Create the Secret, or replace the one that was read. Raises OSError, also where another one has changed it
        meanwhile."""
        metadata: dict[str, Any] = {"name": name, "labels": self.labels}
        if before is not None:
            # With the version that was read: a change of somebody else's is not overwritten.
            metadata["resourceVersion"] = before["metadata"]["resourceVersion"]
        body = {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": metadata,
            "type": "Opaque",
            "data": {key: base64.b64encode(data).decode() for key, data in files.items()},
        }
        self._ask("POST", "", body) if before is None else self._ask("PUT", f"/{name}", body)

    @retry(
        retry=retry_if_exception(_passing),
        stop=stop_after_attempt(TRIES),
        wait=wait_exponential(0.25, max=8.0),
        reraise=True,
    )
    def _ask(self, method: str, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        request = urllib.request.Request(
            f"{self.url}/api/v1/namespaces/{self.namespace}/secrets{path}",
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"},
        )
        try:
            with urllib.request.urlopen(request, timeout=TIMEOUT_S, context=self.context) as answer:
                return dict(json.load(answer))
        except urllib.error.HTTPError as error:
            with error:
                raise Refused(error.code, f"{error.reason} {error.read(2000).decode(errors='replace')}") from None


def unpacked(secret: dict[str, Any] | None) -> Files:
    return {key: base64.b64decode(value) for key, value in ((secret or {}).get("data") or {}).items()}


def run(api: Api, prefix: str) -> list[str]:
    """Returns the names of the Secrets that were written. Raises OSError, ValueError."""
    names = [*SERVERS, *(one.service for one in prepare.instances())]
    there = {name: api.secret(prefix + name) for name in names}
    for name, secret in there.items():
        lay_out(unpacked(secret), prepare.KEYS / name)
    prepare.main()
    written = []
    for name, secret in there.items():
        files = files_in(prepare.KEYS / name)
        if files != unpacked(secret) and (files or secret):
            api.write(prefix + name, files, secret)
            written.append(prefix + name)
    return written


def main() -> None:
    os.umask(0o077)
    prefix = os.environ["SECRET_PREFIX"]
    labels = {"app.kubernetes.io/managed-by": "roost-prepare", "app.kubernetes.io/instance": prefix.rstrip("-")}
    try:
        written = run(Api.of_pod(labels), prefix)
    except (OSError, ValueError) as error:
        sys.exit(f"prepare: the Secrets of Kubernetes: {error}".rstrip())
    sys.stdout.write(f"{len(written)} Secrets written: {' '.join(written) or 'all were there'}\n")


if __name__ == "__main__":
    main()
