"""Files of -print-format: which columns, in what form, of which ads, and what stands below.

SELECT [BARE | NOTITLE | NOHEADER | NOSUMMARY] [LABEL [SEPARATOR s]] [RECORDPREFIX s] [FIELDPREFIX s] ...
    EXPR [AS HEADING] [PRINTF FORMAT | PRINTAS WORD] [WIDTH n | WIDTH AUTO] [LEFT | RIGHT] [TRUNCATE] [OR c] ...
WHERE EXPR
GROUP BY EXPR [ASCENDING | DESCENDING]
SUMMARY [STANDARD | NONE]
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from roost.cli import printas
from roost.cli.print_mask import As, Column, Mask, column
from roost.cli.printf import unescape
from roost.errors import UsageError
from shared.classad import ParseError, parse_expr

_TOKEN: Final = re.compile(r"""'[^']*'|"[^"]*"|[^\s'"]\S*|['"]\S*""")
_WORDS: Final = frozenset(
    ("AS", "PRINTF", "PRINTAS", "OR", "NOSUFFIX", "NOPREFIX", "LEFT", "RIGHT", "FIT", "TRUNCATE", "ALWAYS",
     "WIDTH")
)  # fmt: skip
_ALTERNATIVES: Final = " ?*.-_#0"


@dataclass(slots=True)
class PrintFormat:
    """What a file asks for. summary: standard, none or custom (`sums` has its columns). alike: what a row is in place
    of an ad: UNIQUE, AUTOCLUSTER; empty: an ad."""

    mask: Mask = field(default_factory=lambda: Mask(prefix=" ", row_suffix="\n"))
    title: bool = True
    header: bool = True
    summary: str = "none"
    sums: list[Column] = field(default_factory=list)
    where: str = ""
    group_by: list[str] = field(default_factory=list)
    alike: str = ""
    label: str | None = None  # what stands between a field's name and its value, instead of headings


@dataclass(frozen=True, slots=True)
class _Token:
    text: str
    begin: int
    end: int
    quoted: bool

    def word(self) -> str:
        return "" if self.quoted else self.text.upper()


def load(file: str, words: Mapping[str, As] | None = None) -> PrintFormat:
    """Read a file (- for standard input). words: what PRINTAS knows besides. Raises UsageError naming file and line."""
    try:
        text = sys.stdin.read() if file == "-" else Path(file).read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"-print-format {file}: {getattr(error, 'strerror', None) or error}") from error
    found = _File(file, {**printas.TABLE, **(words or {})})
    for number, line in enumerate(text.splitlines(), 1):
        found.line(number, line)
    return found.result


class _File:
    def __init__(self, name: str, words: Mapping[str, As]) -> None:
        self._name, self._words = name, words
        self._number = 0
        self._section = "SELECT"
        self.result = PrintFormat()

    def _fail(self, what: str) -> UsageError:
        return UsageError(f"-print-format {self._name}, line {self._number}: {what}")

    def line(self, number: int, line: str) -> None:
        self._number = number
        tokens = _tokens(line)
        if not tokens or tokens[0].text.startswith("#"):
            return
        first = tokens[0].text
        if first in ("SELECT", "SUMMARY"):
            self._section = first
            (self._select if first == "SELECT" else self._summary)(tokens[1:])
            return
        if first in ("WHERE", "GROUP", "JOIN", "AND"):
            self._section = first
            tokens = tokens[1:]
            if first == "GROUP" and tokens and tokens[0].text == "BY":
                tokens = tokens[1:]
            if not tokens:
                return
        rest = line[tokens[0].begin :].strip()
        if self._section == "WHERE":
            self._check(rest)
            self.result.where = rest
        elif self._section == "GROUP":
            self._group(tokens, line)
        elif self._section == "SELECT":
            made = self._column(tokens, line)
            if made is not None:
                self.result.mask.columns.append(made)
        elif self._section == "SUMMARY":
            made = self._column(tokens, line)
            if made is not None:
                self.result.sums.append(made)

    def _select(self, tokens: list[_Token]) -> None:
        found, mask = self.result, self.result.mask
        words = iter(tokens)

        def value(after: str) -> str:
            token = next(words, None)
            if token is None:
                raise self._fail(f"{after} wants a text behind it")
            return unescape(token.text)

        for token in words:
            word = token.text
            if word == "FROM":
                found.alike = "AUTOCLUSTER" if value(word) == "AUTOCLUSTER" else found.alike
            elif word == "UNIQUE":
                found.alike = word
            elif word == "BARE":
                found.title = found.header = False
            elif word == "NOTITLE":
                found.title = False
            elif word == "NOHEADER":
                found.header = False
            elif word == "LABEL":
                found.label = " = "
            elif word == "SEPARATOR" and found.label is not None:
                found.label = value(word)
            elif word == "RECORDPREFIX":
                mask.row_prefix = value(word)
            elif word == "RECORDSUFFIX":
                mask.row_suffix = value(word)
            elif word == "FIELDPREFIX":
                mask.prefix = value(word)
            elif word == "FIELDSUFFIX":
                mask.suffix = value(word)
            elif word != "NOSUMMARY":
                raise self._fail(f"SELECT knows no {word!r}")

    def _summary(self, tokens: list[_Token]) -> None:
        self.result.summary = "custom"
        for token in tokens:
            if token.text not in ("STANDARD", "NONE"):
                raise self._fail(f"SUMMARY knows no {token.text!r}, only STANDARD and NONE")
            self.result.summary = token.text.lower()

    def _group(self, tokens: list[_Token], line: str) -> None:
        end = next((token.begin for token in tokens if token.word() in ("AS", "ASCENDING", "DESCENDING")), len(line))
        text = line[tokens[0].begin : end].strip()
        self._check(text)
        self.result.group_by.append(text)

    def _check(self, text: str) -> None:
        try:
            parse_expr(text, syntax="old")
        except ParseError as error:
            raise self._fail(f"{text[:100]}: {error}") from error

    def _column(self, tokens: list[_Token], line: str) -> Column | None:
        begin = tokens[0].begin
        first = next((place for place, token in enumerate(tokens) if place and token.word() in _WORDS), len(tokens))
        source = line[begin : tokens[first].begin if first < len(tokens) else len(line)].strip()
        if not source:
            return None
        self._check(source)
        asked = _Asked()
        words = iter(tokens[first:])
        for token in words:
            word = token.word()
            if word in _WORDS:
                self._word(word, words, asked)
        return asked.column(source, self.result)

    def _word(self, word: str, words: Any, asked: _Asked) -> None:
        def value() -> _Token:
            token: _Token | None = next(words, None)
            if token is None:
                raise self._fail(f"{word} wants a word behind it")
            return token

        if word == "AS":
            token = value()
            asked.name = unescape(token.text) if token.quoted else token.text
        elif word == "PRINTF":
            asked.form = unescape(value().text)
        elif word == "PRINTAS":
            name = value().text
            if name not in self._words:
                raise self._fail(f"PRINTAS knows no {name!r}; known are {', '.join(sorted(self._words))}")
            asked.by = self._words[name]
            asked.form = asked.by.form or None
        elif word == "OR":
            text = value().text
            if text[:1] not in _ALTERNATIVES:
                raise self._fail(f"OR knows no {text!r}, only one of {_ALTERNATIVES!r}, twice for the column's width")
            asked.alt, asked.wide = text[:1].strip(), len(text) > 1 and text[0] == text[1]
        elif word == "WIDTH":
            text = value().text
            if text == "AUTO":
                asked.auto = True
            else:
                found = re.match(r"[+-]?[0-9]{1,4}", text)
                asked.width = int(found[0]) if found else 0
                asked.given, asked.auto, asked.cut = True, False, True
        elif word == "TRUNCATE":
            asked.cut = True
        else:
            asked.flags.add(word)


@dataclass(slots=True)
class _Asked:
    """The words of one column."""

    name: str = ""
    form: str | None = "%v"
    by: As | None = None
    width: int = 0
    given: bool = False  # the width
    auto: bool = True
    cut: bool = False
    alt: str = ""
    wide: bool = False
    flags: set[str] = field(default_factory=set)

    def column(self, source: str, settings: PrintFormat) -> Column:
        heading = self.name or source
        width, form = self.width, self.form
        if settings.label is not None:
            text = form
            if not text or (self.given and text == "%v"):
                size = (f"{width}" if not self.cut else f"{width}.{abs(width)}") if width else ""
                text = f"%{size}{'s' if self.by else 'v'}"
            form, width = f"{heading}{settings.label}{text}", 0
        elif not self.given:
            width = -len(heading.encode())
        elif form == "%v" and width:
            form = f"%{width}v" if not self.cut else f"%{width}.{abs(width)}v"
        return column(
            source,
            heading,
            form,
            width,
            auto=self.auto,
            cut=self.cut,
            by=self.by,
            alt=self.alt,
            alt_wide=self.wide,
            joined="NOPREFIX" in self.flags,
            unended="NOSUFFIX" in self.flags,
            always="ALWAYS" in self.flags,
            left="LEFT" in self.flags,
        )


def _tokens(line: str) -> list[_Token]:
    found = []
    for match in _TOKEN.finditer(line):
        text = match[0]
        quoted = len(text) > 1 and text[0] in "'\"" and text[-1] == text[0]
        found.append(_Token(text[1:-1] if quoted else text, match.start(), match.end(), quoted))
    return found
