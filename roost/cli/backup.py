"""`roost backup` and `roost restore`: what a pool keeps, into a directory and back."""

from __future__ import annotations

import socket
import time
from pathlib import Path
from typing import Final

from roost import personal_config
from roost.backup import manifest
from roost.backup.manifest import Manifest
from roost.backup.restore import Target, restore
from roost.backup.take import Source, take
from roost.cli.options import Option, Parsed, flag, parse, usage, value
from roost.cli.output import say
from roost.errors import ClientError, UsageError
from roost.pool_directory import CONFIG_FILE, pool_dir
from shared.config import Config, load_config
from shared.config.knobs.tls import TlsSettings
from shared.tls import ClientTls
from shared.version import VERSION

_HELP: Final = flag("help", "h", help="show this help")
BACKUP: Final[tuple[Option, ...]] = (
    value(
        "dir", help="of a personal pool (ROOST_POOL_DIR, ~/.roost), in place of this machine's daemons", metavar="DIR"
    ),
    value("spool", help="of this machine's daemons (SPOOL of its configuration)", metavar="DIR"),
    value("redis", help="Redis, as a user who may read all of it (ROOST_REDIS_URL)", metavar="URL"),
    value("shards", help="names of negotiators that share the pool (NEGOTIATOR_NAME), with commas", metavar="NAMES"),
    flag("check", help="look whether a backup is whole, and can be restored by this release"),
    _HELP,
)
RESTORE: Final[tuple[Option, ...]] = (
    value("dir", help="new directory of a personal pool; without: this machine's SPOOL and Redis", metavar="DIR"),
    value("spool", help="of this machine's daemons (SPOOL of its configuration)", metavar="DIR"),
    value("redis", help="Redis, as a user who may write all of it (ROOST_REDIS_URL)", metavar="URL"),
    flag("spool-only", help="leave Redis as it is, as for one access point of a pool that works"),
    flag("configuration", help="write files of the configuration where they were, if there are none"),
    _HELP,
)
_ABOUT: Final = (
    "Copies queues, histories, accounting records, tokens, the journal and the configuration into a new DIRECTORY, "
    "while the pool works. Of a personal pool all of it; else what this machine's daemons keep, and Redis where its "
    "configuration names it. The directory holds secrets: it is for its owner only."
)
_ABOUT_RESTORE: Final = (
    "Puts a backup back, where nothing of a pool is yet. No daemon runs meanwhile, and the pool that the backup "
    "is of does not run any more. Jobs that were running are found by their startds where these went on, and else run "
    "again."
)


def run(command: str, argv: list[str]) -> int:
    from shared.daemon import logs

    logs.configure("WARNING")  # of a Redis of its own that it starts nobody wants to know
    return _backup(command, argv) if command == "backup" else _restore(command, argv)


def _backup(command: str, argv: list[str]) -> int:
    parsed = parse(argv, BACKUP)
    if parsed.has("help"):
        say(usage(command, "DIRECTORY", _ABOUT, BACKUP))
        return 0
    directory = _one(command, parsed.arguments)
    try:
        if parsed.has("check"):
            return _check(directory)
        source, names, left_out = _source(parsed)
        about = Manifest(
            VERSION, time.time(), socket.gethostname(), source.pool is not None, names=names, left_out=left_out
        )
        made = take(source, directory, about)
    except OSError as error:
        raise ClientError(f"{error.filename or directory}: {error.strerror or error}", "failed") from error
    say(f"wrote {len(made.files)} files into {directory}; it holds secrets, and is for its owner only")
    for what in made.left_out:
        say(f"not in it: {what}")
    return 0


def _check(directory: Path) -> int:
    found = manifest.read(directory)
    problems = manifest.check(directory, found)
    for line in problems:
        say(line)
    if not problems:
        when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(found.at))
        say(f"{directory} is whole: {len(found.files)} files of {found.host}, {when}, by Roost {found.release}")
    return 1 if problems else 0


def _one(command: str, arguments: list[str]) -> Path:
    if len(arguments) != 1:
        raise UsageError(f"roost {command} wants one DIRECTORY")
    return Path(arguments[0]).expanduser().absolute()


def _source(parsed: Parsed) -> tuple[Source, dict[str, str], list[str]]:
    """What is to be backed up, the names of its daemons, and what will not be in it. Raises ClientError and
    ConfigError."""
    pool = _personal(parsed.one("dir"))
    if pool is not None and parsed.has("spool"):
        raise UsageError("-spool is of a machine's daemons, and this is a personal pool")
    config = _config(pool, "SCHEDD")
    spool = Path(parsed.one("spool") or config.get("SPOOL") or "spool")
    named = [
        one.strip() for one in (parsed.one("shards") or config.get("NEGOTIATOR_NAME") or "").split(",") if one.strip()
    ]
    left_out = []
    if url := config.get("ROOST_JOURNAL_URL"):
        left_out.append(
            f"the journal, which lies in {url.partition(':')[0]}: back it up with that database's own tools"
        )
    source = Source(
        spool=spool,
        pool=pool,
        configuration=[] if pool is not None else list(config.files),
        store=parsed.one("redis") or ("" if pool is not None else config.get("ROOST_REDIS_URL") or ""),
        shards=named,
        tls=ClientTls.of(TlsSettings.from_config(config)),
    )
    return source, _names(config), left_out


def _personal(given: str) -> Path | None:
    """The personal pool that is meant; None: the daemons of this machine."""
    directory = pool_dir(given or None)
    if given and not (directory / CONFIG_FILE).exists():
        raise ClientError(f"there is no pool in {directory}", "no-pool")
    return directory if given or personal_config.is_meant() else None


def _config(pool: Path | None, subsystem: str) -> Config:
    if pool is None:
        return load_config(subsystem=subsystem)
    return personal_config.personal_config(pool, subsystem)


def _names(config: Config) -> dict[str, str]:
    return {"SCHEDD": config.get("SCHEDD_NAME") or config.get("FULL_HOSTNAME") or socket.gethostname()}


def _restore(command: str, argv: list[str]) -> int:
    parsed = parse(argv, RESTORE)
    if parsed.has("help"):
        say(usage(command, "DIRECTORY", _ABOUT_RESTORE, RESTORE))
        return 0
    directory = _one(command, parsed.arguments)
    found = manifest.read(directory)
    if found.personal and not parsed.has("dir"):
        raise UsageError(f"{directory} is of a personal pool: -dir names a new directory for it")
    config = load_config([] if parsed.has("dir") else None, subsystem="SCHEDD")
    target = Target(
        pool=Path(parsed.one("dir")).expanduser().absolute() if parsed.has("dir") else None,
        spool=Path(parsed.one("spool") or config.get("SPOOL") or "spool"),
        store="" if parsed.has("spool-only") else parsed.one("redis") or config.get("ROOST_REDIS_URL") or "",
        configuration=parsed.has("configuration"),
        tls=ClientTls.of(TlsSettings.from_config(config)),
    )
    try:
        for line in restore(directory, found, target, _names(config)):
            say(line)
    except OSError as error:
        raise ClientError(f"{error.filename or directory}: {error.strerror or error}", "failed") from error
    return 0
