"""Reading a few attributes of a packed ad, and making sure that all of it can be read, in half the time of a table.

For who takes in hundreds of ads a second and looks at some attributes of each. Names are told apart by how they are
spelled, which few ads do differently.
"""

from __future__ import annotations

import threading
from collections.abc import Generator, Iterable
from typing import Any, Final

import msgpack

from shared.classad.ad import ClassAd
from shared.classad.cells import TEXT_CODE, Cell, PackedError, is_known_text, parse_text, read_packed, unpack_flat
from shared.classad.expr import FOLDED, Expr, fold
from shared.classad.values import UNDEFINED, Value
from shared.cooperative import at_once

#: For msgpack's hook: the text of an expression is left as bytes, any other extension becomes what no ad may hold.
_TEXTS: Final = {code: None for code in range(-128, 128) if code != TEXT_CODE}.get
_TYPES: Final = frozenset((bool, int, float, str, bytes))
_RAW_TYPES: Final = frozenset((bool, int, float, bytes, slice))
#: Attributes of an ad that are read at once, some 2 ms: of one with more, others have their turn in between. Such an ad
#: teaches no spellings, as few ads have the same.
PORTION: Final = 1_000
#: Bytes of expressions that nobody has read before, after which others have their turn; each counts as A_TEXT more.
PORTION_BYTES, A_TEXT = 4_096, 20
#: Spellings that are known, of all names, of one, and names with several. An ad with others is read by folded name,
#: which takes twice as long. What is known stays: ads that were read by it are around.
_MOST_NAMES: Final = 20_000
_MOST_SPELLINGS: Final = 8
_MOST_SEVERAL: Final = 100
_spellings: dict[str, tuple[str, ...]] = {}  # by folded name
_names: set[str] = set()
_raw_names: set[bytes] = set()
_learnt = 0  # another number whenever what is known of spellings is
#: By names picked together: how they are spelled, as `_spelled`, and how the watched ones are.
_picked: dict[tuple[str, ...], tuple[int, tuple[bytes, ...] | None, frozenset[bytes]]] = {}
#: By names asked for together: how they are spelled (None: not all in one way), as of what was known then.
_spelled: dict[tuple[str, ...], tuple[int, tuple[str, ...] | None]] = {}
_MOST_TUPLES: Final = 1_000
_several: set[str] = set()  # folded names with more than one spelling
_learning = threading.Lock()


class QuickAd:
    """The attributes of a packed ad, for reading. Raises PackedError, when it is made, if they can not all be read."""

    __slots__ = ("_ad", "_folded", "_values", "packed")

    def __init__(self, packed: bytes) -> None:
        at_once(self._read(packed))

    @classmethod
    def portions(cls, packed: bytes) -> Generator[None, None, QuickAd]:
        """Make one in steps of a few ms: others may have their turn in between. An ordinary ad takes none."""
        quick = cls.__new__(cls)
        yield from quick._read(packed)
        return quick

    @classmethod
    def unchecked(cls, packed: bytes) -> QuickAd:
        """One whose expressions are read when they are asked for."""
        quick = cls.__new__(cls)
        quick._take(packed)
        return quick

    def _read(self, packed: bytes) -> Generator[None, None, None]:
        self._take(packed)
        large = len(self._values) > PORTION
        if large:
            yield
        size = 0
        for value in self._values.values():
            if value.__class__ is bytes and not is_known_text(value):
                parse_text(value)
                size += len(value) + A_TEXT
                if size > PORTION_BYTES:
                    size = 0
                    yield

    def _take(self, packed: bytes) -> None:
        try:
            values: dict[str, Any] = unpack_flat(packed, _TEXTS)
        except (ValueError, RecursionError, TypeError, msgpack.UnpackException) as fault:
            raise PackedError(f"not a packed ad: {fault}") from fault
        if type(values) is not dict or not set(map(type, values.values())) <= _TYPES:
            read_packed(packed)  # says what is wrong
            raise PackedError("not a packed ad: an attribute is neither a literal nor an expression")
        folded = len(_several) > _MOST_SEVERAL
        if not values.keys() <= _names:
            if len(values) <= PORTION:
                learn(values)
            folded = folded or not values.keys() <= _names
        if not folded:
            folded = any(sum(name in values for name in _spellings[key]) > 1 for key in tuple(_several))
        if folded:
            values = {FOLDED[name] if name in FOLDED else fold(name): value for name, value in values.items()}
        self._values = values
        self._folded = folded  # whether `_values` are by folded name
        self._ad: ClassAd | None = None
        self.packed = packed

    def get(self, key: str) -> Cell | None:
        """The cell of a folded name, None if there is none."""
        for name in (key,) if self._folded else _spellings.get(key, ()):
            value = self._values.get(name)
            if value is not None:
                return parse_text(value) if type(value) is bytes else value
        return None

    def ad(self) -> ClassAd:
        """The ad itself."""
        if self._ad is None:
            self._ad = ClassAd.unpack(self.packed)
        return self._ad

    def eval(self, name: str) -> Value:
        """The value of an attribute, as `ClassAd.eval` says."""
        cell = self.get(FOLDED[name] if name in FOLDED else fold(name))
        if cell is None:
            return UNDEFINED
        return self.ad().eval(name) if isinstance(cell, Expr) else cell

    def eval_string(self, name: str) -> str:
        """The value of an attribute that is a string; "" if it is none."""
        value = self.eval(name)
        return value if isinstance(value, str) else ""

    def cells(self, keys: tuple[str, ...]) -> list[Cell | None]:
        """The cells of some folded names."""
        if self._folded:
            return [self.get(key) for key in keys]
        known = _spelled.get(keys)
        if known is None or known[0] != _learnt:
            if len(_spelled) > _MOST_TUPLES:
                _spelled.clear()
            single = _several.isdisjoint(keys)
            known = _spelled[keys] = (
                _learnt,
                tuple(_spellings.get(key, ("",))[0] for key in keys) if single else None,
            )
        if known[1] is None:
            return [self.get(key) for key in keys]
        get = self._values.get
        return [parse_text(cell) if cell.__class__ is bytes else cell for cell in map(get, known[1])]

    def has_any(self, keys: frozenset[str]) -> bool:
        """Whether there is an attribute of one of these folded names."""
        if self._folded:
            return not keys.isdisjoint(self._values)
        return any(self.get(key) is not None for key in keys & _spellings.keys())


def picks(packed: bytes, keys: tuple[str, ...], watched: frozenset[str]) -> tuple[list[Cell | None], bool]:
    """The cells of some folded names, and whether the ad has an attribute of one of the `watched`: for who reads some
    attributes of very many ads, in half the time. Of the others it is only seen that they may be in an ad. Raises
    PackedError."""
    known = _picked.get(keys)
    if known is None or known[0] != _learnt:
        known = _remembered(keys, watched)
    if known[1] is None:
        quick = QuickAd.unchecked(packed)
        return quick.cells(keys), quick.has_any(watched)
    try:
        # Texts stay bytes, and expressions become slice(code, text): both are made in C.
        values: dict[bytes, Any] = unpack_flat(packed, slice, raw=True)
    except (ValueError, RecursionError, TypeError, msgpack.UnpackException) as fault:
        raise PackedError(f"not a packed ad: {fault}") from fault
    if type(values) is not dict or not set(map(type, values.values())) <= _RAW_TYPES:
        read_packed(packed)  # says what is wrong
        raise PackedError("not a packed ad: an attribute is neither a literal nor an expression")
    if not values.keys() <= _raw_names:
        quick = QuickAd.unchecked(packed)  # which learns the names
        return quick.cells(keys), quick.has_any(watched)
    cells: list[Cell | None] = []
    for value in map(values.get, known[1]):
        if value.__class__ is bytes:
            value = value.decode("utf-8", "surrogateescape")
        elif value.__class__ is slice:
            if value.start != TEXT_CODE:
                raise PackedError(f"an attribute has the unknown extension type {value.start}")
            value = parse_text(value.stop)
        cells.append(value)
    return cells, not known[2].isdisjoint(values)


def _remembered(
    keys: tuple[str, ...], watched: frozenset[str]
) -> tuple[int, tuple[bytes, ...] | None, frozenset[bytes]]:
    if len(_picked) > _MOST_TUPLES:
        _picked.clear()
    with _learning:
        learnt = _learnt
        spelt = [_spellings.get(key, ("",))[0].encode("utf-8", "surrogateescape") for key in keys]
        single = tuple(spelt) if _several.isdisjoint(keys) else None
        others = frozenset(
            name.encode("utf-8", "surrogateescape") for key in watched for name in _spellings.get(key, ())
        )
    found = _picked[keys] = (learnt, single, others)
    return found


def spellings(key: str) -> tuple[str, ...]:
    """How the attribute of a folded name is spelled in the ads that this process has read, whatever their type: the
    first one seen comes first."""
    return _spellings.get(key, ())


def learn(values: Iterable[str]) -> None:
    """Know these spellings of attributes, as far as there is room. Raises PackedError for what is none."""
    global _learnt
    with _learning:
        for name in values:
            if type(name) is not str:
                raise PackedError("not a packed ad: an attribute has no name")
            if name in _names or len(_names) >= _MOST_NAMES:
                continue
            key = fold(name)
            spelt = _spellings.get(key, ())
            if len(spelt) >= _MOST_SPELLINGS:
                continue
            if spelt:
                _several.add(key)
            _spellings[key] = (*spelt, name)
            _raw_names.add(name.encode("utf-8", "surrogateescape"))
            _names.add(name)  # last, as others read ads meanwhile
        _learnt += 1


def read_in_portions(packed: bytes) -> Generator[None, None, ClassAd]:
    """An ad of which every expression was read, in steps of a few ms. Raises PackedError."""
    yield from QuickAd.portions(packed)
    return ClassAd.unpack(packed)
