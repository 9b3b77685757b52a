"""What jobs of a startd that is not root may use of this machine's file system: places that are granted, less what is
the daemon's own.

Only what is granted is there for a job (Landlock), so a credential that lies anywhere else is out of its sight,
whatever its name. Where something of the daemon's lies in a place that is granted, what lies beside the way to it is
granted instead, as it is then.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from shared.config import Config

#: Macros and variables that name a file or directory with something secret in it.
_NAMES_SECRET = re.compile(
    r"PASSWORD|TOKEN|SECRET|CREDENTIAL|CRED_DIR|_URL_FILE$|KEY_?FILE|KEYRING|SIGNING_KEY|SSL_.*KEY|PRIVATE_KEY"
    r"|GATEWAY_KEY$",
    re.I,
)
#: Places with more entries than this are not granted in parts: it would take too long at each start of a job.
MOST_ENTRIES = 500


def private_places(config: Config, environment: Mapping[str, str], own: Iterable[Path]) -> tuple[str, ...]:
    """Files and directories of the daemon: `own`, its configuration, and whatever a setting or variable names that
    holds something secret. The home of the daemon's account is private as well, where it has one to itself."""
    found = {str(path) for path in own}
    for macro in config.macros():
        if macro.source.name.startswith("/"):
            found.add(macro.source.name)
        if _NAMES_SECRET.search(macro.name):
            found.add(config.get(macro.name) or "")
    found.update(config.get(name) or "" for name in ("LOCAL_CONFIG_DIR", "SPOOL", "LOG", "DATA_REUSE_DIRECTORY"))
    found.update(text for name, text in environment.items() if _NAMES_SECRET.search(name))
    home = environment.get("HOME", "")
    if home.startswith("/") and home != "/" and _is_owned(home):
        found.add(home)
    return tuple(sorted({os.path.realpath(path) for path in found if path.startswith("/") and "\0" not in path}))


def _is_owned(path: str) -> bool:
    try:
        return os.stat(path).st_uid == os.geteuid()
    except OSError:
        return False


def find_grants(read: Iterable[str], write: Iterable[str], private: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    """What is there of these places: "r" or "w", and the path as it is without links. Blocking."""
    found: dict[str, str] = {}
    for use, places in (("w", write), ("r", read)):
        for place in places:
            for path in _parts(os.path.realpath(place), private, [MOST_ENTRIES]):
                found.setdefault(path, use)
    return tuple((use, path) for path, use in found.items())


def _parts(path: str, private: tuple[str, ...], left: list[int]) -> Iterator[str]:
    """The place itself, or what of it is nobody's but the jobs'."""
    if not os.path.lexists(path) or any(_within(path, one) for one in private):
        return
    if not any(_within(one, path) for one in private):
        yield path
        return
    try:
        names = sorted(os.listdir(path))
    except OSError:
        return  # what can not be listed is not granted either
    left[0] -= len(names)
    if left[0] < 0:
        return
    for name in names:
        inner = os.path.join(path, name)
        if not os.path.islink(inner):  # what it leads to is granted by itself, or is not
            yield from _parts(inner, private, left)


def _within(path: str, folder: str) -> bool:
    return (path + "/").startswith(folder.rstrip("/") + "/")
