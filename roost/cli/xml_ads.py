"""Ads in XML, as -xml writes them (and HTCondor's tools)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from xml.parsers import expat

from shared.classad import ERROR, UNDEFINED, ClassAd, ParseError, parse_expr
from shared.classad.expr import Expr, Literal


def ads_from_xml(written: str) -> Iterator[ClassAd]:
    """The ads of a document. Raises ParseError with line and column."""
    reader = _Reader()
    parser = expat.ParserCreate()
    parser.StartElementHandler = reader.start
    parser.EndElementHandler = reader.end
    parser.CharacterDataHandler = reader.data
    parser.EntityDeclHandler = reader.refuse  # no ad has entities of its own
    try:
        parser.Parse(written.encode(), True)
    except expat.ExpatError as error:
        raise ParseError(f"not XML: {expat.ErrorString(error.code)}", error.lineno, error.offset + 1) from None
    except (ParseError, ValueError, KeyError) as error:
        raise ParseError(str(error), parser.CurrentLineNumber, parser.CurrentColumnNumber + 1) from None
    yield from reader.ads


class _Reader:
    def __init__(self) -> None:
        self.ads: list[ClassAd] = []
        self._open: list[Any] = []  # ClassAd or list of values, or (ad, attribute's name)
        self._text: list[str] = []

    def refuse(self, *_: Any) -> None:
        raise ValueError("an entity of its own has no place in ads")

    def start(self, name: str, attributes: dict[str, str]) -> None:
        self._text.clear()
        if len(self._open) > 200:
            raise ValueError("nested deeper than 200 levels")
        if name == "c":
            self._open.append(ClassAd())
        elif name == "l":
            self._open.append([])
        elif name == "a":
            self._open.append((self._open[-1], attributes["n"]))
        elif name == "b":
            self._put(attributes["v"] == "t")

    def data(self, text: str) -> None:
        self._text.append(text)

    def end(self, name: str) -> None:
        text = "".join(self._text)
        if name == "c":
            ad = self._open.pop()
            if self._open:
                self._put(ad)
            else:
                self.ads.append(ad)
        elif name == "l":
            items = self._open.pop()
            self._put(items)
        elif name == "a":
            self._open.pop()
        elif name == "i":
            self._put(int(text))
        elif name == "r":
            self._put(float(text))
        elif name == "s":
            self._put(parse_expr(f'"{_escaped(text)}"'))
        elif name in ("e", "at", "rt"):
            self._put(parse_expr(text if name == "e" else f'{"absTime" if name == "at" else "relTime"}("{text}")'))
        elif name == "un":
            self._put(Literal(UNDEFINED))
        elif name == "er":
            self._put(Literal(ERROR))
        self._text.clear()

    def _put(self, value: Any) -> None:
        if not self._open:
            raise ValueError("a value outside of an ad")
        place = self._open[-1]
        if isinstance(place, list):
            place.append(value)
        elif isinstance(place, tuple):
            place[0][place[1]] = value if not isinstance(value, Expr | list) else _plain(value)
        else:
            raise ValueError("a value without a name")


def _plain(value: Any) -> Any:
    return value.value if isinstance(value, Literal) and isinstance(value.value, str) else value


def _escaped(text: str) -> str:
    return text.replace('"', '\\"')
