"""`$$(Attr)`, `$$(Attr:default)` and `$$([expression])` in a job's attributes, filled in from the slot it was
matched to (spec rows SLT-27, TLS-04). Pure.

The forms stand in strings (arguments, environment, file names). `$$(Attr)` is an attribute of the slot; in
`$$([expr])` the job is MY and the slot TARGET. What was used is recorded in the job as MATCH_EXP_<attribute>.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final

from shared.classad import ERROR, UNDEFINED, ClassAd, Expr, ParseError, Value, evaluate, parse_expr, unparse
from shared.classad.ad import is_private

#: Only in the text of a packed ad: whether there can be anything to do at all.
MARK: Final = b"$$"
MAX_EXPANDED: Final = 1 << 20
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_.]*")


@dataclass(frozen=True, slots=True)
class Expanded:
    """What to change in the job's ad; `problem` says why nothing can be (then the job goes on hold)."""

    changes: dict[str, str] = field(default_factory=dict)
    problem: str = ""


def expand(job: ClassAd, slot: ClassAd, now: float) -> Expanded:
    """Fill in every attribute of `job` (the whole ad) that holds a string with `$$`."""
    changes: dict[str, str] = {}
    for name, cell in job.cells():
        if not isinstance(cell, str) or "$$(" not in cell or name.lower().startswith("match_exp_"):
            continue
        pieces: list[str] = []
        at = 0
        while (start := cell.find("$$(", at)) >= 0:
            end = _end(cell, start + 3)
            if end < 0:
                return Expanded(problem=f"{name}: `{cell[start : start + 60]}` lacks its closing parenthesis")
            inner = cell[start + 3 : end]
            text, problem = _value(inner, job, slot, now)
            if problem:
                return Expanded(problem=f"Cannot expand $$({inner[:200]}) in {name}: {problem}")
            pieces += [cell[at:start], text]
            at = end + 1
            label = inner.partition(":")[0]
            if _NAME.fullmatch(label):
                changes[f"MATCH_EXP_{label}"] = text
            if sum(map(len, pieces)) > MAX_EXPANDED:
                return Expanded(problem=f"{name}: becomes longer than {MAX_EXPANDED} characters")
        changes[name] = "".join(pieces) + cell[at:]
    return Expanded(changes)


def _end(text: str, at: int) -> int:
    """Where the parenthesis opened before `at` is closed, -1 if nowhere. Those inside quotes do not count."""
    depth = 1
    quoted = False
    while at < len(text):
        char = text[at]
        if char == '"' and text[at - 1] != "\\":
            quoted = not quoted
        elif not quoted and char in "([{":
            depth += 1
        elif not quoted and char in ")]}":
            depth -= 1
            if depth == 0:
                return at
        at += 1
    return -1


def _value(inner: str, job: ClassAd, slot: ClassAd, now: float) -> tuple[str, str]:
    """(text, problem) of what stands between `$$(` and `)`."""
    if inner.startswith("[") and inner.endswith("]"):
        try:
            expr: Expr = parse_expr(inner[1:-1])
        except ParseError as error:
            return "", str(error)
        value = evaluate(expr, job, slot, now)
        if value is UNDEFINED or value is ERROR:
            return "", f"the expression is {value!r} for the matched slot"
        return _text(value), ""
    name, colon, default = inner.partition(":")
    if not _NAME.fullmatch(name):
        return "", "want $$(Attribute), $$(Attribute:default) or $$([expression])"
    value = UNDEFINED if is_private(name.lower()) else slot.eval(name, job, now)
    if value is UNDEFINED or value is ERROR:
        return (default, "") if colon else ("", f"the matched slot has no attribute {name}, and no default is given")
    return _text(value), ""


def _text(value: Value) -> str:
    if isinstance(value, str):
        return value
    holder = ClassAd({"v": value})
    return unparse(holder.find("v"))  # type: ignore[arg-type]
