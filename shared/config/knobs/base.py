"""How a knob is declared, and how a daemon's settings are made from a configuration.

A knob is one line in the settings class of its daemon:

    negotiator_interval: int = knob("NEGOTIATOR_INTERVAL", "60", unit="s", least=0, meaning="longest wait between ...")

and a family of knobs, such as one for each accounting group, is one line too:

    group_quota: Mapping[str, float] = family("GROUP_QUOTA_<groupname>", least=0, meaning="...")

What the text must be follows from the annotation: `int` and `float` (expressions are evaluated, as in
`15 * $(MINUTE)`), `bool`, `str`, `tuple[str, ...]` (commas or blanks between items), `Expr` (a ClassAd
expression), each also `| None` for "not defined". A value that expands to nothing is nothing: None where the
annotation has it, an empty list, an empty string where that is the default. Other knobs keep their default then, and
shared.config.cross_checks tells of it.
"""

from __future__ import annotations

import dataclasses
import math
import re
import types
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, ClassVar, Self, TypeVar, dataclass_transform

from shared.classad import Expr, ParseError
from shared.config.config import Config
from shared.config.errors import ConfigError, Problem
from shared.config.evaluate import evaluate_text, parse_whole

_Class = TypeVar("_Class")
_BOOLEANS = {"true": True, "t": True, "yes": True, "false": False, "f": False, "no": False}
_PLACEHOLDER = re.compile(r"<[A-Za-z]+>")
_SEPARATORS = re.compile(r"[\s,]+")

KNOWN: set[str] = set()
"""Names, in lower case, of all declared knobs: no such macro is taken for a member of a family."""


@dataclass(frozen=True, slots=True)
class Knob:
    """One declared macro. `default` is its text, as a file would have it; None: not defined.

    least, most: bounds of a number; choices: the words that are allowed, in upper case or not.
    kind: int, float, bool, str, list or expr. may_be_empty: whether it can be set to nothing. daemons: the subsystems
    that read it.
    A family has a placeholder in angle brackets in its name.
    """

    name: str
    default: str | None
    meaning: str
    unit: str = ""
    least: float | None = None
    most: float | None = None
    choices: tuple[str, ...] = ()
    kind: str = "str"
    may_be_empty: bool = True
    daemons: tuple[str, ...] = ()

    @property
    def is_family(self) -> bool:
        """Whether this stands for many macros."""
        return "<" in self.name


def knob(
    name: str,
    default: str | None = None,
    *,
    meaning: str,
    unit: str = "",
    least: float | None = None,
    most: float | None = None,
    choices: tuple[str, ...] = (),
) -> Any:
    """A field of a Settings class that holds the value of macro `name`."""
    declared = Knob(name, default, meaning, unit, least, most, choices)
    return field(metadata={"knob": declared})


def family(
    name: str,
    *,
    meaning: str,
    unit: str = "",
    least: float | None = None,
    most: float | None = None,
) -> Any:
    """A field that maps what stands for the placeholder, in lower case, to the value of that macro."""
    return field(metadata={"knob": Knob(name, None, meaning, unit, least, most)})


# --- from text to value -----------------------------------------------------------------------------------


class _Refused(ValueError):
    """A text that a knob can not take; the message is the mend."""


def _number(text: str) -> int | float:
    value = evaluate_text(text)
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, int | float) and not math.isnan(value):
        return value
    raise _Refused("give a number, or an expression that is one")


def _to_int(text: str) -> int:
    value = _number(text)
    if isinstance(value, float) and not math.isfinite(value):
        raise _Refused("give an integer")
    return int(value)


def _to_bool(text: str) -> bool:
    word = _BOOLEANS.get(text.lower())
    if word is not None:
        return word
    value = evaluate_text(text)
    if isinstance(value, bool | int | float):
        return value != 0
    raise _Refused("give true or false")


def _to_expr(text: str) -> Expr:
    try:
        return parse_whole(text)
    except ParseError as error:
        raise _Refused(f"give a ClassAd expression: {error}") from None


def to_list(text: str) -> tuple[str, ...]:
    """The items of a list with commas, blanks or both between them (spec row CFG-06)."""
    return tuple(item for item in _SEPARATORS.split(text) if item)


_CONVERT: dict[str, Callable[[str], object]] = {
    "int": _to_int,
    "float": lambda text: float(_number(text)),
    "bool": _to_bool,
    "str": str,
    "list": to_list,
    "expr": _to_expr,
}


def _convert(knob_: Knob, text: str) -> object:
    text = text.strip()
    value = _CONVERT[knob_.kind](text)
    if isinstance(value, int | float) and not isinstance(value, bool):
        if knob_.least is not None and value < knob_.least:
            raise _Refused(f"give at least {knob_.least:g}")
        if knob_.most is not None and value > knob_.most:
            raise _Refused(f"give at most {knob_.most:g}")
    if knob_.choices and text.upper() not in map(str.upper, knob_.choices):
        raise _Refused("give one of " + ", ".join(knob_.choices))
    return value


#: What is left of a value of nothing, where a knob can have none.
_NOTHING: dict[str, object] = {"list": (), "str": ""}


# --- settings ---------------------------------------------------------------------------------------------

#: Annotation, as it is written (`from __future__ import annotations`) -> kind. To evaluate those of all knobs takes
#: each command 25 ms.
_KINDS = {"int": "int", "float": "float", "bool": "bool", "str": "str", "Expr": "expr", "tuple[str, ...]": "list"}
_OPTIONAL, _FAMILY = " | None", "Mapping[str, "


@dataclass(frozen=True, slots=True)
class _Field:
    attribute: str
    knob: Knob
    optional: bool


def _kind(annotation: str) -> tuple[str, bool]:
    """What a field holds, and whether it may be None. Raises KeyError for what no knob can be."""
    if annotation.startswith(_FAMILY):
        return _KINDS[annotation.removeprefix(_FAMILY).removesuffix("]")], False
    return _KINDS[annotation.removesuffix(_OPTIONAL)], annotation.endswith(_OPTIONAL)


_FIELDS: dict[type[Settings], tuple[_Field, ...]] = {}


def _fields(settings: type[Settings]) -> tuple[_Field, ...]:
    known = _FIELDS.get(settings)
    if known is not None:
        return known
    found: list[_Field] = []
    for declared in dataclasses.fields(settings):  # type: ignore[arg-type]  # every subclass is a dataclass
        kind, optional = _kind(str(declared.type))
        bare: Knob = declared.metadata["knob"]
        empty = optional or kind == "list" or not bare.default
        more = (bare.unit, bare.least, bare.most, bare.choices)
        full = Knob(bare.name, bare.default, bare.meaning, *more, kind, empty, (settings.SUBSYSTEM,))
        found.append(_Field(declared.name, full, optional))
    _FIELDS[settings] = tuple(found)
    return _FIELDS[settings]


def knobs_of(settings: type[Settings]) -> Iterator[Knob]:
    """The knobs that a settings class declares or inherits."""
    return (item.knob for item in _fields(settings))


@cache
def _around(pattern: str) -> tuple[str, str]:
    """What a family has before and after its placeholder, in lower case."""
    before, after = _PLACEHOLDER.split(pattern.lower(), maxsplit=1)
    return before, after


def _suffix(pattern: str, name: str) -> str | None:
    """What stands for the placeholder of a family in `name`, both in lower case; None if it is no member."""
    before, after = _around(pattern)
    if name.startswith(before) and name.endswith(after) and len(name) > len(before) + len(after):
        return name[len(before) : len(name) - len(after)]
    return None


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(knob, family))
def declared(settings: type[_Class]) -> type[_Class]:
    """Make a class of settings of its knobs. What dataclass writes for each class, which Python then compiles, would be
    a third of the time that a command takes to start: the base class does it for all of them."""
    return dataclass(init=False, repr=False, eq=False, slots=True, kw_only=True)(settings)


class Settings:
    """What one daemon reads of its configuration, once, typed and frozen."""

    __slots__ = ()
    SUBSYSTEM: ClassVar[str] = ""

    def __init__(self, **values: Any) -> None:
        names = self._names()
        if wrong := values.keys() ^ set(names):
            raise TypeError(f"{type(self).__name__} takes a value for each of its knobs, not {sorted(wrong)}")
        self.__setstate__(tuple(values[name] for name in names))

    @classmethod
    def _names(cls) -> tuple[str, ...]:
        return tuple(item.attribute for item in _fields(cls))

    def __getstate__(self) -> tuple[object, ...]:
        return tuple(getattr(self, name) for name in self._names())

    def __setstate__(self, state: tuple[object, ...]) -> None:
        for name, value in zip(self._names(), state, strict=True):
            object.__setattr__(self, name, value)

    def __setattr__(self, name: str, value: object) -> None:
        raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")

    def __delattr__(self, name: str) -> None:
        raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Settings) or type(other) is not type(self):
            return NotImplemented
        return self.__getstate__() == other.__getstate__()

    def __hash__(self) -> int:
        return hash(self.__getstate__())

    def __repr__(self) -> str:
        named = zip(self._names(), self.__getstate__(), strict=True)
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in named)})"

    @classmethod
    def from_config(cls, config: Config) -> Self:
        """All knobs of this class. Raises ConfigError with *every* value that is not usable. Read once, as a startd
        asks a dozen times while it starts."""
        return config.table.once((cls, config.subsystem, config.local_name), lambda: cls._read(config))

    @classmethod
    def _read(cls, config: Config) -> Self:
        values: dict[str, object] = {}
        problems: list[Problem] = []
        fields = _fields(cls)
        families = [item.knob.name for item in fields if item.knob.is_family]
        for item in fields:
            if item.knob.is_family:
                values[item.attribute] = _members(config, item.knob, families, problems)
            else:
                values[item.attribute] = _value(config, item, problems)
        if problems:
            raise ConfigError(problems)
        return cls(**values)


def _value(config: Config, item: _Field, problems: list[Problem]) -> object:
    knob_ = item.knob
    try:
        text = config.get(knob_.name)
        emptied = knob_.may_be_empty and config.is_written(knob_.name)
        if text is None and not item.optional and not emptied:
            text = config.expand(knob_.default) if knob_.default is not None else None
        if text is None or not text.strip():
            return None if item.optional else _NOTHING[knob_.kind]
        return _convert(knob_, text)
    except ConfigError as error:
        problems.extend(error.problems)
    except _Refused as mend:
        problems.append(Problem(f"{knob_.name} = {text} is not usable", config.origin(knob_.name), str(mend)))
    return None


def _members(config: Config, knob_: Knob, families: list[str], problems: list[Problem]) -> Mapping[str, object]:
    """The values of a family. A macro belongs to the family that spells out most of its name."""
    members: dict[str, object] = {}
    for name in config.names():
        suffix = _suffix(knob_.name, name)
        if suffix is None or name in KNOWN:
            continue
        if any(len(other) > len(knob_.name) and _suffix(other, name) for other in families):
            continue
        try:
            text = config.get(name)
            if text is not None and text.strip():
                members[suffix] = _convert(knob_, text)
        except ConfigError as error:
            problems.extend(error.problems)
        except _Refused as mend:
            problems.append(Problem(f"{name.upper()} = {text} is not usable", config.origin(name), str(mend)))
    return types.MappingProxyType(members)
