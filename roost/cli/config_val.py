"""`roost config-val`: what the configuration says, where, and what the default is. Reads files; of running daemons
(-name, -startd, ...) it asks the pool what they go by, and sets what they may be told to (-set, -rset)."""

from __future__ import annotations

import difflib
import json
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Final

from roost.cli.config_check import check
from roost.cli.daemon_commands import report as report_answers
from roost.cli.options import COMMON, Option, Parsed, flag, parse, usage, value
from roost.cli.output import say
from roost.cli.times import counted
from roost.client import Client
from roost.errors import UsageError
from roost.personal_config import tool_config
from shared.config import report
from shared.config.knobs import KNOBS

#: Options that ask running daemons of that kind.
DAEMONS: Final = ("startd", "schedd", "negotiator", "collector", "had", "journal", "gateway", "defrag", "rooster")

#: Option -> whether it sets, whether for good, and what it does.
_CHANGES: Final = {
    "set": (True, True, "set macros of running daemons for good: -set 'NAME = VALUE'... -startd"),
    "unset": (False, True, "take back what was set for good: -unset NAME... -startd"),
    "rset": (True, False, "set macros of running daemons until they restart"),
    "runset": (False, False, "take back what was set until the restart"),
}

OPTIONS: tuple[Option, ...] = (
    flag("verbose", "v", help="also the text as written, where it stands, and the default"),
    flag("check", help="everything that is wrong, or has no effect, for all daemons or those of -subsystem"),
    flag("dump", help="everything that is set; NAME is then a regular expression"),
    flag("default", help="the default; with -dump also knobs that are not set"),
    flag("raw", help="the text as written, not expanded"),
    flag("expand", help="with -dump: expanded values"),
    value("subsystem", "subsys", help="as this daemon sees it, e.g. SCHEDD", metavar="DAEMON"),
    value("local-name", help="as the daemon of this local name sees it", metavar="NAME"),
    value("name", help="what the running daemons of this name, or on this machine, go by", metavar="NAME"),
    *(flag(kind, help=f"what running {kind}s go by") for kind in DAEMONS),
    flag("all", help="with -set and the like: all running daemons, or all of the kinds named"),
    *(flag(option, help=told) for option, (_, _, told) in _CHANGES.items()),
    flag("json", help="as JSON"),
    *COMMON,
)


def run(command: str, argv: list[str]) -> int:
    parsed = parse(argv, OPTIONS)
    if parsed.has("help"):
        say(usage(command, "NAME...", "What the configuration says. Exit code 1 if a name is not defined.", OPTIONS))
        return 0
    if any(parsed.has(option) for option in _CHANGES):
        return _change(parsed)
    if parsed.has("check"):
        return _check(parsed)
    if parsed.has("all"):
        raise UsageError("-all goes with -set, -unset, -rset and -runset")
    if parsed.has("name") or any(parsed.has(kind) for kind in DAEMONS):
        return _running(parsed)
    config = tool_config(parsed.one("subsystem", "TOOL").upper(), local_name=parsed.one("local-name") or None)
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
    sys.stderr.write(found.notes + _with_near(found.errors))
    return found.exit_code


def _check(parsed: Parsed) -> int:
    """Exit status 1 if a daemon would refuse to start."""
    for option in ("verbose", "dump", "default", "raw", "expand", "name", "all", *DAEMONS):
        if parsed.has(option):
            raise UsageError(f"-{option} does not go together with -check; leave it out")
    if parsed.arguments:
        raise UsageError("-check looks at the whole configuration; leave the names out")
    subsystems = [parsed.one("subsystem").upper()] if parsed.has("subsystem") else []
    findings, files = check(subsystems, parsed.one("local-name") or None)
    errors = sum(finding.error for finding in findings)
    if parsed.has("json"):
        say(json.dumps([finding.as_json() for finding in findings], indent=2))
    else:
        for finding in findings:
            say(str(finding))
        read = ", ".join(files) or "no file"
        say(f"Read {read}: {counted(errors, 'error')}, {counted(len(findings) - errors, 'warning')}.")
    return 1 if errors else 0


def _running(parsed: Parsed) -> int:
    for option in ("local-name", "expand"):
        if parsed.has(option):
            raise UsageError(f"-{option} does not go together with running daemons; leave it out")
    kinds = _kinds(parsed)
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


def _kinds(parsed: Parsed) -> list[str]:
    kinds = [kind.upper() for kind in DAEMONS if parsed.has(kind)]
    return [*kinds, parsed.one("subsystem").upper()] if parsed.has("subsystem") else kinds


def _change(parsed: Parsed) -> int:
    chosen = [option for option in _CHANGES if parsed.has(option)]
    if len(chosen) > 1:
        raise UsageError(f"-{chosen[0]} and -{chosen[1]} do not go together")
    sets, persistent, _ = _CHANGES[chosen[0]]
    for option in ("local-name", "expand", "dump", "default", "raw", "verbose"):
        if parsed.has(option):
            raise UsageError(f"-{option} does not go together with -{chosen[0]}; leave it out")
    kinds, names, everybody = _kinds(parsed), parsed.all("name"), parsed.has("all")
    if not parsed.arguments:
        raise UsageError(f"-{chosen[0]} wants " + ("'NAME = VALUE'" if sets else "NAME"))
    if everybody and names:
        raise UsageError("-all means everybody: leave -name out")
    if not (kinds or names or everybody):
        raise UsageError(f"whose? -{chosen[0]} wants -name NAME, a kind such as -negotiator, or -all")
    macros = dict(_assignment(chosen[0], written) for written in parsed.arguments) if sets else {}
    if sets and len(macros) < len(parsed.arguments):
        raise UsageError(f"-{chosen[0]}: a macro is named twice")
    with Client(parsed.one("pool") or None) as client:
        answers = client.set_config(
            macros,
            unset=() if sets else parsed.arguments,
            daemons=names,
            subsystems=kinds,
            everybody=not names,
            persistent=persistent,
        )
    return report_answers(parsed, answers)


def _assignment(option: str, written: str) -> tuple[str, str]:
    name, equals, text = written.partition("=")
    if not equals or not name.strip():
        raise UsageError(f"-{option} {written}: write 'NAME = VALUE', with quotes around it")
    return name.strip(), text.strip()


def _with_near(errors: str) -> str:
    """The same lines, with the knob that somebody may have meant below each that is not defined."""
    lines = []
    for line in errors.splitlines(keepends=True):
        lines.append(line)
        name = line.removeprefix("Not defined: ").strip()
        if line.startswith("Not defined: ") and (mend := _near(name)):
            lines.append(f"{mend}\n")
    return "".join(lines)


def _near(name: str) -> str:
    by_key = {knob.name.lower(): knob.name for knob in KNOBS.values()}
    found = difflib.get_close_matches(name.lower(), by_key, 1, 0.85)
    return f"Did you mean {by_key[found[0]]}?" if found and found[0] != name.lower() else ""


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
                errors += [f"{before}{mend}"] if (mend := _near(name)) else []
                continue
            shown = str(text).replace("\n", "\n  ")
            out.append(before + (shown if names and not verbose else f"{macro['name']} = {shown}"))
            if verbose:
                where = f"{macro['file']}, line {macro['line']}" if macro.get("file") else "its default"
                out += [f" # at: {where}", f" # raw: {macro['name']} = {macro.get('raw')}"]
                if macro.get("default") is not None:
                    out.append(f" # default: {macro['default']}")
    return out, errors
