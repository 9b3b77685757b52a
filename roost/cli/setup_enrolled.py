"""`roost setup execution-point` and `roost setup access-point`: a machine that comes in with a join token."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Final
from urllib.parse import urlsplit

from roost import enrolment
from roost.cli import setup_common
from roost.cli.enroll import host, join_token
from roost.cli.options import COMMON, Option, Parsed, flag, parse, usage, value
from roost.cli.output import say
from roost.errors import ClientError, UsageError
from roost.setup import access_point as access
from roost.setup import central_manager as central
from roost.setup import execution_point as execution
from roost.setup import layout, machine, secrets
from roost.setup.access_point import AccessPoint
from roost.setup.execution_point import ExecutionPoint
from roost.setup.layout import File

_BOTH: Final = (
    value("ca-file", help="certificate of the pool's own authority, for a pool that has one", metavar="FILE"),
    value("name", help="the daemon's name in the pool (this host's)", metavar="NAME"),
    value("root", help="write below this directory, as into an image, and start nothing", metavar="DIR"),
    flag("no-start", help="write everything, start nothing"),
    flag("dry-run", help="show what would be written, and do nothing"),
    flag("remove", help="stop it, and take away what has it start; its state stays"),
    *COMMON,
)
EXECUTION_POINT: tuple[Option, ...] = (
    value("token-file", help="file with the join token (`roost enroll -create -role startd`); -: standard input"),
    *_BOTH,
)
ACCESS_POINT: tuple[Option, ...] = (
    value("token-file", help="file with the join token (`roost enroll -create -role schedd`); -: standard input"),
    value(
        "certificate-file",
        help="the schedd's certificate with its key (`roost setup certificate NAME`, on the central manager)",
        metavar="FILE",
    ),
    value("uid-domain", help="UID_DOMAIN (the domain of the gateway's host)", metavar="DOMAIN"),
    *_BOTH,
)
#: Stands for what nobody is asked for.
_SECRET: Final = "(what the pool answers)"


def execution_point(command: str, argv: list[str]) -> int:
    parsed = parse(argv, EXECUTION_POINT)
    if parsed.has("help"):
        about = (
            "Enrolls this machine's startd at the pool, writes its configuration and a unit, and has systemd start it, "
            "now and at each boot. The same again brings it up to date. Takes root."
        )
        say(usage(command, "execution-point -pool URL -token-file FILE [-ca-file FILE]", about, EXECUTION_POINT))
        return 0
    _no_arguments(parsed)
    name = parsed.one("name") or host()
    keys = str(layout.identity(execution.ROLE, name) / enrolment.KEYS)
    if parsed.has("dry-run"):
        point = ExecutionPoint(name, sys.executable, keys, bool(parsed.one("ca-file")))
        setup_common.show(execution.files(point, _SECRET))
        return 0
    if parsed.has("remove"):
        more = _revoke(execution.ROLE, name)
        kept = (layout.STATE, layout.identity(execution.ROLE, name))
        return setup_common.remove([execution.UNIT], [layout.local_path(execution.KIND)], kept, more)

    def files(joined: _Joined) -> list[File]:
        point = ExecutionPoint(name, sys.executable, keys if joined.keys else "", joined.authority)
        return execution.files(point, joined.url)

    if _set_up(parsed, execution.ROLE, name, files):
        setup_common.start([execution.UNIT])
        say(f"{name} is an execution point of the pool")
    return 0


def access_point(command: str, argv: list[str]) -> int:
    parsed = parse(argv, ACCESS_POINT)
    if parsed.has("help"):
        about = (
            "Enrolls this machine's schedd at the pool, writes its configuration and a unit, and has systemd start it, "
            "now and at each boot. The same again brings it up to date. Takes root."
        )
        words = "access-point -pool URL -token-file FILE -certificate-file FILE [-ca-file FILE]"
        say(usage(command, words, about, ACCESS_POINT))
        return 0
    _no_arguments(parsed)
    name = parsed.one("name") or host()
    pool = parsed.one("pool") or os.environ.get("ROOST_URL", "")
    at = urlsplit(pool.partition(",")[0] if "://" in pool else f"//{pool}").hostname or name
    domain = parsed.one("uid-domain") or layout.domain_of(at)
    if parsed.has("dry-run"):
        point = AccessPoint(name, sys.executable, pool, domain, bool(parsed.one("ca-file")))
        setup_common.show(access.files(point, _SECRET, _SECRET, _SECRET))
        return 0
    if parsed.has("remove"):
        more = _revoke(access.ROLE, name)
        kept = (access.STATE, access.CERTIFICATE.parent, layout.identity(access.ROLE, name))
        return setup_common.remove([access.UNIT], [layout.local_path(access.KIND), access.PROFILE], kept, more)
    certificate = _certificate(parsed, name)

    def files(joined: _Joined) -> list[File]:
        point = AccessPoint(name, sys.executable, pool, domain, joined.authority)
        return access.files(point, joined.url, certificate, joined.keys)

    if _set_up(parsed, access.ROLE, name, files, (access.ACCOUNT, access.STATE)):
        setup_common.start([access.UNIT])
        say(f"{name} is an access point of the pool")
    return 0


@dataclass(frozen=True, slots=True)
class _Joined:
    """url: of the broker, with the daemon's password; keys: of the gateways, in PEM; authority: whether the pool has
    one of its own."""

    url: str
    keys: str
    authority: bool


def _revoke(role: str, name: str) -> str:
    return f"its user of the broker goes with roost identities revoke {role}.{name}, as an administrator"


def _no_arguments(parsed: Parsed) -> None:
    if parsed.arguments:
        raise UsageError(f"{parsed.arguments[0][:80]!r} does not belong here; see -help")


def _certificate(parsed: Parsed, name: str) -> str:
    """The one that is named; that of the pool's authority where this machine has its key; or the one that is there."""
    named = parsed.one("certificate-file")
    root = Path(parsed.one("root") or "/")
    there = machine.below(root, access.CERTIFICATE)
    owner = secrets.authority(Path(central.CA_DIRECTORY))
    try:
        if not named and not parsed.one("root") and owner.ca_key.exists():
            return secrets.certificate(owner, access.ROLE, [name])
        if not named and not there.exists():
            raise UsageError(
                f"setup wants -certificate-file FILE: on the central manager, roost setup certificate {name} > FILE"
            )
        text = Path(named or there).read_text(encoding="ascii")
    except (OSError, UnicodeError) as error:
        raise ClientError(f"{named or there}: {getattr(error, 'strerror', '') or error}", "failed") from error
    if problem := secrets.certificate_problem(text, name):
        raise ClientError(f"{named or there}: {problem}", "failed")
    return text


def _set_up(
    parsed: Parsed,
    role: str,
    name: str,
    files: Callable[[_Joined], list[File]],
    account: tuple[str, PurePosixPath] | None = None,
) -> bool:
    """Enroll and write. account: that the daemon has, and its home; None: root's. Says whether the daemon is to be
    started. Raises ClientError."""
    root = Path(parsed.one("root") or "/")
    starts = not parsed.has("no-start") and not parsed.one("root")
    if not parsed.one("token-file"):
        raise UsageError(f"setup wants -token-file FILE: an administrator makes one, roost enroll -create -role {role}")
    setup_common.check(parsed, starts=starts)
    try:
        setup_common.check_configuration(root)
        token = join_token(parsed.one("token-file"))
        authority = _authority(parsed, root)
        machine.ensure_directory(machine.below(root, layout.ETC))
        place = machine.below(root, layout.IDENTITIES)
        done = enrolment.join(parsed.one("pool") or None, role, name, token, place)
        keys = done.keys.read_text(encoding="ascii") if done.keys else ""
        if account is not None and root == Path("/") and machine.ensure_account(*account):
            say(f"made the account {account[0]}")
        setup_common.write(files(_Joined(done.url, keys, authority)), root)
    except OSError as error:
        raise setup_common.told(error, root) from error
    return starts


def _authority(parsed: Parsed, root: Path) -> bool:
    """Whether the pool has an authority of its own, which is then believed. Raises OSError, ClientError."""
    path = machine.below(root, layout.AUTHORITY)
    if named := parsed.one("ca-file"):
        text = Path(named).read_text(encoding="ascii")
        if "BEGIN CERTIFICATE" not in text:
            raise ClientError(f"{named} holds no certificate", "failed")
        setup_common.write([File(layout.AUTHORITY, text)], root)
        os.environ["ROOST_CA_FILE"] = str(path)
    elif path.exists():
        os.environ.setdefault("ROOST_CA_FILE", str(path))
    return path.exists()
