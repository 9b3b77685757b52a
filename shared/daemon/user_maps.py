"""The maps of userMap() (spec row GRP-26), from the configuration into this process.

    SCHEDD_CLASSAD_USER_MAP_NAMES = Groups       # or CLASSAD_USER_MAP_NAMES, for every daemon
    CLASSAD_USER_MAPFILE_Groups = /etc/condor/groups.map
    CLASSAD_USER_MAPDATA_Other @=end             # the map itself, where there is no file
    * alice physics
    @end

A daemon installs its maps as its life begins, and again at every reconfiguration. Maps belong to the process, so in a
personal pool, where daemons share one, each daemon's maps are kept beside those of the others.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from shared.classad.functions import UserMap, UserMapError, set_user_maps
from shared.config import Config, ConfigError
from shared.config.evaluate import number
from shared.config.knobs.base import to_list

#: A map file is read whole; one line is some 50 bytes, so this is a million users.
MAX_FILE_BYTES: Final = 64 * 1024 * 1024

_installed: dict[str, dict[str, UserMap]] = {}


def read(config: Config, subsystem: str) -> tuple[dict[str, UserMap], dict[str, str]]:
    """The maps that a daemon's configuration names, and for those that can not be read why, by name in lower case."""
    own = f"{subsystem}_CLASSAD_USER_MAP_NAMES"
    lists = {"CLASSAD_USER_MAP_NAMES": config.get("CLASSAD_USER_MAP_NAMES"), own: config.get(own)}
    named = {name.lower(): knob for knob, text in lists.items() for name in to_list(text or "")}
    maps: dict[str, UserMap] = {}
    problems: dict[str, str] = {}
    for name, listed in named.items():
        source = f"CLASSAD_USER_MAPDATA_{name}"
        try:
            file, text = config.get(f"CLASSAD_USER_MAPFILE_{name}"), config.get(f"CLASSAD_USER_MAPDATA_{name}")
            if file:
                source = f"CLASSAD_USER_MAPFILE_{name} = {file}"
                text = _text_of(Path(file))
            if text is None:
                either = f"CLASSAD_USER_MAPFILE_{name} or CLASSAD_USER_MAPDATA_{name}"
                problems[name] = f"{listed} has the user map {name}: set {either}"
                continue
            prefixes = bool(number(config.get(f"CLASSAD_USER_MAP_PREFIX_{name}") or "false"))
            maps[name] = UserMap.parse(text, prefixes=prefixes)
        except (OSError, UserMapError, ConfigError) as error:
            problems[name] = f"{source}: {error}"
    return maps, problems


def install(daemon: str, maps: Mapping[str, UserMap], problems: Mapping[str, str]) -> list[str]:
    """Put what `read` found for a daemon of that name into force; returns what is wrong, for its log.

    A map that can not be read any more stays as it was, so that a slip of the pen does not turn all submits away. One
    that never could be read is not there: every userMap() of it is UNDEFINED.
    """
    before = _installed.get(daemon, {})
    _installed[daemon] = {**maps, **{name: before[name] for name in problems if name in before}}
    _put_into_force(_installed)
    return [
        f"{problem}; {'the map stays as it was' if name in before else 'there is no such map now'}"
        for name, problem in problems.items()
    ]


def remove(daemon: str) -> None:
    """A daemon ended."""
    if _installed.pop(daemon, None):
        _put_into_force(_installed)


def _put_into_force(installed: Mapping[str, Mapping[str, UserMap]]) -> None:
    set_user_maps({name: user_map for maps in installed.values() for name, user_map in maps.items()})


def _text_of(path: Path) -> str:
    """Raises OSError. What is no regular file, as a pipe that nobody writes to, would keep the daemon waiting."""
    if not path.exists():
        raise OSError("there is no such file")
    if not path.is_file():
        raise OSError("it is no regular file")
    if path.stat().st_size > MAX_FILE_BYTES:
        raise OSError(f"it has more than {MAX_FILE_BYTES} bytes")
    return path.read_text(encoding="utf-8", errors="surrogateescape")
