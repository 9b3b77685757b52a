"""Arguments and environment of a job ad, in both of HTCondor's forms (manual: condor_submit, `arguments` and
`environment`).

The job ad holds either the old form (Args, Env: plain words; NAME=value pairs between `;` or EnvDelim) or the new one
(Arguments, Environment: words between white space; single quotes group; a doubled single quote within is one).
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable
from typing import Final

_SPACE = " \t\r\n"
#: What keeps a word from being told from others where people read it.
_UNCLEAR: Final = re.compile(r"[\s'\"]")


class BadJobText(ValueError):
    """The text can not be read: says where and how to mend it."""


class OpenQuote(BadJobText):
    """A single quote, at index `at` of the text, is never closed."""

    def __init__(self, text: str, at: int) -> None:
        super().__init__(f"the single quote at character {at + 1} of {text[:200]!r} is never closed: add a closing '")
        self.at = at


def words_v2(text: str) -> list[str]:
    """Words of the new form. Raises OpenQuote."""
    words: list[str] = []
    word: list[str] | None = None
    position, end = 0, len(text)
    while position < end:
        char = text[position]
        if char == "'":
            word = [] if word is None else word
            start = position
            position += 1
            while True:
                close = text.find("'", position)
                if close < 0:
                    raise OpenQuote(text, start)
                word.append(text[position:close])
                position = close + 1
                if text[position : position + 1] != "'":
                    break
                word.append("'")
                position += 1
        elif char in _SPACE:
            if word is not None:
                words.append("".join(word))
                word = None
            position += 1
        else:
            word = [] if word is None else word
            word.append(char)
            position += 1
    if word is not None:
        words.append("".join(word))
    return words


def join_v2(words: list[str]) -> str:
    """The canonical new form: only characters that need it are quoted (`two three` is two' 'three)."""
    return " ".join(_quote(word) for word in words)


def _quote(word: str) -> str:
    if not word:
        return "''"
    pieces: list[str] = []
    quoted = False
    for char in word:
        special = char in _SPACE or char == "'"
        if special != quoted:
            pieces.append("'")
            quoted = special
        pieces.append("''" if char == "'" else char)
    if quoted:
        pieces.append("'")
    return "".join(pieces)


def quoted(text: str) -> str | None:
    """What stands in double quotes, which makes a text of a file one of the new form, with doubled ones within as one;
    None for the old form."""
    text = text.strip()
    return text[1:-1].replace('""', '"') if len(text) > 1 and text[0] == text[-1] == '"' else None


def arguments(new: str | None, old: str | None) -> list[str]:
    """The arguments of a job from its Arguments (new) or Args (old) attribute."""
    if new is not None:
        return words_v2(new)
    return old.split() if old else []


def shown(words: Iterable[str]) -> str:
    """Arguments as one text for people: those with white space or quotes in them, or nothing, as a shell takes them."""
    return " ".join(shlex.quote(word) if _UNCLEAR.search(word) or not word else word for word in words)


def environment(new: str | None, old: str | None, delimiter: str = ";") -> dict[str, str]:
    """The variables of a job from its Environment (new) or Env (old) attribute. Raises BadJobText."""
    if new is not None:
        pairs = words_v2(new)
    else:
        pairs = [pair.strip() for pair in (old or "").split(delimiter or ";")]
    variables: dict[str, str] = {}
    for pair in pairs:
        if not pair:
            continue
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise BadJobText(f"environment entry {pair[:100]!r} is no NAME=value pair")
        if "\0" in pair:
            raise BadJobText(f"environment entry {pair[:100]!r} holds a zero byte")
        variables[name] = value
    return variables
