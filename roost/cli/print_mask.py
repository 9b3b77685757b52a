"""Tables of ads, as HTCondor's tools set them: columns of attributes or expressions, formats, widths that grow.

A column has a first width. All ads are read before the first line is shown, and a column with `auto` grows with the
strings and numbers they have; what only turns out to be long when it is shown (`undefined`, a list) widens it from that
line on. Widths count bytes, not characters: that, too, is what the tables of HTCondor do.

Longer than most modules: reading cells and setting lines know the same column, and speed decides how (100,000 slots
have a million cells), so neither has a life of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, cast

from roost.cli import printf
from roost.cli.printf import Form, whole
from shared.classad import ERROR, UNDEFINED, ClassAd, ParseError, evaluate, parse_expr, unparse
from shared.classad.column_page import Sheet
from shared.classad.expr import AttrRef, Expr, fold
from shared.classad.references import decided_by

_NUMBERS: Final = frozenset(("int", "float", "char", "time", "date"))
_PLAIN: Final = frozenset((str, int, float, bool))


@dataclass(frozen=True, slots=True)
class As:
    """What makes a cell of a value.

    takes: int, float or str (another value counts as 0 or "" for `render`, and is no value for `show`), or any.
    render: (value, ad) to another value, or None for no value. show: (value, width) to the text.
    form: format of what `render` gives. needs: attributes that `render` reads besides the column's own.
    whole: the same as `render` for what is a whole number, given those of `needs` in place of the ad (None: missing).
    """

    takes: str
    render: Callable[[Any, ClassAd], Any] | None = None
    show: Callable[[Any, int], str] | None = None
    form: str = ""
    needs: tuple[str, ...] = ()
    whole: Callable[..., int | None] | None = None


@dataclass(slots=True)
class Column:
    """One column; see `column` for how it is made."""

    source: str
    heading: str
    form: Form | None
    constant: str | None  # the text of all cells
    width: int
    left: bool
    auto: bool
    cut: bool
    alt: str = ""  # shown where there is no value
    alt_wide: bool = False  # as wide as the column, in brackets
    joined: bool = False  # no prefix before it
    unended: bool = False  # no suffix behind it
    hidden: bool = False
    always: bool = False  # `show` is called even without a value
    by: As | None = None


def column(
    source: str,
    heading: str = "",
    form: str | None = "%v",
    width: int = 0,
    *,
    auto: bool = False,
    cut: bool = True,
    by: As | None = None,
    **more: Any,
) -> Column:
    """width: negative for cells at the left; 0 takes the format's own. form: None for `by` without one."""
    left = width < 0
    parsed = constant = None
    if form:
        parsed = printf.parse(form)
        if parsed is None and by is None:
            constant = form
        if parsed is not None and not width:
            width, left = parsed.width, parsed.left
    left = bool(more.pop("left", False)) or left
    return Column(source, heading, parsed, constant, abs(width), left, auto, cut, by=by, **more)


@dataclass(slots=True)
class Mask:
    """Columns, and what stands between them."""

    columns: list[Column] = field(default_factory=list)
    row_prefix: str = ""
    prefix: str = ""
    suffix: str = ""
    row_suffix: str = ""
    overall: int = 0  # lines are cut there; 0: never
    headings: bool = False
    _wants: list[list[int]] | None = None  # how wide each cell wants its column, where lines are shown as they come

    def attributes(self) -> list[str]:
        """The attributes that the columns read."""
        from shared.classad import references

        names: dict[str, str] = {}
        for one in self.columns:
            expression = _parsed(one.source)
            if expression is not None and one.constant is None:
                found = references(expression)
                for name in (*found.missing, *found.unscoped, *(one.by.needs if one.by else ())):
                    names.setdefault(fold(name), name)
        return sorted(names.values())

    def separate(self, row_prefix: str, prefix: str, suffix: str, row_suffix: str = "\n") -> None:
        self.row_prefix, self.prefix, self.suffix, self.row_suffix = row_prefix, prefix, suffix, row_suffix

    def read(self, ads: Sequence[ClassAd], target: ClassAd | None = None, *, one_by_one: bool = False) -> Cells:
        """The cells of these ads by column. Columns become as wide as they need, all at once or, `one_by_one`, each
        with the first line that needs it."""
        found = []
        self._wants = [] if one_by_one else None
        for one in self.columns:
            reader = _Reader(one, target)
            if self._wants is None:
                found.append(reader.all(ads))
                if one.auto:
                    one.width = max(one.width, reader.longest)
                continue
            texts: list[str | None] = []
            wants = []
            for ad in ads:
                reader.longest = 0
                texts.append(reader.text(ad))
                wants.append(max(reader.longest, len(texts[-1] or "")))
            found.append(texts)
            self._wants.append(wants)
        return found

    def heading(self) -> str:
        parts = [printf.to_bytes(self.row_prefix)]
        last = len(self.columns) - 1
        for place, one in enumerate(self.columns):
            if one.hidden:
                continue
            if place and not one.joined:
                parts.append(printf.to_bytes(self.prefix))
            parts.append(printf.to_bytes(one.heading).ljust(one.width))
            if place < last and not one.unended:
                parts.append(printf.to_bytes(self.suffix))
        line = "".join(parts)
        if self.overall and len(line) > self.overall:
            line = line[: self.overall]
        return printf.from_bytes(line) + self.row_suffix

    def lines(self, cells: Cells) -> Iterator[str]:
        """The line of each ad, with the row's suffix."""
        count = len(cells[0]) if cells else 0
        foreign = not all(all(map(str.isascii, filter(None, texts))) for texts in cells)
        foreign = foreign or not (self.row_prefix + self.prefix + self.suffix).isascii()
        if foreign:
            cells = [[text if text is None else printf.to_bytes(text) for text in texts] for texts in cells]
            if self._wants is not None:
                self._wants = [
                    [max(want, len(text or "")) for want, text in zip(wants, texts, strict=True)]
                    for wants, texts in zip(self._wants, cells, strict=True)
                ]
        begin = 0
        while begin < count:
            end = self._widen(cells, begin, count)
            rows = self._set([texts[begin:end] for texts in cells])
            for row in rows:
                yield (printf.from_bytes(row) if foreign else row) + self.row_suffix
            begin = end

    def _widen(self, cells: Cells, begin: int, count: int) -> int:
        """Widen the columns for row `begin`; the first row after it that needs wider ones."""
        end = count
        wants = self._wants or [[len(text) if text else 0 for text in texts] for texts in cells]
        self._wants = wants
        for one, lengths in zip(self.columns, wants, strict=True):
            if one.auto and not one.hidden:
                width = one.width = max(one.width, lengths[begin])
                if begin == 0 and max(lengths) <= width:
                    continue
                for place in range(begin + 1, end):
                    if lengths[place] > width:
                        end = place
                        break
        return end

    def _set(self, cells: Cells) -> list[str]:
        """Lines whose columns have the widths that they have now."""
        if not self.columns:
            return []
        row_prefix, prefix, suffix = (
            (text if text.isascii() else printf.to_bytes(text)).replace("%", "%%")
            for text in (self.row_prefix, self.prefix, self.suffix)
        )
        template = [row_prefix]
        shown = []
        last = len(self.columns) - 1
        for place, (one, texts) in enumerate(zip(self.columns, cells, strict=True)):
            if one.hidden:
                continue
            if place and not one.joined:
                template.append(prefix)
            template.append("%s")
            shown.append(_justified(one, texts))
            if place < last and not one.unended:
                template.append(suffix)
        whole_line = "".join(template)
        lines = [whole_line % row for row in zip(*shown, strict=True)]
        return [line[: self.overall] for line in lines] if self.overall else lines


Cells = list[list[str | None]]


def _justified(one: Column, texts: Sequence[str | None]) -> list[str]:
    width, alt = one.width, one.alt
    if one.alt_wide and alt:
        alt = "" if not width else alt if width < 3 else f"[{alt * (width - 2)}]"
    if not width:
        return [alt if text is None else text for text in texts]
    alt = alt.ljust(width) if one.left else alt.rjust(width)
    right = not one.left or (one.form is not None and one.form.kind in _NUMBERS and not (one.by and one.by.show))
    most = width if one.cut and not one.auto else None
    if most is None and right:
        return [alt if text is None else text.rjust(width) for text in texts]
    if most is None:
        return [alt if text is None else text.ljust(width) for text in texts]
    if right:
        return [alt if text is None else text[:most].rjust(width) for text in texts]
    return [alt if text is None else text[:most].ljust(width) for text in texts]


# --- cells


class _Reader:
    """Makes the cells of one column, and remembers how wide they want it."""

    __slots__ = ("_column", "_expression", "_key", "_target", "longest", "text")

    def __init__(self, one: Column, target: ClassAd | None) -> None:
        self._column = one
        self._key = fold(one.source)
        self._target = target
        self._expression = _parsed(one.source)
        self.longest = 0
        self.text: Callable[[ClassAd], str | None] = self._which()

    def _which(self) -> Callable[[ClassAd], str | None]:
        one = self._column
        if one.constant is not None:
            return self._constant
        if one.by is not None:
            return self._rendered if one.by.render else self._shown
        kind = one.form.kind if one.form else "value"
        if kind in _NUMBERS:
            return self._number
        return {"string": self._string, "raw": self._raw, "value": self._any}[kind]

    def all(self, ads: Sequence[ClassAd]) -> list[str | None]:
        """The cells of these ads; at once where all of them have a constant of one type."""
        one = self._column
        form, key = one.form, self._key
        if one.by is not None and isinstance(ads, Sheet):
            found = self._by_columns(one.by, ads)
            if found is not None:
                return found
        if one.constant is None and one.by is None and form is not None:
            values: list[Any]
            if isinstance(ads, Sheet):
                values = ads.cells(key)
            else:
                values = [None if (entry := ad.table().get(key)) is None else entry[1] for ad in ads]
            types = set(map(type, values))
            if types == {str} and form.plain and form.letter == "v" and all(map(str.isascii, values)):
                self.longest = max(map(len, values))
                return list(values)
            if types == {int} and form.kind == "int" and form.letter in "di" and form.fits(cast("list[int]", values)):
                texts: list[str | None] = [form.template % value for value in values]
                self.longest = max(map(len, texts))  # type: ignore[arg-type]
                return texts
        if isinstance(ads, Sheet) and (decisive := self._decisive()) is not None:
            alike, few = ads.alike(decisive), ads.narrowed(decisive)
            shown = {place: self.text(few[place]) for place in dict.fromkeys(alike)}
            return [shown[place] for place in alike]
        return [self.text(ad) for ad in ads]

    def _decisive(self) -> list[str] | None:
        """The attributes (folded names) that decide a cell; None where they can not be seen."""
        one = self._column
        if one.constant is not None or self._target is not None or self._expression is None:
            return None
        names = decided_by(self._expression)
        return None if names is None else sorted({*names, self._key, *map(fold, one.by.needs if one.by else ())})

    def _by_columns(self, by: As, ads: Sheet) -> list[str | None] | None:
        """The cells where no ad is needed for them; None where one is."""
        one = self._column
        values: list[Any] = ads.cells(self._key)
        types = set(map(type, values))
        if one.constant is not None or not types:
            return None
        if by.show is not None and by.render is None:
            show, width = by.show, one.width
            if by.takes == "float" and types <= {int, float}:
                return [show(float(value), width) for value in values]
            return [show(value, width) for value in values] if by.takes == "int" and types == {int} else None
        if by.whole is None or one.form is None or one.form.kind not in _NUMBERS or not types <= {int, type(None)}:
            return None
        if type(None) in types:
            if self._target is not None or type(self._expression) is not AttrRef:
                return None
            values = [0 if value is None else value for value in values]  # as `_rendered` takes it
        needs = [ads.cells(fold(name)) for name in by.needs]
        if not all(set(map(type, cells)) <= {int, type(None)} for cells in needs):
            return None
        numbers = list(map(by.whole, values, *needs))
        texts = {number: None if number is None else self._numeral(number) for number in set(numbers)}
        return [texts[number] for number in numbers]

    def _value(self, ad: ClassAd) -> Any:
        entry = ad.table().get(self._key)
        if entry is not None:
            cell = entry[1]
            if type(cell) in _PLAIN:
                return cell
            return ad.eval(self._column.source, self._target)
        if self._expression is None:
            return None
        if type(self._expression) is AttrRef and self._target is None and ad.chained is None:
            return UNDEFINED if self._expression.scope is None else evaluate(self._expression, ad)
        return evaluate(self._expression, ad, self._target)

    def _constant(self, _: ClassAd) -> str | None:
        text = self._column.constant or ""
        self.longest = max(self.longest, len(text.encode()))
        return text

    def _number(self, ad: ClassAd) -> str | None:
        number = self._value(ad)
        if type(number) is not int and type(number) is not float:
            if type(number) is not bool:
                return None
            number = int(number)
        return self._numeral(number)

    def _numeral(self, number: float) -> str:
        form = self._column.form
        assert form is not None
        text = form.number(number)
        if len(text) > self.longest:
            self.longest = len(text)
        return text

    def _any(self, ad: ClassAd) -> str | None:
        value = self._value(ad)
        if value is None:
            return None
        return self._unparsed(value)

    def _unparsed(self, value: Any) -> str:
        form = self._column.form
        if type(value) is str:
            # What counts is the string, whatever the format makes of it.
            self._grow(value)
            text = unparse(value, syntax="old") if form is not None and form.letter == "V" else value
        else:
            text = unparse(value, syntax="old")
            if type(value) is int:
                self._grow(text)
            elif type(value) is float:
                self._grow(unparse(value))  # which has all digits
        return text if form is None else form.string(text)

    def _string(self, ad: ClassAd) -> str | None:
        value = self._value(ad)
        if type(value) is not str:
            if self._key not in ad.table():
                return None
            value = self._written(ad)
        return self._text(value)

    def _raw(self, ad: ClassAd) -> str | None:
        return None if self._expression is None and self._key not in ad.table() else self._text(self._written(ad))

    def _written(self, ad: ClassAd) -> str:
        found = ad.lookup(self._column.source)
        if found is not None:
            return unparse(found, syntax="old")
        if self._expression is None or isinstance(self._expression, AttrRef):
            return "undefined"
        return unparse(self._expression, syntax="old")

    def _text(self, value: str) -> str:
        self._grow(value)
        form = self._column.form
        return value if form is None else form.string(value)

    def _rendered(self, ad: ClassAd) -> str | None:
        by = self._column.by
        assert by is not None
        assert by.render is not None
        value = _as(by.takes, self._value(ad))
        if value is None:
            value = {"int": 0, "float": 0.0, "str": "", "any": UNDEFINED}[by.takes]
        value = by.render(value, ad)
        if value is None:
            return None
        form = self._column.form
        if isinstance(value, str):
            self._grow(value)
            return value if form is None or form.kind in _NUMBERS else form.string(value)
        if form is None:
            return ""
        if form.kind in _NUMBERS:
            return self._numeral(value)
        return self._unparsed(value)

    def _shown(self, ad: ClassAd) -> str | None:
        by = self._column.by
        assert by is not None
        assert by.show is not None
        value = _as(by.takes, self._value(ad))
        if value is None:
            if not self._column.always:
                return None
            value = {"int": 0, "float": 0.0, "str": "", "any": UNDEFINED}[by.takes]
        elif isinstance(value, str):
            self._grow(value)
        return by.show(value, self._column.width)

    def _grow(self, text: str) -> None:
        length = len(text) if text.isascii() else len(text.encode("utf-8", "surrogateescape"))
        if length > self.longest:
            self.longest = length


def _as(takes: str, value: Any) -> Any:
    """A value as what is wanted, or None."""
    if takes == "int":
        return whole(value) if isinstance(value, int | float) else None
    if takes == "float":
        return float(value) if isinstance(value, int | float) else None
    if takes == "str":
        return value if isinstance(value, str) else None
    return value


def _parsed(source: str) -> Expr | None:
    try:
        return parse_expr(source, syntax="old")
    except ParseError:
        return None


# --- attributes of an ad, as what is asked for


def value_of(ad: ClassAd, name: str) -> Any:
    """The value of an attribute; constants without evaluation, as these are asked for a million times."""
    key = _KEYS.get(name)
    if key is None:
        key = _KEYS[name] = fold(name)
    entry = ad.table().get(key)
    if entry is None:
        return UNDEFINED if ad.chained is None else ad.eval(name)
    return entry[1] if type(entry[1]) in _PLAIN else ad.eval(name)


#: Names that this program asks for, folded.
_KEYS: Final[dict[str, str]] = {}


def integer(ad: ClassAd, name: str) -> int | None:
    value = value_of(ad, name)
    return value if type(value) is int else _as("int", value)


def real(ad: ClassAd, name: str) -> float | None:
    return _as("float", value_of(ad, name))  # type: ignore[no-any-return]


def string(ad: ClassAd, name: str) -> str | None:
    value = value_of(ad, name)
    return value if type(value) is str else None


def number_of(ad: ClassAd, name: str, default: float = 0.0) -> float:
    found = real(ad, name)
    return default if found is None else found


def truth(ad: ClassAd, name: str) -> bool:
    """Whether an attribute is true, or a number other than 0."""
    value = value_of(ad, name)
    return value is not UNDEFINED and value is not ERROR and isinstance(value, bool | int | float) and bool(value)
