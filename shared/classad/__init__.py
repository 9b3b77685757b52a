"""ClassAds: HTCondor's language of attributes, expressions and matching.

    >>> job = parse_ad('[ RequestMemory = 512; Requirements = TARGET.Memory >= RequestMemory ]')
    >>> machine = ClassAd({"Memory": 1024})
    >>> job.eval("Requirements", machine)
    True

Values are Python's own types (bool, int, float, str, list, datetime with zone, timedelta), ClassAd for a
nested ad, and UNDEFINED and ERROR.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from shared.classad.ad import ClassAd
from shared.classad.as_json import ads_from_json, ads_to_json, from_json, to_json
from shared.classad.as_xml import ads_to_xml, to_xml
from shared.classad.cells import PackedError
from shared.classad.evaluate import evaluate
from shared.classad.expr import Expr
from shared.classad.flatten import flatten
from shared.classad.lexer import ParseError
from shared.classad.match import best_match, half_match, is_true, rank, symmetric_match
from shared.classad.old import OldTexts, parse_old_ad, parse_old_ads, unparse_old
from shared.classad.parser import Parser, Syntax, parse_expr
from shared.classad.references import References, other_references, references, significant_attributes
from shared.classad.unparse import unparse
from shared.classad.values import ERROR, UNDEFINED, Value

__all__ = [
    "ERROR",
    "UNDEFINED",
    "ClassAd",
    "Expr",
    "OldTexts",
    "PackedError",
    "ParseError",
    "References",
    "Value",
    "ads_from_json",
    "ads_to_json",
    "ads_to_xml",
    "best_match",
    "evaluate",
    "flatten",
    "from_json",
    "half_match",
    "is_true",
    "other_references",
    "parse_ad",
    "parse_ads",
    "parse_expr",
    "rank",
    "references",
    "significant_attributes",
    "symmetric_match",
    "to_json",
    "to_xml",
    "unparse",
    "unparse_old",
]


def parse_ad(text: str, syntax: Syntax = "new") -> ClassAd:
    """One ad. Raises ParseError. What follows the closing bracket of new syntax is ignored, as the reference does."""
    if syntax == "old":
        return parse_old_ad(text)
    return ClassAd.of(Parser(text).whole_ad())


def parse_ads(stream: str | Iterable[str], syntax: Syntax = "old") -> Iterator[ClassAd]:
    """The ads of a stream, which is text, or lines as an open file gives them. Raises ParseError where one is wrong.

    In old syntax, empty lines or lines of dashes part the ads; in new syntax, blanks, commas or semicolons.
    """
    return parse_old_ads(stream) if syntax == "old" else _parse_new_ads(stream)


def _parse_new_ads(stream: str | Iterable[str]) -> Iterator[ClassAd]:
    text = stream if isinstance(stream, str) else "".join(stream)
    parser = Parser(text)
    while not parser.at_end():
        yield ClassAd.of(parser.whole_ad())
        while parser.accept(",") or parser.accept(";"):
            pass
