"""The conditions of `if` and `elif`, and which lines they let through.

The language is small on purpose: `true`, `false`, a number, `defined NAME`, `defined use CATEGORY:NAME`,
`version OP x.y[.z]`, each behind at most one `!`; no comparisons, no `&&` ("Configuration" 5 and 6).
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from dataclasses import dataclass

from shared.config.errors import Source, config_error

VERSION = (23, 9, 6)
"""The version of HTCondor whose files are understood: what `if version` compares with."""

_TRUE = frozenset(("true", "t", "yes"))
_FALSE = frozenset(("false", "f", "no"))
_NUMBER = re.compile(r"-?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_VERSION = re.compile(r"version\s+(==|=|!=|<=|>=|<|>)\s*([0-9]+(?:\.[0-9]+)+)", re.IGNORECASE)
_DEFINED = re.compile(r"defined(?:\s+(.*))?", re.IGNORECASE)
_COMPARE: dict[str, Callable[[tuple[int, ...], tuple[int, ...]], bool]] = {
    "==": operator.eq,
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_MEND = "write true, false, a number, 'defined NAME' or 'version >= 23.0', with '!' before it at most once"


def holds(condition: str, is_defined: Callable[[str], bool], source: Source) -> bool:
    """Whether an expanded condition is true. Raises ConfigError when it is none.

    is_defined: asked with the name behind `defined`, or with `use CATEGORY:NAME`.
    """
    text = condition.strip()
    negated = text.startswith("!")
    if negated:
        text = text[1:].strip()
    answer = _holds(text, is_defined)
    if answer is None:
        raise config_error(f"'{condition.strip()}' is not a condition that if can decide", source, _MEND)
    return answer != negated


def _holds(text: str, is_defined: Callable[[str], bool]) -> bool | None:
    word = _word(text)
    if word is not None:
        return word
    version = _VERSION.fullmatch(text)
    if version is not None:
        wanted = tuple(int(part[:9]) for part in version[2].split("."))[:3]
        return _COMPARE[version[1]](VERSION[: len(wanted)], wanted)
    defined = _DEFINED.fullmatch(text)
    if defined is None:
        return None
    name = (defined[1] or "").strip()
    if not name:
        return False
    parts = name.split()
    if parts[0].lower() == "use" and len(parts) <= 2:
        return len(parts) == 2 and is_defined("use " + parts[1])
    if len(parts) > 1:
        return None
    if name.lower() in _TRUE or name.lower() in _FALSE:
        return True  # any truth value counts as defined here, false too
    word = _word(name)
    return is_defined(name) if word is None else word


def _word(text: str) -> bool | None:
    """The truth of a boolean word or a number; None if it is neither."""
    lowered = text.lower()
    if lowered in _TRUE:
        return True
    if lowered in _FALSE:
        return False
    return float(text) != 0 if _NUMBER.fullmatch(text) else None


@dataclass(slots=True)
class _Level:
    opened: Source
    open: bool  # lines of the present branch count
    taken: bool  # a branch was taken, or none may be: the surrounding lines do not count
    has_else: bool = False


class Branches:
    """The `if`s that are open at one place of one file."""

    def __init__(self) -> None:
        self._levels: list[_Level] = []

    @property
    def depth(self) -> int:
        """How many `if`s are open."""
        return len(self._levels)

    @property
    def open(self) -> bool:
        """Whether lines count here."""
        return not self._levels or self._levels[-1].open

    def enter(self, decide: Callable[[], bool], source: Source) -> None:
        """`if`: the condition is decided only where lines count."""
        outside = self.open
        answer = outside and decide()
        self._levels.append(_Level(source, answer, answer or not outside))

    def otherwise(self, decide: Callable[[], bool], source: Source) -> None:
        """`elif`: the condition is decided only when no branch before it was taken."""
        level = self._level("elif", source)
        level.open = not level.taken and decide()
        level.taken = level.taken or level.open

    def last(self, source: Source) -> None:
        """`else`."""
        level = self._level("else", source)
        level.open, level.taken, level.has_else = not level.taken, True, True

    def leave(self, source: Source) -> None:
        """`endif`."""
        if not self._levels:
            raise config_error("endif without an if", source, "remove it, or write the if")
        self._levels.pop()

    def finish(self) -> None:
        """The end of the file: every `if` must have been closed."""
        if self._levels:
            raise config_error("this if has no endif before the end of the file", self._levels[-1].opened, "add endif")

    def forget(self) -> None:
        """Drop all open `if`s, as the submit language does at a queue line."""
        self._levels.clear()

    def _level(self, word: str, source: Source) -> _Level:
        if not self._levels:
            raise config_error(f"{word} without an if", source, "remove it, or write the if")
        if self._levels[-1].has_else:
            raise config_error(f"{word} after else", source, "put else last")
        return self._levels[-1]
