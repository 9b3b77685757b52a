"""The root of what can go wrong. A refusal is a value; operating trouble is one of these; a programmer's error is an
assertion and ends the process."""

from __future__ import annotations

import errno
import os
from typing import Final


class RoostError(Exception):
    """Anything of ours that a person may see: the text names the place and the mend."""


class RetryableError(RoostError):
    """May go away by itself: retried with back-off around I/O, and nowhere else."""


class PermanentError(RoostError):
    """Will fail again in the same way."""


class ConfigurationError(PermanentError):
    """What the configuration says can not be, or not here: names the knob and the mend."""


#: What the system calls its errors -> their numbers.
_NUMBERS: Final = {os.strerror(number): number for number in errno.errorcode}


def error_number(text: str) -> int:
    """The errno of what a text says at its end, behind a colon; 0: none."""
    return _NUMBERS.get(text.rpartition(": ")[2], 0)
