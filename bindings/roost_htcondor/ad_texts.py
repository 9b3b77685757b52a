"""Ads out of texts and streams, and quoted strings."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Final

from roost_htcondor.ad_values import ClassAdException, ClassAdParseError, ParserType
from roost_htcondor.class_ad import ClassAd
from shared.classad import ClassAd as PoolAd
from shared.classad import ParseError, ads_from_json, parse_ad, parse_ads, parse_expr
from shared.classad.expr import Literal
from shared.classad.old import is_definition, is_separator, parse_old_ad
from shared.classad.unparse import quote_string

#: Strings and quoted names, in which a bracket is none, and brackets.
_BRACKET: Final = re.compile(r'"(?:[^"\\]|\\.)*+"|\'(?:[^\'\\]|\\.)*+\'|[\[\]{}]')
_last_error = ""


def parseAds(input: str | Iterable[str], parser: ParserType = ParserType.Auto, kind: type[ClassAd] = ClassAd) -> (
    Iterator[ClassAd]
):  # fmt: skip
    """The ads of a text, an open file or other lines, one after the other. Raises ClassAdException where one is
    wrong, with its line. kind: the class of what is given."""
    lines = _lines(input)
    first = next((line for line in lines if line.strip() and not line.lstrip().startswith("#")), "")
    if not first:
        return
    following = chain([first], lines)
    syntax = _syntax(first, parser)
    try:
        if syntax is ParserType.Old:
            found = parse_ads(following)
        elif syntax is ParserType.New:
            found = parse_ads("".join(following), "new")
        else:
            found = _json("".join(following))
        for ad in found:
            yield kind._of(ad)
    except ParseError as error:
        raise _told(error) from None


def parseNext(
    input: str | Iterable[str], parser: ParserType = ParserType.Auto, kind: type[ClassAd] = ClassAd
) -> ClassAd | None:
    """The next ad of an open file, which stands behind it afterwards, or the first of a text; None where there is no
    more. Raises ClassAdException."""
    block = _block(_lines(input), parser, whole=not isinstance(input, str))
    if block is None:
        return None
    text, syntax = block
    try:
        if syntax is ParserType.Old:
            return kind._of(parse_old_ad(text))
        return kind._of(parse_ad(text) if syntax is ParserType.New else next(_json(text)))
    except ParseError as error:
        raise _told(error) from None


def parseOne(
    input: str | Iterable[str], parser: ParserType = ParserType.Auto, kind: type[ClassAd] = ClassAd
) -> ClassAd:
    """All ads of a text or file in one; what comes later goes first. Raises ClassAdException."""
    one = PoolAd()
    for ad in parseAds(input, parser):
        one.update(ad._ad)
    return kind._of(one)


def quote(input: str) -> str:
    """A string as a literal of the language."""
    return quote_string(input)


def unquote(input: str) -> str:
    """The string that a literal is. Raises ValueError."""
    try:
        expr = parse_expr(input)
    except ParseError as error:
        raise _told(error) from None
    if not isinstance(expr, Literal) or not isinstance(expr.value, str):
        raise ClassAdParseError(f"{input[:40]!r} is no string literal: it stands in double quotes")
    return expr.value


def lastError() -> str:
    """What was said of the last text that could not be read."""
    return _last_error


def _told(error: ParseError) -> ClassAdException:
    global _last_error
    _last_error = str(error)
    return ClassAdParseError(f"The text is no ad: {error}")


def _lines(input: str | Iterable[str]) -> Iterator[str]:
    if isinstance(input, str):
        return iter(input.splitlines(keepends=True))
    readline = getattr(input, "readline", None)
    if readline is not None:  # so that tell() can be asked in between
        return iter(readline, "")
    return (line if line.endswith("\n") else line + "\n" for line in input)


def _syntax(first: str, parser: ParserType) -> ParserType:
    """How ads are written of which `first` is the first line."""
    parser = ParserType(parser)
    if parser is ParserType.XML or ((parser < 0 or parser is ParserType.FileAuto) and first.lstrip()[:1] == "<"):
        raise ClassAdParseError("Roost writes ads as XML, but does not read them: ask for JSON or old syntax")
    if parser not in (ParserType.Auto, ParserType.FileAuto):
        return parser
    begin = first.strip()
    if begin[:1] == "{" or (re.match(r"\[\s*(\{|\Z)", begin) and parser is ParserType.FileAuto):
        return ParserType.JSON
    return ParserType.New if begin[:1] == "[" else ParserType.Old


def _json(text: str) -> Iterator[PoolAd]:
    """Of an array of ads, or of ads one after the other."""
    if text.lstrip()[:1] == "[":
        yield from ads_from_json(text)
        return
    lines = iter(text.splitlines(keepends=True))
    while (block := _block(lines, ParserType.JSON, whole=True)) is not None:
        yield from ads_from_json(block[0])


def _block(lines: Iterator[str], parser: ParserType, *, whole: bool) -> tuple[str, ParserType] | None:
    """The lines of the next ad. whole: nothing may follow it on its last line, because that would be lost."""
    taken: list[str] = []
    syntax: ParserType | None = None
    depth = 0
    for line in lines:
        if syntax is None:
            if is_separator(line.rstrip("\n")) or not is_definition(line):
                continue
            syntax = _syntax(line, parser)
        elif syntax is ParserType.Old and is_separator(line.rstrip("\n")):
            break
        taken.append(line)
        if syntax is ParserType.Old:
            continue
        for found in _BRACKET.finditer(line):
            depth += {"[": 1, "{": 1, "]": -1, "}": -1}.get(found[0], 0)
            if depth == 0 and found[0] in "]}":
                if whole and line[found.end() :].strip(" \t\r\n,;"):
                    raise ClassAdParseError("Another ad follows on the same line: parseAds reads such files")
                return "".join(taken), syntax
    return None if syntax is None else ("".join(taken), syntax)
