"""`roost setup KIND`: this machine becomes a central manager, an access point or an execution point of a pool, and its
systemd starts the daemons of that."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Final

from roost.cli import setup_central_manager, setup_enrolled
from roost.cli.options import COMMON, Option, parse, usage
from roost.cli.output import say
from roost.errors import UsageError

#: Options, and what is done with the command's name and the words after the kind.
KINDS: Final[dict[str, tuple[tuple[Option, ...], Callable[[str, list[str]], int]]]] = {
    "central-manager": (setup_central_manager.OPTIONS, setup_central_manager.run),
    "access-point": (setup_enrolled.ACCESS_POINT, setup_enrolled.access_point),
    "execution-point": (setup_enrolled.EXECUTION_POINT, setup_enrolled.execution_point),
    "certificate": (setup_central_manager.CERTIFICATE, setup_central_manager.certificate),
}
#: Of all of them, for completion.
OPTIONS: Final[tuple[Option, ...]] = tuple(
    {option.names: option for options, _ in KINDS.values() for option in options}.values()
)
_ABOUT: Final = "Each says more: roost setup central-manager -help. docs/install.md tells of all."


def run(command: str, argv: list[str]) -> int:
    os.umask(0o022)  # who is to read a file is said with each
    for place, word in enumerate(argv):  # options may come first
        if word in KINDS:
            return KINDS[word][1](command, [*argv[:place], *argv[place + 1 :]])
    if parse(argv, COMMON).has("help"):
        say(usage(command, " | ".join(KINDS), _ABOUT, OPTIONS))
        return 0
    raise UsageError(f"roost {command} wants one of {', '.join(KINDS)}; see -help")
