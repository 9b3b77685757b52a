"""The values a ClassAd expression can have.

BOOLEAN bool, INTEGER int (64-bit, wraps), REAL float, STRING str, ABSTIME datetime with zone,
RELTIME timedelta, LIST list, CLASSAD ClassAd, and the two special values below.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final, TypeAlias, Union

if TYPE_CHECKING:
    from shared.classad.ad import ClassAd


class Undefined:
    """The value of a name that resolves nowhere (spec row CLA-01). One instance: UNDEFINED."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "UNDEFINED"

    def __bool__(self) -> bool:
        raise TypeError("UNDEFINED is neither true nor false; compare with `is UNDEFINED`")

    def __reduce__(self) -> str:
        return "UNDEFINED"


class Error:
    """The value of a wrong operation, such as a string times a number. One instance: ERROR."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "ERROR"

    def __bool__(self) -> bool:
        raise TypeError("ERROR is neither true nor false; compare with `is ERROR`")

    def __reduce__(self) -> str:
        return "ERROR"


UNDEFINED: Final = Undefined()
ERROR: Final = Error()

Value: TypeAlias = Union[bool, int, float, str, datetime, timedelta, "list[Value]", "ClassAd", Undefined, Error]
