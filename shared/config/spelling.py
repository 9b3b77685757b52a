"""Finds macros that look like misspelt knobs: warnings, never errors, for people define macros of their own."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache

from shared.config.errors import Problem
from shared.config.knobs.base import Knob
from shared.config.macros import Macro, references

_BLANK = re.compile(r"<[A-Za-z]+>|\*")


def _distance_at_most(left: str, right: str, bound: int) -> int | None:
    """Insertions, deletions, replacements and swaps of neighbours between two names; None above `bound`."""
    if abs(len(left) - len(right)) > bound:
        return None
    before: list[int] = []
    row = list(range(len(right) + 1))
    for i, letter in enumerate(left, 1):
        last, before, row = before, row, [i]
        for j, other in enumerate(right, 1):
            cost = min(before[j] + 1, row[j - 1] + 1, before[j - 1] + (letter != other))
            if i > 1 and j > 1 and letter == right[j - 2] and left[i - 2] == other:
                cost = min(cost, last[j - 2] + 1)
            row.append(cost)
        if min(row) > bound:
            return None
    return row[-1] if row[-1] <= bound else None


@lru_cache(4096)  # of all knobs, for each file that is read
def _letters(name: str) -> int:
    """The set of a name's characters as bits: an edit changes two of them at most."""
    bits = 0
    for letter in name:
        bits |= 1 << (ord(letter) & 63)
    return bits


def _mentioned(macros: Iterable[Macro]) -> set[str]:
    """Names, in lower case, that some text refers to, by `$(NAME)` or as a word of a list or an expression."""
    found: set[str] = set()
    for macro in macros:
        found.update(name.name.lower() for name in references(macro.text))
        found.update(word.lower() for word in re.findall(r"[A-Za-z0-9_.]+", macro.text))
    return found


def misspelt(macros: Iterable[Macro], knobs: Mapping[str, Knob]) -> list[Problem]:
    """Macros that nobody mentions, that are no knob and no member of a family, but close to a knob.

    knobs: by name in lower case. A scope before the name (`SCHEDD.X`) does not count.
    """
    rows = [macro for macro in macros if not macro.source.name.startswith("<") and not macro.source.template]
    mentioned = _mentioned(rows)
    doubtful = [
        (macro, name)
        for macro in rows
        if len(name := macro.name.lower().rpartition(".")[2]) >= 5
        and name not in mentioned
        and (name not in knobs or "<" in name)
    ]
    if not doubtful:
        return []  # nearly always; to prepare for more takes longer than to read the configuration
    fixed = {name: knob for name, knob in knobs.items() if "<" not in name}
    by_length: dict[int, list[tuple[int, str]]] = {}
    for known in fixed:
        by_length.setdefault(len(known), []).append((_letters(known), known))
    patterns = [
        re.compile("(.+)".join(map(re.escape, _BLANK.split(name)))) for name in knobs if "<" in name or "*" in name
    ]
    problems: list[Problem] = []
    for macro, name in doubtful:
        bound = 1 if len(name) < 9 else 2
        near = [
            (distance, known)
            for length in range(len(name) - bound, len(name) + bound + 1)
            for letters, known in by_length.get(length, ())
            if (letters ^ _letters(name)).bit_count() <= 2 * bound
            and (distance := _distance_at_most(name, known, bound)) is not None
        ]
        if not near or any(pattern.fullmatch(name) for pattern in patterns):
            continue
        knob = fixed[min(near)[1]]
        problems.append(Problem(f"{macro.name} is no known knob", macro.source, f"did you mean {knob.name}?"))
    return problems
