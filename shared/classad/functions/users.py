"""userMap() and userHome().

The maps of userMap() belong to the process, as its configuration does: `shared.daemon.user_maps` makes a UserMap of
each that the configuration names and hands all of them to `set_user_maps`, at start and at every reconfiguration.
Without that, no map exists and every lookup is UNDEFINED.
"""

from __future__ import annotations

import pwd
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from shared.classad.functions.coerce import MAX_ITEMS, decode, encode
from shared.classad.functions.pcre import Match, Pattern, RegexError, compile_pattern
from shared.classad.functions.registry import Function, table
from shared.classad.functions.strings import pieces_of
from shared.classad.operators import fold_string
from shared.classad.values import ERROR, UNDEFINED, Error, Value


class UserMapError(ValueError):
    """A line of a user map that cannot be used."""


@dataclass(frozen=True, slots=True)
class _Pattern:
    """A pattern of user names, and the groups it maps to (`\\1` in them is a group of the pattern)."""

    user: Pattern
    groups: str

    def apply(self, user: str) -> str | None:
        try:
            match = self.user.search(encode(user))
        except RegexError:
            return None
        return None if match is None else _expand(self.groups, match)


def _expand(groups: str, match: Match) -> str:
    parts = encode(groups).split(b"\\")
    done = [parts[0]]
    for part in parts[1:]:
        digit = part[:1]
        done.append((match.group(int(digit)) or b"") + part[1:] if digit.isdigit() else b"\\" + part)
    return decode(b"".join(done))


@dataclass(frozen=True, slots=True)
class UserMap:
    """The rules of one map; the first in the file that fits a user decides.

    names: of plain user names, with the place in the file: a map of a million users is asked in a microsecond.
    patterns: those with a pattern, in order.
    lengths: of names that stand for all users who begin with them, the longest first; empty: a name is one user's.
    """

    names: Mapping[str, tuple[int, str]]
    patterns: tuple[tuple[int, _Pattern], ...]
    lengths: tuple[int, ...] = ()

    @classmethod
    def parse(cls, text: str, *, prefixes: bool = False) -> UserMap:
        """The map of a text: lines `* user groups` or `* /pattern/ groups` (`/pattern/i` without case).

        prefixes: a name is that of everybody who begins with it (CLASSAD_USER_MAP_PREFIX_<name>).
        Fields with blanks stand in double quotes; `#` begins a comment line; lines whose first field is not `*` are
        for other uses of map files and skipped. Raises UserMapError, naming the line, for a pattern that is no regular
        expression or a line without groups.
        """
        names: dict[str, tuple[int, str]] = {}
        patterns: list[tuple[int, _Pattern]] = []
        for number, line in enumerate(text.splitlines(), start=1):
            if line.lstrip().startswith("#"):
                continue
            fields = _fields(line)
            if not fields or fields[0][0] != "*":
                continue
            if len(fields) < 3:
                raise UserMapError(f"line {number}: expected `* user groups`, found {line.strip()!r}")
            user, groups = _user(*fields[1], number), fields[2][0]
            if isinstance(user, str):
                names.setdefault(user, (number, groups))
            else:
                patterns.append((number, _Pattern(user, groups)))
        lengths = sorted({len(name) for name in names}, reverse=True) if prefixes else []
        return cls(names, tuple(patterns), tuple(lengths))

    def entry(self, user: str) -> tuple[str, str] | None:
        """The name in the map that fits `user`, and what it maps to; patterns are not looked at."""
        whole = next((user[:length] for length in self.lengths if user[:length] in self.names), user)
        return (whole, self.names[whole][1]) if whole in self.names else None

    def groups(self, user: str) -> str | None:
        """What `user` maps to, as it stands in the map; None if nothing fits."""
        whole, _ = self.entry(user) or (user, "")
        place, named = self.names.get(whole, (0, None))
        for number, pattern in self.patterns:
            if named is not None and number > place:
                break
            found = pattern.apply(user)
            if found is not None:
                return found or None
        return named or None


def _user(field: str, quoted: bool, number: int) -> str | Pattern:
    body, slash, options = field[1:].rpartition("/")
    if quoted or not field.startswith("/") or not slash or not set(options) <= {"i", "U"}:
        return field
    pattern = compile_pattern(body.replace("\\/", "/"), "i" if "i" in options else "")
    if pattern is None:
        raise UserMapError(f"line {number}: /{body}/ is not a regular expression; mend or remove it")
    return pattern


def _fields(line: str) -> list[tuple[str, bool]]:
    """The fields of a line and whether each was quoted."""
    fields: list[tuple[str, bool]] = []
    at = 0
    while at < len(line):
        if line[at].isspace():
            at += 1
        elif line[at] == '"':
            end = line.find('"', at + 1)
            end = len(line) if end < 0 else end
            fields.append((line[at + 1 : end], True))
            at = end + 1
        else:
            end = at
            while end < len(line) and not line[end].isspace():
                end += 1
            fields.append((line[at:end], False))
            at = end
    return fields


_maps: dict[str, UserMap] = {}


def set_user_maps(maps: Mapping[str, UserMap]) -> None:
    """Replace all maps of this process; names are case-insensitive."""
    global _maps
    _maps = {fold_string(name): user_map for name, user_map in maps.items()}


def user_map(arguments: list[Value]) -> Value:
    """userMap(map, user[, preferred[, default]]): the groups of a user, or one of them.

    With `preferred` the one of that name (without case) if the user has it, else the first; `default` for a user
    who is not in the map.
    """
    name, user = arguments[0], arguments[1]
    if isinstance(name, Error) or isinstance(user, Error):
        return ERROR
    known = _maps.get(fold_string(name)) if isinstance(name, str) else None
    groups = known.groups(user) if known is not None and isinstance(user, str) else None
    if groups is None:
        return arguments[3] if len(arguments) == 4 else UNDEFINED
    if len(arguments) == 2:
        return groups
    names = [piece for piece in (part.strip() for part in pieces_of(groups, ",", MAX_ITEMS)) if piece]
    preferred = arguments[2]
    if isinstance(preferred, str):
        for group in names:
            if fold_string(group) == fold_string(preferred):
                return group
    return names[0] if names else UNDEFINED


def user_home(arguments: list[Value]) -> Value:
    """userHome(user[, default]): the home directory of a user of this machine."""
    user = arguments[0]
    if isinstance(user, str):
        try:
            home = pwd.getpwnam(user).pw_dir
        except (KeyError, ValueError):
            home = ""
        if home:
            return home
    if len(arguments) == 2 and isinstance(arguments[1], str) and arguments[1]:
        return arguments[1]
    return UNDEFINED if isinstance(user, str) or user is UNDEFINED else ERROR


FUNCTIONS: Final = table(
    Function("userMap", 2, 4, user_map, costly=True),
    Function("userHome", 1, 2, user_home),
)
