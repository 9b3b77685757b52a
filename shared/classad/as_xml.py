"""Ads as XML, as `condor_q -xml` and `condor_status -xml` print them.

    <c>
        <a n="Memory"><i>1024</i></a>
    </c>

with i (integer), r (real), s (string), b (boolean, in its attribute v), un, er, e (expression text), at (absolute
time), l (list) and c (nested ad). A relative time is a real.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Final

from shared.classad.ad import ClassAd
from shared.classad.cells import Cell
from shared.classad.depth import with_room
from shared.classad.expr import AdExpr, ListExpr, Literal, fold
from shared.classad.unparse import attribute_order, quote_string, unparse, unparse_real, unparse_time
from shared.classad.values import ERROR, UNDEFINED

HEADER: Final = '<?xml version="1.0"?>\n<!DOCTYPE classads SYSTEM "classads.dtd">\n<classads>\n'
FOOTER: Final = "</classads>\n"


def to_xml(ad: ClassAd, names: Sequence[str] | None = None) -> str:
    """The ad as a `<c>` element, ended with a newline. names: these attributes, in this order."""
    if names is not None:
        found = [(name, cell) for name in names if (cell := ad.find(fold(name))) is not None]
        return with_room(_lines, found, 0) + "\n"
    return with_room(_ad, list(ad.cells()), 0) + "\n"


def ads_to_xml(ads: Iterable[ClassAd]) -> str:
    """A whole document of ads."""
    return HEADER + "".join(to_xml(ad) for ad in ads) + FOOTER


def _ad(cells: Iterable[tuple[str, Cell]], level: int) -> str:
    return _lines(sorted(cells, key=lambda pair: attribute_order(pair[0])), level)


def _lines(cells: Iterable[tuple[str, Cell]], level: int) -> str:
    indent = "    " * level
    lines = [f'{indent}    <a n="{_text(name, True)}">{_element(cell, level + 1)}</a>\n' for name, cell in cells]
    return "<c>\n" + "".join(lines) + indent + "</c>"


def _element(cell: Cell, level: int) -> str:
    value: object = cell.value if isinstance(cell, Literal) else cell
    if isinstance(value, str):
        return f"<s>{_text(quote_string(value)[1:-1].replace(chr(92) + chr(34), chr(34)))}</s>"
    if isinstance(value, bool):
        return f'<b v="{"t" if value else "f"}"/>'
    if isinstance(value, int):
        return f"<i>{value}</i>"
    if isinstance(value, float):
        return f"<r>{_real(value)}</r>"
    if value is UNDEFINED:
        return "<un/>"
    if value is ERROR:
        return "<er/>"
    if isinstance(value, datetime):
        return f"<at>{unparse_time(value)}</at>"
    if isinstance(value, ListExpr):
        return "<l>" + "".join(_element(item, level) for item in value.items) + "</l>"
    if isinstance(value, AdExpr):
        return _ad(value.attrs.values(), level)
    return f"<e>{_text(unparse(cell))}</e>"


def _real(value: float) -> str:
    if math.isfinite(value):
        return unparse_real(abs(value) if value == 0 else value)
    return "NaN" if math.isnan(value) else "INF" if value > 0 else "-INF"


def _text(text: str, attribute: bool = False) -> str:
    text = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return text.replace('"', "&quot;") if attribute else text
