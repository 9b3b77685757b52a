"""The scripts as a library of Redis Functions (Redis 7 and newer): what a role calls, it can not write.

The library's name has a hash of its text, and so have its functions: every release calls its own, and the libraries of
two releases stand side by side while a pool is upgraded. Redis keeps libraries with its data and gives them to its
replicas. Whoever sets a pool up loads the library (shared.daemon.load_functions); a Redis that lets its clients do
everything, such as the one of a personal pool, gets it from the first store that misses it.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cache
from typing import Final

from shared.state.scripts import names, script

#: How the names of the pool's libraries begin.
PREFIX: Final = "roost_"
#: Scripts that make room: they run also where memory is full (Redis would refuse a function as a whole).
MAKE_ROOM: Final = frozenset({"ads_remove", "had_release", "lead_give_up"})


@dataclass(frozen=True, slots=True)
class Library:
    name: str  # "roost_<hash>"
    text: str  # for FUNCTION LOAD
    functions: dict[str, str]  # script -> name of its function


@cache
def library() -> Library:
    """This release's."""
    bodies = {name: f"local function {name}(KEYS, ARGV)\n{script(name).text}end\n" for name in names()}
    flags = {name: "{'allow-oom'}" if name in MAKE_ROOM else "{}" for name in bodies}
    made_of = "".join(bodies[name] + flags[name] for name in bodies)
    own_name = PREFIX + hashlib.sha256(made_of.encode()).hexdigest()[:12]
    functions = {name: f"{own_name}_{name}" for name in bodies}
    registered = "".join(
        f"redis.register_function{{function_name='{functions[name]}', callback={name}, flags={flags[name]}}}\n"
        for name in bodies
    )
    return Library(own_name, f"#!lua name={own_name}\n{''.join(bodies.values())}{registered}", functions)
