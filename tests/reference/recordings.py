"""What HTCondor's startd did with its slots, compared with what ours do today. No dice: a history takes a minute, so
these are the recorded ones (tests/data/reference_states says how)."""

from __future__ import annotations

from collections.abc import Iterator

from tests.reference.family import Case, Facts, Family
from tests.unit.startd import test_reference_states as states

# States of slots


def _state_cases() -> Iterator[tuple[Case, Facts]]:
    for history in states.HISTORIES:
        yield history, {name: [what for _, what in states.compared(history, name)[1]] for name in history["conditions"]}


def _went(history: Case) -> Facts:
    return {name: [what for _, what in states.compared(history, name)[0]] for name in history["conditions"]}


STATES = Family("states", None, _went, recorded=_state_cases)
