"""The macro functions: `$F…()`, `$DIRNAME()`, `$INT()`, `$SUBSTR()` and the rest, except `$ENV()`.

Each gets the raw text between its parentheses (which ends at the *first* closing one, so an expression with
parentheses must go through a macro) and a `Lookup` for the expanded value of a macro. What they do with odd
input is the reference's behaviour ("Configuration" in the spec's list of corners).
"""

from __future__ import annotations

import math
import random
import re
from collections.abc import Callable
from typing import TypeAlias

from shared.classad import ParseError, evaluate, unparse
from shared.config.evaluate import number, parse_whole

Lookup: TypeAlias = Callable[[str], str | None]
"""The expanded value of a macro; None if it is not defined."""

NAME_PATTERN = (
    r"ENV|F[pndxbqawufPNDXBQAWUF]*|INT|REAL|STRING|EVAL|DIRNAME|BASENAME|SUBSTR|CHOICE|RANDOM_CHOICE|RANDOM_INTEGER"
)

MAX_WIDTH = 1000  # of a printf conversion: a hostile %999999999d must not fill the memory

_CONVERSION = re.compile(r"((?:[^%]|%%)*)%([-+ #0]*)(\d*)((?:\.\d*)?)(?:hh|h|ll|l|L|q|j|z|t)?([A-Za-z])((?:[^%]|%%)*)")
_DECIMAL = re.compile(r"\s*[+-]?\d{1,18}\s*")


class FunctionError(ValueError):
    """A function that can not be carried out: the text says what is wrong with its arguments."""


def call(function: str, body: str, lookup: Lookup, raw: Lookup, chance: random.Random) -> str:
    """The text that `$function(body)` is replaced by. Raises FunctionError.

    raw: the unexpanded text of a macro, None if it is not defined.
    """
    if function[0] == "F":
        return _filename(function[1:].lower(), _text(body, lookup))
    match function:
        case "DIRNAME":
            return _filename("p", _text(body, lookup))
        case "BASENAME":
            return _filename("nx", _text(body, lookup))
        case "INT":
            return _integer(body, lookup)
        case "REAL":
            return _real(body, lookup)
        case "STRING":
            return _string(body, lookup)
        case "EVAL":
            return _eval(body, lookup, raw)
        case "SUBSTR":
            return _substring(body, lookup)
        case "CHOICE":
            return _choice(body, lookup)
        case "RANDOM_CHOICE":
            return chance.choice(_choices(body, lookup))
        case _:
            return _random_integer(body, chance)


def _text(body: str, lookup: Lookup) -> str:
    """What a function works on: the macro of that name, or the words themselves if there is none."""
    value = lookup(body)
    return body if value is None else value


# --- file names -------------------------------------------------------------------------------------------


def _unquoted(text: str) -> str:
    return text[1:-1] if len(text) > 1 and text[0] == text[-1] and text[0] in "\"'" else text


def _filename(options: str, text: str) -> str:
    """Parts of a path: p directory, d last directory (each d one more), n name, x extension; f or none: all.

    b drops the slash of a directory or the dot of an extension that stands alone, w writes backslashes, u slashes (the
    later letter wins), q puts double quotes round the result, qa single ones. Quotes round the text are always taken
    off. The parts are contiguous: `dx` is the last directory with name and extension.
    """
    text = _unquoted(text)
    # before the cut, as the reference does: with backslashes no directory is left on Linux
    if options.rfind("w") > options.rfind("u"):
        text = text.replace("/", "\\")
    elif "u" in options:
        text = text.replace("\\", "/")
    name_at = text.rfind("/") + 1
    dot = text.rfind(".")
    dot = dot if dot > name_at else len(text)
    depth = options.count("d")
    directory_at = name_at
    for _ in range(min(depth, len(text))):
        directory_at = text.rfind("/", 0, max(directory_at - 1, 0)) + 1
    wanted = {letter for letter in options if letter in "pdnx"}
    if wanted:
        first_part = 0 if wanted & {"p", "d"} else name_at if "n" in wanted else dot
        start = directory_at if depth else first_part
        end = len(text) if "x" in wanted else dot if "n" in wanted else name_at
        text = text[start:end]
        if "b" in options:
            if wanted <= {"p", "d"}:
                text = text.removesuffix("/")
            elif wanted == {"x"}:
                text = text.removeprefix(".")
    if "q" in options:
        quote = "'" if "a" in options else '"'
        return f"{quote}{text}{quote}"
    return text


# --- values -----------------------------------------------------------------------------------------------


def _format(function: str, template: str, kinds: str, value: float | str) -> str:
    """One printf conversion among text, as C does it. The conversion must be one of `kinds`."""
    match = _CONVERSION.fullmatch(template)
    if match is None or match[5] not in kinds:
        raise FunctionError(
            f"'{template}' is not a format that ${function}() can use: give one of %{', %'.join(kinds)}"
        )
    before, flags, width, precision, kind, after = match.groups()
    if len(width) > 4 or len(precision) > 5 or int(width or 0) > MAX_WIDTH or int(precision[1:] or 0) > MAX_WIDTH:
        raise FunctionError(f"the width in '{template}' is above {MAX_WIDTH}")
    if kind in "aA":
        text = float(value).hex()
        text = re.sub(r"\.?0*p", "p", text)
        body = (text.upper() if kind == "A" else text).rjust(int(width or 0))
    elif kind == "c":
        assert isinstance(value, int)  # only $INT() has it
        body = chr(value & 0xFF).rjust(int(width or 0))
    else:
        if isinstance(value, int) and value < 0 and kind in "xXou":
            value &= 0xFFFFFFFF if "l" not in template else 0xFFFFFFFFFFFFFFFF
        body = f"%{flags}{width}{precision}{'d' if kind in 'iu' else kind}" % value
    return before.replace("%%", "%") + body + after.replace("%%", "%")


def _integer(body: str, lookup: Lookup) -> str:
    """`$INT(name-or-expression[,format])`: truncated towards zero; 7/2 is 3."""
    name, comma, template = body.partition(",")
    value = number(_text(name, lookup))
    if value is None or math.isnan(value):
        raise FunctionError(f"{name or 'nothing'} does not evaluate to an integer")
    if isinstance(value, float):
        value = int(value) if abs(value) < 9.3e18 else -(1 << 63)
    return _format("INT", template, "dioxXuc", value) if comma else str(value)


def _real(body: str, lookup: Lookup) -> str:
    """`$REAL(name-or-expression[,format])`: without a format 16 digits and no needless point."""
    name, comma, template = body.partition(",")
    value = number(_text(name, lookup))
    if value is None:
        raise FunctionError(f"{name or 'nothing'} does not evaluate to a real")
    if not comma:
        return f"{float(value):.16G}"
    text = _format("REAL", template, "fFeEgGaA", float(value))
    return text if "." in text else text + ".0"


def _string(body: str, lookup: Lookup) -> str:
    """`$STRING(name-or-expression[,format])`: the string it evaluates to; a text that evaluates to none stays as it
    is."""
    name, comma, template = body.partition(",")
    text = _text(name, lookup)
    try:
        found = evaluate(parse_whole(text.strip()))
    except ParseError:
        found = None
    value = found if isinstance(found, str) else text
    return _format("STRING", template, "s", value) if comma else value


def _eval(body: str, lookup: Lookup, raw: Lookup) -> str:
    """`$EVAL(name-or-expression)`: the value as ClassAd text, a string without quotes.

    What does not parse is "", but stays as it is where a dollar sign was written in it.
    """
    text = _text(body, lookup)
    try:
        value = evaluate(parse_whole(text))
    except ParseError:
        return text if "$" in (raw(body) or body) else ""
    return value if isinstance(value, str) else unparse(value)


# --- pieces and choices -----------------------------------------------------------------------------------


def _index(what: str, text: str, lookup: Lookup) -> int:
    text = text.strip()
    value = number(_text(text, lookup)) if text else None
    if value is None or not math.isfinite(value):
        raise FunctionError(f"'{text}' is no {what}: give an integer, or a macro that holds one")
    return int(value)


def _substring(body: str, lookup: Lookup) -> str:
    """`$SUBSTR(name,start[,length])`: a negative start counts from the end.

    A negative length leaves that many characters off the end.
    """
    name, comma, rest = body.partition(",")
    if not comma:
        raise FunctionError("$SUBSTR() needs a start index: $SUBSTR(name,start[,length])")
    start_text, comma, length_text = rest.partition(",")
    start = _index("start index", start_text, lookup)
    text = lookup(name.strip()) or ""
    start = max(0, len(text) + start) if start < 0 else start
    if not comma:
        return text[start:]
    length = _index("length", length_text, lookup)
    return text[start : max(start, len(text) + length) if length < 0 else start + length]


def _choice(body: str, lookup: Lookup) -> str:
    """`$CHOICE(index,list-macro)` or `$CHOICE(index,item,item,...)`: an item by its index, from 0."""
    index_text, comma, rest = body.partition(",")
    if not comma:
        raise FunctionError("$CHOICE() needs an index and a list: $CHOICE(index,list) or $CHOICE(index,item,item)")
    items = _items(rest)
    if len(items) == 1:
        listed = lookup(items[0])
        if listed is None:
            raise FunctionError(f"there is no list named {items[0]}")
        items = _items(listed)
    index = _index("index", index_text, lookup)
    if not 0 <= index < len(items):
        raise FunctionError(f"index {index} is not within 0..{len(items) - 1}")
    return items[index]


def _items(text: str) -> list[str]:
    """The items between commas, without the empty ones."""
    return [item for part in text.split(",") if (item := part.strip())]


def _choices(body: str, lookup: Lookup) -> list[str]:
    items = _items(body)
    if len(items) == 1:
        listed = lookup(items[0])
        if listed is not None:
            items = _items(listed)
    if not items:
        raise FunctionError("$RANDOM_CHOICE() has nothing to choose from")
    return items


def _random_integer(body: str, chance: random.Random) -> str:
    """`$RANDOM_INTEGER(least,most[,step])`: plain numbers only, no macros."""
    parts = body.split(",")
    if not 2 <= len(parts) <= 3 or not all(_DECIMAL.fullmatch(part) for part in parts):
        raise FunctionError("$RANDOM_INTEGER() takes two or three integers: $RANDOM_INTEGER(least,most[,step])")
    least, most, *rest = (int(part) for part in parts)
    step = rest[0] if rest else 1
    if step < 1 or most < least:
        raise FunctionError("$RANDOM_INTEGER() needs a step of at least 1 and least <= most")
    return str(least + step * chance.randint(0, (most - least) // step))
