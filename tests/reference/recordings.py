"""What HTCondor's daemons and tools answered where they were at hand, compared with our answers of today. No dice: they
can not be had from a package everywhere, so their answers are those that were recorded (each folder says how)."""

from __future__ import annotations

import re
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.reference.family import Case, Facts, Family
from tests.reference_pools import Recorded, recorded
from tests.unit.negotiator import test_reference_pools as pools
from tests.unit.startd import test_reference_states as states

# States of slots


def _state_cases() -> Iterator[tuple[Case, Facts]]:
    for history in states.HISTORIES:
        yield history, {name: [what for _, what in states.compared(history, name)[1]] for name in history["conditions"]}


def _went(history: Case) -> Facts:
    return {name: [what for _, what in states.compared(history, name)[0]] for name in history["conditions"]}


# Who gets what


def _pool_cases() -> Iterator[tuple[Case, Facts]]:
    for pool in recorded():
        yield pool.row, _matches(pools.expected(pool))


def _decided(row: Case) -> Facts:
    pool = Recorded(row)
    with tempfile.TemporaryDirectory() as place:
        result = pools.decide(pool, pools.config_of(pool, Path(place)))
    users = pools.users_of(pool)
    return _matches([one for match in result.matches for one in pools.told(match, users)])


def _matches(told: list[tuple[str, int, str, str]]) -> Facts:
    """Who gets how many, and each match: which of whose requests gets which slot, preempting whom."""
    return {
        "who gets how many": dict(sorted(Counter(who for who, *_ in told).items())),
        **{
            f"match {who} {request} {slot} {preempts}": n for (who, request, slot, preempts), n in Counter(told).items()
        },
    }


def _on_purpose(row: Case, question: str, mine: Any, theirs: Any) -> str:
    return pools.REASONS.get(row.get("until", {}).get("because", ""), "")


def _kind(question: str, mine: Any, theirs: Any) -> str:
    return "a match" if question.startswith("match") else re.sub(r"^\d+ ", "", question)


STATES = Family("states", None, _went, recorded=_state_cases)
NEGOTIATION = Family("negotiation", None, _decided, _on_purpose, _kind, recorded=_pool_cases)
