"""`roost version`."""

from __future__ import annotations

from roost.cli.output import say
from shared.version import VERSION


def run(_command: str, _argv: list[str]) -> int:
    say(f"Roost {VERSION}")
    return 0
