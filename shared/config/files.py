"""What the readers of files do to the machine: open a file, run the command of an `include`."""

from __future__ import annotations

import errno
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

from shared.config.errors import Source, config_error

MAX_BYTES = 64 << 20
COMMAND_SECONDS = 60.0


def read_text(path: str) -> str:
    """The text of a file, at most 64 MiB; bytes that are no UTF-8 are kept as they are. Raises OSError."""
    if "\0" in path:
        raise OSError(errno.EINVAL, "its name has a zero byte", path)
    with Path(path).open("rb") as stream:
        data = stream.read(MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        raise OSError(errno.EFBIG, os.strerror(errno.EFBIG), path)
    return data.decode("utf-8", "surrogateescape")


@dataclass(frozen=True, slots=True)
class Printed:
    """What a command printed. problem: what is to be told of how it ended; empty: nothing."""

    text: str
    problem: str


def run_command(command: str, source: Source, *, if_exist: bool = False, must_succeed: bool = False) -> Printed | None:
    """What a command prints. Words are separated by blanks, there is no quoting and no shell.

    None if there is no such program and `if_exist`. Its exit status does not matter, unless `must_succeed`
    ("Configuration" 15 in the spec's list of corners). Raises ConfigError, also after 60 seconds.
    """
    words = command.split()
    if not words:
        raise config_error("include command: there is no command", source, "name a program")
    try:
        done = subprocess.run(
            words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, timeout=COMMAND_SECONDS, check=False
        )
    except FileNotFoundError:
        if if_exist:
            return None
        raise config_error(f"there is no program {words[0]}", source, "correct its path") from None
    except OSError as error:
        raise config_error(f"can not run {words[0]}: {error.strerror}", source, "make it executable") from None
    except subprocess.TimeoutExpired:
        raise config_error(f"{words[0]} did not end within {COMMAND_SECONDS:.0f} s", source) from None
    if must_succeed and done.returncode:
        raise config_error(f"{words[0]} ended with status {done.returncode}; its output is not kept", source)
    problem = f"{words[0]} ended with status {done.returncode}; what it printed is taken" if done.returncode else ""
    return Printed(done.stdout.decode("utf-8", "surrogateescape"), problem)
