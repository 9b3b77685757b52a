"""`roost setup execution-point`: this machine joins a pool, and its systemd starts its startd."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from roost import enrolment
from roost.cli.enroll import host, join_token
from roost.cli.options import COMMON, Option, Parsed, flag, parse, usage, value
from roost.cli.output import say
from roost.errors import ClientError, UsageError
from roost.setup import execution_point, machine
from roost.setup.execution_point import ExecutionPoint, File

OPTIONS: tuple[Option, ...] = (
    value("token-file", help="file with the join token (`roost enroll -create -role startd`); -: standard input"),
    value("ca-file", help="certificate of the pool's own authority, for a pool that has one", metavar="FILE"),
    value("name", help="the startd's name in the pool (this host's)", metavar="NAME"),
    value("root", help="write below this directory, as into an image, and start nothing", metavar="DIR"),
    flag("no-start", help="write everything, start nothing"),
    flag("dry-run", help="show what would be written, and do nothing"),
    *COMMON,
)
_ABOUT = (
    "Enrolls this machine's startd at the pool, writes its configuration and a unit, and has systemd start it, now "
    "and at each boot. The same again brings it up to date. Takes root. docs/install.md tells of other daemons."
)
#: Seconds to wait for the startd to join.
PATIENCE_S = 60.0
#: Stands for the broker's URL where nobody is asked.
_SECRET = "(what the pool answers)"


def run(command: str, argv: list[str]) -> int:
    parsed = parse(argv, OPTIONS)
    if parsed.has("help"):
        say(usage(command, "execution-point -pool URL -token-file FILE [-ca-file FILE]", _ABOUT, OPTIONS))
        return 0
    if parsed.arguments != ["execution-point"]:
        raise UsageError(f"roost {command} execution-point: that is the one kind of machine it knows; see -help")
    root = Path(parsed.one("root") or "/")
    name = parsed.one("name") or host()
    if parsed.has("dry-run"):
        _show(name, authority=bool(parsed.one("ca-file")))
        return 0
    starts = not parsed.has("no-start") and not parsed.one("root")
    _check(parsed, starts=starts)
    try:
        _check_configuration(root)
        for path in _set_up(parsed, root, name):
            say(f"wrote {path}")
    except OSError as error:
        raise ClientError(f"{error.filename or root}: {error.strerror or error}", "failed") from error
    return _start(name) if starts else 0


def _show(name: str, *, authority: bool) -> None:
    point = ExecutionPoint(name, sys.executable, _keys(name), authority)
    for file in execution_point.files(point, _SECRET):
        say(f"--- {file.path} ({file.mode:04o}{', unless there is one' if file.once else ''})\n{file.text}")


def _check(parsed: Parsed, *, starts: bool) -> None:
    """All that would go wrong later, before anything is written."""
    if not parsed.one("token-file"):
        raise UsageError("setup wants -token-file FILE: an administrator makes one, roost enroll -create -role startd")
    if os.geteuid() != 0 and not parsed.one("root"):
        raise ClientError("setup writes to /etc and starts a service: run it as root", "failed")
    if starts and not machine.has_systemd():
        raise ClientError("systemd does not run this machine: -no-start, and start services.startd yourself", "failed")
    if not parsed.one("root") and (theirs := machine.foreign(machine.own_code())) is not None:
        raise ClientError(
            f"{theirs} can be changed by others than root, who is to run what is there: install Roost where it can not "
            "(python3 -m venv /opt/roost; /opt/roost/bin/pip install ...), and run /opt/roost/bin/roost setup",
            "failed",
        )


def _check_configuration(root: Path) -> None:
    """One that is there stays, and has to read what is written beside it. Raises ClientError and ConfigError."""
    first, directory = machine.below(root, execution_point.CONFIGURATION), execution_point.LOCAL.parent
    if first.exists() and not machine.reads(first, directory):
        raise ClientError(
            f"{first} was there before, and reads no {directory}: LOCAL_CONFIG_DIR = {directory}", "failed"
        )


def _set_up(parsed: Parsed, root: Path, name: str) -> list[str]:
    """Enroll and write. Raises OSError and ClientError."""
    written = []
    authority = parsed.one("ca-file")
    if authority:
        text = Path(authority).read_text(encoding="ascii")
        if "BEGIN CERTIFICATE" not in text:
            raise ClientError(f"{authority} holds no certificate", "failed")
        written += machine.write([File(execution_point.AUTHORITY, text)], root)
        os.environ["ROOST_CA_FILE"] = str(machine.below(root, execution_point.AUTHORITY))
    token = join_token(parsed.one("token-file"))
    machine.below(root, execution_point.CONFIGURATION.parent).mkdir(parents=True, exist_ok=True, mode=0o755)
    place = machine.below(root, execution_point.IDENTITIES)
    done = enrolment.join(parsed.one("pool") or None, "startd", name, token, place)
    keys = _keys(name) if done.keys else ""
    point = ExecutionPoint(name, sys.executable, keys, bool(authority))
    written += machine.write(execution_point.files(point, done.url), root)
    return [str(path) for path in written]


def _keys(name: str) -> str:
    return str(execution_point.identity(name) / enrolment.KEYS)


def _start(name: str) -> int:
    unit = execution_point.UNIT
    machine.start(unit)
    found = machine.wait_for(unit, PATIENCE_S)
    if found.state == "active":
        say(f"{unit} is active: {name} is an execution point of the pool")
        return 0
    words = f", {found.words}" if found.words else ""
    raise ClientError(f"{unit} is {found.state}{words}: see journalctl --unit {unit}", "failed")
