"""Memory that was freed goes back to the system. Ads come in as long bytes and are kept as short ones; what lies
between those stays with the process otherwise, up to several times of what it uses."""

from __future__ import annotations

import ctypes
from collections.abc import Callable

#: Messages after which a look is worth its milliseconds, and seconds between looks.
WORTH, EVERY_S = 1_000, 30.0


def trimmer() -> Callable[[], object]:
    """A call for a thread; it does nothing where the C library has no such function."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    return (lambda: None) if trim is None else (lambda: trim(0))
