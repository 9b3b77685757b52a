"""Which macros may be set over the bus, by whom, and to what: HTCondor's SETTABLE_ATTRS_<LEVEL>. Pure.

Nothing may be set that is not named there. Who can change one macro of a daemon can often change what it runs, so the
lists are the administrator's, in files, and what they hang on can not be set at all.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from fnmatch import fnmatchcase
from typing import Final

#: Levels from low to high. Each may set what those before it may. CONFIG is HTCondor's name of who may set things: an
#: administrator here.
LEVELS: Final = ("READ", "WRITE", "ADMINISTRATOR")
_LISTS: Final = {"ADMINISTRATOR": ("ADMINISTRATOR", "CONFIG")}
#: What nobody sets over the bus, whatever is listed: who may set what, and which files are read.
NEVER: Final = (
    "SETTABLE_ATTRS_*",
    "*_SETTABLE_ATTRS_*",
    "ENABLE_RUNTIME_CONFIG",
    "ENABLE_PERSISTENT_CONFIG",
    "PERSISTENT_CONFIG_DIR",
    "LOCAL_CONFIG_*",
    "LOCAL_ROOT_CONFIG_*",
    "REQUIRE_LOCAL_CONFIG_FILE",
)
MOST_NAME, MOST_TEXT, MOST_MACROS = 200, 10_000, 1_000
_NAME: Final = re.compile(r"[A-Za-z0-9_.]+")
_LISTED: Final = re.compile(r"[\s,]+")
_CONTROL: Final = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]|[\ud800-\udfff]")


def misnamed(name: str) -> str:
    """Why this can not be the name of a macro; empty if it can."""
    if len(name) > MOST_NAME:
        return f"{name[:40]}... is longer than {MOST_NAME} characters"
    if not _NAME.fullmatch(name):
        return f"{name[:80]!r} can not be the name of a macro: use letters, digits, underscores and dots"
    return ""


def unusable(text: str) -> str:
    """Why this can not be the text of one; empty if it can."""
    if len(text) > MOST_TEXT:
        return f"a text of {len(text)} characters; use at most {MOST_TEXT}"
    if _CONTROL.search(text):
        return "a text with line ends or control characters; use one line"
    if text.endswith("\\"):
        return "a text that ends in a backslash, which would take in the next line"
    return ""


def refusal(name: str, level: str, subsystem: str, local_name: str, get: Callable[[str], str | None]) -> str:
    """Why somebody of this level (one of LEVELS) may not set a macro of this daemon; empty if he may. get: the value
    of a macro as the daemon's files have it, without what was set."""
    plain = name.upper()
    endings = [plain, *(plain[dot.end() :] for dot in re.finditer(r"\.", plain))]
    if any(fnmatchcase(ending, pattern) for ending in endings for pattern in NEVER):
        return f"{name} can be set in files only"
    known = LEVELS[: LEVELS.index(level) + 1] if level in LEVELS else ()
    lists = [one for lower in known for one in _LISTS.get(lower, (lower,))]
    names = {plain, unscoped(plain, subsystem, local_name)}
    patterns = list(_patterns(lists, subsystem, get))
    if any(fnmatchcase(one, pattern) for one in names for pattern in patterns):
        return ""
    wanted = f"SETTABLE_ATTRS_{level if level in LEVELS else LEVELS[-1]}"
    return f"{name} is not among what {level or 'nobody'} may set: list it in {wanted} in the daemon's files"


def _patterns(lists: Iterable[str], subsystem: str, get: Callable[[str], str | None]) -> Iterable[str]:
    for one in lists:
        own = get(f"{subsystem}_SETTABLE_ATTRS_{one}")
        text = get(f"SETTABLE_ATTRS_{one}") if own is None else own
        yield from (word.upper() for word in _LISTED.split(text or "") if word)


def unscoped(name: str, subsystem: str, local_name: str) -> str:
    """The name without the scope of this daemon before it."""
    for scope in (local_name, subsystem):
        if scope and name.upper().startswith(f"{scope.upper()}."):
            return name[len(scope) + 1 :]
    return name


def of_another(name: str, subsystem: str, local_name: str, subsystems: Iterable[str]) -> str:
    """Why a name with a scope means nothing to this daemon; empty if it means something."""
    scope, dot, _ = name.partition(".")
    others = {one.upper() for one in subsystems} - {subsystem.upper(), local_name.upper()}
    if dot and scope.upper() in others:
        return f"{name} is read by a {scope.lower()} only, and this is a {subsystem.lower()}: leave {scope}. out"
    return ""
