"""What `roost config-val` tells: values, where they came from, their raw text and their defaults.

    report = values(config, ["NEGOTIATOR_INTERVAL"], verbose=True)   # names in order
    report = dump(config, "^NEGOTIATOR", verbose=False)              # all macros whose names match
    report.text, report.errors, report.exit_code                     # for stdout, for stderr, 1 if one is not defined
    report.as_json()                                                 # the same as data

Load `config` with the `-subsystem` and `-local-name` that were asked for. Macros that can not be expanded are
errors in the report, not exceptions.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from shared.config.config import Config
from shared.config.errors import ConfigError, Source, config_error
from shared.config.knobs import DEFAULTS, KNOBS


@dataclass(frozen=True, slots=True)
class Answer:
    """One macro. `name` is the row that was found, with its scope (SCHEDD.X) if it has one.

    value: expanded, None if not defined. raw: as written. default: its text, unexpanded. problem: why the
    value can not be told. effect: "none" or "part" of a knob that nothing, or not all, goes by, and empty for others;
    why: what there is to say of that.
    """

    asked: str
    name: str
    value: str | None
    raw: str | None
    source: Source | None
    default: str | None
    problem: str = ""
    effect: str = ""
    why: str = ""

    def as_json(self) -> dict[str, object]:
        """The answer as plain data."""
        return {
            "name": self.name,
            "value": self.value,
            "raw": self.raw,
            "file": self.source.name if self.source is not None else None,
            "line": self.source.line or None if self.source is not None else None,
            "template": self.source.template or None if self.source is not None else None,
            "default": self.default,
            **({"error": self.problem} if self.problem else {}),
            **({"effect": self.effect, "why": self.why} if self.effect else {}),
        }


@dataclass(frozen=True, slots=True)
class Report:
    """Answers, and what to print of them. notes: besides, for standard error: what does nothing."""

    answers: tuple[Answer, ...]
    text: str
    errors: str = ""
    notes: str = ""

    @property
    def exit_code(self) -> int:
        """1 if something asked for is not defined or can not be expanded."""
        return 1 if self.errors else 0

    def as_json(self) -> list[dict[str, object]]:
        """All answers as plain data."""
        return [answer.as_json() for answer in self.answers]


def look_up(config: Config, name: str) -> Answer:
    """Everything there is to say about one name."""
    row = config.table.find(name)
    default = config.default(name)
    effect, why = _effect(name)
    if row is None:
        return Answer(name, name, None, None, None, default, "", effect, why)
    try:
        value, problem = config.get(name), ""
    except ConfigError as error:
        value, problem = None, str(error)
    shown = row.name if row.source.name != "<default>" else _declared_name(name)
    return Answer(name, shown, value, row.text, row.source, default, problem, effect, why)


def _effect(name: str) -> tuple[str, str]:
    # What is dumped, or set by a file's template, does without.
    from shared.config.effects import place_scoped
    from shared.effects import Effect

    placed = place_scoped(name)
    return (placed.kind.value, placed.why) if placed is not None and placed.kind is not Effect.FULL else ("", "")


def values(
    config: Config, names: Sequence[str], *, verbose: bool = False, raw: bool = False, default: bool = False
) -> Report:
    """The values of some names, one a line; `raw` or `default` print that text instead; `verbose` all of it."""
    answers = tuple(look_up(config, name) for name in names)
    shown: list[str] = []
    errors: list[str] = []
    notes: list[str] = []
    for answer in answers:
        wanted = answer.raw if raw else answer.default if default else answer.value
        if answer.problem and not (raw or default):
            errors.append(answer.problem)
        elif not wanted:
            errors.append(f"Not defined: {answer.asked}")
        if answer.effect == "none" and not verbose:
            notes.append(f"WARNING: {answer.asked} has no effect: {answer.why}")
        if verbose:
            shown += _verbose(answer)
        elif wanted:
            shown.append(wanted)
    return Report(answers, _lines(shown), _lines(errors), _lines(notes))


def dump(
    config: Config, pattern: str | None = None, *, verbose: bool = False, expand: bool = False, default: bool = False
) -> Report:
    """Macros by name: those that are set, and with `default` the declared knobs that are not, too.

    pattern: a regular expression searched for in the names, in any case. Raises ConfigError if it is none.
    The text shown is the raw one unless `expand`.
    """
    try:
        wanted = re.compile(pattern or "", re.IGNORECASE)
    except re.error as error:
        raise config_error(f"'{pattern}' is no regular expression: {error}") from None
    names = {
        macro.name.lower(): macro.name for macro in config.macros() if macro.source.name != "<detected>" or default
    }
    if default:
        names = {key: _declared_name(key) for key in DEFAULTS} | names
    answers: list[Answer] = []
    for _, name in sorted(names.items()):
        if wanted.search(name):
            answers.append(look_up(config, name))
    shown = ["# Configuration" + (f" of names that match {pattern}" if pattern else "") + ":"]
    for answer in answers:
        text = answer.value if expand else answer.raw
        shown += _assignment(answer.name, text or "")
        if verbose:
            shown += _details(answer, "expanded", answer.value if answer.problem == "" else answer.problem)
    shown += ["# Files that were read:", *(f"#\t{name}" for name in config.files)]
    return Report(tuple(answers), _lines(shown))


def _declared_name(name: str) -> str:
    knob = KNOBS.get(name.lower())
    return knob.name if knob is not None else name


def _lines(parts: Iterable[str]) -> str:
    return "".join(f"{part}\n" for part in parts)


def _assignment(name: str, text: str) -> list[str]:
    """A line that reads back as this macro; several for a text of several lines."""
    if "\n" not in text:
        return [f"{name} = {text}"]
    tag = "end"
    while any(line.strip() == f"@{tag}" for line in text.split("\n")):
        tag += "_"
    return [f"{name} @={tag}", *("   " + line for line in text.split("\n")), f"@{tag}"]


def _verbose(answer: Answer) -> list[str]:
    shown = _assignment(answer.name, answer.value) if answer.value is not None else []
    return shown + _details(answer, "raw", answer.raw)


def _details(answer: Answer, label: str, text: str | None) -> list[str]:
    details = [f" # at: {answer.source}"] if answer.source is not None else []
    if text is not None:
        details.append(f" # {label}: " + text.replace("\n", "\n #   "))
    if answer.default is not None:
        details.append(f" # default: {answer.default}")
    if answer.effect:
        details.append(f" # effect: {'none' if answer.effect == 'none' else 'in part'}: {answer.why}")
    return details
