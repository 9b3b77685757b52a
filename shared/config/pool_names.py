"""Names of other pools in a knob: each is a directory, and part of what daemons there are called."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from shared.config import Config, ConfigError, Problem

#: What a pool may be called: the host of its central manager, as a rule.
POOL_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}")


def pool_names(config: Config, knob: str, names: Iterable[str]) -> tuple[str, ...]:
    """Each once, in their order. Raises ConfigError."""
    found = tuple(dict.fromkeys(names))
    for name in found:
        if not POOL_NAME.fullmatch(name):
            place, mend = config.origin(knob), "name a pool by letters, digits, '.', '-' and '_'"
            raise ConfigError([Problem(f"{knob} = {name[:100]}: that is no name of a pool", place, mend)])
    return found
