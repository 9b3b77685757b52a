"""What may come next on a command line: options as the commands declare them, and values by what an option or argument
wants. Pure; `roost completion` asks for the values."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from roost.cli.options import Option

#: Instead of a word: names of files, which shells know best.
FILES: Final = ":files"
#: What a value is of, by the name that -help gives it, and by the command for -name.
_KINDS: Final = {
    "FILE": "files", "DIR": "files", "JOB": "jobs", "MACHINE": "machines", "HOST": "machines", "SCHEDD": "schedds",
    "USER": "users", "OWNER": "users", "SUBMITTER": "users", "LEVEL": "levels", "DAEMON": "daemons", "KIND": "daemons",
}  # fmt: skip
#: What the arguments of commands are.
_ARGUMENTS: Final[dict[str, str]] = {
    **dict.fromkeys(("q", "rm", "hold", "release", "vacate-job", "qedit", "prio", "exec", "tail", "analyze"), "jobs"),
    **dict.fromkeys(("explain", "wait", "transfer-data", "history"), "jobs"),
    **dict.fromkeys(("status", "vacate", "drain", "undrain", "off", "on", "reconfig", "restart", "power"), "machines"),
    **dict.fromkeys(("submit", "update-machine-ad", "condor-names"), "files"),
    "config-val": "knobs", "userprio": "users", "ping": "levels", "completion": "shells", "token": "token",
}  # fmt: skip
#: Values that never change.
FIXED: Final[dict[str, tuple[str, ...]]] = {
    "levels": ("READ", "WRITE", "ADMINISTRATOR"),
    "daemons": ("startd", "schedd", "negotiator", "collector", "had", "gateway"),
    "shells": ("bash", "zsh", "fish"),
    "token": ("create", "list", "revoke"),
}


@dataclass(frozen=True, slots=True)
class Candidate:
    word: str
    about: str = ""


#: Kind -> its values, asked only when they are wanted.
Values = Callable[[str], Sequence[str]]


def complete(
    words: Sequence[str],
    commands: Mapping[str, str],
    options_of: Callable[[str], Sequence[Option]],
    values: Values,
) -> list[Candidate]:
    """words: those behind `roost`, the last one is being typed (perhaps ""). commands: name -> a line about it."""
    *before, last = words or [""]
    if not before:
        return [Candidate(name, about) for name, about in commands.items() if name.startswith(last)]
    command = before[0]
    if command == "help":
        return [Candidate(name, about) for name, about in commands.items() if name.startswith(last)]
    if command not in commands:
        return []
    options = options_of(command)
    wanting = _wanting(before[1:], options)
    if wanting is not None and not (wanting.takes in ("many", "some") and last.startswith("-")):
        return _of_kind(_kind(wanting, command), last, values)
    if command == "exec" and any(not word.startswith("-") for word in before[1:]):
        return [Candidate(FILES)]  # a program's words
    if last.startswith("-"):
        dashes = "--" if last.startswith("--") else "-"
        return [
            Candidate(dashes + name, option.help)
            for option in options
            for name in option.names
            if (dashes + name).startswith(last) and (len(name) > 1 or len(last) == 2)
        ]
    return _of_kind(_ARGUMENTS.get(command, ""), last, values)


def _wanting(before: Sequence[str], options: Sequence[Option]) -> Option | None:
    """The option whose value is being typed."""
    by_name = {name: option for option in options for name in option.names}
    at = 0
    while at < len(before):
        word = before[at]
        at += 1
        if not word.startswith("-") or len(word) < 2:
            continue
        option = by_name.get(word.lstrip("-").partition(":")[0])
        if option is None or not option.takes:
            continue
        if option.takes in ("many", "some"):
            while at < len(before) and not before[at].startswith("-"):
                at += 1
            wants = True
        else:
            number = 2 if option.takes == "two" else 1
            wants = len(before) - at < number
            at += number
        if wants and at >= len(before):
            return option
    return None


def _kind(option: Option, command: str) -> str:
    wanted = option.metavar.strip("[].").split(" ")[0].removesuffix("...")
    if wanted == "NAME" and option.names[0] == "name":
        return "machines"
    return _KINDS.get(wanted, "")


def _of_kind(kind: str, last: str, values: Values) -> list[Candidate]:
    if kind == "files":
        return [Candidate(FILES)]
    if not kind:
        return []
    # Names of users, machines and knobs are typed in any case.
    return [Candidate(word) for word in FIXED.get(kind) or values(kind) if word.lower().startswith(last.lower())]
