"""`use CATEGORY : NAME(arguments)`: finding a template and filling its arguments in (spec rows CFG-07, CFG-08)."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass

_USE = re.compile(r"[\s,]*([A-Za-z0-9_]+)\s*(\(?)")
_SLOT = re.compile(r"\$\(([0-9])([?+#]?)([:)])")


@dataclass(frozen=True, slots=True)
class Arguments:
    """What stands between the parentheses. starts: where each argument begins in text."""

    text: str = ""
    words: tuple[str, ...] = ()
    starts: tuple[int, ...] = ()

    def get(self, number: int) -> str:
        """The argument of that number, from 1; empty if there is none."""
        return self.words[number - 1] if number <= len(self.words) else ""

    def rest(self, number: int) -> str:
        """That argument and all behind it, as they were written."""
        return self.text[self.starts[number - 1] :].strip() if number <= len(self.words) else ""


def _close(text: str, start: int) -> int:
    """The index of the parenthesis that closes the one before `start`; -1 if there is none."""
    depth = 0
    for index in range(start, len(text)):
        if text[index] == "(":
            depth += 1
        elif text[index] == ")":
            if depth == 0:
                return index
            depth -= 1
    return -1


def template_uses(text: str) -> list[tuple[str, Arguments]] | None:
    """The templates named behind the colon of a `use`, each with its arguments; None if it is no such list.

    Names are separated by commas or blanks. An argument ends at a comma outside parentheses.
    """
    uses: list[tuple[str, Arguments]] = []
    position = 0
    while text[position:].strip(" \t\n,"):
        match = _USE.match(text, position)
        if match is None:
            return None
        position = match.end()
        arguments = Arguments()
        if match[2]:
            end = _close(text, position)
            if end < 0:
                return None
            arguments = _split(text[position:end])
            position = end + 1
        uses.append((match[1], arguments))
    return uses


def _split(text: str) -> Arguments:
    """Arguments between commas outside parentheses; no arguments at all for an empty text."""
    words, starts, depth = [], [0], 0
    for index, letter in enumerate(text):
        depth += (letter == "(") - (letter == ")")
        if letter == "," and depth == 0:
            words.append(text[starts[-1] : index].strip())
            starts.append(index + 1)
    words.append(text[starts[-1] :].strip())
    return Arguments(text, tuple(words), tuple(starts)) if words != [""] else Arguments()


def fill(body: str, arguments: Arguments) -> str:
    """A template's body with its arguments put in as they stand, so that macros in them stay lazy.

    `$(1)` .. `$(9)` one argument, `$(0)` all, `$(N+)` from N on with the commas, `$(0#)` their count, `$(N?)` 1 if it
    is not empty, else 0; `$(N:text)` gives the text for an empty one.
    """
    pieces: list[str] = []
    position = 0
    while (slot := _SLOT.search(body, position)) is not None:
        end = slot.end() - 1
        default = ""
        if slot[3] == ":":
            end = _close(body, slot.end())
            if end < 0:
                break
            default = fill(body[slot.end() : end], arguments)
        pieces += (body[position : slot.start()], _argument(int(slot[1]), slot[2], arguments) or default)
        position = end + 1
    return "".join([*pieces, body[position:]])


def _argument(number: int, sign: str, arguments: Arguments) -> str:
    count = len(arguments.words)
    if sign == "#":
        return str(count if number == 0 else max(0, count - number + 1))
    text = arguments.rest(max(number, 1)) if number == 0 or sign == "+" else arguments.get(number)
    if sign == "?":
        return "1" if text else "0"
    return text


class Templates:
    """Templates by category and name, both case-insensitive."""

    def __init__(self, categories: Mapping[str, Mapping[str, str]]) -> None:
        self._names = {category.lower(): (category, tuple(bodies)) for category, bodies in categories.items()}
        self._bodies = {
            category.lower(): {name.lower(): body for name, body in bodies.items()}
            for category, bodies in categories.items()
        }

    def body(self, category: str, name: str) -> str | None:
        """The text of a template, or None."""
        return self._bodies.get(category.lower(), {}).get(name.lower())

    def knows(self, which: str) -> bool:
        """Whether `CATEGORY:NAME`, or `CATEGORY` alone, is there."""
        category, _, name = which.partition(":")
        if not name:
            return category.lower() in self._bodies
        return self.body(category, name) is not None

    def suggest(self, category: str, name: str) -> str:
        """The mend for a template that is not there."""
        found = self._names.get(category.lower())
        if found is None:
            return "categories are " + ", ".join(shown for shown, _ in self._names.values()) if self._names else ""
        names = {known.lower(): known for known in found[1]}
        near = difflib.get_close_matches(name.lower(), names, 1)
        return f"did you mean {found[0]}:{names[near[0]]}?" if near else "it has " + ", ".join(sorted(names.values()))
