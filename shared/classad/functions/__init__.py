"""The builtin functions of the ClassAd language, by lower-case name.

    >>> FUNCTIONS["strcat"].call(["slot", 1])
    'slot1'

One module for each family; `registry.Function` says what a function is, `coerce` how values become text and numbers.
Bounds: a string of MAX_TEXT characters, a list of MAX_ITEMS items, a regular expression's DEADLINE_S seconds.
"""

from __future__ import annotations

from typing import Final

from shared.classad.functions import (
    environment,
    expressions,
    lists,
    numbers,
    regexps,
    string_lists,
    strings,
    times,
    types,
    users,
    versions,
)
from shared.classad.functions.expressions import set_debug_listener
from shared.classad.functions.registry import Function
from shared.classad.functions.users import UserMap, UserMapError, set_user_maps

FUNCTIONS: Final[dict[str, Function]] = {
    **types.FUNCTIONS,
    **numbers.FUNCTIONS,
    **strings.FUNCTIONS,
    **string_lists.FUNCTIONS,
    **lists.FUNCTIONS,
    **regexps.FUNCTIONS,
    **versions.FUNCTIONS,
    **times.FUNCTIONS,
    **environment.FUNCTIONS,
    **users.FUNCTIONS,
    **expressions.FUNCTIONS,
}

__all__ = ["FUNCTIONS", "Function", "UserMap", "UserMapError", "set_debug_listener", "set_user_maps"]
