"""The Lua scripts of shared/state/lua, by name.

A script's text is the body of a function of KEYS and ARGV. The embedded store runs it as it is (`recording`); to a
Redis server all of them go as one library (`functions`).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

LUA = Path(__file__).with_name("lua")
_CALL = re.compile(r"redis\.p?call\('(\w+)'")


@dataclass(frozen=True, slots=True)
class Script:
    name: str
    text: str
    commands: frozenset[str]  # Redis commands that it calls, in lower case


@cache
def script(name: str) -> Script:
    """Raises FileNotFoundError: a programmer's error."""
    text = (LUA / f"{name}.lua").read_text("utf-8")
    return Script(name, text, frozenset(word.lower() for word in _CALL.findall(text)))


@cache
def names() -> tuple[str, ...]:
    """All of them, in order."""
    return tuple(sorted(path.stem for path in LUA.glob("*.lua")))
