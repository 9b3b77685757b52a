"""Patterns of event types that nothing fits."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable

from roost.events import TYPES
from shared.bus.topics import matches


def unheard(patterns: Iterable[str], fits: Callable[[str, str], bool] = matches) -> list[str]:
    """What to tell of patterns that no event of this release fits: they may be mistyped. A later release may have
    more events, so this is no error. fits: whether a pattern takes a type."""
    known = sorted({name for name, _ in TYPES})
    families = sorted({f"{one.partition('.')[0]}.*" for one in known})
    found = []
    for pattern in patterns:
        if not any(fits(pattern, one) for one in known):
            near = difflib.get_close_matches(pattern, [*families, *known], 1)
            mend = f"did you mean {near[0]}?" if near else f"there are {', '.join(families)}"
            found.append(f"no event of this release is {pattern}: {mend}")
    return found
