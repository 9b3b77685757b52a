"""What a daemon's log says of files that others could read. Apart from `shared.private_files`, which commands read too:
to read structlog costs a command more than all else of its start."""

from __future__ import annotations

import structlog

from shared.private_files import Closed


def tell(closed: Closed, log: structlog.stdlib.BoundLogger) -> None:
    """Say which files others could read until now, and which they still can."""
    if closed.paths:
        log.warning("files_closed", paths=closed.paths[:20], count=len(closed.paths), reason="others could read them")
    for problem in closed.problems:
        log.warning("files_open", problem=problem, mend="chown it to the daemon's account, or name another place")
