"""Environments and argument lists as HTCondor writes them: envV1ToV2, mergeEnvironment, listToArgs, argsToList.

Two syntaxes: the old one (V1) splits at `;` (environments) or blanks (arguments) and quotes nothing; the new one
(V2) splits at blanks, with single quotes around what holds blanks and two of them for one inside quotes
(manual: condor_submit, "arguments" and "environment"). Both without the surrounding double quotes of submit files.
"""

from __future__ import annotations

import re
from typing import Final

from shared.classad.functions.coerce import MAX_ITEMS, bounded, encode
from shared.classad.functions.registry import Function, table
from shared.classad.values import ERROR, UNDEFINED, Value

_BLANKS: Final = " \t\n\r"
_NEEDS_QUOTES: Final = re.compile(r"[ \t\n\r']+")
_V1_DELIMITERS: Final = frozenset("\x1f!#$%&*+,-/:;<>?@^`|~")
_QUOTED: Final = re.compile(r"'((?:[^']|'')*+)'")
_SPACES: Final = re.compile(r"[ \t\n\r]+")
_PLAIN: Final = re.compile(r"[^' \t\n\r]+")


def quote_v2(argument: str) -> str:
    """One argument in V2 syntax."""
    if not argument:
        return "''"
    return _NEEDS_QUOTES.sub(lambda found: "'" + found[0].replace("'", "''") + "'", argument)


def split_v2(text: str) -> list[str] | None:
    """The arguments of a text in V2 syntax, or None if a quote is not closed, or there are more than MAX_ITEMS."""
    arguments: list[str] = []
    at, end = 0, len(text)
    while at < end:
        blanks = _SPACES.match(text, at)
        if blanks is not None:
            at = blanks.end()
            continue
        if len(arguments) == MAX_ITEMS:
            return None
        parts: list[str] = []
        while at < end and text[at] not in _BLANKS:
            found = _PLAIN.match(text, at)
            if found is not None:
                parts.append(found[0])
            else:
                found = _QUOTED.match(text, at)
                if found is None:
                    return None
                parts.append(found[1].replace("''", "'"))
            at = found.end()
        arguments.append("".join(parts))
    return arguments


def split_v1(text: str) -> list[str]:
    """The arguments of a text in V1 syntax."""
    for blank in _BLANKS[1:]:
        text = text.replace(blank, " ")
    return [argument for argument in text.split(" ") if argument]


def _assign(settings: dict[str, str], entry: str) -> bool:
    """Add `name=value`; False if it is not of that form."""
    name, equals, value = entry.partition("=")
    if not name or not equals:
        return False
    settings[name] = value
    return True


def _v2_environment(settings: dict[str, str]) -> Value:
    entries = sorted(settings.items(), key=lambda entry: encode(entry[0]))
    return bounded(" ".join(quote_v2(f"{name}={value}") for name, value in entries))


def env_v1_to_v2(arguments: list[Value]) -> Value:
    """envV1ToV2(text): UNDEFINED stays; an entry that is no `name=value` makes ERROR.

    Entries end at `;` or a line end; a mark such as `|` in front of the text takes the place of `;`.
    """
    text = arguments[0]
    if text is UNDEFINED:
        return UNDEFINED
    if not isinstance(text, str):
        return ERROR
    settings: dict[str, str] = {}
    mark = text[:1] if text[:1] in _V1_DELIMITERS else ";"
    for piece in text.replace(mark, "\n").split("\n"):
        entry = piece.lstrip(_BLANKS)
        if entry and not _assign(settings, entry):
            return ERROR
    return _v2_environment(settings)


def merge_environment(arguments: list[Value]) -> Value:
    """mergeEnvironment(text, ...): V2 environments into one, the later winning; UNDEFINED counts as empty."""
    settings: dict[str, str] = {}
    for text in arguments:
        if text is UNDEFINED:
            continue
        entries = split_v2(text) if isinstance(text, str) else None
        if entries is None or not all(_assign(settings, entry) for entry in entries):
            return ERROR
    return _v2_environment(settings)


def _version(arguments: list[Value]) -> int | None:
    """The syntax that an optional last argument asks for: 1 or 2."""
    version = arguments[1] if len(arguments) == 2 else 2
    return version if type(version) is int and version in (1, 2) else None


def list_to_args(arguments: list[Value]) -> Value:
    """listToArgs(list[, version]): strings to one text; V1 cannot hold blanks (ERROR)."""
    items, version = arguments[0], _version(arguments)
    if version is None or not isinstance(items, list):
        return ERROR
    texts: list[str] = []
    for item in items:
        if not isinstance(item, str) or (version == 1 and any(blank in item for blank in _BLANKS)):
            return ERROR
        texts.append(item)
    if version == 2:
        return bounded(" ".join(map(quote_v2, texts)))
    while texts and not texts[0]:
        del texts[0]  # nothing separates an empty argument at the front from what follows
    return bounded(" ".join(texts))


def args_to_list(arguments: list[Value]) -> Value:
    """argsToList(text[, version])."""
    text, version = arguments[0], _version(arguments)
    if version is None or not isinstance(text, str):
        return ERROR
    found = split_v1(text) if version == 1 else split_v2(text)
    if found is None or len(found) > MAX_ITEMS:
        return ERROR
    pieces: list[Value] = list(found)
    return pieces


FUNCTIONS: Final = table(
    Function("envV1ToV2", 1, 1, env_v1_to_v2),
    Function("mergeEnvironment", 0, None, merge_environment),
    Function("listToArgs", 1, 2, list_to_args),
    Function("argsToList", 1, 2, args_to_list),
)
