"""`roost support-bundle`: one file for who helps with a pool from afar, without its secrets."""

from __future__ import annotations

import time
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from roost.cli.options import COMMON, Option, parse, usage, value
from roost.cli.output import say
from roost.client import Client
from roost.doctor import examine
from roost.errors import ClientError, UsageError
from roost.personal_config import tool_config
from roost.support_bundle import Scrubber, secrets_here, write
from shared.config.errors import ConfigError

OPTIONS: Final[tuple[Option, ...]] = (
    value("output", "o", help="the file to make (roost-support-DATE.tar.gz in this directory)", metavar="FILE"),
    *COMMON,
)
_ABOUT: Final = (
    "Puts into one file what somebody needs who helps from afar: what roost doctor says, versions, the daemons' "
    "configuration, ads, recent events, and the ends of this machine's logs. Passwords, tokens, keys and claim ids are "
    "taken out; names of users, machines and jobs are in it. Look at it before you give it away."
)


def run(command: str, argv: list[str]) -> int:
    parsed = parse(argv, OPTIONS)
    if parsed.has("help"):
        say(usage(command, "", _ABOUT, OPTIONS))
        return 0
    if parsed.arguments:
        raise UsageError(f"{parsed.arguments[0]!r} does not belong here: -output names the file")
    now = time.time()
    path = Path(parsed.one("output") or time.strftime("roost-support-%Y%m%d-%H%M%S.tar.gz", time.gmtime(now)))
    with ExitStack() as stack:
        client, why = None, ""
        try:
            client = stack.enter_context(Client(parsed.one("pool") or None))
        except ClientError as error:
            why = str(error)
        report = examine(client, why)
        try:
            config = tool_config()
        except (ConfigError, ClientError) as error:
            config = None
            say(f"without this machine's configuration: {error}")
        scrubber = Scrubber(secrets_here(config))
        try:
            names = write(path, client, config, report, scrubber, now)
        except OSError as error:
            raise ClientError(f"{path}: {error.strerror or error}", "failed") from error
    say(f"wrote {path} with {len(names)} parts; it names users, machines and jobs: look at it before you give it away")
    return 0
