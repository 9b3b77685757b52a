"""Text to tokens, for both syntaxes.

The two differ in strings, and in that a `//` comment must end with a newline in new syntax. New syntax: a backslash
starts an escape (`\\n`, `\\"`, octal `\\101`, an unknown `\\q` is q, a NUL is refused) and adjacent strings join. Old
syntax: a backslash is itself except before a quote, and even then at the end of the line, so that `"C:\\dir\\"` is
what a user of Windows means.

Strings are bytes to the language; here they are str, with bytes that are not UTF-8 as surrogate escapes.
"""

from __future__ import annotations

import re
from typing import Final

from shared.classad.expr import IS, ISNT
from shared.classad.values import ERROR, UNDEFINED, Value

NUMBER: Final = "number"
STRING: Final = "string"
NAME: Final = "name"
QUOTED: Final = "quoted"
CONSTANT: Final = "constant"
END: Final = "end"
BAD: Final = "bad"
_LAST: Final = (END, BAD)

INT_MIN: Final = -(2**63)
INT_MAX: Final = 2**63 - 1
PORTION: Final = 200  # tokens

_SPACE = r"(?:[ \t\n\r\v\f]++|//[^\n]*+{line_end}|/\*(?s:.*?)\*/)*+"
_EXPONENT = "[eE][+-]?[0-9]++"
_REAL = rf"(?:[0-9]++\.[0-9]++|\.[0-9]++)(?:{_EXPONENT}|(?![eE]))|[0-9]++{_EXPONENT}"
_TOKEN_REST = rf"""
  | (?P<quoted>'(?:[^'\\]|\\[\s\S])*+')
  | (?P<name>[A-Za-z_][A-Za-z0-9_]*+)
  | (?P<real>{_REAL})
  | (?P<bad>(?:[0-9]++\.[0-9]++|\.?[0-9]++)[eE]|[0-9]++\.|0[0-9xX]|/[/*]|["'])
  | (?P<int>0|[1-9][0-9]*+)
  | (?P<op>=\?=|=!=|==|=|!=|!|<=|<<|<|>=|>>>|>>|>|&&|&|\|\||\||[-+*/%^~?:.()\[\]{{}},;])
  | (?P<end>\Z)
  | (?P<strange>[\s\S])
)"""
_NEW: Final = re.compile(
    _SPACE.replace("{line_end}", r"\n") + r"""(?x: (?P<string>"(?:[^"\\]|\\[\s\S])*+")""" + _TOKEN_REST
)
_OLD: Final = re.compile(
    _SPACE.replace("{line_end}", r"(?:\n|\Z)") + r"""(?x: (?P<string>"(?:[^"\\]|\\"(?=[^\n\r])|\\)*+")""" + _TOKEN_REST
)
_NEGATIVE: Final = re.compile(r"-(?:(?P<real>" + _REAL + r")|(?P<int>0[0-7]*+|[1-9][0-9]*+)(?![0-9.eE]))")

_CONSTANTS: Final[dict[str, Value]] = {"true": True, "false": False, "undefined": UNDEFINED, "error": ERROR}
_WORD_OPERATORS: Final = {"is": IS, "isnt": ISNT}
_OPERAND_ENDS: Final = frozenset((NUMBER, STRING, NAME, QUOTED, CONSTANT, ")", "]", "}"))

_NO_TEXT: Final = re.compile("[\0\ud800-\udc7f\udd00-\udfff]")
_ESCAPE: Final = re.compile(r"\\([0-3][0-7]{0,2}|[4-7][0-7]?|[\s\S])")
_ESCAPED: Final = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_WHAT_IS_BAD: Final = {
    '"': "a string that ends with a double quote",
    "'": "a quoted name that ends with a single quote",
    "//": "a newline that ends the // comment",
    "/*": "a */ that ends the comment",
}


class ParseError(ValueError):
    """Text that is not a ClassAd expression or ad. `line` and `column` count from 1."""

    def __init__(self, message: str, line: int = 1, column: int = 1, expected: str = "") -> None:
        where = f"line {line}, column {column}: {message}"
        super().__init__(where + (f"; expected {expected}" if expected else ""))
        self.message = message
        self.line = line
        self.column = column
        self.expected = expected

    def __reduce__(self) -> tuple[object, ...]:
        return (ParseError, (self.message, self.line, self.column, self.expected))


def error_at(text: str, offset: int, message: str, expected: str = "") -> ParseError:
    """A ParseError that points at `offset` of `text`."""
    line = text.count("\n", 0, offset) + 1
    return ParseError(message, line, offset - text.rfind("\n", 0, offset), expected)


class Lexer:
    """The tokens of a text, read in portions as they are needed, in three parallel lists.

    `kinds` has one of the words above or, for an operator, the operator itself; `starts` has offsets. The last is
    END, or BAD where no token can be read, which is an error only when the parser reaches it: its value says what was
    expected there.
    """

    __slots__ = ("_end", "_last", "_match", "_old", "_text", "kinds", "starts", "values")

    def __init__(self, text: str, old: bool = False, start: int = 0) -> None:
        self.kinds: list[str] = []
        self.values: list[Value] = []
        self.starts: list[int] = []
        self._text = text
        self._old = old
        self._match = (_OLD if old else _NEW).match
        self._end = start
        self._last = ""

    def more(self) -> None:
        """Read another portion. At the end of the text this adds another END (or BAD)."""
        text, old, match, last, position = self._text, self._old, self._match, self._last, self._end
        for _ in range(PORTION):
            found = match(text, position)
            assert found is not None  # the last alternative takes anything
            group = found.lastgroup
            assert group is not None
            at, position = found.span(group)
            word = text[at:position]
            value: Value = word
            if group == "name":
                last = NAME
                if len(word) < 10:
                    folded = word.lower()
                    if folded in _CONSTANTS:
                        last, value = CONSTANT, _CONSTANTS[folded]
                    elif folded in _WORD_OPERATORS:
                        last = _WORD_OPERATORS[folded]
            elif group == "op":
                if word == "-" and last not in _OPERAND_ENDS and (number := _NEGATIVE.match(text, at)):
                    last, position = NUMBER, number.end()
                    value = _number(number.group(), number.lastgroup == "real")
                else:
                    last = word
            elif group in ("int", "real"):
                last, value = NUMBER, _number(word, group == "real")
            elif group in ("string", "quoted"):
                unquoted = _unquote(word, old)
                if unquoted is None:
                    last, value, position = BAD, "a string without NUL and half characters", at
                else:
                    last, value = STRING if group == "string" else QUOTED, unquoted
            elif group == "end":
                last = END
            else:
                value = _WHAT_IS_BAD.get(word, "a number" if word[0] in ".0123456789" else "")
                last, position = BAD, at
            self.kinds.append(last)
            self.values.append(value)
            self.starts.append(at)
            if last in _LAST:
                break
        self._last, self._end = last, position


def _number(word: str, real: bool) -> int | float:
    """A literal that does not fit in 64 bits is 0 (as in the reference); a real that is too big is infinite."""
    if real:
        return float(word)
    if len(word) > 20:
        return 0
    number = int(word)
    return number if INT_MIN <= number <= INT_MAX else 0


def is_text(text: str) -> bool:
    """Whether a string can be a ClassAd string or name: no NUL, no half of a surrogate pair."""
    return ("\0" not in text) if text.isascii() else _NO_TEXT.search(text) is None


def _unquote(word: str, old: bool) -> str | None:
    """What stands between the quotes; None when it can not be a string."""
    body = word[1:-1]
    if not old:
        return unescape(body)
    if not is_text(body):
        return None
    return body.replace("\\" + word[0], word[0]) if "\\" in body else body


def unescape(body: str) -> str | None:
    """The text between the quotes of a new-syntax string or name; None when it can not be a string."""
    if not is_text(body):
        return None
    if "\\" not in body:
        return body
    high = False

    def one(found: re.Match[str]) -> str:
        nonlocal high
        word = found[1]
        if word[0] in "01234567":
            code = int(word, 8)
            high = high or code > 127
            return chr(code) if code < 128 else chr(0xDC00 + code)
        return _ESCAPED.get(word, word)

    text = _ESCAPE.sub(one, body)
    if "\0" in text:
        return None
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "surrogateescape") if high else text
