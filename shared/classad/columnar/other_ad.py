"""The ads that meet a table: jobs, or whatever asks.

What a job's attributes hold is part of the keys under which results are kept, so an ad is looked through once, and then
known by numbers: one for the expressions in it, and one for what some of its attributes hold.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import count
from typing import Any, ClassVar, Final, TypeAlias

from numpy.typing import NDArray

from shared.classad.ad import ClassAd
from shared.classad.columnar.terms import NOBODY, Needs, Term
from shared.classad.expr import Expr, Literal
from shared.classad.unparse import unparse_exact

_HASHED: Final = frozenset((int, str, bool))  # equal only if they are the same, together with their type

Array: TypeAlias = "NDArray[Any]"


class _Signs(dict[tuple[object, ...], int]):
    """A number for each key, which nothing else of the process has: ads that count by an older dict do no harm."""

    _numbers: ClassVar[Iterator[int]] = count()

    def __missing__(self, key: tuple[object, ...]) -> int:
        number = self[key] = next(self._numbers)
        return number


class Numbers:
    """Numbers for expressions, by their text, and for other keys; none is given twice."""

    def __init__(self) -> None:
        self.signs = _Signs()
        self._numbers: dict[object, int] = {}
        self._numbered: dict[int, tuple[Expr, int]] = {}

    def __len__(self) -> int:
        return max(len(self._numbers), len(self.signs) // 4)

    def of(self, key: object) -> int:
        return self._numbers.setdefault(key, len(self._numbers))

    def of_expr(self, expr: Expr) -> int:
        """One number for all trees of the same text."""
        known = self._numbered.get(id(expr))
        if known is None:
            if type(expr) is Literal:  # made for each question: not to be kept
                return self.of(unparse_exact(expr))
            known = self._numbered[id(expr)] = (expr, self.of(unparse_exact(expr)))
        return known[1]


class OtherAd:
    """The ad that meets the table, with its cells by name as parts of cache keys. `shape` is the same number for ads
    with the same expressions. `above`: what is known of the ad that it is chained to, where all it adds to that one are
    plain values of other attributes: these are `own`."""

    def __init__(
        self, ad: ClassAd, shape: int, numbers: Numbers, above: OtherAd | None = None, own: frozenset[str] = frozenset()
    ) -> None:
        self.ad = ad
        self.shape = shape
        self.sides: tuple[Term, Term] | None = None  # its Requirements, and those of the rows
        self.rank: Term | None = None
        self.era = -1
        #: Of an era: lasting results by term, with the version of the table.
        self.results: dict[int, tuple[int, Array]] = {}
        self.above, self._own = above, own
        self._numbers = numbers
        self._digests: dict[str, object] = {}
        self._signs: dict[int, int] = {}

    def read_by(self, needs: Iterable[Needs]) -> OtherAd:
        """The ad that it is chained to, if who needs this reads nothing else; else this one."""
        above = self.above
        if above is None:
            return self
        return above if all(each.steady and self._own.isdisjoint(each.names) for each in needs) else self

    def sign(self, needs: Needs) -> int:
        """The same number for ads in which all names of `needs` hold the same."""
        sign = self._signs.get(needs.number)
        if sign is None:
            if self.above is not None and self._own.isdisjoint(needs.names):
                return self.above.sign(needs)
            sign = self._signs[needs.number] = self._numbers.signs[(needs.number, *map(self.digest, needs.names))]
        return sign

    def digest(self, name: str) -> object:
        """What tells an attribute's cell from any other: its type, too, and the sign of zero."""
        known = self._digests.get(name)
        if known is None:
            if self.above is not None and name not in self._own:
                return self.above.digest(name)
            cell = self.ad.find(name)
            if isinstance(cell, Expr):
                known = Expr, self._numbers.of_expr(cell)
            else:
                known = (type(cell), cell) if type(cell) in _HASHED else (type(cell), repr(cell))
            self._digests[name] = known
        return known


class OtherAds:
    """The ads that were met. Those that are held are known by their identity, or by the bytes they came in."""

    def __init__(self, numbers: Numbers) -> None:
        self._numbers = numbers
        self._held: dict[int, tuple[ClassAd, OtherAd]] = {}  # with the ads, so that no other gets the identity of one
        self._by_bytes: dict[bytes, OtherAd] = {}  # ads that were held at this moment
        self._before: dict[bytes, OtherAd] = {}  # and at the last one

    def met(self, ad: ClassAd | None) -> OtherAd:
        """None: an ad in which there is nothing."""
        if ad is None:
            ad = NOBODY
        held = self._held.get(id(ad))
        return self._look_through(ad) if held is None else held[1]

    def hold(self, ad: ClassAd) -> None:
        """It will not change until `pass_on` or `release`."""
        packed, base = ad.packed, ad.chained
        if packed is not None:
            known = self._of_bytes(packed, ad)
        elif base is not None and base.packed is not None and _adds_values(ad, base):
            above = self._of_bytes(base.packed, base)
            known = OtherAd(ad, above.shape, self._numbers, above, frozenset(ad.table()))
        else:
            known = self._look_through(ad)
        self._held[id(ad)] = ad, known

    def _of_bytes(self, packed: bytes, ad: ClassAd) -> OtherAd:
        known = self._by_bytes.get(packed) or self._before.get(packed)
        if known is None:
            known = self._look_through(ad)
            known.ad = ad.copy()  # who gave it may write to it one day
        self._by_bytes[packed] = known
        return known

    def release(self) -> None:
        """Whatever was held may have changed."""
        self._held.clear()

    def pass_on(self) -> None:
        """To another moment, at which ads that come in the same bytes are known again."""
        self._held.clear()
        self._before, self._by_bytes = self._by_bytes, {}

    def _look_through(self, ad: ClassAd) -> OtherAd:
        shape: list[tuple[str, int]] = []
        above: ClassAd | None = ad
        while above is not None:
            for key, (_, cell) in above.table().items():
                if type(cell) not in _HASHED and type(cell) is not float:
                    found = above.find(key)
                    if isinstance(found, Expr) and type(found) is not Literal:
                        shape.append((key, self._numbers.of_expr(found)))
            above = above.chained
            if above is not None:
                shape.append(("", 0))
        return OtherAd(ad, self._numbers.of(tuple(shape)), self._numbers)


def _adds_values(ad: ClassAd, base: ClassAd) -> bool:
    """Whether an ad adds nothing to the one it is chained to but plain values of attributes that this lacks."""
    below = base.table()
    return all(
        key not in below and (type(cell) in _HASHED or type(cell) is float) for key, (_, cell) in ad.table().items()
    )
