"""What becomes of a knob of HTCondor's: whether anything goes by it, wholly, in part or not at all, and why.

    placed = place("FLOCK_TO")           # Placed(kind=Effect.NONE, why="jobs do not flock ..."); None: nobody's knob
    for problem in in_vain(config): ...  # what was written down, and does nothing, as the daemon of config sees it

The tables are in shared.config.knobs.effects, and are made usable when something is first asked.
"""

from __future__ import annotations

import re
from collections.abc import Set
from dataclasses import dataclass
from functools import cache
from typing import Final

from shared.config.config import DETECTED, Config
from shared.config.errors import NoEffect, Problem
from shared.config.knobs import KNOBS, SETTINGS
from shared.config.knobs.effects import DAEMONS, GIVEN, NONE, PART
from shared.config.macros import DEFAULT, Macro, references
from shared.effects import Answer, Effect

SUBSYSTEMS: Final = frozenset(DAEMONS.split())
_ANY: Final = "[A-Za-z0-9_.]+"
_GAP: Final = "(<[^>]+>|[*])"
#: Of which the gateway itself tells, by their values, what it can not go by.
_BY_VALUE: Final = ("ALLOW_", "DENY_", "SEC_<level>_AUTHENTICATION", "SEC_<level>_ENCRYPTION", "SEC_<level>_INTEGRITY")
#: Those of the daemons that are not here, so that no name with their scope is looked up.
NOT_HERE: Final = SUBSYSTEMS - {one.SUBSYSTEM for one in SETTINGS} - {"TOOL"}
_GAPS: Final = {"<SUBSYS>": "(?:" + "|".join(SUBSYSTEMS) + ")", "<N>": "[0-9]+"}


@dataclass(frozen=True, slots=True)
class Placed:
    """What there is to say of a knob. name: of the knob or family. why: of PART which one, of NONE why and what there
    is instead, else empty. daemons: whose knob it is; none: everybody's. told: whether who sets it hears of it."""

    name: str
    kind: Effect
    why: str = ""
    daemons: tuple[str, ...] = ()
    told: bool = True


@dataclass(frozen=True, slots=True)
class _Family:
    """A knob with gaps in its name. head, tail: what stands before the first and after the last one, in lower case."""

    placed: Placed
    head: str
    tail: str

    def has(self, key: str) -> bool:
        """Whether this name, in lower case, is of it."""
        if not (key.startswith(self.head) and key.endswith(self.tail) and len(key) > len(self.head) + len(self.tail)):
            return False  # nearly always; a pattern takes longer to make than all names to look up
        return _pattern(self.placed.name).fullmatch(key) is not None


@cache
def _pattern(name: str) -> re.Pattern[str]:
    pieces = enumerate(re.split(_GAP, name))
    return re.compile("".join(_GAPS.get(piece, _ANY) if i % 2 else re.escape(piece) for i, piece in pieces), re.I)


def place(name: str) -> Placed | None:
    """What becomes of a knob, by its name without a scope; None: it is nobody's, so a macro of somebody's own."""
    key = name.lower()
    exact, families = _tables()
    if (found := exact.get(key)) is not None:
        return found
    return next((family.placed for family in families if family.has(key)), None)


def place_scoped(name: str) -> Placed | None:
    """The same by a name that may have a scope, of a daemon or a local name, before it: SCHEDD.FLOCK_TO."""
    return place(_split(name)[1])


@cache
def _tables() -> tuple[dict[str, Placed], list[_Family]]:
    """Single names in lower case, and families: those first that spell out more of a name, and of two that spell out as
    much the one that does nothing."""
    exact: dict[str, Placed] = {}
    families: list[_Family] = []
    given = Answer("", GIVEN)
    for answer, kind in (
        *((answer, Effect.NONE) for answer in NONE),
        *((answer, Effect.PART) for answer in PART),
        (given, Effect.FULL),
    ):
        for name in answer.names.split():
            knob = KNOBS.get(name.lower())
            daemons = knob.daemons if knob is not None else answer.daemons
            _add(exact, families, Placed(name, kind, answer.why, daemons, answer.told))
    named = {family.placed.name for family in families}
    for knob in KNOBS.values():
        if knob.name not in named:
            _add(exact, families, Placed(knob.name, Effect.FULL, "", knob.daemons))
    families.sort(key=lambda family: -len(re.sub(_GAP, "", family.placed.name)))
    return exact, families


def _add(exact: dict[str, Placed], families: list[_Family], placed: Placed) -> None:
    name = placed.name.lower()
    if "<" in name or "*" in name:
        pieces = re.split(_GAP, name)
        families.append(_Family(placed, pieces[0], pieces[-1]))
    else:
        exact.setdefault(name, placed)


# ---------------------------------------------------------------- what a configuration has in vain


def in_vain(config: Config) -> list[Problem]:
    """Knobs that somebody wrote down and that do nothing, as far as they are of the daemon of `config`. What something
    else that has effect refers to is left out, as it has effect there, and so is what is set to nothing."""
    found: dict[str, tuple[Macro, str]] = {}
    for macro in config.macros():
        if macro.source not in (DETECTED, DEFAULT) and macro.text.strip() and (why := _vain(config, macro)):
            found[macro.name.lower()] = (macro, why)
    if not found:
        return []
    used = _used(config, found.keys())
    return [
        NoEffect(f"{macro.name} has no effect: {why}", macro.source, knob=macro.name, why=why)
        for key, (macro, why) in found.items()
        if key not in used
    ]


def _vain(config: Config, macro: Macro) -> str:
    """Why a macro does nothing; empty: it is of use, or of another daemon, or nobody's."""
    scope, name = _split(macro.name)
    placed = place(name)
    if placed is None or not placed.told:
        return ""
    if scope.upper() in NOT_HERE:
        return f"no daemon here is called {scope.upper()}, so nothing goes by names that begin with that"
    if placed.kind is not Effect.NONE or not _is_of_this(config, scope, placed):
        return ""
    return "" if config.subsystem == "GATEWAY" and is_told_by_value(name) else placed.why


def _is_of_this(config: Config, scope: str, placed: Placed) -> bool:
    """Whether this daemon tells of it: it is in its scope, or is of its kind and in nobody else's."""
    if scope.upper() in SUBSYSTEMS:
        return scope.upper() == config.subsystem
    return not placed.daemons or config.subsystem in placed.daemons


def _split(name: str) -> tuple[str, str]:
    """Scope and knob of a name: SCHEDD.FLOCK_TO, where the whole is no knob."""
    scope, dot, rest = name.partition(".")
    return (scope, rest) if dot and place(name) is None else ("", name)


def is_told_by_value(name: str) -> bool:
    """Whether the gateway itself tells of this knob, by its value, what it can not go by."""
    placed = place(name)
    return placed is not None and (placed.name in _BY_VALUE or placed.name.startswith(_BY_VALUE[:2]))


def _used(config: Config, idle: Set[str]) -> set[str]:
    """Names, in lower case, that a macro with effect, or one of somebody's own, takes in by $(NAME)."""
    texts = {macro.name.lower(): macro.text for macro in config.macros()}
    todo = [text for name, text in texts.items() if name not in idle]
    found: set[str] = set()
    while todo:
        for reference in references(todo.pop()):
            name = reference.name.lower()
            if name not in found:
                found.add(name)
                todo.append(texts.get(name, ""))
    return found
