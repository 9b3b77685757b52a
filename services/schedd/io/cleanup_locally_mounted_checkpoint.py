"""Removes a file of a checkpoint from a file system that is mounted here, and the directories that are empty then.

    PROGRAM -prefix URL -path DIRECTORY -from BASE -file NAME [-jobad FILE]

URL is that of DIRECTORY. Nothing outside of it is touched, whatever links lie there. A bare interpreter runs it, with
the standard library alone.
"""

from __future__ import annotations

import contextlib
import os
import sys
from urllib.parse import unquote


def main(words: list[str]) -> int:
    given = dict(zip(words[::2], words[1::2], strict=False))
    try:
        prefix, path, base, name = (given[word] for word in ("-prefix", "-path", "-from", "-file"))
    except KeyError as missing:
        sys.stderr.write(f"want -prefix URL -path DIRECTORY -from BASE -file NAME: {missing} is missing\n")
        return 2
    if not base.startswith(prefix):
        sys.stderr.write(f"{base} does not begin with {prefix}\n")
        return 2
    below = f"{unquote(base[len(prefix) :])}/{name}"
    parts = [part for part in below.split("/") if part not in ("", ".")]
    if ".." in parts or not parts:
        sys.stderr.write(f"{below} is no name of a file below {path}\n")
        return 2
    try:
        remove(path, parts)
    except FileNotFoundError:
        return 0  # it is gone already
    except OSError as error:
        sys.stderr.write(f"{os.path.join(path, *parts)}: {error.strerror}\n")
        return 1
    return 0


def remove(path: str, parts: list[str]) -> None:
    """Raises OSError, also where a link stands in the way."""
    folders = [os.open(path, os.O_RDONLY | os.O_DIRECTORY)]
    try:
        for part in parts[:-1]:
            folders.append(os.open(part, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=folders[-1]))
        os.unlink(parts[-1], dir_fd=folders[-1])
        with contextlib.suppress(OSError):  # as others lie there yet
            for folder, part in zip(folders[-2::-1], parts[-2::-1], strict=False):
                os.rmdir(part, dir_fd=folder)
    finally:
        for folder in folders:
            os.close(folder)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
