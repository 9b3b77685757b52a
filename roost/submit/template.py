"""Templates of texts that differ from job to job in a few words only: expanded once, then filled in for every job.

The macro table would expand `in.$(Process).txt` anew for each of 20,000 jobs (5 us each); a template takes 0.3 us. A
text becomes a template only where the outcome is certain to be the same; every other one is left to the table.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from shared.config.errors import ConfigError
from shared.config.macros import MacroTable, references

_WORD = re.compile(r"[A-Za-z0-9_.]+")
_AT_MATCH = re.compile(r"\$\$\([A-Za-z0-9_.]+\)")
_MARK = re.compile("\x01([^\x02]*)\x02")


@dataclass(frozen=True, slots=True)
class Template:
    """Literal pieces between live words, as a %-format."""

    pattern: str
    names: tuple[str, ...]

    def fill(self, live: Mapping[str, str]) -> str | None:
        """The text for these live words; None where one is missing, empty or has a macro in it, which mean more than
        putting it in its place."""
        try:
            values = tuple([live[name] for name in self.names])
        except KeyError:
            return None
        for value in values:
            if not value or "$" in value:
                return None
        return self.pattern % values


def compile_text(table: MacroTable, name: str, live: frozenset[str], changing: frozenset[str]) -> Template | None:
    """The template of macro `name`, or None if its value is not just pieces and live words.

    live: names of the live rows that change, in lower case; changing: those and every macro that depends on them.
    """
    row = table.get(name)
    if row is None or name.lower() in live or not _plain(table, row.text, changing, set()):
        return None
    present = {word: table.live[word] for word in live if word in table.live}
    table.live.update({word: f"\x01{word}\x02" for word in live})
    try:
        text = table.value(name)
    except ConfigError:
        return None
    finally:
        for word in live:
            table.live.pop(word, None)
        table.live.update(present)
    if text is None:
        return None
    pieces = _MARK.split(text)  # literal, word, literal, word, ... literal
    literals, words = pieces[::2], pieces[1::2]
    if any("$" in _AT_MATCH.sub("", literal) for literal in literals):
        return None  # a word put in beside a dollar sign might make a macro
    return Template("%s".join(literal.replace("%", "%%") for literal in literals), tuple(words))


def _plain(table: MacroTable, text: str, changing: frozenset[str], seen: set[str]) -> bool:
    """Whether no function gets its hands on a live word on the way to the value of `text`."""
    for reference in references(text):
        words = {word.lower() for word in _WORD.findall(reference.name + " " + (reference.default or ""))}
        if reference.function and (reference.function.startswith("RANDOM") or words & changing):
            return False
        for word in words - seen:
            seen.add(word)
            raw = table.raw(word) if word in changing and word not in table.live else None
            if raw is not None and not _plain(table, raw, changing, seen):
                return False
    return "\x01" not in text and "\x02" not in text


def mentioned(text: str) -> set[str] | None:
    """Every word that a reference in `text` may look up, in lower case; None when the text depends on chance."""
    words: set[str] = set()
    for reference in references(text):
        if reference.function.startswith("RANDOM"):
            return None
        words.update(word.lower() for word in _WORD.findall(reference.name))
        if reference.default:
            words.update(word.lower() for word in _WORD.findall(reference.default))
    return words
