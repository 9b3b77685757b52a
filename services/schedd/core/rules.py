"""What an administrator makes of submitted jobs: changes, refusals, fixed attributes (spec rows GRP-26, GRP-27). Pure.

    JOB_TRANSFORM_NAMES, JOB_TRANSFORM_<name>                changes, in the order of the names
    SUBMIT_REQUIREMENT_NAMES, SUBMIT_REQUIREMENT_<name>      true, or the submit is refused for ..._REASON's words
    IMMUTABLE_JOB_ATTRS                                      may not be edited once the job is queued

`use FEATURE : AssignAccountingGroup(FILE)` is written in these. A transform is lines such as

    REQUIREMENTS JobUniverse == 5
    COPY Owner AcctGroupUser
    EVALSET AcctGroup = usermap("AssignAccountingGroup", AcctGroupUser, AcctGroup)
    SET | DEFAULT | EVALSET attribute expression, COPY | RENAME attribute attribute, DELETE attribute, NAME text

or, in the old way, a ClassAd: `[ Requirements = ...; copy_Owner = "AcctGroupUser"; eval_set_AcctGroup = ...; ]`.

A cluster's common ad is changed once. A job of its own kind, one that says itself what a rule looks at or writes, is
changed by itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from engine.queue.jobs import PROTECTED, BadSubmit
from shared.classad import UNDEFINED, ClassAd, Expr, ParseError, evaluate, parse_ad, parse_expr, references
from shared.classad.ad import is_private
from shared.classad.expr import Literal
from shared.config import Config, ConfigError, Problem
from shared.config.knobs.base import to_list

#: Statements, and whether the second word is an attribute, an expression, or is not there.
_VERBS: Final = {
    "SET": "expression",
    "DEFAULT": "expression",
    "EVALSET": "expression",
    "COPY": "attribute",
    "RENAME": "attribute",
    "DELETE": "",
}
#: The same in the old way, as beginnings of attribute names.
_OLD: Final = {
    "eval_set_": "EVALSET",
    "set_": "SET",
    "default_": "DEFAULT",
    "copy_": "COPY",
    "rename_": "RENAME",
    "delete_": "DELETE",
}
_ATTRIBUTE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_STATEMENT: Final = re.compile(r"\s*([A-Za-z]+)(?:\s+(.*?))?\s*", re.DOTALL)
_OPERANDS: Final = re.compile(r"([^\s=]+)(?:\s*=(?![=?!])\s*|\s+|$)(.*)", re.DOTALL)


class BadRule(ValueError):
    """A rule that can not be used: the text names the place and the mend."""


@dataclass(frozen=True, slots=True)
class Statement:
    """One change. `attribute` is what it is about; `to` the attribute that COPY and RENAME write; `expr` the value of
    SET, DEFAULT and EVALSET."""

    verb: str
    attribute: str
    to: str = ""
    expr: Expr | None = None

    @property
    def writes(self) -> tuple[str, ...]:
        return {"COPY": (self.to,), "RENAME": (self.attribute, self.to)}.get(self.verb, (self.attribute,))


@dataclass(frozen=True, slots=True)
class Transform:
    """The changes made to jobs for which `requirements` is true (None: to all)."""

    name: str
    statements: tuple[Statement, ...]
    requirements: Expr | None = None


@dataclass(frozen=True, slots=True)
class Requirement:
    """What must be true of a job that is taken. `reason` gives the words of the refusal. Of a `warning` the schedd only
    tells."""

    name: str
    expr: Expr
    reason: Expr | None = None
    warning: bool = False


@dataclass(frozen=True, slots=True)
class Rules:
    """All rules of a schedd."""

    transforms: tuple[Transform, ...] = ()
    requirements: tuple[Requirement, ...] = ()
    immutable: frozenset[str] = frozenset()  # folded names
    #: The attributes that the rules write.
    written: tuple[str, ...] = field(init=False)
    #: Folded names of those they look at or write: a job that says one of these itself is ruled by itself.
    touched: frozenset[str] = field(init=False)

    def __post_init__(self) -> None:
        statements = [statement for transform in self.transforms for statement in transform.statements]
        written = {name.lower(): name for statement in statements for name in statement.writes}
        exprs = [statement.expr for statement in statements]
        exprs += [transform.requirements for transform in self.transforms]
        exprs += [expr for one in self.requirements for expr in (one.expr, one.reason)]
        looked_at = {name.lower() for expr in exprs if expr is not None for name in _names_in(expr)}
        copied = {statement.attribute.lower() for statement in statements}
        object.__setattr__(self, "written", tuple(written.values()))
        object.__setattr__(self, "touched", frozenset(written.keys() | looked_at | copied))

    def __bool__(self) -> bool:
        return bool(self.transforms or self.requirements)

    def transform(self, ad: ClassAd, now: float) -> None:
        """Change a job's ad, or the part of it that is not chained."""
        for transform in self.transforms:
            if transform.requirements is None or evaluate(transform.requirements, ad, now=now) is True:
                for statement in transform.statements:
                    _apply(statement, ad, now)

    def check(self, ad: ClassAd, now: float) -> list[str]:
        """Raises BadSubmit with the words of the first requirement that a job does not meet. Returns those of unmet
        requirements that only warn. What is neither true nor false is not met."""
        warnings: list[str] = []
        for one in self.requirements:
            if evaluate(one.expr, ad, ad, now) is True:
                continue
            reason = evaluate(one.reason, ad, ad, now) if one.reason is not None else None
            words = reason if isinstance(reason, str) and reason else f"{one.expr} is not true of this job"
            if not one.warning:
                raise BadSubmit(f"{words} (submit requirement {one.name})")
            warnings.append(f"{words} (submit requirement {one.name})")
        return warnings

    def rule(self, own: ClassAd, before: ClassAd, after: ClassAd, now: float) -> list[str]:
        """Change and check a job that says itself what the rules look at.

        own: what it says itself, changed here. before, after: the common ad of its cluster without and with the
        changes. Returns warnings, raises BadSubmit, as `check` does.
        """
        own.chain(before)
        self.transform(own, now)
        for name in self.written:
            cell = own.lookup(name)
            with suppress(KeyError):
                del own[name]
            if str(cell) != str(after.lookup(name)):
                own[name] = UNDEFINED if cell is None else cell
        own.chain(after)
        warnings = self.check(own, now)
        own.chain(None)
        return warnings


def _apply(statement: Statement, ad: ClassAd, now: float) -> None:
    name, expr = statement.attribute, statement.expr
    match statement.verb:
        case "DELETE":
            _delete(ad, name)
        case "COPY" | "RENAME":
            found = ad.lookup(name)
            if found is not None:
                ad[statement.to] = found
                if statement.verb == "RENAME":
                    _delete(ad, name)
        case "DEFAULT" if name in ad and ad.lookup(name) is not None:
            pass
        case "EVALSET":
            assert expr is not None
            ad[name] = evaluate(expr, ad, now=now)
        case _:
            ad[name] = expr


def _delete(ad: ClassAd, name: str) -> None:
    """What comes from the chained ad can not be taken out of it, only covered."""
    with suppress(KeyError):
        del ad[name]
    if ad.lookup(name) is not None:
        ad[name] = UNDEFINED


def _names_in(expr: Expr) -> Iterable[str]:
    found = references(expr)
    return found.missing | found.target | found.unscoped | found.internal


# --- reading ----------------------------------------------------------------------------------------------


def parse_transform(name: str, text: str) -> Transform:
    """A JOB_TRANSFORM_<name>. Raises BadRule."""
    place = f"JOB_TRANSFORM_{name}"
    return _old_way(place, name, text) if text.lstrip().startswith("[") else _lines(place, name, text)


def _lines(place: str, name: str, text: str) -> Transform:
    statements: list[Statement] = []
    requirements: Expr | None = None
    for line in text.splitlines():
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        match = _STATEMENT.fullmatch(line)
        verb, rest = (match[1].upper(), match[2] or "") if match else ("", line)
        if verb == "NAME":
            continue
        if verb == "REQUIREMENTS":
            requirements = _expression(place, line, rest.removeprefix("=").strip())
        elif verb in _VERBS:
            statements.append(_statement(place, line, verb, rest))
        else:
            raise BadRule(f"{place}: {line.strip()!r}: use {', '.join(_VERBS)}, REQUIREMENTS or NAME")
    return Transform(name, tuple(statements), requirements)


def _statement(place: str, line: str, verb: str, rest: str) -> Statement:
    operands = _OPERANDS.fullmatch(rest)
    attribute, more = (operands[1], operands[2].strip()) if operands else ("", "")
    kind = _VERBS[verb]
    _check_attribute(place, line, attribute)
    if not kind and more:
        raise BadRule(f"{place}: {line.strip()!r}: {verb} takes one attribute")
    if kind == "attribute":
        _check_attribute(place, line, more)
        return Statement(verb, attribute, to=more)
    return Statement(verb, attribute, expr=_expression(place, line, more) if kind else None)


def _old_way(place: str, name: str, text: str) -> Transform:
    try:
        ad = parse_ad(text)
    except ParseError as error:
        raise BadRule(f"{place}: {error}; give statements, one a line, or a ClassAd in brackets") from error
    statements: list[Statement] = []
    requirements: Expr | None = None
    for key, expr in ad.exprs():
        lower = key.lower()
        verb = next((verb for start, verb in _OLD.items() if lower.startswith(start)), "")
        attribute = key[len(next(start for start, known in _OLD.items() if known == verb)) :] if verb else ""
        if lower == "requirements":
            requirements = expr
        elif lower == "name":
            continue
        elif not verb:
            raise BadRule(f"{place}: {key}: use {', '.join(_OLD)}, Requirements or Name")
        elif _VERBS[verb] == "attribute":
            to = ad.eval(key)
            statements.append(Statement(verb, attribute, to=to if isinstance(to, str) else ""))
        else:
            statements.append(Statement(verb, attribute, expr=expr if _VERBS[verb] else None))
        if verb:
            for written in statements[-1].writes:
                _check_attribute(place, key, written)
    # In the old way, what is copied is copied first, then deleted, set, evaluated, whatever the order of the lines.
    order = ("COPY", "RENAME", "DELETE", "SET", "EVALSET", "DEFAULT")
    return Transform(name, tuple(sorted(statements, key=lambda one: order.index(one.verb))), requirements)


def _check_attribute(place: str, line: str, name: str) -> None:
    if not _ATTRIBUTE.fullmatch(name):
        raise BadRule(f"{place}: {line.strip()!r}: {name!r} is no attribute name")


def _expression(place: str, line: str, text: str) -> Expr:
    try:
        return parse_expr(text)
    except ParseError as error:
        raise BadRule(f"{place}: {line.strip()!r}: {error}") from error


def read_rules(config: Config) -> Rules:
    """The rules of a configuration. Raises ConfigError with every one that can not be used."""
    problems: list[Problem] = []

    def defined(listed: str, name: str, text: str | None) -> str:
        if not text:
            mend = f"define it, or take its name out of {listed}"
            problems.append(Problem(f"{name} is not defined", config.origin(listed), mend))
        return text or ""

    def expression(name: str, text: str) -> Expr:
        try:
            return parse_expr(text)
        except ParseError as error:
            problems.append(Problem(f"{name}: {error}", config.origin(name), "give a ClassAd expression"))
            return Literal(UNDEFINED)

    transforms: list[Transform] = []
    for name in to_list(config.get("JOB_TRANSFORM_NAMES") or ""):
        text = defined("JOB_TRANSFORM_NAMES", f"JOB_TRANSFORM_{name}", config.get(f"JOB_TRANSFORM_{name}"))
        try:
            transforms.append(_checked(parse_transform(name, text)))
        except BadRule as error:
            problems.append(Problem(str(error), config.origin(f"JOB_TRANSFORM_{name}"), ""))
    requirements: list[Requirement] = []
    for name in to_list(config.get("SUBMIT_REQUIREMENT_NAMES") or ""):
        knob = f"SUBMIT_REQUIREMENT_{name}"
        text = defined("SUBMIT_REQUIREMENT_NAMES", knob, config.get(f"SUBMIT_REQUIREMENT_{name}"))
        reason = config.get(f"SUBMIT_REQUIREMENT_{name}_REASON")
        warning = config.get(f"SUBMIT_REQUIREMENT_{name}_IS_WARNING")
        if text:
            requirements.append(
                Requirement(
                    name,
                    expression(knob, text),
                    expression(f"{knob}_REASON", reason) if reason else None,
                    warning=(warning or "").strip().lower() in ("true", "t", "yes", "1"),
                )
            )
    if problems:
        raise ConfigError(problems)
    immutable = to_list(config.get("IMMUTABLE_JOB_ATTRS") or "")
    return Rules(tuple(transforms), tuple(requirements), frozenset(name.lower() for name in immutable))


def _checked(transform: Transform) -> Transform:
    for statement in transform.statements:
        for name in statement.writes:
            if name.lower() in PROTECTED or is_private(name):
                raise BadRule(
                    f"JOB_TRANSFORM_{transform.name}: {statement.verb} {name}: the schedd keeps this attribute itself"
                )
    return transform
