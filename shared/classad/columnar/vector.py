"""Plans over columns: masks of TRUE, FALSE and ERROR, and vectors of values.

The value of a condition is kept as three masks, true, false and error; what is none of them is UNDEFINED. A mask that
can only be empty is None, which the tags of columns prove often. Rules (`&&`; `||` mirrors it), from the evaluator:

    true  = true(a) & true(b)
    error = error(a) | (~false(a) & error(b))
    false = false(a) | (~error(a) & false(b))

Reals are exact for integers below 2^53; where a result is not, or for an operator that has no rule here, the part of
the plan is evaluated by the scalar gear once for each distinct tuple of the values that it reads.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from shared.classad.columnar.column import (
    ABSENT,
    BOOL,
    EXACT_LIMIT,
    INT,
    NUMBERS,
    OTHER,
    REAL,
    STRING,
    UNDEF,
    WRONG,
    Codes,
    Column,
    Mask,
    Vector,
    constant,
    gathered,
)
from shared.classad.compiled.plan import (
    AND,
    BINARY,
    CALL,
    CHOICE,
    COLUMN,
    CONST,
    ELVIS,
    NOW,
    OR,
    UNARY,
    Node,
    Unplannable,
)
from shared.classad.compiled.source import Deoptimized, Writer
from shared.classad.expr import IS, ISNT
from shared.classad.functions import FUNCTIONS
from shared.classad.values import Value

_COMPARE: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "==": np.equal, "!=": np.not_equal, "<": np.less, "<=": np.less_equal, ">": np.greater, ">=": np.greater_equal,
}  # fmt: skip
_INTEGERS: Final = (1 << BOOL) | (1 << INT)
_RANDOM: Final = FUNCTIONS["random"]

Condition = tuple["Mask | None", "Mask | None", "Mask | None"]  # true, false, error; None: empty


class _Unsupported(Exception):
    """There is no rule for this here; the scalar gear is asked."""


class Run:
    """Evaluates plans over rows start to stop of some columns."""

    def __init__(
        self,
        columns: Mapping[str, Column],
        codes: Codes,
        start: int,
        stop: int,
        now: float,
        patience: Callable[[], None] | None = None,
    ) -> None:
        self._columns = columns
        self._codes = codes
        self._start, self._stop = start, stop
        self._size = stop - start
        self._now = now
        self._patience = patience

    def true(self, node: Node) -> Mask:
        """(rows,) bool: where the plan's value satisfies a condition. Raises Unplannable."""
        with np.errstate(all="ignore"):
            mask = self._true(node)
        return np.zeros(self._size, dtype=np.bool_) if mask is None else mask

    def numbers(self, node: Node, nothing: float = 0.0) -> NDArray[np.float64]:
        """(rows,) float64: the value as a rank, `nothing` where it is no number (NaN included). Raises Unplannable."""
        with np.errstate(all="ignore"):
            vector = self._value(node)
        number = np.asarray(vector.number, dtype=np.float64)
        number = np.where(np.isnan(number), nothing, number)
        return np.broadcast_to(number, (self._size,)).copy() if number.ndim == 0 else number

    def vector(self, node: Node) -> Vector:
        """The plan's value in each row. Raises Unplannable."""
        with np.errstate(all="ignore"):
            return self._value(node)

    # Conditions

    def _true(self, node: Node) -> Mask | None:
        if node.op == AND:
            left = self._true(node.args[0])
            if left is None:
                return None
            right = self._true(node.args[1])
            return None if right is None else left & right
        if node.op == CONST:
            value = node.value
            return np.ones(self._size, np.bool_) if isinstance(value, int | float) and value != 0 else None
        return self._condition(node)[0]

    def _condition(self, node: Node) -> Condition:
        """The value as a boolean operand: what is no boolean nor number is ERROR, UNDEFINED apart."""
        if node.op in (AND, OR):
            return _logic(node.op, self._condition(node.args[0]), lambda: self._condition(node.args[1]))
        if node.op == UNARY and node.value == "!":
            true, false, error = self._condition(node.args[0])
            return false, true, error
        if node.op == BINARY:
            try:
                return self._comparison(node)
            except _Unsupported:
                pass
        return self._truth(self._value(node))

    def _truth(self, vector: Vector) -> Condition:
        true = false = None
        if vector.tags & NUMBERS:
            number = vector.number
            if vector.tags & ~NUMBERS:
                valid = (vector.tag >= BOOL) & (vector.tag <= REAL)
                true, false = valid & (number != 0), number == 0
            else:
                true, false = number != 0, number == 0
        error = None
        if vector.tags & ((1 << WRONG) | (1 << STRING)):
            error = (vector.tag == WRONG) | (vector.tag == STRING)
        return self._mask(true), self._mask(false), self._mask(error)

    def _mask(self, mask: Any) -> Mask | None:
        if mask is None:
            return None
        if np.ndim(mask) == 0:
            return np.ones(self._size, np.bool_) if mask else None
        full: Mask = mask
        return full

    def _comparison(self, node: Node) -> Condition:
        op = str(node.value)
        if op in (IS, ISNT):
            same = self._mask(self._identical(self._value(node.args[0]), self._value(node.args[1])))
            differ = np.ones(self._size, np.bool_) if same is None else ~same
            return (same, differ, None) if op == IS else (differ, same, None)
        if op not in _COMPARE:
            raise _Unsupported
        left, right = self._value(node.args[0]), self._value(node.args[1])
        both = left.tags & right.tags
        defined = None
        numeric = bool(left.tags & NUMBERS and right.tags & NUMBERS)
        true: Any = None
        if numeric:
            true = self._ordered(op, left, right)
            if (left.tags | right.tags) & ~NUMBERS:
                defined = (left.tag >= BOOL) & (left.tag <= REAL) & (right.tag >= BOOL) & (right.tag <= REAL)
                true = true & defined
            else:
                defined = True
        if both & (1 << STRING):
            if op not in ("==", "!="):
                raise _Unsupported
            strings = (left.tag == STRING) & (right.tag == STRING)
            equal = (left.folded == right.folded) & strings
            found = equal if op == "==" else strings & ~equal
            true = found if true is None else true | found
            defined = strings if defined is None else defined | strings
        false = None if defined is None else self._unless(defined, true)
        error = self._mismatch(left, right, defined)
        return self._mask(true), self._mask(false), self._mask(error)

    @staticmethod
    def _unless(defined: Any, true: Any) -> Any:
        return np.logical_not(true) if defined is True else defined & np.logical_not(true)

    @staticmethod
    def _mismatch(left: Vector, right: Vector, defined: Any) -> Any:
        """Where an operand is ERROR, or both have values for which the operator has no meaning."""
        undefined, wrong = 1 << UNDEF, 1 << WRONG
        error: Any = None
        if (left.tags | right.tags) & wrong:
            error = (left.tag == WRONG) | (right.tag == WRONG)
        if defined is True:
            return error
        strange = (left.tag > WRONG) & (right.tag > WRONG)
        if left.tags & ~(undefined | wrong) and right.tags & ~(undefined | wrong):
            if defined is not None:
                strange = strange & np.logical_not(defined)
            error = strange if error is None else error | strange
        return error

    @staticmethod
    def _ordered(op: str, left: Vector, right: Vector) -> Any:
        compare = _COMPARE[op]
        true = compare(left.number, right.number)
        if not isinstance(left.exact, np.ndarray) and not isinstance(right.exact, np.ndarray):
            if isinstance(left.exact, int) and isinstance(right.exact, int):
                raise _Unsupported
            return true
        if left.exact is None or right.exact is None:
            if (left.tags if left.exact is None else right.tags) & (1 << INT):
                raise _Unsupported
            return true
        integers = (left.tag == INT) & (right.tag == INT)
        return np.where(integers, compare(left.exact, right.exact), true)

    def _identical(self, left: Vector, right: Vector) -> Any:
        tags = left.tags & right.tags
        same: Any = None

        def add(mask: Any) -> None:
            nonlocal same
            same = mask if same is None else same | mask

        for tag in (UNDEF, WRONG):
            if tags & (1 << tag):
                add((left.tag == tag) & (right.tag == tag))
        if tags & (1 << STRING):
            add((left.code == right.code) & (left.tag == STRING) & (right.tag == STRING))
        if tags & NUMBERS:
            equal = left.number == right.number
            if tags & (1 << INT) and (left.exact is not None or right.exact is not None):
                equal = self._ordered("==", left, right)
            numbers = (left.tag >= BOOL) & (left.tag <= REAL)
            add(equal & numbers & (left.tag == right.tag))
        return same

    # Values

    def _value(self, node: Node) -> Vector:
        try:
            return self._vector(node)
        except _Unsupported:
            return self._by_tuples(node)

    def _vector(self, node: Node) -> Vector:
        op = node.op
        if op == CONST:
            try:
                return constant(node.value, self._codes)  # type: ignore[arg-type]
            except Unplannable as fault:
                raise _Unsupported from fault
        if op == COLUMN:
            return self._column(node)
        if op == NOW:
            return constant(int(self._now), self._codes)
        if op in (AND, OR) or (op == UNARY and node.value == "!"):
            return self._of_condition(self._condition(node))
        if op == BINARY:
            if str(node.value) in ("+", "-", "*", "/", "%"):
                return self._arithmetic(node)
            return self._of_condition(self._comparison(node))
        if op == UNARY:
            return self._unary(node)
        if op == CHOICE:
            true, false, error = self._condition(node.args[0])
            result = Vector(1 << UNDEF, UNDEF)
            if error is not None:
                result = self._select(error, Vector(1 << WRONG, WRONG), result)
            if false is not None:
                result = self._select(false, self._value(node.args[2]), result)
            return result if true is None else self._select(true, self._value(node.args[1]), result)
        if op == ELVIS:
            left = self._value(node.args[0])
            if not left.tags & (1 << UNDEF):
                return left
            mask = self._mask(left.tag == UNDEF)
            return left if mask is None else self._select(mask, self._value(node.args[1]), left)
        raise _Unsupported

    def _column(self, node: Node) -> Vector:
        column = self._columns[str(node.value)].vector(self._start, self._stop)
        if column.tags & (1 << OTHER):
            if np.any(column.tag == OTHER):
                raise Unplannable("a time, a list or an ad in a column")
            column.tags &= ~(1 << OTHER)  # not in these rows
        if not column.tags & (1 << ABSENT):
            return column
        if node.args:
            return self._select(column.tag == ABSENT, self._value(node.args[0]), column)
        tag = np.where(column.tag == ABSENT, np.uint8(UNDEF), column.tag)
        tags = (column.tags & ~(1 << ABSENT)) | (1 << UNDEF)
        return Vector(tags, tag, column.number, column.code, column.folded, column.exact)

    @staticmethod
    def _select(mask: Mask, yes: Vector, no: Vector) -> Vector:
        exact = None
        if isinstance(yes.exact, np.ndarray) or isinstance(no.exact, np.ndarray) or _huge(yes) or _huge(no):
            if (yes.exact is None and yes.tags & (1 << INT)) or (no.exact is None and no.tags & (1 << INT)):
                raise _Unsupported
            exact = np.where(mask, 0 if yes.exact is None else yes.exact, 0 if no.exact is None else no.exact)
        return Vector(
            (yes.tags | no.tags) & ~(1 << ABSENT),
            np.where(mask, yes.tag, no.tag),
            np.where(mask, yes.number, no.number),
            np.where(mask, yes.code, no.code),
            np.where(mask, yes.folded, no.folded),
            exact,
        )

    def _of_condition(self, condition: Condition) -> Vector:
        true, false, error = condition
        tag = np.zeros(self._size, np.uint8)
        number = np.full(self._size, np.nan)
        tags = 1 << UNDEF
        for mask, kind, value in ((true, BOOL, 1.0), (false, BOOL, 0.0), (error, WRONG, np.nan)):
            if mask is not None:
                tags |= 1 << kind
                tag[mask] = kind
                number[mask] = value
        return Vector(tags, tag, number)

    def _unary(self, node: Node) -> Vector:
        value = self._value(node.args[0])
        if isinstance(value.exact, np.ndarray) or _huge(value):
            raise _Unsupported
        good = (1 << INT) if node.value == "~" else (1 << INT) | (1 << REAL)
        number = value.number if node.value == "+" else -value.number
        if node.value == "~":
            number = number - 1
        elif node.value == "-":
            # The negative of the integer 0 is 0, that of the real 0.0 is -0.0.
            number = np.where((value.tag == INT) & (value.number == 0), 0.0, number)
        if not value.tags & ~good:
            return Vector(value.tags, value.tag, number)
        fine = (value.tag == INT) | ((value.tag == REAL) if good & (1 << REAL) else False)
        tag = np.where(fine | (value.tag == UNDEF), value.tag, np.uint8(WRONG))
        tags = (value.tags & (good | (1 << UNDEF))) | (1 << WRONG)
        return Vector(tags, tag, np.where(fine, number, np.nan))

    def _arithmetic(self, node: Node) -> Vector:
        """`+ - * / %` of numbers; integers whose result is not exact as a real are left to the scalar gear."""
        op = str(node.value)
        left, right = self._value(node.args[0]), self._value(node.args[1])
        for each in (left, right):
            if isinstance(each.exact, np.ndarray) or _huge(each):
                raise _Unsupported
        numeric: Any = True
        if (left.tags | right.tags) & ~NUMBERS:
            numeric = (left.tag >= BOOL) & (left.tag <= REAL) & (right.tag >= BOOL) & (right.tag <= REAL)
        whole: Any = False
        if left.tags & _INTEGERS and right.tags & _INTEGERS:
            whole = True
            if (left.tags | right.tags) & ~_INTEGERS:
                whole = (left.tag >= BOOL) & (left.tag <= INT) & (right.tag >= BOOL) & (right.tag <= INT)
        a, b = left.number, right.number
        wrong: Any = False
        if op in ("/", "%"):
            number, wrong = _divided(op, a, b, whole)
        else:
            number = a + b if op == "+" else a - b if op == "-" else a * b
        exact = np.logical_and(whole, np.logical_not(wrong))
        if np.any(np.logical_and(exact, np.abs(number) >= EXACT_LIMIT)):
            raise _Unsupported
        if whole is not False:
            number = np.where(whole, number + 0.0, number)  # an integer has no negative zero
        wrong = wrong | (np.logical_not(whole) & (number == np.inf))
        tag = np.where(whole, np.uint8(INT), np.uint8(REAL))
        tags = (1 << INT) | (1 << REAL)
        if numeric is not True:
            wrong = (wrong & numeric) | self._either(left, right, numeric)
            tag = np.where(numeric, tag, np.uint8(UNDEF))
            tags |= 1 << UNDEF
        if np.any(wrong):
            tag = np.where(wrong, np.uint8(WRONG), tag)
            tags |= 1 << WRONG
        return Vector(tags, tag, np.where(tag >= INT, number, np.nan))

    @staticmethod
    def _either(left: Vector, right: Vector, numeric: Any) -> Any:
        wrong = (left.tag == WRONG) | (right.tag == WRONG)
        return wrong | ((left.tag != UNDEF) & (right.tag != UNDEF) & np.logical_not(numeric))

    # The scalar gear

    def _by_tuples(self, node: Node) -> Vector:
        """The value of a part of a plan by the scalar gear, once for each distinct tuple of what it reads."""
        if any(each.op == CALL and each.value is _RANDOM for each in node.walk()):
            raise Unplannable("random()")
        keys = sorted({str(each.value) for each in node.walk() if each.op == COLUMN})
        writer = Writer()
        writer.line(f"return {writer.clean(node)}")
        function = writer.function()
        if not keys:
            value = self._scalar(function, {})
            return gathered([value], np.zeros(self._size, np.intp), self._codes)
        rows, inverse = self.distinct(keys)
        values = []
        for row in rows.tolist():
            table: dict[str, tuple[str, object]] = {}
            for key in keys:
                cell = self._columns[key].cell(self._start + row, self._codes)
                if cell is not None:
                    table[key] = (key, cell)
            values.append(self._scalar(function, table))
        return gathered(values, inverse, self._codes)

    def _scalar(self, function: Callable[..., Any], table: dict[str, tuple[str, object]]) -> Value:
        if self._patience is not None:
            self._patience()
        try:
            value: Value = function(table.get, table.get, self._now)
            return value
        except Deoptimized:
            raise Unplannable("an expression in a column") from None

    def distinct(self, keys: list[str]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """A row for each distinct tuple of values, and for each row which tuple it has."""
        ids: NDArray[np.int64] | None = None
        for key in keys:
            column = self._columns[key]
            one = Column(
                column.tag[self._start : self._stop],
                column.number[self._start : self._stop],
                column.code[self._start : self._stop],
                column.folded[self._start : self._stop],
                None if column.exact is None else column.exact[self._start : self._stop],
                column.tags,
            ).identities()
            if ids is None:
                ids = one
            else:
                _, dense = np.unique(one, return_inverse=True)
                ids = ids * (int(dense.max(initial=0)) + 1) + dense
                _, small = np.unique(ids, return_inverse=True)
                ids = small.astype(np.int64)
        assert ids is not None
        _, rows, inverse = np.unique(ids, return_index=True, return_inverse=True)
        return rows, inverse


def _huge(vector: Vector) -> bool:
    return isinstance(vector.exact, int) and not -EXACT_LIMIT < vector.exact < EXACT_LIMIT


def _divided(op: str, a: Any, b: Any, whole: Any) -> tuple[Any, Any]:
    """The quotient or remainder, and where it is ERROR."""
    number = np.divide(a, b)
    zero = np.equal(b, 0)
    if op == "%":
        quotient = _toward_zero(number, a, b)
        return a - quotient * b, np.logical_not(whole) | zero
    if whole is False:
        return number, False
    return np.where(whole, _toward_zero(number, a, b), number), np.logical_and(whole, zero)


def _toward_zero(quotient: Any, a: Any, b: Any) -> Any:
    """The whole part, where rounding may have gone up to the next integer."""
    whole = np.trunc(quotient)
    return np.where(np.abs(whole * b) > np.abs(a), whole - np.sign(whole), whole)


def _logic(op: int, left: Condition, right: Callable[[], Condition]) -> Condition:
    """`&&` or `||`: the same rules with true and false changed."""
    true, false, error = left if op == AND else (left[1], left[0], left[2])
    other = right()
    other_true, other_false, other_error = other if op == AND else (other[1], other[0], other[2])
    both = None if true is None or other_true is None else true & other_true
    lost = other_error if false is None or other_error is None else other_error & ~false
    none = other_false if error is None or other_false is None else other_false & ~error
    wrong, decided = _union(error, lost), _union(false, none)
    return (both, decided, wrong) if op == AND else (decided, both, wrong)


def _union(a: Mask | None, b: Mask | None) -> Mask | None:
    return b if a is None else a if b is None else a | b
