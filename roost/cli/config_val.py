"""`roost config-val`: what the configuration says, where, and what the default is. Reads files, asks no pool."""

from __future__ import annotations

import json
import sys

from roost.cli.options import Option, flag, parse, usage, value
from roost.cli.output import say
from roost.errors import UsageError
from shared.config import load_config, report

OPTIONS: tuple[Option, ...] = (
    flag("verbose", "v", help="also the text as written, where it stands, and the default"),
    flag("dump", help="everything that is set; NAME is then a regular expression"),
    flag("default", help="the default; with -dump also knobs that are not set"),
    flag("raw", help="the text as written, not expanded"),
    flag("expand", help="with -dump: expanded values"),
    value("subsystem", "subsys", help="as this daemon sees it, e.g. SCHEDD", metavar="DAEMON"),
    value("local-name", help="as the daemon of this local name sees it", metavar="NAME"),
    flag("json", help="as JSON"),
    flag("help", "h", help="show this help"),
)


def run(command: str, argv: list[str]) -> int:
    parsed = parse(argv, OPTIONS)
    if parsed.has("help"):
        say(usage(command, "NAME...", "What the configuration says. Exit code 1 if a name is not defined.", OPTIONS))
        return 0
    config = load_config(subsystem=parsed.one("subsystem", "TOOL").upper(), local_name=parsed.one("local-name") or None)
    for problem in config.warnings:
        sys.stderr.write(f"WARNING: {problem}\n")
    if parsed.has("dump"):
        if len(parsed.arguments) > 1:
            raise UsageError("-dump takes one regular expression")
        pattern = parsed.arguments[0] if parsed.arguments else None
        found = report.dump(
            config, pattern, verbose=parsed.has("verbose"), expand=parsed.has("expand"), default=parsed.has("default")
        )
    elif not parsed.arguments:
        raise UsageError("which knob? roost config-val NAME, or -dump for all")
    else:
        found = report.values(
            config,
            parsed.arguments,
            verbose=parsed.has("verbose"),
            raw=parsed.has("raw"),
            default=parsed.has("default"),
        )
    if parsed.has("json"):
        say(json.dumps(found.as_json(), indent=2))
    else:
        sys.stdout.write(found.text)
    sys.stderr.write(found.errors)
    return found.exit_code
