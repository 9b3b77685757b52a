"""Reads and writes whole ads: -long, -long:new, -json, -xml, and the files of -ads, -jobads and -slotads."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final
from xml.parsers import expat

from roost.errors import UsageError
from shared.classad import (
    ERROR,
    UNDEFINED,
    ClassAd,
    ParseError,
    ads_from_json,
    evaluate,
    parse_ads,
    parse_expr,
    unparse,
)
from shared.classad.ad import is_private
from shared.classad.expr import Expr, Literal, fold

FORMS: Final = ("long", "json", "xml", "new", "auto")
#: What stands before and behind the ads, and between them.
_FRAMES: Final = {"long": ("", "", ""), "json": ("[\n", ",\n", "]\n"), "new": ("{\n", ",\n", "}\n")}


def form_of(word: str, default: str) -> str:
    """The form that stands behind a colon (-long:json). Raises UsageError."""
    if word and word not in FORMS:
        raise UsageError(f"{word!r} is no form of ads; known are {', '.join(FORMS)}")
    return word or default


def names_of(ad: ClassAd, only: Sequence[str] = (), *, in_order: bool = True) -> list[str]:
    """The attributes to be shown, by name, without secrets; `only`: those of these that there are."""
    names = [name for name in ad if not is_private(fold(name))]
    if only:
        wanted = {fold(name) for name in only}
        names = [name for name in names if fold(name) in wanted]
    return sorted(names, key=fold) if in_order else names


def text_of(ad: ClassAd, form: str, only: Sequence[str] = (), *, in_order: bool = True) -> str:
    """One ad as a block of its own, ended with a newline."""
    names = names_of(ad, only, in_order=in_order)
    if form == "long":
        return "".join(f"{name} = {ad.text(name, 'old')}\n" for name in names)
    if form == "new":
        return "[ " + "; ".join(f"{_quoted(name)} = {ad.text(name)}" for name in names) + " ]\n"
    if form == "json":
        from shared.classad import to_json

        return to_json(ad, names=names) + "\n"
    from shared.classad import to_xml

    return to_xml(ad, names=names)


def _quoted(name: str) -> str:
    from shared.classad.unparse import quote_name

    return quote_name(name)


def frame_of_history(form: str) -> tuple[str, str, str]:
    """The same for `roost history`, whose tool has other line ends."""
    if form == "json":
        return "[\n", ",\n", "]\n"
    before, between, behind = frame(form) if form == "xml" else ("", "", "")
    return (before + "\n", between, behind + "\n") if form == "xml" else (before, between, behind)


def frame(form: str) -> tuple[str, str, str]:
    """(before the first ad, between two, behind the last)."""
    if form == "xml":
        from shared.classad.as_xml import FOOTER, HEADER

        return HEADER, "", FOOTER
    return _FRAMES[form]


def read_ads(
    file: str, form: str = "long", constraint: str = "", *, parts: tuple[str, ...] = ("---", "***", "...")
) -> list[ClassAd]:
    """The ads of a file (- for standard input) for which the constraint is true. auto: by the first character.
    parts: beginnings of lines that part ads, besides empty ones. Raises UsageError naming file and place."""
    try:
        written = sys.stdin.read() if file == "-" else Path(file).read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{file}: {getattr(error, 'strerror', None) or error}") from error
    if form == "auto":
        form = _guess(written)
    try:
        found = list(_parsed(written, form, parts))
    except ParseError as error:
        raise UsageError(f"{file}: {error}") from error
    return select(found, constraint) if constraint else found


def select(ads: Iterable[ClassAd], constraint: str) -> list[ClassAd]:
    """The ads for which an expression is true (or a number other than 0). Raises UsageError."""
    from roost.cli.output import expression

    wanted = expression(constraint, "constraint")
    return [ad for ad in ads if _is_true(evaluate(wanted, ad))]


def _is_true(value: Any) -> bool:
    return isinstance(value, bool | int | float) and value == value and bool(value)


def _guess(written: str) -> str:
    begin = written.lstrip()[:2]
    if begin.startswith("<"):
        return "xml"
    if begin.startswith("["):
        # An array of objects, or ads in new syntax.
        return "json" if written.lstrip()[1:].lstrip()[:1] in ("{", "]", "") else "new"
    if begin.startswith("{"):
        return "new" if written.lstrip()[1:].lstrip()[:1] == "[" else "json"
    return "long"


def _parsed(written: str, form: str, parts: tuple[str, ...]) -> Iterator[ClassAd]:
    if form == "json":
        yield from ads_from_json(written) if written.strip() else ()
    elif form == "xml":
        yield from ads_from_xml(written)
    elif form == "new":
        text = written.strip()
        yield from parse_ads(text[1:-1] if text.startswith("{") and text.endswith("}") else text, "new")
    else:
        if any(part in written for part in parts):
            lines = ["" if line.startswith(parts) else line for line in written.split("\n")]
            written = "\n".join(lines)
        yield from parse_ads(written, "old")


def unparsed(ad: ClassAd, name: str) -> str:
    """The text of an attribute in old syntax; "" without it."""
    found = ad.lookup(name)
    return "" if found is None else unparse(found, syntax="old")


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
            place[0][place[1]] = value if not isinstance(value, Expr | list) else _plain_value(value)
        else:
            raise ValueError("a value without a name")


def _plain_value(value: Any) -> Any:
    return value.value if isinstance(value, Literal) and isinstance(value.value, str) else value


def _escaped(text: str) -> str:
    return text.replace('"', '\\"')
