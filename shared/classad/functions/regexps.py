"""Regular expressions: regexp, regexps, replace, replaceall, regexpMember (manual: "Predefined Functions").

Options are single lower-case letters: i, m, s and x for the pattern, f (the whole text and not only the substitutes)
and g (every match) for substitution. Other letters, and capital ones, do nothing.
"""

from __future__ import annotations

from typing import Final

from shared.classad.functions.coerce import MAX_TEXT, decode, encode
from shared.classad.functions.pcre import Match, Pattern, RegexError, Stopwatch, compile_pattern
from shared.classad.functions.registry import Function, table
from shared.classad.values import ERROR, UNDEFINED, Value


def regexp(arguments: list[Value]) -> Value:
    """regexp(pattern, text[, options]): whether the pattern matches somewhere in the text."""
    pattern, text = arguments[0], arguments[1]
    options = arguments[2] if len(arguments) == 3 else ""
    if not isinstance(pattern, str) or not isinstance(text, str) or not isinstance(options, str):
        return _unless_strings(arguments)
    compiled = compile_pattern(pattern, options)
    if compiled is None:
        return ERROR
    try:
        return compiled.matches(text)
    except RegexError:
        return ERROR


def _unless_strings(arguments: list[Value]) -> Value:
    """The value of a call whose arguments are not all strings: UNDEFINED if one is and none is ERROR, else ERROR."""
    undefined = any(argument is UNDEFINED for argument in arguments)
    return UNDEFINED if undefined and not any(argument is ERROR for argument in arguments) else ERROR


def regexp_member(arguments: list[Value]) -> Value:
    """regexpMember(pattern, list[, options]): whether a string of the list matches; UNDEFINED items blur a "no"."""
    if any(argument is ERROR for argument in arguments):
        return ERROR
    if any(argument is UNDEFINED for argument in arguments):
        return UNDEFINED
    pattern, items = arguments[0], arguments[1]
    options = arguments[2] if len(arguments) == 3 else ""
    if not isinstance(pattern, str) or not isinstance(items, list) or not isinstance(options, str):
        return ERROR
    compiled = compile_pattern(pattern, options)
    try:
        return _member(compiled, items)
    except RegexError:
        return ERROR


def _member(pattern: Pattern | None, items: list[Value]) -> Value:
    """Whether a string among `items` matches; no pattern (which is what a wrong one is here) matches none."""
    answer: Value = False
    watch = Stopwatch()
    for item in items:
        if item is UNDEFINED:
            answer = UNDEFINED
        elif not isinstance(item, str):
            return ERROR
        elif pattern is not None:
            if pattern.matches(item):
                return True
            watch.check()
    return answer


def _substitution(name: str, always: str) -> Function:
    """regexps(pattern, text, substitute[, options]), and its kin with some options set."""

    def call(arguments: list[Value]) -> Value:
        if not all(isinstance(argument, str) for argument in arguments):
            return _unless_strings(arguments)
        pattern, text, substitute, options = (str(argument) for argument in (*arguments, "")[:4])
        options += always
        compiled = compile_pattern(pattern, options)
        if compiled is None:
            return ERROR
        try:
            return substituted(compiled, text, substitute, full="f" in options, every="g" in options)
        except RegexError:
            return ERROR

    return Function(name, 3, 4, call, costly=True)


def substituted(pattern: Pattern, text: str, substitute: str, full: bool, every: bool) -> Value:
    """`text` with matches replaced; not `full`: the substitutes alone.

    Behind an empty match of a search for every one a character is copied, and one at the very end is ERROR, as in
    the reference. Raises RegexError.
    """
    subject = encode(text)
    template = encode(substitute)
    done: list[bytes] = []
    length = at = 0
    again = False
    watch = Stopwatch()
    while True:
        watch.check()
        match = pattern.search(subject, at, again)
        if match is None:
            if not again:
                break
            if at >= len(subject):
                return ERROR
            piece = subject[at : at + 1]
            at += 1
            again = False
        else:
            expanded = _expanded(template, match)
            if expanded is None:
                return ERROR
            piece = (subject[at : match.start] if full else b"") + expanded
            at = match.end
            again = match.start == match.end
        done.append(piece)
        length += len(piece)
        if length > MAX_TEXT:
            return ERROR
        if match is not None and not every:
            break
    if full:
        done.append(subject[at:])
    return decode(b"".join(done)) if length <= MAX_TEXT else ERROR


def _expanded(template: bytes, match: Match) -> bytes | None:
    """`template` with `\\0` to `\\9` replaced by groups; None if one of them is behind the last group of the match."""
    if b"\\" not in template:
        return template
    parts = template.split(b"\\")
    done = [parts[0]]
    for part in parts[1:]:
        digit = part[:1]
        if digit.isdigit():
            group = match.group(int(digit))
            if group is None:
                return None
            done.append(group + part[1:])
        else:
            done.append(b"\\" + part)
    return b"".join(done)


FUNCTIONS: Final = table(
    Function("regexp", 2, 3, regexp, costly=True),
    Function("regexpMember", 2, 3, regexp_member, costly=True),
    _substitution("regexps", ""),
    _substitution("replace", "f"),
    _substitution("replaceall", "fg"),
)
