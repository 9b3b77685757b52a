"""Arguments and environments as submit files write them, and as job ads store them (manual: condor_submit,
`arguments` and `environment`).

A submit file has an old form and a new one, which is inside double quotes. A job ad has the old text in Args or Env and
the new one, in canonical quoting, in Arguments or Environment.
"""

from __future__ import annotations

import re

from shared.config.errors import Source, config_error
from shared.job_text import OpenQuote, join_v2, words_v2

_SPACE = " \t\r\n"


def stored_arguments(text: str, source: Source | None = None) -> tuple[str, str]:
    """(attribute, text) for a submit file's `arguments`. Raises ConfigError for quotes that do not close."""
    text = text.strip()
    if not text.startswith('"'):
        return ("Args", _old(text, source)) if text else ("Arguments", "")
    return "Arguments", join_v2(split(_unquote(text, "arguments", source), "arguments", source))


def new_arguments(text: str, source: Source | None = None) -> str:
    """The canonical text of arguments that must be in the new form. Raises ConfigError."""
    if not text.lstrip().startswith('"'):
        raise config_error(f"arguments2 must be in double quotes: {text}", source, 'write arguments2 = "..."')
    return stored_arguments(text, source)[1]


def new_environment(text: str, source: Source | None = None) -> dict[str, str]:
    """Variables of an environment that must be in the new form. Raises ConfigError."""
    if not text.lstrip().startswith('"'):
        raise config_error(f"environment2 must be in double quotes: {text}", source, 'write environment2 = "A=1 B=2"')
    return stored_environment(text, source)


def stored_environment(text: str, source: Source | None = None) -> dict[str, str]:
    """Variables of a submit file's `environment`, in either form. Raises ConfigError."""
    text = text.strip()
    if text.startswith('"'):
        pairs = split(_unquote(text, "environment", source), "environment", source)
    else:
        pairs = [pair for pair in re.split(r"[;\n]", text) if pair.strip()]
    return variables(pairs, source)


def variables(pairs: list[str], source: Source | None) -> dict[str, str]:
    found: dict[str, str] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        name = name.lstrip(_SPACE)
        if not equals or not name:
            raise config_error(f"environment entry '{pair}' has no NAME=", source, "write NAME=value")
        found[name] = value
    return found


def environment_text(found: dict[str, str]) -> str:
    """The new form, sorted by name as the reference stores it."""
    return join_v2([f"{name}={value}" for name, value in sorted(found.items())])


def split(text: str, what: str, source: Source | None) -> list[str]:
    """Words of the new form, double quotes already dealt with. Raises ConfigError."""
    try:
        return words_v2(text)
    except OpenQuote as error:
        raise config_error(
            f"{what}: unbalanced quote starting here: {text[error.at :]}", source, "close it with '"
        ) from None


def _unquote(text: str, what: str, source: Source | None) -> str:
    """The inside of a text in double quotes; doubled ones within stand for one."""
    pieces: list[str] = []
    position = 1
    while True:
        close = text.find('"', position)
        if close < 0:
            raise config_error(f"{what}: the double quote at the beginning is never closed", source, 'close it with "')
        pieces.append(text[position:close])
        position = close + 1
        if text[position : position + 1] != '"':
            break
        pieces.append('"')
        position += 1
    if text[position:].strip():
        raise config_error(
            f"{what}: unexpected characters after the closing double quote: {text[position:].strip()}",
            source,
            'write "" for a double quote inside',
        )
    return "".join(pieces)


def _old(text: str, source: Source | None) -> str:
    """The old form: `\\"` is a double quote, a bare one is wrong, runs of blanks are one."""
    unescaped = text.replace('\\"', "\0")
    if '"' in unescaped:
        where = unescaped[unescaped.index('"') :].replace("\0", '\\"')
        raise config_error(
            f"arguments: found illegal unescaped double-quote: {where}",
            source,
            'write \\" in the old form, or put everything in double quotes',
        )
    return " ".join(unescaped.split()).replace("\0", '"')
