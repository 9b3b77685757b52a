"""`roost config-val`: what the configuration says, where, and what the default is. Reads files; of running daemons
(-name, -startd, ...) it asks the pool what they go by."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Final

from roost.cli.options import COMMON, Option, Parsed, flag, parse, usage, value
from roost.cli.output import say
from roost.client import Client
from roost.errors import UsageError
from shared.config import load_config, report

#: Options that ask running daemons of that kind.
DAEMONS: Final = ("startd", "schedd", "negotiator", "collector", "had", "gateway")

OPTIONS: tuple[Option, ...] = (
    flag("verbose", "v", help="also the text as written, where it stands, and the default"),
    flag("dump", help="everything that is set; NAME is then a regular expression"),
    flag("default", help="the default; with -dump also knobs that are not set"),
    flag("raw", help="the text as written, not expanded"),
    flag("expand", help="with -dump: expanded values"),
    value("subsystem", "subsys", help="as this daemon sees it, e.g. SCHEDD", metavar="DAEMON"),
    value("local-name", help="as the daemon of this local name sees it", metavar="NAME"),
    value("name", help="what the running daemons of this name, or on this machine, go by", metavar="NAME"),
    *(flag(kind, help=f"what running {kind}s go by") for kind in DAEMONS),
    flag("json", help="as JSON"),
    *COMMON,
)


def run(command: str, argv: list[str]) -> int:
    parsed = parse(argv, OPTIONS)
    if parsed.has("help"):
        say(usage(command, "NAME...", "What the configuration says. Exit code 1 if a name is not defined.", OPTIONS))
        return 0
    if parsed.has("name") or any(parsed.has(kind) for kind in DAEMONS):
        return _running(parsed)
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


def _running(parsed: Parsed) -> int:
    for option in ("local-name", "expand"):
        if parsed.has(option):
            raise UsageError(f"-{option} does not go together with running daemons; leave it out")
    kinds = [kind.upper() for kind in DAEMONS if parsed.has(kind)]
    if parsed.has("subsystem"):
        kinds.append(parsed.one("subsystem").upper())
    if parsed.has("dump"):
        if len(parsed.arguments) > 1:
            raise UsageError("-dump takes one pattern")
        names, pattern = [], parsed.arguments[0] if parsed.arguments else ""
    elif parsed.arguments:
        names, pattern = parsed.arguments, ""
    else:
        raise UsageError("which knob? roost config-val -name NAME KNOB, or -dump for all that is set")
    with Client(parsed.one("pool") or None) as client:
        answers = client.config(*names, daemons=parsed.all("name"), subsystems=kinds, pattern=pattern)
    if parsed.has("json"):
        say(json.dumps(answers, indent=1))
        return 0 if all(answer["done"] for answer in answers) else 1
    field = "default" if parsed.has("default") else "raw" if parsed.has("raw") else "value"
    out, errors = told(answers, names, field=field, verbose=parsed.has("verbose"))
    for line in out:
        say(line)
    sys.stderr.write("".join(f"{line}\n" for line in errors))
    return 1 if errors else 0


def told(
    answers: Sequence[Mapping[str, Any]], names: Sequence[str], *, field: str, verbose: bool
) -> tuple[list[str], list[str]]:
    """What running daemons said, as lines for standard output and standard error. Where several answered, each line
    says who. Names that were asked for have their values without the name in front, as of files."""
    out: list[str] = []
    errors: list[str] = []
    for answer in answers:
        who = f"{str(answer['subsystem']).lower()} {answer['name']}"
        before = f"{who}: " if len(answers) > 1 else ""
        if not answer["done"]:
            errors.append(f"{who}: {answer['said']}")
            continue
        found = {str(macro["name"]).lower(): macro for macro in answer["macros"]}
        for name in names or sorted(found):
            macro = found.get(name.lower())
            text = macro.get(field) if macro is not None else None
            if macro is None or text is None:
                errors.append(f"{before}Not defined: {name}")
                continue
            shown = str(text).replace("\n", "\n  ")
            out.append(before + (shown if names and not verbose else f"{macro['name']} = {shown}"))
            if verbose:
                where = f"{macro['file']}, line {macro['line']}" if macro.get("file") else "its default"
                out += [f" # at: {where}", f" # raw: {macro['name']} = {macro.get('raw')}"]
                if macro.get("default") is not None:
                    out.append(f" # default: {macro['default']}")
    return out, errors
