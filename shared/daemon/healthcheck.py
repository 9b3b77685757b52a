"""For containers: `python -m shared.daemon.healthcheck [--ready]` asks the daemon at ROOST_HEALTH_PORT of
this machine.

Exits 0 when it lives (or, with --ready, does its work), else 1 with the reason. Standard library only: it
runs every few seconds.
"""

from __future__ import annotations

import os
import sys
import urllib.error
import urllib.request

TIMEOUT_S = 3.0


def check(port: str, path: str) -> str:
    """Empty when all is well, else what is not."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=TIMEOUT_S):
            return ""
    except urllib.error.HTTPError as error:
        return error.read().decode("utf-8", "replace")
    except OSError as error:
        return f"no answer from port {port}: {error}"


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
