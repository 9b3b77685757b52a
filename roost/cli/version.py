"""`roost version`: which version this is."""

from __future__ import annotations

from typing import Final

from roost.cli import output
from roost.cli.options import COMMON, Option, parse, usage

OPTIONS: Final[tuple[Option, ...]] = (COMMON[-1],)


def run(command: str, argv: list[str]) -> int:
    if parse(argv, OPTIONS).has("help"):
        output.say(usage(command, "", "Print the version.", OPTIONS))
        return 0
    return output.version()
