"""Recorded cases by the hundred in one test, which names each that fails: as tests of their own they would cost more to
be found, sent to a worker and told of than to be checked."""

from collections.abc import Callable, Iterable
from typing import TypeVar

import pytest

T = TypeVar("T")
#: So many are told whole.
TOLD = 20


def each(cases: Iterable[T], check: Callable[[T], object], name: Callable[[T], str]) -> None:
    """Check every case, whatever becomes of the others. Fails with the names of those that failed, and why."""
    failed, count = [], 0
    for count, case in enumerate(cases, start=1):  # noqa: B007  (read below)
        try:
            check(case)
        except (Exception, pytest.fail.Exception) as error:
            failed.append(f"{name(case)}: {type(error).__name__}: {error}")
    assert count, "there are no cases"
    if failed:
        told = "\n\n".join(failed[:TOLD] + [one.partition("\n")[0] for one in failed[TOLD:]])
        pytest.fail(f"{len(failed)} of {count} cases:\n\n{told}", pytrace=False)
