"""Room for bounded recursion.

Parser and evaluator recurse, both within stated bounds, but a bound that is right for the language can be more
frames than the caller has left below Python's limit. So they run as they are, and only a run that hits
the limit is run again with the limit raised: Python's own frames live on the heap, not on the C stack.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import Final, ParamSpec, TypeVar

ROOM: Final = 40_000  # frames; more than any bounded recursion here can use

P = ParamSpec("P")
R = TypeVar("R")

_lock = threading.Lock()
_users = 0
_before = 0


def with_room(work: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """`work(*args)`, again with ROOM more frames if it needs them. `work` must be free of side effects."""
    try:
        return work(*args, **kwargs)
    except RecursionError:
        pass
    _raise_limit()
    try:
        return work(*args, **kwargs)
    finally:
        _restore_limit()


def _raise_limit() -> None:
    global _users, _before
    with _lock:
        if _users == 0:
            _before = sys.getrecursionlimit()
        _users += 1
        sys.setrecursionlimit(max(sys.getrecursionlimit(), _frames() + ROOM))


def _restore_limit() -> None:
    global _users
    with _lock:
        _users -= 1
        if _users == 0:
            sys.setrecursionlimit(_before)


def _frames() -> int:
    frame, count = sys._getframe(), 0
    while frame.f_back is not None:
        frame, count = frame.f_back, count + 1
    return count
