"""What `roost setup` does for each kind of machine: looks before it writes, shows, starts and removes."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path, PurePosixPath
from typing import Final

from roost.cli.options import Parsed
from roost.cli.output import say
from roost.errors import ClientError
from roost.setup import layout, machine
from roost.setup.layout import File

#: Seconds to wait for the daemons to do their work.
PATIENCE_S: Final = 60.0


def check(parsed: Parsed, *, starts: bool) -> None:
    """What would go wrong later, whatever is set up. Raises ClientError."""
    if os.geteuid() != 0 and not parsed.one("root"):
        raise ClientError("setup writes to /etc and starts services: run it as root", "failed")
    if starts and not machine.has_systemd():
        raise ClientError("systemd does not run this machine: -no-start, and start the daemons yourself", "failed")
    if not parsed.one("root") and (theirs := machine.foreign(machine.own_code())) is not None:
        raise ClientError(
            f"{theirs} can be changed by others than root, who is to run what is there: install Roost where it can not "
            "(python3 -m venv /opt/roost; /opt/roost/bin/pip install ...), and run /opt/roost/bin/roost setup",
            "failed",
        )


def check_configuration(root: Path) -> None:
    """One that is there stays, and has to read what is written beside it. Raises ClientError and ConfigError."""
    first, directory = machine.below(root, layout.CONFIGURATION), layout.LOCAL
    if first.exists() and not machine.reads(first, directory):
        raise ClientError(
            f"{first} was there before, and reads no {directory}: LOCAL_CONFIG_DIR = {directory}", "failed"
        )


def show(files: Iterable[File], hidden: Sequence[PurePosixPath] = ()) -> None:
    """hidden: files whose text is of no use to a reader."""
    for file in files:
        owner = f", {file.owner}" if file.owner else ""
        text = "" if file.path in hidden else file.text
        say(f"--- {file.path} ({file.mode:04o}{owner}{', unless there is one' if file.once else ''})\n{text}")


def write(files: Iterable[File], root: Path) -> None:
    """And say so. Raises ClientError."""
    try:
        for path in machine.write(files, root):
            say(f"wrote {path}")
    except LookupError as error:
        raise ClientError(str(error), "failed") from error


def start(units: Sequence[str]) -> None:
    """And wait until they do their work. Raises ClientError."""
    machine.start(*units)
    for unit in units:
        found = machine.wait_for(unit, PATIENCE_S)
        if found.state != "active":
            words = f", {found.words}" if found.words else ""
            raise ClientError(f"{unit} is {found.state}{words}: see journalctl --unit {unit}", "failed")
        say(f"{unit} is active")


def remove(units: Sequence[str], paths: Sequence[PurePosixPath], kept: Sequence[object], more: str = "") -> int:
    """End the daemons and take the files away that have them start. kept: what stays, to be deleted by hand."""
    if os.geteuid() != 0:
        raise ClientError("setup stops services: run it as root", "failed")
    for line in machine.remove(units, paths):
        say(line)
    say(f"kept {', '.join(map(str, kept))}: delete what is not to come back")
    if more:
        say(more)
    return 0


def told(error: OSError, place: object) -> ClientError:
    return ClientError(f"{error.filename or place}: {error.strerror or error}", "failed")
