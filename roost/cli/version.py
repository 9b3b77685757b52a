"""`roost version`."""

from __future__ import annotations

from roost.cli import output


def run(_command: str, _argv: list[str]) -> int:
    return output.version()
