"""The Lua scripts of shared/state/lua, by name."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

LUA = Path(__file__).with_name("lua")


@dataclass(frozen=True, slots=True)
class Script:
    name: str
    text: str
    sha: str


@cache
def script(name: str) -> Script:
    """Raises FileNotFoundError: a programmer's error."""
    text = (LUA / f"{name}.lua").read_text("utf-8")
    return Script(name, text, hashlib.sha1(text.encode()).hexdigest())
