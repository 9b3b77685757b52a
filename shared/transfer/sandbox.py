"""Which files a job takes along, and where what it brings back belongs: for the schedd, and for a client that spools.
Pure but for the questions it asks of paths."""

from __future__ import annotations

import os
import posixpath
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Final

from shared.classad import ClassAd
from shared.transfer.errors import TransferError
from shared.transfer.members import Entry, Source, check_name

EXECUTABLE: Final = "condor_exec.exe"
STDOUT: Final = "_condor_stdout"
STDERR: Final = "_condor_stderr"
NOWHERE: Final = "/dev/null"


def split_list(value: str) -> list[str]:
    """The names in a comma separated list; blanks round them do not count."""
    return [name for part in value.split(",") if (name := part.strip())]


def input_names(ad: ClassAd) -> list[str]:
    """What TransferInput and PublicInputFiles list: names from Iwd, and URLs."""
    return [name for listed in ("TransferInput", "PublicInputFiles") for name in split_list(ad.eval_string(listed))]


def input_sources(ad: ClassAd) -> list[Source]:
    """What goes along with a job whose files lie here: executable, standard input, TransferInput and
    PublicInputFiles, its own plug-ins.

    Names are relative to Iwd. A directory with a slash at its end means what is in it. URLs are the startd's business.
    Paths may lead anywhere, since the job names them and only the schedd's own account may submit without spooling.
    """
    iwd = Path(ad.eval_string("Iwd") or "/")
    sources: list[Source] = []
    command = ad.eval_string("Cmd")
    if command and ad.eval("TransferExecutable") is not False:
        sources.append(Source(iwd / command, EXECUTABLE, follow=True))
    stdin = ad.eval_string("In")
    if stdin and stdin != NOWHERE and ad.eval("TransferIn") is not False:
        sources.append(Source(iwd / stdin, PurePosixPath(stdin).name, follow=True))
    keep_paths = ad.eval("PreserveRelativePaths") is True
    for name in input_names(ad):
        if "://" in name:
            continue
        path = iwd / name
        if name.endswith("/") and path.is_dir():
            inside = sorted(os.listdir(path))
            sources += [Source(path / entry, entry, follow=True) for entry in inside]
        elif keep_paths and not name.startswith("/"):
            sources.append(Source(path, os.path.normpath(name), follow=True))
        else:
            sources.append(Source(path, PurePosixPath(os.path.normpath(name)).name, follow=True))
    sources += [Source(iwd / one.path, one.name, follow=True) for one in job_plugins(ad) if "://" not in one.path]
    return distinct(sources)


@dataclass(frozen=True, slots=True)
class JobPlugin:
    """A plug-in that comes with the job (transfer_plugins). path: where it lies at the access point."""

    schemes: tuple[str, ...]
    path: str

    @property
    def name(self) -> str:
        """In the scratch directory."""
        return posixpath.basename(posixpath.normpath(self.path))


def job_plugins(job: ClassAd) -> list[JobPlugin]:
    """TransferPlugins: `scheme, scheme = path; scheme = path`."""
    found = []
    for part in job.eval_string("TransferPlugins").split(";"):
        schemes, equals, path = part.partition("=")
        if equals and path.strip():
            found.append(JobPlugin(tuple(one.lower() for one in split_list(schemes)), path.strip()))
    return found


def distinct(sources: list[Source]) -> list[Source]:
    """Each name once: the last one named wins, as a later copy would overwrite an earlier."""
    return list({source.name: source for source in sources}.values())


@dataclass(frozen=True, slots=True)
class Move:
    """A received member and the place where it belongs."""

    name: str
    target: str  # absolute
    directory: bool = False


def output_moves(ad: ClassAd, entries: list[Entry], *, iwd: Path) -> list[Move]:
    """Where each member of an output bundle goes: stdout and stderr where Out and Err say, remapped names where
    TransferOutputRemaps says, all else below Iwd. Raises TransferError for what would land outside without being named.
    """
    remaps = parse_remaps(ad.eval_string("TransferOutputRemaps"))
    for name, attribute in ((STDOUT, "Out"), (STDERR, "Err")):
        remaps[name] = ad.eval_string(attribute) or NOWHERE
    moves: list[Move] = []
    for entry in entries:
        parts = check_name(entry.name)
        target, rest = remapped(parts, remaps)
        if target is None:
            place = iwd.joinpath(*parts)
            real = Path(os.path.realpath(place.parent))
            if not real.is_relative_to(os.path.realpath(iwd)):
                raise TransferError(
                    f"{entry.name}: would be written to {real}, outside of the job's directory {iwd}; name the place "
                    "in transfer_output_remaps if that is meant"
                )
        elif target == NOWHERE:
            continue
        elif "://" in target:
            raise TransferError(f"{entry.name}: transfer_output_remaps to a URL is the execution point's to carry out")
        else:
            place = iwd.joinpath(target, *rest)
        moves.append(Move(entry.name, str(place), entry.kind == "directory"))
    return moves


def remapped(parts: tuple[str, ...], remaps: dict[str, str]) -> tuple[str | None, tuple[str, ...]]:
    """The remapped place of the longest prefix of a member's path, and the rest of the path."""
    for length in range(len(parts), 0, -1):
        target = remaps.get("/".join(parts[:length]))
        if target is not None:
            return target, parts[length:]
    return None, ()


def parse_remaps(value: str) -> dict[str, str]:
    """ "a=b; c = d/e": names and where they go. A backslash keeps `;` and `=` in names."""
    remaps: dict[str, str] = {}
    name: str | None = None
    word: list[str] = []
    escaped = False
    for char in value + ";":
        if escaped:
            word.append(char)
            escaped = False
        elif char == "\\":
            escaped = True
        elif char == "=" and name is None:
            name, word = "".join(word).strip(), []
        elif char == ";":
            if name and (target := "".join(word).strip()):
                remaps[os.path.normpath(name)] = target
            name, word = None, []
        else:
            word.append(char)
    return remaps
