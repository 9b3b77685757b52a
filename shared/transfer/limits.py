"""How large the files of a job may be: MAX_TRANSFER_INPUT_MB and MAX_TRANSFER_OUTPUT_MB, which a job's
MaxTransferInputMB and MaxTransferOutputMB go before, as in HTCondor. Both ends of a transfer keep to it. Pure."""

from __future__ import annotations

from typing import Final

from shared.classad import ClassAd, Expr, evaluate

MIB: Final = 1 << 20
#: A limit above this many MiB (a TiB of them, infinity) is none.
MAX_LIMIT_MIB: Final = 1 << 40
INPUT: Final = "MaxTransferInputMB"
OUTPUT: Final = "MaxTransferOutputMB"


def limit_of(job: ClassAd, attribute: str, knob: Expr | None = None, now: float | None = None) -> int | None:
    """Bytes of content at most; None: no limit. knob: the access point's, which may look at the job's attributes; an
    execution point does not know it. What is no number, and what is negative, is no limit."""
    value = job.eval(attribute, None, now)
    if not _is_number(value) and knob is not None:
        value = evaluate(knob, job, None, now)
    return _bytes(value)


def lowest(*limits: int | None) -> int | None:
    """The strictest of these."""
    return min((limit for limit in limits if limit is not None), default=None)


def of_mib(mib: float) -> int | None:
    """A knob's MiB in bytes; None: no limit."""
    return _bytes(mib)


def _bytes(value: object) -> int | None:
    return int(value * MIB) if _is_number(value) and 0 <= value < MAX_LIMIT_MIB else None  # type: ignore[operator]


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value == value
