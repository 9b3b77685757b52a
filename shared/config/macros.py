"""The macro language of configuration files and submit files: a table of macros and their expansion.

    from shared.config.macros import Macro, MacroTable, Source
    table = MacroTable(prefixes=("NEGOTIATOR",), environment=os.environ)
    table.set("A", "1", Source("pool.conf", 3))
    table.set("A", "$(A) 2", Source("pool.conf", 4))   # the old value is taken in now: A is "1 2"
    table.set("B", "$(A) $(LATER:none)", Source("pool.conf", 5))
    table.value("b")                                   # "1 2 none"; None when it expands to nothing
    table.expand("x $(B) $$(Memory) $(DOLLAR)")        # "x 1 2 none $$(Memory) $"
    table.live["process"] = "3"                        # wins over everything; lower-case keys; for each row
    table.raw("B"), table.origin("B")                  # text as written, and where

Names are case-insensitive. Expansion is lazy: a later definition changes earlier users (spec rows CFG-02,
CFG-03). What is recognised: `$(X)`, `$(X:default)` (also for an empty X), `$(DOLLAR)`, and the functions of
`shared.config.functions`; `$$(X)` is left for match time; anything else with a dollar sign stays as text,
such as `$( X )`, `$(X?)` outside templates, or a default that has other characters than letters, digits and
`_./ ,:$` outside of parentheses.
A text that would never stop expanding, or that grows out of bounds, raises ConfigError.

Files are read by `shared.config.reader`, which fills a table.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from shared.config import functions
from shared.config.errors import ConfigError, Source, config_error

T = TypeVar("T")

__all__ = ["ConfigError", "Macro", "MacroTable", "Reference", "Source", "references"]

MAX_REPLACEMENTS = 20_000  # of one expansion; the longest sample configuration needs 40
MAX_GROWTH = 1 << 20  # characters by which one expansion may outgrow its text
MAX_WORK = 200_000  # dollar signs looked at in one expansion
MAX_PARENTHESES = 20  # pairs in the default of a reference
MAX_DEFAULT = 1 << 16  # characters of the default of a reference
MAX_NESTING = 100  # functions of functions: $INT(A) where A is $INT(B) where B is ...

DEFAULT = Source("<default>")
_LIVE = Source("<live>")

_OPENER = re.compile(r"\$(?:\$|(" + functions.NAME_PATTERN + r")?\()")
_NAME = re.compile(r"[A-Za-z0-9_./]*")
_PLAIN_DEFAULT = re.compile(r"[A-Za-z0-9_./ ,:$\\]*")


def _of_file_names(function: str) -> bool:
    return function[:1] == "F" or function in ("DIRNAME", "BASENAME")


def _of_one_value(function: str) -> bool:
    return _of_file_names(function) or function in ("INT", "REAL", "STRING", "EVAL", "SUBSTR")


@dataclass(frozen=True, slots=True)
class Macro:
    """One definition: the name as first written, the unexpanded text, and where it stands."""

    name: str
    text: str
    source: Source


@dataclass(frozen=True, slots=True)
class Reference:
    """One `$(NAME)`, `$(NAME:default)` or `$FUNCTION(body)` in a text; `text[start:end]` is all of it.

    `function` is "" for a plain macro; then `name` is the macro and `default` the text after the colon, or
    None. For a function `name` is its whole body.
    """

    start: int
    end: int
    function: str
    name: str
    default: str | None


def _closing(text: str, position: int) -> tuple[int, int]:
    """Where the default that starts at `position` ends: its `)` and -1, or -1 and the offending character.

    Anything may stand between parentheses in it, up to the first `)`, as in the reference. Parentheses inside
    parentheses are taken in whole where the reference leaves their ends behind the value.
    """
    first, most = position, min(len(text), position + MAX_DEFAULT)
    for _ in range(MAX_PARENTHESES + 1):
        match = _PLAIN_DEFAULT.match(text, position, most)
        assert match is not None  # the pattern matches the empty text
        position = match.end()
        if position >= most:
            return -1, position
        if text[position] == ")":
            still_open = text.count("(", first, position) - text.count(")", first, position)
            if still_open > 0 and text.startswith(")" * still_open, position + 1):
                position += still_open
            return position, -1
        if text[position] != "(":
            return -1, position
        end = text.find(")", position, most)
        if end < 0:
            return -1, most
        position = end + 1
    return -1, position


def _reference_at(text: str, opener: re.Match[str]) -> Reference | int:
    """The reference that `opener` begins, or the index of the character that says it is none."""
    function = opener[1] or ""
    start, body = opener.start(), opener.end()
    if function and function != "ENV":
        end = text.find(")", body)
        return Reference(start, end + 1, function, text[body:end], None) if end >= 0 else len(text)
    match = _NAME.match(text, body)
    assert match is not None  # the pattern matches the empty text
    after = match.end()
    if text.startswith(")", after):
        return Reference(start, after + 1, function, match[0], None)
    if not text.startswith(":", after):
        return after
    end, offender = _closing(text, after + 1)
    return Reference(start, end + 1, function, match[0], text[after + 1 : end]) if end >= 0 else offender


def references(text: str) -> Iterator[Reference]:
    """Every reference in `text`, also those inside the default of another."""
    position = 0
    while (opener := _OPENER.search(text, position)) is not None:
        position = opener.end()
        if text[position - 1] == "(":
            found = _reference_at(text, opener)
            if isinstance(found, Reference):
                yield found


def _is_dollar(found: Reference) -> bool:
    return not found.function and found.default is None and found.name.upper() == "DOLLAR"


@dataclass(slots=True)
class _Region:
    """The stretch of a text that came from one macro, or from no macro (key ""). Its end is counted from the text's."""

    key: str
    start: int
    tail: int


class MacroTable:
    """Macros by case-insensitive name, over a mapping of defaults.

    prefixes: scopes tried before the plain name, first wins: `(local_name, subsystem)` for a daemon.
    defaults: name -> text of what applies when nothing is set, keys in lower case.
    environment: what `$ENV()` sees. chance: what `$RANDOM_CHOICE` and `$RANDOM_INTEGER` draw from.
    live: rows that win over every definition, keys in lower case; free for the caller to change at any time.
    consulted: names, in lower case, that some expansion has looked up so far.
    """

    def __init__(
        self,
        *,
        prefixes: Sequence[str] = (),
        defaults: Mapping[str, str] | None = None,
        environment: Mapping[str, str] | None = None,
        chance: random.Random | None = None,
    ) -> None:
        self._rows: dict[str, Macro] = {}
        self._prefixes = tuple(dict.fromkeys(f"{prefix.lower()}." for prefix in prefixes if prefix))
        self.defaults: Mapping[str, str] = defaults if defaults is not None else {}
        self.environment: Mapping[str, str] = environment if environment is not None else {}
        self.chance = chance if chance is not None else random.Random()
        self.live: MutableMapping[str, str] = {}
        self.consulted: set[str] = set()
        self._kept: dict[object, object] = {}

    def __iter__(self) -> Iterator[Macro]:
        return iter(self._rows.values())

    def __len__(self) -> int:
        return len(self._rows)

    def copy(self) -> MacroTable:
        """Another one with the same rows, that can be changed without this one."""
        other = MacroTable(defaults=self.defaults, environment=self.environment, chance=self.chance)
        other._prefixes, other._rows, other.live = self._prefixes, dict(self._rows), dict(self.live)
        return other

    def get(self, name: str) -> Macro | None:
        """The definition of exactly this name, without scopes, live rows and defaults."""
        return self._rows.get(name.lower())

    def set(self, name: str, text: str, source: Source) -> None:
        """Define `name`. References to itself take in its present text now, so that they do not loop."""
        key = name.lower()
        if "$" in text:
            text = self._take_in_self(key, text, source)
        elif text.lower() in ("true", "false"):
            default = self.default(key.rpartition(".")[2]) or ""
            text = default if default.lower() == text.lower() else text  # spelt as the default, as the reference does
        before = self._rows.get(key)
        self._rows[key] = Macro(before.name if before is not None else name, text, source)
        self._kept.clear()

    def once(self, key: object, make: Callable[[], T]) -> T:
        """What `make` makes of these macros; made again only where one was set since, or there are live rows."""
        if self.live:
            return make()
        if key not in self._kept:
            self._kept[key] = make()
        found: T = self._kept[key]  # type: ignore[assignment]
        return found

    def find(self, name: str) -> Macro | None:
        """The row that `$(name)` refers to: live, then each scope, then the plain name, then the default."""
        key = name.lower()
        live = self.live.get(key)
        if live is not None:
            return Macro(name, live, _LIVE)
        for prefix in self._prefixes:
            row = self._rows.get(prefix + key)
            if row is not None:
                return row
        row = self._rows.get(key)
        if row is not None:
            return row
        default = self.default(key)
        return Macro(name, default, DEFAULT) if default is not None else None

    def default(self, name: str) -> str | None:
        """The default text of `name` in this scope, whether or not it is set."""
        key = name.lower()
        for prefix in self._prefixes:
            scoped = self.defaults.get(prefix + key)
            if scoped is not None:
                return scoped
        return self.defaults.get(key)

    def raw(self, name: str) -> str | None:
        """The unexpanded text that `$(name)` stands for; None if it is nowhere."""
        row = self.find(name)
        return row.text if row is not None else None

    def origin(self, name: str) -> Source | None:
        """Where the text that `$(name)` stands for was written."""
        row = self.find(name)
        return row.source if row is not None else None

    def value(self, name: str) -> str | None:
        """The expanded value; None when that is empty or `name` is not defined.

        An empty value is "not defined" also for a name that has a default: the default is not used then.
        """
        row = self.find(name)
        if row is None:
            return None
        return self.expand(row.text, source=row.source, name=name) or None

    def expand(self, text: str, *, source: Source | None = None, name: str = "") -> str:
        """`text` with every macro and function replaced, until none is left.

        name, source: whose text it is, for a loop through itself and for messages.
        Raises ConfigError for a loop, and when the result grows without bound.
        """
        if "$" not in text:
            return text
        return self._resolve_dollars(self._expand(text, source, (name.lower(),) if name else ()))

    # --- the work -----------------------------------------------------------------------------------------

    def _take_in_self(self, key: str, text: str, source: Source) -> str:
        """`text` with references to its own name replaced by what the name stands for at this moment.

        In the definition of SUBSYS.X both `$(SUBSYS.X)` and `$(X)` are itself. A function of itself is carried
        out now; those on file names work on the unexpanded text, as in the reference.
        """
        olds = {key: self._own_text(key)}
        for prefix in self._prefixes:
            if key.startswith(prefix):
                plain = key[len(prefix) :]
                olds[plain] = olds[key] if key in self._rows else self._own_text(plain)
        pieces: list[str] = []
        position = 0
        for found in references(text):
            if found.start < position:
                continue
            if not found.function and found.name.lower() in olds:
                value = olds[found.name.lower()] or found.default or ""
            elif _of_one_value(found.function) and found.name.partition(",")[0].lower() in olds:
                try:
                    value = self._replacement(found, source, (), olds)
                except ConfigError:
                    continue  # told when somebody asks for the value
            else:
                continue
            pieces += (text[position : found.start], value)
            position = found.end
        return "".join([*pieces, text[position:]])

    def _own_text(self, key: str) -> str | None:
        """The present text of exactly this name, else its default."""
        row = self._rows.get(key)
        return row.text if row is not None else self.defaults.get(key)

    def _expand(self, text: str, source: Source | None, outer: tuple[str, ...]) -> str:
        """All but `$(DOLLAR)`, which must not make new macros out of what stands behind it.

        The leftmost reference is replaced and the text read again from the first dollar sign that the
        replacement can have completed, as in `$($(WHICH))`. `outer` are the macros this text stands inside.
        """
        if len(outer) > MAX_NESTING:
            raise config_error(f"functions nest deeper than {MAX_NESTING}", source, "break the chain of macros")
        limit = len(text) + MAX_GROWTH
        done: list[str] = []  # what can not change any more
        done_length = 0
        regions: list[_Region] = []
        work = 0
        for _ in range(MAX_REPLACEMENTS):
            found, restart, looked_at = _next_reference(text)
            work += looked_at
            if found is None:
                return "".join([*done, text])
            start, tail = done_length + found.start, len(text) - found.end
            while regions and (regions[-1].start > start or regions[-1].tail > tail):
                regions.pop()
            inside = (*outer, *(region.key for region in regions))
            key = found.name.lower() if not found.function else ""
            if key and key in inside:
                path = " -> ".join([*(part.upper() for part in inside[inside.index(key) :] if part), key.upper()])
                raise config_error(
                    f"macro {found.name} refers to itself ({path})", source, "define one of them without the others"
                )
            value = self._replacement(found, source, inside)
            if key and not self.raw(found.name):
                key = ""  # its default stands here, which may name it again
            regions.append(_Region(key, start, tail))
            if restart:
                done.append(text[:restart])
                done_length += restart
            text = text[restart : found.start] + value + text[found.end :]
            if done_length + len(text) > limit or work > MAX_WORK:
                break
        raise config_error(
            "macro expansion grows without bound", source, "look for macros that double each other, or nest less"
        )

    def _replacement(
        self,
        found: Reference,
        source: Source | None,
        inside: tuple[str, ...],
        old: Mapping[str, str | None] | None = None,
    ) -> str:
        """What one reference becomes. old: texts of macros, in lower case, that are just being replaced."""
        if not found.function:
            self.consulted.add(found.name.lower())
            row = self.find(found.name)
            if row is None or not row.text:
                return found.default or ""
            return row.text
        if found.function == "ENV":
            value = self.environment.get(found.name)
            if value is None:
                return "UNDEFINED" if found.default is None else found.default
            return value

        def lookup(name: str) -> str | None:
            key = name.lower()
            self.consulted.add(key)
            if old is not None and key in old:
                before = old[key]
                return before if before is None or _of_file_names(found.function) else self._expand(before, source, ())
            row = self.find(name)
            if row is None:
                return None
            if key in inside:
                if _of_file_names(found.function):
                    return None  # `A = $Fn(A)` works on the letter A, as in the reference
                raise config_error(f"macro {name} refers to itself through ${found.function}()", row.source)
            if "$" not in row.text:
                return row.text
            return self._resolve_dollars(self._expand(row.text, row.source, (*inside, key)))

        try:
            return functions.call(found.function, found.name, lookup, self.raw, self.chance)
        except functions.FunctionError as error:
            call = f"${found.function}({found.name})"
            raise config_error(f"{call}: {error}", source) from None

    @staticmethod
    def _resolve_dollars(text: str) -> str:
        """`$(DOLLAR)` becomes `$`; two in a row leave `$$(DOLLAR)` behind, as `$$` hides what follows it."""
        position = 0
        while (opener := _OPENER.search(text, position)) is not None:
            position = opener.end()
            if text[position - 1] != "(":
                continue
            found = _reference_at(text, opener)
            if isinstance(found, Reference) and _is_dollar(found):
                text = text[: found.start] + "$" + text[found.end :]
                position = found.start
        return text


def _next_reference(text: str) -> tuple[Reference | None, int, int]:
    """The leftmost reference but `$(DOLLAR)`, from where on the text may change when it is replaced, and the work.

    An opener before it that is no reference *yet* counts only if it broke off at or behind what may change:
    `$(A$(B)` may become one, `$(A-$(B)` never will.
    """
    position = 0
    pending: list[tuple[int, int]] = []
    while (opener := _OPENER.search(text, position)) is not None:
        position = opener.end()
        if text[position - 1] != "(":
            continue
        found = _reference_at(text, opener)
        if isinstance(found, int):
            pending.append((opener.start(), found))
        elif not _is_dollar(found):
            restart = found.start
            for at, offender in reversed(pending):
                restart = at if offender >= restart else restart
            return found, restart, len(pending) + 1
        else:
            position = found.end
    return None, 0, 0
