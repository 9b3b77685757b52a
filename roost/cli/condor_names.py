"""HTCondor's names of the commands: `roost condor-names DIR` writes programs condor_q, condor_submit, ..., which are
`roost condor_q ...`: that reads HTCondor's command line, where it is another than ours, and goes on as `roost q`."""

from __future__ import annotations

import os
import shlex
import stat
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from roost.cli.effects import left_out
from roost.cli.options import Option, flag, parse, usage
from roost.cli.output import say
from roost.errors import UsageError

OPTIONS: Final[tuple[Option, ...]] = (
    flag("list", help="print the names, write nothing"),
    flag("force", help="write over files that are there"),
    flag("help", "h", help="show this help"),
)
#: In a program that we wrote: it may be written again, others may not.
_MARK: Final = "# a name of HTCondor's for roost"


def _same(words: list[str]) -> list[str]:
    return words


def _wait(words: list[str]) -> list[str]:
    """condor_wait [options] LOG [JOB]"""
    takes = ("-wait", "-num")
    left: list[str] = []
    plain: list[str] = []
    at = 0
    while at < len(words):
        if words[at] in takes:
            left += words[at : at + 2]
            at += 2
            continue
        (left if words[at].startswith("-") else plain).append(words[at])
        at += 1
    return left if {"-help", "-h"} & set(left) else [*left, "-log", *plain]


def _token_create(words: list[str]) -> list[str]:
    """condor_token_create -identity USER [-key NAME]: the signing key is POOL where none is named."""
    return words if {"-key", "-keyid", "-help", "-h"} & set(words) else [*words, "-key", "POOL"]


#: HTCondor's name -> our command, with words that stand before the others, and how its command line is read.
NAMES: Final[dict[str, tuple[tuple[str, ...], Callable[[list[str]], list[str]]]]] = {
    "condor_adstash": (("adstash",), _same),
    "condor_config_val": (("config-val",), _same),
    "condor_continue": (("continue",), _same),
    "condor_drain": (("drain",), _same),
    "condor_gpu_discovery": (("gpu-discovery",), _same),
    "condor_history": (("history", "-layout", "condor"), _same),
    "condor_hold": (("hold",), _same),
    "condor_off": (("off",), _same),
    "condor_on": (("on",), _same),
    "condor_ping": (("ping",), _same),
    "condor_power": (("power",), _same),
    "condor_prio": (("prio",), _same),
    "condor_q": (("q", "-layout", "condor"), _same),
    "condor_qedit": (("qedit",), _same),
    "condor_reconfig": (("reconfig",), _same),
    "condor_release": (("release",), _same),
    "condor_restart": (("restart",), _same),
    "condor_rm": (("rm",), _same),
    "condor_ssh_to_job": (("exec",), _same),
    "condor_stats": (("stats",), _same),
    "condor_status": (("status", "-layout", "condor"), _same),
    "condor_store_cred": (("store-cred",), _same),
    "condor_submit": (("submit",), _same),
    "condor_submit_dag": (("submit-dag",), _same),
    "condor_suspend": (("suspend",), _same),
    "condor_tail": (("tail",), _same),
    "condor_token_create": (("token", "create"), _token_create),
    "condor_token_fetch": (("token", "fetch"), _same),
    "condor_token_list": (("token", "list", "-local"), _same),
    "condor_transfer_data": (("transfer-data",), _same),
    "condor_update_machine_ad": (("update-machine-ad",), _same),
    "condor_userprio": (("userprio",), _same),
    "condor_vacate": (("vacate",), _same),
    "condor_vacate_job": (("vacate-job",), _same),
    "condor_version": (("version",), _same),
    "condor_wait": (("wait",), _wait),
    "condor_who": (("who",), _same),
}
#: What there is instead of HTCondor's others.
INSTEAD: Final = {
    "condor_master": "`python -m services.master` is the master; systemd, Docker or `roost up` start daemons too",
    "condor_dagman": "`roost submit-dag` starts what manages a DAG",
    "condor_watch_q": "see `roost events 'job.*'`",
    "condor_findhost": "see `roost status -constraint EXPR -af Machine`",
    "condor_test_match": "see `roost analyze`",
    "condor_reschedule": "whoever submits is served at once: nothing needs it",
    "condor_docker_enter": "see `roost exec JOB`",
    "condor_token_request": "users get tokens by `roost token create`, daemons by `roost enroll` with a join token",
    "condor_token_request_approve": "a join token approves beforehand: `roost enroll -create`",
    "condor_token_request_auto_approve": "a join token approves beforehand: `roost enroll -create -uses N`",
    "condor_token_request_list": "see `roost identities`",
    "condor_set_shutdown": "see `roost drain -exit-on-completion`",
    "condor_fetchlog": "logs are where the supervisor of the daemons puts them",
    "condor_userlog": "see `roost history` and `roost explain`",
    "condor_who_am_i": "see `roost ping`",
}


def translated(name: str, words: Sequence[str]) -> tuple[str, list[str]]:
    """HTCondor's command line as ours: the command and its words. Raises UsageError telling what there is instead."""
    short = name.removesuffix(".exe")
    if short not in NAMES:
        known = INSTEAD.get(short) or "`roost help` has what there is"
        raise UsageError(f"there is no {short[:80]} here; {known}")
    (command, *before), read = NAMES[short]
    left = _without_idle(command, list(words))
    if left in (["-version"], ["-v"]) and command != "config-val":
        return "version", []
    return command, [*before, *read(left)]


def _without_idle(command: str, words: list[str]) -> list[str]:
    """A command line without the options that change nothing here and that our command does not have; they are told."""
    idle = left_out(command)
    end = next((at for at, word in enumerate(words) if _is_not_ours(command, word)), len(words))
    for word in dict.fromkeys(words[:end]):
        if word in idle:
            sys.stderr.write(f"NOTE: {word} has no effect: {idle[word]}\n")
    return [word for word in words[:end] if word not in idle] + words[end:]


def _is_not_ours(command: str, word: str) -> bool:
    """Whether this word and those after it are not options of the command."""
    return word in ("--", "-queue") or (command == "exec" and not word.startswith("-"))


def run(command: str, argv: list[str]) -> int:
    parsed = parse(argv, OPTIONS)
    if parsed.has("help"):
        text = (
            "Write programs with HTCondor's names (condor_q, condor_submit, ...) to a directory, for scripts and\n"
            "fingers that know them. They need this roost where it is. Put the directory into PATH."
        )
        say(usage(command, "DIR", text, OPTIONS))
        return 0
    if parsed.has("list"):
        for name, ((ours, *before), _) in NAMES.items():
            say(f"{name:<26} roost {' '.join((ours, *before))}")
        return 0
    if len(parsed.arguments) != 1:
        raise UsageError("where to? roost condor-names DIR")
    directory = Path(parsed.arguments[0])
    try:
        written = write(directory, force=parsed.has("force"))
    except OSError as error:
        raise UsageError(f"{error.filename or directory}: {error.strerror}") from None
    say(f"{written} programs written to {directory}.")
    if str(directory.absolute()) not in os.environ.get("PATH", "").split(os.pathsep):
        say(f"For the shell: PATH={shlex.quote(str(directory.absolute()))}:$PATH")
    return 0


def write(directory: Path, *, force: bool = False) -> int:
    """How many were written. Raises UsageError, with nothing written, if others' files are in the way; OSError."""
    directory.mkdir(parents=True, exist_ok=True)
    for name in NAMES:
        file = directory / name
        if not force and (file.is_symlink() or file.exists()) and _MARK not in _text(file):
            raise UsageError(f"{file} is there already, and not of ours: name another directory, or take -force")
    for name in NAMES:
        file, new = directory / name, directory / f".{name}.new"
        text = f'#!/bin/sh\n{_MARK}\nexec {shlex.quote(sys.executable)} -m roost {name} "$@"\n'
        new.write_text(text)
        new.chmod(stat.S_IRWXU | stat.S_IRGRP | stat.S_IXGRP | stat.S_IROTH | stat.S_IXOTH)
        new.replace(file)
    return len(NAMES)


def _text(file: Path) -> str:
    try:
        return file.read_text(errors="replace")[:1000]
    except OSError:
        return ""
