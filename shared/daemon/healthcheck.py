"""For containers: `python -m shared.daemon.healthcheck [--ready]` asks the daemon at ROOST_HEALTH_PORT of
this machine.

Exits 0 when it lives (or, with --ready, does its work), else 1 with the reason. Plain sockets only: it runs in every
container every few seconds, and Python's own HTTP client takes five times as long to load as all of this to run.
"""

from __future__ import annotations

import os
import socket
import sys
import time

TIMEOUT_S = 3.0
#: A daemon's answers have some thousand bytes.
MOST_BYTES = 1 << 20


def ask(port: int, path: str, timeout_s: float) -> tuple[int, str]:
    """Status and text of what a daemon on this machine answers. Raises OSError, also when the answer is none of HTTP's
    or not whole after `timeout_s` seconds."""
    deadline = time.monotonic() + timeout_s
    with socket.create_connection(("127.0.0.1", port), timeout_s) as connection:
        connection.sendall(f"GET {path} HTTP/1.0\r\n\r\n".encode())
        said = b""
        while part := connection.recv(65536):
            said += part
            left = deadline - time.monotonic()
            if left <= 0 or len(said) > MOST_BYTES:
                raise TimeoutError(f"it still speaks after {timeout_s:g} s and {len(said)} bytes")
            connection.settimeout(left)
    head, _, body = said.partition(b"\r\n\r\n")
    words = head.split(maxsplit=2)
    if len(words) < 2 or not words[0].startswith(b"HTTP/") or not words[1].isdigit():
        raise OSError(f"no HTTP but {said[:40]!r}")
    return int(words[1]), body.decode("utf-8", "replace")


def check(port: str, path: str) -> str:
    """Empty when all is well, else what is not."""
    try:
        status, text = ask(int(port), path, TIMEOUT_S)
    except OSError as error:
        return f"no answer from port {port}: {error}"
    return "" if status == 200 else text or f"status {status}"


def main(argv: list[str], environment: dict[str, str]) -> int:
    port = environment.get("ROOST_HEALTH_PORT") or environment.get("_CONDOR_ROOST_HEALTH_PORT", "")
    if not port.isdigit() or port == "0":
        sys.stderr.write("ROOST_HEALTH_PORT is not set: set it to the port the daemon shall tell its health on\n")
        return 1
    problem = check(port, "/readyz" if "--ready" in argv else "/healthz")
    if problem:
        sys.stderr.write(problem.strip() + "\n")
    return 1 if problem else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], dict(os.environ)))
